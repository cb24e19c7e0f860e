package ptrace

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func note64(call, ret int64) []byte {
	b := make([]byte, noteBytes64)
	binary.LittleEndian.PutUint64(b[noteOrigRAX:], uint64(call))
	binary.LittleEndian.PutUint64(b[noteRAX:], uint64(ret))
	return b
}

func TestRevert(t *testing.T) {
	for _, c := range []struct {
		name    string
		note    []byte
		seccomp bool
		want    int64 // return register afterwards
	}{
		{"EINTR of epoll_wait is taken back", note64(unix.SYS_EPOLL_WAIT, -4), false, -514},
		{"EINTR of recvfrom with a timeout", note64(unix.SYS_RECVFROM, -4), false, -514},
		{"connect goes on to wait", note64(unix.SYS_CONNECT, -4), false, -514},
		{"a limit that cannot be written", note64(unix.SYS_PPOLL, -4), false, -514},
		{"a stat of a server that gave up", note64(unix.SYS_NEWFSTATAT, -4), false, -514},
		{"so of an open", note64(unix.SYS_OPENAT, -4), false, -514},
		{"one that makes a file", opening(unix.SYS_OPENAT, noteRDX, unix.O_CREAT), false, -4},
		{"one that empties it", opening(unix.SYS_OPEN, noteRSI, unix.O_TRUNC), false, -4},
		{"close may have closed already", note64(unix.SYS_CLOSE, -4), false, -4},
		{"a result that happens to be negative", note64(unix.SYS_EPOLL_WAIT, -9), false, -9},
		{"a count", note64(unix.SYS_RECVFROM, 4), false, 4},
		{"outside of any call", note64(-1, -4), false, -4},
		{"a timeout goes on by restart_syscall", note64(unix.SYS_NANOSLEEP, -516), false, -516},
		{"unless a filter may not know that", note64(unix.SYS_NANOSLEEP, -516), true, -514},
		{"filters do not matter to other codes", note64(unix.SYS_READ, -512), true, -512},
	} {
		before := binary.LittleEndian.Uint64(c.note[noteRAX:])
		changed := Revert(0, c.note, c.seccomp, 0)
		got := int64(binary.LittleEndian.Uint64(c.note[noteRAX:]))
		if got != c.want || changed != (uint64(got) != before) {
			t.Errorf("%s: return register %d (changed: %v), want %d", c.name, got, changed, c.want)
		}
	}
}

// opening is a note of a call that ends with EINTR, with these flags in a register.
func opening(call int64, reg int, flags uint64) []byte {
	note := note64(call, -4)
	binary.LittleEndian.PutUint64(note[reg:], flags)
	return note
}

// note32 is that of a 32-bit thread: 17 registers of 4 bytes, of which edx, eax and
// orig_eax are those with index 2, 6 and 11 (struct user_regs_struct,
// arch/x86/include/asm/user32.h).
func note32(call, ret, edx int32) []byte {
	var r [17]int32
	r[2], r[6], r[11] = edx, ret, call
	b, _ := binary.Append(nil, binary.LittleEndian, r)
	return b
}

// TestRevertPoll: poll(2) has its limit in a register, which becomes less by what
// has been waited already, and stays without a limit.
func TestRevertPoll(t *testing.T) {
	for _, c := range []struct{ limit, waited, want int32 }{
		{1000, 0, 1000}, {1000, 300, 700}, {1000, 1000, 0}, {1000, 5000, 0}, {0, 5, 0}, {-1, 5000, -1}, {1000, -5, 1000},
	} {
		waited := time.Duration(c.waited) * time.Millisecond
		note := note64(unix.SYS_POLL, -516)
		binary.LittleEndian.PutUint64(note[96:], uint64(uint32(c.limit))) // rdx, the 13th of 27
		if !Restarts(0, note) || !Revert(0, note, true, waited) || Restarts(0, note) {
			t.Fatal("the call does not begin anew")
		}
		if got := int32(binary.LittleEndian.Uint64(note[96:])); got != c.want {
			t.Errorf("limit %d after %v: %d, want %d", c.limit, waited, got, c.want)
		}
		note = note32(168, -516, c.limit)
		if !Revert(0, note, true, waited) || !bytes.Equal(note, note32(168, -514, c.want)) {
			t.Errorf("32-bit limit %d after %v: %x", c.limit, waited, note)
		}
	}
}

// TestRevert32: of a 32-bit thread nothing is changed but what could kill it.
func TestRevert32(t *testing.T) {
	for _, c := range []struct {
		note []byte
		anew bool
		want []byte
	}{
		{note32(162, -516, 7), true, note32(162, -514, 7)}, // nanosleep
		{note32(162, -516, 7), false, note32(162, -516, 7)},
		{note32(256, -4, 7), true, note32(256, -4, 7)}, // epoll_wait
		{note32(-1, -516, 7), true, note32(-1, -516, 7)},
		{make([]byte, 64), true, make([]byte, 64)},
	} {
		before := bytes.Clone(c.note)
		if changed := Revert(0, c.note, c.anew, 0); !bytes.Equal(c.note, c.want) || changed != !bytes.Equal(before, c.want) {
			t.Errorf("%x became %x (%v), want %x", before, c.note, changed, c.want)
		}
	}
}
