package ptrace

import (
	_ "unsafe" // for go:linkname
)

// Pin keeps the calling goroutine on its thread, running, until [Unpin]: the
// garbage collector and the scheduler wait for it. A tracing thread that gives way
// while a thread is stopped gets on only when another thread of ours has run, which
// a busy machine may put off for tens of milliseconds, once for 457 ms.
//
// In between there must be no system call but those of this package that say so:
// others give the processor away, and the runtime may throw on their return.
func Pin() { procPin() }

// Unpin ends what [Pin] began.
func Unpin() { procUnpin() }

// The runtime keeps these two for other packages (runtime/proc.go).

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
