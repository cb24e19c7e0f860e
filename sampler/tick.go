package sampler

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

// relistTicks is how often the threads of a process are listed that cannot be
// traced: there, nobody tells of births.
const relistTicks = 16

// onTick handles the newest deadline that has passed and returns the time of
// the next. Deadlines that passed unseen before it are missed, never made up.
func (e *engine) onTick(now int64) (next int64) {
	n := (now - e.start) / e.interval
	behind := time.Duration(now - e.start - n*e.interval)
	e.late.add(behind)
	if 2*int64(behind) > e.interval {
		e.acct.Late++
	}
	e.skipTo(n - 1)
	e.load.update(e, now)
	e.publish(now)
	first := len(e.outstanding)
	e.due = n + 1
	if e.load.skip(n) {
		e.advance(n, Throttled)
	} else {
		e.listUntraced(n)
		e.untoldNews(n)
		e.advance(n, numClasses)
		if e.choose(n, behind) && len(e.outstanding) == 0 {
			e.due = n + rest(len(e.list), n-e.still(), e.interval)
		}
	}
	// The interrupts come last: a thread may stop at once.
	next = e.start + e.due*e.interval
	e.alarm.Set(min(next, e.until))
	e.interruptAll(first)
	return next
}

// skipTo makes n the current tick where it is a later one: ticks that were to be
// left out, as nothing ran, and then those that passed unseen.
func (e *engine) skipTo(n int64) {
	e.advance(min(n, e.due-1), Unsure)
	if n > e.tick {
		e.missed += n - e.tick
		e.advance(n, Missed)
	}
}

// catchUp ends the ticks that a rest has left out so far, so that a thread which
// is born in it is not accounted for before.
func (e *engine) catchUp() {
	if e.due > e.tick+1 {
		now := min(ptrace.Now(), e.until-1)
		e.skipTo(min((now-e.start)/e.interval, e.due-1))
	}
}

// wake ends a rest, since something has happened, and returns the time of the
// next tick.
func (e *engine) wake() (next int64) {
	if e.due > e.tick+1 {
		e.due = min(e.due, (ptrace.Now()-e.start)/e.interval+1)
		e.alarm.Set(min(e.start+e.due*e.interval, e.until))
	}
	return e.start + e.due*e.interval
}

// still is the last tick at which some process may have run.
func (e *engine) still() (n int64) {
	for _, p := range e.procs {
		n = max(n, p.asleep.ran)
	}
	return n
}

// advance makes n the current tick. The ticks up to it belong to class c for
// the threads that run; those of others are accounted for when it is known what
// they did. numClasses: the caller looks at the threads itself.
func (e *engine) advance(n int64, c Class) {
	ticks := n - e.tick
	if ticks <= 0 {
		return
	}
	e.tick = n
	e.acct.Ticks += ticks
	e.acct.Expected += ticks * int64(len(e.list))
	if c == numClasses {
		return
	}
	for _, t := range e.list {
		if !t.blocked && !t.interrupted {
			e.acct.Add(c, t.owed(n))
			t.done = n + 1
		}
	}
}

// choose looks at the threads that are due at tick n, arms those that run, and
// reads those that do not where that is wanted. quiet: nothing has run since the
// last tick, so that there was nothing to look at.
func (e *engine) choose(n int64, late time.Duration) (quiet bool) {
	quiet = true
	e.flush()
	e.pace.begin(e.interval)
	e.readClocks(n, (*asleep).begin)
	asks := e.pool.asks.Swap(false)
	for i := 0; i < len(e.list); i++ {
		t := e.list[i]
		if t.interrupted {
			continue // its ticks are accounted for when it stops
		}
		if t.blocked && e.opt.Stop != StopAlways && (n < t.next || t.proc.asleep.waits(t, n)) && !(asks && e.wantsRegs(t)) {
			continue // credited at a later look
		}
		quiet = false
		if !e.look(t, n, late) { // it has exited
			i--
		}
	}
	e.readClocks(n, (*asleep).again)
	if e.moved(n, &quiet) {
		e.lookAtSleepers(n, late)
	}
	return quiet
}

// moved tells whether a thread of some process may have run that was left out so
// far. quiet stays set if none has run at all.
func (e *engine) moved(n int64, quiet *bool) (moved bool) {
	for _, p := range e.procs {
		moved = moved || p.asleep.moved && p.asleep.blocked > 0
		*quiet = *quiet && p.asleep.ran < n
	}
	return moved
}

// lookAtSleepers looks at the blocked threads that were left out before the clocks
// were read, if their processes' do not tell that they have not run, as often as
// is due.
func (e *engine) lookAtSleepers(n int64, late time.Duration) {
	for i := 0; i < len(e.list); i++ {
		t := e.list[i]
		if t.blocked && t.proc.asleep.moved && t.seenAt < n && n >= t.next && !e.look(t, n, late) {
			i--
		}
	}
}

// look finds out what thread t does at tick n and acts on it. false: it is
// gone, and was dropped.
func (e *engine) look(t *thread, n int64, late time.Duration) bool {
	if t.noUserStack {
		e.acct.Add(NoUserStack, t.owed(n))
		t.done = n + 1
		return e.alive(t)
	}
	if !t.opened {
		e.openFiles(t)
	}
	if e.opt.Stop == StopAlways && t.seized && e.armAnyhow(t, n) {
		return true
	}
	var s procfs.Schedstat
	if t.blocked || e.opt.All {
		var err error
		if s, err = t.schedstat(e.buf[:]); err != nil {
			return e.lookFailed(t)
		}
	}
	if t.blocked {
		if s.Count == t.count {
			t.seenAt = n
			if e.wantsRegs(t) {
				e.creditIdle(t, n-1)
				t.asking = true
				t.stops++
				t.fb.Short.Store(false) // it tells of an older copy
				e.arm(t, n)
				return true
			}
			e.creditIdle(t, n)
			t.next = n + e.pace.gap(t.tid, n-t.since)
			return true
		}
		e.unsure(t, n-1, s.Run-t.idleRun)
		t.proc.asleep.stirred = n
		e.stirred(t)
		t.wakes()
		t.stack = false
	}
	call, err := t.syscall(e.buf[:])
	if err != nil {
		return e.lookFailed(t)
	}
	switch {
	case call.Running && e.onItsWay(t):
		e.lose(t, n, Unsure)
	case call.Running:
		e.arm(t, n)
	case call.SP == 0 && call.PC == 0:
		return e.exiting(t, n)
	case e.opt.All && t.again && call.SP == t.wait.SP && call.PC == t.wait.PC:
		e.backAgain(t, n, s)
	case e.opt.All:
		e.peek(t, n, s.Count, call, late)
	default:
		e.nowIdle(t, n)
	}
	return true
}

// armAnyhow marks a thread for an interrupt, blocked or not, if that does no harm.
func (e *engine) armAnyhow(t *thread, n int64) bool {
	call, err := t.syscall(e.buf[:])
	if err != nil || call.Running && e.onItsWay(t) ||
		!call.Running && !e.opt.mayStop(e.fs, t.proc.pid, t.tid, call.NR, &call.Args) {
		return false
	}
	e.arm(t, n)
	return true
}

// onItsWay tells whether a thread that runs may be on its way back to a wait that was
// begun anew.
func (e *engine) onItsWay(t *thread) bool {
	if t.anew == (again{}) {
		return false
	}
	s, err := t.schedstat(e.buf[:])
	return err == nil && t.anew.lasts(s)
}

// unsure accounts for the ticks up to n of a thread that has run at some time
// since its last look, for so long. In those in which the process's clock stood it
// was not that thread either.
func (e *engine) unsure(t *thread, n int64, ran time.Duration) {
	lag := int64(min(ran, counterLag)) / e.interval
	if sure := min(t.proc.asleep.sureOf(t)-lag, n); sure >= t.done {
		e.creditIdle(t, sure)
	}
	e.acct.Add(Unsure, t.owed(n))
	t.done = n + 1
}

// alive drops a thread whose files in /proc are gone.
func (e *engine) alive(t *thread) bool {
	if _, err := t.schedstat(e.buf[:]); err == unix.ESRCH {
		return e.lookFailed(t)
	}
	return true
}

// lookFailed handles a thread whose files could not be read: it has exited. A
// seized one stays until its exit is reported, so that it is reaped.
func (e *engine) lookFailed(t *thread) bool {
	if t.seized {
		e.settle(t, Exited)
		return true
	}
	e.note(ptrace.KindGone, t.tid)
	e.drop(t)
	return false
}

// exiting accounts for tick n of a thread that shows neither stack nor code: it
// has exited, and is not reaped yet.
func (e *engine) exiting(t *thread, n int64) bool {
	e.acct.Add(Exited, t.owed(n))
	t.done = n + 1
	return true
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
			e.arm(t, n)
			return
		}
	}
	if err == nil {
		t.sleeps(n, s)
	}
	e.acct.Add(Idle, t.owed(n))
	t.done = n + 1
}

// creditIdle accounts for the ticks up to n of a thread that has not run in
// all of them.
func (e *engine) creditIdle(t *thread, n int64) {
	owed := t.owed(n)
	t.done = n + 1
	if !t.stack {
		e.acct.Add(Idle, owed)
		return
	}
	if e.behind() {
		e.acct.Add(NoRoom, owed)
		return
	}
	e.acct.Add(Reused, owed)
	c := &capture.Credit{PID: t.proc.pid, TID: t.tid, At: e.at(ptrace.Now())}
	if e.opt.WallWeight {
		c.Ticks = owed
	}
	c.Wall = time.Duration(owed * e.interval)
	e.send(item{credit: c})
}

func (e *engine) elapsed() time.Duration { return time.Duration(ptrace.Now() - e.start) }

// at is a CLOCK_MONOTONIC time as captures tell it: since the pipeline's start.
func (e *engine) at(now int64) time.Duration { return time.Duration(now - e.origin) }

// peekTries bounds how often a thread that wakes while it is read is read again.
const peekTries = 3

// peek copies the stack of a blocked thread without a stop. The copy is of one
// instant if the thread was not put on a CPU between the two looks at its run
// count.
func (e *engine) peek(t *thread, n int64, count uint64, call procfs.Syscall, late time.Duration) {
	c := e.pool.get(t.fb.want(firstPeek), 0)
	if c == nil {
		e.lose(t, n, NoRoom)
		return
	}
	for range peekTries {
		c.Stack = c.Stack[:0]
		readStack(t.tid, call.SP, c, t.fb.Extent.Load(), t.proc.pages)
		if e.opt.Kernel {
			e.readKernel(t, c)
		}
		after, err := t.schedstat(e.buf[:])
		if err != nil {
			break
		}
		if after.Count == count {
			if t.tid == t.proc.pid && e.untold(t.proc) {
				break // another thread has called exec, and what was read is of that
			}
			e.peeked(t, n, c, after, call, late)
			return
		}
		count = after.Count
		if call, err = t.syscall(e.buf[:]); err != nil {
			break
		}
		if call.Running {
			e.pool.put(c)
			e.arm(t, n)
			return
		}
	}
	e.pool.put(c)
	e.lose(t, n, Unsure)
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
	if e.opt.Stop != StopAuto || !t.seized && !t.spared || !t.stack || t.count == 0 || t.refused == t.count {
		return false
	}
	if t.fb.NeedStop.Load() != t.count && !(t.stops > 0 && t.stops < maxStops && t.fb.Short.Load()) {
		return false
	}
	if t.fb.Foreign.Load() || !e.opt.mayStop(e.fs, t.proc.pid, t.tid, t.wait.NR, &t.wait.Args) {
		t.refused = t.count
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

func (e *engine) peeked(t *thread, n int64, c *capture.Capture, s procfs.Schedstat, call procfs.Syscall, late time.Duration) {
	t.sleeps(n, s)
	t.stack = true
	t.wait, t.again, t.stops = call, false, 0
	c.Taken, c.Blocked, c.Count = capture.Unstopped, true, s.Count
	c.Call = capture.Call{NR: call.NR, Args: call.Args, SP: call.SP, PC: call.PC}
	c.Delay, c.Pause, c.Late = 0, 0, late
	e.acct.Add(Sampled, t.owed(n))
	t.done = n + 1
	run := s.Run
	if call.NR == unix.SYS_EXECVE || call.NR == unix.SYS_EXECVEAT {
		// The caller has the leader's id, and so all that is read under it, a moment
		// before that is reported. What it has run for is charged later.
		run = t.run
	}
	e.emit(t, n, c, run)
}

// emit weighs a capture and sends it to the pipeline.
func (e *engine) emit(t *thread, n int64, c *capture.Capture, run time.Duration) {
	e.emitWith(t, n, c, run, e.readEarly(t))
}

// emitWith is emit with what was read early.
func (e *engine) emitWith(t *thread, n int64, c *capture.Capture, run time.Duration, early *early) {
	now := ptrace.Now()
	c.PID, c.TID, c.Tick, c.PACMask = t.proc.pid, t.tid, n, t.proc.pac
	c.At = e.at(now)
	c.CPU = max(run-t.run, 0)
	t.run = max(run, t.run)
	t.proc.charged += c.CPU
	c.Wall = time.Duration(e.interval)
	if e.opt.WallWeight {
		c.Ticks = 1
	} else {
		t.carry += c.CPU
		c.Ticks = max(0, (int64(t.carry)+e.interval/2)/e.interval)
		t.carry -= time.Duration(c.Ticks * e.interval)
	}
	t.last = now
	e.send(item{capture: c, fb: t.fb, early: early, program: t.proc.program})
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
	maps, _ := e.fs.RawMaps(t.tid) // if it ends already, its parent's must do
	comm, _ := os.ReadFile(e.fs.Path(p.pid, "comm"))
	return &early{maps, comm}
}

// lose accounts for tick n, and what is owed before it, as lost.
func (e *engine) lose(t *thread, n int64, c Class) {
	e.acct.Add(c, t.owed(n))
	t.done = n + 1
}

// listUntraced finds births and deaths where no tracing tells of them, now and then.
func (e *engine) listUntraced(n int64) {
	if n < e.listAt {
		return
	}
	e.listAt = n + relistTicks
	for _, p := range e.procs {
		if e.opt.Stop != StopNever && !e.untraced(p) {
			continue
		}
		ids, err := e.fs.TaskIDs(p.pid)
		if err != nil || e.ended(p, ids) {
			ids = nil
		}
		there := idSet(ids)
		for _, t := range slices.Clone(e.list) {
			if t.proc == p && !t.seized && !t.spared && !there[t.tid] {
				e.drop(t)
			}
		}
		for _, tid := range ids {
			if e.threads[tid] == nil && !e.unwanted(tid) {
				e.addThread(p, tid)
			}
		}
	}
}

// ended: of all threads only the leader is there, and it has exited. It stays
// until its parent has taken notice.
func (e *engine) ended(p *process, ids []int) bool {
	if len(ids) != 1 || ids[0] != p.pid {
		return false
	}
	s, err := e.fs.TaskStat(p.pid, p.pid)
	return err == nil && (s.State == 'Z' || s.State == 'X')
}

// untraced: some thread of the process is somebody else's tracee.
func (e *engine) untraced(p *process) bool {
	for _, t := range e.list {
		if t.proc == p && !t.seized && !t.spared && !t.noUserStack {
			return true
		}
	}
	return false
}
