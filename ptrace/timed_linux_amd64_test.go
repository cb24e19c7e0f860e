package ptrace

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTimed32: those of 32-bit programs, also behind socketcall and ipc.
func TestTimed32(t *testing.T) {
	for _, tt := range []struct {
		name string
		nr   int64
		args [6]uint64
		want bool
	}{
		{"poll", i386Poll, [6]uint64{2: 200}, true},
		{"poll for ever", i386Poll, [6]uint64{2: 0xffffffff}, false},
		{"epoll_wait", i386EpollWait, [6]uint64{3: 1}, true},
		{"semtimedop", i386IPC, [6]uint64{ipcSemtimedop, 0, 0, 0, 0, 1}, true},
		{"semtimedop for ever", i386IPC, [6]uint64{ipcSemtimedop, 1, 1, 1, 1, 0}, false},
		{"semop", i386IPC, [6]uint64{ipcSemop, 1, 1, 1, 1, 1}, false},
		{"recv", i386Socketcall, [6]uint64{socketRecv}, true},
		{"send", i386Socketcall, [6]uint64{socketSend}, false},
		{"of a 64-bit program", 232, [6]uint64{1, 1, 1, 1, 1, 1}, false},
	} {
		if got := Timed(tt.nr, &tt.args, true); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestRevert32: calls of a 32-bit program that EINTR has ended begin anew, or do not.
func TestRevert32(t *testing.T) {
	for _, tt := range []struct {
		name string
		nr   int32
		args [4]int32
		ret  int32
		anew bool
		want bool
	}{
		{"epoll_wait", i386EpollWait, [4]int32{}, -eintr, false, true},
		{"recv by socketcall", i386Socketcall, [4]int32{socketRecv}, -eintr, false, true},
		{"send by socketcall, whose flags are in memory", i386Socketcall, [4]int32{socketSend}, -eintr, false, false},
		{"sendto", i386Sendto, [4]int32{}, -eintr, false, true},
		{"sendto that opens", i386Sendto, [4]int32{3: unix.MSG_FASTOPEN}, -eintr, false, false},
		{"semtimedop by ipc", i386IPC, [4]int32{ipcSemtimedop}, -eintr, false, true},
		{"msgsnd by ipc", i386IPC, [4]int32{11}, -eintr, false, false},
		{"open", i386Open, [4]int32{}, -eintr, false, true},
		{"open that makes a file", i386Open, [4]int32{1: unix.O_CREAT}, -eintr, false, false},
		{"openat that empties a file", i386Openat, [4]int32{2: unix.O_TRUNC}, -eintr, false, false},
		{"close", 6, [4]int32{}, -eintr, false, false},
		{"lstat of the 64-bit table", unix.SYS_LSTAT, [4]int32{}, -eintr, false, false},
		{"nanosleep that could not tell what is left", i386Nanosleep, [4]int32{1: 1}, -efault, false, true},
		{"nanosleep that was not to tell", i386Nanosleep, [4]int32{}, -efault, false, false},
		{"nanosleep that goes on by restart_syscall", i386Nanosleep, [4]int32{}, -erestartRestartCall, true, true},
		{"that may go on so", i386Nanosleep, [4]int32{}, -erestartRestartCall, false, false},
		{"no call", -1, [4]int32{}, -eintr, false, false},
		{"a result", i386EpollWait, [4]int32{}, 1, false, false},
	} {
		note := make([]byte, noteBytes32)
		for i, v := range append(tt.args[:], 0, 0, tt.ret, 0, 0, 0, 0, tt.nr) {
			binary.LittleEndian.PutUint32(note[4*i:], uint32(v))
		}
		got := Revert(0, note, tt.anew)
		ret := int32(binary.LittleEndian.Uint32(note[noteEAX:]))
		if want := map[bool]int32{true: -erestartNoHand, false: tt.ret}[tt.want]; got != tt.want || ret != want {
			t.Errorf("%s: %t and %d, want %t and %d", tt.name, got, ret, tt.want, want)
		}
	}
	if note := make([]byte, noteBytes32-4); Revert(0, note, true) || !bytes.Equal(note, make([]byte, noteBytes32-4)) {
		t.Error("a note of another length is changed")
	}
}
