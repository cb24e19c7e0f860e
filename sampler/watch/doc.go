// Package watch tells which threads may have run, and which have not, out of readings that others make: it
// makes no system call and knows no time but the numbers of ticks.
//
// A [Thread] is awake or asleep. Asleep it was found blocked, and the kernel's run count (how often it was put on
// a CPU, the third number of schedstat) was noted: as long as that count stands, it has not run. A look at each
// thread at each tick would cost too much, so that a [Process] tells by its CPU clock of all threads that are
// asleep at once, and a [Pace] how often to look all the same. n is the tick at hand:
//
//	thread   event                            then     the ticks up to n that it owes
//	awake    found to run                     awake    its clock or the account tells
//	awake    found blocked (Sleeps)           asleep   n was idle: it was blocked when it was looked at
//	asleep   left out (not Due)               asleep   stay owed, nothing is said of them
//	asleep   looked at, same count (Same)     asleep   idle: a count that stands was not put on a CPU in between
//	asleep   looked at or met, another count  awake    idle up to what Ran returns, unsure after that:
//	                                                   in these it may have run, and when is not known
//	any      exits (Wakes, then Forget)       -        what it has run for last is in no thread's time any more
//
// What the process's clock shows beyond the run times of the threads that are awake is the rest: the run time of
// those asleep as it was noted, of those that have exited, and of those that nobody samples. A calm is a time in
// which no thread asleep in it has run; Moved is that one may have.
//
//	rest     reading                          then     why
//	unknown  any sum                          known    a calm begins; who fell asleep before may have run before it
//	known    the same sum                     known    the calm goes on: the clock adds up the very counters
//	known    another sum                      odd      Moved: threads that are due are looked at, so that the one
//	                                                   that has run is found and leaves the rest
//	odd      the same sum                     known    it was found; nobody else has run, the calm goes on
//	odd      another sum, for oddTicks        known    nobody was found: the sum is taken for the rest, a new calm begins
//	any      torn: times of awake threads     as it was  the sum is of no instant; Moved, if that lasts
//	         changed while the clock was read
//	any      failed, or a thread has exited   unknown  the looks tell
//	any      too many threads are awake to    unknown  the clock itself must stand: a calm goes on while it does,
//	         read their times                          and begins before this tick's looks if it has not
//
// A thread of another calm than the one at hand is looked at, whatever the clock says. A thread that has begun to
// run shows that in the sums up to a scheduler's tick later, though not in its count: Ran leaves out so much.
//
// A Process and its Threads are used by one goroutine at a time.
//
// Sources: kernel/sched/cputime.c (thread_group_cputime), kernel/sched/stats.h (sched_info_arrive),
// fs/proc/base.c (proc_pid_schedstat).
package watch
