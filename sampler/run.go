package sampler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
	"sfsample/sampler/watch"
)

// Result is what a run has to say about itself.
type Result struct {
	ledger.Account
	Elapsed            time.Duration
	AskedHz, ReachedHz float64
	Late               int64 // ticks that a clock answered more than half an interval late
	Threads            int   // sampled at the end, or at the last moment that any lived
	Delay, Pause       Spread
	Taken              Spread // from a clock's wake-up to the moment that the CPU is the thread's again
	Met                Spread // from the request to the release, of stops that have met a system call under way
	Looked             time.Duration
	Moved              int64         // samples that were not proven to be of the tick's moment
	Seizes             int64         // stops that were asked for
	Waits              int           // of these, how many had not come at the end
	Unseen             time.Duration // CPU time of children that ended before they were seen, and of the last moments of others
	Clocks             int           // CPUs that had a clock at the end
	Stride             int64         // the rate was lowered to a 1/Stride of it at the most
	FewFiles           bool          // threads were left out as no more files could be opened
	Priority           error         // why clocks could not get real-time priority
	Exits              Exits
	Ended              bool            // our command has
	Status             unix.WaitStatus // of its end
}

// Exits counts threads that have ended, for Options.ExitStacks.
type Exits struct {
	Threads int64 // whose end was seen
	Taken   int64 // stacks at their exits
	NoRoom  int64 // exits without a stack as there was no buffer for it
}

// boardRoom is how many threads may be on the board at once.
const boardRoom = 4096

// Run attaches to the processes of opt and samples them until ctx is done, the
// time d is over (0: no bound), or all of them have ended. ready is called once
// everything is attached, before the first tick. progress, if not nil, is called
// now and then by another goroutine.
//
// What was captured goes to pipe, which has finished when Run returns.
func Run(ctx context.Context, opt Options, d time.Duration, pipe *Pipeline, ready func(), progress func(Progress)) (Result, error) {
	items, nudge := make(chan item, 4096), make(chan struct{}, 1)
	e := &engine{
		opt: opt, pool: pipe.pool, said: &notices{log: opt.Log}, out: &outlet{queue: items, nudge: nudge},
		ticks: ticks{interval: int64(opt.interval()), times: watch.Timing{Interval: opt.interval(), Lag: ptrace.SchedulerTick()},
			origin: ptrace.Now() - int64(time.Since(pipe.cfg.Start))},
		procs: map[int]*process{}, threads: map[int]*thread{}, wanted: map[int]bool{},
		load: load{max: opt.MaxOverhead, own: budget{stride: opt.firstStride}}, calm: new(waiting), book: ledger.NewBook(),
		exited: make(chan struct{}, 1),
	}
	if e.said.log == nil {
		e.said.log = slog.New(slog.DiscardHandler)
	}
	e.files = &files{said: e.said}
	e.pulse = &pulse{said: e.said, stop: make(chan struct{})}
	for _, tid := range opt.TIDs {
		e.wanted[tid] = true
	}
	piped := make(chan struct{})
	go func() {
		defer close(piped)
		pipe.consume(items, nudge, opt.interval())
	}()
	yieldToOthers()
	var result Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = e.run(d, ready, &result)
	}()
	if hangs := e.pulse.watch(ctx, done, progress); hangs != nil {
		e.out.end()
		pipe.await(piped)
		return e.sofar(), errors.Join(hangs, pipe.err)
	}
	if opt.Released != nil {
		opt.Released()
	}
	e.out.rest()
	e.out.end()
	pipe.await(piped)
	if err == nil {
		err = pipe.err
	}
	return result, err
}

// sofar is the result of a run as it was published last.
func (e *engine) sofar() (r Result) {
	if p := e.pulse.status.Load(); p != nil {
		r.Account, r.Elapsed, r.Threads = p.Account, p.Elapsed, p.Threads
		r.Count[ledger.Missed] += r.Expected - r.Sum() // what was not accounted for yet
	}
	r.AskedHz = float64(e.opt.Hz)
	return r
}

// run is the life of the coordinator.
func (e *engine) run(d time.Duration, ready func(), result *Result) error {
	defer e.closeAll()
	if e.opt.Command != 0 {
		ptrace.KeepEnd(e.opt.Command)
	}
	e.begin()
	defer func() {
		if e.keeper != nil {
			e.keeper.Close()
		}
	}()
	if e.opt.ExitStacks {
		if err := e.keep(ready); err != nil {
			return err
		}
	} else if e.opt.Command != 0 {
		if err := e.launch(ready); err != nil {
			return err
		}
	}
	defer e.pulse.rests()
	e.ticks.start = ptrace.Now()
	e.board.Start = e.ticks.start
	for _, pid := range e.opt.PIDs {
		err := e.attach(pid)
		if (e.keeper != nil || pid == e.opt.Command) && (procfs.Gone(err) || errors.Is(err, unix.ESRCH)) {
			err = nil // it has ended meanwhile, of which the keeper tells
			if p := e.procs[pid]; e.keeper == nil && p != nil {
				e.dropProcess(p)
			}
		}
		if err != nil {
			return e.explain(pid, err)
		}
		if e.opt.Command == 0 {
			e.out.send(item{opened: pid})
		}
	}
	if err := e.joinFound(); err != nil {
		return err
	}
	if len(e.list) == 0 && e.opt.Command == 0 && e.keeper == nil && e.opt.Joins == nil {
		return errors.New("there is no thread to sample")
	}
	if e.opt.Command == 0 && ready != nil {
		ready()
	}
	e.ticks.until = math.MaxInt64
	if d > 0 {
		e.ticks.until = ptrace.Now() + int64(d)
	}
	result.Threads = len(e.list)
	e.beginRound(ptrace.Now())
	e.loop()
	if n := len(e.list); n > 0 {
		result.Threads = n
	}
	e.finish()
	if total := e.afar.total(); total != "" {
		e.said.log.Warn(total)
	}
	e.endRound(ptrace.Now(), true)
	e.report(result)
	return nil
}

// begin sets the time of tick 0 and makes the board and the bank.
func (e *engine) begin() {
	if e.uncounted = e.opt.uncounted || !countsRuns(e.fs); e.uncounted {
		e.said.warn("this kernel keeps no run counts (/proc/PID/schedstat is missing, or all 0): running threads are stopped from elsewhere, which favours the ends of system calls, and CPU times are counted in 10 ms (try: a kernel with CONFIG_SCHED_INFO, or the boot parameter delayacct)")
	}
	e.ticks.start = ptrace.Now()
	e.board = clocks.NewBoard(boardRoom, e.ticks.start, e.ticks.interval)
	e.board.NoRestart = e.opt.NoRestart
	e.pulse.board.Store(e.board)
	e.bank = clocks.NewBank(new(taking.Live), e.board, clocks.Options{
		Samples: e.buffers(), Nice: e.opt.Nice,
	})
}

// countsRuns tells whether the kernel counts how often a thread is put on a CPU: it has done so with our own. Without
// CONFIG_SCHED_INFO there is no such file; kernels before 5.14 say 0 where neither CONFIG_SCHEDSTATS nor the delay
// accounting is on (sched_info_on, include/linux/sched/stat.h).
func countsRuns(fs procfs.FS) bool {
	s, err := fs.Schedstat(os.Getpid(), os.Getpid())
	return err == nil && s.Count > 0
}

// buffers is how many samples of a clock may be under way: as many as it may take until the
// coordinator, which may have to wait for a CPU, is there again.
func (e *engine) buffers() int {
	const patience = int64(100 * time.Millisecond)
	return int(min(max(16, patience/e.ticks.interval), 512))
}

func (e *engine) report(r *Result) {
	missed, late, looked := e.bank.Counts()
	r.Account = e.book.Account()
	r.Elapsed = e.ticks.elapsed()
	r.AskedHz = float64(e.opt.Hz)
	// Clocks miss ticks each for its CPU, the coordinator for all.
	ticks := float64(max(r.Ticks, 1))
	r.ReachedHz = r.AskedHz * max(0, 1-float64(missed)/ticks/float64(max(1, e.clocks))) / float64(max(1, e.load.both))
	r.Late, r.Looked, r.Clocks = late, looked, e.clocks
	r.Delay, r.Pause, r.Taken, r.Met = e.delay.spread(), e.pause.spread(), e.took.spread(), e.met.spread()
	r.Moved, r.Seizes, r.Waits = e.moved, e.seizes, e.waits
	r.Unseen = e.unseen
	r.Stride, r.Priority = e.load.most, e.bank.Denied
	r.Exits, r.FewFiles = e.exits, e.files.lacks
	if e.opt.Command != 0 {
		r.Status, r.Ended = e.commandEnd()
	}
}

// progress is how the run goes.
func (e *engine) progress(now int64) *Progress {
	a := e.book.Account()
	return &Progress{time.Duration(now - e.ticks.start), len(e.list), a.Count[ledger.Sampled], a.Lost(), e.pause.quantile(0.5), a}
}

// launch lets our command begin, and returns when it has called exec: what runs before is not the
// command. Its threads are tracees until then.
func (e *engine) launch(ready func()) error {
	pid := e.opt.Command
	var err error
	<-ptrace.OnThread(func() { err = awaitExec(e.fs, pid, ready, e.pulse.stop) })
	return err
}

// awaitExec traces process pid until it has called exec, and lets it go there, or until it has ended.
func awaitExec(fs procfs.FS, pid int, ready func(), stop <-chan struct{}) error {
	alarm, err := ptrace.NewAlarm()
	if err != nil {
		return err
	}
	defer alarm.Close()
	for fresh, seized := true, map[int]bool{}; fresh; {
		fresh = false
		ids, err := fs.TaskIDs(pid)
		if err != nil {
			return fmt.Errorf("attach %d: %w", pid, err)
		}
		for _, tid := range ids {
			if !seized[tid] && ptrace.Seize(tid, ptrace.OptClone|ptrace.OptExec) == nil {
				seized[tid], fresh = true, true
			}
		}
	}
	if ready != nil {
		ready()
	}
	for {
		alarm.Set(ptrace.Now() + int64(100*time.Millisecond))
		s, ok, err := ptrace.Wait()
		select {
		case <-stop:
			return nil
		default:
		}
		switch {
		case err == unix.ECHILD:
			return nil
		case !ok:
		case s.Kind == ptrace.KindExec:
			ptrace.Detach(s.TID, 0)
			return nil
		case s.Kind == ptrace.KindSignal:
			ptrace.Cont(s.TID, s.Signal)
		case s.Kind == ptrace.KindGroupStop:
			ptrace.Listen(s.TID)
		case s.Kind == ptrace.KindGone && s.TID == pid:
			return nil
		case s.Kind != ptrace.KindGone:
			ptrace.Cont(s.TID, 0)
		}
	}
}

// keep has all threads held, for their stacks at exit.
func (e *engine) keep(ready func()) error {
	o := clocks.KeeperOptions{PIDs: e.opt.PIDs, Children: e.opt.Children, Nice: e.opt.Nice, Room: e.exitRoom, Held: e.held, Replaced: e.markReplaced, Early: e.exitEarly(), News: func() {
		select {
		case e.exited <- struct{}{}:
		default:
		}
	}}
	if e.opt.Command != 0 {
		o.Launch = func() {
			if ready != nil {
				ready()
			}
		}
	}
	for _, pid := range e.opt.PIDs {
		if err := e.permitted(&process{pid: pid}); err != nil {
			return e.explain(pid, err)
		}
	}
	keeper, err := clocks.Keep(new(taking.Live), e.board, o)
	if err != nil {
		return err
	}
	e.keeper = keeper
	select {
	case <-keeper.Begun():
	case <-e.pulse.stop:
	}
	return nil
}

// held ends this program, where only that lets a target go on: it is calling exec, and waits for
// a thread at its exit which waits for the very thread of ours that waits for that.
func (e *engine) held(pid int) {
	fmt.Fprintf(os.Stderr, "sfsample: attach %d: it is calling exec, and waits for the very thread that waits for this (try: once more)\n", pid)
	os.Exit(1)
}

// exitRoom gives room for the stack of a thread at its exit.
func (e *engine) exitRoom(tid int) (*taking.Buffer, taking.Advice) {
	var a Advice
	if fb, ok := e.feedback.Load(tid); ok {
		a = fb.(*Feedback).Get()
	}
	c := e.pool.last(a.want(e.pool.first()), a.Beyond)
	if c == nil {
		return nil, a.Advice
	}
	return &taking.Buffer{Regs: c.Regs[:cap(c.Regs)], FPRegs: make([]byte, taking.FPRegsBytes), Stack: c.Stack[:cap(c.Stack)], Beyond: c.Beyond[:cap(c.Beyond)]}, a.Advice
}

// exitNote is what is noted of a process at the exit of one of its threads.
type exitNote struct {
	program *program
	early   *early
}

// exitEarly returns what takes an exitNote. Mappings and name are read at the
// first few exits of a program, since new ones load their libraries first, so that each may bring news.
func (e *engine) exitEarly() func(pid, tid int) any {
	exits := map[*program]int{}
	return func(pid, tid int) any {
		v, _ := e.programs.LoadOrStore(pid, new(program))
		p := v.(*program)
		exits[p]++
		if n := exits[p]; n > 8 || n&(n-1) != 0 { // at 1, 2, 4 and 8
			return exitNote{p, nil}
		}
		return exitNote{p, e.earlyOf(pid, tid)}
	}
}

// markReplaced tells the pipeline at once that a process is another program: what it reads of it is not
// of the captures that are under way.
func (e *engine) markReplaced(pid int) {
	if p, ok := e.programs.Swap(pid, new(program)); ok {
		p.(*program).replaced.Store(true)
	}
}

// takeExits takes what the keeper has to tell.
func (e *engine) takeExits() {
	if e.keeper == nil {
		return
	}
	var over []*process // all that is to be told of them is told by now
	for _, p := range e.procs {
		if e.keeper.End(p.pid) {
			over = append(over, p)
		}
	}
	exits, gone, full := e.keeper.Ends()
	e.exits.NoRoom = full
	for i := range exits {
		e.takeExit(&exits[i])
	}
	for _, tid := range gone {
		e.exits.Threads++
		if t := e.threads[tid]; t != nil {
			e.drop(t)
		}
	}
	for _, p := range over {
		e.dropAll(p)
	}
}

// takeExit passes on the stack that a thread had at its exit, which nobody may have known.
func (e *engine) takeExit(x *clocks.Exit) {
	e.exits.Taken++
	note := x.Early.(exitNote)
	p := e.procs[x.PID]
	if p != nil && p.program != note.program && p.program.replaced.Load() {
		e.onExec(p, note.program)
	}
	t := e.threads[x.TID]
	if t == nil {
		if p == nil {
			return
		}
		t = &thread{tid: x.TID, proc: p, fb: new(Feedback)}
		e.book.Open(&t.line, 0)
		defer e.book.Close(&t.line, ledger.Exited)
	}
	c := new(capture.Capture)
	x.Fill(c)
	c.Taken = capture.Exiting
	e.emitWith(t, e.book.Tick(), c, max(x.Run, t.line.Run()), x.At, note.early)
	if e.threads[t.tid] != t {
		e.out.send(item{left: left{t.proc.pid, t.tid}})
	}
}

// explain adds to an error of attaching what stands in the way.
func (e *engine) explain(pid int, err error) error {
	if pid == os.Getpid() {
		return fmt.Errorf("attach %d: this is sfsample itself (try: another process)", pid)
	}
	if s, serr := e.fs.Stat(pid); serr == nil && s.Flags&procfs.FlagKThread != 0 {
		return fmt.Errorf("attach %d: it is a thread of the kernel, it has no user stack (try: perf)", pid)
	}
	if procfs.Gone(err) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("attach %d: no such process", pid)
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		// Its threads take some each, which were opened first.
		return fmt.Errorf("attach %d: %w (it takes five for each thread; try: ulimit -n 4096)", pid, err)
	}
	return fmt.Errorf("attach %d: %w (%s)", pid, err, Remedy(pid))
}

// Remedy says why a process may not be read or traced that was refused, and
// what to try.
func Remedy(pid int) string {
	p := procfs.FS{}.Permission(pid)
	if r := p.Remedy(); r != "" {
		return r
	}
	if !p.Capable {
		return "nothing that is known forbids it: it may have been in the midst of an exec, or a security module forbids it; try: again, or as root"
	}
	return "CAP_SYS_PTRACE is not enough: a security module forbids it, or it is outside of our user namespace; try: outside of the container"
}
