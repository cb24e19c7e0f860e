package sampler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/ledger"
)

// Result is what a run has to say about itself.
type Result struct {
	ledger.Account
	Elapsed  time.Duration
	Rate     Rate
	Threads  int // sampled at the end, or at the last moment that any lived
	Stops    Stops
	Times    Times
	Clocks   Clocks
	Unseen   time.Duration // CPU time of children that ended before they were seen, and of the last moments of others
	FewFiles bool          // threads were left out as no more files could be opened
	Exits    Exits
	Ended    bool            // our command has
	Status   unix.WaitStatus // of its end
}

// Clocks tells of those of CPUs.
type Clocks struct {
	N      int   // CPUs that had one at the end
	Told   bool  // the kernel told all of them who had their CPUs at ticks
	Late   int64 // ticks that one answered more than half an interval late
	Denied error // why they could not get real-time priority
}

// Rate is how often a run has sampled.
type Rate struct {
	Asked, Reached float64 // Hz
	Stride         float64 // ticks for each that was answered when it was lowest
}

// Stops counts those that clocks have made, and what became of them.
type Stops struct {
	Asked int64 // stops that were asked for
	Waits int   // of these, how many had not come at the end
	Moved int64 // samples, with and without a stop, that were not proven to be of the tick's moment
}

// Times are what samples and looks have taken.
type Times struct {
	Delay, Pause Spread        // from the request to the stop, and from there to the release
	Taken        Spread        // from a clock's wake-up to the moment that the CPU is the thread's again
	Met          Spread        // from the request to the release, of stops that have met a system call under way
	Looked       time.Duration // by clocks that found nobody, in all
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
// What was captured goes to pipe, which has finished when Run returns.
func Run(ctx context.Context, opt Options, d time.Duration, pipe *Pipeline, ready func(), progress func(Progress)) (Result, error) {
	items, nudge := make(chan item, 4096), make(chan struct{}, 1)
	ended := sync.OnceFunc(func() {
		if pipe.cfg.Until != nil {
			time.AfterFunc(unwindAtMost, pipe.cfg.Until.End)
		}
	})
	e := newEngine(opt, pipe.pool, pipe.cfg.Start, &outlet{queue: items, nudge: nudge, over: ended})
	pipe.left.tick = time.Duration(e.ticks.interval)
	piped := make(chan struct{})
	go func() {
		defer close(piped)
		pipe.consume(items, nudge, time.Duration(e.ticks.interval))
	}()
	yieldToOthers()
	var result Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = e.run(d, ready, &result)
	}()
	hangs := e.pulse.watch(ctx, done, progress)
	ended()
	if hangs == errHung {
		e.board.Free(0)
		e.out.end()
		pipe.cfg.await(piped, false)
		result = e.sofar()
		tellLeft(&result.Account, &pipe.left.all)
		return result, errors.Join(hangs, pipe.failed.err)
	}
	if opt.Hooks.Released != nil && hangs == nil {
		opt.Hooks.Released()
	}
	e.out.rest()
	e.out.end()
	pipe.cfg.await(piped, hangs != nil)
	tellLeft(&result.Account, &pipe.left.all)
	if err == nil {
		err = errors.Join(hangs, pipe.failed.err)
	}
	return result, err
}

// countsRuns tells whether the kernel counts how often a thread is put on a CPU: it has done so with our own. Without
// CONFIG_SCHED_INFO there is no such file; kernels before 5.14 say 0 where neither CONFIG_SCHEDSTATS nor the delay
// accounting is on (sched_info_on, include/linux/sched/stat.h).
func countsRuns(fs procfs.FS) bool {
	s, err := fs.Task(os.Getpid(), os.Getpid()).Schedstat()
	return err == nil && s.Count > 0
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

// sofar is the result of a run as it was published last.
func (e *engine) sofar() (r Result) {
	if p := e.pulse.status.Load(); p != nil {
		r.Account, r.Elapsed, r.Threads = p.Account, p.Elapsed, p.Threads
		r.Count[ledger.Missed] += r.Expected - r.Sum() // what was not accounted for yet
	}
	r.Rate.Asked = float64(e.opt.Hz)
	return r
}

// run is the life of the coordinator.
func (e *engine) run(d time.Duration, ready func(), result *Result) error {
	defer e.news.closeAll()
	if e.opt.Follow.Command != 0 {
		ptrace.KeepEnd(e.opt.Follow.Command)
	}
	defer e.news.keeping.close()
	if e.opt.ExitStacks {
		for _, pid := range e.opt.PIDs {
			if err := e.news.permitted(&process{pid: pid}); err != nil {
				return explain(pid, err)
			}
		}
		if err := e.news.keeping.keep(ready, e.roster.unwanted); err != nil {
			return err
		}
	} else if e.opt.Follow.Command != 0 {
		ready() // what runs before is not the command
	}
	defer e.pulse.rests()
	e.ticks.start = ptrace.Now()
	e.board.Start = e.ticks.start
	for _, pid := range e.opt.PIDs {
		err := e.news.attach(pid)
		if (e.news.keeping.on() || pid == e.opt.Follow.Command) && (procfs.Gone(err) || errors.Is(err, unix.ESRCH)) {
			err = nil // it has ended meanwhile, of which the keeper tells
			if p := e.roster.procs[pid]; !e.news.keeping.on() && p != nil {
				e.news.dropProcess(p)
			}
		}
		if err != nil {
			return explain(pid, err)
		}
		if e.opt.Follow.Command == 0 {
			e.out.send(item{opened: pid})
		}
	}
	if err := e.news.joinFound(); err != nil {
		return err
	}
	if len(e.roster.list) == 0 && e.opt.Follow.Command == 0 && !e.news.keeping.on() && e.opt.Follow.Joins == nil {
		return errors.New("there is no thread to sample")
	}
	if e.opt.Follow.Command == 0 && ready != nil {
		ready()
	}
	e.ticks.until = math.MaxInt64
	if d > 0 {
		e.ticks.until = ptrace.Now() + int64(d)
	}
	result.Threads = len(e.roster.list)
	e.rounds.begin(ptrace.Now())
	e.loop(result)
	if n := len(e.roster.list); n > 0 {
		result.Threads = n
	}
	e.acct.finish()
	if total := e.looks.afar.total(); total != "" {
		e.said.log.Warn(total)
	}
	e.rounds.end(ptrace.Now(), true)
	e.report(result)
	return nil
}

func (e *engine) report(r *Result) {
	missed, late, looked := e.bank.Counts()
	r.Account = e.acct.book.Account()
	r.Elapsed = e.ticks.elapsed()
	r.Rate.Asked = float64(e.opt.Hz)
	// Clocks miss ticks each for its CPU, the coordinator for all.
	ticks := float64(max(r.Ticks, 1))
	r.Rate.Reached = r.Rate.Asked * max(0, 1-float64(missed)/ticks/float64(max(1, r.Clocks.N))) * e.acct.load.answered()
	r.Clocks.Late, r.Times.Looked = late, looked
	e.harvest.figures.tell(r)
	r.Unseen = e.acct.unseen
	r.Rate.Stride, r.Clocks.Denied = e.acct.load.most.Ticks(), e.bank.Denied
	r.Exits, r.FewFiles = e.news.keeping.counts, e.acct.files.lacks
	if e.opt.Follow.Command != 0 {
		r.Status, r.Ended = e.commandEnd()
	}
}

// progress is how the run goes.
func (e *engine) progress(now int64) *Progress {
	a := e.acct.book.Account()
	return &Progress{time.Duration(now - e.ticks.start), len(e.roster.list), a.Count[ledger.Sampled], a.Lost(), e.harvest.figures.pause.quantile(0.5), a}
}

// explain adds to an error of attaching what stands in the way.
func explain(pid int, err error) error {
	if pid == os.Getpid() {
		return fmt.Errorf("attach %d: this is sfsample itself (try: another process)", pid)
	}
	if s, serr := proc.Stat(pid); serr == nil && s.Flags&procfs.FlagKThread != 0 {
		return fmt.Errorf("attach %d: it is a thread of the kernel, it has no user stack (try: perf)", pid)
	}
	if procfs.Gone(err) || errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("attach %d: no such process", pid)
	}
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		// Its threads take some each, which were opened first.
		return fmt.Errorf("attach %d: %w (it takes six for each thread; try: ulimit -n 4096)", pid, err)
	}
	return fmt.Errorf("attach %d: %w (%s)", pid, err, Remedy(pid))
}

// commandEnd tells how our command has ended, if it has. Its last thread may be gone from our books a moment
// before the kernel tells of its end.
func (e *engine) commandEnd() (unix.WaitStatus, bool) {
	for range 1000 {
		ptrace.ReapEnd(e.opt.Follow.Command)
		if status, ok := ptrace.ChildEnd(); ok || e.roster.procs[e.opt.Follow.Command] != nil {
			return status, ok
		}
		time.Sleep(time.Millisecond)
	}
	return 0, false
}
