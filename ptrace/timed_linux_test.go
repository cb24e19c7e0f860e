package ptrace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestTimed: calls that may wait with a limit which a stop would make longer, by number and arguments.
func TestTimed(t *testing.T) {
	for _, tt := range []struct {
		name string
		nr   int64
		args [6]uint64
		want bool
	}{
		{"epoll_pwait", unix.SYS_EPOLL_PWAIT, [6]uint64{3: 200}, true},
		{"epoll_pwait for ever", unix.SYS_EPOLL_PWAIT, [6]uint64{3: 0xffffffff}, false},
		{"epoll_pwait for ever, in 64 bits", unix.SYS_EPOLL_PWAIT, [6]uint64{3: 1<<64 - 1}, false},
		{"epoll_pwait at once", unix.SYS_EPOLL_PWAIT, [6]uint64{1, 1, 1, 0, 1, 1}, false},
		{"epoll_pwait2", unix.SYS_EPOLL_PWAIT2, [6]uint64{3: 0x8000000000000000}, true},
		{"epoll_pwait2 for ever", unix.SYS_EPOLL_PWAIT2, [6]uint64{1, 1, 1, 0, 1, 1}, false},
		{"semtimedop", unix.SYS_SEMTIMEDOP, [6]uint64{3: 1}, true},
		{"semtimedop for ever", unix.SYS_SEMTIMEDOP, [6]uint64{1, 1, 1, 0, 1, 1}, false},
		{"rt_sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT, [6]uint64{2: 1}, true},
		{"rt_sigtimedwait for ever", unix.SYS_RT_SIGTIMEDWAIT, [6]uint64{1, 1, 0, 1, 1, 1}, false},
		{"io_getevents", unix.SYS_IO_GETEVENTS, [6]uint64{4: 1}, true},
		{"io_pgetevents for ever", unix.SYS_IO_PGETEVENTS, [6]uint64{1, 1, 1, 1, 0, 1}, false},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, [6]uint64{3: 9, 4: 1}, true},
		{"io_uring_enter that only submits", unix.SYS_IO_URING_ENTER, [6]uint64{1, 1, 1, 0, 1, 1}, false},
		{"io_uring_enter for ever", unix.SYS_IO_URING_ENTER, [6]uint64{1, 1, 1, 9, 0, 1}, false},
		{"nanosleep, whose limit the kernel keeps", unix.SYS_NANOSLEEP, [6]uint64{1, 1, 1, 1, 1, 1}, false},
		{"recvfrom", unix.SYS_RECVFROM, [6]uint64{}, true},
		{"accept4", unix.SYS_ACCEPT4, [6]uint64{}, true},
		{"read", unix.SYS_READ, [6]uint64{}, true},
		{"futex, whose limit the kernel keeps", unix.SYS_FUTEX, [6]uint64{1, 1, 1, 1, 1, 1}, false},
		{"ppoll, whose limit is in memory", unix.SYS_PPOLL, [6]uint64{1, 1, 1, 1, 1, 1}, false},
		{"none", -1, [6]uint64{1, 1, 1, 1, 1, 1}, false},
	} {
		if got := Timed(tt.nr, &tt.args, false); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
