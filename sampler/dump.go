package sampler

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/runtimes"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// ThreadDump is what a dump shows of one thread.
type ThreadDump struct {
	PID, TID      int
	Process, Name string
	State         byte   // letter of /proc/PID/stat
	Call          string // system call that it sits in, empty if in none
	NR            int64
	Args          [6]uint64
	Taken         string // "stop", "no stop", or why there is no stack
	Stack         *output.Stack
	Stopped       bool // by a stopping signal or a tracer, not by us

	fb    *Feedback
	stack *stack
	// unseen: its interpreter runs a script on it, of which nothing was copied, as it was not known where that is.
	unseen bool
}

// CannotRead is the beginning of [ThreadDump.Taken] for a thread that has gone
// or that we may not read.
const CannotRead = "cannot be read"

// stopsAtMost bounds the time that a dump waits for stops, each time.
const stopsAtMost = 60 * time.Millisecond

// Dumped is what a dump shows.
type Dumped struct {
	Threads []*ThreadDump
	Go      []*GoProcess            // those of the processes that are Go programs
	Locks   map[int]*runtimes.Locks // of the processes that keep locks without the kernel
	// Withheld are the processes of which a page did not come: what would have been read after that is not known.
	Withheld []int
}

// Dump takes the stack of every thread of the processes of opt once. Blocked
// threads are read without a stop; one that runs is stopped, and one that is
// blocked in a call that goes on unharmed, if its stack cannot be unwound
// without its registers, and let go before it is unwound; who is in the midst of a system call that a stop would cut short is not, where that can be seen. It waits for no thread that does not stop, and for a second for a process whose
// threads cannot be seized. A copy that hangs, as a page is not brought, is given up after half a second: nothing more is copied of that
// process, and its threads go on. Of Go programs it takes the goroutines that
// no thread runs, unless only some threads are asked for.
func Dump(opt Options, pipe *Pipeline) (*Dumped, error) {
	defer pipe.targets.closeAll()
	var d *dumper
	var err error
	for try := range execTries {
		if try > 0 {
			time.Sleep(execPause)
		}
		d = &dumper{opt: opt, pipe: pipe, pages: map[int]procfs.Pagemap{}, kernels: map[int]*wary{}, bufs: make([]taking.Buffer, procfs.Parts())}
		if err = d.run(); err != nil || !d.missed() {
			break
		}
	}
	if opt.Hooks.Released != nil {
		opt.Hooks.Released()
	}
	if err != nil {
		return nil, err
	}
	for _, t := range d.threads {
		if t.stack != nil {
			t.Stack = pipe.cfg.Names.stack(t.stack)
		}
	}
	dumped := &Dumped{Threads: d.threads, Locks: pipe.targets.locks(opt.PIDs)}
	for _, pid := range opt.PIDs {
		if k := d.kernels[pid]; k != nil && k.mem.Stuck() {
			dumped.Withheld = append(dumped.Withheld, pid)
		}
	}
	if len(opt.TIDs) == 0 {
		dumped.Go = pipe.goroutines(opt.PIDs)
	}
	if opt.Kernel {
		d.addKernels()
	}
	return dumped, nil
}

// A process that is in the midst of an exec, with all threads gone or none that its user may read, is looked at again so often, after so long.
const (
	execTries = 20
	execPause = 10 * time.Millisecond
)

// Unread tells whether nothing could be read of any thread.
func Unread(threads []*ThreadDump) bool {
	return !slices.ContainsFunc(threads, func(t *ThreadDump) bool { return !strings.HasPrefix(t.Taken, CannotRead) })
}

// missed tells whether nothing could be read, and an exec may be why: nothing forbids it, or the main thread has exited, as
// it has when another thread calls exec.
func (d *dumper) missed() bool {
	if !Unread(d.threads) {
		return false
	}
	return !slices.ContainsFunc(d.opt.PIDs, func(pid int) bool {
		p := d.fs.Permission(pid)
		return !p.Zombie && (p.Capable || p.Remedy() != "")
	})
}

// dumper is a dump under way.
type dumper struct {
	opt     Options
	pipe    *Pipeline
	fs      procfs.FS
	threads []*ThreadDump
	pages   map[int]procfs.Pagemap // by process
	kernels map[int]*wary          // by process
	bufs    []taking.Buffer        // of the captures at hand, one for each part of procfs.Split
	peeked  []peeked               // of one process
	blocked bool                   // a thread that ran has blocked before its stop
	starved clocks.CPUs            // where threads of higher priority leave no time for a look

	mu    sync.Mutex    // of what tracers fill in
	buf   taking.Buffer // of the capture at hand
	any   bool          // threads of a process were seized
	taken []peeked      // of one process
	hung  map[int]bool  // processes whose threads cannot be seized
}

// tracer is an OS thread that traces threads of one process. Its end lets go of those that have not stopped.
type tracer struct {
	d      *dumper
	alarm  *ptrace.Alarm
	seized map[int]*ThreadDump // asked for their stops, and not yet reported
}

// peeked is the capture of a thread that is to be unwound.
type peeked struct {
	t *ThreadDump
	c *capture.Capture
}

// A look at the objects of a process costs more the more threads it has (do_task_stat, fs/proc/array.c, sums up the times of
// all). One serves all captures before it: those of a time, and as many.
const (
	betweenLooks = closeLooks / 3
	maxPeeked    = 64
)

// openPagemap opens that of a process, -1 if there is none. A leader that has exited has none, or, before Linux 6.16, an empty one.
func openPagemap(fs procfs.FS, pid int) procfs.Pagemap {
	pages := fs.OpenPagemap(pid)
	if pages >= 0 && !pages.Gone() {
		return pages
	}
	pages.Close()
	tid, err := fs.LiveTask(pid)
	if err != nil {
		return -1
	}
	return fs.OpenPagemap(tid)
}

func (d *dumper) run() error {
	for _, pid := range d.opt.PIDs {
		ids, err := d.fs.TaskIDs(pid)
		if err != nil && procfs.Gone(err) && len(d.opt.PIDs) > 1 {
			continue // the others are there
		}
		if err != nil {
			return fmt.Errorf("dump %d: %w", pid, err)
		}
		d.pipe.targets.of(pid).past.once = true
		d.pages[pid] = openPagemap(d.fs, pid)
		d.kernels[pid] = &wary{pages: d.pages[pid]}
		defer d.pages[pid].Close()
		slices.Sort(ids)
		if len(d.opt.TIDs) > 0 {
			ids = slices.DeleteFunc(ids, func(tid int) bool { return !slices.Contains(d.opt.TIDs, tid) })
		}
		for some := range slices.Chunk(ids, maxPeeked) {
			d.lookAt(pid, some)
		}
		d.unwindPeeked()
	}
	d.stop(d.wantsStop)
	if d.blocked { // of these, some may show no more than a stop lets them
		d.stop(d.wantsStop)
	}
	for range stopsAgain {
		if !d.stop(d.wantsMore) {
			break
		}
	}
	return nil
}

// stopsAgain bounds how often a thread is stopped once more. Each time the copy
// has four times the size, and the walk knows what the last one came to.
const stopsAgain = 5

// wantsMore tells whether a thread was stopped, and goes on with a stack of which
// more should have been copied, its script's part too, or by which objects its code is of. It may be blocked by now.
func (d *dumper) wantsMore(t *ThreadDump) bool {
	if t.Taken != capture.Stopped.String() || t.stack == nil || !t.unseen && !slices.Contains([]string{unwind.OutsideCopy.String(), codeChanged, scriptCut}, t.stack.end) {
		return false
	}
	if t.State == 'T' {
		return true
	}
	call, err := d.fs.Task(t.PID, t.TID).Syscall()
	if err != nil {
		return false
	}
	a := t.fb.Get()
	return call.Running || !a.Foreign && d.opt.mayStop(d.fs, t.PID, t.TID, call.NR, &call.Args)
}

// look reads what can be read of a thread without a stop.
func (d *dumper) look(pid, tid int) {
	st, err := d.fs.Task(pid, tid).Stat()
	if err != nil {
		return // it has exited
	}
	t := &ThreadDump{PID: pid, TID: tid, Name: st.Comm, State: st.State, NR: -1, fb: new(Feedback)}
	t.Stopped = st.State == 'T' || st.State == 't'
	target := d.pipe.targets.of(pid)
	d.pipe.walks.attest(target, d.now()-betweenLooks)
	if target.past.marked.shared == nil {
		target.past.marked.shared = new(atomic.Pointer[taking.Marks])
	}
	t.fb.marks = target.past.marked.shared
	target.expect(t.fb)
	t.Process = target.name
	d.threads = append(d.threads, t)
	switch {
	case st.NoUserStack():
		t.Taken = "a worker of the kernel, it has no user stack"
		return
	case st.State == 'Z' || st.State == 'X':
		t.Taken = "exited"
		return
	}
	if c := d.peek(t); c != nil {
		d.keep(t, c)
	}
}

// lookAt looks at threads of a process: at once at those that the caller has just looked at, with what it has read.
func (d *dumper) lookAt(pid int, tids []int) {
	again := make([]peeked, len(tids)) // no capture: it has run since, or nothing was read
	if d.opt.Hooks.Looked != nil {
		d.pipe.walks.attest(d.pipe.targets.of(pid), d.now()-betweenLooks)
		procfs.Split(len(tids), func(part, from, to int) {
			for i := from; i < to; i++ {
				again[i] = d.lookAgain(pid, tids[i], &d.bufs[part])
			}
		})
	}
	for i, p := range again {
		if p.c == nil {
			d.look(pid, tids[i])
			continue
		}
		p.t.Process = d.pipe.targets.of(pid).name
		d.threads = append(d.threads, p.t)
		d.keep(p.t, p.c)
	}
}

// lookAgain takes what the caller has just read of a thread, and reads the rest. It may run beside itself.
func (d *dumper) lookAgain(pid, tid int, buf *taking.Buffer) peeked {
	l := d.opt.Hooks.Looked(tid)
	if l == nil {
		return peeked{}
	}
	t := &ThreadDump{PID: pid, TID: tid, Name: l.Name, State: l.State, fb: new(Feedback)}
	c := d.pipe.pool.get(firstPeek, 0)
	if c == nil || !d.capture(t, c, buf, l.Sched, l.Call, l.Files.Schedstat) {
		return peeked{}
	}
	return peeked{t, c}
}

// keep keeps a capture until it is unwound.
func (d *dumper) keep(t *ThreadDump, c *capture.Capture) {
	d.peeked = append(d.peeked, peeked{t, c})
	if len(d.peeked) == maxPeeked || c.At-d.peeked[0].c.At > betweenLooks {
		d.unwindPeeked()
	}
}

// unwindPeeked unwinds what was captured of blocked threads.
func (d *dumper) unwindPeeked() {
	d.unwind(d.peeked)
	d.peeked = d.peeked[:0]
}

// unwind unwinds captures of one process, and keeps the stacks.
func (d *dumper) unwind(list []peeked) {
	for _, p := range list {
		d.pipe.walks.attest(d.pipe.targets.of(p.t.PID), list[len(list)-1].c.At)
		d.walk(p.t, p.c)
	}
}

// peek copies the stack of a thread that does not run. nil: it runs, or cannot
// be read.
func (d *dumper) peek(t *ThreadDump) *capture.Capture {
	task := d.fs.Task(t.PID, t.TID)
	for range peekTries {
		before, err := task.Schedstat()
		call, callErr := task.Syscall()
		if err != nil || callErr != nil {
			t.Taken = CannotRead
			if callErr != nil && d.fs.Permission(t.PID).Remedy() != "" {
				t.Taken += ": " + d.fs.Permission(t.PID).Remedy()
			}
			return nil
		}
		if call.Running {
			t.Taken = itRuns
			return nil
		}
		c := d.pipe.pool.get(firstPeek, 0)
		if c == nil {
			d.unwindPeeked()
			c = d.pipe.pool.get(firstPeek, 0)
		}
		if c == nil {
			t.NR, t.Args, t.Taken = call.NR, call.Args, noRoom
			return nil
		}
		if d.capture(t, c, &d.bufs[0], before, call, task.Schedstat) {
			return c
		}
	}
	t.Taken = itRuns
	return nil
}

// What is said of a thread that could not be read without a stop.
const (
	itRuns = "running"
	inCall = "running, in a system call that a stop would cut short"
	noRoom = "no room"
)

// capture copies the stack of a thread that was blocked in a call to c. false: it has run since, c is given back.
func (d *dumper) capture(t *ThreadDump, c *capture.Capture, buf *taking.Buffer, before procfs.Schedstat, call procfs.Syscall, again func() (procfs.Schedstat, error)) bool {
	t.NR, t.Args = call.NR, call.Args
	a := t.fb.Get()
	taking.Peek(d.kernels[t.PID], t.TID, call.SP, &a.Advice, c, int(d.pages[t.PID]), buf)
	after, err := again()
	if err == nil && after.Count == before.Count && after.Count > 0 {
		c.Taken, c.Blocked, c.Count = capture.Unstopped, true, after.Count
		c.Regs.Call = capture.Call{NR: call.NR, Args: call.Args, SP: call.SP, PC: call.PC}
		c.PID, c.TID, c.At = t.PID, t.TID, d.now()
		return true
	}
	d.pipe.pool.put(c)
	return false
}

// now is the time by the clock of captures.
func (d *dumper) now() time.Duration { return time.Since(d.pipe.cfg.Start) }

// walk walks a capture, and keeps the stack.
func (d *dumper) walk(t *ThreadDump, c *capture.Capture) {
	target := d.pipe.targets.of(t.PID)
	t.Taken = c.Taken.String()
	without := d.pipe.stats.Scripts.Unseen
	t.stack, _ = d.pipe.unwind(target, c, t.fb)
	if t.unseen = d.pipe.stats.Scripts.Unseen > without; t.unseen {
		_, runs := target.scripts.runtime.(runtimes.Anchored) // its loop is on the stack
		t.unseen = runs || len(target.thread(t.TID).script.roots) > 0
	}
	if t.NR >= 0 {
		t.Call = callName(target.arch(d.pipe.cfg.Host), t.NR)
	}
	d.pipe.pool.put(c)
}

// wantsStop tells whether a stop is needed to show the thread's stack, and does
// no harm.
func (d *dumper) wantsStop(t *ThreadDump) bool {
	a := t.fb.Get()
	partial := a.NeedStop != 0
	switch {
	case d.opt.Stop == StopNever:
		return false
	case t.Taken == itRuns:
		return true
	case t.Taken == capture.Stopped.String():
		return false
	case t.stack == nil || !partial && d.opt.Stop != StopAlways:
		return false
	case t.State == 'T':
		return true // it is stopped already
	}
	return t.State == 'S' && !a.Foreign && d.opt.mayStop(d.fs, t.PID, t.TID, t.NR, &t.Args)
}

// stop takes the stops of the threads that want one, process by process, and lets each go as it was. It returns whether there were any.
func (d *dumper) stop(wants func(*ThreadDump) bool) (any bool) {
	defer d.unwindPeeked()
	for _, pid := range d.opt.PIDs {
		d.pipe.walks.attest(d.pipe.targets.of(pid), d.now())
		var list []*ThreadDump
		for _, t := range d.threads {
			if t.PID == pid && !d.isHung(pid) && wants(t) {
				list = append(list, t)
			}
		}
		for n := 0; len(list) > 0; list = list[n:] {
			n = fitting(list)
			any = d.stopSome(pid, list[:n]) || any
			d.unwind(d.taken)
			d.taken = d.taken[:0]
		}
	}
	return any
}

// fitting is of how many threads captures may be under way at once.
func fitting(list []*ThreadDump) (n int) {
	for bytes := 0; n < min(len(list), maxPeeked); n++ {
		a := list[n].fb.Get()
		if bytes += max(firstCopy, a.Want) + a.Beyond; n > 0 && bytes > poolBytes/2 {
			break
		}
	}
	return n
}

// stopSome stops threads of a process, and lets each go when it is copied. Nobody is traced for longer, or a signal that the program ignores
// would stop a thread that nobody waits for. It returns whether any was seized.
func (d *dumper) stopSome(pid int, list []*ThreadDump) bool {
	d.kernels[pid].holds, d.any = true, false
	var run, others []*ThreadDump
	for _, t := range list {
		d.pipe.foreseeScript(t.PID, t.TID, t.fb)
		switch {
		case t.Taken != itRuns:
			others = append(others, t)
		case showsStacks():
			run = append(run, t)
		case !d.hasBlocked(t):
			others = append(others, t)
		}
	}
	if len(others) > 0 {
		<-d.trace(func(tr *tracer) { tr.seize(others...) })
	}
	d.stopRunning(run)
	return d.any
}

// stopRunning stops threads that run, but those in a system call that a stop would cut short: these are looked at for [stopsAtMost].
func (d *dumper) stopRunning(run []*ThreadDump) {
	var ends []<-chan struct{}
	for end := ptrace.Now() + int64(stopsAtMost); ; time.Sleep(lookAgain) {
		last := ptrace.Now() > end
		run = slices.DeleteFunc(run, func(t *ThreadDump) bool {
			if d.isHung(t.PID) || d.hasBlocked(t) {
				return true
			}
			done, ended := d.ask(t, last)
			ends = append(ends, ended)
			return done
		})
		if len(run) == 0 {
			break
		}
	}
	for _, ended := range ends {
		<-ended
	}
}

const (
	// lookAgain is how long a thread goes on before it is looked at again.
	lookAgain = time.Millisecond
	// lookAtMost is how long a look may wait for the CPU. It gets that at once, unless threads of higher priority have it.
	lookAtMost = 20 * time.Millisecond
)

// ask asks a thread for its stop, by a tracer of its own, which holds nobody while it looks. done: there is no need to look again. At last one that never
// leaves its CPU is asked, too.
func (d *dumper) ask(t *ThreadDump, last bool) (done bool, ended <-chan struct{}) {
	asker, answered := &clocks.Asker{Avoid: d.starved}, make(chan struct{})
	done = true // also if no alarm is to be had
	ended = d.trace(func(tr *tracer) {
		answer := asker.Ask(t.PID, t.TID, tr.alarm, d.opt.Budget.Nice)
		switch {
		case answer == clocks.Requested:
			tr.seized[t.TID] = t
		case answer == clocks.NoLook || answer == clocks.NotSeen && last:
			tr.seize(t)
			answer = clocks.Requested
		case answer == clocks.InMidst && last:
			t.Taken = inCall
		}
		done = last || answer != clocks.InMidst && answer != clocks.NotSeen
		close(answered)
	})
	late := time.NewTicker(lookAtMost)
	defer late.Stop()
	for {
		select {
		case <-answered:
			return done, ended
		case <-ended:
			return done, ended
		case <-late.C:
			d.starved.Add(asker.Free(lookAtMost))
		}
	}
}

// trace has a tracer ask threads for their stops and waits for these. ended is closed when it holds nobody any more.
func (d *dumper) trace(ask func(tr *tracer)) (ended <-chan struct{}) {
	return ptrace.OnThread(func() {
		alarm, err := ptrace.NewAlarm()
		if err != nil {
			return
		}
		defer alarm.Close()
		tr := &tracer{d, alarm, map[int]*ThreadDump{}}
		ask(tr)
		tr.await()
	})
}

// await waits for the threads that are asked for their stops.
func (tr *tracer) await() {
	begun, wait := ptrace.Now(), stopsAtMost
	for len(tr.seized) > 0 && wait > 0 {
		if !tr.handleFor(wait) {
			break
		}
		wait = 0
		if awaitsOne(tr.d.fs, tr.seized, time.Duration(ptrace.Now()-begun)) {
			wait = askEvery
		}
	}
	tr.d.mu.Lock()
	defer tr.d.mu.Unlock()
	for _, t := range tr.seized {
		if tr.d.any = true; t.stack == nil {
			t.Taken = "running, and did not stop in time"
		}
	}
}

// seizeWithin is how long a seize may wait for an exec.
const seizeWithin = time.Second

// seize seizes threads that are there and may be traced, and asks them for their stops when nobody has to be waited for any more.
func (tr *tracer) seize(list ...*ThreadDump) {
	for _, t := range list {
		tr.alarm.Set(ptrace.Now() + int64(seizeWithin))
		ended, err := ptrace.SeizeIn(t.PID, t.TID, 0)
		if err == nil {
			tr.seized[t.TID] = t
		}
		for _, s := range ended {
			tr.handle(s)
		}
		if err == unix.EINTR { // its process is in an exec that does not end
			tr.d.cannotSeize(t.PID)
			break
		}
	}
	for tid := range tr.seized {
		ptrace.Interrupt(tid)
	}
}

// cannotSeize notes that no thread of a process can be seized.
func (d *dumper) cannotSeize(pid int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung == nil {
		d.hung = map[int]bool{}
	}
	d.hung[pid] = true
	for _, t := range d.threads {
		if t.PID == pid && t.Taken == itRuns {
			t.Taken = "running, and cannot be stopped: the process is in an execve that does not end"
		}
	}
}

func (d *dumper) isHung(pid int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hung[pid]
}

// hasBlocked looks once more at a thread that ran, when its stop is about to be asked for: one that waits by now is
// not stopped, its capture is kept.
func (d *dumper) hasBlocked(t *ThreadDump) bool {
	c := d.peek(t)
	if c == nil {
		return t.Taken != itRuns
	}
	if st, err := d.fs.Task(t.PID, t.TID).Stat(); err == nil {
		t.State = st.State
	}
	d.peeked = append(d.peeked, peeked{t, c})
	d.blocked = true
	return true
}

// handleFor answers what is reported for so long. false: there is nobody to wait for.
func (tr *tracer) handleFor(wait time.Duration) bool {
	end := ptrace.Now() + int64(wait)
	tr.alarm.Set(end)
	for len(tr.seized) > 0 && ptrace.Now() < end {
		s, ok, err := ptrace.Wait()
		if err == unix.ECHILD {
			return false
		}
		if ok {
			tr.handle(s)
		}
	}
	return true
}

// awaitsOne tells whether one of these threads must not be let go before its stop.
func awaitsOne(fs procfs.FS, seized map[int]*ThreadDump, since time.Duration) bool {
	for _, t := range seized {
		if awaited(fs, t.PID, t.TID, since) {
			return true
		}
	}
	return false
}

func (tr *tracer) handle(s ptrace.Status) {
	t := tr.seized[s.TID]
	switch {
	case s.Kind == ptrace.KindGone:
		delete(tr.seized, s.TID)
	case t != nil && (s.Kind == ptrace.KindInterrupt || s.Kind == ptrace.KindGroupStop || s.Kind == ptrace.KindSignal):
		delete(tr.seized, s.TID)
		tr.d.sample(t, s)
	case s.Kind == ptrace.KindGroupStop:
		ptrace.Listen(s.TID)
	case s.Kind == ptrace.KindSignal:
		ptrace.Cont(s.TID, s.Signal)
	default:
		ptrace.Cont(s.TID, 0)
	}
}

func (d *dumper) sample(t *ThreadDump, s ptrace.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := t.fb.Get()
	c := d.pipe.pool.get(max(firstCopy, a.Want), a.Beyond)
	if c == nil {
		c = &capture.Capture{Regs: capture.Registers{Note: make([]byte, 0, regs.PrstatusMaxBytes)}, Stack: capture.Stack{Bytes: make([]byte, 0, minCopy)}}
	}
	b := &d.buf
	b.Use(c)
	a.Want = 0 // all that there is room for
	errno := taking.Take(d.kernels[t.PID], t.TID, &a.Advice, b, int(d.pages[t.PID]), taking.StoppedFor(s.Raw), d.opt.NoRestart)
	if errno == 0 {
		b.Fill(c)
	}
	c.Taken, c.PID, c.TID, c.At = capture.Stopped, t.PID, t.TID, d.now()
	// A group-stop lasts over a detach: it leaves the process as it was.
	sig := unix.Signal(0)
	if s.Kind == ptrace.KindSignal {
		sig = s.Signal
	}
	ptrace.Detach(t.TID, sig)
	if d.any = true; errno != 0 {
		d.pipe.pool.put(c)
		return
	}
	d.taken = append(d.taken, peeked{t, c})
}

// kernelOf is a stack that the kernel's part is put before.
type kernelOf struct {
	text string // of the kernel
	user *output.Stack
}

// addKernels puts the kernel's part of each stack before the user's, where the kernel shows it. Threads with the same of both have
// one stack.
func (d *dumper) addKernels() {
	texts := d.kernelTexts()
	known := map[kernelOf]*output.Stack{}
	for i, t := range d.threads {
		if texts[i] == "" {
			continue
		}
		k := kernelOf{texts[i], t.Stack}
		st, ok := known[k]
		if !ok {
			st = addKernel([]byte(k.text), t.Stack)
			known[k] = st
		}
		if st != nil {
			t.Stack = st
		}
	}
}

// kernelTexts reads the kernel's stacks of all threads, each text once. Empty: there is none.
func (d *dumper) kernelTexts() []string {
	texts := make([]string, len(d.threads))
	kept := d.fs.Keep(0)
	defer kept.Close()
	var mu sync.Mutex
	same := map[string]string{}
	procfs.Split(len(d.threads), func(_, from, to int) {
		var buf [8 << 10]byte
		for i := from; i < to; i++ {
			t := d.threads[i]
			if t.State == 'R' { // it has left the kernel by now
				continue
			}
			task := kept.Task(t.PID, t.TID)
			text, err := task.RawStack(buf[:])
			if err != nil {
				continue
			}
			mu.Lock()
			s, ok := same[string(text)]
			if !ok {
				s = string(text)
				same[s] = s
			}
			mu.Unlock()
			texts[i] = s
		}
	})
	return texts
}

// addKernel makes a stack with the kernel's part. nil: there is none.
func addKernel(text []byte, user *output.Stack) *output.Stack {
	frames, err := procfs.ParseStack(text)
	if err != nil || len(frames) == 0 {
		return nil
	}
	st := &output.Stack{}
	for _, f := range frames {
		st.Frames = append(st.Frames, output.Frame{Func: f.Func, Offset: f.Offset, Module: f.Module, Kernel: true})
	}
	if user != nil {
		st.End = user.End
		st.Frames = append(st.Frames, user.Frames...)
	}
	return st
}
