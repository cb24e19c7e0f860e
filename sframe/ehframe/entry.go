package ehframe

import (
	"errors"
	"fmt"

	"sfsample/regs"
	"sfsample/sframe"
)

// errTerminator: a length of zero, the end of an .eh_frame section (LSB Core
// 5.0, 10.6.1).
var errTerminator = errors.New("terminator of the frame section")

// head is the beginning of an entry, common to CIEs and FDEs.
type head struct {
	addr  uint64 // of the length field
	idAt  uint64 // of the CIE id or CIE pointer
	body  uint64 // of what follows the id
	end   uint64 // of the entry, and the address of the next one
	id    uint64
	isCIE bool
}

// cie is a common information entry.
type cie struct {
	addr      uint64
	codeAlign uint64
	dataAlign int64
	raColumn  uint64
	raSlot    int // where raColumn is kept in a state
	word      int // bytes of an address in FDEs and set_loc
	segBytes  int // bytes of a segment selector before the addresses
	pcEnc     uint8
	augData   bool // FDEs have augmentation data ('z')
	signal    bool // 'S'
	keyB      bool // 'B': arm64 return addresses are signed with key B
	initial   state
	err       error // the CIE is damaged, and with it each FDE that refers to it
}

// fde is a frame description entry: the instructions of one function.
type fde struct {
	addr, next uint64
	start, end uint64
	cie        *cie
	code       cursor // at the instructions
}

// section is .eh_frame or .debug_frame: its entries, as they are read from the image.
type section struct {
	mem        memory
	arch       *regs.Arch
	arm64      bool
	general    uint32 // registers that a set of this architecture holds
	start, end uint64
	sized      bool // end is the section's end, not only a bound
	debugFrame bool
	bases      bases
	over       func() bool // see Sections; may be nil

	cies   map[uint64]*cie
	fdeBuf []byte
}

func (s *section) formatError(addr uint64, text string, value uint64) *sframe.FormatError {
	return &sframe.FormatError{SecOff: addr - s.start, Text: text, Value: value}
}

// head reads the head of the entry at addr.
func (s *section) head(addr uint64) (head, error) {
	h := head{addr: addr}
	if addr < s.start || addr >= s.end {
		return h, s.formatError(addr, "entry lies outside the section", addr)
	}
	length, err := s.fixed(addr, 4)
	if err != nil {
		return h, err
	}
	at := addr + 4
	wide := length == 0xffffffff // DWARF 5 section 7.4: a 64-bit length follows
	if wide {
		if length, err = s.fixed(at, 8); err != nil {
			return h, err
		}
		at += 8
	}
	if length == 0 {
		h.end = at
		return h, errTerminator
	}
	if length > s.end-at {
		return h, s.formatError(addr, "entry runs past the end of the section", length)
	}
	h.idAt, h.end = at, at+length
	idBytes, err := s.idBytes(h, wide)
	if err != nil {
		return h, err
	}
	if uint64(idBytes) > length {
		return h, s.formatError(addr, "entry is too short", length)
	}
	if h.id, err = s.fixed(at, idBytes); err != nil {
		return h, err
	}
	h.body = at + uint64(idBytes)
	h.isCIE = h.id == 0
	if s.debugFrame {
		h.isCIE = h.id == 1<<(8*idBytes)-1 // all ones (DWARF 5 section 7.24)
	}
	return h, nil
}

// idBytes is the size of the CIE id field. It has 8 bytes after a 64-bit length
// in .debug_frame. For .eh_frame LSB and LLVM say 4, GNU readelf, gdb and
// elfutils read 8; so it is 8 where that gives a CIE or points into the section.
func (s *section) idBytes(h head, wide bool) (int, error) {
	if !wide {
		return 4, nil
	}
	if s.debugFrame || h.end-h.idAt < 8 {
		return 8, nil
	}
	id, err := s.fixed(h.idAt, 8)
	if err != nil {
		return 0, err
	}
	if id <= h.idAt-s.start {
		return 8, nil
	}
	return 4, nil
}

// fixed reads an unsigned value of n bytes at addr.
func (s *section) fixed(addr uint64, n int) (uint64, error) {
	if uint64(n) > s.end-addr {
		return 0, s.formatError(addr, "entry runs past the end of the section", uint64(n))
	}
	b, err := s.mem.bytes(addr, n)
	if err != nil {
		return 0, err
	}
	c := cursor{b: b, big: s.arch.BigEndian}
	return c.uint(n), nil
}

// body returns a cursor over what follows the id of h, in buf or a new buffer.
func (s *section) body(h head, buf []byte) (cursor, error) {
	n := h.end - h.body
	if n > maxReadBytes {
		return cursor{}, s.formatError(h.addr, "entry is too long", n)
	}
	b, err := s.mem.bytes(h.body, int(n))
	if err != nil {
		return cursor{}, err
	}
	return cursor{b: append(buf, b...), addr: h.body, sec: s.start, big: s.arch.BigEndian}, nil
}

// Bounds of CIEs. Linkers merge equal ones, a program has rarely more than ten,
// of under 100 bytes each. The size matters because forged FDEs can make the scan
// of a section read the same few CIEs again and again.
const (
	maxCIEs     = 64
	maxCIEBytes = 4 << 10
	cieBytes    = 1500 // memory that one costs, its bytes apart
)

// cieAt returns the CIE at addr. A damaged one is returned, and remembered, with
// err set; an error means that it could not be read.
func (s *section) cieAt(addr uint64) (*cie, error) {
	if c := s.cies[addr]; c != nil {
		return c, nil
	}
	c, err := s.parseCIE(addr)
	var bad *sframe.FormatError
	switch {
	case errors.As(err, &bad):
		c = &cie{addr: addr, err: fmt.Errorf("common information entry: %w", err)}
	case err != nil:
		return nil, err
	}
	if len(s.cies) >= maxCIEs {
		clear(s.cies)
	}
	s.cies[addr] = c
	return c, nil
}

func (s *section) parseCIE(addr uint64) (*cie, error) {
	h, err := s.head(addr)
	switch {
	case err == errTerminator:
		return nil, s.formatError(addr, "CIE pointer leads to a terminator", addr)
	case err != nil:
		return nil, err
	case !h.isCIE:
		return nil, s.formatError(addr, "CIE pointer leads to an entry that is no CIE", h.id)
	}
	if n := h.end - h.body; n > maxCIEBytes {
		return nil, s.formatError(addr, "CIE is too long", n)
	}
	// The buffer is the CIE's own: its initial state keeps expressions in it.
	b, err := s.body(h, nil)
	if err != nil {
		return nil, err
	}
	c := &cie{addr: addr, word: s.arch.WordBytes, pcEnc: encAbs}
	version := b.u8()
	// 1 is what .eh_frame has (LSB), 3 is DWARF 3, 4 is DWARF 4 and 5; 2 was never used.
	if b.err == nil && version != 1 && version != 3 && version != 4 {
		b.fail("unknown CIE version", uint64(version))
	}
	aug := b.cstring()
	if version == 4 {
		c.word, c.segBytes = int(b.u8()), int(b.u8())
		if b.err == nil && c.word != s.arch.WordBytes {
			b.fail("address size is not the machine's", uint64(c.word))
		}
		if c.segBytes > 8 {
			b.fail("segment selector is too long", uint64(c.segBytes))
		}
	}
	c.codeAlign = b.uleb()
	c.dataAlign = b.sleb()
	if version == 1 {
		c.raColumn = uint64(b.u8())
	} else {
		c.raColumn = b.uleb()
	}
	c.augmentation(&b, aug, s)
	if b.err != nil {
		return nil, b.err
	}
	c.raSlot = raSlot
	if c.raColumn < numRegs {
		c.raSlot = int(c.raColumn)
	}
	m := newMachine(s, c, nil)
	defer m.release()
	m.run(&b, nil)
	if b.err != nil {
		return nil, b.err
	}
	c.initial = m.st
	return c, nil
}

// augmentation reads the augmentation data that aug announces (LSB Core 5.0,
// 10.6.1.1.1; 'B' and 'G' from the Arm documents and GCC). After 'z' the data has
// a length and could be skipped whatever it says: an unknown letter is refused
// all the same, because it may change what rows mean. Without 'z', as GNU as has
// "S" in .debug_frame, it stands there without length, as in GCC's unwinder. The
// "eh" of GCC 2, which had another layout, is among what is refused.
func (c *cie) augmentation(b *cursor, aug string, s *section) {
	data := b
	if aug != "" && aug[0] == 'z' {
		aug = aug[1:]
		c.augData = true
		n := b.uleb()
		own := *b
		if b.take(n); b.err != nil {
			return
		}
		own.b = own.b[:b.pos]
		data = &own
	}
	for i := 0; i < len(aug) && data.err == nil; i++ {
		switch aug[i] {
		case 'L':
			data.u8() // encoding of LSDA pointers, which nobody follows
		case 'R':
			c.pcEnc = data.u8()
			if _, ok := formBytes(c.pcEnc, c.word); !ok && data.err == nil {
				data.fail("unknown pointer encoding", uint64(c.pcEnc))
			}
		case 'P':
			s.skipPointer(data, data.u8())
		case 'S':
			c.signal = true
		case 'B':
			c.keyB = true
		case 'G': // arm64 memory tagging: stack frames are tagged, rows are the same
		default:
			data.fail("unknown augmentation", uint64(aug[i]))
		}
	}
	b.err = data.err
}

// skipPointer passes over an encoded pointer whose value nobody needs.
func (s *section) skipPointer(c *cursor, enc uint8) {
	if enc == encOmit || c.err != nil {
		return
	}
	if enc&encBase == encAligned {
		c.take(-c.at() & uint64(s.arch.WordBytes-1))
	}
	c.plain(enc, s.arch.WordBytes)
}

// fdeAt reads the FDE at addr as far as its instructions, which stay valid until
// the next call.
func (s *section) fdeAt(addr uint64) (fde, error) {
	h, err := s.head(addr)
	if err == errTerminator {
		return fde{}, s.formatError(addr, "terminator where an FDE should be", addr)
	}
	if err != nil {
		return fde{}, err
	}
	return s.parseFDE(h)
}

func (s *section) parseFDE(h head) (fde, error) {
	f := fde{addr: h.addr, next: h.end}
	if h.isCIE {
		return f, s.formatError(h.addr, "CIE where an FDE should be", h.id)
	}
	// .eh_frame: distance back from the field itself; .debug_frame: offset in the section.
	cieAddr := h.idAt - h.id
	if s.debugFrame {
		cieAddr = s.start + h.id
	}
	var err error
	if f.cie, err = s.cieAt(cieAddr); err != nil {
		return f, err
	}
	if f.cie.err != nil {
		return f, f.cie.err
	}
	c, err := s.body(h, s.fdeBuf[:0])
	if err != nil {
		return f, err
	}
	s.fdeBuf = c.b
	c.take(uint64(f.cie.segBytes))
	f.start = s.pointer(&c, f.cie.pcEnc, s.bases)
	size := c.length(f.cie.pcEnc, f.cie.word)
	if size > s.wrap(^uint64(0))-f.start {
		c.fail("function runs past the end of the address space", size)
	}
	f.end = f.start + size
	if f.cie.augData {
		c.take(c.uleb())
	}
	f.code = c
	return f, c.error()
}
