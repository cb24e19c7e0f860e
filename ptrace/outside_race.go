//go:build race

package ptrace

import "runtime"

// The race detector's atomics need a processor and may grow the stack. So in its builds nobody is outside: a clock keeps
// the processor that it has, of which there are enough, and never waits for long, since the collector of garbage waits for it.

const (
	inside    = true
	shortWait = 200_000 // nanoseconds
)

func init() { runtime.GOMAXPROCS(64) }

func leave() {}

func enter() {}
