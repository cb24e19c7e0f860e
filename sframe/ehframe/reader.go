package ehframe

import (
	"fmt"
	"io"

	"sfsample/internal/leb128"
	"sfsample/sframe"
)

// The block cache: .eh_frame_hdr probes and short entries come from it. A block
// does not cross a page, so a block of a live process is readable or not as a
// whole.
const (
	blockBytes = 1 << 10
	maxBlocks  = 32
)

// maxReadBytes bounds one read, and with it what a forged length can cost. The
// longest entry seen in distribution programs has under 64 KiB.
const maxReadBytes = 1 << 20

type block struct {
	addr uint64
	n    int // valid bytes
	used bool
	data [blockBytes]byte
}

// memory reads an image by link-time address through a small block cache.
type memory struct {
	img    io.ReaderAt
	blocks []*block
	hand   int // of the clock that chooses the block to replace
	last   *block
	buf    []byte
}

// bytes returns the n bytes at addr. They are valid until the next call.
func (m *memory) bytes(addr uint64, n int) ([]byte, error) {
	if n < 0 || n > maxReadBytes {
		return nil, fmt.Errorf("read of %d bytes at %#x: too long", n, addr)
	}
	if off := addr % blockBytes; off+uint64(n) <= blockBytes {
		b := m.block(addr - off)
		if b != nil && int(off)+n <= b.n {
			return b.data[off : int(off)+n], nil
		}
	}
	return m.direct(addr, n)
}

// direct reads past the cache: what spans blocks, or lies in a block that could
// not be read to that point.
func (m *memory) direct(addr uint64, n int) ([]byte, error) {
	if int64(addr) < 0 || int64(addr)+int64(n) < 0 {
		return nil, fmt.Errorf("read of %d bytes at %#x: address out of range", n, addr)
	}
	if cap(m.buf) < n {
		m.buf = make([]byte, n, max(2*n, blockBytes))
	}
	b := m.buf[:n]
	got, err := m.img.ReadAt(b, int64(addr))
	if got == n {
		return b, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read %d bytes of frame information at %#x: %w", n, addr, err)
}

// block returns the cached block at addr, a multiple of blockBytes, reading it
// if needed; nil if nothing of it is readable.
func (m *memory) block(addr uint64) *block {
	if m.last != nil && m.last.addr == addr {
		return m.last
	}
	for _, b := range m.blocks {
		if b.addr == addr {
			b.used = true
			m.last = b
			return b
		}
	}
	if int64(addr) < 0 || int64(addr)+blockBytes < 0 {
		return nil
	}
	b := m.victim()
	n, _ := m.img.ReadAt(b.data[:], int64(addr))
	if n <= 0 {
		b.addr, b.n, m.last = noBlock, 0, nil
		return nil
	}
	b.addr, b.n, b.used, m.last = addr, min(n, blockBytes), true, b
	return b
}

// noBlock is the address of an empty block: no multiple of blockBytes.
const noBlock = 1

// victim returns the block to overwrite: a new one while there are fewer than
// maxBlocks, else the first one that was not used since the clock's last round.
func (m *memory) victim() *block {
	if len(m.blocks) < maxBlocks {
		b := &block{addr: noBlock}
		m.blocks = append(m.blocks, b)
		return b
	}
	for {
		b := m.blocks[m.hand]
		m.hand = (m.hand + 1) % len(m.blocks)
		if !b.used {
			return b
		}
		b.used = false
	}
}

// cursor decodes a byte string that lies at address addr of the image. The
// first read past its end sets err; later ones return 0.
type cursor struct {
	b    []byte
	pos  int
	addr uint64 // of b[0]
	sec  uint64 // section start, for offsets in errors
	big  bool
	err  *sframe.FormatError
}

func (c *cursor) fail(text string, value uint64) {
	if c.err == nil {
		c.err = &sframe.FormatError{SecOff: c.at() - c.sec, Text: text, Value: value}
	}
}

// at is the address of the next byte.
func (c *cursor) at() uint64 { return c.addr + uint64(c.pos) }

func (c *cursor) left() int { return len(c.b) - c.pos }

// take returns the next n bytes, nil past the end.
func (c *cursor) take(n uint64) []byte {
	if c.err != nil {
		return nil
	}
	if n > uint64(c.left()) {
		c.fail("value runs past the end of its entry", n)
		return nil
	}
	b := c.b[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint reads an unsigned value of n bytes, n at most 8.
func (c *cursor) uint(n int) uint64 {
	b := c.take(uint64(n))
	var v uint64
	for i := range b {
		if c.big {
			v = v<<8 | uint64(b[i])
		} else {
			v |= uint64(b[i]) << (8 * i)
		}
	}
	return v
}

// uleb reads an unsigned LEB128 value.
func (c *cursor) uleb() uint64 {
	if c.err != nil {
		return 0
	}
	v, n := leb128.Unsigned(c.b[c.pos:])
	if !c.passed(n, v) {
		return 0
	}
	return v
}

// sleb reads a signed LEB128 value.
func (c *cursor) sleb() int64 {
	if c.err != nil {
		return 0
	}
	v, n := leb128.Signed(c.b[c.pos:])
	if !c.passed(n, uint64(v)) {
		return 0
	}
	return v
}

// passed goes on behind a LEB128 value of n bytes, as package leb128 gives n.
func (c *cursor) passed(n int, v uint64) bool {
	switch {
	case n > 0:
		c.pos += n
	case n == 0:
		c.pos = len(c.b)
		c.take(1) // fails
	default:
		c.pos -= n
		c.fail("LEB128 value exceeds 64 bits", v)
	}
	return n > 0
}

// cstring reads bytes up to a NUL.
func (c *cursor) cstring() string {
	for i := c.pos; i < len(c.b); i++ {
		if c.b[i] == 0 {
			s := string(c.b[c.pos:i])
			c.pos = i + 1
			return s
		}
	}
	c.fail("augmentation string has no end", uint64(c.left()))
	return ""
}

// error returns the failure as an error value that is nil when there is none.
func (c *cursor) error() error {
	if c.err == nil {
		return nil
	}
	return c.err
}
