package watch

import "time"

// Thread is what is known of a thread's running. The zero value is awake.
type Thread struct {
	asleep bool
	count  uint64        // run count at the look that found it blocked, or when it was found at all
	run    time.Duration // run time then
	seen   int64         // tick of the last look
	since  int64         // tick of the first look that found this count
	next   int64         // tick of the next look
}

// Asleep tells whether it was blocked when it was last looked at.
func (t *Thread) Asleep() bool { return t.asleep }

// Count is its run count in the wait at hand, or the last one; 0: there was none.
func (t *Thread) Count() uint64 { return t.count }

// Same tells whether it has not run since it fell asleep, by its run count of now. 0 is no count: a thread that has waited
// has run, and a kernel without CONFIG_SCHED_INFO says 0 always.
func (t *Thread) Same(count uint64) bool { return t.asleep && count == t.count && count != 0 }

// Found notes the run count and time of a thread that is new, and did not run when both were read.
func (t *Thread) Found(count uint64, run time.Duration) { t.count, t.run = count, run }

// Still tells whether it has not run since it was found, by what it has now: then it was blocked all the time if it is now. A thread that
// ran, or got a CPU, meanwhile has another time or count.
func (t *Thread) Still(count uint64, run time.Duration) bool {
	return !t.asleep && count == t.count && run == t.run && count != 0
}

// Since is the tick at which it fell asleep, Waited for how many ticks it has been at tick n.
func (t *Thread) Since() int64         { return t.since }
func (t *Thread) Waited(n int64) int64 { return n - t.since }

// Sleeps begins a wait: at tick n it was found blocked, with this run count and time. Both have to be read before
// it was seen that it is blocked: later ones may be of a run that has not been seen.
func (t *Thread) Sleeps(p *Process, n int64, count uint64, run time.Duration) {
	t.Wakes(p)
	*t = Thread{asleep: true, count: count, run: run, seen: n, since: n, next: n + 1}
	p.asleep++
	p.rest += run
}

// Wakes ends a wait, if there is one.
func (t *Thread) Wakes(p *Process) {
	if !t.asleep {
		return
	}
	t.asleep = false
	p.asleep--
	p.rest -= t.run
	if t.seen < p.calm.from {
		p.known = false // it may have run before that reading
	}
}

// SleepsOn notes a look at tick n that found the same count. The next one is due after gap ticks.
func (t *Thread) SleepsOn(n, gap int64) { t.seen, t.next = n, n+gap }

// Ran ends a wait of a thread that was found at tick n to have run since it was last looked at; run is its run time
// of now. It returns the last tick up to which it had not run for certain, before n.
func (t *Thread) Ran(p *Process, n int64, run time.Duration) int64 {
	// A thread that runs shows it when the scheduler brings its time up to date, or it is put off its CPU. If
	// that has happened since the reading, its run time shows how long it may have been missing from it.
	sure, lag := p.sureOf(t), p.times.Lag
	if time.Duration(n-sure-1)*p.times.Interval >= lag { // a reading may be late, but comes before the next tick's
		lag = min(lag, run-t.run)
	}
	lag = max(lag-p.times.Slack(), 0)
	sure -= int64((lag + p.times.Interval - 1) / p.times.Interval)
	p.stirred = n
	t.Wakes(p)
	return min(max(sure, t.seen), n-1)
}

// RanFor is how long a thread has run since it was found blocked, or found at all, by its run time of now.
func (t *Thread) RanFor(run time.Duration) time.Duration { return run - t.run }

// Due tells whether a thread asleep is to be looked at at tick n, after the reading for [Process.Begin]. id
// is any number that other threads do not have.
func (t *Thread) Due(p *Process, id int, n int64) bool { return n >= t.next && !p.waits(t, id, n) }

// DueAgain tells whether one that was left out is to be looked at after the reading for [Process.Again].
func (t *Thread) DueAgain(p *Process, n int64) bool {
	return t.asleep && p.moved && t.seen < n && n >= t.next
}
