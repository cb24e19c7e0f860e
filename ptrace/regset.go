package ptrace

import "time"

// A tracing thread looks at a register note for two things only, both in the
// pause: where the stack is, and whether the stop has cut a system call short.
// All else is decoded later, by package regs.

// Restart codes that the kernel leaves in the return register of a call that
// was interrupted (include/linux/errno.h), and EINTR, which the program sees.
const (
	eintr               = 4
	erestartNoHand      = 514 // the call is repeated unless a handler runs
	erestartRestartCall = 516 // the call goes on by restart_syscall
)

// timeLeft is what is left of a time limit in milliseconds after a wait of at least
// so long; negative is none.
//
//go:nosplit
//go:norace
func timeLeft(limit int32, waited time.Duration) int32 {
	if limit <= 0 {
		return limit
	}
	return int32(max(0, int64(limit)-max(0, int64(waited)/1e6)))
}
