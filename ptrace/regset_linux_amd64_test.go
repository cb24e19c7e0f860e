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

// TestLimit: poll(2) and epoll_wait(2) have their limit in a register, which stays as it is when their result is changed.
func TestLimit(t *testing.T) {
	const third, fourth = 96, 56 // rdx, the 13th of 27, and r10, the 8th
	for _, limit := range []int32{1000, 0, -1, 1<<31 - 1} {
		for call, at := range map[int64]int{unix.SYS_POLL: third, unix.SYS_EPOLL_WAIT: fourth, unix.SYS_EPOLL_PWAIT: fourth} {
			note := note64(call, -514)
			binary.LittleEndian.PutUint64(note[at:], uint64(uint32(limit)))
			if got := Limit(0, note); got != limit {
				t.Errorf("call %d: limit %d, want %d", call, got, limit)
			}
			want := note64(call, 0)
			binary.LittleEndian.PutUint64(want[at:], uint64(uint32(limit)))
			if TimeOut(note); !bytes.Equal(note, want) {
				t.Errorf("call %d: %x, want %x", call, note, want)
			}
		}
		for _, call := range []int32{i386EpollWait, i386EpollPwait} {
			note := note32(call, -514, 7)
			binary.LittleEndian.PutUint32(note[12:], uint32(limit)) // esi, the 4th of 17
			if got := Limit(0, note); got != limit {
				t.Errorf("32-bit call %d: limit %d, want %d", call, got, limit)
			}
		}
		note := note32(168, -514, limit)
		if got := Limit(0, note); got != limit {
			t.Errorf("32-bit limit %d, want %d", got, limit)
		}
		if TimeOut(note); !bytes.Equal(note, note32(168, 0, limit)) {
			t.Errorf("32-bit: %x", note)
		}
	}
	for _, note := range [][]byte{note64(unix.SYS_EPOLL_PWAIT2, -4), note64(-1, -4), note32(i386EpollWait, -4, 7), note32(unix.SYS_POLL, -4, 7), note64(168, -4), make([]byte, 64)} {
		if got := Limit(0, note); got != 0 {
			t.Errorf("%x has a limit of %d", note, got)
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
