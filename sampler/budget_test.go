package sampler

import (
	"log/slog"
	"testing"
	"time"
)

// TestBudget: what this program takes is judged by windows but the first; the rate is halved while it is too much, and comes back
// when it is much less.
func TestBudget(t *testing.T) {
	b := budget{max: 0.01, most: 60}
	now, used := int64(time.Second), int64(0)
	step := func(share float64, wantLowered bool, want int64) {
		t.Helper()
		now += budgetWindow
		used += int64(share * float64(budgetWindow))
		lowered, got := b.update(now, used)
		if lowered != wantLowered || b.stride != want {
			t.Errorf("after a window of %g: lowered %v, stride %d; want %v, %d", share, lowered, b.stride, wantLowered, want)
		}
		if b.stride > 1 && (got < share-0.001 || got > share+0.001) {
			t.Errorf("share %g, want %g", got, share)
		}
	}
	b.update(now, used)
	step(0.5, false, 1)
	step(0.009, false, 1)
	step(0.02, true, 2)
	step(0.011, true, 4)
	step(0.009, false, 4)
	step(0.003, false, 2)
	step(0.003, false, 1)
	step(0.003, false, 1)
	for range 20 {
		step(0.5, b.stride < 60, min(b.stride*2, 60))
	}
	if lowered, _ := b.update(now+budgetWindow-1, used+budgetWindow); lowered {
		t.Error("judged before the window is over")
	}
}

// TestMaxCPU: the stride that holds is the larger of both, and is told.
func TestMaxCPU(t *testing.T) {
	l := load{said: &notices{log: slog.New(slog.DiscardHandler)}, begun: 1, own: budget{max: 1e-9, most: slowest(int64(time.Second) / 19), stride: 1, begun: 1}}
	l.update(0, 1+budgetWindow)
	if l.both != 2 || l.most != 2 {
		t.Errorf("stride %d, %d at most; want 2", l.both, l.most)
	}
	l.stride = 8
	l.own.max = 0
	l.update(0, 2+budgetWindow)
	if l.both != 8 {
		t.Errorf("stride %d, want 8", l.both)
	}
}
