package ptrace

import "golang.org/x/sys/unix"

// timedHere is where a call has its limit that not each architecture has, and in which argument.
//
//go:nosplit
//go:norace
func timedHere(nr int64, args *[6]uint64, narrow bool) (kind, at int) {
	switch {
	case narrow:
		return timed32(nr, args)
	case nr == unix.SYS_POLL:
		return millis, 2
	case nr == unix.SYS_EPOLL_WAIT:
		return millis, 3
	case nr == unix.SYS_ACCEPT:
		return ofSocket, 0
	}
	return untimed, 0
}

// timed32 is that of all calls of a 32-bit program (arch/x86/entry/syscalls/syscall_32.tbl).
//
//go:nosplit
//go:norace
func timed32(nr int64, args *[6]uint64) (kind, at int) {
	switch nr {
	case i386Poll:
		return millis, 2
	case i386EpollWait, i386EpollPwait:
		return millis, 3
	case i386Sigtimedwait, i386Sigtimedwait64:
		return address, 2
	case i386EpollPwait2, i386Semtimedop64:
		return address, 3
	case i386Getevents, i386Pgetevents, i386Pgetevents64:
		return address, 4
	case i386Read, i386Readv, i386Recvfrom, i386Recvmsg, i386Recvmmsg, i386Recvmmsg64, i386Accept4:
		return ofSocket, 0
	case i386IPC:
		if args[0] == ipcSemtimedop {
			return address, 4
		}
	case i386Socketcall:
		switch args[0] {
		case socketAccept, socketRecv, socketRecvfrom, socketRecvmsg, socketAccept4, socketRecvmmsg:
			return ofSocket, 0
		}
	}
	return untimed, 0
}
