package clocks

import (
	"cmp"
	"slices"
	"time"

	"sfsample/sampler/taking"
)

// Bank has the clocks of a run, one for each CPU that threads of the target were found on
// lately, and one that is bound to none. The coordinator's goroutine uses it.
type Bank struct {
	Denied error // why clocks have no real-time priority, nil if they have
	Last   int64 // how long after a tick the last clock has it, nanoseconds

	k      taking.Kernel
	board  *Board
	opt    Options
	clocks map[int]*Clock // by CPU
	dead   map[int]int64  // CPUs that a clock could not be bound to, and when to try again
	old    []*Clock       // ending
	rover  rover
	missed int64
	late   int64
	looked int64
	list   []*Sample
	// What was asked of Fit last: the thread may go where no clock is yet.
	stack, beyond int
}

// rover is the clock that is bound to no CPU, nil if there is none, and since which tick it was asked for no more than so many stops.
type rover struct {
	clock *Clock
	asked uint32
	since int64
}

// phase is how long after a tick the clock of a CPU has it, in nanoseconds: up to spread, and clocks of any number of
// neighbouring CPUs far from each other (multiples of the golden ratio), since they ask one process, and take the same locks of
// the kernel.
func phase(cpu int, spread int64) int64 {
	const golden = 0x9e3779b9 // of 2^32
	return int64(uint32(cpu)*golden>>8) * spread >> 24
}

// NewBank returns a bank without clocks.
func NewBank(k taking.Kernel, b *Board, o Options) *Bank {
	return &Bank{k: k, board: b, opt: o, clocks: map[int]*Clock{}, dead: map[int]int64{}}
}

// again is after how many ticks it is tried anew to bind a clock to a CPU.
const again = 100

// Need makes sure that a CPU has a clock, from tick n+1 on. It tells whether that had
// one at tick n.
func (b *Bank) Need(cpu int, n int64) (there bool) {
	c := b.clocks[cpu]
	if c != nil && c.life.barred.Load() {
		b.dead[cpu] = n + again
		b.drop(cpu)
		return false
	}
	if c != nil {
		return c.ticks.born <= n && !c.starves(n)
	}
	if until, ok := b.dead[cpu]; ok && n < until {
		return false
	}
	o := b.opt
	o.Phase = phase(cpu, b.board.Spread)
	b.Last = max(b.Last, o.Phase)
	c, err := b.start(cpu, o)
	if err != nil {
		b.dead[cpu] = n + again
		return false
	}
	b.clocks[cpu] = c
	b.board.home(cpu, true)
	if b.beyond > 0 {
		b.Fit(b.stack, b.beyond)
	}
	return false
}

// drop ends the clock of a CPU.
func (b *Bank) drop(cpu int) {
	c := b.clocks[cpu]
	delete(b.clocks, cpu)
	b.board.home(cpu, false)
	b.end(c)
}

// slow is how many ticks a clock may take to answer one.
const slow = 8

// patient is for how long a clock may be kept from its CPU until it counts as starved, in nanoseconds: without real-time
// priority it may have to wait for the end of another's slice, which the scheduler looks at once in 10 ms at most
// (CONFIG_HZ; entity_tick, kernel/sched/fair.c), and of some more.
const patient = 50_000_000

// starves tells whether the clock gets no CPU: it has not handled the tick that was due so long before tick n, answers none now,
// waits for no stop, and did not leave its CPU to others then.
func (c *Clock) starves(n int64) bool {
	n -= max(1, patient/c.board.Interval)
	due := c.board.Start + n*c.board.Interval + c.ticks.phase
	done := c.shown.done.Load()
	return done < n && (!c.life.active.Load() || done < n-slow) && c.grip.since.Load() == 0 && due >= c.shown.rest.Load()
}

// Away tells that a CPU can have no clock, or has one that gets no time there.
func (b *Bank) Away(cpu int, n int64) bool {
	if c := b.clocks[cpu]; c != nil {
		return c.starves(n)
	}
	_, dead := b.dead[cpu]
	return dead
}

func (b *Bank) start(cpu int, o Options) (*Clock, error) {
	number := b.board.number()
	if number == 0 {
		return nil, errTooMany
	}
	o.First = firstRoom
	if o.deep()*firstRoom > b.Room() {
		o.First = commonRoom
	}
	c, denied, err := Start(b.k, b.board, cpu, number, o)
	if denied != nil {
		b.Denied = denied
	}
	return c, err
}

// Ask asks for a stop of the thread in a slot, whatever it does and wherever. false: there are too
// many requests.
func (b *Bank) Ask(slot int) bool { return b.request(slot) }

// AskRunning is Ask for a thread that was found running: it is left alone if it has blocked by then.
func (b *Bank) AskRunning(slot int) bool { return b.request(^slot) }

// request makes a request as the rover takes it: see [Clock.request].
func (b *Bank) request(r int) bool {
	if b.rover.clock == nil {
		o := b.opt
		o.Samples = min(4*o.Samples, maxRequests)
		c, err := b.start(Anywhere, o)
		if err != nil {
			return false
		}
		b.rover.clock = c
		b.Fit(b.stack, b.beyond)
	}
	return b.rover.clock.requests.add(r)
}

// Go lets the requests begin that were made.
func (b *Bank) Go() {
	if b.rover.clock != nil && b.rover.clock.requests.waiting() {
		b.rover.clock.wake()
	}
}

// idle is how long a clock stays that meets nobody, if Options.Stay is not longer.
const idle = 3 * time.Second

// unasked is how long the clock that is bound to no CPU stays: a busy machine needs it for a moment now and then, and it has room for the
// requests of many threads, 8 MB at 1,000 Hz.
const unasked = 10 * idle

// Expire ends the clocks that have met nobody for long, and have nobody to wait for. One that gets no CPU could not end.
func (b *Bank) Expire(n int64) {
	for cpu, c := range b.clocks {
		if time.Duration(n-c.shown.met.Load())*time.Duration(b.board.Interval) > max(idle, b.opt.Stay) && !c.starves(n) && !c.asks() {
			b.drop(cpu)
		}
	}
	if r := &b.rover; r.clock != nil {
		if made := r.clock.requests.made.Load(); made != r.asked || r.clock.requests.waiting() || r.clock.life.active.Load() || r.clock.asks() {
			r.asked, r.since = made, n
		} else if time.Duration(n-r.since)*time.Duration(b.board.Interval) > unasked {
			b.end(r.clock)
			*r = rover{}
		}
	}
	b.old = slices.DeleteFunc(b.old, func(c *Clock) bool {
		select {
		case <-c.life.ended:
			b.tally(c)
			if len(c.drain(nil)) > 0 {
				return false
			}
			b.board.clocks[c.who].Store(nil)
			return true
		default:
			return false
		}
	})
}

// asks tells whether a clock has asked a thread to stop that has not.
func (c *Clock) asks() bool {
	for i := range c.tracees.samples {
		if c.tracees.samples[i].state.Load() == asked {
			return true
		}
	}
	return false
}

func (b *Bank) end(c *Clock) {
	c.stop()
	b.old = append(b.old, c)
}

// tally keeps the counts of a clock that has ended.
func (b *Bank) tally(c *Clock) {
	b.missed += c.shown.missed.Swap(0)
	b.late += c.shown.late.Swap(0)
	b.looked += c.shown.looked.Swap(0)
}

// all calls f for every clock.
func (b *Bank) all(f func(*Clock)) {
	for _, c := range b.clocks {
		f(c)
	}
	for _, c := range b.old {
		f(c)
	}
	if b.rover.clock != nil {
		f(b.rover.clock)
	}
}

// Drain returns the samples that were taken since the last call, by time. Each is to be given
// back by [Sample.Done].
func (b *Bank) Drain() []*Sample {
	b.list = b.list[:0]
	b.all(func(c *Clock) { b.list = c.drain(b.list) })
	slices.SortFunc(b.list, func(x, y *Sample) int { return cmp.Compare(x.At.Released, y.At.Released) })
	return b.list
}

// Nudge makes clocks go on that have waited for a stop since before the CLOCK_MONOTONIC time t,
// and takes the ends of threads that an exec may wait for while they are asked
// (de_thread, fs/exec.c).
func (b *Bank) Nudge(t int64) {
	b.all(func(c *Clock) {
		c.nudge(t)
		if since := c.grip.since.Load(); since != 0 && since < t {
			c.reap()
		}
	})
}

// hangs tells whether the clock was given up, or the keeper, who would answer it.
func (b *Bank) hangs(c *Clock) bool { return c.grip.holds.Load() < 0 || b.board.kept.since.Load() < 0 }

// Busy tells whether a clock may be about to ask for a stop. After [Board.Rest] that is over soon, but for one that hangs.
func (b *Bank) Busy() (busy bool) {
	b.all(func(c *Clock) {
		busy = busy || !b.hangs(c) && (c.life.active.Load() || c.requests.waiting())
	})
	return busy
}

// Waits lists the threads that clocks have asked to stop, and that have not. One that is being seized was not asked yet; what a
// clock has asked that hangs, nobody can answer.
func (b *Bank) Waits() (list []Asked) {
	b.all(func(c *Clock) {
		for i := range c.tracees.samples {
			if m := &c.tracees.samples[i]; m.state.Load() == asked && !b.hangs(c) {
				list = append(list, Asked{m.PID, m.TID})
			}
		}
	})
	return list
}

// Asked is a thread that was asked to stop.
type Asked struct{ PID, TID int }

// patience is for how long the end of a bank waits for clocks, together.
const patience = 500 * time.Millisecond

// Close ends all clocks and waits for that, but not for one that hangs. Threads that have not stopped yet are
// let go by the kernel.
func (b *Bank) Close() {
	for _, c := range b.clocks {
		b.end(c)
	}
	clear(b.clocks)
	if b.rover.clock != nil {
		b.end(b.rover.clock)
		b.rover = rover{}
	}
	late := time.After(patience)
	for _, c := range b.old {
		for ended := b.hangs(c); !ended; {
			select {
			case <-c.life.ended:
				b.tally(c)
				ended = true
			case <-late:
				return
			case <-time.After(freeEvery):
				b.board.Free(0)
				c.wake() // the signal may have come just before it slept
			}
		}
	}
}

// freeEvery is how often clocks are freed and woken that do not end: one may bind itself, or begin to sleep, only then.
const freeEvery = 10 * time.Millisecond

// Counts are ticks that clocks have not seen, those that they answered more than half an interval late,
// and the time that looks took at which they found nobody.
func (b *Bank) Counts() (missed, late int64, looked time.Duration) {
	m, l, k := b.missed, b.late, b.looked
	b.all(func(c *Clock) {
		m += c.shown.missed.Load()
		l += c.shown.late.Load()
		k += c.shown.looked.Load()
	})
	return m, l, time.Duration(k)
}

// Clocks is how many CPUs have a clock.
func (b *Bank) Clocks() int { return len(b.clocks) }

// Witnessed tells whether there are clocks, and the kernel tells each who had its CPU at a tick.
func (b *Bank) Witnessed() bool {
	for _, c := range b.clocks {
		if !c.search.witness.set.Load() {
			return false
		}
	}
	return len(b.clocks) > 0
}

// Everywhere tells whether each of so many CPUs had a clock at tick n.
func (b *Bank) Everywhere(cpus int, n int64) bool {
	if len(b.clocks) < cpus {
		return false
	}
	for _, c := range b.clocks {
		if c.ticks.born > n || c.life.barred.Load() || c.starves(n) {
			return false
		}
	}
	return true
}

// Room is how many bytes more clocks may have room for.
func (b *Bank) Room() int {
	room := maxRoom
	b.all(func(c *Clock) {
		for i := range c.tracees.samples {
			room -= c.tracees.samples[i].large()
		}
	})
	return max(room, 0)
}

// RoundUp is how much room for further stacks to have where so much is wanted, in bytes: what threads want differs by little, and rooms go from one to another.
func RoundUp(beyond int) int { return (beyond + roundTo - 1) &^ (roundTo - 1) }

const roundTo = 8 << 10

// Fit sees to it that every clock has room for some stacks of so many bytes, and for so many beyond a
// signal handler's, as far as [Bank.Room] goes.
func (b *Bank) Fit(stack, beyond int) {
	b.stack, b.beyond = stack, beyond
	room := b.Room()
	b.all(func(c *Clock) {
		fits := func(m *Sample) bool { return len(m.Buffer.Stack.Room) >= stack && len(m.Buffer.Beyond.Room) >= beyond }
		n := 0
		for i := range c.tracees.samples {
			if c.tracees.samples[i].state.Load() == free && fits(&c.tracees.samples[i]) {
				n++
			}
		}
		many := b.opt.deep()
		if c == b.rover.clock || beyond >= roundTo && stack+beyond <= 4*commonRoom {
			many = max(many, 4*first) // as one may be asked for many threads at a tick, and some are taken before they are fetched
		}
		for i := 0; i < len(c.tracees.samples) && n < many; i++ {
			m := &c.tracees.samples[i]
			had, own, further := m.large(), max(stack, len(m.Buffer.Stack.Room)), max(beyond, len(m.Buffer.Beyond.Room))
			if fits(m) || own+further-commonRoom > room+had || !m.state.CompareAndSwap(free, filled) {
				continue
			}
			m.fill(own, further)
			room -= m.large() - had
			m.state.Store(free)
			n++
		}
	})
}
