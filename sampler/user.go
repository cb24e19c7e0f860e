package sampler

import (
	"fmt"

	"golang.org/x/sys/unix"

	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/syscalls"
)

// user is the user-mode state of a capture.
func (t *target) user(host string, c *capture.Capture) (regs.User, error) {
	if c.Taken != capture.Unstopped {
		u, err := regs.Prstatus(host, c.Regs.Note)
		if err == nil && len(c.Regs.FP) > 0 {
			regs.S390XFPRegs(&u.Set, c.Regs.FP)
		}
		if err == nil && u.Syscall >= 0 && isRestart(u.Ret) {
			c.Blocked, c.Regs.Call.NR = true, u.Syscall
		}
		return u, err
	}
	u := publishedRegs(t.arch(host), &c.Regs.Call)
	u.Limit = t.limit
	return u, nil
}

// arch is the architecture of the process's program, for captures that do not
// tell it.
func (t *target) arch(host string) *regs.Arch {
	if t.space != nil {
		if len(t.space.Mappings()) == 0 {
			_ = t.space.Refresh() // else it has no modules
		}
		for _, m := range t.space.Modules() {
			if m.Arch != nil {
				return m.Arch
			}
		}
	}
	return regs.ByName(host)
}

// isRestart tells whether a return register holds a code by which the kernel
// repeats an interrupted call (include/linux/errno.h), or EINTR.
func isRestart(v int64) bool { return v <= -512 && v >= -516 || v == -int64(unix.EINTR) }

// publishedRegs are the registers that /proc/PID/task/TID/syscall shows: SP, PC,
// and in a system call those that its arguments came in.
func publishedRegs(a *regs.Arch, c *capture.Call) regs.User {
	u := regs.User{Arch: a, Syscall: c.NR}
	u.Set.PC = c.PC
	u.Set.SetReg(a.SP, c.SP)
	if c.NR >= 0 {
		for i, n := range a.CallArgs {
			u.Set.SetReg(n, c.Args[i])
		}
	}
	return u
}

// callName is the state of a blocked thread: its system call by name.
func callName(a *regs.Arch, nr int64) string {
	if nr < 0 {
		return "blocked"
	}
	if a != nil {
		if name, ok := syscalls.Name(a.Name, nr); ok {
			return name
		}
	}
	return fmt.Sprintf("syscall %d", nr)
}
