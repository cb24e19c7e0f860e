package ptrace

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Note types of PTRACE_GETREGSET (include/uapi/linux/elf.h).
const (
	NotePrstatus   = 1     // general registers
	NotePrfpreg    = 2     // floating-point registers
	NoteARMPACMask = 0x406 // arm64: pointer authentication masks, data then code
	NoteS390Call   = 0x307 // s390x: number of the current system call
)

// Options of Seize (ptrace(2), PTRACE_O_*). EXITKILL is left out on purpose: the
// end of the sampler must not harm the target.
const (
	OptFork  = unix.PTRACE_O_TRACEFORK
	OptVfork = unix.PTRACE_O_TRACEVFORK
	OptClone = unix.PTRACE_O_TRACECLONE
	OptExec  = unix.PTRACE_O_TRACEEXEC
	OptExit  = unix.PTRACE_O_TRACEEXIT
	// OptSysGood tells stops at system calls from SIGTRAP.
	OptSysGood = unix.PTRACE_O_TRACESYSGOOD
)

// request makes one ptrace call that cannot block.
func request(req, tid int, addr, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(req), uintptr(tid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Interrupt asks a seized thread to stop. The stop comes when the thread next
// passes through the kernel's signal check, which can be never. ESRCH: gone.
func Interrupt(tid int) error {
	return request(unix.PTRACE_INTERRUPT, tid, 0, 0)
}

// Cont lets a stopped tracee run and delivers signal sig to it (0: none).
func Cont(tid int, sig unix.Signal) error {
	return request(unix.PTRACE_CONT, tid, 0, uintptr(sig))
}

// Listen leaves a tracee in its group-stop: it stays stopped, but reports
// SIGCONT and further interrupts.
func Listen(tid int) error {
	return request(unix.PTRACE_LISTEN, tid, 0, 0)
}

// Detach ends the tracing of a stopped tracee and delivers sig to it.
func Detach(tid int, sig unix.Signal) error {
	return request(unix.PTRACE_DETACH, tid, 0, uintptr(sig))
}

// EventMsg is the message of the event that was reported of a tracee: the new
// thread's id (clone, fork, vfork), the former id of the caller (exec), the wait
// status (exit). ESRCH: it is not at that event any more. A thread that is killed
// leaves any stop, and its next may be that of its exit, whose message is another
// thing. Of an exec, whose report does not stay, that is not known.
func (s Status) EventMsg() (uint64, error) {
	var msg uint64
	err := request(unix.PTRACE_GETEVENTMSG, s.TID, 0, uintptr(unsafe.Pointer(&msg)))
	runtime.KeepAlive(&msg)
	if err == nil && s.Kind != KindExec && !s.stands() {
		err = unix.ESRCH
	}
	return msg, err
}

// ReadRegs copies the register note of a stopped tracee to buf and returns its
// length. A note that is longer than buf is cut.
func ReadRegs(tid, note int, buf []byte) (int, error) {
	iov := unix.Iovec{Base: unsafe.SliceData(buf)}
	iov.SetLen(len(buf))
	err := request(unix.PTRACE_GETREGSET, tid, uintptr(note), uintptr(unsafe.Pointer(&iov)))
	runtime.KeepAlive(buf)
	return int(iov.Len), err
}
