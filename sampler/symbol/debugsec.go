package symbol

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// debugSection is the contents of one DWARF section: in the file where they
// stand plain, in memory or a file without name where they had to be expanded.
type debugSection struct {
	f    File
	off  int64
	size uint64
	mem  []byte
	tmp  *os.File // what f reads, if it was expanded to a file

	// The last piece read from the file.
	window    []byte
	windowOff uint64
}

const windowSize = 64 << 10

// debugSection finds the section called .debug_name, in any of the ways that it
// may be compressed. A section that cannot be read is empty.
func (im *image) debugSection(name string) *debugSection {
	s := im.sections.debug(name)
	if s == nil {
		return &debugSection{}
	}
	if !s.isCompressed() {
		return &debugSection{f: im.f, off: s.off, size: uint64(s.size)}
	}
	tmp, n, err := im.expandToFile(s)
	if err != nil {
		return &debugSection{}
	}
	if tmp != nil {
		return &debugSection{f: io.NewSectionReader(tmp, 0, n), size: uint64(n), tmp: tmp}
	}
	mem, err := im.data(s, maxExpanded)
	if err != nil {
		return &debugSection{}
	}
	return &debugSection{mem: mem, size: uint64(len(mem))}
}

// bytes returns n bytes at off, fewer at the end of the section. They are valid
// until the next call.
func (d *debugSection) bytes(off uint64, n int) []byte {
	if off >= d.size {
		return nil
	}
	n = int(min(uint64(n), d.size-off))
	if d.mem != nil {
		return d.mem[off : off+uint64(n)]
	}
	if in := off - d.windowOff; off >= d.windowOff && in <= uint64(len(d.window)) && uint64(n) <= uint64(len(d.window))-in {
		return d.window[in : in+uint64(n)]
	}
	size := min(uint64(max(n, windowSize)), d.size-off)
	if uint64(cap(d.window)) < size {
		d.window = make([]byte, size)
	}
	d.window = d.window[:size]
	got, err := d.f.ReadAt(d.window, d.off+int64(off))
	if err != nil && err != io.EOF {
		got = 0
	}
	d.window, d.windowOff = d.window[:got], off
	return d.window[:min(n, got)]
}

// read returns n bytes at off, fewer at the end of the section, that stay.
func (d *debugSection) read(off uint64, n int) []byte {
	if off >= d.size {
		return nil
	}
	b := make([]byte, min(uint64(n), d.size-off))
	if d.mem != nil {
		copy(b, d.mem[off:])
		return b
	}
	got, err := d.f.ReadAt(b, d.off+int64(off))
	if err != nil && err != io.EOF {
		return nil
	}
	return b[:got]
}

// cursor returns a cursor over n bytes at off, valid until the next read.
func (d *debugSection) cursor(off uint64, n int, order binary.ByteOrder) cursor {
	return cursor{b: d.bytes(off, n), order: order}
}

// str reads the string at off, at most maxName bytes.
func (d *debugSection) str(off uint64) string {
	for n := 256; ; n *= 8 {
		b := d.bytes(off, min(n, maxName))
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(b[:i])
		}
		if n >= maxName || len(b) < n {
			return string(b)
		}
	}
}
