package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"sfsample/internal/safeelf"
	"sfsample/regs"
	"sfsample/sampler/symbol"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// shtGNUSFrame and ptGNUSFrame are section and segment type of SFrame tables
// (binutils' include/elf/common.h); assemblers before binutils 2.45 write
// SHT_PROGBITS.
const (
	shtGNUSFrame = 0x6ffffff4
	ptGNUSFrame  = 0x6474e554
)

// span is a range of addresses.
type span struct{ start, size uint64 }

func (s span) end() uint64 { return s.start + s.size }

// object is an ELF file or a module of a process, opened for its tables.
type object struct {
	path string
	arch *regs.Arch
	note notation
	// bias is what is added to addresses of the file: 0 but in a process.
	bias    uint64
	sframes []*sframe.Section
	empty   bool    // there is a .sframe without content
	faults  []error // .sframe sections that cannot be opened
	code    []span  // executable addresses, ascending
	// openEH opens the .eh_frame table, whose addresses are the file's.
	openEH func() (*ehframe.Table, error)
	// name names the function at an address of the object.
	name  func(addr uint64) (string, bool)
	close func()
}

// noTable says why an object has nothing to show.
func (o *object) noTable() error {
	if o.empty {
		return fmt.Errorf("%s: .sframe is empty: no function of it could be described", o.path)
	}
	return fmt.Errorf("%s: no .sframe section (try: --eh; or assemble with --gsframe)", o.path)
}

// add opens a table of size bytes at the address addr.
func (o *object) add(f *elf.FileHeader, r io.ReaderAt, addr, size uint64) {
	s, err := sframe.Open(r, addr, size)
	switch {
	case errors.Is(err, sframe.ErrEmpty):
		o.empty = true
	case err != nil:
		o.faults = append(o.faults, fmt.Errorf(".sframe at %#x: %w", addr, err))
	case !s.ABI().Matches(f.Machine, f.Data):
		o.faults = append(o.faults, fmt.Errorf(".sframe at %#x: %w", addr,
			&sframe.FormatError{SecOff: 4, Text: "ABI " + s.ABI().String() + " does not belong into a file for " + f.Machine.String(), Value: uint64(s.ABI()), Whole: true}))
	default:
		o.sframes = append(o.sframes, s)
	}
}

// executable tells whether a range of addresses is code.
func (o *object) executable(addr, size uint64) bool {
	for _, c := range o.code {
		if addr >= c.start && addr-c.start < c.size && size <= c.size-(addr-c.start) {
			return true
		}
	}
	return false
}

// openFile opens an ELF file: linked, stripped, without section headers, or
// relocatable.
func openFile(path string) (*object, error) {
	info, err := os.Stat(path) // before the open, which waits at a FIFO
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	o, err := readFile(file, info.Size(), path)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	o.close = func() { file.Close() }
	return o, nil
}

func readFile(file *os.File, size int64, path string) (*object, error) {
	f, err := safeelf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("not a readable ELF file: %w", err)
	}
	o, err := newObject(f, path)
	if err != nil {
		return nil, err
	}
	if f.Type == elf.ET_REL {
		return o, o.relocatable(f)
	}
	o.sections(f)
	if o.code == nil {
		o.code = execSegments(f)
	}
	o.openEH = func() (*ehframe.Table, error) { return ehframe.OpenELF(f) }
	o.names(io.NewSectionReader(file, 0, size))
	return o, nil
}

// newObject knows no tables yet.
func newObject(f *elf.File, path string) (*object, error) {
	arch, err := regs.ByELF(f.Machine, f.Class, f.Data)
	if err != nil {
		return nil, err
	}
	return &object{
		path: path, arch: arch, note: notation{arch.SP, arch.FP},
		name: func(uint64) (string, bool) { return "", false }, close: func() {},
	}, nil
}

// isSFrame tells whether a section holds a table in the file.
func isSFrame(s *elf.Section) bool {
	return s.Type == shtGNUSFrame || s.Name == ".sframe" && s.Type == elf.SHT_PROGBITS
}

// sections finds tables and code by section headers and, where these are gone,
// tables by program headers.
func (o *object) sections(f *elf.File) {
	found := false
	for _, s := range f.Sections {
		if isSFrame(s) {
			found = true
			o.add(&f.FileHeader, io.NewSectionReader(s, 0, int64(s.FileSize)), s.Addr, s.FileSize)
		}
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Flags&elf.SHF_ALLOC != 0 && s.Size > 0 {
			o.code = append(o.code, span{s.Addr, s.Size})
		}
	}
	for _, p := range f.Progs {
		if p.Type == ptGNUSFrame && !found {
			o.add(&f.FileHeader, p, p.Vaddr, p.Filesz)
		}
	}
}

func execSegments(f *elf.File) []span {
	var code []span
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			code = append(code, span{p.Vaddr, p.Memsz})
		}
	}
	return code
}

// names takes function names from the symbols of a file.
func (o *object) names(file symbol.File) {
	symbols := symbol.Open(file, o.path, symbol.Options{})
	o.name = func(addr uint64) (string, bool) {
		s, ok := symbols.Lookup(addr - o.bias)
		if !ok {
			return "", false
		}
		if off := addr - o.bias - s.Start; off != 0 {
			return fmt.Sprintf("%s+%#x", s.Name, off), true
		}
		return s.Name, true
	}
}
