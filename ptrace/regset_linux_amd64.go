package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offsets in NT_PRSTATUS of a 64-bit thread (struct user_regs_struct,
// arch/x86/include/asm/user_64.h) and the those of a 32-bit one
// (user32.h). The length of the note tells which it is.
const (
	noteBytes64 = 216
	noteBytes32 = 68
	noteR10     = 56 // fourth argument
	noteRAX     = 80
	noteRDX     = 96 // third argument
	noteRSI     = 104
	noteOrigRAX = 120
	noteRIP     = 128
	noteRSP     = 152
	noteECX     = 4
	noteEDX     = 8
	noteESI     = 12 // fourth argument
	noteEAX     = 24
	noteOrigEAX = 44
	noteEIP32   = 48
	noteESP32   = 60
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func StackPointer(note []byte) uint64 {
	switch len(note) {
	case noteBytes64:
		return binary.LittleEndian.Uint64(note[noteRSP:])
	case noteBytes32:
		return uint64(binary.LittleEndian.Uint32(note[noteESP32:]))
	}
	return 0
}

// ProgramCounter is the program counter in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func ProgramCounter(note []byte) uint64 {
	switch len(note) {
	case noteBytes64:
		return binary.LittleEndian.Uint64(note[noteRIP:])
	case noteBytes32:
		return uint64(binary.LittleEndian.Uint32(note[noteEIP32:]))
	}
	return 0
}

// AsStopped changes a note that [Revert] has changed, and that was written, so that it tells where the thread
// stopped.
//
//go:nosplit
//go:norace
func AsStopped([]byte) {} // the program counter is as it was

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of: 4 for a 32-bit one.
//
//go:nosplit
//go:norace
func WordBytes(note []byte) int {
	if len(note) == noteBytes32 {
		return 4
	}
	return 8
}

// opensAnew are the flags with which a file is not just opened.
const opensAnew = unix.O_CREAT | unix.O_EXCL | unix.O_TRUNC | unix.O_TMPFILE&^unix.O_DIRECTORY

// revertible says of a system call that returns EINTR at a stop whether it may
// be repeated as if nothing had happened: by then it has done nothing (signal(7)). Each was
// tried; the calls that are not here were not, or must not be: close could close somebody
// else's descriptor. A connect that is repeated goes on (inet_stream_connect,
// net/ipv4/af_inet.c); only if it then fails for its time limit is the error another one.
// A sendto with MSG_FASTOPEN may have sent what it would send again.
//
//go:nosplit
//go:norace
func revertible(call uint64, note []byte) bool {
	if len(note) == noteBytes32 {
		return revertible32(call, note)
	}
	switch call {
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_URING_ENTER,
		unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_PREADV, unix.SYS_PREADV2, unix.SYS_WRITE, unix.SYS_WRITEV,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
		unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CONNECT,
		// when what is left of their limit cannot be written
		unix.SYS_SELECT, unix.SYS_PSELECT6, unix.SYS_PPOLL,
		// of a FUSE server that was told to give up
		unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX,
		unix.SYS_ACCESS, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINK, unix.SYS_READLINKAT, unix.SYS_GETDENTS64:
		return true
	case unix.SYS_OPEN:
		return signed(note, noteRSI)&opensAnew == 0
	case unix.SYS_OPENAT:
		return signed(note, noteRDX)&opensAnew == 0
	case unix.SYS_SENDTO, unix.SYS_SENDMMSG:
		return signed(note, noteR10)&unix.MSG_FASTOPEN == 0
	case unix.SYS_SENDMSG:
		return signed(note, noteRDX)&unix.MSG_FASTOPEN == 0
	}
	return false
}

// revertible32 is revertible of a 32-bit program. What socketcall has in memory stays there; the flags of a send are in it.
//
//go:nosplit
//go:norace
func revertible32(call uint64, note []byte) bool {
	switch call {
	case i386EpollWait, i386EpollPwait, i386EpollPwait2, i386Semtimedop64, i386Sigtimedwait, i386Sigtimedwait64, i386Getevents, i386UringEnter,
		i386Read, i386Readv, i386Pread64, i386Preadv, i386Preadv2, i386Write, i386Writev,
		i386Recvfrom, i386Recvmsg, i386Recvmmsg, i386Recvmmsg64, i386Accept4, i386Connect,
		i386Select, i386Pselect6, i386Pselect64, i386Ppoll, i386Ppoll64,
		i386Stat64, i386Lstat64, i386Fstat64, i386Fstatat64, i386Statx, i386Access, i386Faccessat, i386Faccessat2, i386Readlink, i386Readlinkat, i386Getdents, i386Getdents64:
		return true
	case i386IPC:
		return signed(note, 0) == ipcSemop || signed(note, 0) == ipcSemtimedop
	case i386Socketcall:
		switch signed(note, 0) {
		case socketConnect, socketAccept, socketAccept4, socketRecv, socketRecvfrom, socketRecvmsg, socketRecvmmsg:
			return true
		}
	case i386Open:
		return signed(note, noteECX)&opensAnew == 0
	case i386Openat:
		return signed(note, noteEDX)&opensAnew == 0
	case i386Sendto, i386Sendmmsg:
		return signed(note, noteESI)&unix.MSG_FASTOPEN == 0
	case i386Sendmsg:
		return signed(note, noteEDX)&unix.MSG_FASTOPEN == 0
	}
	return false
}

// unwritten tells of a system call that returns EFAULT at a stop whether that may be for want of a place to write what is left
// of a sleep (nanosleep_copyout, kernel/time/hrtimer.c). One that has another cause fails again.
//
//go:nosplit
//go:norace
func unwritten(call uint64, note []byte) bool {
	if len(note) == noteBytes32 {
		return call == i386Nanosleep && signed(note, noteECX) != 0 || (call == i386ClockNanosleep || call == i386ClockSleep64) && signed(note, noteESI) != 0
	}
	return call == unix.SYS_NANOSLEEP && signed(note, noteRSI) != 0 || call == unix.SYS_CLOCK_NANOSLEEP && signed(note, noteR10) != 0
}

// Reverts: [Revert] can take back EINTR on this architecture.
const Reverts = true

// layout is where a note has what decides on the restart of a system call.
type layout struct {
	ax, origAX int
}

// layoutOf is the layout of a note.
//
//go:nosplit
//go:norace
func layoutOf(note []byte) (l layout, ok bool) {
	switch len(note) {
	case noteBytes64:
		return layout{noteRAX, noteOrigRAX}, true
	case noteBytes32:
		return layout{noteEAX, noteOrigEAX}, true
	}
	return layout{}, false
}

// signed reads a register of a note.
//
//go:nosplit
//go:norace
func signed(note []byte, at int) int64 {
	if len(note) == noteBytes32 {
		return int64(int32(binary.LittleEndian.Uint32(note[at:])))
	}
	return int64(binary.LittleEndian.Uint64(note[at:]))
}

// set writes one.
//
//go:nosplit
//go:norace
func set(note []byte, at int, v int64) {
	if len(note) == noteBytes32 {
		binary.LittleEndian.PutUint32(note[at:], uint32(v))
		return
	}
	binary.LittleEndian.PutUint64(note[at:], uint64(v))
}

// Interrupted tells of a thread that has stopped at the end of a system call, by its note, whether a signal or an interrupt has ended that: the
// stop for it follows, where the kernel decides on a restart.
func Interrupted(note []byte) bool {
	l, ok := layoutOf(note)
	return ok && interrupted(signed(note, l.ax))
}

// Restarts tells of thread tid, which has stopped, whether the call that it is in
// goes on by restart_syscall(2), which a seccomp filter may forbid.
//
//go:nosplit
//go:norace
func Restarts(tid int, note []byte) bool {
	l, ok := layoutOf(note)
	return ok && signed(note, l.origAX) >= 0 && signed(note, l.ax) == -erestartRestartCall
}

// CutShort tells of the note of a thread that has stopped whether the call that it is in may end with an
// error that [Revert] takes back.
//
//go:nosplit
//go:norace
func CutShort(note []byte) bool {
	l, ok := layoutOf(note)
	return ok && signed(note, l.origAX) >= 0 && (signed(note, l.ax) == -eintr || signed(note, l.ax) == -efault)
}

// End has a note tell that the call has returned.
func End(note []byte, result int64) {
	if l, ok := layoutOf(note); ok {
		set(note, l.ax, result)
	}
}

// Revert changes the note of thread tid that has stopped, for nothing that ends its wait, so
// that the program does not learn of it, and reports whether it did; the caller
// then writes the note back before Cont. anew: a call that would go on by
// restart_syscall begins anew instead. What begins anew has all of its time limit.
//
// The kernel decides on the restart when the thread goes on
// (arch_do_signal_or_restart, arch/x86/kernel/signal.c). If a handler runs before,
// the call returns EINTR, as it would have.
//
//go:nosplit
//go:norace
func Revert(tid int, note []byte, anew bool) bool {
	l, ok := layoutOf(note)
	if !ok {
		return false
	}
	call := signed(note, l.origAX)
	if call < 0 {
		return false // not in a system call
	}
	switch -signed(note, l.ax) {
	case eintr:
		if !revertible(uint64(call), note) {
			return false
		}
	case efault:
		if !unwritten(uint64(call), note) {
			return false
		}
	case erestartRestartCall:
		if !anew {
			return false
		}
	default:
		return false
	}
	set(note, l.ax, -erestartNoHand)
	return true
}
