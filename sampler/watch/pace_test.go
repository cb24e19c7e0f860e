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
		{1, 1 << 20, 1}, {500, 1 << 20, 1}, {10_000, 0, 1}, {10_000, stillPart, 2}, {10_000, 1 << 20, 13}, {1 << 30, 1 << 20, maxGap},
	} {
		if got := Rest(tt.threads, tt.still, tick99); got != tt.want {
			t.Errorf("%d threads, still for %d ticks: the next tick is %d on, want %d", tt.threads, tt.still, got, tt.want)
		}
	}
}
