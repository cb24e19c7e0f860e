package ehframe

// Pointer encodings: the low four bits are the form of the value, the next
// three what it is relative to, the top bit an indirection (LSB Core 5.0, table
// 10.6.1 "DWARF Exception Header Encoding").
const (
	encAbs    = 0x00
	encULEB   = 0x01
	encUdata2 = 0x02
	encUdata4 = 0x03
	encUdata8 = 0x04
	encSigned = 0x08 // signed and as wide as an address
	encSLEB   = 0x09
	encSdata2 = 0x0a
	encSdata4 = 0x0b
	encSdata8 = 0x0c
	encForm   = 0x0f

	encPCRel    = 0x10
	encTextRel  = 0x20
	encDataRel  = 0x30
	encFuncRel  = 0x40
	encAligned  = 0x50
	encBase     = 0x70
	encIndirect = 0x80
	encOmit     = 0xff
)

// bases are what encoded pointers may be relative to.
type bases struct {
	text, data       uint64
	hasText, hasData bool
}

// formBytes is the size of a value of the given encoding, 0 if it varies, and
// whether there is such an encoding.
func formBytes(enc uint8, word int) (int, bool) {
	if enc&encBase == encAligned {
		return 0, enc&encForm == encAbs
	}
	switch enc & encForm {
	case encAbs, encSigned:
		return word, true
	case encULEB, encSLEB:
		return 0, true
	case encUdata2, encSdata2:
		return 2, true
	case encUdata4, encSdata4:
		return 4, true
	case encUdata8, encSdata8:
		return 8, true
	}
	return 0, false
}

// plain reads a value of the form of enc, without base, sign-extended if the
// form is signed.
func (c *cursor) plain(enc uint8, word int) uint64 {
	n, ok := formBytes(enc&encForm, word)
	switch {
	case !ok:
		c.fail("unknown pointer encoding", uint64(enc))
		return 0
	case enc&encForm == encULEB:
		return c.uleb()
	case enc&encForm == encSLEB:
		return uint64(c.sleb())
	}
	v := c.uint(n)
	if enc&encSigned != 0 {
		shift := 64 - 8*n
		v = uint64(int64(v<<shift) >> shift)
	}
	return v
}

// length reads the size of a range: the form of enc, unsigned and without base,
// as readelf does it (LSB does not say which).
func (c *cursor) length(enc uint8, word int) uint64 {
	at := c.pos
	v := c.plain(enc, word)
	if n, _ := formBytes(enc&encForm, word); n != 0 {
		v &= 1<<(8*n) - 1
	}
	if int64(v) < 0 {
		c.pos = at
		c.fail("negative size of a range", v)
	}
	return v
}

// pointer reads an encoded pointer. A value of 0 stays 0, whatever it would be
// relative to: linkers leave it for what they removed, as GCC's
// read_encoded_value_with_base has it. An omitted pointer is an error here.
func (s *section) pointer(c *cursor, enc uint8, b bases) uint64 {
	if enc == encOmit {
		c.fail("pointer is needed but omitted", uint64(enc))
		return 0
	}
	word := s.arch.WordBytes
	if enc&encBase == encAligned {
		c.take(-c.at() & uint64(word-1))
	}
	at := c.at()
	v := c.plain(enc, word)
	if c.err != nil || v == 0 {
		return 0
	}
	switch enc & encBase {
	case encAbs, encAligned:
	case encPCRel:
		v += at
	case encTextRel:
		v = c.relative(v, b.text, b.hasText, "pointer is relative to an unknown text base")
	case encDataRel:
		v = c.relative(v, b.data, b.hasData, "pointer is relative to an unknown data base")
	case encFuncRel:
		c.fail("pointer is relative to an unknown function", v)
	default:
		c.fail("unknown pointer encoding", uint64(enc))
	}
	v = s.wrap(v)
	if enc&encIndirect != 0 && c.err == nil {
		word, err := s.mem.direct(v, word)
		if err != nil {
			c.fail("indirect pointer cannot be followed", v)
			return 0
		}
		v = s.arch.Word(word)
	}
	return v
}

func (c *cursor) relative(v, base uint64, known bool, text string) uint64 {
	if !known {
		c.fail(text, v)
	}
	return v + base
}

// wrap cuts an address to the width of the architecture's: sums of 32-bit
// addresses wrap around.
func (s *section) wrap(addr uint64) uint64 {
	if s.arch.WordBytes == 4 {
		return addr & 0xffffffff
	}
	return addr
}
