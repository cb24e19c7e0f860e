package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offsets in NT_PRSTATUS of a 64-bit thread (struct user_regs_struct,
// arch/x86/include/asm/user_64.h) and the stack pointer's of a 32-bit one
// (user32.h). The length of the note tells which it is.
const (
	noteBytes64 = 216
	noteBytes32 = 68
	noteRAX     = 80
	noteOrigRAX = 120
	noteRSP     = 152
	noteESP32   = 60
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
func StackPointer(note []byte) uint64 {
	switch len(note) {
	case noteBytes64:
		return binary.LittleEndian.Uint64(note[noteRSP:])
	case noteBytes32:
		return uint64(binary.LittleEndian.Uint32(note[noteESP32:]))
	}
	return 0
}

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of: 4 for a 32-bit one.
func WordBytes(note []byte) int {
	if len(note) == noteBytes32 {
		return 4
	}
	return 8
}

// revertible says of a system call that returns EINTR at a stop whether it may
// be repeated as if nothing had happened. Each was tried; the calls that are
// not here were not, or must not be: connect would answer EALREADY, and close
// could close somebody else's descriptor.
func revertible(call uint64) bool {
	switch call {
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_URING_ENTER,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
		unix.SYS_SENDTO, unix.SYS_SENDMSG:
		return true
	}
	return false
}

// Reverts: [Revert] can take back EINTR on this architecture.
const Reverts = true

// Revert changes the note of thread tid that our own interrupt has stopped so
// that the program does not learn of it, and reports whether it did; the caller
// then writes the note back before Cont. With a seccomp filter, a call that
// would go on by restart_syscall is repeated instead: a filter may not know
// that call. Never use it at a signal's stop.
func Revert(tid int, note []byte, seccomp bool) bool {
	if len(note) != noteBytes64 {
		return false
	}
	call := binary.LittleEndian.Uint64(note[noteOrigRAX:])
	if int64(call) < 0 {
		return false // not in a system call
	}
	switch -int64(binary.LittleEndian.Uint64(note[noteRAX:])) {
	case eintr:
		if !revertible(call) {
			return false
		}
	case erestartRestartCall:
		if !seccomp {
			return false
		}
	default:
		return false
	}
	code := int64(-erestartNoHand)
	binary.LittleEndian.PutUint64(note[noteRAX:], uint64(code))
	return true
}
