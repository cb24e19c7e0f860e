package sampler

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
)

// loop coordinates until the time is over, nobody is left, or stop is closed.
func (e *engine) loop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(e.procs) > 0 {
		now := ptrace.Now()
		if now >= e.until {
			break
		}
		if now >= e.dueAt() {
			quiet := e.onTick(now)
			e.rests()
			if quiet && e.book.Tick()-e.still() > boardTicks {
				timer.Stop() // it would wake the runtime
				e.doze()
			}
			now = ptrace.Now()
		}
		timer.Reset(time.Duration(max(0, min(e.dueAt(), e.until)-now)))
		e.rests()
		select {
		case <-timer.C:
			e.works()
		case <-e.exited:
			e.works()
			e.takeExits()
		case f := <-e.opt.Suspend:
			e.suspend(f)
		case <-e.stop:
			e.until = min(e.until, ptrace.Now())
		}
	}
	e.last()
}

// suspend calls f, which may take its time, while no thread of a target is stopped or asked to. Ticks that
// pass meanwhile are missed.
func (e *engine) suspend(f func()) {
	if e.keeper != nil {
		e.warn("not stopped: with --exit-stacks every thread would be held for as long (try: Ctrl-C)")
		return
	}
	e.works()
	e.board.Rest()
	e.awaitStops()
	e.rests()
	f()
	e.works()
	n := (ptrace.Now() - e.start) / e.interval
	e.book.Advance(n)
	for _, t := range e.list {
		e.book.Give(&t.line, n, ledger.Missed)
	}
}

// leastTick bounds how often the coordinator looks, whatever the rate: clocks keep what they take
// meanwhile.
const leastTick = int64(time.Millisecond)

// dueAt is when tick e.due is handled: when all clocks have had time to answer it, and before the next.
func (e *engine) dueAt() int64 {
	return e.start + e.due*e.interval + e.bank.Last + min(e.interval/4, leastTick/2)
}

// onTick handles the ticks that have passed. quiet: nothing has run since the one before.
func (e *engine) onTick(now int64) (quiet bool) {
	n := (now - e.start) / e.interval
	e.book.Advance(n)
	e.flush()
	e.later = slices.DeleteFunc(e.later, func(try func() bool) bool { return try() })
	e.bank.Nudge(now - max(e.interval, leastTick))
	e.bank.Expire(n)
	e.drain()
	e.takeExits()
	e.news(n)
	e.load.update(e, now)
	e.board.SetStride(max(e.load.stride, 1))
	e.publish(now)
	step := max(1, leastTick/e.interval)
	e.due = n + step
	quiet = e.choose(n)
	if quiet {
		e.due = n + max(step, rest(len(e.list), n-e.still(), e.interval))
	}
	e.bank.Go()
	return quiet
}

// last takes what clocks have under way at the end of a run.
func (e *engine) last() {
	now := min(ptrace.Now(), e.until-1)
	e.book.Advance(max((now-e.start)/e.interval, e.book.Tick()))
	e.clocks = e.bank.Clocks()
	e.board.Rest()
	e.awaitStops()
	e.bank.Close()
	e.drain()
	e.takeExits()
}

// awaitStops takes the stops that are still to come: a thread that waits for a CPU
// stops when it gets one. One that is let go before its stop has its call cut short
// all the same, and nobody takes that back.
func (e *engine) awaitStops() {
	begun := ptrace.Now()
	for {
		busy, waits := e.bank.Busy(), e.bank.Waits()
		since := time.Duration(ptrace.Now() - begun)
		if len(waits) == 0 && !busy || since >= lastStops && !slices.ContainsFunc(waits, func(a clocks.Asked) bool {
			return awaited(e.fs, a.PID, a.TID, since)
		}) {
			e.waits = len(waits)
			return
		}
		e.works()
		e.bank.Nudge(ptrace.Now() - leastTick)
		time.Sleep(time.Millisecond)
		e.drain()
	}
}

// still is the last tick at which some process may have run.
func (e *engine) still() (n int64) {
	for _, p := range e.procs {
		n = max(n, p.asleep.ran)
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
	e.seizes++
	if t == nil || t.tid != m.TID || !e.live(t) {
		return // it was dropped meanwhile
	}
	asked := t.asking
	t.again, t.asking = t.asking, false
	tick := min(m.Tick, e.book.Tick())
	if e.book.Owed(&t.line, tick) == 0 {
		return // it was read at this tick already, when it waited
	}
	e.wasMet(t, tick, m)
	if m.Gone {
		e.book.Give(&t.line, tick, ledger.Exited)
		return
	}
	c := e.swap(t, m)
	if c == nil {
		e.book.Give(&t.line, tick, ledger.NoRoom)
		return
	}
	if asked && ptrace.StackPointer(c.Regs) == t.wait.SP {
		// Not every architecture tells at a stop which call it has met.
		c.Blocked, c.Call.NR = true, t.wait.NR
	}
	c.Delay, c.Pause, c.Late = time.Duration(m.Stopped-m.Asked), time.Duration(m.Released-m.Stopped), time.Duration(m.Wake-e.start-m.Tick*e.interval)
	e.delay.add(c.Delay)
	e.pause.add(c.Pause)
	e.took.add(time.Duration(m.Taken()))
	e.load.add(t, time.Duration(m.Taken()))
	if m.Moved && !asked {
		e.moved++
	}
	e.book.Give(&t.line, tick, ledger.Sampled)
	e.book.Give(&t.line, min((m.Stopped-e.start)/e.interval, e.book.Tick()), ledger.NotStopped)
	e.emit(t, m.Tick, c, time.Duration(m.Run), m.Released)
}

// live tells whether a thread is still among those that are sampled.
func (e *engine) live(t *thread) bool { return e.threads[t.tid] == t }

// wasMet accounts for the ticks before the one at which a clock has met a thread.
func (e *engine) wasMet(t *thread, tick int64, m *clocks.Sample) {
	if t.blocked {
		e.unsure(t, tick-1, time.Duration(m.RunAsked)-t.idleRun)
		t.proc.asleep.stirred = tick
		t.wakes()
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

// choose looks at the threads that are due at tick n, and
// reads those that do not run where that is wanted. quiet: nothing has run since the
// last tick, so that there was nothing to look at.
func (e *engine) choose(n int64) (quiet bool) {
	quiet = true
	e.pace.begin(e.interval)
	e.readClocks(n, (*asleep).begin)
	asks := e.pool.asks.Swap(false)
	for i := 0; i < len(e.list); i++ {
		t := e.list[i]
		e.advise(t)
		if t.asking {
			quiet = false
			if t.slot >= 0 && (n <= t.asked+1 || e.board.Asked(t.slot) >= t.asked) {
				continue // its ticks are accounted for when it stops
			}
			t.asking = false // it could not be asked
		}
		if t.blocked && e.opt.Stop != StopAlways && (n < t.next || t.proc.asleep.waits(t, n)) && !(asks && e.wantsRegs(t)) {
			continue // credited at a later look
		}
		quiet = false
		if !e.look(t, n) { // it has exited
			i--
		}
	}
	e.readClocks(n, (*asleep).again)
	if e.stirs(n, &quiet) {
		e.lookAtSleepers(n)
	}
	return quiet
}

// advise tells the board what unwinding has found out about a thread.
func (e *engine) advise(t *thread) {
	if a := t.fb.p.Load(); t.slot >= 0 && a != t.advice && e.board.Advise(t.slot, a.Advice) {
		t.advice = a
		e.bank.Fit(a.Want, a.Beyond)
	}
}

// stirs tells whether a thread of some process may have run that was left out so
// far. quiet stays set if none has run at all.
func (e *engine) stirs(n int64, quiet *bool) (moved bool) {
	for _, p := range e.procs {
		moved = moved || p.asleep.moved && p.asleep.blocked > 0
		*quiet = *quiet && p.asleep.ran < n
	}
	return moved
}

// lookAtSleepers looks at the blocked threads that were left out before the clocks
// were read, if their processes' do not tell that they have not run, as often as
// is due.
func (e *engine) lookAtSleepers(n int64) {
	for i := 0; i < len(e.list); i++ {
		t := e.list[i]
		if t.blocked && t.proc.asleep.moved && t.seenAt < n && n >= t.next && !e.look(t, n) {
			i--
		}
	}
}

// boardTicks is how long a thread that was found blocked stays on the board: one that wakes often is
// there when it does.
const boardTicks = 16

// look finds out what thread t does at tick n and acts on it. false: it is
// gone, and was dropped.
func (e *engine) look(t *thread, n int64) bool {
	e.works()
	if t.noUserStack {
		e.book.Give(&t.line, n, ledger.NoUserStack)
		return e.alive(t)
	}
	s, err := t.schedstat(e.buf[:])
	if err != nil {
		return e.lookFailed(t, err)
	}
	if e.opt.Stop == StopAlways && e.askAnyhow(t, n, s) {
		return true
	}
	if t.blocked {
		if s.Count == t.count {
			return e.sleepsOn(t, n)
		}
		e.unsure(t, n-1, s.Run-t.idleRun)
		t.proc.asleep.stirred = n
		t.wakes()
		t.stack, t.waited = false, s.Wait
	}
	if e.book.Owed(&t.line, n) == 0 {
		return true // it was met at this tick
	}
	call, err := t.syscall(e.buf[:])
	if err != nil {
		return e.lookFailed(t, err)
	}
	switch {
	case call.Running:
		e.runs(t, n)
		return true
	case call.SP == 0 && call.PC == 0: // it has exited, and is not reaped yet
		e.settle(t, n-1, s.Wait, e.unmet(t))
		e.book.Give(&t.line, n, ledger.Exited)
		return e.reapable(t)
	}
	e.settle(t, n-1, s.Wait, e.unmet(t))
	switch {
	case e.opt.All && t.again && call.SP == t.wait.SP && call.PC == t.wait.PC:
		e.backAgain(t, n, s)
	case e.opt.All:
		e.peek(t, n, s.Count, call)
	default:
		e.nowIdle(t, n)
	}
	return true
}

// sleepsOn goes on with a wait in which nothing has changed.
func (e *engine) sleepsOn(t *thread, n int64) bool {
	t.seenAt = n
	if e.wantsRegs(t) {
		e.creditIdle(t, n-1)
		e.askRegs(t)
		return true
	}
	e.creditIdle(t, e.settled(t, n))
	t.next = n + e.pace.gap(t.tid, n-t.since)
	if n-t.since > boardTicks {
		e.leave(t)
	}
	return true
}

// settled is the last tick up to n whose clocks can have nothing more to tell of a thread.
func (e *engine) settled(t *thread, n int64) int64 {
	if t.slot >= 0 {
		return n - 1
	}
	return n
}

// askRegs asks for a stop of a blocked thread.
func (e *engine) askRegs(t *thread) {
	a := t.fb.Get()
	a.Short = false // it tells of an older copy
	t.fb.Set(a)
	e.awake(t, -1)
	e.advise(t)
	if e.ask(t) {
		t.stops++
	}
}

// ask asks for a stop of a thread wherever it is. false: that cannot be done.
func (e *engine) ask(t *thread) bool {
	if t.slot < 0 || !e.bank.Ask(t.slot) {
		return false
	}
	t.asking, t.asked = true, e.book.Tick()
	return true
}

// askAnyhow asks for a stop of a blocked thread at tick n, as every thread is to be stopped, if that
// does no harm. s is how it has run.
func (e *engine) askAnyhow(t *thread, n int64, s procfs.Schedstat) bool {
	call, err := t.syscall(e.buf[:])
	if err != nil || call.Running || !e.opt.mayStop(e.fs, t.proc.pid, t.tid, call.NR, &call.Args) {
		return false
	}
	e.awake(t, -1)
	if !e.ask(t) {
		return false
	}
	if t.blocked {
		e.creditIdle(t, n-1)
	} else {
		e.settle(t, n-1, s.Wait, e.unmet(t))
	}
	t.wait = call
	return true
}

// runs handles a thread that runs or waits for a CPU at tick n and was not met there so far.
func (e *engine) runs(t *thread, n int64) {
	if e.opt.Stop == StopNever {
		e.book.Give(&t.line, n, ledger.Untraced)
		return
	}
	if stride := e.load.stride; stride > 1 && n%stride != 0 {
		e.book.Give(&t.line, n, ledger.Throttled)
		return
	}
	if t.slot >= 0 {
		sampled, lost, refused := e.board.Met(t.slot, n)
		switch {
		case sampled:
			return // a clock has asked it to stop
		case lost:
			e.book.Give(&t.line, n, ledger.NoRoom)
			return
		case refused:
			e.refuse(t, n)
			return
		}
	}
	st, err := t.stat(e.buf[:])
	if err != nil {
		return // its end is found out at the next look
	}
	e.awake(t, st.Processor)
	if e.bank.Need(st.Processor, n) {
		t.homeless = 0
		t.runnable++
		return
	}
	if t.homeless++; t.slot >= 0 && e.bank.Away(st.Processor, n) {
		e.warn("threads of process %d run on CPU %d, where no clock of ours can be, or gets no time: they are stopped from elsewhere, which favours the ends of system calls", t.proc.pid, st.Processor)
		e.bank.Ask(t.slot)
	}
}

// refuse handles a thread that may not be stopped.
func (e *engine) refuse(t *thread, n int64) {
	s, err := e.fs.Status(t.tid)
	class := ledger.Untraced
	switch {
	case err != nil || s.State == 'Z' || s.State == 'X':
		class = ledger.Exited
	case e.ours(s.TracerPid): // it was asked by the id that it had before an exec
		class = ledger.NotStopped
	case s.TracerPid != 0:
		e.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", t.tid, s.TracerPid)
	default:
		e.warn("threads of process %d may not be traced any more: running ones are not sampled (%s)", t.proc.pid, Remedy(t.proc.pid))
	}
	e.book.Give(&t.line, n, class)
}

// ours tells whether a thread is of this program.
func (e *engine) ours(tid int) bool {
	s, err := e.fs.Status(tid)
	return tid != 0 && err == nil && s.Tgid == os.Getpid()
}

// unsure accounts for the ticks up to n of a thread that has run at some time
// since its last look, for so long. In those in which the process's clock stood it
// was not that thread either.
func (e *engine) unsure(t *thread, n int64, ran time.Duration) {
	lag := int64(min(ran, counterLag)) / e.interval
	if sure := min(t.proc.asleep.sureOf(t)-lag, n); e.book.Owed(&t.line, sure) > 0 {
		e.creditIdle(t, sure)
	}
	e.book.Give(&t.line, n, ledger.Unsure)
}

// alive drops a thread whose files in /proc are gone.
func (e *engine) alive(t *thread) bool {
	if _, err := t.schedstat(e.buf[:]); err == unix.ESRCH {
		return e.lookFailed(t, err)
	}
	return true
}

// reapable drops a thread that is a zombie: only a leader stays one, until its process is reaped.
func (e *engine) reapable(t *thread) bool {
	if e.keeper != nil || t.tid == t.proc.pid && !e.ended(t.proc) {
		return true
	}
	e.drop(t)
	return false
}

// lookFailed handles a thread whose files could not be read: it has exited, unless it is we who can
// open no file.
func (e *engine) lookFailed(t *thread, err error) bool {
	if err == unix.EMFILE || err == unix.ENFILE {
		e.fewFiles()
		return true
	}
	if e.keeper != nil { // which tells when that has taken its end
		e.book.Give(&t.line, e.book.Tick(), ledger.Exited)
		return true
	}
	e.drop(t)
	return false
}

// fewFiles says that there are not enough files to be had.
func (e *engine) fewFiles() {
	e.warn("no more files can be opened: some threads are not sampled (it takes five for each; try: ulimit -n 4096)")
}

// nowIdle begins a wait of a thread that was found blocked, when blocked threads
// are not sampled.
func (e *engine) nowIdle(t *thread, n int64) {
	s, err := t.schedstat(e.buf[:])
	if err == nil {
		// It may have begun to run before that, and then be taken for blocked for
		// as long as it runs.
		var call procfs.Syscall
		if call, err = t.syscall(e.buf[:]); call.Running {
			e.runs(t, n)
			return
		}
	}
	if err == nil {
		t.sleeps(n, s)
	}
	e.book.Give(&t.line, e.settled(t, n), ledger.Idle)
}

// creditIdle accounts for the ticks up to n of a thread that has not run in
// all of them.
func (e *engine) creditIdle(t *thread, n int64) {
	switch {
	case !t.stack:
		e.book.Give(&t.line, n, ledger.Idle)
		return
	case e.behind():
		e.book.Give(&t.line, n, ledger.NoRoom)
		return
	}
	e.credit(t, e.book.Give(&t.line, n, ledger.Reused), false)
}

// credit gives the last stack of a thread the weight of some ticks more, in which it has not run or,
// if it waited, had no CPU.
func (e *engine) credit(t *thread, ticks int64, waited bool) {
	if ticks == 0 {
		return
	}
	c := &capture.Credit{PID: t.proc.pid, TID: t.tid, At: e.at(ptrace.Now()), Waited: waited}
	if e.opt.WallWeight {
		c.Ticks = ticks
	}
	c.Wall = time.Duration(ticks * e.interval)
	e.send(item{credit: c})
}

// creditWaits shows the ticks in which a thread waited for a CPU on the stack that it had when it got one.
func (e *engine) creditWaits(t *thread) {
	if e.opt.All {
		e.credit(t, t.waits, true)
	}
	t.waits = 0
}

// peekTries bounds how often a thread that wakes while it is read is read again.
const peekTries = 3

// peek copies the stack of a blocked thread without a stop. The copy is of one
// instant if the thread was not put on a CPU between the two looks at its run
// count.
func (e *engine) peek(t *thread, n int64, count uint64, call procfs.Syscall) {
	a := t.fb.Get()
	beyond := 0
	if a.Recipe != nil {
		beyond = a.Recipe.Room
	}
	c := e.pool.get(a.want(firstPeek), beyond)
	if c == nil {
		e.book.Give(&t.line, n, ledger.NoRoom)
		return
	}
	for range peekTries {
		taking.Peek(e.calm, t.tid, call.SP, &a.Advice, c, int(t.proc.pages), &e.peekB)
		if e.opt.Kernel {
			e.readKernel(t, c)
		}
		after, err := t.schedstat(e.buf[:])
		if err != nil {
			break
		}
		if after.Count == count {
			if t.proc.replaced() {
				break // another thread has called exec, and what was read is of that
			}
			e.peeked(t, n, c, after, call)
			return
		}
		count = after.Count
		if call, err = t.syscall(e.buf[:]); err != nil {
			break
		}
		if call.Running {
			e.pool.put(c)
			e.runs(t, n)
			return
		}
	}
	e.pool.put(c)
	e.book.Give(&t.line, n, ledger.Unsure)
}

// maxKernelStack is more than the kernel prints: 64 lines of a symbol each
// (MAX_STACK_TRACE_DEPTH, fs/proc/base.c).
const maxKernelStack = 16 << 10

// readKernel copies the kernel's part of the stack of a blocked thread, where we
// may.
func (e *engine) readKernel(t *thread, c *capture.Capture) {
	if e.kernel == nil {
		e.kernel = make([]byte, maxKernelStack)
	}
	b, err := t.readFile(-1, "stack", e.kernel)
	if err != nil {
		b = nil
	}
	c.Kernel = append(c.Kernel[:0], b...)
}

// maxStops bounds how often one wait is stopped. Each time more is copied, so that
// this is enough for the largest copy.
const maxStops = 6

// wantsRegs tells whether a blocked thread is to be stopped for the registers that
// its stack takes to unwind: only if that does no harm. Once is enough, unless
// the copy made at that stop was too small, and no more could be read before
// the thread had gone back to its call.
func (e *engine) wantsRegs(t *thread) bool {
	if e.opt.Stop != StopAuto || !t.stack || t.count == 0 || t.untouched == t.count {
		return false
	}
	a := t.fb.Get()
	if a.NeedStop != t.count && !(t.stops > 0 && t.stops < maxStops && a.Short) {
		return false
	}
	if a.Foreign || !e.opt.mayStop(e.fs, t.proc.pid, t.tid, t.wait.NR, &t.wait.Args) {
		t.untouched = t.count
		return false
	}
	return true
}

// backAgain goes on with a wait that our own stop has interrupted: the thread is
// where it was, so the stack that was taken at the stop stands. s was read before
// that was seen.
func (e *engine) backAgain(t *thread, n int64, s procfs.Schedstat) {
	t.again = false
	t.sleeps(n, s)
	t.stack = true
	e.creditIdle(t, n)
	if e.wantsRegs(t) { // that may have been found out on the way
		e.pool.asks.Store(true)
	}
}

func (e *engine) peeked(t *thread, n int64, c *capture.Capture, s procfs.Schedstat, call procfs.Syscall) {
	t.sleeps(n, s)
	t.stack = true
	t.wait, t.again, t.stops = call, false, 0
	c.Taken, c.Blocked, c.Count = capture.Unstopped, true, s.Count
	c.Call = capture.Call{NR: call.NR, Args: call.Args, SP: call.SP, PC: call.PC}
	c.Delay, c.Pause, c.Late = 0, 0, 0
	e.book.Give(&t.line, n, ledger.Sampled)
	run := s.Run
	if call.NR == unix.SYS_EXECVE || call.NR == unix.SYS_EXECVEAT {
		// The caller has the leader's id, and so all that is read under it, a moment
		// before that is reported. What it has run for is charged later.
		run = t.line.Run()
	}
	e.emit(t, n, c, run, ptrace.Now())
}

// emit weighs a capture that was made at the CLOCK_MONOTONIC time now, and sends it to the pipeline.
func (e *engine) emit(t *thread, n int64, c *capture.Capture, run time.Duration, now int64) {
	e.emitWith(t, n, c, run, now, e.readEarly(t))
}

// emitWith is emit with what was read early.
func (e *engine) emitWith(t *thread, n int64, c *capture.Capture, run time.Duration, now int64, early *early) {
	c.PID, c.TID, c.Tick, c.PACMask = t.proc.pid, t.tid, n, t.proc.pac
	c.At = e.at(now)
	c.CPU = t.line.Charge(run)
	t.proc.charged += c.CPU
	c.Wall = time.Duration(e.interval)
	c.Ticks = 1
	if !e.opt.WallWeight {
		c.Ticks = e.book.Weigh(&t.line)
	}
	e.send(item{capture: c, fb: t.fb, early: early, program: t.proc.program})
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
	return e.earlyOf(p.pid, t.tid)
}

// earlyOf reads mappings and name of a process. tid is a thread of it that lives.
func (e *engine) earlyOf(pid, tid int) *early {
	maps, _ := e.fs.RawMaps(tid) // if it ends already, its parent's must do
	comm, _ := os.ReadFile(e.fs.Path(pid, "comm"))
	return &early{maps, comm}
}
