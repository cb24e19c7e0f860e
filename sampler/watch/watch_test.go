package watch

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The model: threads are on a CPU from one instant to another, and the truth is known. Their counters show what
// the kernel's would: the run count that of when they were put on a CPU last, the run time that of the last tick of
// the scheduler, or of when they went off it.

// actor is a thread of the model.
type actor struct {
	Thread
	id      int
	every   time.Duration // it wakes about so often; 0: never
	runs    time.Duration // for about so long; 0: until it is told otherwise
	on      bool
	count   uint64
	run     time.Duration // up to upTo
	upTo    time.Duration // run is exact of this instant, if it is on
	next    time.Duration // when it goes on or off its CPU
	phase   time.Duration // of its CPU's scheduler ticks
	onSince time.Duration
	owed    int64 // first tick that is not credited
	truth   []span
}

// span is a time on a CPU.
type span struct{ from, to time.Duration }

const never = time.Duration(1) << 62

// stage is a process of actors, and what a coordinator does with it at each tick.
type stage struct {
	r *rand.Rand
	Timing
	p       Process
	pace    Pace
	actors  []*actor
	exited  time.Duration
	foreign bool // a thread that is not sampled runs now and then
	torn    int  // of 100 readings, how many find other times after the clock
	slow    int  // of 1000 steps of the coordinator, how many are held up
	now     time.Duration
	looks   int
	unsure  int64
	idle    int64
	latest  int64 // ticks until a run was found out
	wrong   string
}

// about is a time that is near d.
func (s *stage) about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.05 + 1.9*s.r.Float64()))
}

// pass lets the model's time go on to at.
func (s *stage) pass(at time.Duration) {
	for s.now = max(s.now, at); ; {
		var first *actor
		for _, a := range s.actors {
			if a.next <= s.now && (first == nil || a.next < first.next) {
				first = a
			}
		}
		if first == nil {
			return
		}
		s.turn(first)
	}
}

// turn puts a thread on its CPU or off it at a.next.
func (s *stage) turn(a *actor) {
	at := a.next
	if a.on {
		a.run += at - a.upTo
		a.truth = append(a.truth, span{a.onSince, at})
		a.on, a.next = false, never
		if a.every > 0 {
			a.next = at + 1 + s.about(a.every)
		}
		return
	}
	a.on, a.upTo, a.onSince, a.next = true, at, at, never
	a.count++
	if a.runs > 0 {
		a.next = at + 1 + s.about(a.runs)
	}
}

// shown is the run time of a thread as the kernel shows it.
func (s *stage) shown(a *actor) time.Duration {
	if a.on {
		if tick := (s.now-a.phase)/s.Lag*s.Lag + a.phase; tick > a.upTo {
			a.run, a.upTo = a.run+tick-a.upTo, tick
		}
	}
	return a.run
}

// step is what a system call of the coordinator takes.
func (s *stage) step() {
	d := time.Duration(200 + s.r.IntN(3000))
	if s.r.IntN(1000) < s.slow {
		d += time.Duration(s.r.IntN(int(s.Interval * 2)))
	}
	s.pass(s.now + d)
}

func (s *stage) read(n int64, need Need) {
	if need == Nothing {
		return
	}
	sum := func() (sum time.Duration) {
		if need != Times {
			return 0
		}
		for _, a := range s.actors {
			if !a.Asleep() {
				sum += s.shown(a)
				s.step()
			}
		}
		return sum
	}
	r := Reading{Before: sum()}
	r.Clock = s.exited
	for _, a := range s.actors {
		r.Clock += s.shown(a)
	}
	s.step()
	if r.After = sum(); s.r.IntN(100) < s.torn {
		r.After++
	}
	s.p.Read(n, r)
}

// credit says that a thread was idle up to tick n.
func (s *stage) credit(a *actor, n int64) {
	for ; a.owed <= n; a.owed++ {
		at := time.Duration(a.owed) * s.Interval
		s.idle++
		for i := len(a.truth) - 1; i >= 0 && a.truth[i].to > at; i-- {
			if a.truth[i].from <= at {
				s.wrong = fmt.Sprintf("thread %d is credited idle at tick %d, %v, and ran from %v to %v", a.id, a.owed, at, a.truth[i].from, a.truth[i].to)
			}
		}
		if a.on && a.onSince <= at {
			s.wrong = fmt.Sprintf("thread %d is credited idle at tick %d, %v, and runs since %v", a.id, a.owed, at, a.onSince)
		}
	}
}

// look is the coordinator's.
func (s *stage) look(a *actor, n int64) {
	s.looks++
	count, run := a.count, s.shown(a)
	s.step()
	if a.Same(count) {
		s.credit(a, n)
		a.SleepsOn(n, s.pace.Gap(a.id, a.Waited(n)))
		return
	}
	if a.Asleep() {
		s.latest = max(s.latest, n-s.firstAfter(a, a.seen))
		sure := a.Ran(&s.p, n, run)
		s.credit(a, sure)
		s.unsure += max(0, n-a.owed)
	}
	a.owed = n + 1 // awake before, and now it is looked at
	if a.on {
		return
	}
	s.step()
	count, run = a.count, s.shown(a)
	if s.step(); !a.on {
		a.Sleeps(&s.p, n, count, run)
	}
}

// firstAfter is the tick at which a thread began to run first after tick n was handled.
func (s *stage) firstAfter(a *actor, n int64) int64 {
	first := a.onSince
	for i := len(a.truth) - 1; i >= 0 && a.truth[i].from > time.Duration(n)*s.Interval+s.Slack(); i-- {
		first = a.truth[i].from
	}
	return int64(first / s.Interval)
}

// tick is the coordinator's. It waits for tick n, or comes late, and returns the one that it has handled.
func (s *stage) tick(n int64) int64 {
	s.pass(time.Duration(n)*s.Interval + s.Slack())
	n = int64((s.now - s.Slack()) / s.Interval)
	s.pace.Begin(int64(s.Interval))
	s.read(n, s.p.Begin(n, len(s.actors)))
	for _, a := range s.actors {
		if !a.Asleep() || a.Due(&s.p, a.id, n) {
			s.look(a, n)
		}
	}
	s.read(n, s.p.Again(n, len(s.actors)))
	if s.p.Moved() {
		for _, a := range s.actors {
			if a.DueAgain(&s.p, n) {
				s.look(a, n)
			}
		}
	}
	for _, a := range s.actors { // what may still be asked for
		from := time.Duration(a.owed-2) * s.Interval
		for len(a.truth) > 0 && a.truth[0].to < from {
			a.truth = a.truth[1:]
		}
		if now := int64(s.now / s.Interval); now > n && a.Asleep() && a.Since() == n {
			a.owed = max(a.owed, now+1) // they had passed when it was looked at, maybe
		}
	}
	return n
}

// join adds a thread that wakes about once in so many ticks and runs for a part of a tick; negative: it
// runs all the time; 0: never.
func (s *stage) join(every int) *actor {
	a := &actor{id: len(s.actors), count: 1, run: time.Duration(1000 + s.r.IntN(1000)), next: never, phase: time.Duration(s.r.Int64N(int64(s.Lag)))}
	switch {
	case every < 0:
		a.next = s.now
	case every > 0:
		a.every, a.runs = time.Duration(every)*s.Interval, s.about(s.Interval/time.Duration(1+s.r.IntN(1000)))
		if s.r.IntN(4) == 0 {
			a.runs = s.about(3 * s.Interval)
		}
		a.next = s.now + 1 + s.about(a.every)
	}
	a.owed = int64(s.now/s.Interval) + 1
	s.actors = append(s.actors, a)
	return a
}

func newStage(seed uint64, interval time.Duration, every ...int) *stage {
	s := &stage{r: rand.New(rand.NewPCG(seed, 1))}
	s.Timing = Timing{interval, time.Second / []time.Duration{100, 250, 300, 1000}[s.r.IntN(4)]}
	s.p = NewProcess(0, s.Timing, 0)
	for _, e := range every {
		s.join(e)
	}
	return s
}

// play plays one schedule: threads of all kinds, that also begin and end to run, exit and are born. It returns what was
// wrong.
func play(seed uint64, ticks int64) (*stage, string) {
	r := rand.New(rand.NewPCG(seed, 2))
	every := make([]int, 1+r.IntN(40))
	for i := range every {
		every[i] = []int{0, 0, 0, 1, 3, 30, 300, 3000, -1}[r.IntN(9)]
		if i > 3 && r.IntN(3) > 0 {
			every[i] = 0
		}
	}
	rare := 1
	if seed%3 == 0 { // few are awake, others wake after long waits: the clock is all there is
		every = append(make([]int, awakePart), -1, 300, 1000, 300)
		ticks, rare = 3*ticks, 100
	}
	s := newStage(seed, time.Second/[]time.Duration{99, 99, 49, 499, 997}[r.IntN(5)], every...)
	s.foreign = seed%5 == 4
	s.torn = []int{0, 0, 10, 100}[r.IntN(4)]
	s.slow = []int{0, 0, 1, 20}[r.IntN(4)]
	for n := int64(1); n < ticks && s.wrong == ""; n++ {
		n = s.tick(n)
		i := r.IntN(len(s.actors))
		a := s.actors[i]
		switch r.IntN(300 * rare) {
		case 0, 1: // it begins to run, or to wait
			a.runs, a.every = 0, 0
			a.next = s.now + time.Duration(r.Int64N(int64(s.Interval)))
		case 2: // it wakes at this rhythm from now on
			a.every, a.runs = s.Interval*time.Duration(1+r.IntN(200)), s.about(s.Interval/time.Duration(1+r.IntN(100)))
			a.next = s.now + s.about(a.every)
		case 3: // it exits, another is born
			a.Wakes(&s.p)
			s.p.Forget()
			if a.on {
				a.run += s.now - a.upTo
			}
			s.exited += a.run
			s.actors = append(s.actors[:i], s.actors[i+1:]...)
			s.join(r.IntN(50)).id = i
		case 4:
			s.p.Failed(n)
		case 5:
			if s.foreign {
				s.exited += time.Duration(1 + r.IntN(1000))
			}
		}
	}
	return s, s.wrong
}

// schedules is how many the tests play: SFSAMPLE_TEST_LONG has millions of them.
func schedules(few int) uint64 {
	n := uint64(few)
	if long, err := strconv.ParseUint(os.Getenv("SFSAMPLE_TEST_LONG"), 10, 32); err == nil {
		n *= max(long, 1)
	}
	return n
}

// TestWatch: no thread is credited idle in a tick at whose instant it was on a CPU, whatever runs beside it, and each
// that has run is found out soon.
func TestWatch(t *testing.T) {
	const ticks = 400
	var wg sync.WaitGroup
	jobs := uint64(runtime.GOMAXPROCS(0))
	for job := range jobs {
		wg.Go(func() {
			for seed := job; seed < schedules(80); seed += jobs {
				s, wrong := play(seed, ticks)
				if wrong != "" {
					t.Errorf("schedule %d: %s", seed, wrong)
					return
				}
				if s.latest > oddTicks+2*maxGap && s.slow == 0 {
					t.Errorf("schedule %d: a thread that had run was found out %d ticks later", seed, s.latest)
				}
			}
		})
	}
	wg.Wait()
}

const tick = time.Second / 99

// TestBeside: threads that never run cost nothing beside some that do, once
// they were looked at.
func TestBeside(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every []int
		most  int // looks at sleepers in 1000 ticks, in which each is looked at once anyhow
	}{
		{"nothing", nil, 100},
		{"a thread that has exited", nil, 100},
		{"a busy thread", []int{-1}, 100},
		{"a busy thread and one that has exited", []int{-1}, 100},
		{"a thread that wakes at each tick", []int{1}, 3000}, // a few times right after its look
		{"both", []int{-1, 1}, 3000},
		{"both and one that wakes now and then", []int{-1, 1, 60}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(1, tick, append(make([]int, 100), tt.every...)...)
			looks := 0
			for n := int64(0); n < 2000; n++ {
				switch {
				case n == 500 && strings.HasSuffix(tt.name, "exited"):
					s.exited += time.Millisecond // nobody has seen it
				case n == 1000:
					looks = 0
				}
				s.looks = 0
				s.tick(n)
				looks += s.looks
			}
			looks -= 1000 * len(tt.every) // those are looked at
			if looks > tt.most {
				t.Errorf("%d looks at 100 threads that never ran, want at most %d", looks, tt.most)
			}
			t.Log(looks, "looks;", s.unsure, "ticks unsure", s.idle)
		})
	}
}

// TestTorn: where no reading tells anything, threads are looked at as before.
func TestTorn(t *testing.T) {
	s := newStage(1, tick, append(make([]int, 100), -1)...)
	for n := int64(0); n < 1000; n++ {
		if n == 500 {
			s.torn = 100
		}
		if n == 600 {
			s.actors[7].next, s.actors[7].runs = s.now+1, time.Millisecond
		}
		s.tick(n)
	}
	if s.latest == 0 || s.latest > 2*maxGap {
		t.Errorf("a thread that had run was found out %d ticks later, want 1 to %d", s.latest, 2*maxGap)
	}
}

// TestForgotten: a thread that has run, and fell asleep again, while nobody knew what the sum must be, is looked at, although
// the clock stands from then on.
func TestForgotten(t *testing.T) {
	for _, beside := range [][]int{nil, {-1}} {
		s := newStage(1, tick, append(make([]int, 100), beside...)...)
		for n := int64(1); n < 1000; n++ {
			n = s.tick(n)
			if n == 900 {
				s.actors[7].next, s.actors[7].runs = s.now+1, time.Microsecond
				s.pass(s.now + 10*time.Microsecond)
				s.p.Forget()
			}
		}
		if s.latest == 0 || s.latest > 2*maxGap {
			t.Errorf("beside %d: found out %d ticks later, want 1 to %d", len(beside), s.latest, 2*maxGap)
		}
	}
}

// TestLong: a thread that does not run is looked at now and then whatever the clock says.
func TestLong(t *testing.T) {
	s := newStage(1, tick, make([]int, 20)...)
	for n := int64(1); n < 100; n++ {
		s.tick(n)
	}
	s.looks = 0
	for n := int64(100); n < 100+3*anyhow; n++ {
		s.tick(n)
	}
	if s.looks < 20 || s.looks > 100 || s.idle < 20*anyhow {
		t.Errorf("%d looks at 20 threads, %d ticks credited", s.looks, s.idle)
	}
}

// TestLag: a thread begins to run right before a tick at which the clock is read, and that does not show yet.
func TestLag(t *testing.T) {
	for _, hz := range []time.Duration{100, 250, 1000} {
		for _, rate := range []time.Duration{99, 499, 997} {
			for _, runs := range []time.Duration{300 * time.Microsecond, 3 * time.Millisecond, time.Second} {
				s := newStage(1, time.Second/rate, append(make([]int, 17), -1)...)
				s.Lag = time.Second / hz
				s.p.times = s.Timing
				a := s.actors[7]
				read := int64(0)
				for n := int64(1); n < 3000 && s.wrong == ""; n++ {
					if n = s.tick(n); n == 2500 {
						read = s.p.next
						at := time.Duration(read) * s.Interval
						a.next, a.runs, a.phase = at-min(s.Lag, 290*time.Microsecond), 0, (at+s.Slack()+10*time.Microsecond)%s.Lag
					}
					if a.on && s.now-a.onSince > runs {
						a.runs, a.next = 0, s.now
					}
				}
				if s.wrong != "" || s.latest == 0 {
					t.Errorf("%d Hz, scheduler's %d Hz, runs for %v, read at tick %d: found out %d ticks later; %s", rate, hz, runs, read, s.latest, s.wrong)
				}
				// A tick for the part that ran before, and what the counter may lag behind.
				if most := maxGap + int64(s.Lag/s.Interval) + 2; s.unsure == 0 || s.unsure > most {
					t.Errorf("%d Hz, scheduler's %d Hz, runs for %v: %d ticks unsure, want 1 to %d", rate, hz, runs, s.unsure, most)
				}
			}
		}
	}
}

// TestStill: a thread that was found without running is still there as long as neither its count nor its time has changed, and
// until it is known to be blocked.
func TestStill(t *testing.T) {
	var p Process
	var x, unknown, running Thread
	x.Found(7, 500)
	unknown.Found(0, 500)
	for _, tt := range []struct {
		thread *Thread
		count  uint64
		run    time.Duration
		want   bool
	}{{&x, 7, 500, true}, {&x, 8, 500, false}, {&x, 7, 501, false}, {&unknown, 0, 500, false}, {&running, 7, 500, false}} {
		if got := tt.thread.Still(tt.count, tt.run); got != tt.want || tt.thread.Asleep() {
			t.Errorf("%+v with count %d and time %d: still %t, want %t", tt.thread, tt.count, tt.run, got, tt.want)
		}
	}
	x.Sleeps(&p, 3, 7, 500)
	if x.Still(7, 500) || !x.Same(7) {
		t.Error("a thread in a wait is asked for as one that was never looked at")
	}
}
