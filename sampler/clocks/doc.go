// Package clocks stops running threads at ticks, each from the CPU that it runs on.
//
// A [Clock] is a thread that is bound to one CPU and asleep on a timer. Its wake-up preempts whatever
// runs there, at any instruction alike; if that is a thread of the [Board], the clock seizes and
// interrupts it, takes a [Sample], detaches and sleeps on. A request from elsewhere would reach the thread
// some microseconds later, and favour the ends of system calls. So a thread is a tracee for one
// sample only, and a clock with a CPU stops no other thread than the one that it has preempted, as its witness tells, or the scheduler's times: [Sample.Moved] tells
// where that is not proven. One more, bound to no CPU, stops whom the coordinator asks for, from elsewhere ([Bank.Ask]). A kernel that does not preempt itself lets a thread block first that its wake-up meets in
// a call: that one is read asleep, without a stop ([Peeked.Asleep]). So is one that was woken in the midst of a wait, and none is stopped
// in the midst of a call that a stop would cut short ([InCall], with the list in read.go), if its stack in the kernel may be read, which tells. A clock without real-time priority need not preempt:
// when it comes late, it tries again a moment later, since what has let it in may favour the ends of calls, too.
//
// A thread goes on where it was: a clock that lets one go gives up its priority for that moment, and has it back from its raiser (raiser.go).
//
// Where ticks are rare a coordinator tells the board shortly before each what the CPU clocks of processes say ([Board.Tell]): of a group
// whose clock still says that at the tick nobody is looked at.
//
// An [Asker] asks one thread for its stop so, for who has no clocks.
//
// To Go's runtime a clock is one long system call (see [ptrace.Outside]): it waits for no processor and for no
// collection. It shares numbers and buffers with the coordinator, the one goroutine that uses [Bank]
// and [Board]: which clocks there are, which threads they find, what they have taken. A [Keeper] holds all
// threads, for the stacks at their exits, and makes the clocks' requests then.
//
// Nothing is decoded here and nothing is counted for the account: see packages unwind and
// sampler/ledger. What is copied, and what is written back, is for sampler/taking to say.
//
// Sources: ptrace(2), kernel/ptrace.c and kernel/signal.c for stops; kernel/sched for what schedstat, stat and
// sched show; perf_event_open(2) and kernel/events/core.c for the witness.
package clocks
