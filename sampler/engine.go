package sampler

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
	"sfsample/sampler/watch"
)

// engine is the coordinator: it knows the threads, keeps their account, puts those that may run on the
// board where clocks find them, reads those that are blocked, and hands what was taken to the
// pipeline. It stops nobody. All its fields belong to its goroutine, but for
// those that say otherwise.
type engine struct {
	opt   Options
	said  *notices
	out   *outlet
	ticks ticks
	pulse *pulse
	fs    procfs.FS
	files *files
	pool  *pool

	procs   map[int]*process
	threads map[int]*thread
	list    []*thread    // the same threads, in order of discovery
	wanted  map[int]bool // --tid

	book  *ledger.Book
	board *clocks.Board
	bank  *clocks.Bank
	slots []*thread     // by slot
	later []func() bool // what is to be tried again at the next tick until it is true
	calm  taking.Kernel
	peekB taking.Buffer // of the look at hand

	keeper   *clocks.Keeper // holds all threads, for --exit-stacks; nil: nobody does
	feedback sync.Map       // *Feedback by thread id, for the keeper
	programs sync.Map       // *program by process id, for the keeper
	exits    Exits

	delay, pause, took, met histogram
	round                   round
	moved                   int64 // samples that were not proven to be of the tick's moment
	seizes                  int64
	unseen                  time.Duration // CPU time of children that ended before they were seen
	waits                   int           // stops that had not come at the end
	afar                    afar
	listed                  int // threads on the board
	clocks                  int // CPUs that had a clock then
	load                    load
	dozing                  doze
	napping                 nap
	pace                    watch.Pace
	uncounted               bool // the kernel keeps no run counts

	exited chan struct{} // the keeper has news; room for one
	kernel []byte        // room for the kernel's part of a stack; nil: not needed yet
}

// Progress is a look at a running engine.
type Progress struct {
	Elapsed time.Duration
	Threads int
	Samples int64
	Lost    int64
	Pause   time.Duration // median so far
	Account ledger.Account
}

// listings bounds how often the threads of a process are listed until nothing is new.
const listings = 100

// attach begins to sample every thread of the process. Threads that appear meanwhile are
// found by listing again until nothing is new (two rounds were enough on a
// process that made thousands of threads a second).
func (e *engine) attach(pid int) error {
	p := e.addProcess(pid)
	if err := e.permitted(p); err != nil {
		return err
	}
	for range listings {
		fresh, err := e.relist(p, false)
		if err != nil {
			return fmt.Errorf("list the threads of %d: %w", pid, err)
		}
		// In the midst of an exec by another thread than the leader, all that is listed may have ended.
		if !fresh && (p.threads.Load() > 0 || len(e.wanted) > 0 || e.procs[pid] != p) {
			break
		}
	}
	return nil
}

// permitted tells whether the process may be traced. Files that ask for the same right (mm_access
// and lock_trace with PTRACE_MODE_ATTACH, fs/proc/base.c) tell that without a trace.
func (e *engine) permitted(p *process) error {
	if e.opt.Stop == StopNever {
		return nil
	}
	for {
		tid, err := e.fs.LiveTask(p.pid)
		if err != nil {
			return unix.ESRCH
		}
		if s, err := e.fs.Status(tid); err == nil && s.TracerPid != 0 && e.keeper == nil {
			e.said.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", tid, s.TracerPid)
		}
		_, err = e.fs.Syscall(p.pid, tid)
		var errno unix.Errno
		if !errors.As(err, &errno) || errno != unix.EACCES && errno != unix.EPERM {
			return nil
		}
		// The files of a thread that exits are root's: another one tells.
		if s, err := e.fs.Stat(tid); err == nil && s.Flags&procfs.FlagExiting == 0 {
			return unix.EPERM
		}
	}
}

func (e *engine) unwanted(tid int) bool { return len(e.wanted) > 0 && !e.wanted[tid] }

func (e *engine) addProcess(pid int) *process {
	if p := e.procs[pid]; p != nil {
		return p
	}
	p := &process{pid: pid, clock: cpuClock(pid), only: len(e.wanted) > 0, uncounted: e.uncounted, tasks: -1, pages: -1, program: new(program), brief: e.opt.ExitStacks}
	e.openProcess(p)
	p.cpuBase, _ = p.cpuTime()
	if s, err := e.fs.Stat(pid); err == nil && e.opt.Children {
		p.parent, p.children.base = s.PPID, s.Reaped
	}
	p.watch = watch.NewProcess(e.book.Tick(), e.ticks.times, p.cpuBase)
	e.procs[pid] = p
	v, _ := e.programs.LoadOrStore(pid, p.program)
	p.program = v.(*program)
	return p
}

// openProcess opens what is read of a process again and again, and belongs to its program of now.
func (e *engine) openProcess(p *process) {
	e.closeProcess(p) // the memory before an exec is another
	p.shares = false
	fd, err := unix.Open(e.fs.Path(p.pid, "task"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	p.tasks = fd
	p.pages = e.fs.OpenPagemap(p.pid)
	if p.pages < 0 || p.replaced() {
		p.pages.Close()
		if tid, err := e.fs.LiveTask(p.pid); err == nil { // the leader has exited
			p.pages = e.fs.OpenPagemap(tid)
		}
		if p.replaced() { // it has ended
			p.pages.Close()
			p.pages = -1
		}
	}
}

// addThread begins a thread that was found by listing. born: it has lived since the last
// listing only. false: it has exited.
func (e *engine) addThread(p *process, tid int, born bool) bool {
	e.pulse.works()
	t := &thread{tid: tid, proc: p, fb: new(Feedback), schedFD: -1, callFD: -1, statFD: -1, debugFD: -1, slot: -1}
	st, err := e.fs.TaskStat(p.pid, tid)
	if e.files.failed(err) || err != nil || st.State == 'Z' || st.State == 'X' {
		return false // or a leader that has exited while its process lives
	}
	t.noUserStack = st.NoUserStack()
	e.files.keep(t)
	s, err := e.files.schedstat(t)
	if err != nil {
		e.files.close(t)
		return false
	}
	t.waited = s.Wait
	run := s.Run
	if born {
		run = min(s.Run, p.ahead)
		p.ahead -= run
	}
	e.book.Open(&t.line, run)
	e.threads[t.tid] = t
	if e.keeper != nil {
		e.feedback.Store(tid, t.fb)
	}
	e.list = append(e.list, t)
	p.threads.Add(1)
	if st.State == 'R' {
		e.awake(t, st.Processor)
	}
	return true
}

// awake puts a thread on the board, where clocks find it, and sees to it that its CPU has one.
func (e *engine) awake(t *thread, cpu int) {
	if t.slot >= 0 || e.opt.Stop == StopNever || t.noUserStack {
		return
	}
	if !e.files.list(t) {
		return
	}
	a := t.fb.Get()
	t.slot = e.board.Put(clocks.Thread{TID: t.tid, PID: t.proc.pid, Sched: t.schedFD, Stat: t.statFD, Debug: t.debugFD,
		Call: t.callFD, Clock: t.proc.clock, Crowd: &t.proc.threads, Pages: int(t.proc.pages), Advice: a.Advice, Run: int64(t.line.Run())})
	if t.slot < 0 {
		e.leave(t)
		return
	}
	t.advice = t.fb.p.Load()
	e.listed++
	for len(e.slots) <= t.slot {
		e.slots = append(e.slots, nil)
	}
	e.slots[t.slot] = t
	if cpu >= 0 {
		e.bank.Need(cpu, e.book.Tick())
	}
}

// leave takes a thread off the board. false: a clock holds it just now.
func (e *engine) leave(t *thread) bool {
	if t.slot >= 0 {
		if !e.board.Remove(t.slot) {
			return false
		}
		e.slots[t.slot] = nil
		t.slot = -1
		e.listed--
	}
	e.files.unlist(t)
	return true
}

// drop takes a thread out that has exited, if that was not done before. Its ticks so
// far are accounted for.
func (e *engine) drop(t *thread) {
	i := slices.Index(e.list, t)
	if i < 0 {
		return
	}
	e.settle(t, e.book.Tick(), t.waited, ledger.Exited)
	t.watch.Wakes(&t.proc.watch)
	if e.leave(t) {
		e.files.close(t)
	} else {
		e.gone(t)
	}
	e.creditWaits(t)
	e.book.Close(&t.line, ledger.Exited)
	t.proc.watch.Forget() // nobody knows how long it ran
	if e.threads[t.tid] == t {
		delete(e.threads, t.tid)
	}
	e.list = slices.Delete(e.list, i, i+1)
	t.proc.threads.Add(-1)
	e.feedback.Delete(t.tid)
	if t.shown {
		e.out.send(item{left: left{t.proc.pid, t.tid}})
	}
	if e.opt.ended != nil {
		e.opt.ended(t.tid)
	}
	if e.keeper == nil && t.proc.threads.Load() == 0 && e.ended(t.proc) {
		e.dropProcess(t.proc)
	}
}

// gone closes the files of a thread that a clock still holds, when that has let go of it.
func (e *engine) gone(t *thread) {
	slot := t.slot
	t.proc.held++
	closeFiles := e.files.part(t)
	e.later = append(e.later, func() bool {
		if !e.board.Remove(slot) {
			return false
		}
		e.slots[slot] = nil
		t.proc.held--
		closeFiles()
		return true
	})
}

// settle accounts for the ticks that a thread on the board owes up to tick n, in which no clock has met it:
// those that it waited for a CPU, as far as the kernel's count of that goes, and others.
func (e *engine) settle(t *thread, n int64, waited time.Duration, c ledger.Class) {
	if w := int64(waited - t.waited); w > 0 && !t.watch.Asleep() {
		k := (w + e.ticks.interval/2) / e.ticks.interval
		if w >= t.runnable*e.ticks.interval/2 {
			k = max(k, t.runnable)
		}
		t.waits += e.book.GiveSome(&t.line, min(k, e.book.Owed(&t.line, n)), ledger.Waiting)
	}
	t.waited, t.runnable = waited, 0
	e.book.Give(&t.line, n, c)
}

func (e *engine) dropProcess(p *process) {
	if e.procs[p.pid] != p {
		return
	}
	delete(e.procs, p.pid)
	e.programs.Delete(p.pid)
	p.readCPU()
	e.chargeRest(p)
	e.endChild(p)
	e.closeProcess(p)
	e.out.send(item{gone: p.pid})
	if p.pid == e.opt.Command && e.keeper == nil {
		e.reapCommand()
	}
}

// reapCommand takes the end of the command that we have started.
func (e *engine) reapCommand() {
	ptrace.ReapEnd(e.opt.Command)
}

// commandEnd tells how our command has ended, if it has. Its last thread may be gone from our books a moment
// before the kernel tells of its end.
func (e *engine) commandEnd() (unix.WaitStatus, bool) {
	for range 1000 {
		e.reapCommand()
		if status, ok := ptrace.ChildEnd(); ok || e.procs[e.opt.Command] != nil {
			return status, ok
		}
		time.Sleep(time.Millisecond)
	}
	return 0, false
}

// finish accounts for what is still owed when a run ends while its targets
// live.
func (e *engine) finish() {
	n := e.book.Tick()
	for _, t := range e.list {
		s, err := e.files.schedstat(t)
		switch {
		case err != nil:
			e.book.Give(&t.line, n, ledger.Exited)
		case t.watch.Same(s.Count):
			e.creditIdle(t, n)
		case t.watch.Asleep():
			e.book.Give(&t.line, n, ledger.Unsure)
		default:
			e.settle(t, n, s.Wait, e.unmet(t))
		}
		e.creditWaits(t)
	}
	for _, p := range e.procs {
		p.readCPU()
		e.chargeRest(p)
	}
}

// closeAll closes the files of all threads and processes that are left.
func (e *engine) closeAll() {
	for _, t := range e.list {
		e.files.close(t)
	}
	for _, p := range e.procs {
		e.closeProcess(p)
	}
}

// closeProcess closes what is open of a process itself: what clocks read, when none does any more.
func (e *engine) closeProcess(p *process) {
	closeFD(&p.tasks)
	pages := p.pages
	p.pages = -1
	if p.held == 0 {
		pages.Close()
		return
	}
	e.later = append(e.later, func() bool {
		if p.held > 0 {
			return false
		}
		pages.Close()
		return true
	})
}
