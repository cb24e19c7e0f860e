package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offset of the stack pointer in NT_PRSTATUS (s390_regs, arch/s390/include/uapi/asm/ptrace.h: PSW, r0–r15, of which r15).
const (
	noteBytes = 216
	noteSP    = 136
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
func StackPointer(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.BigEndian.Uint64(note[noteSP:])
}

// Reverts: [Revert] can take back EINTR on this architecture.
const Reverts = true

// noteR2 is where a system call returns its result.
const noteR2 = 32

// revertible says of a system call that returns EINTR at a stop whether it may
// be repeated as if nothing had happened. Each was tried; the calls that are
// not here were not, or must not be: connect would answer EALREADY, and close
// could close somebody else's descriptor.
func revertible(call uint32) bool {
	switch call {
	case unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2,
		unix.SYS_SEMTIMEDOP, unix.SYS_RT_SIGTIMEDWAIT,
		unix.SYS_IO_GETEVENTS, unix.SYS_IO_URING_ENTER,
		unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_ACCEPT4,
		unix.SYS_SENDTO, unix.SYS_SENDMSG:
		return true
	}
	return false
}

// Revert changes the note of thread tid that our own interrupt has stopped so
// that the program does not learn of it, and reports whether it did; the caller
// then writes the note back before Cont. With a seccomp filter, a call that
// would go on by restart_syscall is repeated instead: a filter may not know
// that call. Never use it at a signal's stop.
//
// The kernel decides on the restart when the thread goes on, by r2 and by what
// NT_S390_SYSTEM_CALL says (arch/s390/kernel/signal.c,
// arch_do_signal_or_restart), of which the lower half is the call's number, 0
// outside of any.
func Revert(tid int, note []byte, seccomp bool) bool {
	if len(note) != noteBytes {
		return false
	}
	ret := int64(binary.BigEndian.Uint64(note[noteR2:]))
	if ret != -eintr && (ret != -erestartRestartCall || !seccomp) {
		return false
	}
	var call [4]byte
	if n, err := ReadRegs(tid, NoteS390Call, call[:]); err != nil || n != len(call) {
		return false
	}
	return revert(note, ret, binary.BigEndian.Uint32(call[:])&0xffff)
}

// revert is Revert for a known call.
func revert(note []byte, ret int64, call uint32) bool {
	if call == 0 || ret == -eintr && !revertible(call) {
		return false
	}
	code := int64(-erestartNoHand)
	binary.BigEndian.PutUint64(note[noteR2:], uint64(code))
	return true
}

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of. 32-bit programs are not sampled here.
func WordBytes(note []byte) int { return 8 }
