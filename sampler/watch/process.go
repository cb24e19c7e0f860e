package watch

import "time"

// Process tells of all threads of a process that are asleep at once whether one has run. The clock adds up the
// very counters that schedstat files show, to the nanosecond; where the process has a timer on that clock it is a
// sum of its own, which only makes for readings that tell nothing. The counters of threads that run need not
// be exact, only the same before and after the clock is read.
type Process struct {
	times   Timing
	moved   bool  // a thread asleep may have run since it was last looked at
	calm    calm  // in which none has
	was     calm  // the one before
	ran     int64 // last tick at which any thread may have run
	asleep  int   // how many threads are
	stirred int64 // last tick at which one asleep was found to have run

	clock time.Duration
	stood time.Duration // the clock at calm.to; -1: not known
	known bool          // rest is
	rest  time.Duration // what the sum must be
	odd   int64         // first of the last readings, if another sum; else at or before calm.to
	wrong int64         // last tick with another sum
	next  int64         // tick of the next reading
	need  Need          // of the reading at hand
}

// calm is from after the reading of one tick to the reading of another.
type calm struct{ from, to int64 }

// Need is what is to be read of a process at a tick.
type Need uint8

const (
	Nothing Need = iota
	Clock        // the clock: no thread is awake
	Stand        // the clock: so many threads are awake that it can only stand or move
	Times        // the clock, and the run times of all threads awake before and after it
)

// Reading is what was read.
type Reading struct {
	Clock         time.Duration // CPU time of the process
	Before, After time.Duration // sums of the run times of threads awake, for Times
}

const (
	// awakePart is for how many threads asleep one awake may be read: its
	// schedstat is read twice, theirs is read once in maxGap ticks.
	awakePart = maxGap
	// mostRead bounds these: one whose time changes while they are read tears the
	// reading.
	mostRead = 32
	// oddTicks is how long to look for the threads that explain another sum: long
	// enough to look at each.
	oddTicks = crowdedGap + 1
	// anyhow is after how many ticks a thread is looked at whatever the clock says.
	anyhow = 1024
)

// Timing is what is known of times.
type Timing struct {
	Interval time.Duration // of ticks
	// Lag is how late a thread's run time may be while it runs: a tick of the scheduler. (CPUs without ticks, by the
	// boot parameter nohz_full, bring it up to date once a second only.)
	Lag time.Duration
}

// Slack is how long after the instant of a tick its readings are made, at least.
func (t Timing) Slack() time.Duration { return min(t.Interval/4, time.Millisecond/2) }

// NewProcess begins to watch a process at tick n, at which its clock shows this. Nothing is known then.
func NewProcess(n int64, times Timing, clock time.Duration) Process {
	return Process{times: times, clock: clock, stood: -1, stirred: n - finest - 1}
}

// Moved tells whether a thread asleep may have run since it was last looked at.
func (p *Process) Moved() bool { return p.moved && p.asleep > 0 }

// Ran is the last tick at which any thread may have run.
func (p *Process) Ran() int64 { return p.ran }

// Clock is what the clock has shown last.
func (p *Process) Clock() time.Duration { return p.clock }

// SetClock notes what the clock shows apart from readings.
func (p *Process) SetClock(clock time.Duration) { p.clock = clock }

// sureOf is the last tick of which the clock has told that thread t, which has been
// found to have run since its last look, had not yet.
func (p *Process) sureOf(t *Thread) int64 {
	switch {
	case t.seen > p.calm.from:
		return p.calm.to
	case t.seen > p.was.from:
		return p.was.to
	}
	return t.seen
}

// waits tells that thread t, which is asleep, is looked at only if a reading after
// this tells that some thread has run: it has not run for long, or it is known not
// to have.
func (p *Process) waits(t *Thread, id int, n int64) bool {
	return t.seen > p.calm.from && n-t.seen < anyhow+int64(id)%(anyhow/2) &&
		(n-t.since >= finest || !p.moved && (p.need != Nothing || p.quiet(n)))
}

// quiet tells that no thread asleep has been found to have run for long. If one
// has, those that have run of late are looked at directly: whoever runs for less
// than a scheduler's tick may be seen by nothing else.
func (p *Process) quiet(n int64) bool { return n-p.stirred > finest }

// few tells that so few threads are awake that it pays to read their times.
func (p *Process) few(threads int) bool {
	awake := threads - p.asleep
	return awake <= mostRead && awake*awakePart <= p.asleep
}

// Begin tells what to read at tick n before threads are looked at. That is nothing
// if it would tell only that those have run which run all the time. Beside
// threads that run the clock is read as seldom as threads asleep are looked at.
func (p *Process) Begin(n int64, threads int) Need {
	awake := threads > p.asleep
	if awake {
		p.ran = n
	}
	switch {
	case !awake:
		p.need = Clock
	case !p.few(threads):
		p.need = Stand
	case p.quiet(n) && p.due(n):
		p.need = Times
	default:
		p.need = Nothing
	}
	return p.need
}

// Again tells what to read after threads that have run of late were looked at.
func (p *Process) Again(n int64, threads int) Need {
	awake, odd := threads > p.asleep, p.need != Nothing && p.moved
	switch {
	case !p.few(threads) || !odd && (!awake || p.quiet(n) || !p.due(n)):
		p.need = Nothing
	case awake:
		p.need = Times
	default:
		p.need = Clock
	}
	return p.need
}

func (p *Process) due(n int64) bool { return n >= p.next || !p.known }

// Read takes note of what was read at tick n, as Begin or Again had it.
func (p *Process) Read(n int64, r Reading) {
	switch {
	case p.need == Nothing:
		return
	case p.need == Stand:
		p.stands(n, r.Clock)
	case r.Before == r.After:
		p.sum(n, r.Clock, r.Clock-r.Before)
	default: // torn
		if p.ran = n; n-p.calm.to >= maxGap {
			p.moved = true
		}
	}
	p.clock = r.Clock
}

// sum takes note of what the clock shows beyond the threads awake.
func (p *Process) sum(n int64, clock, rest time.Duration) {
	if p.moved = !p.known || rest != p.rest; !p.moved {
		p.calm.to, p.stood = n, clock
		p.next = n + min(1+(n-p.wrong)/finest, maxGap)
		return
	}
	if p.odd <= p.calm.to {
		p.odd = n
	}
	if !p.known || n-p.odd >= oddTicks {
		p.known, p.rest = true, rest
		p.was, p.calm, p.stood = p.calm, calm{n, n}, clock
	}
	p.wrong, p.ran, p.next = n, n, n+1
}

// stands takes note of whether the clock stands. Threads are looked at after it.
func (p *Process) stands(n int64, clock time.Duration) {
	p.known = false
	if p.moved = clock != p.stood; p.moved {
		p.ran, p.stood = n, clock
		p.was, p.calm = p.calm, calm{n - 1, n - 1}
	} else {
		p.calm.to = n
	}
}

// Failed is a reading that could not be made at tick n: the looks will tell.
func (p *Process) Failed(n int64) {
	p.moved, p.ran, p.need = true, n, Nothing
	p.Forget()
}

// Forget forgets what the sum must be.
func (p *Process) Forget() { p.known, p.stood = false, -1 }
