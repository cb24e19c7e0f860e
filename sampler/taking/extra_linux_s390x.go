package taking

import "sfsample/ptrace"

// takeExtra reads the floating-point registers, where functions park the return address.
//
//go:nosplit
//go:norace
func takeExtra(k Kernel, tid int, b *Buffer) {
	if n, errno := k.Regs(tid, ptrace.NotePrfpreg, b.FPRegs.Room); errno == 0 {
		b.FPRegs.N = n
	}
}
