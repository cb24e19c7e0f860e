// Package safeelf opens ELF files of which nobody knows who made them by debug/elf, which believes what they say: it
// makes an object for each section header, whatever their number, copies a string for each name, however long, and
// reads tables as long as they claim to be.
//
// Documents: System V gABI chapter 4, "ELF Header", "Sections", "Symbol Table".
package safeelf

import (
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
	maxSymbols  = 1 << 20
	maxSymStrs  = 64 << 20 // bytes of the names of symbols
	maxName     = 1 << 10  // bytes of the name of a symbol; longer ones are left out
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

var errNoSymbols = errors.New("no dynamic symbols that can be read")

// DynamicSymbols returns the dynamic symbols of a 64-bit file that are defined in it, without their versions.
func DynamicSymbols(f *elf.File) (list []elf.Symbol, err error) {
	const symBytes = 24 // Elf64_Sym
	s := f.SectionByType(elf.SHT_DYNSYM)
	if s == nil || f.Class != elf.ELFCLASS64 || uint64(s.Link) >= uint64(len(f.Sections)) {
		return nil, errNoSymbols
	}
	syms, err := Data(s, maxSymbols*symBytes)
	if err != nil {
		return nil, err
	}
	strs, err := Data(f.Sections[s.Link], maxSymStrs)
	if err != nil {
		return nil, err
	}
	o, left := f.ByteOrder, maxNames
	for ; len(syms) >= symBytes; syms = syms[symBytes:] {
		e := elf.Symbol{
			Info: syms[4], Other: syms[5], Section: elf.SectionIndex(o.Uint16(syms[6:])),
			Value: o.Uint64(syms[8:]), Size: o.Uint64(syms[16:]),
		}
		name, ok := cstring(strs, o.Uint32(syms))
		if left -= len(name); left < 0 {
			return nil, &Error{"names of symbols are too long", maxNames}
		}
		if e.Name = name; ok && e.Section != elf.SHN_UNDEF {
			list = append(list, e)
		}
	}
	return list, nil
}

// cstring returns the string at off; ok is false where there is none of up to maxName bytes.
func cstring(b []byte, off uint32) (s string, ok bool) {
	if uint64(off) >= uint64(len(b)) {
		return "", false
	}
	b = b[off:]
	for i, c := range b[:min(len(b), maxName)] {
		if c == 0 {
			return string(b[:i]), true
		}
	}
	return "", false
}

// Data returns the contents of a section if they are no more than limit bytes. It takes none that is compressed: such sections are
// nothing that programs have in memory (gABI, "Section Compression").
func Data(s *elf.Section, limit uint64) ([]byte, error) {
	if err := Plain(s, limit); err != nil {
		return nil, err
	}
	return s.Data()
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
