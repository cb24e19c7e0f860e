package sampler

// The coordinator's looks at threads: who is blocked, who may run and where, what may be read without a stop.

import (
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/watch"
)

// lookout finds out what threads do that no clock has met, and reads those that are blocked. It stops nobody: what is read of a
// thread counts only if its run count is the same after as before.
type lookout struct {
	opt     *Options
	said    *notices
	ticks   *ticks
	pulse   *pulse
	files   *files
	listing *listing
	bank    *clocks.Bank
	roster  *roster
	news    *news
	acct    *accounts
	book    *ledger.Book
	load    *load
	pace    watch.Pace
	afar    afar
	reader  reader
}

// boardTicks is how long a thread that was found blocked stays on the board: one that wakes often is
// there when it does.
const boardTicks = 16

// While there are few threads on the board they stay for longer: clocks look at each that may have run.
const (
	fewListed = 64
	// seldomListed is that for an agent whose clocks have witnesses: who is not there calls it.
	seldomListed = 256
	boardStay    = time.Second
	// seldomStay is that where looks are seldom: who is not there is sampled after the next one only.
	seldomStay = time.Minute
)

// cpus is how many CPUs the machine has (proc_stat(5)).
var cpus = sync.OnceValue(func() (n int) {
	b, err := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(b)) {
		if len(line) > 3 && line[:3] == "cpu" && line[3] != ' ' {
			n++
		}
	}
	if err != nil || n == 0 {
		return math.MaxInt
	}
	return n
})

// peekTries bounds how often a thread that wakes while it is read is read again.
const peekTries = 3

// maxStops bounds how often one wait is stopped. Each time more is copied, so that
// this is enough for the largest copy.
const maxStops = 6

// choose looks at the threads that are due at tick n, and
// reads those that do not run where that is wanted. quiet: nothing has run since the
// last tick, so that there was nothing to look at.
func (l *lookout) choose(n int64) (quiet bool) {
	quiet = true
	l.pace.Begin(l.ticks.interval)
	l.acct.pace(n)
	l.readClocks(n, (*watch.Process).Begin)
	asks := l.reader.pool.asks.Swap(false)
	for i := 0; i < len(l.roster.list); i++ {
		t := l.roster.list[i]
		l.listing.advise(t)
		if t.req.asking {
			quiet = false
			if t.slot >= 0 && (n <= t.req.asked+1 || l.listing.board.Asked(t.slot) >= t.req.asked) {
				continue // its ticks are accounted for when it stops
			}
			t.req.asking = false // it could not be asked
		}
		if n < t.queue.due && (t.slot < 0 || l.listing.board.Met(t.slot, n) <= clocks.Sampled) {
			quiet = false
			continue // its times tell of these ticks later
		}
		if t.watch.Asleep() && l.opt.Stop != StopAlways && !t.watch.Due(&t.proc.watch, t.tid, n) && !(asks && l.wantsRegs(t)) {
			continue // credited at a later look
		}
		quiet = false
		if !l.look(t, n) { // it has exited
			i--
		}
	}
	l.readClocks(n, (*watch.Process).Again)
	if l.roster.stirs(n, &quiet) {
		l.lookAtSleepers(n)
	}
	return quiet
}

// lookAtSleepers looks at the blocked threads that were left out before the clocks
// were read, if their processes' do not tell that they have not run, as often as
// is due.
func (l *lookout) lookAtSleepers(n int64) {
	for i := 0; i < len(l.roster.list); i++ {
		t := l.roster.list[i]
		if t.watch.DueAgain(&t.proc.watch, n) && !l.look(t, n) {
			i--
		}
	}
}

// look finds out what thread t does at tick n and acts on it. false: it is
// gone, and was dropped.
func (l *lookout) look(t *thread, n int64) bool {
	l.pulse.works()
	if t.noUserStack {
		l.book.Give(&t.line, n, ledger.NoUserStack)
		return l.alive(t)
	}
	met := func() bool { return l.book.Owed(&t.line, n) == 0 }
	if l.opt.Stop != StopAlways && !t.watch.Asleep() && met() {
		return true
	}
	s, err := l.files.schedstat(t)
	if err != nil {
		return l.lookFailed(t, err)
	}
	if l.opt.Stop == StopAlways && l.askAnyhow(t, n, s) {
		return true
	}
	if t.watch.Asleep() {
		if t.watch.Same(s.Count) {
			return l.sleepsOn(t, n)
		}
		l.acct.unsure(t, n, s.Run)
		t.stack, t.queue.waited = false, s.Wait
		l.stirred(t, n)
	}
	if met() {
		return true
	}
	if t.queue.found.same(s) {
		l.runs(t, n)
		return true
	}
	t.queue.found = found{count: s.Count, run: s.Run}
	call, err := l.files.syscall(t)
	if err != nil {
		return l.lookFailed(t, err)
	}
	switch {
	case call.Running:
		l.runs(t, n)
		return true
	case call.SP == 0 && call.PC == 0: // it has exited, and is not reaped yet
		l.acct.settle(t, n-1, s.Wait, l.acct.unmet(t))
		l.book.Give(&t.line, n, ledger.Exited)
		return l.reapable(t)
	case l.stands(t, n):
		l.runs(t, n)
		return true
	}
	if !t.watch.Still(s.Count, s.Run) {
		l.acct.settleBy(t, n-1, timesOf(s))
	}
	switch {
	case l.opt.All && t.req.again && call.SP == t.req.wait.SP && call.PC == t.req.wait.PC:
		l.backAgain(t, n, s)
	case l.opt.All:
		l.peek(t, n, s.Count, call)
	default:
		l.nowIdle(t, n, s)
	}
	return true
}

// stands tells whether a thread that was found not to run is stopped for us, or was let go since: at a clock's tick it ran.
func (l *lookout) stands(t *thread, n int64) bool {
	asked := l.listing.asked(t, n)
	if !asked && !l.news.keeping.on() && (t.slot < 0 || !l.listing.board.Holds(t.slot, n)) {
		return false
	}
	st, err := l.files.stat(t)
	if err != nil || st.State != 't' {
		return err == nil && asked && st.State == 'R'
	}
	s, err := proc.Status(t.tid)
	return err == nil && ours(s.TracerPid)
}

// sleepsOn goes on with a wait in which nothing has changed.
func (l *lookout) sleepsOn(t *thread, n int64) bool {
	t.watch.SleepsOn(n, l.pace.Gap(t.tid, t.watch.Waited(n)))
	if l.wantsRegs(t) {
		l.acct.creditIdle(t, n-1)
		l.askRegs(t)
		return true
	}
	l.acct.creditIdle(t, l.acct.settled(t, n))
	stay := boardStay
	if l.opt.Budget.Seldom {
		stay = seldomStay
	}
	if w := t.watch.Waited(n); w > boardTicks && (l.listing.n > l.few() || w*l.ticks.interval > int64(stay)) {
		l.listing.leave(t)
	}
	return true
}

// few is how many threads on the board are few.
func (l *lookout) few() int {
	if l.opt.Budget.Seldom && l.bank.Witnessed() {
		return seldomListed
	}
	return fewListed
}

// stirred has clocks find a thread the next time that it runs, if it sleeps by now: it may never be seen to run otherwise.
func (l *lookout) stirred(t *thread, n int64) {
	if l.listing.n >= l.few() || t.slot >= 0 && l.bank.Everywhere(cpus(), n) {
		return
	}
	st, err := l.files.stat(t)
	if err != nil {
		return
	}
	l.listing.awake(t, st.Processor)
	if t.slot >= 0 {
		l.bank.Need(st.Processor, n)
	}
}

// askRegs asks for a stop of a blocked thread.
func (l *lookout) askRegs(t *thread) {
	a := t.fb.Get()
	a.Short = false // it tells of an older copy
	t.fb.Set(a)
	l.listing.awake(t, -1)
	l.listing.advise(t)
	if l.listing.ask(t) {
		t.req.stops++
	}
}

// askAnyhow asks for a stop of a blocked thread at tick n, as every thread is to be stopped, if that
// does no harm. s is how it has run.
func (l *lookout) askAnyhow(t *thread, n int64, s procfs.Schedstat) bool {
	if s.Count != 0 && t.req.untouched == s.Count {
		return false
	}
	call, err := l.files.syscall(t)
	if err != nil || call.Running || !l.opt.mayStop(proc, t.proc.pid, t.tid, call.NR, &call.Args) {
		return false
	}
	if t.req.again && call.SP == t.req.wait.SP && call.PC == t.req.wait.PC && drifts(call.NR, &call.Args) {
		t.req.again, t.req.untouched = l.opt.All, s.Count // once is enough: what the stop has shown stands
		return false
	}
	l.listing.awake(t, -1)
	if !l.listing.ask(t) {
		return false
	}
	if t.watch.Asleep() {
		l.acct.creditIdle(t, n-1)
	} else {
		l.acct.settle(t, n-1, s.Wait, l.acct.unmet(t))
	}
	t.req.wait = call
	return true
}

// runs handles a thread that runs or waits for a CPU at tick n and was not met there so far.
func (l *lookout) runs(t *thread, n int64) {
	if l.opt.Stop == StopNever {
		l.book.Give(&t.line, n, ledger.Untraced)
		return
	}
	if t.slot >= 0 {
		met := l.listing.board.Met(t.slot, n)
		if met > clocks.Sampled {
			l.listing.restless = n
		}
		switch met {
		case clocks.Sampled:
			return
		case clocks.Lost:
			l.book.Give(&t.line, n, ledger.NoRoom)
			return
		case clocks.Refused:
			l.refuse(t, n)
			return
		case clocks.Execs:
			l.said.warn("process %d was in an execve that did not end for 10 ms or more: its threads could not be stopped then (try: cat /proc/%d/stack)", t.proc.pid, t.proc.pid)
			l.book.Give(&t.line, n, ledger.NotStopped)
			return
		case clocks.InCall:
			l.book.Give(&t.line, n, ledger.InCall)
			return
		}
	}
	if !l.load.both.Answers(n) {
		switch {
		case l.listing.asked(t, n):
		case l.opt.All || t.slot < 0 || t.queue.homeless > 0:
			l.book.Give(&t.line, n, ledger.Throttled)
		case t.queue.found.known: // it waits, or its times are to tell
			l.acct.waitsOn(t, n)
		}
		return
	}
	at := &t.queue.found
	if !l.place(t, at) {
		return // its end is found out at the next look
	}
	cpu := at.cpu
	if at.realTime {
		cpu = -1
	}
	l.listing.awake(t, cpu)
	if !l.opt.test.uncounted && cpu >= 0 && l.bank.Need(cpu, n) {
		t.queue.homeless = 0
		l.acct.waitsOn(t, n)
		return
	}
	t.queue.homeless++
	l.listing.restless = n
	if t.slot >= 0 && t.advice != t.fb.state() {
		return // the board cannot be told what is known by now while it is asked for at each tick
	}
	if l.opt.test.uncounted {
		l.bank.AskRunning(t.slot)
	} else if t.slot >= 0 && (cpu < 0 || l.bank.Away(cpu, n)) {
		l.afar.note(l.said.warn, t.proc.pid, at.cpu, at.realTime)
		l.bank.AskRunning(t.slot)
	}
}

// place fills in where a thread is that was found to run, or to wait for a CPU. false: that is not to be had.
func (l *lookout) place(t *thread, f *found) bool {
	if f.known {
		return true
	}
	st, err := l.files.stat(t)
	if err != nil {
		return false
	}
	f.known = st.State == 'R' && !l.opt.test.uncounted // else its times do not tell whether it runs on
	f.cpu, f.realTime = st.Processor, st.RealTime
	return true
}

// refuse handles a thread that may not be stopped.
func (l *lookout) refuse(t *thread, n int64) {
	s, err := proc.Status(t.tid)
	class := ledger.Untraced
	switch {
	case err != nil || s.State == 'Z' || s.State == 'X':
		class = ledger.Exited
	case ours(s.TracerPid): // it was asked by the id that it had before an exec
		class = ledger.NotStopped
	case s.TracerPid != 0:
		l.said.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", t.tid, s.TracerPid)
	default:
		l.said.warn("threads of process %d may not be traced any more: running ones are not sampled (%s)", t.proc.pid, Remedy(t.proc.pid))
	}
	l.book.Give(&t.line, n, class)
}

// ours tells whether a thread is of this program.
func ours(tid int) bool {
	s, err := proc.Status(tid)
	return tid != 0 && err == nil && s.Tgid == os.Getpid()
}

// alive drops a thread whose files in /proc are gone.
func (l *lookout) alive(t *thread) bool {
	if _, err := l.files.schedstat(t); err == unix.ESRCH {
		return l.lookFailed(t, err)
	}
	return true
}

// reapable drops a thread that is a zombie: only a leader stays one, until its process is reaped.
func (l *lookout) reapable(t *thread) bool {
	if l.news.keeping.on() || t.tid == t.proc.pid && !l.news.ended(t.proc) {
		return true
	}
	l.news.drop(t)
	return false
}

// lookFailed handles a thread whose files could not be read: it has exited, unless it is we who can
// open no file.
func (l *lookout) lookFailed(t *thread, err error) bool {
	if l.files.failed(err) {
		return true
	}
	if l.news.keeping.on() { // which tells when that has taken its end
		l.book.Give(&t.line, l.book.Tick(), ledger.Exited)
		return true
	}
	l.news.drop(t)
	return false
}

// nowIdle begins a wait of a thread that was found blocked, after s was read, when blocked threads are not sampled.
func (l *lookout) nowIdle(t *thread, n int64, s procfs.Schedstat) {
	l.sleeps(t, n, s)
	l.book.Give(&t.line, l.acct.settled(t, n), ledger.Idle)
}

// sleeps begins a wait of a thread that was found blocked at tick n after s was read, and returns the tick from which it is known
// to be in it: that, or the first that it owes, if it has not run since it was found.
func (l *lookout) sleeps(t *thread, n int64, s procfs.Schedstat) (from int64) {
	if !t.watch.Still(s.Count, s.Run) {
		t.sleeps(n, s)
		return n
	}
	from = n + 1 - max(1, l.book.Owed(&t.line, n))
	t.sleeps(from-1, s) // it was found before that tick
	t.watch.SleepsOn(n, 1)
	return from
}

// wasLate notes that ticks have passed while threads were looked at, at tick n: those found blocked may have run in
// them until then.
func (l *lookout) wasLate(n int64) {
	now := l.ticks.passed(ptrace.Now())
	if now <= n {
		return
	}
	for _, t := range l.roster.list {
		if t.watch.Asleep() && t.watch.Since() == n {
			t.late = now
		}
	}
}

// peek copies the stack of a blocked thread without a stop. The copy is of one
// instant if the thread was not put on a CPU between the two looks at its run
// count.
func (l *lookout) peek(t *thread, n int64, count uint64, call procfs.Syscall) {
	a := t.fb.Get()
	c := l.reader.get(&a)
	if c == nil {
		l.book.Give(&t.line, n, ledger.NoRoom)
		return
	}
	for range peekTries {
		l.reader.read(t, call.SP, &a.Advice, c, l.opt.Kernel)
		after, err := l.files.schedstat(t)
		if err != nil {
			break
		}
		if after.Count == count {
			if t.proc.replaced() {
				break // another thread has called exec, and what was read is of that
			}
			l.peeked(t, n, c, after, call)
			return
		}
		count = after.Count
		if call, err = l.files.syscall(t); err != nil {
			break
		}
		if call.Running || l.stands(t, n) {
			l.reader.pool.put(c)
			l.runs(t, n)
			return
		}
	}
	l.reader.pool.put(c)
	l.book.Give(&t.line, n, ledger.Unsure)
}

// wantsRegs tells whether a blocked thread is to be stopped for the registers that
// its stack takes to unwind: only if that does no harm. Once is enough, unless
// the copy made at that stop was too small.
func (l *lookout) wantsRegs(t *thread) bool {
	if l.opt.Stop != StopAuto || !t.stack || t.watch.Count() == 0 || t.req.untouched == t.watch.Count() {
		return false
	}
	a := t.fb.Get()
	if a.NeedStop != t.watch.Count() && !(t.req.stops > 0 && t.req.stops < maxStops && a.Short) {
		return false
	}
	if a.Foreign || !l.opt.mayStop(proc, t.proc.pid, t.tid, t.req.wait.NR, &t.req.wait.Args) {
		t.req.untouched = t.watch.Count()
		return false
	}
	return true
}

// backAgain goes on with a wait that our own stop has interrupted: the thread is
// where it was, so the stack that was taken at the stop stands. s was read before
// that was seen.
func (l *lookout) backAgain(t *thread, n int64, s procfs.Schedstat) {
	t.req.again = false
	t.sleeps(n, s)
	t.stack = true
	l.acct.creditIdle(t, n)
	if l.wantsRegs(t) { // that may have been found out on the way
		l.reader.pool.asks.Store(true)
	}
}

func (l *lookout) peeked(t *thread, n int64, c *capture.Capture, s procfs.Schedstat, call procfs.Syscall) {
	if !t.watch.Still(s.Count, s.Run) {
		l.acct.settleBy(t, n-1, timesOf(s)) // it has run while it was read
	}
	from := l.sleeps(t, n, s)
	t.stack = true
	t.req.wait, t.req.again, t.req.stops = call, false, 0
	c.Taken, c.Blocked, c.Count = capture.Unstopped, true, s.Count
	c.Regs.Call = capture.Call{NR: call.NR, Args: call.Args, SP: call.SP, PC: call.PC}
	l.book.Give(&t.line, from, ledger.Sampled)
	run := s.Run
	if call.NR == unix.SYS_EXECVE || call.NR == unix.SYS_EXECVEAT {
		// The caller has the leader's id, and so all that is read under it, a moment
		// before that is reported. What it has run for is charged later.
		run = t.line.Run()
	}
	l.acct.emit(t, from, c, run, ptrace.Now())
	if from < n {
		l.acct.creditIdle(t, l.acct.settled(t, n)) // the stack was the same then
	}
}
