package symbol

import (
	"debug/elf"
	"encoding/binary"
	"sort"
	"strings"
)

// Go's runtime carries a table of all functions, also in stripped programs. The
// layout is that of runtime/symtab.go (type pcHeader, _func, moduledata) and
// cmd/link/internal/ld/pcln.go; the magic numbers are from internal/abi. Tables
// of Go 1.2 to 1.15, 1.16, 1.18 and 1.20 to the present are read.

// goVersion is a layout of the table.
type goVersion uint8

const (
	go12 goVersion = iota + 1
	go116
	go118
	go120
)

// goLayout tells which layout a magic number stands for, 0 for none.
func goLayout(magic uint32) goVersion {
	switch magic {
	case 0xfffffffb:
		return go12
	case 0xfffffffa:
		return go116
	case 0xfffffff0:
		return go118
	case 0xfffffff1:
		return go120
	}
	return 0
}

const (
	// maxGoSearch bounds what is searched of a file for a table without a section, in bytes.
	maxGoSearch = 512 << 20
	// maxGoStarts bounds what looks like the beginning of one there, of which up to 24 MB are read each.
	maxGoStarts = 16
)

// maxGoFuncs bounds the table; the largest Go programs have some 500,000
// functions.
const maxGoFuncs = 1 << 21

// goTable finds functions in a pclntab. Everything but functab stays in the
// file. Only find is safe for concurrent use.
type goTable struct {
	im      *image
	version goVersion
	order   binary.ByteOrder
	ptr     uint64 // size of a pointer
	quantum uint64 // of instruction lengths
	off     int64  // of the table in the file
	addr    uint64 // of the table, by link-time address
	size    int64  // how far it may reach
	text    uint64 // what functab's offsets count from

	parts  goParts
	gofunc uint64 // address that funcdata offsets count from, 0 if unknown

	entry []uint64 // of each function, and the end of the last one
	fn    []uint32 // offset of each function's _func from goParts.fn
	names stringTable
	data  debugSection // the whole table
}

// goParts are the offsets of a table's parts from its beginning: names, files of compilation units, names of
// files, values by address, functions.
type goParts struct{ name, cu, file, pc, fn int64 }

// isGo reports whether a file comes from Go's linker: it has Go's build-id note
// or its build info.
func isGo(im *image) bool {
	const goBuildID = 4 // cmd/link/internal/ld/elf.go, ELF_NOTE_GOBUILDID_TAG
	for i := range im.sections {
		switch im.sections[i].name {
		case ".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo", ".note.go.buildid":
			return true
		}
	}
	return im.note("Go", goBuildID) != nil
}

// findGoTable finds and opens the pclntab, in its section or else by its magic in
// segments that hold constants. It returns errNoSection if there is none.
func findGoTable(im *image) (*goTable, error) {
	if !isGo(im) {
		return nil, errNoSection
	}
	err := error(errNoSection)
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := im.sections.named(name); s != nil {
			var t *goTable
			if t, err = goTableAt(im, s.off, s.size, s.addr); err == nil {
				return t, nil
			}
		}
	}
	left, starts := int64(maxGoSearch), maxGoStarts
	for _, p := range im.progs {
		if p.typ != elf.PT_LOAD || p.flags&elf.PF_X != 0 || p.filesz == 0 || p.filesz > left {
			continue
		}
		left -= p.filesz
		if t := searchGoTable(im, p, &starts); t != nil {
			return t, nil
		}
	}
	return nil, err
}

// searchGoTable looks for the table's header in one segment. The linker aligns
// it to at least 16 bytes. No more than *starts beginnings are tried, which are taken from that.
func searchGoTable(im *image, p prog, starts *int) *goTable {
	const align = 16
	buf := make([]byte, 1<<20)
	for done := int64(0); done < p.filesz; done += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), p.filesz-done)]
		if readFull(im.f, b, p.off+done) != nil {
			return nil
		}
		first := (align - (p.vaddr+uint64(done))%align) % align
		for i := first; i+8 <= uint64(len(b)); i += align {
			if goLayout(im.order.Uint32(b[i:])) == 0 || b[i+4] != 0 || b[i+5] != 0 {
				continue
			}
			if *starts--; *starts < 0 {
				return nil
			}
			at := done + int64(i)
			if t, err := goTableAt(im, p.off+at, p.filesz-at, p.vaddr+uint64(at)); err == nil {
				return t
			}
		}
	}
	return nil
}

// goTableAt opens the table at file offset off, of at most size bytes.
func goTableAt(im *image, off, size int64, addr uint64) (*goTable, error) {
	bad := func(text string, v uint64) error { return &FormatError{off, "pclntab: " + text, v} }
	var h [8 + 9*8]byte
	if size < int64(len(h)) {
		return nil, bad("too short", uint64(size))
	}
	if err := readFull(im.f, h[:], off); err != nil {
		return nil, err
	}
	t := &goTable{im: im, order: im.order, off: off, addr: addr, size: size, quantum: uint64(h[6]), ptr: uint64(h[7])}
	t.version = goLayout(im.order.Uint32(h[:]))
	switch {
	case t.version == 0:
		return nil, bad("unknown magic", uint64(im.order.Uint32(h[:])))
	case h[4] != 0 || h[5] != 0 || h[6] != 1 && h[6] != 2 && h[6] != 4:
		return nil, bad("unknown instruction quantum", t.quantum)
	case t.ptr != 4 && t.ptr != 8:
		return nil, bad("unknown pointer size", t.ptr)
	}
	word := func(i int) uint64 { return t.uint(h[8+uint64(i)*t.ptr:], t.ptr) }
	n := word(0)
	if n == 0 || n > maxGoFuncs {
		return nil, bad("unbelievable number of functions", n)
	}
	first := 2 // word that holds the first offset
	if t.version >= go118 {
		first = 3
	}
	if t.version != go12 {
		for i, part := range []*int64{&t.parts.name, &t.parts.cu, &t.parts.file, &t.parts.pc, &t.parts.fn} {
			w := word(first + i)
			if w >= uint64(size) {
				return nil, bad("a part lies outside the table", w)
			}
			*part = int64(w)
		}
	}
	t.data = debugSection{f: im.f, off: off, size: uint64(size)}
	t.names = stringTable{f: im.f, off: off + t.parts.name, size: size - t.parts.name}
	if err := t.readFuncs(n); err != nil || t.version < go118 {
		return t, err
	}
	t.findText(addr, word(2))
	for i := range t.entry {
		t.entry[i] += t.text
	}
	return t, nil
}

func (t *goTable) uint(b []byte, size uint64) uint64 {
	if size == 4 {
		return uint64(t.order.Uint32(b))
	}
	return t.order.Uint64(b)
}

// readFuncs reads functab: n pairs of entry and offset, and the end. From Go 1.18 on entries count from the text.
func (t *goTable) readFuncs(n uint64) error {
	field := t.ptr
	tab := t.parts.fn
	if t.version >= go118 {
		field = 4
	}
	if t.version == go12 {
		tab = int64(8 + t.ptr)
	}
	size := int64((2*n + 1) * field)
	if size > t.size-tab {
		return &FormatError{t.off, "pclntab: functions leave the table", n}
	}
	b := make([]byte, size)
	if err := readFull(t.im.f, b, t.off+tab); err != nil {
		return err
	}
	t.entry, t.fn = make([]uint64, n+1), make([]uint32, n)
	for i := range t.entry {
		e := t.uint(b[uint64(2*i)*field:], field)
		if i > 0 && e < t.entry[i-1] {
			return &FormatError{t.off, "pclntab: functions are not in order", e}
		}
		t.entry[i] = e
		if i < int(n) {
			t.fn[i] = uint32(t.uint(b[uint64(2*i+1)*field:], field))
		}
	}
	return nil
}

// findText finds the address that entries count from: the header's own word
// (until Go 1.25 in programs at fixed addresses), else what moduledata says,
// else the section .text (wrong only for programs linked with C code, whose
// moduledata then is found).
func (t *goTable) findText(addr, header uint64) {
	text, gofunc, ok := moduledata(t.im, addr, t.ptr)
	if ok {
		t.text, t.gofunc = text, gofunc
		return
	}
	if _, ok := t.im.text.at(header); ok {
		t.text = header
		return
	}
	for i := range t.im.sections {
		if s := &t.im.sections[i]; s.name == ".text" {
			t.text = s.addr
			return
		}
	}
	if len(t.im.text) > 0 {
		t.text = t.im.text[0].start
	}
}

// find returns the number of the function that holds addr, or none.
func (t *goTable) find(addr uint64) int32 {
	n := len(t.fn)
	i := sort.Search(n+1, func(i int) bool { return t.entry[i] > addr }) - 1
	if i < 0 || i >= n {
		return none
	}
	return int32(i)
}

// funcField returns 32-bit field n of function i's _func, counted after the
// entry: 0 is nameoff.
func (t *goTable) funcField(i int32, n int) (uint32, bool) {
	first := int64(4)
	if t.version < go118 {
		first = int64(t.ptr)
	}
	return t.uint32At(t.parts.fn + int64(t.fn[i]) + first + 4*int64(n))
}

// uint32At reads 4 bytes at an offset in the table.
func (t *goTable) uint32At(off int64) (uint32, bool) {
	if off < 0 || off > t.size-4 {
		return 0, false
	}
	b := t.data.bytes(uint64(off), 4)
	if len(b) < 4 {
		return 0, false
	}
	return t.order.Uint32(b), true
}

// name returns the name of function i, empty if the table is damaged there.
func (t *goTable) name(i int32) string {
	off, ok := t.funcField(i, 0)
	if !ok {
		return ""
	}
	return goName(t.names.name(off))
}

// goName writes a name as the linker does in the symbol table, which has no
// middle dots.
func goName(name string) string { return strings.ReplaceAll(name, "·", ".") }
