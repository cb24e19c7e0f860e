package ptrace

import "golang.org/x/sys/unix"

// timedHere is where a call has its limit that not each architecture has, and in which argument.
//
//go:nosplit
//go:norace
func timedHere(nr int64, _ *[6]uint64, narrow bool) (kind, at int) {
	switch {
	case narrow:
	case nr == unix.SYS_POLL:
		return millis, 2
	case nr == unix.SYS_EPOLL_WAIT:
		return millis, 3
	}
	return untimed, 0
}
