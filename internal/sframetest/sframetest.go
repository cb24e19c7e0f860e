// Package sframetest writes SFrame sections for tests: every version, ABI,
// width and kind of row, also those that no assembler emits (V2 of s390x, gaps
// and auxiliary headers, shared rows, starts relative to the section).
//
// It checks nothing, so that broken sections can be made as well, and shares no
// code with package sframe, so that the two can be held against each other. It
// follows "The SFrame Format" of GNU binutils 2.46. Only tests import it.
package sframetest

import "encoding/binary"

// ABI identifiers and flags of the header, as the format numbers them.
const (
	AArch64BE = 1
	AArch64LE = 2
	AMD64     = 3
	S390X     = 4

	Sorted       = 1
	FramePointer = 2
	PCRel        = 4
)

// Section is a section to be written. Counts, offsets and the magic number
// follow from the rest.
type Section struct {
	Version          uint8
	Flags            uint8
	ABI              uint8
	FixedFP, FixedRA int8
	Aux              []byte // auxiliary header, at most 255 bytes
	FDEGap, FREGap   int    // unused bytes before the function table and before the rows
	Addr             uint64 // virtual address of the first byte
	Funcs            []Func // in table order
}

// Func is one function. Rows of several functions may be shared: a function
// with Share > 0 has no rows of its own, but those of function Share-1, which
// stands before it.
type Func struct {
	Start  uint64
	Size   uint32
	Width  int // bytes of a row's start: 1, 2 or 4
	Mask   bool
	Rep    uint8
	KeyB   bool
	Signal bool // V3
	Flex   bool // V3
	Share  int
	Rows   []Row
}

// Row is one row with its data words as they are to be stored, each in
// WordBytes (1, 2 or 4) bytes.
type Row struct {
	Off       uint32
	SP        bool // CFA from SP, else FP
	Signed    bool
	WordBytes int
	Words     []int64
}

// Control makes the control word of a flexible rule.
func Control(reg int, isReg, deref bool) int64 {
	word := int64(reg) << 3
	if isReg {
		word |= 1
	}
	if deref {
		word |= 2
	}
	return word
}

// WordBytes is the smallest width that holds all words, which are signed or, as
// control words are, unsigned.
func WordBytes(signed, unsigned []int64) int {
	width := 1
	for _, w := range signed {
		for width < 4 && (w < -(1<<(8*width-1)) || w >= 1<<(8*width-1)) {
			width *= 2
		}
	}
	for _, w := range unsigned {
		for width < 4 && w >= 1<<(8*width) {
			width *= 2
		}
	}
	return width
}

// Order is the section's byte order.
func (s *Section) Order() binary.AppendByteOrder {
	if s.ABI == AArch64BE || s.ABI == S390X {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// EntryBytes is the size of an FDE in the table.
func (s *Section) EntryBytes() int {
	switch s.Version {
	case 1:
		return 17
	case 2:
		return 20
	}
	return 16
}

// Bytes is the section.
func (s *Section) Bytes() []byte {
	order := s.Order()
	fres, offs, num := s.rows()
	freOff := s.FDEGap + len(s.Funcs)*s.EntryBytes() + s.FREGap
	b := order.AppendUint16(nil, 0xdee2)
	b = append(b, s.Version, s.Flags, s.ABI, uint8(s.FixedFP), uint8(s.FixedRA), uint8(len(s.Aux)))
	for _, n := range []int{len(s.Funcs), num, len(fres), s.FDEGap, freOff} {
		b = order.AppendUint32(b, uint32(n))
	}
	b = append(b, s.Aux...)
	b = append(b, make([]byte, s.FDEGap)...)
	for i := range s.Funcs {
		b = s.appendEntry(b, &s.Funcs[i], offs[i])
	}
	b = append(b, make([]byte, s.FREGap)...)
	return append(b, fres...)
}

// rows returns the rows' bytes, where each function's begin, and how many rows
// there are, counted for each function that has them.
func (s *Section) rows() (b []byte, offs []uint32, num int) {
	for i := range s.Funcs {
		f := &s.Funcs[i]
		if f.Share > 0 {
			offs = append(offs, offs[f.Share-1])
			num += len(s.Funcs[f.Share-1].Rows)
			continue
		}
		offs = append(offs, uint32(len(b)))
		num += len(f.Rows)
		if s.Version == 3 {
			b = s.Order().AppendUint16(b, uint16(len(f.Rows)))
			b = append(b, f.info(3), f.info2(), f.Rep)
		}
		for j := range f.Rows {
			b = s.appendRow(b, f.Width, &f.Rows[j])
		}
	}
	return b, offs, num
}

// appendEntry appends the FDE of f to b, which has all of the section so far.
func (s *Section) appendEntry(b []byte, f *Func, rowOff uint32) []byte {
	order := s.Order()
	start := f.Start - s.Addr
	if s.Flags&PCRel != 0 {
		start -= uint64(len(b))
	}
	if s.Version == 3 {
		b = order.AppendUint64(b, start)
		b = order.AppendUint32(b, f.Size)
		return order.AppendUint32(b, rowOff)
	}
	rows := f.Rows
	if f.Share > 0 {
		rows = s.Funcs[f.Share-1].Rows
	}
	for _, n := range []uint32{uint32(start), f.Size, rowOff, uint32(len(rows))} {
		b = order.AppendUint32(b, n)
	}
	b = append(b, f.info(s.Version))
	if s.Version == 2 {
		b = append(b, f.Rep, 0, 0)
	}
	return b
}

// code is the stored form of a width: 0, 1, 2 for 1, 2, 4.
func code(width int) uint8 {
	return uint8(width / 2)
}

func bit(set bool, n int) uint8 {
	if set {
		return 1 << n
	}
	return 0
}

func (f *Func) info(version uint8) uint8 {
	return code(f.Width) | bit(f.Mask, 4) | bit(f.KeyB, 5) | bit(f.Signal && version == 3, 7)
}

func (f *Func) info2() uint8 { return bit(f.Flex, 0) }

func (s *Section) appendRow(b []byte, width int, r *Row) []byte {
	b = s.appendInt(b, int64(r.Off), width)
	wordBytes := max(r.WordBytes, 1)
	b = append(b, bit(r.SP, 0)|uint8(len(r.Words))<<1|code(wordBytes)<<5|bit(r.Signed, 7))
	for _, w := range r.Words {
		b = s.appendInt(b, w, wordBytes)
	}
	return b
}

func (s *Section) appendInt(b []byte, n int64, width int) []byte {
	switch width {
	case 1:
		return append(b, uint8(n))
	case 2:
		return s.Order().AppendUint16(b, uint16(n))
	}
	return s.Order().AppendUint32(b, uint32(n))
}
