package sampler

import (
	"os"
	"slices"
	"time"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
	"sfsample/sampler/watch"
)

// loop coordinates until the time is over, nobody is left, or stop is closed.
func (e *engine) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(e.procs) > 0 || e.opt.Joins != nil {
		if len(e.procs) == 0 && !e.awaitJoin(timer) {
			break
		}
		now := ptrace.Now()
		if now >= e.ticks.until {
			break
		}
		if now >= e.ticks.dueAt(e.bank.Last) {
			quiet := e.onTick(now)
			e.pulse.rests()
			if quiet && e.book.Tick()-e.still() > boardTicks {
				timer.Stop() // it would wake the runtime
				e.doze()
			}
			now = ptrace.Now()
		}
		next, passed := min(e.ticks.dueAt(e.bank.Last), e.ticks.until), timer.C
		e.pulse.rests()
		if e.nap(next) {
			passed = over
		} else {
			timer.Reset(time.Duration(max(0, next-now)))
		}
		select {
		case <-passed:
			e.pulse.works()
		case <-e.exited:
			e.pulse.works()
			e.takeExits()
		case f := <-e.opt.Suspend:
			e.suspend(f)
		case pids, open := <-e.opt.Joins:
			e.pulse.works()
			e.joinAll(pids, open)
		case <-e.pulse.stop:
			e.ticks.until = min(e.ticks.until, ptrace.Now())
		}
	}
	e.last()
}

// over is ready at any time.
var over = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// suspend calls f, which may take its time, while no thread of a target is stopped or asked to. Nobody is sampled
// meanwhile, and the CPU time is told as nobody's.
func (e *engine) suspend(f func()) {
	if e.keeper != nil {
		e.said.warn("not stopped: with --exit-stacks every thread would be held for as long (try: Ctrl-C)")
		return
	}
	e.pulse.works()
	e.board.Rest()
	e.awaitStops()
	if e.waits > 0 || e.bank.Busy() {
		e.said.warn("not stopped: a thread that was asked to stop for a sample has not yet, and would be held for as long (try: again, or Ctrl-C)")
		return
	}
	e.pulse.rests()
	f()
	e.pulse.works()
	n := e.ticks.passed(ptrace.Now())
	e.book.Advance(n)
	rest := map[*process]time.Duration{}
	for _, t := range e.list {
		e.book.Give(&t.line, n, ledger.Suspended)
		if s, err := e.files.schedstat(t); err == nil { // the next sample does not stand for that time
			rest[t.proc] += t.line.Charge(s.Run)
		}
	}
	for p, cpu := range rest {
		if p.charged += cpu; cpu > 0 && !e.opt.WallWeight {
			e.out.send(item{spent: &capture.Spent{PID: p.pid, Weight: capture.Weight{CPU: cpu}}})
		}
	}
}

// leastTick bounds how often the coordinator looks, whatever the rate: clocks keep what they take
// meanwhile.
const leastTick = int64(time.Millisecond)

// onTick handles the ticks that have passed. quiet: nothing has run since the one before.
func (e *engine) onTick(now int64) (quiet bool) {
	n := e.ticks.answered(now)
	e.book.Advance(n)
	e.out.flush()
	e.later = slices.DeleteFunc(e.later, func(try func() bool) bool { return try() })
	e.bank.Nudge(now - max(e.ticks.interval, leastTick))
	e.bank.Expire(n)
	e.drain()
	e.takeExits()
	e.news(n)
	e.load.update(e, now)
	e.board.SetStride(max(e.load.both, 1))
	e.pulse.publish(now, func() *Progress { return e.progress(now) })
	if e.roundDue(now) {
		e.endRound(now, false)
	}
	step := max(1, leastTick/e.ticks.interval)
	e.ticks.due = n + step
	if s := e.load.own.stride; s > 1 { // to look costs more than to sample
		e.ticks.due = (n + step + s - 1) / s * s
	}
	quiet = e.choose(n)
	e.wasLate(n)
	if quiet {
		e.ticks.due = max(e.ticks.due, n+watch.Rest(len(e.list), n-e.still(), e.ticks.interval))
	}
	e.bank.Go()
	return quiet
}

// last takes what clocks have under way at the end of a run.
func (e *engine) last() {
	now := min(ptrace.Now(), e.ticks.until-1)
	e.book.Advance(max(e.ticks.passed(now), e.book.Tick()))
	e.clocks = e.bank.Clocks()
	e.board.Rest()
	e.awaitStops()
	e.bank.Close()
	e.drain()
	e.takeExits()
}

// awaitStops takes the stops that are still to come: a thread that waits for a CPU
// stops when it gets one. One that is let go before its stop has its call cut short
// all the same, and nobody takes that back. One whose copy hangs goes on when we end.
func (e *engine) awaitStops() {
	begun := ptrace.Now()
	for {
		busy, waits := e.bank.Busy(), e.bank.Waits()
		now := ptrace.Now()
		since := time.Duration(now - begun)
		stuck, held := e.board.Held()
		if now-held < int64(hung) {
			stuck = 0
		}
		if len(waits) == 0 && !busy || since >= lastStops && !slices.ContainsFunc(waits, func(a clocks.Asked) bool {
			return a.TID != stuck && awaited(e.fs, a.PID, a.TID, since)
		}) {
			e.waits = len(waits)
			return
		}
		e.pulse.works()
		e.bank.Nudge(ptrace.Now() - leastTick)
		time.Sleep(time.Millisecond)
		e.drain()
	}
}

// still is the last tick at which some process may have run.
func (e *engine) still() (n int64) {
	for _, p := range e.procs {
		n = max(n, p.watch.Ran())
	}
	return n
}

// drain takes what clocks have taken.
func (e *engine) drain() {
	for _, m := range e.bank.Drain() {
		var t *thread
		if m.Slot < len(e.slots) {
			t = e.slots[m.Slot]
		}
		e.taken(t, m)
		m.Done()
	}
}

// taken accounts for a sample of a clock and passes it on.
func (e *engine) taken(t *thread, m *clocks.Sample) {
	if !m.Asleep {
		e.seizes++
	}
	if t == nil || t.tid != m.TID || !e.live(t) {
		return // it was dropped meanwhile
	}
	asked := t.asking
	t.again, t.asking = t.asking, false
	took := time.Duration(m.Taken())
	e.took.add(took)
	e.load.add(t, took)
	tick := min(m.Tick, e.book.Tick())
	if e.book.Owed(&t.line, tick) == 0 {
		t.again = false // what the stop has shown is lost
		return          // it was read at this tick already, when it waited
	}
	e.wasMet(t, tick, m)
	if m.Gone || t.proc.shares && t.proc.replaced() { // a clock cannot tell whose memory that was
		e.book.Give(&t.line, tick, ledger.Exited)
		return
	}
	c := e.swap(t, m)
	if c == nil {
		t.again = false
		e.book.Give(&t.line, tick, ledger.NoRoom)
		return
	}
	if asked && ptrace.StackPointer(c.Regs) == t.wait.SP {
		// Not every architecture tells at a stop which call it has met.
		c.Blocked, c.Call.NR = true, t.wait.NR
	}
	c.Delay, c.Pause, c.Late = time.Duration(m.Stopped-m.Asked), time.Duration(m.Released-m.Stopped), time.Duration(m.Wake-e.ticks.start-m.Tick*e.ticks.interval)
	if m.Asleep {
		c.Taken, c.Blocked, c.Call, c.Count = capture.Unstopped, true, m.Call, m.Count
	} else {
		e.delay.add(c.Delay)
		e.pause.add(c.Pause)
		e.round.pause.add(c.Pause)
		if m.Met {
			e.met.add(c.Delay + c.Pause)
		}
	}
	if m.Moved && !asked {
		e.moved++
	}
	e.book.Give(&t.line, tick, ledger.Sampled)
	e.book.Give(&t.line, min(e.ticks.passed(m.Stopped), e.book.Tick()), ledger.NotStopped)
	e.emit(t, m.Tick, c, e.ran(t, m), m.Released)
}

// ran is what a thread has run for when a clock let go of it.
func (e *engine) ran(t *thread, m *clocks.Sample) time.Duration {
	if e.uncounted {
		s, _ := e.files.schedstat(t)
		return s.Run
	}
	return time.Duration(m.Run)
}

// live tells whether a thread is still among those that are sampled.
func (e *engine) live(t *thread) bool { return e.threads[t.tid] == t }

// wasMet accounts for the ticks before the one at which a clock has met a thread.
func (e *engine) wasMet(t *thread, tick int64, m *clocks.Sample) {
	if t.watch.Asleep() {
		e.unsure(t, tick, time.Duration(m.RunAsked))
	} else {
		e.settle(t, tick-1, time.Duration(m.WaitAsked), e.unmet(t))
	}
	t.homeless, t.waited = 0, time.Duration(m.Wait)
	t.stack = false
}

// unmet is the class of ticks at which a thread was not blocked when it was looked at, and no
// clock has met it.
func (e *engine) unmet(t *thread) ledger.Class {
	switch {
	case e.opt.Stop == StopNever:
		return ledger.Untraced
	case t.homeless > 0 || t.slot < 0:
		return ledger.Unmet
	case e.load.own.stride > 1:
		return ledger.Throttled
	case e.opt.All:
		return ledger.Unsure
	}
	return ledger.Idle // a clock was there, and the thread was not on its CPU
}

// swap makes a capture of what a clock has taken, and gives the clock other room. nil: there is
// none.
func (e *engine) swap(t *thread, m *clocks.Sample) *capture.Capture {
	a := t.fb.Get()
	want, beyond := a.want(e.pool.first()), a.Beyond
	if most := len(m.Stack) + len(m.Beyond); want+beyond > most && want+beyond > most+e.bank.Room() {
		want, beyond = len(m.Stack), len(m.Beyond)
	}
	c := e.pool.get(want, beyond)
	if c == nil {
		return nil
	}
	lent := held(c)
	room := taking.Buffer{Regs: c.Regs[:cap(c.Regs)], FPRegs: c.FPRegs[:cap(c.FPRegs)], Stack: c.Stack[:cap(c.Stack)], Beyond: c.Beyond[:cap(c.Beyond)]}
	if len(room.FPRegs) < taking.FPRegsBytes {
		room.FPRegs = make([]byte, taking.FPRegsBytes)
	}
	m.Buffer.Fill(c)
	e.pool.grown(held(c) - lent)
	m.Regs, m.FPRegs, m.Stack, m.Beyond = room.Regs, room.FPRegs, room.Stack, room.Beyond
	if m.PACMask != 0 {
		t.proc.pac = m.PACMask
	}
	c.Taken = capture.Stopped
	return c
}

// credit gives the last stack of a thread the weight of some ticks more, in which it has not run or,
// if it waited, had no CPU.
func (e *engine) credit(t *thread, ticks int64, waited bool) {
	if ticks == 0 {
		return
	}
	c := &capture.Credit{PID: t.proc.pid, TID: t.tid, At: e.ticks.at(ptrace.Now()), Waited: waited}
	c.Wall = time.Duration(ticks * e.ticks.interval)
	e.out.send(item{credit: c})
}

// creditWaits shows the ticks in which a thread waited for a CPU on the stack that it had when it got one.
func (e *engine) creditWaits(t *thread) {
	if e.opt.All {
		e.credit(t, t.waits, true)
	}
	t.waits = 0
}

// emit weighs a capture that was made at the CLOCK_MONOTONIC time now, and sends it to the pipeline.
func (e *engine) emit(t *thread, n int64, c *capture.Capture, run time.Duration, now int64) {
	e.emitWith(t, n, c, run, now, e.readEarly(t))
}

// emitWith is emit with what was read early.
func (e *engine) emitWith(t *thread, n int64, c *capture.Capture, run time.Duration, now int64, early *early) {
	c.PID, c.TID, c.Tick, c.PACMask = t.proc.pid, t.tid, n, t.proc.pac
	c.At = e.ticks.at(now)
	c.CPU = t.line.Charge(run)
	t.proc.charged += c.CPU
	c.Wall = time.Duration(e.ticks.interval)
	t.shown = true
	e.out.send(item{capture: c, fb: t.fb, early: early, program: t.proc.program})
	e.creditWaits(t)
}

// readEarly reads what the pipeline needs of a process that may be gone soon: of
// those that were born while we sample, many live only for milliseconds. New
// programs load their libraries first, so the first captures each bring news.
func (e *engine) readEarly(t *thread) *early {
	p := t.proc
	if !p.brief || p.captures >= 8 {
		return nil
	}
	p.captures++
	if p.captures&(p.captures-1) != 0 { // at 1, 2, 4 and 8
		return nil
	}
	early := e.earlyOf(p.pid, t.tid)
	if p.replaced() {
		return nil // it may be of the next program
	}
	return early
}

// earlyOf reads mappings and name of a process. tid is a thread of it that lives.
func (e *engine) earlyOf(pid, tid int) *early {
	maps, _ := e.fs.RawMaps(tid) // if it ends already, its parent's must do
	comm, _ := os.ReadFile(e.fs.Path(pid, "comm"))
	return &early{maps, comm}
}
