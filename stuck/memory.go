package stuck

import (
	"bytes"
	"encoding/binary"
	"time"

	"sfsample/ptrace"
)

// readAtMost bounds one read of memory. A page that is there takes microseconds.
const readAtMost = 50 * time.Millisecond

// memory reads processes' memory on a goroutine that may hang, as it does where
// userfaultfd or a file server withholds a page: then that goroutine is left behind,
// and the process is not read again.
type memory struct {
	requests chan request
	hung     map[int]bool // by process
}

type request struct {
	tid    int
	addr   uint64
	n      int
	answer chan []byte
}

// close ends the reading goroutine, unless it hangs.
func (m *memory) close() {
	if m.requests != nil {
		close(m.requests)
		m.requests = nil
	}
}

// read returns up to n bytes of the memory of a thread's process; fewer, also none,
// where it cannot be read.
func (m *memory) read(pid, tid int, addr uint64, n int) []byte {
	if m.hung[pid] || addr == 0 || addr+uint64(n) < addr {
		return nil
	}
	if m.requests == nil {
		m.requests = make(chan request)
		go serve(m.requests)
	}
	r := request{tid, addr, n, make(chan []byte, 1)}
	m.requests <- r
	timer := time.NewTimer(readAtMost)
	defer timer.Stop()
	select {
	case b := <-r.answer:
		return b
	case <-timer.C:
	}
	m.close()
	if m.hung == nil {
		m.hung = map[int]bool{}
	}
	m.hung[pid] = true
	return nil
}

func serve(requests chan request) {
	for r := range requests {
		buf := make([]byte, r.n)
		n, _ := ptrace.ReadMemory(r.tid, r.addr, buf) // an error gives no bytes
		r.answer <- buf[:n]
	}
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
func (d *Dump) around(t *Thread, addr uint64) block {
	lo := max(addr-min(before, addr), addr&^(pageBytes-1))
	return block{lo, d.mem.read(t.PID, t.TID, lo, int(addr-lo)+after)}
}

// word reads one word of the target's size.
func (d *Dump) word(t *Thread, addr uint64) (uint64, bool) {
	b := d.mem.read(t.PID, t.TID, addr, t.wordBytes())
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
func (d *Dump) text(t *Thread, addr uint64) (string, bool) {
	b := d.mem.read(t.PID, t.TID, addr, maxText)
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s), len(b) > 0
}

// span reads a struct timespec or timeval; unit is that of its second word. 32-bit
// programs have words of 4 bytes unless the call is one of the newer ones.
func (d *Dump) span(t *Thread, addr uint64, unit time.Duration) (time.Duration, bool) {
	bytes := 2 * t.wordBytes()
	if t.wordBytes() == 4 && newTime(t.Call) {
		bytes = 16
	}
	b := d.mem.read(t.PID, t.TID, addr, bytes)
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
