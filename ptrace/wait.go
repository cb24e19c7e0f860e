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
	// KindSignal: Status.Signal is about to be delivered. Answer: Cont with it, at
	// once: a signal taken here and not yet passed on is lost if we die.
	KindSignal
	// KindClone, KindFork, KindVfork: a thread or child was made; EventMsg has its id.
	KindClone
	KindFork
	KindVfork
	// KindVforkDone: the vfork child let its parent go on.
	KindVforkDone
	// KindExec: the program was replaced; reported under the leader's id, EventMsg
	// has the former id of the thread that called.
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
		s.Kind = KindSignal
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

// Poll returns a report of tid (or of any tracee of this thread, with tid -1)
// that is there already. ok is false when there is none. The error is ECHILD
// when there is nothing to wait for.
func Poll(tid int) (s Status, ok bool, err error) {
	var raw uint32
	n, _, errno := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(tid), uintptr(unsafe.Pointer(&raw)),
		unix.WALL|unix.WNOHANG|unix.WNOTHREAD, 0, 0, 0)
	switch {
	case errno == unix.EINTR || errno == 0 && n == 0:
		return Status{}, false, nil
	case errno != 0:
		return Status{}, false, errno
	}
	return decode(int(n), raw), true, nil
}

// Wait blocks until any tracee of this thread reports, or until a signal
// without SA_RESTART is handled by this thread (see [Alarm]): then ok is false.
// The error is ECHILD when there is nothing to wait for.
func Wait() (s Status, ok bool, err error) {
	var raw uint32
	n, _, errno := unix.Syscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&raw)),
		unix.WALL|unix.WNOTHREAD, 0, 0, 0)
	switch {
	case errno == unix.EINTR:
		return Status{}, false, nil
	case errno != 0:
		return Status{}, false, errno
	}
	return decode(int(n), raw), true, nil
}
