package ptrace

import (
	"bytes"
	"encoding/binary"
	"testing"

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
		{"what is left of a sleep cannot be written", argument(note64(unix.SYS_NANOSLEEP, -14), noteRSI, 8), false, -514},
		{"nor here", argument(note64(unix.SYS_CLOCK_NANOSLEEP, -14), noteR10, 8), false, -514},
		{"nothing was to be written", note64(unix.SYS_NANOSLEEP, -14), false, -14},
		{"a read from a bad address", argument(note64(unix.SYS_READ, -14), noteRSI, 8), false, -14},
		{"so of an open", note64(unix.SYS_OPENAT, -4), false, -514},
		{"one that makes a file", argument(note64(unix.SYS_OPENAT, -4), noteRDX, unix.O_CREAT), false, -4},
		{"one that empties it", argument(note64(unix.SYS_OPEN, -4), noteRSI, unix.O_TRUNC), false, -4},
		{"close may have closed already", note64(unix.SYS_CLOSE, -4), false, -4},
		{"a result that happens to be negative", note64(unix.SYS_EPOLL_WAIT, -9), false, -9},
		{"a count", note64(unix.SYS_RECVFROM, 4), false, 4},
		{"outside of any call", note64(-1, -4), false, -4},
		{"a timeout goes on by restart_syscall", note64(unix.SYS_NANOSLEEP, -516), false, -516},
		{"unless a filter may not know that", note64(unix.SYS_NANOSLEEP, -516), true, -514},
		{"filters do not matter to other codes", note64(unix.SYS_READ, -512), true, -512},
	} {
		before := binary.LittleEndian.Uint64(c.note[noteRAX:])
		changed := Revert(0, c.note, c.seccomp)
		got := int64(binary.LittleEndian.Uint64(c.note[noteRAX:]))
		if got != c.want || changed != (uint64(got) != before) {
			t.Errorf("%s: return register %d (changed: %v), want %d", c.name, got, changed, c.want)
		}
	}
}

// argument is a note with v in a register.
func argument(note []byte, reg int, v uint64) []byte {
	binary.LittleEndian.PutUint64(note[reg:], v)
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

// TestLimitOf: where calls have their time limits (syscalls(2), and the kernel's tables), and what they return at its end.
func TestLimitOf(t *testing.T) {
	reg := func(ms int32) Limit { return Limit{NS: int64(ms) * 1e6} }
	at := func(addr uint64, word int, end unix.Errno) Limit {
		return Limit{Addr: addr, Word: word, Result: -int64(end)}
	}
	for _, tt := range []struct {
		name string
		nr   int64
		args [6]uint64
		want Limit
		old  bool // a 32-bit program
	}{
		{"poll", unix.SYS_POLL, [6]uint64{9, 9, 1000, 9, 9, 9}, reg(1000), false},
		{"poll for ever", unix.SYS_POLL, [6]uint64{2: 0xffffffff}, reg(-1), false},
		{"epoll_wait", unix.SYS_EPOLL_WAIT, [6]uint64{9, 9, 9, 1<<31 - 1, 9, 9}, reg(1<<31 - 1), false},
		{"epoll_pwait", unix.SYS_EPOLL_PWAIT, [6]uint64{9, 9, 9, 7, 9, 9}, reg(7), false},
		{"epoll_pwait2", unix.SYS_EPOLL_PWAIT2, [6]uint64{9, 9, 9, 0x7f00_0000_1000, 9, 9}, at(0x7f00_0000_1000, 8, 0), false},
		{"epoll_pwait2 for ever", unix.SYS_EPOLL_PWAIT2, [6]uint64{9, 9, 9, 0, 9, 9}, at(0, 8, 0), false},
		{"semtimedop", unix.SYS_SEMTIMEDOP, [6]uint64{9, 9, 9, 16, 9, 9}, at(16, 8, unix.EAGAIN), false},
		{"rt_sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT, [6]uint64{9, 9, 16, 9, 9, 9}, at(16, 8, unix.EAGAIN), false},
		{"io_getevents", unix.SYS_IO_GETEVENTS, [6]uint64{9, 9, 9, 9, 16, 9}, at(16, 8, 0), false},
		{"io_pgetevents", unix.SYS_IO_PGETEVENTS, [6]uint64{9, 9, 9, 9, 16, 9}, at(16, 8, 0), false},
		{"nanosleep", unix.SYS_NANOSLEEP, [6]uint64{16, 9, 9, 9, 9, 9}, at(16, 8, 0), false},
		{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP, [6]uint64{9, 0, 16, 9, 9, 9}, at(16, 8, 0), false},
		{"clock_nanosleep until a time", unix.SYS_CLOCK_NANOSLEEP, [6]uint64{9, 1, 16, 9, 9, 9}, Limit{}, false},
		{"clock_nanosleep, CPU time of the process", unix.SYS_CLOCK_NANOSLEEP, [6]uint64{unix.CLOCK_PROCESS_CPUTIME_ID, 0, 16, 9, 9, 9}, Limit{}, false},
		{"clock_nanosleep, CPU time of another", unix.SYS_CLOCK_NANOSLEEP, [6]uint64{1<<64 - 38, 0, 16, 9, 9, 9}, Limit{}, false},
		{"futex", unix.SYS_FUTEX, [6]uint64{9, 128, 9, 16, 9, 9}, at(16, 8, unix.ETIMEDOUT), false},
		{"futex of a bit set, until a time", unix.SYS_FUTEX, [6]uint64{9, 9, 9, 16, 9, 9}, Limit{}, false},
		{"futex that wakes", unix.SYS_FUTEX, [6]uint64{9, 129, 9, 16, 9, 9}, Limit{}, false},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, [6]uint64{9, 0, 1, 9, 0x100, 24}, Limit{Addr: 0x110, Word: 8, Ring: true, Result: -int64(unix.ETIME)}, false},
		{"io_uring_enter until a time", unix.SYS_IO_URING_ENTER, [6]uint64{9, 0, 1, 9 | 32, 0x100, 24}, Limit{}, false},
		{"io_uring_enter without a limit", unix.SYS_IO_URING_ENTER, [6]uint64{9, 0, 1, 1, 0x100, 8}, Limit{}, false},
		{"recvfrom", unix.SYS_RECVFROM, [6]uint64{9, 9, 9, 9, 9, 9}, Limit{}, false},
		{"32-bit poll by its other number", 168, [6]uint64{9, 9, 9, 9, 9, 9}, Limit{}, false},
		{"none", -1, [6]uint64{9, 9, 9, 9, 9, 9}, Limit{}, false},

		{"poll", 168, [6]uint64{9, 9, 1000, 9, 9, 9}, reg(1000), true},
		{"epoll_wait", 256, [6]uint64{9, 9, 9, 0xffffffff, 9, 9}, reg(-1), true},
		{"epoll_pwait", 319, [6]uint64{9, 9, 9, 7, 9, 9}, reg(7), true},
		{"epoll_pwait2", 441, [6]uint64{9, 9, 9, 0xffff_1000, 9, 9}, at(0xffff_1000, 8, 0), true},
		{"rt_sigtimedwait", 177, [6]uint64{9, 9, 16, 9, 9, 9}, at(16, 4, unix.EAGAIN), true},
		{"rt_sigtimedwait_time64", 421, [6]uint64{9, 9, 16, 9, 9, 9}, at(16, 8, unix.EAGAIN), true},
		{"semtimedop by ipc", 117, [6]uint64{4, 9, 9, 9, 9, 16}, at(16, 4, unix.EAGAIN), true},
		{"semtimedop_time64", 420, [6]uint64{9, 9, 9, 16, 9, 9}, at(16, 8, unix.EAGAIN), true},
		{"io_getevents", 247, [6]uint64{9, 9, 9, 9, 16, 9}, at(16, 4, 0), true},
		{"io_pgetevents_time64", 416, [6]uint64{9, 9, 9, 9, 16, 9}, at(16, 8, 0), true},
		{"nanosleep", 162, [6]uint64{16, 9, 9, 9, 9, 9}, at(16, 4, 0), true},
		{"clock_nanosleep", 267, [6]uint64{9, 0, 16, 9, 9, 9}, at(16, 4, 0), true},
		{"clock_nanosleep_time64", 407, [6]uint64{9, 0, 16, 9, 9, 9}, at(16, 8, 0), true},
		{"clock_nanosleep_time64, CPU time of another", 407, [6]uint64{1<<32 - 38, 0, 16, 9, 9, 9}, Limit{}, true},
		{"futex", 240, [6]uint64{9, 128, 9, 16, 9, 9}, at(16, 4, unix.ETIMEDOUT), true},
		{"futex_time64", 422, [6]uint64{9, 128, 9, 16, 9, 9}, at(16, 8, unix.ETIMEDOUT), true},
		{"poll by the number of 64-bit programs", unix.SYS_POLL, [6]uint64{9, 9, 1000, 9, 9, 9}, Limit{}, true},
	} {
		// Where registers are in struct user_regs_struct (arch/x86/include/asm/user_64.h, user32.h), by index.
		note, where, call, word := make([]byte, noteBytes64), [6]int{14, 13, 12, 7, 9, 8}, 15, 8
		if tt.old {
			note, where, call, word = make([]byte, noteBytes32), [6]int{0, 1, 2, 3, 4, 5}, 11, 4
		}
		put := func(i int, v uint64) {
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], v)
			copy(note[i*word:], b[:word])
		}
		for i, v := range tt.args {
			put(where[i], v)
		}
		put(call, uint64(tt.nr))
		tt.want.Padded = tt.old && tt.want.Word == 8
		if got := LimitOf(0, note); got != tt.want {
			t.Errorf("%s (32-bit: %t): %+v, want %+v", tt.name, tt.old, got, tt.want)
		}
	}
	if got := LimitOf(0, make([]byte, 64)); got != (Limit{}) {
		t.Errorf("a note of another size has a limit: %+v", got)
	}
}

// TestEnd: nothing but the result is another.
func TestEnd(t *testing.T) {
	for _, end := range []int64{0, -11} {
		for _, n := range []struct{ note, want []byte }{
			{note64(unix.SYS_POLL, -514), note64(unix.SYS_POLL, end)}, {note32(168, -514, 7), note32(168, int32(end), 7)}, {make([]byte, 64), make([]byte, 64)},
		} {
			if End(n.note, end); !bytes.Equal(n.note, n.want) {
				t.Errorf("%x, want %x", n.note, n.want)
			}
		}
	}
}

// TestCutShort: results with which a stop may have ended a call.
func TestCutShort(t *testing.T) {
	for _, c := range []struct {
		note []byte
		want bool
	}{
		{note64(unix.SYS_READ, -4), true}, {note64(unix.SYS_NANOSLEEP, -14), true}, {note64(-1, -4), false}, {note64(unix.SYS_READ, -5), false},
		{note64(unix.SYS_POLL, -516), false}, {note64(unix.SYS_READ, 4), false}, {note32(3, -4, 0), true}, {make([]byte, 64), false},
	} {
		if got := CutShort(c.note); got != c.want {
			t.Errorf("%x: %t, want %t", c.note, got, c.want)
		}
	}
}
