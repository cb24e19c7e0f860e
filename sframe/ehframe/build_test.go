package ehframe_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// Where the sections of hand-made images lie.
const (
	frameAddr = 0x10000
	hdrAddr   = 0x8000
	textAddr  = 0x4000
	gotAddr   = 0x6000
)

// image is memory made of pieces, by address.
type image map[uint64][]byte

func (m image) ReadAt(p []byte, off int64) (int, error) {
	for addr, b := range m {
		if at := uint64(off) - addr; uint64(off) >= addr && at < uint64(len(b)) {
			n := copy(p, b[at:])
			if n < len(p) {
				return n, io.EOF
			}
			return n, nil
		}
	}
	return 0, errors.New("not mapped")
}

// builder writes a frame section by hand. It shares no code with the decoder.
type builder struct {
	arch  *regs.Arch
	b     []byte
	debug bool   // .debug_frame
	align []byte // factors of code and data in CIEs; nil: 1 and -8
	wide  int    // 64-bit lengths, with CIE ids of that many bytes; 0: 32-bit
	cies  []int
	fdes  []int
}

func (b *builder) addr() uint64 { return frameAddr + uint64(len(b.b)) }

// word appends the n low bytes of v.
func (b *builder) word(v uint64, n int) {
	at := len(b.b)
	for i := range n {
		b.b = append(b.b, byte(v>>(8*i)))
	}
	if b.arch.BigEndian {
		slices.Reverse(b.b[at:])
	}
}

func uleb(v uint64) (out []byte) {
	for v >= 0x80 {
		out = append(out, byte(v)|0x80)
		v >>= 7
	}
	return append(out, byte(v))
}

func slebBytes(v int64) (out []byte) {
	for v < -64 || v > 63 {
		out = append(out, byte(v)|0x80)
		v >>= 7
	}
	return append(out, byte(v)&0x7f)
}

// entry appends an entry: length, id, and what body appends. id gets the offset
// of the id field.
func (b *builder) entry(id func(at int) uint64, body func()) int {
	start, idBytes := len(b.b), 4
	if b.wide != 0 {
		idBytes = b.wide
		b.word(0xffffffff, 4)
		b.word(0, 8)
	} else {
		b.word(0, 4)
	}
	from := len(b.b)
	b.word(id(from), idBytes)
	body()
	for len(b.b)%4 != 0 {
		b.b = append(b.b, 0) // DW_CFA_nop
	}
	length := builder{arch: b.arch}
	length.word(uint64(len(b.b)-from), from-start-min(from-start-4, 4))
	copy(b.b[from-len(length.b):], length.b)
	return start
}

// cie appends a CIE with the architecture's return address column. data is what the augmentation string
// announces, without its length.
func (b *builder) cie(version uint8, aug string, data []byte, insns ...byte) int {
	id := uint64(0)
	if b.debug {
		id = ^uint64(0)
	}
	at := b.entry(func(int) uint64 { return id }, func() {
		b.b = append(b.b, version)
		b.b = append(append(b.b, aug...), 0)
		if version == 4 {
			b.b = append(b.b, byte(b.arch.WordBytes), 0)
		}
		if b.align == nil {
			b.align = []byte{1, 0x78}
		}
		b.b = append(append(b.b, b.align...), b.arch.RA)
		if len(aug) > 0 && aug[0] == 'z' {
			b.b = append(b.b, uleb(uint64(len(data)))...)
		}
		b.b = append(b.b, data...)
		b.b = append(b.b, insns...)
	})
	b.cies = append(b.cies, at)
	return at
}

// fde appends an FDE of the CIE at offset cie. pc appends start and size.
func (b *builder) fde(cie int, pc func(), aug []byte, insns ...byte) int {
	id := func(at int) uint64 { return uint64(at - cie) }
	if b.debug {
		id = func(int) uint64 { return uint64(cie) }
	}
	at := b.entry(id, func() {
		pc()
		b.b = append(b.b, aug...)
		b.b = append(b.b, insns...)
	})
	b.fdes = append(b.fdes, at)
	return at
}

// abs appends start and size as words of the architecture.
func (b *builder) abs(start, size uint64) func() {
	return func() {
		b.word(start, b.arch.WordBytes)
		b.word(size, b.arch.WordBytes)
	}
}

func (b *builder) sections() ehframe.Sections {
	return ehframe.Sections{
		FrameAddr: frameAddr, FrameSize: uint64(len(b.b)), DebugFrame: b.debug,
		TextAddr: textAddr, DataAddr: gotAddr,
	}
}

func (b *builder) open(t testing.TB) *ehframe.Table {
	t.Helper()
	tab, err := ehframe.Open(image{frameAddr: b.b}, b.arch, b.sections())
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// The usual first instructions of a CIE and a row to tell functions apart.
var (
	cfaSP8 = []byte{0x0c, 7, 8, 0x80 | 16, 1} // amd64: CFA rsp+8, RA at CFA-8
)

func cfaOffset(n byte) []byte { return []byte{0x0e, n} }

// damaged reports whether err tells of a defect of the table.
func damaged(err error) bool {
	var bad *sframe.FormatError
	return errors.As(err, &bad)
}
