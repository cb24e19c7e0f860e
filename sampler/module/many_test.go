package module

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	"sfsample/ptrace/procfs"
)

// copies is a process that has a file mapped again and again, count times, each
// stride bytes above the last one.
type copies struct {
	list   []procfs.Mapping
	file   []byte
	stride uint64
	noMem  bool // memory cannot be read
	reads  int
	opened int
}

const maxMaps = 65530 // default of vm.max_map_count

func (c *copies) Maps() ([]procfs.Mapping, error) { return c.list, nil }

func (c *copies) ReadAt(b []byte, addr int64) (int, error) {
	c.reads++
	off := (uint64(addr) - libAt) % c.stride
	if c.noMem || off >= uint64(len(c.file)) {
		return 0, errors.New("no memory")
	}
	if n := copy(b, c.file[off:]); n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return len(b), nil
}

func (c *copies) OpenFile(procfs.Mapping) (File, error) {
	if c.opened++; c.file == nil {
		return nil, fs.ErrNotExist
	}
	return bytesFile{io.NewSectionReader(bytes.NewReader(c.file), 0, int64(len(c.file)))}, nil
}

func (c *copies) add(addr, off, size uint64) {
	c.list = append(c.list, procfs.Mapping{Start: addr, End: addr + size, Perms: rx, Offset: off, Inode: 5, Path: "/lib/a.so"})
}

// TestManyMappings: what a process of as many mappings as there can be costs grows as
// their number does, whatever they are of, and the objects among them are found.
func TestManyMappings(t *testing.T) {
	whole := image{buildID: "11111111", cfa: 8, sframe: 3, wholeText: true}.bytes()
	const page = 0x1000
	tests := []struct {
		name    string
		make    func(c *copies, n uint64)
		objects int
		reads   int // at most, for each mapping
	}{
		{"an object each", func(c *copies, n uint64) {
			c.stride = 0x10000
			for i := range n {
				c.add(libAt+i*c.stride, 0, 2*page)
			}
		}, maxCopies, 8},
		{"another file behind them", func(c *copies, n uint64) {
			c.stride = 0x10000
			for i := range n {
				c.add(libAt+i*c.stride, 0, 2*page)
			}
			c.list[n-1].Inode++
		}, maxCopies + 1, 8},
		{"one object in pieces", func(c *copies, n uint64) {
			c.stride = 1 << 40
			for i := range n {
				c.add(libAt+2*i, 2*i, 2) // no kernel has such pages
			}
			c.list[0].End, c.list[1].Start, c.list[1].Offset = libAt+3, libAt+3, 3
		}, 1, 8},
		{"beginnings that are not ELF", func(c *copies, n uint64) {
			c.stride, c.file = page, make([]byte, page)
			for i := range n {
				c.add(libAt+i*c.stride, 0, page)
			}
		}, 0, 1},
		{"pieces without a header, all elsewhere", func(c *copies, n uint64) {
			c.stride, c.noMem = page, true
			for i := range n {
				c.add(libAt+2*i*c.stride, page, page)
			}
		}, maxCopies, 4},
		{"pieces that belong nowhere", func(c *copies, n uint64) {
			c.stride, c.noMem = page, true
			for i := range n {
				c.add(libAt+2*i*c.stride, 0x100000, page)
			}
		}, 0, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &copies{file: whole}
			tt.make(c, maxMaps)
			s := NewSpace(c, NewCache(0), Options{})
			for range 2 { // the second time objects are recognised
				if err := s.Refresh(); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(s.Modules()); n != tt.objects {
				t.Errorf("%d objects, want %d", n, tt.objects)
			}
			if c.reads > 2*tt.reads*maxMaps || c.opened > 8 {
				t.Errorf("%d reads of memory and %d files opened, for %d mappings", c.reads, c.opened, maxMaps)
			}
			if total := mapsOf(s); total > maxMaps {
				t.Errorf("the objects have %d mappings, of %d", total, maxMaps)
			}
		})
	}
}

func mapsOf(s *Space) (n int) {
	for _, m := range s.Modules() {
		n += len(m.Maps)
	}
	return n
}
