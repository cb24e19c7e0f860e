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
	l := h.layout()
	if h.shoff == 0 || h.shnum == 0 {
		return nil
	}
	if h.shent < l.shdr || h.shnum > maxSections || h.shstr >= h.shnum {
		return &HeaderError{uint64(l.shentsize), "bad section headers", uint64(h.shent)}
	}
	bytes := uint64(h.shnum) * uint64(h.shent)
	if size < 0 || bytes > maxShdrs || h.shoff > uint64(size) || bytes > uint64(size)-h.shoff {
		return &HeaderError{uint64(l.shoff), "section headers beyond the end of the file, or too many", h.shoff}
	}
	table := make([]byte, bytes)
	if n, err := f.ReadAt(table, int64(h.shoff)); n < len(table) {
		return fmt.Errorf("read section headers: %w", orEOF(err))
	}
	names := h.section(table[h.shstr*h.shent:])
	if names.size > maxNameTable {
		return &HeaderError{h.shoff, "table of section names too large", names.size}
	}
	for i := range h.shnum {
		b := table[i*h.shent:]
		s := h.section(b)
		s.name = readName(f, names, uint64(h.order.Uint32(b)))
		visit(s)
	}
	return nil
}

func (h *header) section(b []byte) section {
	l := h.layout()
	return section{
		typ: elf.SectionType(h.order.Uint32(b[4:])), flags: elf.SectionFlag(h.word(b[l.shFlags:])),
		addr: h.word(b[l.shAddr:]), off: h.word(b[l.shOff:]), size: h.word(b[l.shSize:]),
		link: int(h.order.Uint32(b[l.shLink:])), ent: h.word(b[l.shEntsize:]),
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
