package sampler

import (
	"log/slog"
	"testing"
	"time"

	"sfsample/sampler/clocks"
)

// TestBudget: what this program takes is judged by windows but the first; the rate is halved while it is too much, and comes back
// when it is much less.
func TestBudget(t *testing.T) {
	var b budget
	now, used := int64(time.Second), int64(0)
	step := func(share float64, wantLowered bool, want int64) {
		t.Helper()
		now += budgetWindow
		used += int64(share * float64(budgetWindow))
		lowered, got := b.update(0.01, 60, now, used)
		if lowered != wantLowered || b.stride != want {
			t.Errorf("after a window of %g: lowered %v, stride %d; want %v, %d", share, lowered, b.stride, wantLowered, want)
		}
		if b.stride > 1 && (got < share-0.001 || got > share+0.001) {
			t.Errorf("share %g, want %g", got, share)
		}
	}
	b.update(0.01, 60, now, used)
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
	if lowered, _ := b.update(0.01, 60, now+budgetWindow-1, used+budgetWindow); lowered {
		t.Error("judged before the window is over")
	}
}

// TestMaxCPU: the stride that holds is the larger of both, and is told.
func TestMaxCPU(t *testing.T) {
	e := &engine{ticks: ticks{interval: int64(time.Second) / 19}, said: &notices{log: slog.New(slog.DiscardHandler)}, bank: new(clocks.Bank)}
	e.opt.MaxCPU = 1e-9
	e.load.own = budget{stride: 1, begun: 1}
	e.load.begun = 1
	e.load.update(e, 1+budgetWindow)
	if e.load.both != 2 || e.load.most != 2 {
		t.Errorf("stride %d, %d at most; want 2", e.load.both, e.load.most)
	}
	e.load.stride = 8
	e.opt.MaxCPU = 0
	e.load.update(e, 2+budgetWindow)
	if e.load.both != 8 {
		t.Errorf("stride %d, want 8", e.load.both)
	}
}
