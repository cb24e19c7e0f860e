package sampler

import (
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// doze passes the ticks at which no process runs. To Go's runtime it is one long system call (see [ptrace.Outside]):
// each tick is one wake-up, where the runtime would make about eight of a timer, its monitor's among them.
type doze struct {
	start, interval int64 // ticks are due at start + n*interval, CLOCK_MONOTONIC nanoseconds
	tick, last      int64 // the tick that has passed; the one at which it ends in any case
	step            int64 // ticks from one look to the next: a clock costs the more to read, the more threads there are
	n               int   // clocks in use
	clocks          [maxDozing]int32
	stood           [maxDozing]int64
}

const (
	// maxDozing is how many processes are watched in this way.
	maxDozing = 64
	// longestDoze bounds for how long nobody else is heard.
	longestDoze = 200 * time.Millisecond
)

// Outside waits until a clock has moved, a process is gone, or the last tick has passed.
//
//go:nosplit
//go:norace
func (d *doze) Outside() {
	for d.tick < d.last {
		d.tick = min(d.tick+d.step, d.last)
		due := d.start + d.tick*d.interval
		for ptrace.RawNow() < due {
			ptrace.RawSleep(due)
		}
		for i := range d.n {
			if now, errno := ptrace.RawClock(d.clocks[i]); errno != 0 || now != d.stood[i] {
				return
			}
		}
	}
}

// nap waits for a moment, as doze does.
type nap struct{ until int64 }

// Outside waits until then.
//
//go:nosplit
//go:norace
func (x *nap) Outside() {
	for ptrace.RawNow() < x.until {
		ptrace.RawSleep(x.until)
	}
}

// prompt has the kernel wake the calling thread in time: the one that made it may be waked late.
func prompt() {
	const slack = 50_000 // nanoseconds, as processes have it from their beginning
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
}

// resting is how the coordinator waits while there is nothing to do.
type resting struct {
	doze doze
	nap  nap
}

// nap waits until a CLOCK_MONOTONIC time, without a timer of Go's runtime. false: nobody would be heard for too long.
func (e *engine) nap(until int64) bool {
	if e.news.keeping.on() || until-ptrace.Now() > int64(longestDoze) {
		return false
	}
	prompt()
	e.resting.nap.until = until
	ptrace.Outside(&e.resting.nap)
	return true
}

// doze waits while nothing runs, and sets which tick is due then; until then it is the next to be looked at.
func (e *engine) doze() {
	d := &e.resting.doze
	if len(e.roster.procs) == 0 || len(e.roster.procs) > maxDozing || e.news.keeping.on() || !e.out.empty() || e.listing.pending() || e.ticks.interval < leastTick {
		return
	}
	d.start, d.interval, d.n = e.ticks.start+min(e.ticks.interval/2, leastTick/2), e.ticks.interval, 0
	d.tick = e.acct.book.Tick()
	d.step = max(1, e.ticks.due-d.tick)
	d.last = min(d.tick+max(d.step, int64(longestDoze)/e.ticks.interval), (e.ticks.until-1-d.start)/e.ticks.interval)
	for _, p := range e.roster.procs {
		d.clocks[d.n], d.stood[d.n] = p.clock, int64(p.watch.Clock())
		d.n++
	}
	prompt()
	ptrace.Outside(d)
	e.ticks.due = d.tick
}
