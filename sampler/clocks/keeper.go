package clocks

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// Keeper holds all threads of processes for as long as a run takes, so that each stops
// at its exit, and takes the stacks that they have there. Signals, births, ends and execs of the
// target wait for it. Clocks ask it for the stops that they want: a thread has one tracer.
type Keeper struct {
	board   *Board
	k       Tracer
	opt     KeeperOptions
	asked   map[int]wanted // by thread, with a request that is pending
	pids    map[int]int    // processes of threads, as far as births have told
	waits   disturbed
	stopped map[int]bool // threads that were stopped with their process; true: they are so
	text    [2048]byte
	note    taking.Buffer // room for registers
	phase   atomic.Int32
	ended   <-chan struct{}
	started chan error    // all threads are held, or why not
	begun   chan struct{} // closed when the program runs
	runs    bool
	told    outcome
}

// wanted is a sample that a clock has asked for.
type wanted struct {
	m *Sample
	c *Clock
}

// outcome is what has ended, for [Keeper.Ends].
type outcome struct {
	mu        sync.Mutex
	exits     []Exit
	threads   []int
	processes map[int]bool
	full      int64 // exits for which there was no room
}

// do has f change or read e.
func (e *outcome) do(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// Tracer is what a keeper asks of the kernel: [taking.Live], or a script.
type Tracer interface {
	taking.Kernel
	Report() (s ptrace.Status, ok bool, err error)                    // see ptrace.Wait
	SeizeIn(pid, tid, options int) (ended []ptrace.Status, err error) // see ptrace.SeizeIn
	AtExit(tid int) bool
	Message(s ptrace.Status) (uint64, error) // see ptrace.Status.EventMsg
}

// KeeperOptions say what is kept.
type KeeperOptions struct {
	PIDs     []int
	Children bool // the processes that they have made and make, too
	Nice     bool // stay at normal priority
	// Unwanted tells whether nobody has asked for the stack of a thread at its exit.
	Unwanted func(tid int) bool
	// Room gives room for one, with what is known of the thread; nil: there is none. Back takes it back unused.
	Room func(tid int) (*taking.Buffer, taking.Advice)
	Back func(b *taking.Buffer)
	// Launch is called when all threads are held, and lets the program begin that the first process
	// becomes by exec; ends before that do not count. nil: it runs already.
	Launch func()
	// Replaced is called when a process is another program from now on, before that runs.
	Replaced func(pid int)
	// News is called when there is something for [Keeper.Ends].
	News func()
	// Early reads what may not be there any more when the thread has gone on.
	Early func(pid, tid int) any
}

// Exit is the stack of a thread at its exit.
type Exit struct {
	Buffer   *taking.Buffer
	TID, PID int
	At       int64         // CLOCK_MONOTONIC
	Run      time.Duration // all that it has run for
	Early    any           // what KeeperOptions.Early has returned
}

// Keep seizes all threads of processes.
func Keep(k Tracer, b *Board, o KeeperOptions) (*Keeper, error) {
	p := newKeeper(k, b, o)
	p.ended = ptrace.OnThread(p.run)
	return p, <-p.started
}

func newKeeper(k Tracer, b *Board, o KeeperOptions) *Keeper {
	p := &Keeper{board: b, k: k, opt: o, asked: map[int]wanted{}, pids: map[int]int{}, waits: disturbed{marks: map[int]*taking.Mark{}}, stopped: map[int]bool{}, started: make(chan error), begun: make(chan struct{}), told: outcome{processes: map[int]bool{}}}
	p.note.Regs.Room = make([]byte, regs.PrstatusMaxBytes)
	return p
}

// run is the life of the keeper's thread.
func (p *Keeper) run() {
	var err error
	begun := sync.OnceFunc(func() { p.started <- err })
	defer begun() // last of all
	alarm, err := ptrace.NewAlarm()
	if err != nil {
		return
	}
	defer alarm.Close()
	hasten(p.opt.Nice)
	defer ptrace.RawPolicy(0, unix.SCHED_NORMAL) // see place.leave
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spareProcs)
	for _, pid := range p.opt.PIDs {
		if err = p.seizeAll(alarm, pid); err != nil {
			return
		}
	}
	if p.opt.Children { // those that are born from now on are held from birth
		for _, pid := range p.opt.PIDs {
			p.seizeChildren(alarm, pid)
		}
	}
	p.board.keeper.Store(int32(unix.Gettid()))
	begun()
	if p.opt.Launch == nil {
		p.begin()
	} else {
		p.opt.Launch()
	}
	for p.phase.Load() == keeps {
		p.turn(alarm)
	}
	p.letGo(func() bool { return p.turn(alarm) })
	p.board.keeper.Store(0)
}

// turn makes the requests of clocks, and answers a report if one comes within a [keeperTick].
func (p *Keeper) turn(alarm *ptrace.Alarm) (came bool) {
	p.serve()
	p.waits.turn(p.k)
	p.k.Alarm(alarm, p.k.Now()+keeperTick)
	s, ok, err := p.k.Report()
	switch {
	case err == unix.ECHILD:
		p.k.Sleep(p.k.Now() + keeperTick)
	case ok:
		p.handle(s)
	}
	return ok
}

// letGo detaches the threads that have stopped, and waits for those that hear signals until each has heard one more. A signal that
// the program ignores is pending for a tracee (sig_ignored, kernel/signal.c), and ends its wait with EINTR if nobody takes that back: so it would
// when it came just as this thread ends. The kernel lets the others go then.
func (p *Keeper) letGo(turn func() (came bool)) {
	p.phase.Store(leaves)
	for until := p.k.Now() + lastStops; p.k.Now() < until; {
		if came := turn(); !came && (p.board.NoRestart || len(p.waits.heard) == 0) {
			break
		}
	}
}

// goOn has a stopped thread go on: traced, or at the end without us.
func (p *Keeper) goOn(tid, sig int) {
	switch {
	case p.phase.Load() == leaves:
		if p.k.Detach(tid, sig) == 0 {
			p.waits.drop(tid)
		}
	case p.waits.watched(tid):
		p.k.Cont(tid, sig|ptrace.ToCall)
	default:
		p.k.Cont(tid, sig)
	}
}

// begin takes note that the program runs.
func (p *Keeper) begin() {
	if !p.runs {
		p.runs = true
		close(p.begun)
	}
}

// Begun is closed when the program runs that is kept, or will not.
func (p *Keeper) Begun() <-chan struct{} { return p.begun }

// spareProcs is how many of Go's processors there are besides those that unwinding and the collector keep busy: the
// keeper has to have one at once when it wakes.
const spareProcs = 4

// lastStops is for how long the keeper waits for stops at the end, in nanoseconds.
const lastStops = 300_000_000

// The phases of a keeper's life.
const (
	keeps  = iota
	closes // it is to let go
	leaves // it lets go
)

// keeperTick is how often the keeper looks for requests whose signal it has missed, in nanoseconds.
const keeperTick = 1_000_000

func (p *Keeper) options() int {
	o := ptrace.OptClone | ptrace.OptExec | ptrace.OptExit | ptrace.OptSysGood
	if p.opt.Children {
		o |= ptrace.OptFork | ptrace.OptVfork
	}
	return o
}

// listings bounds how often threads are listed until none is new.
const listings = 100

// errLongExec is why a process cannot be seized.
var errLongExec = errors.New("it is in an execve that does not end, so that its threads cannot be held (try: cat /proc/PID/stack; or without --exit-stacks)")

const (
	// startsWithin is how long the seizes of a process may wait for an exec, in nanoseconds.
	startsWithin = 1_000_000_000
	// heldAtMost is for how long threads that have stopped meanwhile wait for the keeper, in nanoseconds.
	heldAtMost = 10_000_000
)

// seizeAll seizes the threads of a process. Meanwhile those that are held already are answered now and then.
func (p *Keeper) seizeAll(alarm *ptrace.Alarm, pid int) error {
	end := p.k.Now() + startsWithin
	fresh := true
	for n := 0; fresh && n < listings; n++ {
		ids, err := (procfs.FS{}).TaskIDs(pid)
		if err != nil {
			return fmt.Errorf("list the threads of %d: %w", pid, err)
		}
		fresh = false
		for i := 0; i < len(ids); i++ {
			tid := ids[i]
			if p.pids[tid] != 0 {
				continue
			}
			p.k.Alarm(alarm, p.k.Now()+heldAtMost)
			ended, err := p.k.SeizeIn(pid, tid, p.options())
			for _, s := range ended {
				p.handle(s)
			}
			switch {
			case err == nil:
				p.pids[tid], fresh = pid, true
			case err == unix.EINTR && p.k.Now() > end:
				return fmt.Errorf("attach %d: %w", pid, errLongExec)
			case err == unix.EINTR:
				for until := p.k.Now() + lastStops; p.k.Now() < until && p.turn(alarm); {
				}
				i-- // once more
			}
		}
	}
	return nil
}

// seizeChildren seizes the processes that threads of a process have made, and theirs, as far as they may be.
func (p *Keeper) seizeChildren(alarm *ptrace.Alarm, pid int) {
	fs := procfs.FS{}
	tids, _ := fs.TaskIDs(pid) // none: it has ended
	for _, tid := range tids {
		children, _ := fs.Task(pid, tid).Children()
		for _, child := range children {
			if p.pids[child] == 0 && p.seizeAll(alarm, child) == nil {
				p.seizeChildren(alarm, child)
			}
		}
	}
}

// sampleBits is how many bits of a request tell the sample; the others tell the clock.
const sampleBits = 16

// askKeeper asks the keeper for a stop, and keeps this CPU until the request is pending. It is given up if the keeper comes too late: the
// thread would have run on, maybe into a call that a stop cuts short.
//
//go:nosplit
//go:norace
func (c *Clock) askKeeper(s *Slot, m *Sample, i int, p *pick, n, wake int64) {
	m.begin(c.k, s, p, n, wake)
	r := int64(c.who)<<sampleBits | int64(i)
	s.request.Store(r)
	c.k.Signal(int(c.board.keeper.Load()))
	linger(c, s, r, wake+keeperPatience)
	if c.place.cpu != Anywhere && s.request.CompareAndSwap(r, 0) {
		m.state.Store(free)
		s.give()
		c.up.retry(wake, c.board.Interval)
		return
	}
	linger(c, s, claimed, wake+2*keeperPatience)
}

// linger keeps a clock's CPU as long as a request is r, until some time.
//
//go:nosplit
//go:norace
func linger(c *Clock, s *Slot, r, until int64) {
	for s.request.Load() == r && c.k.Now() < until {
		if c.prompt { // else it would be the target's
			c.k.Yield()
		}
	}
}

// keeperPatience is for how long a clock keeps its CPU for the keeper to turn to its request, in nanoseconds.
const keeperPatience = 400_000

// What the keeper makes of a request: it is being made, and its stop is to come.
const (
	claimed = -2
	pending = -1
)

// serve makes the requests of clocks.
func (p *Keeper) serve() {
	b := p.board
	for i := range int(b.index.n.Load()) {
		s := &b.slots[i]
		r := s.request.Load()
		if r <= 0 || !s.request.CompareAndSwap(r, claimed) {
			continue
		}
		c := b.clocks[r>>sampleBits].Load()
		m := &c.tracees.samples[r&(1<<sampleBits-1)]
		s.sampled.Store(m.Tick)
		m.At.Asked = p.k.Now()
		errno := p.k.Interrupt(m.TID)
		got, _ := p.k.Pread(s.open.stat, p.text[:], 0)
		_, at, ok := stat(p.text[:got])
		m.proof.waits = ok && at == c.place.cpu         // where the clock is, since it waits for this
		m.Moved = p.k.Now()-m.At.Wake >= keeperPatience // it has left its CPU before
		s.request.Store(pending)
		if errno != 0 {
			m.Gone = true
			p.finish(m, c)
			continue
		}
		p.asked[m.TID] = wanted{m, c}
	}
}

// finish hands a sample on. From then on it is the coordinator's.
func (p *Keeper) finish(m *Sample, c *Clock) {
	p.board.slots[m.Slot].request.Store(0)
	m.judge(p.k, p.board, p.text[:], c.place.cpu)
}

// handle answers one report of a tracee.
func (p *Keeper) handle(s ptrace.Status) {
	m := p.asked[s.TID].m
	if s.Kind == ptrace.KindGroupStop {
		p.stopped[s.TID] = true
	}
	switch s.Kind {
	case ptrace.KindInterrupt, ptrace.KindGroupStop:
		if m == nil || p.k.AtExit(s.TID) {
			p.resume(s)
			return
		}
		if s.Kind == ptrace.KindInterrupt && p.waits.interrupted(s.TID) {
			p.takeBack(s) // so that it is watched on
		}
		holds(p.board, p.k, s.TID)
		m.take(p.k, p.board, p.text[:], s.Raw, 0, true)
		holds(p.board, p.k, 0)
		if s.Kind == ptrace.KindGroupStop {
			p.k.Listen(s.TID)
		} else {
			p.goOn(s.TID, 0)
		}
		m.At.Released = p.k.Now()
		p.answer(m)
	case ptrace.KindClone, ptrace.KindFork, ptrace.KindVfork:
		if id, err := p.k.Message(s); err == nil {
			p.pids[int(id)] = p.pids[s.TID]
			if s.Kind != ptrace.KindClone {
				p.pids[int(id)] = int(id)
				p.told.do(func() { delete(p.told.processes, int(id)) }) // of another process that had this id
			}
		}
		p.resume(s)
		askAgain(p.k, m)
	case ptrace.KindExec:
		p.drop(s.TID)
		if former, err := p.k.Message(s); err == nil && int(former) != s.TID {
			// The leader has ended, which nobody reports: its id is the caller's now.
			p.drop(int(former))
			delete(p.pids, int(former))
			if p.runs {
				p.told.do(func() { p.told.threads = append(p.told.threads, int(former)) })
			}
		}
		p.opt.Replaced(s.TID)
		p.pids[s.TID] = s.TID
		if s.TID == p.opt.PIDs[0] {
			p.begin()
		}
		p.resume(s)
	case ptrace.KindSyscall:
		if p.k.AtExit(s.TID) {
			return
		}
		// Whoever is detached where its call begins is woken as by a signal (__ptrace_unlink, kernel/ptrace.c): its wait would end with EINTR.
		if w := p.waits.of(s.TID); w.AtCall(p.k, s.TID, &p.note) || w.Waits() && p.phase.Load() == leaves {
			p.k.Interrupt(s.TID)
			p.k.Cont(s.TID, 0)
			return
		}
		p.goOn(s.TID, 0)
		askAgain(p.k, m)
	case ptrace.KindExit:
		p.exit(s)
	case ptrace.KindGone:
		p.end(s)
	default:
		p.resume(s)
		askAgain(p.k, m)
	}
}

// askAgain repeats an interrupt that another stop may have eaten: the
// kernel forgets a pending one when the thread stops for any reason
// (kernel/signal.c, ptrace_stop). If it had not, one stop more comes, which is
// let go.
func askAgain(k Tracer, m *Sample) {
	if m != nil {
		k.Interrupt(m.TID)
	}
}

// resume lets a thread go on as it was, unless it is at its exit by now, since it was killed: that
// stop is reported yet, and is the one to answer.
func (p *Keeper) resume(s ptrace.Status) {
	switch {
	case s.Kind == ptrace.KindSignal:
		p.takeBack(s)
		p.goOn(s.TID, int(s.Signal))
	case p.k.AtExit(s.TID):
	case s.Kind == ptrace.KindGroupStop && p.phase.Load() != leaves:
		p.k.Listen(s.TID)
	case s.Kind == ptrace.KindGroupStop: // the process stays stopped
		p.goOn(s.TID, 0)
	default:
		p.takeBack(s)
		p.goOn(s.TID, 0)
	}
}

// takeBack has a thread's wait go on that has stopped for nothing that ends it. A wait that ended since the process was stopped
// ends all the same (signal(7)), when SIGCONT comes.
func (p *Keeper) takeBack(s ptrace.Status) {
	by := taking.StoppedFor(s.Raw)
	switch still, ok := p.stopped[s.TID]; {
	case still && by == taking.OwnStop: // it is to go on
		by = taking.OtherStop
		p.stopped[s.TID] = false
	case ok && by == int(unix.SIGCONT):
		by = taking.OtherStop
		delete(p.stopped, s.TID)
	}
	m := p.waits.of(s.TID)
	holds(p.board, p.k, s.TID) // as long as it waits for what is read here
	taking.AtStop(p.k, s.TID, by, p.board.NoRestart, m, &p.note, func() (int, func()) {
		pages := procfs.FS{}.OpenPagemap(s.TID)
		return int(pages), func() { pages.Close() }
	})
	holds(p.board, p.k, 0)
	p.waits.stopped(s.TID, m, by > 0)
}

// holds notes which thread is being copied, 0 for none.
func holds(b *Board, k Tracer, tid int) {
	b.kept.tid.Store(int32(tid))
	since := int64(0)
	if tid != 0 {
		since = k.Now()
	}
	b.kept.since.Store(since)
}

// exit takes the stack that a thread has at its exit.
func (p *Keeper) exit(s ptrace.Status) {
	if !p.runs || p.opt.Unwanted(s.TID) {
		p.goOn(s.TID, 0)
		return
	}
	b, a := p.opt.Room(s.TID)
	if b == nil {
		p.goOn(s.TID, 0)
		p.told.do(func() { p.told.full++ })
		return
	}
	holds(p.board, p.k, s.TID) // as long as it waits for what is read here
	pages := procfs.FS{}.OpenPagemap(s.TID)
	errno := taking.Take(p.k, s.TID, &a, b, int(pages), taking.OtherStop, true)
	pages.Close()
	pid := processOf(p.pids, s.TID)
	st, _ := (procfs.FS{}).Task(pid, s.TID).Schedstat()
	at, early := p.k.Now(), p.opt.Early(pid, s.TID)
	holds(p.board, p.k, 0)
	p.goOn(s.TID, 0)
	if errno != 0 {
		p.opt.Back(b)
		return
	}
	p.told.do(func() { p.told.exits = append(p.told.exits, Exit{b, s.TID, pid, at, st.Run, early}) })
	p.opt.News()
}

// processOf is the process of a thread, 0 if that is not known.
func processOf(pids map[int]int, tid int) int {
	if pid := pids[tid]; pid != 0 {
		return pid
	}
	s, err := (procfs.FS{}).Status(tid)
	if err != nil {
		return 0
	}
	return s.Tgid
}

// drop answers what was asked of a thread that there is no more, and forgets it.
func (p *Keeper) drop(tid int) {
	p.waits.drop(tid)
	delete(p.stopped, tid)
	if m := p.asked[tid].m; m != nil {
		m.Gone = true
		p.answer(m)
	}
}

// answer hands on a sample whose stop was awaited.
func (p *Keeper) answer(m *Sample) {
	c := p.asked[m.TID].c
	delete(p.asked, m.TID)
	p.finish(m, c)
}

// end forgets a thread that was reaped.
func (p *Keeper) end(s ptrace.Status) {
	p.drop(s.TID)
	p.told.do(func() {
		if p.pids[s.TID] == s.TID {
			p.told.processes[s.TID] = true
			if s.TID == p.opt.PIDs[0] {
				p.begin() // in vain
			}
		}
		if p.runs {
			p.told.threads = append(p.told.threads, s.TID)
		}
	})
	delete(p.pids, s.TID)
}

// Ends returns what has come since the last call: the stacks that threads had at their exits, and which
// threads have ended. full is for how many exits there was no room, in all.
func (p *Keeper) Ends() (exits []Exit, gone []int, full int64) {
	e := &p.told
	e.do(func() { exits, gone, full, e.exits, e.threads = e.exits, e.threads, e.full, nil, nil })
	return exits, gone, full
}

// End tells whether a process has ended.
func (p *Keeper) End(pid int) (ended bool) {
	p.told.do(func() { ended = p.told.processes[pid] })
	return ended
}

// Close lets all threads go. It does not wait for a keeper that hangs: the end of this program lets go then.
func (p *Keeper) Close() {
	p.phase.Store(closes) // it looks at each keeperTick
	if p.board.kept.since.Load() < 0 {
		return
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
	}
}
