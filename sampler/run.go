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
)

// Result is what a run has to say about itself.
type Result struct {
	Account
	Elapsed            time.Duration
	AskedHz, ReachedHz float64
	Threads            int // sampled at the end, or at the last moment that any lived
	Delay, Pause       Spread
	Behind             Spread // how late ticks were
	Interrupts, Stops  int64  // sent, and stops that answered them
	Outstanding        int    // most interrupts at once that were not answered yet
	Stride             int64  // the rate was lowered to a 1/Stride of it at the most
	Priority           error  // why the tracing thread could not get real-time priority
	Exits              Exits
	ExitStatus         uint32 // wait status of the command that we started
}

// Exits counts threads that have ended, for Options.ExitStacks.
type Exits struct {
	Threads int64 // whose end was seen
	Taken   int64 // stacks at their exits
	NoRoom  int64 // exits without a stack as there was no buffer for it
}

// Run attaches to the processes of opt and samples them until ctx is done, the
// time d is over (0: no bound), or all of them have ended. ready is called once
// everything is attached, before the first tick. progress, if not nil, is called
// now and then by another goroutine.
//
// What was captured goes to pipe, which has finished when Run returns, unless the
// tracing thread is held up for good: then there is an error, and the target waits
// for the end of this program, which should follow.
func Run(ctx context.Context, opt Options, d time.Duration, pipe *Pipeline, ready func(), progress func(Progress)) (Result, error) {
	items, nudge := make(chan item, 4096), make(chan struct{}, 1)
	e := &engine{
		opt: opt, log: opt.Log, pool: pipe.pool, out: items, nudge: nudge,
		interval: int64(opt.interval()),
		origin:   ptrace.Now() - int64(time.Since(pipe.cfg.Start)),
		procs:    map[int]*process{}, threads: map[int]*thread{},
		orphans: map[int]bool{}, released: map[int]bool{}, wanted: map[int]bool{}, warned: map[string]bool{},
		load: load{max: opt.MaxOverhead}, tick: -1,
		prio: priority{off: opt.Nice}, held: make(chan error, 1),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	for _, tid := range opt.TIDs {
		e.wanted[tid] = true
	}
	piped := make(chan struct{})
	go func() {
		defer close(piped)
		pipe.consume(newInbox(items, nudge))
	}()
	yieldToOthers()
	var result Result
	var err error
	attached := make(chan struct{})
	done := ptrace.OnThread(func() { err = e.run(d, attached, ready, &result) })
	if err := e.watch(ctx, attached, done, progress); err != nil {
		return Result{}, err
	}
	for _, it := range e.backlog {
		items <- it
	}
	close(items)
	pipe.await(piped)
	if err == nil {
		err = pipe.err
	}
	return result, err
}

// watch waits for the engine's end, asks for it when ctx is done, and reports
// progress.
func (e *engine) watch(ctx context.Context, attached, done <-chan struct{}, progress func(Progress)) error {
	var tick <-chan time.Time
	if progress != nil {
		t := time.NewTicker(250 * time.Millisecond)
		defer t.Stop()
		tick = t.C
	}
	cancelled := ctx.Done()
	for {
		select {
		case <-done:
			return nil
		case err := <-e.held:
			return err
		case <-cancelled:
			cancelled = nil
			e.stop.Store(true)
			select {
			case <-attached:
				e.alarm.Ring()
			case <-done:
			case err := <-e.held:
				return err
			}
		case <-tick:
			if p := e.status.Load(); p != nil {
				progress(*p)
			}
		}
	}
}

// run is the life of the tracing thread. When it returns, the thread ends, and
// with it all tracing.
func (e *engine) run(d time.Duration, attached chan<- struct{}, ready func(), result *Result) error {
	alarm, err := ptrace.NewAlarm()
	if err != nil {
		close(attached)
		return err
	}
	defer alarm.Close()
	defer e.closeAll()
	e.alarm = alarm
	e.prio.begin()
	e.place.home()
	close(attached)
	for _, pid := range e.opt.PIDs {
		if err := e.attach(pid); err != nil {
			return e.explain(pid, err)
		}
		if e.opt.Command == 0 {
			e.send(item{opened: pid})
		}
	}
	if len(e.list) == 0 {
		return errors.New("there is no thread to sample")
	}
	until := int64(math.MaxInt64)
	if d > 0 {
		until = ptrace.Now() + int64(d)
	}
	if ready != nil {
		ready()
	}
	e.awaitCommand()
	result.Threads = len(e.list)
	e.until = until
	e.loop()
	e.takeLast()
	e.prio.lower()
	if n := len(e.list); n > 0 {
		result.Threads = n
	}
	e.finish()
	e.report(result)
	return nil
}

// awaitCommand waits until the process that is to become our command has called
// exec: what runs before is not the command.
func (e *engine) awaitCommand() {
	for e.opt.Command != 0 && !e.execSeen && !e.stop.Load() && len(e.procs) > 0 {
		s, ok, err := ptrace.Wait()
		if err != nil {
			return
		}
		if ok {
			e.handle(s)
		}
	}
}

func (e *engine) report(r *Result) {
	r.Account = e.acct
	r.Elapsed = e.elapsed()
	r.AskedHz = float64(e.opt.Hz)
	answered := e.acct.Ticks - e.load.left
	r.ReachedHz = r.AskedHz * float64(answered-e.missed) / float64(max(e.acct.Ticks, 1))
	r.Delay, r.Pause, r.Behind = e.delay.spread(), e.pause.spread(), e.late.spread()
	r.Interrupts, r.Stops, r.Outstanding = e.sent, e.taken, e.most
	r.Exits = e.exits
	r.Stride, r.Priority = e.load.most, e.prio.denied
	r.ExitStatus = e.exit
}

// publish lets other goroutines see how it goes.
func (e *engine) publish(now int64) {
	if now-e.published < int64(100*time.Millisecond) {
		return
	}
	e.published = now
	lost := e.acct.Count[Missed] + e.acct.Count[NotStopped] + e.acct.Count[NoRoom] + e.acct.Count[Unreadable]
	e.status.Store(&Progress{time.Duration(now - e.start), len(e.list), e.acct.Count[Sampled], lost, e.pause.quantile(0.5)})
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
	return fmt.Errorf("attach %d: %w (%s)", pid, err, Remedy(pid))
}

// Remedy says why a process may not be read or traced that was refused, and
// what to try.
func Remedy(pid int) string {
	if r := (procfs.FS{}).Permission(pid).Remedy(); r != "" {
		return r
	}
	return "CAP_SYS_PTRACE is not enough: a security module forbids it, or it is outside of our user namespace; try: outside of the container"
}
