package ptrace

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is what a wait status says of a seized tracee.
type Kind uint8

const (
	// KindInterrupt: PTRACE_EVENT_STOP with SIGTRAP: our interrupt, a new
	// thread's first stop, or the end of a group-stop. Answer: Cont with 0.
	KindInterrupt Kind = iota
	// KindGroupStop: the process was stopped by a stopping signal. Answer: Listen.
	KindGroupStop
	// KindSignal: Status.Signal is about to be delivered. Answer: Cont with it.
	KindSignal
	// KindSyscall: the beginning or the end of a system call, after [RawCont] with ToCall. Answer: Cont with 0.
	KindSyscall
	// KindClone, KindFork, KindVfork: a thread or child was made; Status.EventMsg
	// has its id.
	KindClone
	KindFork
	KindVfork
	// KindVforkDone: the vfork child let its parent go on.
	KindVforkDone
	// KindExec: the program was replaced; reported under the leader's id.
	KindExec
	// KindExit: the thread is about to exit; registers and memory are intact.
	KindExit
	// KindGone: the thread has exited or was killed, and is reaped.
	KindGone
	// KindOther: an event that no option of ours asks for. Answer: Cont with 0.
	KindOther
)

// Status is one report of a tracee.
type Status struct {
	TID    int
	Kind   Kind
	Signal unix.Signal // KindSignal, KindGroupStop
	Raw    uint32      // the wait status
}

const sysGood = 0x80 // with OptSysGood, ptrace(2)

const eventStop = 128 // PTRACE_EVENT_STOP, include/uapi/linux/ptrace.h

// decode follows ptrace(2), "Stopped states".
func decode(tid int, raw uint32) Status {
	s := Status{TID: tid, Raw: raw}
	ws := unix.WaitStatus(raw)
	if !ws.Stopped() {
		s.Kind = KindGone
		return s
	}
	s.Signal = unix.Signal(raw >> 8 & 0xff)
	switch raw >> 16 {
	case 0:
		if s.Kind = KindSignal; s.Signal == unix.SIGTRAP|sysGood {
			s.Kind = KindSyscall
		}
	case eventStop:
		s.Kind = KindGroupStop
		if s.Signal == unix.SIGTRAP {
			s.Kind = KindInterrupt
		}
	case unix.PTRACE_EVENT_CLONE:
		s.Kind = KindClone
	case unix.PTRACE_EVENT_FORK:
		s.Kind = KindFork
	case unix.PTRACE_EVENT_VFORK:
		s.Kind = KindVfork
	case unix.PTRACE_EVENT_VFORK_DONE:
		s.Kind = KindVforkDone
	case unix.PTRACE_EVENT_EXEC:
		s.Kind = KindExec
	case unix.PTRACE_EVENT_EXIT:
		s.Kind = KindExit
	default:
		s.Kind = KindOther
	}
	return s
}

// A report is looked at with waitid(2) and WNOWAIT, which leaves it with the
// kernel: if we are killed before we have passed a signal on, the thread still
// has it and goes on with it. wait4(2) would take the signal out of the thread
// (wait_task_stopped, kernel/exit.c: it clears exit_code), and with our end it
// would be lost. The answer, PTRACE_CONT or PTRACE_LISTEN, ends the report.

// siginfo is siginfo_t as waitid fills it in (include/uapi/asm-generic/siginfo.h,
// _sigchld).
type siginfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [100]byte
}

// Values of si_code for SIGCHLD (include/uapi/asm-generic/siginfo.h).
const (
	cldTrapped = 4 // CLD_TRAPPED
	cldStopped = 5 // CLD_STOPPED
)

// Kinds of ids that waitid takes (include/uapi/linux/wait.h).
const (
	pAll = 0 // P_ALL
	pPID = 1 // P_PID
)

// Without WEXITED waitid refuses; stops of tracees are reported in any case
// (wait_task_stopped, kernel/exit.c).
const lookFlags = unix.WEXITED | unix.WNOWAIT | unix.WALL | unix.WNOTHREAD

// stopped is wait4's form of a stop.
func (i *siginfo) stopped() uint32 { return uint32(i.status)<<8 | 0x7f }

// report turns what waitid has shown into a Status. The end of a thread is taken
// from the kernel, so that the thread is reaped. So is an exec: until then the
// kernel refuses requests under the leader's id, as if it were still another's
// (looks_like_a_spurious_pid, kernel/ptrace.c).
func (i *siginfo) report() (s Status, ok bool, err error) {
	if i.pid == 0 {
		return Status{}, false, nil
	}
	tid := int(i.pid)
	raw := i.stopped()
	if i.code == cldTrapped && raw>>16 != unix.PTRACE_EVENT_EXEC {
		return decode(tid, raw), true, nil
	}
	s, ok = take(tid, unix.WALL|unix.WNOHANG|unix.WNOTHREAD)
	return s, ok, nil
}

// take takes what is there to report of tid from the kernel. false: that has
// changed meanwhile; the next look shows how.
func take(tid int, flags uintptr) (s Status, ok bool) {
	var raw uint32
	n, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(tid), uintptr(unsafe.Pointer(&raw)), flags, 0, 0, 0)
	if errno != 0 || n == 0 {
		return Status{}, false
	}
	keepEnd(tid, raw)
	return decode(tid, raw), true
}

// stands tells whether the tracee is still at the stop that s tells of.
func (s Status) stands() bool { return stop(s.TID) == s.Raw }

// AtExit tells whether tid is at the stop before its exit (KindExit), whatever was
// reported of it last: a thread that is killed leaves any other stop for that one.
func AtExit(tid int) bool { return stop(tid)>>16 == unix.PTRACE_EVENT_EXIT }

// stop is wait4's form of the stop that tid is at, 0 if it is at none. The report
// stays with the kernel, and so does that of an end.
func stop(tid int) uint32 {
	var info siginfo
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, pPID, uintptr(tid), uintptr(unsafe.Pointer(&info)),
		unix.WSTOPPED|unix.WNOWAIT|unix.WALL|unix.WNOTHREAD|unix.WNOHANG, 0, 0)
	if errno != 0 || info.pid == 0 {
		return 0
	}
	return info.stopped()
}

// Wait blocks until any tracee of this thread reports, or until a signal
// without SA_RESTART is handled by this thread (see [Alarm]): then ok is false.
// The error is ECHILD when there is nothing to wait for. A stop is reported
// again and again until it is answered.
func Wait() (s Status, ok bool, err error) {
	var info siginfo
	_, _, errno := unix.Syscall6(unix.SYS_WAITID, pAll, 0, uintptr(unsafe.Pointer(&info)), lookFlags, 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return Status{}, false, errno
	}
	return info.report()
}
