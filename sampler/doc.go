// Package sampler is the clock, the choice of threads, the order of the steps,
// and the counters.
//
// One OS thread, the engine's, traces: at each tick it finds out which threads
// run, interrupts those together, copies registers and stack at each stop as it
// comes, and lets go. Copies travel as capture records to the pipeline, which
// unwinds, names and hands samples to the outputs on goroutines of its own.
// Nothing is decoded while a thread is stopped.
//
// Rules about ptrace stops come from ptrace(2) and from the kernel's
// kernel/signal.c; where a rule was found by experiment the code says what was
// seen.
package sampler
