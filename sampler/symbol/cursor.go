package symbol

import (
	"bytes"
	"encoding/binary"

	"sfsample/internal/leb128"
)

// cursor decodes bytes in order. What lies past the end reads as zero and sets
// bad, so that a loop needs one check for each turn.
type cursor struct {
	b     []byte
	pos   int
	order binary.ByteOrder
	bad   bool
}

// take returns the next n bytes, nil if there are not that many.
func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)-c.pos) {
		c.bad = true
		return nil
	}
	b := c.b[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if c.bad || c.pos >= len(c.b) {
		c.bad = true
		return 0
	}
	c.pos++
	return c.b[c.pos-1]
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return c.order.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return c.order.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return c.order.Uint64(b)
	}
	return 0
}

// uint reads an integer of n bytes: 1, 2, 3, 4 or 8.
func (c *cursor) uint(n int) uint64 {
	switch n {
	case 1:
		return uint64(c.u8())
	case 2:
		return uint64(c.u16())
	case 3:
		b := c.take(3)
		if b == nil {
			return 0
		}
		if c.order == binary.ByteOrder(binary.BigEndian) {
			return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
		}
		return uint64(b[2])<<16 | uint64(b[1])<<8 | uint64(b[0])
	case 4:
		return uint64(c.u32())
	case 8:
		return c.u64()
	}
	c.bad = true
	return 0
}

// uleb reads an unsigned LEB128 number. Bits past the 64th are dropped.
func (c *cursor) uleb() uint64 {
	v, n := leb128.Unsigned(c.rest())
	c.pass(n)
	return v
}

// sleb reads a signed LEB128 number. Bits past the 64th are dropped.
func (c *cursor) sleb() int64 {
	v, n := leb128.Signed(c.rest())
	c.pass(n)
	return v
}

func (c *cursor) rest() []byte {
	if c.bad {
		return nil
	}
	return c.b[c.pos:]
}

// pass goes on behind a LEB128 number of n bytes, as package leb128 gives n.
func (c *cursor) pass(n int) {
	c.bad = c.bad || n == 0
	c.pos += max(n, -n)
}

// cstr reads a string that ends with NUL.
func (c *cursor) cstr() []byte {
	if c.bad {
		return nil
	}
	n := bytes.IndexByte(c.b[c.pos:], 0)
	if n < 0 {
		c.bad = true
		return nil
	}
	s := c.b[c.pos : c.pos+n]
	c.pos += n + 1
	return s
}

// unitLength reads an initial length (DWARF 5, 7.4) and returns it with the size
// of offsets that it implies.
func (c *cursor) unitLength() (length uint64, offSize int) {
	n := c.u32()
	switch {
	case n == 0xffffffff:
		return c.u64(), 8
	case n >= 0xfffffff0:
		c.bad = true
	}
	return uint64(n), 4
}
