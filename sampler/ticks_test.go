package sampler

import (
	"testing"
	"time"

	"sfsample/sampler/watch"
)

// TestTicks: a tick is handled between its instant and the next one's, when the last clock has had time to answer it, and is then
// the last that counts as answered.
func TestTicks(t *testing.T) {
	const last = int64(2 * time.Millisecond)
	for _, hz := range []int64{1, 49, 99, 997} {
		x := ticks{interval: int64(time.Second) / hz, start: 1e12, origin: 1e12 - 5e9}
		x.times = watch.Timing{Interval: time.Duration(x.interval)}
		for x.due = 0; x.due < 3*hz; x.due++ {
			at := x.start + x.due*x.interval
			if x.passed(at) != x.due || x.passed(at-1) >= x.due && x.due > 0 || x.passed(at+x.interval-1) != x.due {
				t.Fatalf("%d Hz: tick %d is not from its instant to the next one's", hz, x.due)
			}
			when := x.dueAt(min(last, x.interval/2))
			if when <= at || when >= at+x.interval || x.answered(when) != x.due || x.answered(at) >= x.due && x.due > 0 {
				t.Fatalf("%d Hz: tick %d is handled %d ns after its instant, of %d", hz, x.due, when-at, x.interval)
			}
		}
		if d := x.wall(hz); d > time.Second || d < time.Second-time.Duration(hz) {
			t.Errorf("%d Hz: as many ticks are %v", hz, d)
		}
		if d := x.at(x.start); d != 5*time.Second {
			t.Errorf("tick 0 is %v after the pipeline's start, want 5s", d)
		}
	}
}
