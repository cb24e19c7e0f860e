package stuck

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// memory reads processes' memory that is at hand, in memory or swapped out: no read waits for long for a page that
// userfaultfd or the server of a file withholds, also if it has gone since the look.
type memory struct {
	fs     procfs.FS
	mu     sync.Mutex
	spaces map[int]*space // by process
	absent map[int]bool   // processes of which something was not at hand
}

// space is the memory of a process.
type space struct {
	procfs.Pagemap
	ptrace.Wary
}

func (m *memory) close() {
	for _, s := range m.spaces {
		s.Close()
	}
	clear(m.spaces)
}

// read returns up to n bytes of the memory of a thread's process; fewer, also none,
// where it cannot be read.
func (m *memory) read(t *Thread, addr uint64, n int) []byte {
	if addr == 0 || addr+uint64(n) < addr {
		return nil
	}
	s := m.open(t.PID)
	buf, got, err := make([]byte, s.AtHand(addr, n)), 0, ptrace.ErrStuck
	if len(buf) > 0 {
		got, err = s.ReadAtHand(s.Pagemap, t.TID, addr, buf) // an error gives no bytes
	}
	if err == ptrace.ErrStuck {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.absent[t.PID] = true
	}
	return buf[:got]
}

// open returns the memory of a process.
func (m *memory) open(pid int) *space {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.spaces[pid]
	if s == nil {
		s = &space{Pagemap: m.fs.OpenPagemap(pid)}
		m.spaces[pid] = s
	}
	return s
}

// block is a piece of memory with its address.
type block struct {
	addr uint64
	data []byte
}

func (b block) u32(addr uint64) (uint32, bool) {
	if addr < b.addr || addr-b.addr > uint64(len(b.data)) || uint64(len(b.data))-(addr-b.addr) < 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(b.data[addr-b.addr:]), true
}

// at is u32 for words whose absence means the same as 0.
func (b block) at(addr uint64) uint32 {
	v, _ := b.u32(addr)
	return v
}

// Around a futex word this much is kept: the locks that we know are no larger.
const (
	before, after = 48, 64
	pageBytes     = 4096
)

// around reads what surrounds a futex word, within its page downwards.
func (m *memory) around(t *Thread, addr uint64) block {
	lo := max(addr-min(before, addr), addr&^(pageBytes-1))
	return block{lo, m.read(t, lo, int(addr-lo)+after)}
}

// word reads one word of the target's size.
func (m *memory) word(t *Thread, addr uint64) (uint64, bool) {
	b := m.read(t, addr, t.wordBytes())
	switch len(b) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(b)), true
	case 8:
		return binary.NativeEndian.Uint64(b), true
	}
	return 0, false
}

// maxText bounds a path read out of memory, in bytes.
const maxText = 1024

// text reads a string that ends with a NUL.
func (m *memory) text(t *Thread, addr uint64) (string, bool) {
	b := m.read(t, addr, maxText)
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s), len(b) > 0
}

// span reads a struct timespec or timeval; unit is that of its second word. 32-bit
// programs have words of 4 bytes unless the call is one of the newer ones.
func (m *memory) span(t *Thread, addr uint64, unit time.Duration) (time.Duration, bool) {
	bytes := 2 * t.wordBytes()
	if t.wordBytes() == 4 && newTime(t.Call.Name) {
		bytes = 16
	}
	b := m.read(t, addr, bytes)
	var s, part int64
	switch {
	case len(b) < bytes:
		return 0, false
	case bytes == 8:
		s, part = int64(int32(binary.NativeEndian.Uint32(b))), int64(int32(binary.NativeEndian.Uint32(b[4:])))
	default:
		s, part = int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:]))
	}
	if s < 0 || s > 1<<33 || part < 0 || part > int64(time.Second/unit) {
		return 0, false
	}
	return time.Duration(s)*time.Second + time.Duration(part)*unit, true
}
