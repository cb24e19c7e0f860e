package watch

import (
	"testing"
	"time"
)

const tick99 = int64(time.Second / 99)

// waiter is a thread that wakes now and then, in ticks.
type waiter struct {
	period, wakes       int64 // how often, and when next
	since, looked, next int64
}

// tick plays one tick and returns how many ticks turn out to be unsure.
func (w *waiter) tick(p *Pace, tid int, n int64) (unsure int64) {
	if n < w.next {
		return 0
	}
	if woke := w.wakes <= n; woke {
		for w.wakes <= n {
			w.wakes += w.period
		}
		unsure = n - 1 - w.looked
		w.since, w.next = n, n+1
	} else {
		w.next = n + p.Gap(tid, n-w.since)
	}
	w.looked = n
	return unsure
}

// TestPace: whatever the rhythm of its waits, less than one in a hundred of a
// thread's ticks is unsure.
func TestPace(t *testing.T) {
	for period := int64(1); period < 5000; period += 1 + period/7 {
		for tid := range 8 {
			var p Pace
			w := waiter{period: period, wakes: period / 2}
			const ticks = 100_000
			unsure := int64(0)
			for n := int64(1); n <= ticks; n++ {
				p.Begin(tick99)
				unsure += w.tick(&p, tid, n)
			}
			if unsure*100 >= ticks {
				t.Errorf("a wait of %d ticks, thread %d: %d of %d ticks unsure, want less than 1 %%", period, tid, unsure, ticks)
			}
		}
	}
}

// TestPaceOfMany: looks at thousands of threads that never run end at a bound.
func TestPaceOfMany(t *testing.T) {
	for _, threads := range []int{500, 10_000} {
		var p Pace
		ws := make([]waiter, threads)
		looks, most := 0, 0
		for n := int64(1); n <= 1000; n++ {
			p.Begin(tick99)
			for i := range ws {
				ws[i].wakes = 1 << 60
				ws[i].tick(&p, i, n)
			}
			if n > 500 {
				looks += p.idle
				most = max(most, p.idle)
			}
		}
		room := int(tick99 / lookShare / int64(lookCost))
		t.Logf("%d threads: %d looks a tick, at most %d", threads, looks/500, most)
		if looks/500 > room*5/4 || most > 4*room {
			t.Errorf("%d threads: %d looks a tick, at most %d, want about %d", threads, looks/500, most, room)
		}
	}
}

// TestRest: with few threads every tick is looked at; with many, a tick at which
// nothing runs costs so much that some are left out, up to a bound.
func TestRest(t *testing.T) {
	for _, tt := range []struct {
		threads     int
		still, want int64
	}{
		// 777 times 260 ns is one part in 50 of the interval, 202,020 ns
		{1, 1 << 20, 1}, {776, 1 << 20, 1}, {777, 1 << 20, 2}, {10_000, 1 << 20, 13}, {1 << 30, 1 << 20, 16},
		{10_000, 0, 1}, {10_000, 7, 1}, {10_000, 8, 2}, {10_000, 16, 3},
	} {
		if got := Rest(tt.threads, tt.still, tick99); got != tt.want {
			t.Errorf("%d threads, still for %d ticks: the next tick is %d on, want %d", tt.threads, tt.still, got, tt.want)
		}
	}
}

// TestPaceSteps: how often to look follows what the looks have cost, at each tick one step.
func TestPaceSteps(t *testing.T) {
	const interval = int64(12 * 1600 * 100) // of which looks may cost what 100 do
	var p Pace
	p.Begin(interval)
	if p.part != 128 {
		t.Errorf("it begins with one part of %d", p.part)
	}
	step := func(looks int) {
		for range looks {
			p.Gap(0, 0)
		}
		p.Begin(interval)
	}
	for _, want := range []int64{64, 32, 16, 8, 4, 4} {
		if step(101); p.part != want {
			t.Errorf("after too many looks one part of %d, want %d", p.part, want)
		}
	}
	if gap := p.Gap(0, 1<<20); gap != 64 {
		t.Errorf("with too many threads they are looked at after %d ticks", gap)
	}
	p.idle = 0
	for range 100 {
		step(51) // neither many nor few
	}
	if step(100); p.part != 4 {
		t.Errorf("after as many as may be one part of %d", p.part)
	}
	for _, want := range []int64{8, 16, 32, 64, 128, 128} {
		before := p.part
		for range 15 {
			if step(50); p.part != before {
				t.Fatalf("too soon one part of %d", p.part)
			}
		}
		if step(50); p.part != want {
			t.Errorf("after few looks one part of %d, want %d", p.part, want)
		}
	}
	for range 15 {
		step(0)
	}
	step(60) // not that few
	p.part = 4
	for range 15 {
		step(0)
	}
	if p.part != 4 {
		t.Errorf("too soon after looks that were not few one part of %d", p.part)
	}
	step(101)
	for range 15 {
		step(0)
	}
	if p.part != 4 {
		t.Errorf("one part of %d after looks that were many in between", p.part)
	}
	for range leastLooks {
		p.Gap(0, 0)
	}
	if p.Begin(1); p.part == 4 && p.idle != 0 {
		t.Error("looks are not counted for each tick")
	}
	for _, g := range []struct {
		tid         int
		ticks, want int64
	}{{0, 0, 1}, {0, 127, 1}, {0, 128, 2}, {1, 128, 2}, {0, 256, 3}, {1, 256, 2}, {2, 256, 3}, {0, 1 << 20, 16}, {7, 1 << 20, 9}, {8, 1 << 20, 16}} {
		q := Pace{part: finest}
		if got := q.Gap(g.tid, g.ticks); got != g.want {
			t.Errorf("thread %d after %d ticks: %d, want %d", g.tid, g.ticks, got, g.want)
		}
	}
	for looks, want := range map[int]int64{16: 128, 17: 64} { // these may be made at any rate
		q := Pace{part: 128, idle: looks}
		if q.Begin(1); q.part != want {
			t.Errorf("%d looks at a very high rate: one part of %d, want %d", looks, q.part, want)
		}
	}
}
