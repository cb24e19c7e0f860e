package module

import (
	"debug/elf"
	"fmt"
	"io"
)

// Bounds on section headers.
const (
	maxSections  = 1 << 16
	maxShdrs     = 8 << 20 // bytes of the table
	maxNameTable = 16 << 20
	maxName      = 64
)

// section is a section of a file that bears on tables or symbols.
type section struct {
	name  string
	typ   elf.SectionType
	flags elf.SectionFlag
	addr  uint64
	off   uint64
	size  uint64
	link  int
	ent   uint64
}

// readSections reads the section headers of the file that h was read from, for
// what the program headers do not tell. A file without any has none and no
// error. visit sees each section once; its name is cut to maxName bytes.
func (h *header) readSections(f io.ReaderAt, size int64, visit func(section)) error {
	l, t := h.enc.layout(), &h.shdrs
	if t.off == 0 || t.num == 0 {
		return nil
	}
	if t.ent < l.shdr.size || t.num > maxSections || t.names >= t.num {
		return &HeaderError{uint64(l.ehdr.shentsize), "bad section headers", uint64(t.ent)}
	}
	bytes := uint64(t.num) * uint64(t.ent)
	if size < 0 || bytes > maxShdrs || t.off > uint64(size) || bytes > uint64(size)-t.off {
		return &HeaderError{uint64(l.ehdr.shoff), "section headers beyond the end of the file, or too many", t.off}
	}
	table := make([]byte, bytes)
	if n, err := f.ReadAt(table, int64(t.off)); n < len(table) {
		return fmt.Errorf("read section headers: %w", orEOF(err))
	}
	names := h.enc.section(table[t.names*t.ent:])
	if names.size > maxNameTable {
		return &HeaderError{t.off, "table of section names too large", names.size}
	}
	for i := range t.num {
		b := table[i*t.ent:]
		s := h.enc.section(b)
		s.name = readName(f, names, uint64(h.enc.order.Uint32(b)))
		visit(s)
	}
	return nil
}

func (e *encoding) section(b []byte) section {
	l := &e.layout().shdr
	return section{
		typ: elf.SectionType(e.order.Uint32(b[4:])), flags: elf.SectionFlag(e.word(b[l.flags:])),
		addr: e.word(b[l.addr:]), off: e.word(b[l.off:]), size: e.word(b[l.length:]),
		link: int(e.order.Uint32(b[l.link:])), ent: e.word(b[l.entsize:]),
	}
}

// readName reads a name of up to maxName bytes from a string table; empty if
// it cannot be read.
func readName(f io.ReaderAt, table section, index uint64) string {
	if index >= table.size || table.off+table.size < table.off || table.off+index > 1<<62 {
		return ""
	}
	var b [maxName]byte
	n, _ := f.ReadAt(b[:min(maxName, table.size-index)], int64(table.off+index))
	for i, c := range b[:n] {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b[:n])
}
