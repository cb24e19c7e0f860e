// Package sampler coordinates: it knows the threads of the targets, says which may run, and leads what is
// taken of them to the outputs.
//
// The parts: package clocks stops running threads, each from its own CPU, and those that the coordinator asks for; package taking copies registers
// and stack; package watch tells who may have run; package ledger keeps the account. Here are the coordinator, which stops nobody, and the
// pipeline, which unwinds, names and hands samples to the outputs on goroutines of its own; and dumps (dump.go), which stop each thread once.
//
// The coordinator (engine.go) says what is done at a tick in which order. Its parts own what they write, and say so at their types:
// roster and news know the threads, and find births, ends and execs by looking; listing puts those that may run on the clocks' board;
// harvest takes what clocks have taken; lookout reads blocked ones without a stop, and makes the readings that watch is told (cputime.go);
// accounts gives ticks to classes and CPU time to samples; outlet takes them to the pipeline, and never waits. The pipeline (pipeline.go)
// has targets, walks, a recorder and a sender in the same way.
//
// What a running thread has on further stacks, behind a signal handler's, below Go's scheduler or in the segments
// of a split one, cannot be read when it has been let go. So a walk in want of it tells by which word it would have
// gone there (others.go), and the thread's next pauses copy what such words lead to.
//
// A tick of a thread: a clock meets it (taken), or the coordinator finds it blocked (look, peek), or it
// is accounted for later, when its times tell what it did (settle).
//
// Of who is not known yet a clock may have the kernel's word alone. Each process has a slot on the board to spare (listing.spare): from
// there a clock samples one such thread, calls the coordinator, and that begins the thread with this sample (news.met).
package sampler
