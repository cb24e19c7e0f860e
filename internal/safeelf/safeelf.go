// Package safeelf opens ELF files of which nobody knows who made them by debug/elf, which believes what they say: it
// makes an object for each section header, whatever their number, copies a string for each name, however long, and
// reads tables as long as they claim to be.
//
// Documents: System V gABI chapter 4, "ELF Header", "Sections", "Symbol Table".
package safeelf

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what is believed of a file. Linkers stay far below; only object files of -ffunction-sections have
// tens of thousands of sections.
const (
	maxSections = 1 << 16
	maxHeaders  = 8 << 20  // bytes of section headers, and of program headers
	maxStrings  = 16 << 20 // bytes of the names of sections
	maxNames    = 64 << 20 // bytes that all names may take, once they are strings
	maxSymbols  = 1 << 20  // of a table; node has 75,000
	maxSymStrs  = 32 << 20 // bytes of the names of symbols, which are held while those are read; node has 5 MB
	maxName     = 1 << 10  // bytes of the name of a symbol; longer ones are empty
)

// Error is a defect for which a file is not opened.
type Error struct {
	Text  string // what is wrong
	Value uint64 // the offending value
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%#x)", e.Text, e.Value) }

// NewFile is [elf.NewFile] for files that may be hostile. Closing what it returns does nothing.
func NewFile(r io.ReaderAt) (*elf.File, error) {
	if err := Check(r); err != nil {
		return nil, err
	}
	return elf.NewFile(r)
}

// Check reads the headers of a file and reports whether debug/elf can open it without taking long. What is no ELF file is left to
// that.
func Check(r io.ReaderAt) error {
	h := header{r: r}
	var b [64]byte
	if n, _ := r.ReadAt(b[:], 0); n < 52 || string(b[:4]) != elf.ELFMAG {
		return nil
	}
	h.order = binary.LittleEndian
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		h.order = binary.BigEndian
	}
	// e_shoff; what follows e_ehsize; size of a section header.
	tail := b[40:]
	shdrBytes := uint64(40)
	if h.is64 = elf.Class(b[elf.EI_CLASS]) == elf.ELFCLASS64; h.is64 {
		tail, shdrBytes = b[52:], 64
		h.shoff = h.order.Uint64(b[40:])
	} else {
		h.shoff = uint64(h.order.Uint32(b[32:]))
	}
	field := func(i int) uint64 { return uint64(h.order.Uint16(tail[2+2*i:])) }
	phentsize, phnum, shnum, shstrndx := field(0), field(1), field(3), field(4)
	h.shentsize = field(2)
	switch {
	case phentsize*phnum > maxHeaders:
		return &Error{"program headers are too large", phentsize * phnum}
	case h.shoff == 0:
		return nil
	case h.shentsize < shdrBytes || h.shoff > 1<<62:
		return &Error{"section headers of odd size or place", h.shentsize}
	}
	if shnum == 0 || shstrndx == uint64(elf.SHN_XINDEX) { // numbers too large for their fields stand in section 0
		zero, err := h.section(0)
		if err != nil {
			return err
		}
		if shnum == 0 {
			shnum = zero.size
		}
		if shstrndx == uint64(elf.SHN_XINDEX) {
			shstrndx = uint64(zero.link)
		}
	}
	if shnum > maxSections || shnum*h.shentsize > maxHeaders {
		return &Error{"too many sections", shnum}
	}
	if shstrndx >= shnum {
		return nil // debug/elf refuses it
	}
	names, err := h.section(shstrndx)
	if err != nil {
		return err
	}
	if names.size > maxStrings || names.flags&elf.SHF_COMPRESSED != 0 {
		return &Error{"names of sections are too large, or compressed", names.size}
	}
	strs := make([]byte, names.size)
	n, _ := r.ReadAt(strs, int64(names.off&(1<<62-1)))
	if most := longest(strs[:n]); uint64(most)*shnum > maxNames {
		return &Error{"names of sections are too long", uint64(most)}
	}
	return nil
}

// header is how section headers are read.
type header struct {
	r                io.ReaderAt
	order            binary.ByteOrder
	is64             bool
	shoff, shentsize uint64
}

// section is what is used of a section header.
type section struct {
	flags     elf.SectionFlag
	off, size uint64
	link      uint32
}

func (h *header) section(i uint64) (s section, err error) {
	var b [64]byte
	need := 40
	if h.is64 {
		need = 64
	}
	if n, err := h.r.ReadAt(b[:need], int64(h.shoff+i*h.shentsize)); n < need {
		return s, fmt.Errorf("read section header %d: %w", i, err)
	}
	if h.is64 {
		return section{elf.SectionFlag(h.order.Uint64(b[8:])), h.order.Uint64(b[24:]), h.order.Uint64(b[32:]), h.order.Uint32(b[40:])}, nil
	}
	return section{elf.SectionFlag(h.order.Uint32(b[8:])), uint64(h.order.Uint32(b[16:])), uint64(h.order.Uint32(b[20:])), h.order.Uint32(b[24:])}, nil
}

// longest is the length of the longest string in b.
func longest(b []byte) (most int) {
	n := 0
	for _, c := range b {
		if n++; c == 0 {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

var errNoSymbols = errors.New("no symbols that can be read")

// Symbols calls each with the symbols of a table, elf.SHT_DYNSYM or elf.SHT_SYMTAB, from number 1 on, without their versions.
func Symbols(f *elf.File, typ elf.SectionType, each func(elf.Symbol)) error {
	s := f.SectionByType(typ)
	if s == nil || uint64(s.Link) >= uint64(len(f.Sections)) {
		return errNoSymbols
	}
	size := 24 // Elf64_Sym
	if f.Class != elf.ELFCLASS64 {
		size = 16
	}
	if err := Plain(s, uint64(maxSymbols*size)); err != nil {
		return err
	}
	strs, err := Data(f.Sections[s.Link], maxSymStrs)
	if err != nil {
		return err
	}
	o, left, number, b := f.ByteOrder, maxNames, 0, make([]byte, size)
	for r := bufio.NewReader(io.NewSectionReader(s, 0, int64(s.Size))); ; number++ {
		if _, err := io.ReadFull(r, b); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read section %s: %w", s.Name, err)
		}
		var e elf.Symbol
		if size == 24 {
			e = elf.Symbol{Info: b[4], Other: b[5], Section: elf.SectionIndex(o.Uint16(b[6:])), Value: o.Uint64(b[8:]), Size: o.Uint64(b[16:])}
		} else {
			e = elf.Symbol{Info: b[12], Other: b[13], Section: elf.SectionIndex(o.Uint16(b[14:])), Value: uint64(o.Uint32(b[4:])), Size: uint64(o.Uint32(b[8:]))}
		}
		e.Name = cstring(strs, o.Uint32(b))
		if left -= len(e.Name); left < 0 {
			return &Error{"names of symbols are too long", maxNames}
		}
		if number > 0 {
			each(e)
		}
	}
}

// cstring returns the string at off, an empty one where there is none of up to maxName bytes.
func cstring(b []byte, off uint32) string {
	if uint64(off) >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	return string(b[:max(bytes.IndexByte(b[:min(len(b), maxName)], 0), 0)])
}

// Data returns the contents of a section if they are no more than limit bytes. It takes none that is compressed: such sections are
// nothing that programs have in memory (gABI, "Section Compression").
func Data(s *elf.Section, limit uint64) ([]byte, error) {
	if err := Plain(s, limit); err != nil {
		return nil, err
	}
	b, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.Name, err)
	}
	return b, nil
}

// Plain returns an error if a section has more than limit bytes, or is compressed. debug/elf takes it for that by its name alone, and
// its size from what is in it.
func Plain(s *elf.Section, limit uint64) error {
	if n := max(s.Size, s.FileSize); n > limit {
		return &Error{"section " + s.Name + " is too large", n}
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(s.Name, ".zdebug") {
		return &Error{"section " + s.Name + " is compressed", uint64(s.Flags)}
	}
	return nil
}
