package taking

// takeExtra reads registers beyond the general ones where unwinding may ask for
// them: none here.
//
//go:nosplit
//go:norace
func takeExtra(Kernel, int, *Buffer) {}
