package ptrace

// A tracing thread looks at a register note for two things only, both in the
// pause: where the stack is, and whether the stop has cut a system call short.
// All else is decoded later, by package regs.

// Restart codes that the kernel leaves in the return register of a call that
// was interrupted (include/linux/errno.h), and what the program sees.
const (
	eintr               = 4
	efault              = 14
	erestartSys         = 512 // the first of those that decide on a restart
	erestartNoHand      = 514 // the call is repeated unless a handler runs
	erestartRestartCall = 516 // the call goes on by restart_syscall
)

// interrupted tells of what a system call returns at its end whether a signal has ended it: one of the kernel's own numbers
// (include/linux/errno.h), EINTR, or EFAULT for want of a place to write what is left of a sleep.
func interrupted(result int64) bool {
	return result == -eintr || result == -efault || -erestartRestartCall <= result && result <= -erestartSys
}
