package sampler

import (
	"time"

	"sfsample/ptrace/procfs"
)

// asleep tells of all blocked threads of a process at once whether one has run.
// What the process's CPU clock shows beyond the run times of the threads that are
// not blocked is the run time of those that are, of those that have exited and of
// those that are not ours to sample. Of a blocked thread it is known what it was
// when that was last looked at: as long as the sum is what it must be, no blocked
// thread has run. The clock adds up the very counters that schedstat files show
// (thread_group_cputime, kernel/sched/cputime.c), to the nanosecond; where the
// process has a timer on that clock it is a sum of its own, which only makes for
// readings that tell nothing. The counters of threads that run need not be exact,
// only the same before and after the clock is read. But one that has begun to run
// shows it up to a scheduler's tick later.
type asleep struct {
	moved   bool  // a blocked thread may have run since it was last looked at
	calm    calm  // in which none has
	was     calm  // the one before
	ran     int64 // last tick at which any thread may have run
	blocked int   // how many threads are blocked
	stirred int64 // last tick at which a blocked thread was found to have run

	cpu   time.Duration // the clock
	stood time.Duration // the clock at calm.to; -1: not known
	known bool          // rest is
	rest  time.Duration // what the sum must be
	odd   int64         // first of the last readings, if another sum; else at or before calm.to
	wrong int64         // last tick with another sum
	next  int64         // tick of the next reading

	// Of the reading at hand: whether there is one, with the run times of threads
	// that run, and their sum before and after the clock.
	reads, sums   bool
	before, after time.Duration
}

// calm is from after the reading of one tick to the reading of another.
type calm struct{ from, to int64 }

const (
	// asleepPart is for how many blocked threads one that runs may be read: its
	// schedstat is read twice, theirs is read once in maxGap ticks.
	asleepPart = maxGap
	// mostRead bounds these: one whose time changes while they are read makes the
	// reading void.
	mostRead = 32
	// oddTicks is how long to look for the threads that explain another sum: long
	// enough to look at each.
	oddTicks = crowdedGap + 1
	// anyhow is after how many ticks a thread is looked at whatever the clock says.
	anyhow = 1024
	// counterLag is how late a thread's run time may be while it runs: a tick of
	// the scheduler, with the lowest rate that kernels are built for (CONFIG_HZ).
	counterLag = 10 * time.Millisecond
)

// sureOf is the last tick of which the clock has told that thread t, which has been
// found to have run since its last look, had not yet. What it has run for since may
// have been missing from the clock.
func (a *asleep) sureOf(t *thread) int64 {
	switch {
	case t.seenAt > a.calm.from:
		return a.calm.to
	case t.seenAt > a.was.from:
		return a.was.to
	}
	return t.seenAt
}

// waits tells that thread t, which is blocked, is looked at only if a reading after
// this tells that some thread has run: it has not run for long, or it is known not
// to have.
func (a *asleep) waits(t *thread, n int64) bool {
	return t.seenAt > a.calm.from && n-t.seenAt < anyhow+int64(t.tid)%(anyhow/2) &&
		(n-t.since >= finest || !a.moved && (a.reads || a.quiet(n)))
}

// quiet tells that no blocked thread has been found to have run for long. If one
// has, those that have run of late are looked at directly: whoever runs for less
// than a scheduler's tick may be seen by nothing else.
func (a *asleep) quiet(n int64) bool { return n-a.stirred > finest }

// few tells that so few threads run that it pays to read their times.
func (a *asleep) few(threads int) bool {
	running := threads - a.blocked
	return running <= mostRead && running*asleepPart <= a.blocked
}

// begin decides at tick n whether to read the clock before threads are looked at:
// not if it would tell only that those have run which run all the time. Beside
// threads that run it is read as seldom as blocked ones are looked at.
func (a *asleep) begin(n int64, threads int) {
	running := threads > a.blocked
	if running {
		a.ran = n
	}
	a.reads = !running || !a.few(threads) || a.quiet(n) && a.due(n)
	a.sums = a.reads && running && a.few(threads)
	a.before, a.after = 0, 0
}

// again decides whether to read it after threads that have run of late were looked
// at.
func (a *asleep) again(n int64, threads int) {
	running, odd := threads > a.blocked, a.reads && a.moved
	a.reads = a.few(threads) && (odd || running && !a.quiet(n) && a.due(n))
	a.sums = a.reads && running
	a.before, a.after = 0, 0
}

func (a *asleep) due(n int64) bool { return n >= a.next || !a.known }

// reading takes note of what the clock showed at tick n, and of what the run times
// of the threads that are not blocked were then.
func (a *asleep) reading(n int64, cpu, running time.Duration) {
	a.cpu = cpu
	rest := cpu - running
	if a.moved = !a.known || rest != a.rest; !a.moved {
		a.calm.to, a.stood = n, cpu
		a.next = n + min(1+(n-a.wrong)/finest, maxGap)
		return
	}
	a.stood = -1
	if a.odd <= a.calm.to {
		a.odd = n
	}
	if !a.known || n-a.odd >= oddTicks {
		a.known, a.rest, a.odd = true, rest, 0
		a.was, a.calm, a.stood = a.calm, calm{n, n}, cpu
	}
	a.wrong, a.ran, a.next = n, n, n+1
}

// plain is reading where so many threads run that their times are not read: then
// the clock must stand. Threads are looked at after it.
func (a *asleep) plain(n int64, cpu time.Duration) {
	a.known = false
	if a.moved = cpu != a.stood; a.moved {
		a.ran = n
		a.was, a.calm = a.calm, calm{n - 1, n - 1}
	} else {
		a.calm.to = n
	}
	a.cpu, a.stood = cpu, cpu
}

// void is a reading that tells nothing. That must not last.
func (a *asleep) void(n int64) {
	if a.ran = n; n-a.calm.to >= maxGap {
		a.moved = true
	}
}

// failed is a reading that could not be made: the looks will tell.
func (a *asleep) failed(n int64) {
	a.moved, a.ran = true, n
	a.reads, a.sums = false, false
	a.forget()
}

// forget forgets what the sum must be.
func (a *asleep) forget() { a.known, a.stood = false, -1 }

// sleeps begins a wait of thread t, which was found blocked at tick n with these
// times.
func (t *thread) sleeps(n int64, s procfs.Schedstat) {
	t.blocked, t.count, t.idleRun = true, s.Count, s.Run
	t.seenAt, t.since, t.next = n, n, n+1
	a := &t.proc.asleep
	a.blocked++
	a.rest += s.Run
}

// wakes ends it.
func (t *thread) wakes() {
	if !t.blocked {
		return
	}
	t.blocked = false
	a := &t.proc.asleep
	a.blocked--
	a.rest -= t.idleRun
	if t.seenAt < a.calm.from {
		a.known = false // it may have run before that reading
	}
}

// readClocks reads the clocks of processes: at each tick once before threads were
// looked at, and once more. The counters of a thread that runs are late by up to a
// scheduler's tick: a blocked one that has begun to run is found out later by as
// much.
func (e *engine) readClocks(n int64, prepare func(*asleep, int64, int)) {
	sums := false
	for _, p := range e.procs {
		prepare(&p.asleep, n, p.threads)
		sums = sums || p.asleep.sums
	}
	if sums {
		e.sumRunning(n, func(a *asleep) *time.Duration { return &a.before })
	}
	for _, p := range e.procs {
		if p.asleep.reads {
			p.readClock(n)
		}
	}
	if sums {
		e.sumRunning(n, func(a *asleep) *time.Duration { return &a.after })
	}
	for _, p := range e.procs {
		p.asleep.end(n)
	}
}

// readClock reads the clock of a process for [engine.readClocks].
func (p *process) readClock(n int64) {
	a := &p.asleep
	cpu, ok := p.cpuTime()
	switch {
	case !ok:
		a.failed(n)
	case !a.few(p.threads):
		a.plain(n, cpu)
	case a.sums:
		a.cpu = cpu
	default:
		a.reading(n, cpu, 0)
	}
}

// end ends a reading that was made with the run times of threads.
func (a *asleep) end(n int64) {
	switch {
	case !a.sums:
	case a.before == a.after:
		a.reading(n, a.cpu, a.before)
	default:
		a.void(n)
	}
}

// sumRunning adds up the run times of the threads that are not blocked where sum
// says, of the processes that are to have that done.
func (e *engine) sumRunning(n int64, sum func(*asleep) *time.Duration) {
	for _, t := range e.list {
		a := &t.proc.asleep
		if !a.sums || t.blocked {
			continue
		}
		s, err := t.schedstat(e.buf[:])
		if err != nil { // it has exited
			a.failed(n)
			continue
		}
		*sum(a) += s.Run
	}
}
