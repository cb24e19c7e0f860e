package sampler

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/clocks"
	"sfsample/sampler/taking"
)

// doze passes the ticks at which no process runs. To Go's runtime it is one long system call (see [ptrace.Outside]):
// each tick is one wake-up, where the runtime would make about eight of a timer, its monitor's among them.
type doze struct {
	start, interval int64 // ticks are due at start + n*interval, CLOCK_MONOTONIC nanoseconds
	tick, last      int64 // the tick that has passed; the one at which it ends in any case
	step            int64 // ticks from one look to the next: a clock costs the more to read, the more threads there are
	n               int   // clocks in use
	clocks          [maxDozing]int32
	stood           [maxDozing]int64
}

const (
	// maxDozing is how many processes are watched in this way.
	maxDozing = 64
	// longestDoze bounds for how long nobody else is heard.
	longestDoze = 200 * time.Millisecond
)

// Outside waits until a clock has moved, a process is gone, or the last tick has passed.
//
//go:nosplit
//go:norace
func (d *doze) Outside() {
	for d.tick < d.last {
		d.tick = min(d.tick+d.step, d.last)
		due := d.start + d.tick*d.interval
		for ptrace.RawNow() < due {
			ptrace.RawSleep(due)
		}
		for i := range d.n {
			if now, errno := ptrace.RawClock(d.clocks[i]); errno != 0 || now != d.stood[i] {
				return
			}
		}
	}
}

// vigil passes ticks at which clocks have all that is to be done. Shortly before each tick it reads for those without a witness who has run, so that they
// need not look at all who have since the last one. Where all have one it sleeps until clocks call. To Go's runtime it is one long system call.
type vigil struct {
	tells           bool   // some have none
	sleeps          bool   // until clocks call
	heard           uint32 // how often clocks had called before
	lone            bool   // there is one clock: nobody else sees that it waits
	ends            int64  // CLOCK_MONOTONIC, at which it does where it sleeps: the clocks of the last tick have answered, or the run is over
	seeks           bool   // threads may run on a CPU that has no clock
	unmet           unmet
	board           *clocks.Board
	kernel          taking.Kernel
	start, interval int64
	tick, last      int64 // the tick that comes next; the one at which it ends in any case
	least           int64 // CLOCK_MONOTONIC, before which no call is heard
	families        []family
}

// family is the threads of a process: its folder /proc/PID/task, how many links that has while none is born or ends, and its group. folder is
// negative where it need not be looked at.
type family struct {
	folder, group int
	links         int64
}

// unmet is the ticks at which threads have run, by their processes' CPU time, and no clock has met them.
type unmet struct {
	clocks   float64 // how many there are
	since    int64   // CLOCK_MONOTONIC, from when on it is counted
	at       int64   // up to which it is known; 0: nothing is
	met      int64   // how often clocks had met a thread then
	ticks    float64 // so many more than were met
	variance float64 // of that, where all were met: who runs for a part of the time is met by chance
}

// sureTicks is how many ticks more than chance would have it are no chance.
const sureTicks = 1.5

const (
	// seldomTick is the shortest interval of ticks at which an agent's vigils are long, nanoseconds.
	seldomTick = int64(50 * time.Millisecond)
	// seldomSpread is for how long the clocks' phases are apart then at most, and perClock for how long for each CPU: what was read before
	// the first still tells the last much.
	seldomSpread = int64(2 * time.Millisecond)
	perClock     = int64(100 * time.Microsecond)
	// longestVigil bounds for how long the coordinator of an agent looks at nobody, and briefVigil that of others: what is read of a process later, as names and code that it
	// makes and throws away, is to be read soon. briefTick is the shortest interval of ticks for that.
	longestVigil = 600 * time.Millisecond
	briefVigil   = 50 * time.Millisecond
	briefTick    = int64(5 * time.Millisecond)
	// restlessTicks is for how long what clocks do not do alone is expected to come again.
	restlessTicks = 64
	// clockStay is how long a clock stays that meets nobody: until its CPU has one again some ticks pass.
	clockStay = 10 * time.Second
	// ahead is how long before a tick a vigil is kept at least: late wake-ups take less. To that comes perFamily for each process that is read.
	ahead     = int64(120 * time.Microsecond)
	perFamily = int64(5 * time.Microsecond)
	// seekEvery is after how many ticks it is looked whether threads run where no clock is.
	seekEvery = 2
)

// Outside is kept until the last tick, or one before which a thread was born or has ended (where it sleeps: at which a clock has met one that is not on the board), or a
// clock has waited for a stop for longer than between two ticks.
//
//go:nosplit
//go:norace
func (v *vigil) Outside() {
	if v.sleeps {
		for v.kernel.Now() < v.least {
			v.kernel.Sleep(v.least) // who calls at each tick is not heard at each
		}
		for now := v.kernel.Now(); now < v.ends && v.board.Bell() == v.heard && !v.missing() && !(v.lone && v.board.Waits(now-v.interval)); now = v.kernel.Now() {
			until := v.ends
			if v.seeks || v.lone {
				until = min(until, now+seekEvery*v.interval)
			}
			v.board.Sleep(v.kernel, v.heard, until)
		}
		v.tick = min(v.last, (v.kernel.Now()-v.start)/v.interval)
		return
	}
	for v.tick < v.last {
		v.tick++
		at := v.start + v.tick*v.interval - ahead - perFamily*int64(len(v.families))
		for ptrace.RawNow() < at {
			ptrace.RawSleep(at)
		}
		if missing := v.missing(); missing || v.board.Waits(at-v.interval) {
			return
		}
		for i := range v.families {
			f := &v.families[i]
			if f.folder < 0 || v.tells && f.group >= 0 && v.board.Ran(f.group) == 0 {
				continue // who is born, or ends, has run
			}
			if n, errno := ptrace.RawLinks(f.folder); errno != 0 || n != f.links {
				return
			}
		}
	}
}

// missing tells groups, if that is to be done, and whether threads seem to run where no clock is: beyond what is chance by two standard deviations.
//
//go:nosplit
//go:norace
func (v *vigil) missing() bool {
	if !v.tells && !v.seeks {
		return false
	}
	met := v.board.Tell(v.kernel, v.tells)
	x, now := &v.unmet, v.kernel.Now()
	if ticks := float64(now-x.at) / float64(v.interval); x.at != 0 && ticks > 0 {
		for i := range v.families {
			if v.families[i].group < 0 {
				continue
			}
			ran, most := float64(v.board.Ran(v.families[i].group))/float64(v.interval), ticks
			if ran > most { // of several threads
				most = x.clocks * ticks
			}
			if x.ticks += max(ran, 0); ran > 0 && ran < most {
				x.variance += ran * (1 - ran/most)
			}
		}
		x.ticks -= float64(met - x.met)
	}
	x.at, x.met = now, met
	over := x.ticks - sureTicks
	return v.seeks && over > 0 && over*over > 4*x.variance
}

// nap waits for a moment, as doze does, or until clocks call.
type nap struct {
	until   int64
	listens bool
	heard   uint32 // how often clocks had called before
	board   *clocks.Board
	kernel  taking.Kernel
}

// Outside waits until then.
//
//go:nosplit
//go:norace
func (x *nap) Outside() {
	for ptrace.RawNow() < x.until {
		if !x.listens {
			ptrace.RawSleep(x.until)
		} else if x.board.Sleep(x.kernel, x.heard, x.until); x.board.Bell() != x.heard {
			return
		}
	}
}

// prompt has the kernel wake the calling thread in time: the one that made it may be waked late.
func prompt() {
	const slack = 50_000 // nanoseconds, as processes have it from their beginning
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
}

// resting is how the coordinator waits while there is nothing to do.
type resting struct {
	longest time.Duration // for which it looks at nobody; 0: it looks at each tick
	told    bool          // the pipeline was told that it does
	doze    doze
	nap     nap
	vigil   vigil
}

// nap waits until a CLOCK_MONOTONIC time, without a timer of Go's runtime. false: nobody would be heard for too long.
func (e *engine) nap(until int64) bool {
	wait := until - ptrace.Now()
	if e.news.keeping.on() || wait > int64(longestDoze) {
		return false
	}
	if wait <= 0 {
		return true
	}
	prompt()
	x := &e.resting.nap
	x.until, x.listens, x.heard = until, e.harvest.became.listens(e.acct.book.Tick()), e.harvest.became.heard
	ptrace.Outside(x)
	return true
}

// doze waits while nothing runs, and sets which tick is due then; until then it is the next to be looked at.
func (e *engine) doze() {
	d := &e.resting.doze
	if len(e.roster.procs) == 0 || len(e.roster.procs) > maxDozing || e.news.keeping.on() || !e.out.empty() || e.listing.pending() || e.ticks.interval < leastTick {
		return
	}
	d.start, d.interval, d.n = e.ticks.start+min(e.ticks.interval/2, leastTick/2), e.ticks.interval, 0
	d.tick = e.acct.book.Tick()
	d.step = max(1, e.ticks.due-d.tick)
	d.last = min(d.tick+max(d.step, int64(longestDoze)/e.ticks.interval), (e.ticks.until-1-d.start)/e.ticks.interval)
	for _, p := range e.roster.procs {
		d.clocks[d.n], d.stood[d.n] = p.clock, int64(p.watch.Clock())
		d.n++
	}
	prompt()
	ptrace.Outside(d)
	e.ticks.due = d.tick
}

// vigil leaves some ticks to the clocks, and sets which tick is due then.
func (e *engine) vigil() {
	v, n := &e.resting.vigil, e.acct.book.Tick()
	if e.listing.pending() || e.news.keeping.on() || len(e.roster.procs) == 0 {
		return
	}
	v.tells = !e.bank.Witnessed()
	v.lone = e.bank.Clocks() == 1
	// Threads that were not asked for are never on the board.
	v.sleeps = !v.tells && !(v.lone && e.opt.Budget.Seldom) && len(e.roster.wanted) == 0
	for _, p := range e.roster.procs {
		v.sleeps = v.sleeps && p.group >= 0 // else nobody calls for it
	}
	if quiet := n >= e.listing.restless+restlessTicks; !e.opt.Budget.Seldom && (!v.sleeps || !quiet || e.acct.load.both != clocks.Every) {
		if e.resting.told && !quiet {
			e.resting.told = false
			e.out.send(item{batches: -1})
		}
		return // it would wake at each tick, or what it has missed would be accounted for wrongly
	}
	if !e.resting.told {
		e.resting.told = true
		e.out.send(item{batches: 1})
	}
	v.board, v.start, v.interval = e.board, e.ticks.start, e.ticks.interval
	// Where not every tick is answered it would be no wonder.
	v.seeks = !e.bank.Everywhere(cpus(), n) && e.acct.load.both <= clocks.Every
	if v.kernel == nil {
		v.kernel = new(taking.Live)
	}
	end := e.ticks.until
	if e.opt.Every > 0 {
		end = min(end, e.rounds.now.until)
	}
	if x := &v.unmet; x.clocks != float64(e.bank.Clocks()) || ptrace.Now()-x.since > int64(longestVigil) {
		*x = unmet{clocks: float64(e.bank.Clocks()), since: ptrace.Now()}
	}
	v.tick, v.last = n, min(max(e.ticks.due, n+int64(e.resting.longest)/v.interval), e.ticks.passed(end)+1)
	if v.least = 0; e.opt.Budget.Seldom {
		v.least = v.start + (n+1)*v.interval
	}
	v.ends = min(v.start+v.last*v.interval+e.bank.Last+int64(e.ticks.times.Slack()), e.ticks.until)
	v.families = v.families[:0]
	for _, p := range e.roster.procs {
		f := family{-1, p.group, 2 + p.census.others + int64(p.threads.Load())}
		if n >= p.census.next {
			f.folder = p.mem.tasks
		}
		v.families = append(v.families, f)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	prompt()
	if !v.sleeps { // else clocks wait for nothing that it does
		defer clocks.Hasten(e.opt.Budget.Nice)()
	}
	ptrace.Outside(v)
	if e.ticks.due = max(v.tick, n+1); e.board.Bell() != v.heard || e.board.Waits(ptrace.Now()-v.interval) {
		e.listing.restless = v.tick
	}
}
