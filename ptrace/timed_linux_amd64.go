package ptrace

import "golang.org/x/sys/unix"

// timedHere is where a call has its limit that not each architecture has.
//
//go:nosplit
//go:norace
func timedHere(nr int64, args *[6]uint64, narrow bool) timed {
	switch {
	case narrow:
		return timed32(nr, args)
	case nr == unix.SYS_POLL:
		return timed{in: millis, at: 2}
	case nr == unix.SYS_EPOLL_WAIT:
		return timed{in: millis, at: 3}
	case nr == unix.SYS_ACCEPT:
		return timed{in: ofSocket}
	}
	return timed{}
}

// timed32 is that of all calls of a 32-bit program (arch/x86/entry/syscalls/syscall_32.tbl).
//
//go:nosplit
//go:norace
func timed32(nr int64, args *[6]uint64) timed {
	switch nr {
	case i386Poll:
		return timed{in: millis, at: 2}
	case i386EpollWait, i386EpollPwait:
		return timed{in: millis, at: 3}
	case i386Sigtimedwait, i386Sigtimedwait64:
		return timed{in: address, at: 2, narrow: nr == i386Sigtimedwait, end: again}
	case i386EpollPwait2:
		return timed{in: address, at: 3}
	case i386Semtimedop64:
		return timed{in: address, at: 3, end: again}
	case i386Getevents, i386Pgetevents, i386Pgetevents64:
		return timed{in: address, at: 4, narrow: nr != i386Pgetevents64}
	case i386UringEnter:
		return timedRing(args)
	case i386Nanosleep:
		return timed{in: address, at: 0, kept: true, narrow: true}
	case i386ClockNanosleep, i386ClockSleep64:
		return timedSleep(args, nr == i386ClockNanosleep)
	case i386Futex, i386Futex64:
		return timedFutex(args, nr == i386Futex)
	case i386Read, i386Readv, i386Recvfrom, i386Recvmsg, i386Recvmmsg, i386Recvmmsg64, i386Accept4:
		return timed{in: ofSocket}
	case i386IPC:
		if args[0] == ipcSemtimedop {
			return timed{in: address, at: 5, narrow: true, end: again}
		}
	case i386Socketcall:
		switch args[0] {
		case socketAccept, socketRecv, socketRecvfrom, socketRecvmsg, socketAccept4, socketRecvmmsg:
			return timed{in: ofSocket}
		}
	}
	return timed{}
}

// callIn is the system call that the thread tid with this note is in, -1 if in none, and its arguments. narrow: it is one of a 32-bit
// program (arch/x86/entry/calling.h, entry_32.S).
func callIn(_ int, note []byte, args *[6]uint64) (nr int64, narrow bool) {
	l, ok := layoutOf(note)
	if !ok {
		return -1, false
	}
	at := &args64
	if narrow = len(note) == noteBytes32; narrow {
		at = &args32
	}
	for i := range args {
		args[i] = uint64(signed(note, at[i]))
		if narrow {
			args[i] &= 1<<32 - 1
		}
	}
	return signed(note, l.origAX), narrow
}

// Offsets of the arguments: rdi, rsi, rdx, r10, r8, r9; ebx, ecx, edx, esi, edi, ebp.
var (
	args64 = [6]int{112, noteRSI, noteRDX, noteR10, 72, 64}
	args32 = [6]int{0, noteECX, noteEDX, noteESI, 16, 20}
)
