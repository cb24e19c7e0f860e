// Package goroutines reads the goroutines of a Go program out of its memory: their states, what they wait for, and
// where their stacks are, for those that no thread runs.
//
// [Open] finds out from the program's file where the runtime keeps its list of goroutines and how its structures are laid out:
// by the symbol table, or without one by the code of runtime.allgadd; by a table of the releases of Go that were looked at, or
// for others by debugging information. What it is not sure of is an error with the reason and what helps, not a guess.
// [Runtime.Read] then reads goroutines in batches. Nothing is stopped: a goroutine and its stack are taken
// only if what the runtime keeps of it was the same before and after the stack was read, with the count of how often it
// has run. Others are counted.
//
// All that is read belongs to the target and may be anything: counts are bounded before they are used, a goroutine must
// name itself in its own registers, its stack must hold its stack pointer, and no two may have one number.
//
// The package does not know processes, unwind or name functions: memory comes as a [Memory], stacks go out as copies. A
// Runtime does not change, and may be used by any goroutine.
//
// Sources: runtime/runtime2.go, runtime/proc.go, runtime/traceback.go, runtime/chan.go of Go 1.19 to 1.26.
package goroutines
