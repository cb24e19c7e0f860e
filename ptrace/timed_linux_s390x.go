package ptrace

import "golang.org/x/sys/unix"

// timed is where a call has its limit, and in which argument.
//
//go:nosplit
//go:norace
func timed(nr int64, _ *[6]uint64, narrow bool) (kind, at int) {
	if narrow {
		return untimed, 0
	}
	switch nr {
	case unix.SYS_POLL:
		return millis, 2
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT:
		return millis, 3
	case unix.SYS_RT_SIGTIMEDWAIT:
		return address, 2
	case unix.SYS_EPOLL_PWAIT2, unix.SYS_SEMTIMEDOP:
		return address, 3
	case unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS:
		return address, 4
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_ACCEPT4:
		return ofSocket, 0
	}
	return untimed, 0
}
