// Package sampler coordinates: it knows the threads of the targets, says which may run, and leads what is
// taken of them to the outputs.
//
// The rooms: package clocks stops running threads, each from its own CPU; package taking copies registers
// and stack; package watch tells who may have run; package ledger keeps the account. Here are the coordinator (engine.go, tick.go, look.go), which stops nobody:
// it puts threads that may run on the clocks' board, reads blocked ones without a stop, finds births, ends and
// execs by looking (news.go), and makes the readings that watch is told (cputime.go); and the
// pipeline, which unwinds, names and hands samples to the outputs on goroutines of its own.
//
// What a running thread has on further stacks, behind a signal handler's, below Go's scheduler or in the segments
// of a split one, cannot be read when it has been let go. So a walk in want of it tells by which word it would have
// gone there (others.go), and the thread's next pauses copy what such words lead to.
//
// A tick of a thread: a clock meets it (taken), or the coordinator finds it blocked (look, peek), or it
// is accounted for later, when its times tell what it did (settle).
package sampler
