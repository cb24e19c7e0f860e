package main

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
)

const (
	noteRegs   = 1     // NT_PRSTATUS
	noteFPRegs = 2     // NT_PRFPREG
	notePAC    = 0x406 // NT_ARM_PAC_MASK: masks of data and of code addresses
)

// tracee is a process that is stepped, and its registers at the last stop.
type tracee struct {
	pid  int
	user regs.User
}

var errExited = errors.New("the program has exited")

// runFor lets the program run freely, then stops it.
func (t *tracee) runFor(d time.Duration) error {
	if err := ptrace.Cont(t.pid, 0); err != nil {
		return err
	}
	// Sent to the process, it could stop another thread, which nobody lets go on.
	timer := time.AfterFunc(d, func() { unix.Tgkill(t.pid, t.pid, unix.SIGSTOP) })
	defer timer.Stop()
	for {
		sig, err := t.wait()
		if err != nil {
			return err
		}
		if sig == unix.SIGSTOP {
			return nil // not delivered: the next request carries no signal
		}
		if sig == unix.SIGTRAP {
			sig = 0
		}
		if err := ptrace.Cont(t.pid, sig); err != nil {
			return err
		}
	}
}

// stuck is how long a program may report nothing. In single steps one may wait for
// what it would have met at its own pace: it is ended then, and begun once more.
const stuck = time.Minute

// wait waits for the next stop and returns its signal.
func (t *tracee) wait() (unix.Signal, error) {
	limit := time.AfterFunc(stuck, func() { unix.Kill(t.pid, unix.SIGKILL) })
	defer limit.Stop()
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(t.pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if !ws.Stopped() {
			return 0, errExited
		}
		return unix.Signal(ws.StopSignal()), nil
	}
}

func (t *tracee) singleStep(sig unix.Signal) error {
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SINGLESTEP, uintptr(t.pid), 0, uintptr(sig), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (t *tracee) readRegs() error {
	var note [regs.PrstatusMaxBytes]byte
	n, err := ptrace.ReadRegs(t.pid, noteRegs, note[:])
	if err != nil {
		return err
	}
	if t.user, err = regs.Prstatus(runtime.GOARCH, note[:n]); err != nil {
		return err
	}
	if t.user.Arch == regs.S390X {
		var fp [136]byte
		if n, err := ptrace.ReadRegs(t.pid, noteFPRegs, fp[:]); err == nil {
			regs.S390XFPRegs(&t.user.Set, fp[:n])
		}
	}
	return nil
}

func (t *tracee) at() point {
	return point{t.user.Set.PC, t.user.Set.R[t.user.Arch.SP]}
}
