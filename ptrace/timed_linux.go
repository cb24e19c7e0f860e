package ptrace

import "golang.org/x/sys/unix"

// Where a system call has its time limit: an argument in milliseconds, none at all if it is negative; one that is the
// address of a limit, or 0; or its socket, of which nobody else can ask (SO_RCVTIMEO, socket(7)).
const (
	untimed = iota
	millis
	address
	ofSocket
)

// Timed tells whether a thread may wait with a time limit in the system call nr with these arguments, of which a stop would lose what
// has passed: the call is cut short, and ends early or begins anew. (What is left is kept by the kernel, or in memory, of the others:
// signal(7), poll(2), select(2).) narrow: it is a call of a 32-bit program.
//
//go:nosplit
//go:norace
func Timed(nr int64, args *[6]uint64, narrow bool) bool {
	kind, at := timedHere(nr, args, narrow)
	if kind == untimed && !narrow {
		kind, at = timed(nr)
	}
	switch kind {
	case millis:
		return int32(args[at]) > 0
	case address:
		return args[at] != 0
	}
	return kind == ofSocket
}

// timed is where a call has its limit, and in which argument, of those that each architecture has.
//
//go:nosplit
//go:norace
func timed(nr int64) (kind, at int) {
	switch nr {
	case unix.SYS_EPOLL_PWAIT:
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
