package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offsets in NT_PRSTATUS (s390_regs, arch/s390/include/uapi/asm/ptrace.h: PSW, of which the address, r0–r15, of which r15).
const (
	noteBytes   = 216
	notePSWAddr = 8
	noteSP      = 136
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func StackPointer(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.BigEndian.Uint64(note[noteSP:])
}

// ProgramCounter is the program counter in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func ProgramCounter(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.BigEndian.Uint64(note[notePSWAddr:])
}

// Reverts: [Revert] can take back EINTR on this architecture.
const Reverts = true

const (
	noteR2 = 32 // result of a system call
	noteR3 = 40 // its second argument
	noteR4 = 48 // its third
	noteR5 = 56 // its fourth

	noteOrigR2 = 208 // its first
)

// revertible says of a system call that returns EINTR at a stop whether it may
// be repeated as if nothing had happened: by then it has done nothing (signal(7)). Each was
// tried; the calls that are not here were not, or must not be: close could close somebody
// else's descriptor. A connect that is repeated goes on (inet_stream_connect,
// net/ipv4/af_inet.c); only if it then fails for its time limit is the error another one.
// A sendto with MSG_FASTOPEN may have sent what it would send again.
//
//go:nosplit
//go:norace
func revertible(call uint32, note []byte) bool {
	switch call {
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_URING_ENTER,
		unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_PREADV, unix.SYS_PREADV2, unix.SYS_WRITE, unix.SYS_WRITEV,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
		unix.SYS_ACCEPT4, unix.SYS_CONNECT,
		unix.SYS_SELECT, unix.SYS_PSELECT6, unix.SYS_PPOLL: // when what is left of their limit cannot be written
		return true
	case unix.SYS_SENDTO, unix.SYS_SENDMMSG:
		return binary.BigEndian.Uint64(note[noteR5:])&unix.MSG_FASTOPEN == 0
	case unix.SYS_SENDMSG:
		return binary.BigEndian.Uint64(note[noteR4:])&unix.MSG_FASTOPEN == 0
	}
	return false
}

// unwritten tells of a system call that returns EFAULT at a stop whether that may be for want of a place to write what is left
// of a sleep (nanosleep_copyout, kernel/time/hrtimer.c). One that has another cause fails again.
//
//go:nosplit
//go:norace
func unwritten(call uint32, note []byte) bool {
	return call == unix.SYS_NANOSLEEP && binary.BigEndian.Uint64(note[noteR3:]) != 0 ||
		call == unix.SYS_CLOCK_NANOSLEEP && binary.BigEndian.Uint64(note[noteR5:]) != 0
}

// callOf is the number of the system call that a stopped thread is in, 0 if in none:
// the lower half of NT_S390_SYSTEM_CALL.
//
//go:nosplit
//go:norace
func callOf(tid int) uint32 {
	var call [4]byte
	if n, errno := RawRegs(tid, NoteS390Call, call[:]); errno != 0 || n != len(call) {
		return 0
	}
	return binary.BigEndian.Uint32(call[:]) & 0xffff
}

// Interrupted tells of a thread that has stopped at the end of a system call, by its note, whether a signal or an interrupt has ended that: the
// stop for it follows, where the kernel decides on a restart.
func Interrupted(note []byte) bool {
	return len(note) == noteBytes && interrupted(int64(binary.BigEndian.Uint64(note[noteR2:])))
}

// Restarts tells of thread tid, which has stopped, whether the call that it is in
// goes on by restart_syscall(2), which a seccomp filter may forbid.
//
//go:nosplit
//go:norace
func Restarts(tid int, note []byte) bool {
	return len(note) == noteBytes && int64(binary.BigEndian.Uint64(note[noteR2:])) == -erestartRestartCall && callOf(tid) != 0
}

// CutShort tells of the note of a thread that has stopped whether the call that it is in may end with an
// error that [Revert] takes back.
//
//go:nosplit
//go:norace
func CutShort(note []byte) bool {
	if len(note) != noteBytes {
		return false
	}
	ret := int64(binary.BigEndian.Uint64(note[noteR2:]))
	return ret == -eintr || ret == -efault
}

// End has a note tell that the call has returned.
func End(note []byte, result int64) { binary.BigEndian.PutUint64(note[noteR2:], uint64(result)) }

// Revert changes the note of thread tid that has stopped, for nothing that ends its wait, so
// that the program does not learn of it, and reports whether it did; the caller
// then writes the note back before Cont. anew: a call that would go on by
// restart_syscall begins anew instead. What begins anew has all of its time limit.
//
// The kernel decides on the restart when the thread goes on, by r2 and by what
// NT_S390_SYSTEM_CALL says (arch/s390/kernel/signal.c,
// arch_do_signal_or_restart). If a handler runs before, the call returns EINTR, as
// it would have.
//
//go:nosplit
//go:norace
func Revert(tid int, note []byte, anew bool) bool {
	if len(note) != noteBytes {
		return false
	}
	ret := int64(binary.BigEndian.Uint64(note[noteR2:]))
	if ret != -eintr && ret != -efault && (ret != -erestartRestartCall || !anew) {
		return false
	}
	return revert(note, ret, callOf(tid))
}

// revert is Revert for a known call.
//
//go:nosplit
//go:norace
func revert(note []byte, ret int64, call uint32) bool {
	if call == 0 || ret == -eintr && !revertible(call, note) || ret == -efault && !unwritten(call, note) {
		return false
	}
	code := int64(-erestartNoHand)
	binary.BigEndian.PutUint64(note[noteR2:], uint64(code))
	return true
}

// AsStopped changes a note that [Revert] has changed, and that was written, so that it tells where the thread
// stopped.
//
//go:nosplit
//go:norace
func AsStopped([]byte) {} // the program counter is as it was

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of. 32-bit programs are not sampled here.
//
//go:nosplit
//go:norace
func WordBytes(note []byte) int { return 8 }
