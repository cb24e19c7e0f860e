package unwind

import (
	"encoding/binary"
	"io"
	"math/bits"

	"sfsample/regs"
)

// Region is a copy of memory.
type Region struct {
	Addr  uint64 // of Bytes[0]
	Bytes []byte
}

// blockBytes is how much is read beyond the copies at a time: a read of a few
// words from another process costs the same as one of a KiB.
const blockBytes = 1024

// Memory is what a walk may read: copies that were taken with the registers
// and, where the caller knows that it has not changed since, the process itself.
// Set the fields anew for each stack, through Reset.
type Memory struct {
	Region // the copy of the stack, from the stack pointer (or its red zone) upwards

	// Also holds further copies: the interrupted stack behind a signal frame
	// on an alternate one. Usually empty.
	Also []Region

	// More reads the process by address, beyond the copies. nil where the
	// thread may have run since, so that its memory must not be mixed with them.
	More io.ReaderAt
	// UsedMore: a word came from More.
	UsedMore bool

	block     [blockBytes]byte
	blockAddr uint64
	blockLen  int

	scratch regs.Set // a frame's registers while its caller's replace them
}

// Reset makes m hold one copied stack and, if it is not nil, the memory beyond it.
func (m *Memory) Reset(addr uint64, stack []byte, more io.ReaderAt) {
	m.Addr, m.Bytes = addr, stack
	m.Also, m.More = nil, more
	m.UsedMore, m.blockLen = false, 0
}

// Word reads the word of a's size at addr, zero-extended. The error is a
// Reason: OutsideCopy when the address is in no copy and there is no More,
// Unreadable when More cannot read it. No allocation.
func (m *Memory) Word(a *regs.Arch, addr uint64) (uint64, error) {
	v, r := m.word(a, addr)
	if r != 0 {
		return 0, r
	}
	return v, nil
}

// fits: of n bytes there are size from the offset on.
func fits(off uint64, size, n int) bool { return off <= uint64(n) && uint64(n)-off >= uint64(size) }

// word8 reads a word of 8 bytes from the first copy; ok is false when it is not
// there. It is small enough to be inlined.
func (m *Memory) word8(a *regs.Arch, addr uint64) (v uint64, ok bool) {
	off := addr - m.Addr
	if !fits(off, 8, len(m.Bytes)) {
		return 0, false
	}
	v = binary.LittleEndian.Uint64(m.Bytes[off:])
	if a.BigEndian {
		v = bits.ReverseBytes64(v)
	}
	return v, true
}

// word is Word with the reason as it is, 0 for success.
func (m *Memory) word(a *regs.Arch, addr uint64) (uint64, Reason) {
	off := addr - m.Addr
	if fits(off, a.WordBytes, len(m.Bytes)) {
		return a.Word(m.Bytes[off:]), 0
	}
	return m.farWord(a, addr)
}

func (m *Memory) farWord(a *regs.Arch, addr uint64) (uint64, Reason) {
	b, r := m.far(addr, a.WordBytes)
	if r != 0 {
		return 0, r
	}
	return a.Word(b), 0
}

// bytes returns size bytes at addr, for sizes other than a word's. They stay
// valid until the next read.
func (m *Memory) bytes(addr uint64, size int) ([]byte, Reason) {
	off := addr - m.Addr
	if fits(off, size, len(m.Bytes)) {
		return m.Bytes[off : off+uint64(size)], 0
	}
	return m.far(addr, size)
}

// far looks for size bytes at addr in the further copies, then in the process.
func (m *Memory) far(addr uint64, size int) ([]byte, Reason) {
	for _, r := range m.Also {
		off := addr - r.Addr
		if fits(off, size, len(r.Bytes)) {
			return r.Bytes[off : off+uint64(size)], 0
		}
	}
	if m.More == nil {
		return nil, OutsideCopy
	}
	if addr+uint64(size) < addr || addr+uint64(size) > 1<<63-1 {
		return nil, Unreadable // not an offset that a ReaderAt can have
	}
	off := addr - m.blockAddr
	if !fits(off, size, m.blockLen) {
		// The start is rounded down a little: saved registers lie below the
		// return address, which is read first.
		start := addr &^ 255
		n, _ := m.More.ReadAt(m.block[:], int64(start))
		m.blockAddr, m.blockLen = start, max(0, min(n, blockBytes))
		if off = addr - start; !fits(off, size, m.blockLen) {
			// The block begins or ends in memory that cannot be read; the
			// word itself may be readable.
			n, _ = m.More.ReadAt(m.block[:size], int64(addr))
			m.blockAddr, m.blockLen = addr, max(0, min(n, size))
			if off = 0; m.blockLen < size {
				return nil, Unreadable
			}
		}
	}
	m.UsedMore = true
	return m.block[off : off+uint64(size)], 0
}
