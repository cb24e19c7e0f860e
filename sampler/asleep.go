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
// (thread_group_cputime, kernel/sched/cputime.c), to the nanosecond. Those of
// threads that run need not be exact, only the same before and after the clock is
// read.
type asleep struct {
	moved   bool  // a blocked thread may have run since it was last looked at
	calm    calm  // in which none has
	was     calm  // the one before
	ran     int64 // last tick at which any thread may have run
	blocked int   // how many threads are blocked
	stirred int64 // last tick at which a blocked thread was found to have run

	known bool
	rest  time.Duration // what the sum must be
	cpu   time.Duration // the clock
	odd   int64         // first tick at which it was another; not after calm.to: it is right
	wrong int64         // last such tick
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
	// oddTicks is how long to look for the threads that explain another sum. By
	// then each has been looked at.
	oddTicks = crowdedGap + 1
)

// sureOf is the last tick of which it is known that thread t, which has been found
// to have run since its last look, had not yet.
func (a *asleep) sureOf(t *thread) int64 {
	switch {
	case t.seenAt > a.calm.from:
		return a.calm.to
	case t.seenAt > a.was.from:
		return a.was.to
	}
	return t.seenAt
}

// waits tells that thread t, which is blocked, is not looked at before the clock is
// read for the second time: the first has told that it has not run, or it has not
// for long.
func (a *asleep) waits(t *thread, n int64) bool {
	return t.seenAt > a.calm.from && (n-t.since >= finest || !a.moved && (a.reads || a.stirred < n-1))
}

// few tells that so few threads run that it pays to read their times.
func (a *asleep) few(threads int) bool { return (threads-a.blocked)*asleepPart <= a.blocked }

// begin decides at tick n whether to read the clock before threads are looked at:
// not if it would tell only that those have run which run all the time. Beside
// threads that run it is read as seldom as blocked ones are looked at.
func (a *asleep) begin(n int64, threads int) {
	running := threads > a.blocked
	if running {
		a.ran = n
	}
	a.reads = !running || !a.few(threads) || a.stirred < n-1 && a.due(n)
	a.sums = a.reads && running && a.few(threads)
	a.before, a.after = 0, 0
}

// again decides whether to read it after threads that have run of late were looked
// at.
func (a *asleep) again(n int64, threads int) {
	running, odd := threads > a.blocked, a.reads && a.moved
	a.reads = a.few(threads) && (odd || running && a.stirred >= n-1 && a.due(n))
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
		a.calm.to = n
		a.next = n + min(1+(n-a.wrong)/finest, maxGap)
		return
	}
	if a.odd <= a.calm.to {
		a.odd = n
	}
	if !a.known || n-a.odd >= oddTicks {
		a.known, a.rest, a.odd = true, rest, 0
		a.was, a.calm = a.calm, calm{n, n}
	}
	a.wrong, a.ran, a.next = n, n, n+1
}

// plain is reading where so many threads run that their times are not read: then
// the clock must stand. Threads are looked at after it.
func (a *asleep) plain(n int64, cpu time.Duration) {
	a.known = false
	if a.moved = cpu != a.cpu; a.moved {
		a.ran = n
		a.was, a.calm = a.calm, calm{n - 1, n - 1}
	} else {
		a.calm.to = n
	}
	a.cpu = cpu
}

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
		a.known = false // it may have run before the reading
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
		e.sumRunning(func(a *asleep) *time.Duration { return &a.before })
	}
	for _, p := range e.procs {
		if p.asleep.reads {
			p.readClock(n)
		}
	}
	if sums {
		e.sumRunning(func(a *asleep) *time.Duration { return &a.after })
	}
	for _, p := range e.procs {
		if a := &p.asleep; a.sums && a.before == a.after {
			a.reading(n, a.cpu, a.before)
		}
	}
}

// readClock reads the clock of a process for [engine.readClocks].
func (p *process) readClock(n int64) {
	a := &p.asleep
	cpu, ok := p.cpuTime()
	switch {
	case !ok: // going: the looks will tell
		a.moved, a.known, a.sums = true, false, false
	case !a.few(p.threads):
		a.plain(n, cpu)
	case a.sums:
		a.cpu = cpu
	default:
		a.reading(n, cpu, 0)
	}
}

// sumRunning adds up the run times of the threads that are not blocked where sum
// says, of the processes that are to have that done.
func (e *engine) sumRunning(sum func(*asleep) *time.Duration) {
	for _, t := range e.list {
		a := &t.proc.asleep
		if !a.sums || t.blocked {
			continue
		}
		s, err := t.schedstat(e.buf[:])
		if err != nil { // it has exited
			a.moved, a.known, a.sums = true, false, false
			continue
		}
		*sum(a) += s.Run
	}
}
