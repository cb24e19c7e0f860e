package sampler

import (
	"log/slog"
	"slices"
	"time"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
	"sfsample/sampler/watch"
)

// proc is the /proc of this machine.
var proc procfs.FS

// engine is the coordinator: it says what is done at each tick, and in which order. Who owns what it has done is said at each part's
// type. Parts belong to its goroutine, but for those that say otherwise.
type engine struct {
	opt     *Options
	said    *notices
	out     *outlet
	ticks   *ticks
	pulse   *pulse
	board   *clocks.Board
	bank    *clocks.Bank
	listing *listing
	roster  *roster
	acct    *accounts
	looks   *lookout
	news    *news
	harvest *harvest
	rounds  *rounds
	resting resting
}

// boardRoom is how many threads may be on the board at once.
const boardRoom = 4096

// newEngine makes the parts of a run, which has not begun. start is when that of its pipeline did.
func newEngine(opt Options, p *pool, start time.Time, out *outlet) *engine {
	said := &notices{log: opt.Log}
	if opt.Log == nil {
		said.log = slog.New(slog.DiscardHandler)
	}
	if opt.test.uncounted = opt.test.uncounted || !countsRuns(proc); opt.test.uncounted {
		said.warn("this kernel keeps no run counts (/proc/PID/schedstat is missing, or all 0): running threads are stopped from elsewhere, which favours the ends of system calls, and CPU times are counted in 10 ms (try: a kernel with CONFIG_SCHED_INFO, or the boot parameter delayacct)")
	}
	now, every := ptrace.Now(), opt.interval()
	x := &ticks{interval: int64(every), times: watch.Timing{Interval: every, Lag: ptrace.SchedulerTick()}, origin: now - int64(time.Since(start)), start: now}
	board := clocks.NewBoard(boardRoom, x.start, x.interval)
	board.NoRestart = opt.NoRestart
	bankOptions, longest := clocks.Options{Samples: x.buffers(), Nice: opt.Budget.Nice}, time.Duration(0)
	lone := !opt.All && opt.Stop == StopAuto && !opt.ExitStacks && !opt.Follow.Children && !opt.test.uncounted // clocks need nobody between some ticks
	if opt.Budget.Seldom = opt.Budget.Seldom && x.interval >= seldomTick && lone; opt.Budget.Seldom {
		board.Spread = min(board.Spread, seldomSpread, perClock*int64(min(cpus(), 1<<16)))
		longest, bankOptions.Stay = longestVigil, clockStay
	} else if lone && x.interval >= briefTick && x.interval <= int64(briefVigil/2) {
		longest = briefVigil
	}
	if longest > 0 {
		bankOptions.Deep = 1 + int(int64(longest)/x.interval)
		bankOptions.Samples += bankOptions.Deep
	}
	bank := clocks.NewBank(new(taking.Live), board, bankOptions)
	pulse := &pulse{said: said, stop: make(chan struct{})}
	pulse.board.Store(board)
	files, book, roster := &files{said: said}, ledger.NewBook(), newRoster(opt.TIDs)
	load := &load{said: said, max: opt.Budget.MaxOverhead, stride: clocks.Every, both: clocks.Every, most: clocks.Every, own: budget{max: opt.Budget.MaxCPU, most: slowest(x.interval), stride: opt.test.firstStride}}
	e := &engine{opt: &opt, said: said, out: out, ticks: x, pulse: pulse, board: board, bank: bank, roster: roster, resting: resting{longest: longest, nap: nap{board: board, kernel: new(taking.Live)}}}
	e.listing = &listing{opt: e.opt, book: book, files: files, board: board, bank: bank, restless: -restlessTicks}
	e.acct = &accounts{opt: e.opt, ticks: x, out: out, files: files, roster: roster, book: book, load: load, bank: bank}
	e.rounds = &rounds{opt: e.opt, out: out, acct: e.acct, book: book, roster: roster, load: load}
	e.harvest = &harvest{opt: e.opt, ticks: x, files: files, listing: e.listing, bank: bank, roster: roster, acct: e.acct, book: book, pool: p, load: load, rounds: e.rounds,
		toll: clocks.NewToll(new(taking.Live), opt.Budget.Nice)}
	e.news = &news{opt: e.opt, said: said, ticks: x, pulse: pulse, files: files, listing: e.listing, roster: roster, acct: e.acct, book: book, out: out,
		keeping: &keeping{opt: e.opt, pulse: pulse, board: board, pool: p, news: make(chan struct{}, 1)}}
	e.harvest.news, e.harvest.became.early = e.news, map[*clocks.Sample]*early{}
	e.looks = &lookout{opt: e.opt, said: said, ticks: x, pulse: pulse, files: files, listing: e.listing, bank: bank, roster: roster, news: e.news, acct: e.acct,
		book: book, load: load, reader: reader{pool: p, calm: new(waiting)}}
	return e
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

// loop coordinates until the time is over, nobody is left, or stop is closed.
func (e *engine) loop(r *Result) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(e.roster.procs) > 0 || e.opt.Follow.Joins != nil {
		if len(e.roster.procs) == 0 && !e.awaitJoin(timer) {
			break
		}
		now := ptrace.Now()
		if now >= e.ticks.until {
			break
		}
		if now >= e.ticks.dueAt(e.bank.Last) {
			quiet := e.onTick(now)
			e.pulse.rests()
			if quiet && e.acct.book.Tick()-e.roster.still() > boardTicks {
				timer.Stop() // it would wake the runtime
				e.doze()
			} else if e.resting.longest > 0 && !e.pulse.ends() {
				timer.Stop()
				e.vigil()
			}
			now = ptrace.Now()
		}
		e.harvest.hear()
		next, passed := min(e.ticks.dueAt(e.bank.Last), e.ticks.until), timer.C
		e.pulse.rests()
		if e.nap(next) {
			passed = over
		} else {
			timer.Reset(time.Duration(max(0, next-now)))
		}
		e.resting.vigil.heard = e.board.Bell() // who calls after what is found here
		select {
		case <-passed:
			e.pulse.works()
		case <-e.news.keeping.news:
			e.pulse.works()
			e.news.takeExits()
		case f := <-e.opt.Hooks.Suspend:
			e.suspend(f)
		case pids, open := <-e.opt.Follow.Joins:
			e.pulse.works()
			e.news.joinAll(pids, open)
		case <-e.pulse.stop:
			e.ticks.until = min(e.ticks.until, ptrace.Now())
		}
	}
	e.out.over()
	e.last(r)
}

// over is ready at any time.
var over = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// suspend calls f, which may take its time, while no thread of a target is stopped or asked to. Nobody is sampled
// meanwhile, and the CPU time is told as nobody's.
func (e *engine) suspend(f func()) {
	if e.news.keeping.on() {
		e.said.warn("not stopped: with --exit-stacks every thread would be held for as long (try: Ctrl-C)")
		return
	}
	e.pulse.works()
	e.board.Rest()
	if e.awaitStops() > 0 || e.bank.Busy() {
		e.said.warn("not stopped: a thread that was asked to stop for a sample has not yet, and would be held for as long (try: again, or Ctrl-C)")
		return
	}
	e.pulse.rests()
	f()
	e.pulse.works()
	n := e.ticks.passed(ptrace.Now())
	e.acct.book.Advance(n)
	for _, t := range e.roster.list {
		e.acct.book.Give(&t.line, n, ledger.Suspended)
		s, err := e.acct.files.schedstat(t)
		if err != nil {
			continue // it has ended
		}
		cpu := t.line.Charge(s.Run) // the next sample does not stand for that time
		if t.proc.cpu.charged += cpu; cpu > 0 && !e.opt.WallWeight {
			e.out.send(item{spent: &capture.Spent{PID: t.proc.pid, TID: t.tid, Weight: capture.Weight{CPU: cpu}}})
		}
	}
}

// leastTick bounds how often the coordinator looks, whatever the rate: clocks keep what they take
// meanwhile.
const leastTick = int64(time.Millisecond)

// onTick handles the ticks that have passed. quiet: nothing has run since the one before.
func (e *engine) onTick(now int64) (quiet bool) {
	n := e.ticks.answered(now)
	e.acct.book.Advance(n)
	e.out.flush()
	e.listing.retry()
	e.bank.Nudge(now - max(e.ticks.interval, leastTick))
	e.bank.Expire(n)
	e.harvest.drain()
	e.listing.renew(e.roster.procs)
	e.news.takeExits()
	e.news.find(n)
	e.acct.load.update(e.bank.Clocks(), now)
	e.board.SetStride(e.acct.load.both)
	e.pulse.publish(now, func() *Progress { return e.progress(now) })
	if e.rounds.due(now) {
		e.rounds.end(now, false)
	}
	step := max(1, leastTick/e.ticks.interval)
	e.ticks.due = n + step
	if s := e.acct.load.own.stride; s > 1 { // to look costs more than to sample
		e.ticks.due = (n + step + s - 1) / s * s
	}
	quiet = e.looks.choose(n)
	e.looks.wasLate(n)
	if quiet {
		e.ticks.due = max(e.ticks.due, n+watch.Rest(len(e.roster.list), n-e.roster.still(), e.ticks.interval))
	}
	e.bank.Go()
	return quiet
}

// last takes what clocks have under way at the end of a run.
func (e *engine) last(r *Result) {
	if len(e.roster.procs) > 0 || e.opt.Follow.Joins != nil { // else it has ended with the last process
		now := min(ptrace.Now(), e.ticks.until-1)
		e.acct.book.Advance(max(e.ticks.passed(now), e.acct.book.Tick()))
	}
	r.Clocks.N, r.Clocks.Told = e.bank.Clocks(), e.bank.Witnessed()
	e.board.Rest()
	r.Stops.Waits = e.awaitStops()
	e.bank.Close()
	e.harvest.drain()
	e.news.takeExits()
}

// stalled bounds what does not count of the time in which stops are awaited, as this program slept for longer than it wanted to: then the threads, maybe,
// could not run either.
const stalled = 2 * time.Second

// awaitStops takes the stops that are still to come: a thread that waits for a CPU
// stops when it gets one. One that is let go before its stop has its call cut short
// all the same, and nobody takes that back. One whose copy hangs goes on when we end.
func (e *engine) awaitStops() (waits int) {
	const pause = time.Millisecond
	begun, lost := ptrace.Now(), time.Duration(0)
	for {
		busy, waits := e.bank.Busy(), e.bank.Waits()
		since := time.Duration(ptrace.Now()-begun) - min(lost, stalled)
		if len(waits) == 0 && !busy || since >= lastStops && !slices.ContainsFunc(waits, func(a clocks.Asked) bool {
			return awaited(proc, a.PID, a.TID, since)
		}) {
			return len(waits)
		}
		e.pulse.works()
		slept := ptrace.Now()
		e.bank.Nudge(slept - leastTick)
		time.Sleep(pause)
		lost += time.Duration(ptrace.Now()-slept) - pause
		e.harvest.drain()
	}
}
