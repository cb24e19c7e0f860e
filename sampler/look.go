package sampler

// The coordinator's looks at threads: who is blocked, who may run and where, what may be read without a stop.

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
	"sfsample/sampler/watch"
)

// choose looks at the threads that are due at tick n, and
// reads those that do not run where that is wanted. quiet: nothing has run since the
// last tick, so that there was nothing to look at.
func (e *engine) choose(n int64) (quiet bool) {
	quiet = true
	e.pace.Begin(e.ticks.interval)
	e.readClocks(n, (*watch.Process).Begin)
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
		if t.watch.Asleep() && e.opt.Stop != StopAlways && !t.watch.Due(&t.proc.watch, t.tid, n) && !(asks && e.wantsRegs(t)) {
			continue // credited at a later look
		}
		quiet = false
		if !e.look(t, n) { // it has exited
			i--
		}
	}
	e.readClocks(n, (*watch.Process).Again)
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
		moved = moved || p.watch.Moved()
		*quiet = *quiet && p.watch.Ran() < n
	}
	return moved
}

// lookAtSleepers looks at the blocked threads that were left out before the clocks
// were read, if their processes' do not tell that they have not run, as often as
// is due.
func (e *engine) lookAtSleepers(n int64) {
	for i := 0; i < len(e.list); i++ {
		t := e.list[i]
		if t.watch.DueAgain(&t.proc.watch, n) && !e.look(t, n) {
			i--
		}
	}
}

// boardTicks is how long a thread that was found blocked stays on the board: one that wakes often is
// there when it does.
const boardTicks = 16

// While there are few threads on the board they stay for longer: clocks look at each that may have run.
const (
	fewListed = 64
	boardStay = time.Second
)

// look finds out what thread t does at tick n and acts on it. false: it is
// gone, and was dropped.
func (e *engine) look(t *thread, n int64) bool {
	e.pulse.works()
	if t.noUserStack {
		e.book.Give(&t.line, n, ledger.NoUserStack)
		return e.alive(t)
	}
	s, err := e.files.schedstat(t)
	if err != nil {
		return e.lookFailed(t, err)
	}
	if e.opt.Stop == StopAlways && e.askAnyhow(t, n, s) {
		return true
	}
	if t.watch.Asleep() {
		if t.watch.Same(s.Count) {
			return e.sleepsOn(t, n)
		}
		e.unsure(t, n, s.Run)
		t.stack, t.waited = false, s.Wait
		e.stirred(t, n)
	}
	if e.book.Owed(&t.line, n) == 0 {
		return true // it was met at this tick
	}
	call, err := e.files.syscall(t)
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
	case e.opt.All && e.stands(t):
		e.runs(t, n)
		return true
	}
	e.settle(t, n-1, s.Wait, e.unmet(t))
	switch {
	case e.opt.All && t.again && call.SP == t.wait.SP && call.PC == t.wait.PC:
		e.backAgain(t, n, s)
	case e.opt.All:
		e.peek(t, n, s.Count, call)
	default:
		e.nowIdle(t, n, s)
	}
	return true
}

// stands tells whether a thread that does not run is stopped for us: at a clock's tick it ran.
func (e *engine) stands(t *thread) bool {
	if t.slot < 0 {
		return false
	}
	st, err := e.files.stat(t)
	if err != nil || st.State != 't' {
		return false
	}
	s, err := e.fs.Status(t.tid)
	return err == nil && e.ours(s.TracerPid)
}

// sleepsOn goes on with a wait in which nothing has changed.
func (e *engine) sleepsOn(t *thread, n int64) bool {
	t.watch.SleepsOn(n, e.pace.Gap(t.tid, t.watch.Waited(n)))
	if e.wantsRegs(t) {
		e.creditIdle(t, n-1)
		e.askRegs(t)
		return true
	}
	e.creditIdle(t, e.settled(t, n))
	if w := t.watch.Waited(n); w > boardTicks && (e.listed > fewListed || w*e.ticks.interval > int64(boardStay)) {
		e.leave(t)
	}
	return true
}

// stirred has clocks find a thread the next time that it runs, if it sleeps by now: it may never be seen to run otherwise.
func (e *engine) stirred(t *thread, n int64) {
	if e.listed >= fewListed {
		return
	}
	st, err := e.files.stat(t)
	if err != nil {
		return
	}
	e.awake(t, st.Processor)
	if t.slot >= 0 {
		e.bank.Need(st.Processor, n)
	}
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
	if s.Count != 0 && t.untouched == s.Count {
		return false
	}
	call, err := e.files.syscall(t)
	if err != nil || call.Running || !e.opt.mayStop(e.fs, t.proc.pid, t.tid, call.NR, &call.Args) {
		return false
	}
	if t.again && call.SP == t.wait.SP && call.PC == t.wait.PC && drifts(call.NR, &call.Args) {
		t.again, t.untouched = e.opt.All, s.Count // once is enough: what the stop has shown stands
		return false
	}
	e.awake(t, -1)
	if !e.ask(t) {
		return false
	}
	if t.watch.Asleep() {
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
	st, err := e.files.stat(t)
	if err != nil {
		return // its end is found out at the next look
	}
	e.awake(t, st.Processor)
	if !e.uncounted && e.bank.Need(st.Processor, n) {
		t.homeless = 0
		t.runnable++
		return
	}
	t.homeless++
	if t.slot >= 0 && t.advice != t.fb.p.Load() {
		return // the board cannot be told what is known by now while it is asked for at each tick
	}
	if e.uncounted {
		e.bank.Ask(t.slot)
	} else if t.slot >= 0 && e.bank.Away(st.Processor, n) {
		e.afar.note(e.said.warn, t.proc.pid, st.Processor)
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
		e.said.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", t.tid, s.TracerPid)
	default:
		e.said.warn("threads of process %d may not be traced any more: running ones are not sampled (%s)", t.proc.pid, Remedy(t.proc.pid))
	}
	e.book.Give(&t.line, n, class)
}

// ours tells whether a thread is of this program.
func (e *engine) ours(tid int) bool {
	s, err := e.fs.Status(tid)
	return tid != 0 && err == nil && s.Tgid == os.Getpid()
}

// unsure ends the wait of a thread that was found at tick n to have run at some time since its last look, and accounts
// for the ticks before. run is its run time of now.
func (e *engine) unsure(t *thread, n int64, run time.Duration) {
	if sure := t.watch.Ran(&t.proc.watch, n, run); e.book.Owed(&t.line, sure) > 0 {
		e.creditIdle(t, sure)
	}
	e.book.Give(&t.line, n-1, ledger.Unsure)
}

// alive drops a thread whose files in /proc are gone.
func (e *engine) alive(t *thread) bool {
	if _, err := e.files.schedstat(t); err == unix.ESRCH {
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
	if e.files.failed(err) {
		return true
	}
	if e.keeper != nil { // which tells when that has taken its end
		e.book.Give(&t.line, e.book.Tick(), ledger.Exited)
		return true
	}
	e.drop(t)
	return false
}

// nowIdle begins a wait of a thread that was found blocked, after s was read, when blocked threads are not sampled.
func (e *engine) nowIdle(t *thread, n int64, s procfs.Schedstat) {
	if e.stands(t) {
		e.runs(t, n)
		return
	}
	t.sleeps(n, s)
	e.book.Give(&t.line, e.settled(t, n), ledger.Idle)
}

// creditIdle accounts for the ticks up to n of a thread that has not run in
// all of them.
func (e *engine) creditIdle(t *thread, n int64) {
	if late := t.late; late > 0 && n > t.watch.Since() {
		t.late = 0
		e.creditIdle(t, t.watch.Since())
		e.book.Give(&t.line, min(late, n), ledger.Unsure)
		if late > n {
			t.late = late
		}
	}
	switch {
	case !t.stack:
		e.book.Give(&t.line, n, ledger.Idle)
		return
	case e.out.behind():
		e.book.Give(&t.line, n, ledger.NoRoom)
		return
	}
	e.credit(t, e.book.Give(&t.line, n, ledger.Reused), false)
}

// wasLate notes that ticks have passed while threads were looked at, at tick n: those found blocked may have run in
// them until then.
func (e *engine) wasLate(n int64) {
	now := e.ticks.passed(ptrace.Now())
	if now <= n {
		return
	}
	for _, t := range e.list {
		if t.watch.Asleep() && t.watch.Since() == n {
			t.late = now
		}
	}
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
		after, err := e.files.schedstat(t)
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
		if call, err = e.files.syscall(t); err != nil {
			break
		}
		if call.Running || e.stands(t) {
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
// the copy made at that stop was too small.
func (e *engine) wantsRegs(t *thread) bool {
	if e.opt.Stop != StopAuto || !t.stack || t.watch.Count() == 0 || t.untouched == t.watch.Count() {
		return false
	}
	a := t.fb.Get()
	if a.NeedStop != t.watch.Count() && !(t.stops > 0 && t.stops < maxStops && a.Short) {
		return false
	}
	if a.Foreign || !e.opt.mayStop(e.fs, t.proc.pid, t.tid, t.wait.NR, &t.wait.Args) {
		t.untouched = t.watch.Count()
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
