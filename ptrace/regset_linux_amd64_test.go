package ptrace

import (
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
		{"connect would answer EALREADY", note64(unix.SYS_CONNECT, -4), false, -4},
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
	if Revert(0, make([]byte, noteBytes32), true) {
		t.Error("a 32-bit note was changed: nothing was tried there")
	}
}
