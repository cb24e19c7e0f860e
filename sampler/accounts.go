package sampler

import (
	"time"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
)

// accounts gives what threads owe to classes and their CPU time to samples, by what was seen of them: each tick is weighed
// once, and of a process's CPU time what no sample stands for is sent as such.
type accounts struct {
	opt    *Options
	ticks  *ticks
	out    *outlet
	files  *files
	roster *roster
	book   *ledger.Book
	load   *load
	bank   *clocks.Bank
	unseen time.Duration // CPU time of children that ended before they were seen
	apart  int64         // how far apart looks at a thread may be that waits for a CPU, in nanoseconds
}

// chargeRest reports the CPU time of a process that no sample stands for: that
// of threads that were never caught running, of each one since its last
// sample, and of children that nobody has seen.
func (ac *accounts) chargeRest(p *process) {
	if ac.opt.WallWeight {
		return
	}
	rest := p.watch.Clock() - p.cpu.base - p.cpu.charged
	if p.only {
		rest = 0
	}
	for _, t := range ac.roster.list {
		if t.proc != p {
			continue
		}
		s, err := ac.files.schedstat(t)
		if err != nil {
			continue // it has ended: its time is in the process's
		}
		own := s.Run - t.line.Run()
		if p.only {
			rest += own
		}
		if own = min(own, rest); own > 0 && (t.shown || own >= time.Duration(ac.ticks.interval)) { // else it is not worth a row
			rest -= own
			ac.out.send(item{spent: &capture.Spent{PID: p.pid, TID: t.tid, Weight: capture.Weight{CPU: own}}})
		}
	}
	if ac.opt.Follow.Children && !p.only {
		ac.readChildren(p)
		unseen := p.unseen()
		p.children.told += unseen
		ac.unseen += unseen
		rest = max(rest, 0) + unseen
	}
	if rest > 0 {
		ac.out.send(item{spent: &capture.Spent{PID: p.pid, Weight: capture.Weight{CPU: rest}}})
	}
}

// unmet is the class of ticks at which a thread was not blocked when it was looked at, and no
// clock has met it.
func (ac *accounts) unmet(t *thread) ledger.Class {
	switch {
	case ac.opt.Stop == StopNever:
		return ledger.Untraced
	case t.queue.homeless > 0 || t.slot < 0:
		return ledger.Unmet
	case ac.load.own.stride > 1:
		return ledger.Throttled
	case ac.opt.All:
		return ledger.Unsure
	}
	return ledger.Idle // a clock was there, and the thread was not on its CPU
}

// credit gives the last stack of a thread the weight of some ticks more, in which it has not run or,
// if it waited, had no CPU.
func (ac *accounts) credit(t *thread, ticks int64, waited bool) {
	if ticks == 0 {
		return
	}
	c := &capture.Credit{PID: t.proc.pid, TID: t.tid, At: ac.ticks.at(ptrace.Now()), Waited: waited}
	c.Wall = ac.ticks.wall(ticks)
	ac.out.send(item{credit: c})
}

// creditWaits shows the ticks in which a thread waited for a CPU on the stack that it had when it got one.
func (ac *accounts) creditWaits(t *thread) {
	if ac.opt.All {
		ac.credit(t, t.queue.waits, true)
	}
	t.queue.waits = 0
}

// emit weighs a capture that was made at the CLOCK_MONOTONIC time now, and sends it to the pipeline.
func (ac *accounts) emit(t *thread, n int64, c *capture.Capture, run time.Duration, now int64) {
	ac.emitWith(t, n, c, run, now, readEarly(t))
}

// emitWith is emit with what was read early.
func (ac *accounts) emitWith(t *thread, n int64, c *capture.Capture, run time.Duration, now int64, early *early) {
	c.PID, c.TID, c.Tick, c.Regs.PACMask = t.proc.pid, t.tid, n, t.proc.pac
	c.At = ac.ticks.at(now)
	c.Weight.CPU = t.line.Charge(run) + t.proc.cpu.stands
	t.proc.cpu.charged += c.Weight.CPU
	t.proc.cpu.ahead += t.proc.cpu.stands
	t.proc.cpu.stands = 0
	c.Weight.Wall = time.Duration(ac.ticks.interval)
	t.shown = true
	ac.out.send(item{capture: c, fb: t.fb, early: early, program: t.proc.program})
	ac.creditWaits(t)
}

// balance accounts for blocked threads that have not run up to now, and for the CPU time that no sample will stand
// for: that of threads that have ended, or were never met.
func (ac *accounts) balance() {
	n := ac.book.Tick()
	pending := map[*process]time.Duration{} // CPU time for which samples of living threads will stand
	for _, t := range ac.roster.list {
		s, err := ac.files.schedstat(t)
		if err != nil {
			continue // its end is found out at the next look
		}
		if t.watch.Same(s.Count) {
			ac.creditIdle(t, ac.settled(t, n))
		}
		pending[t.proc] += s.Run - t.line.Run()
	}
	if ac.opt.WallWeight {
		return
	}
	for _, p := range ac.roster.procs {
		p.cpu.ahead = 0
		cpu, ok := p.cpuTime()
		spent := cpu - p.cpu.base - p.cpu.charged - pending[p]
		if !ok || p.only || spent < time.Duration(ac.ticks.interval) {
			continue
		}
		s := &capture.Spent{PID: p.pid}
		s.CPU = spent
		p.cpu.charged += s.CPU
		p.cpu.ahead = s.CPU
		ac.out.send(item{spent: s})
	}
}

// settled is the last tick up to n whose clocks can have nothing more to tell of a thread.
func (ac *accounts) settled(t *thread, n int64) int64 {
	if t.slot >= 0 {
		return n - 1
	}
	return n
}

// unsure ends the wait of a thread that was found at tick n to have run at some time since its last look, and accounts
// for the ticks before. run is its run time of now.
func (ac *accounts) unsure(t *thread, n int64, run time.Duration) {
	ran := max(t.watch.RanFor(run), 0)
	sure := t.watch.Ran(&t.proc.watch, n, run)
	if ac.book.Owed(&t.line, sure) > 0 {
		ac.creditIdle(t, sure)
	}
	class := ledger.Unsure
	switch {
	case t.slot >= 0 && ac.load.both == clocks.Every && ac.bank.Everywhere(cpus(), sure): // there was a clock wherever it has run
		class = ac.unmet(t)
	case !ac.opt.All:
		ac.ran(t, n-1, ran, ledger.Unsure)
		class = ledger.Idle
	}
	t.queue.counted = run
	ac.book.Give(&t.line, n-1, class)
}

// ran accounts for ticks that a thread owes up to tick n, as it has run since its run time was last known, and had no stack: for as many as that time stands for in the long run.
// Those that were left out are such, others c.
func (ac *accounts) ran(t *thread, n int64, ran time.Duration, c ledger.Class) {
	owed := ac.book.Owed(&t.line, n)
	t.queue.doubt += ran
	k := min(max(int64(t.queue.doubt)/ac.ticks.interval, 0), owed)
	t.queue.bound(t.queue.doubt-time.Duration(k*ac.ticks.interval), time.Duration(ac.ticks.interval))
	left := int64(0)
	for i := max(n-owed+1, n-maxStride); i <= n && left < k; i++ {
		if !ac.load.both.Answers(i) {
			left++
		}
	}
	ac.book.GiveSome(&t.line, left, ledger.Throttled)
	ac.book.GiveSome(&t.line, k-left, c)
}

// creditIdle accounts for the ticks up to n of a thread that has not run in
// all of them.
func (ac *accounts) creditIdle(t *thread, n int64) {
	if late := t.late; late > 0 && n > t.watch.Since() {
		t.late = 0
		ac.creditIdle(t, t.watch.Since())
		ac.book.Give(&t.line, min(late, n), ledger.Unsure)
		if late > n {
			t.late = late
		}
	}
	switch {
	case !t.stack:
		ac.book.Give(&t.line, n, ledger.Idle)
		return
	case ac.out.behind():
		ac.book.Give(&t.line, n, ledger.NoRoom)
		return
	}
	ac.credit(t, ac.book.Give(&t.line, n, ledger.Reused), false)
}

// settle accounts for the ticks that a thread on the board owes up to tick n, in which no clock has met it:
// those that it waited for a CPU, as far as the kernel's count of that goes, and others.
func (ac *accounts) settle(t *thread, n int64, waited time.Duration, c ledger.Class) {
	ac.settleWaits(t, n, waited)
	ac.book.Give(&t.line, n, c)
}

func (ac *accounts) settleWaits(t *thread, n int64, waited time.Duration) {
	if w := int64(waited - t.queue.waited); w > 0 && !t.watch.Asleep() {
		least := int64(0)
		if w >= t.queue.runnable*ac.ticks.interval/2 {
			least = t.queue.runnable
		}
		w += t.queue.carry
		given, half := ac.wait(t, n, w, least), ac.ticks.interval/2
		t.queue.carry = min(max(w-given*ac.ticks.interval, -half), half)
	}
	t.queue.waited, t.queue.runnable = waited, 0
}

// wait accounts for ticks that a thread owes up to tick n, in which it waited for a CPU for w nanoseconds, and returns how many that are.
func (ac *accounts) wait(t *thread, n, w, least int64) int64 {
	k := max((w+ac.ticks.interval/2)/ac.ticks.interval, least)
	given := ac.book.GiveSome(&t.line, min(k, ac.book.Owed(&t.line, n)), ledger.Waiting)
	t.queue.waits += given
	return given
}

// waitsOn goes on with the wait of a thread for a CPU whose clock meets it there: the longer that is, the later the next look.
func (ac *accounts) waitsOn(t *thread, n int64) {
	waited := int64(1)
	if f := &t.queue.found; f.seen > 0 {
		waited = n - f.seen
	}
	t.queue.runnable, t.queue.found.seen = t.queue.runnable+waited, n
	if ac.opt.All || ac.opt.Stop == StopAlways {
		return
	}
	t.queue.due = n + max(1, min(1+t.queue.runnable/4, ac.apart/ac.ticks.interval))
}

// pace finds out at tick n how far apart looks at threads may be that wait for a CPU.
func (ac *accounts) pace(n int64) {
	if ac.apart = shortQueue; ac.bank.Everywhere(cpus(), n) {
		ac.apart = longestQueue
	}
}

// longestQueue bounds how far apart looks at a thread are that waits for a CPU whose clock meets it there, in nanoseconds; shortQueue where it may go to a CPU
// that has none.
const longestQueue, shortQueue = int64(16 * time.Millisecond), int64(4 * time.Millisecond)

// settleBy is settle by the thread's times, which are exact when a clock meets it, or it is blocked. Unless it sleeps in step with the ticks, it was
// idle at no more than about twice as many as it has slept for: at the others it ran, and each clock came too late to tell, or the thread had gone on
// on another CPU.
func (ac *accounts) settleBy(t *thread, n int64, now times) {
	ac.settleWaits(t, n, now.wait)
	c := ac.unmet(t)
	switch let := t.queue.let; {
	case c != ledger.Idle || let.at == 0:
	case ac.load.both > clocks.Every: // at most ticks no clock has looked
		ac.ran(t, n, now.ran-max(t.queue.counted, let.ran), ledger.Unmet)
	default:
		idle := (2*max(int64(let.slept(now)-switching), 0) + ac.ticks.interval - 1) / ac.ticks.interval
		ac.book.GiveSome(&t.line, min(idle, ac.book.Owed(&t.line, n)), ledger.Idle)
		c = ledger.Unmet
	}
	ac.book.Give(&t.line, n, c)
	t.queue.counted, t.queue.let = now.ran, now
}

// untold is for how long at most a thread has run of which its run time does not tell yet: the kernel brings that up to date at its own ticks
// (CONFIG_HZ is 100 or more).
const untold = 10 * time.Millisecond

// switching is allowed for the kernel's way from one thread to another, there and back, which is in nobody's times.
const switching = 10 * time.Microsecond

// finish accounts for what is still owed when a run ends while its targets
// live.
func (ac *accounts) finish() {
	n := ac.book.Tick()
	for _, t := range ac.roster.list {
		s, err := ac.files.schedstat(t)
		switch {
		case err != nil:
			ac.book.Give(&t.line, n, ledger.Exited)
		case t.watch.Same(s.Count):
			ac.creditIdle(t, n)
		case t.watch.Asleep():
			ac.unsure(t, n+1, s.Run)
		default:
			ac.settleBy(t, n, timesOf(s))
		}
		ac.creditWaits(t)
	}
	for _, p := range ac.roster.procs {
		p.readCPU()
		ac.chargeRest(p)
	}
}
