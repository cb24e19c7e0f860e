package sampler

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sfsample/output"
	"sfsample/sampler/clocks"
)

// TestBudget: what this program takes is judged by windows but the first; the rate is halved while it is too much, and comes back
// when it is much less.
func TestBudget(t *testing.T) {
	b := budget{max: 0.01, most: 60}
	now, used := int64(time.Second), int64(0)
	step := func(share float64, want int64, told string) {
		t.Helper()
		now += budgetWindow
		used += int64(share * float64(budgetWindow))
		got := b.update(now, used)
		if b.stride != want || got != told && !(told != "" && strings.HasSuffix(got, told)) {
			t.Errorf("after a window of %g: stride %d, %q; want %d, %q", share, b.stride, got, want, told)
		}
		if told != "" && !strings.Contains(got, "took "+output.Percent(share)+" of a CPU, of "+output.Percent(0.01)) {
			t.Errorf("after a window of %g: %q", share, got)
		}
	}
	b.update(now, used)
	step(0.5, 1, "")
	step(0.009, 1, "")
	step(0.02, 2, "one tick in 2 is answered")
	step(0.011, 4, "one tick in 4 is answered")
	step(0.009, 4, "")
	step(0.003, 2, "")
	step(0.003, 1, "each tick is answered again")
	step(0.003, 1, "")
	for _, stride := range []int64{2, 4, 8, 16, 32, 60} {
		step(0.5, stride, fmt.Sprintf("one tick in %d is answered", stride))
	}
	step(0.5, 60, "which is the least (try: fewer processes, a longer --every)")
	step(0.5, 60, "")
	step(0.003, 30, "")
	step(0.5, 60, "one tick in 60 is answered")
	step(0.5, 60, "which is the least (try: fewer processes, a longer --every)")
	if told := b.update(now+budgetWindow-1, used+budgetWindow); told != "" {
		t.Error("judged before the window is over")
	}
}

// TestMaxCPU: the stride that holds is the larger of both, and is told.
func TestMaxCPU(t *testing.T) {
	l := load{stride: clocks.Every, said: &notices{log: slog.New(slog.DiscardHandler)}, begun: 1, own: budget{max: 1e-9, most: slowest(int64(time.Second) / 19), stride: 1, begun: 1}}
	l.update(0, 1+budgetWindow)
	if l.both != 2*clocks.Every || l.most != 2*clocks.Every {
		t.Errorf("stride %d, %d at most; want 2 ticks", l.both, l.most)
	}
	l.stride = 4 * clocks.Every
	l.own.max = 0
	l.update(0, 2+budgetWindow)
	if l.both != 4*clocks.Every {
		t.Errorf("stride %d, want 4 ticks", l.both)
	}
}

// TestLoad: the rate is lowered to what may be taken, by half a window at the most, and comes back.
func TestLoad(t *testing.T) {
	const window = int64(500 * time.Millisecond)
	l := load{max: 0.01, stride: clocks.Every, both: clocks.Every, most: clocks.Every}
	now := window
	step := func(share float64, threads, cpus int, want clocks.Stride) {
		t.Helper()
		l.update(cpus, now)
		for i := range threads {
			l.add(&thread{}, time.Duration(share*float64(window)))
			if i == 0 {
				l.add(&thread{window: l.window}, 0) // a thread again
			}
		}
		now += window
		if l.update(cpus, now); l.both != want {
			t.Errorf("after a window of %g: stride %d, want %d", share, l.both, want)
		}
	}
	step(0.01, 1, 1, 8)
	step(0.0101, 1, 1, 9)
	step(0.0101, 1, 1, 10)
	step(0.013, 1, 1, 13)
	step(0.5, 1, 1, 26)
	step(0.0099, 1, 1, 26)
	step(0.0081, 1, 1, 26)
	step(0.0079, 1, 1, 24)
	step(0, 0, 1, 12)
	step(0, 0, 1, 8)
	step(0.01, 2, 2, 8)
	step(0.01, 2, 1, 16) // on one CPU the share is of that
	for range 20 {
		step(10, 1, 1, min(l.stride*2, maxStride*clocks.Every))
	}
	if l.most != l.stride || l.stride.Ticks() != maxStride {
		t.Errorf("stride %d, %d at most", l.stride, l.most)
	}
	l = load{stride: clocks.Every, both: clocks.Every}
	if l.answered() != 1 {
		t.Error("not all ticks were answered before the first")
	}
	now = window
	step(0.5, 1, 1, 8) // nothing bounds it
	l.both = 3 * clocks.Every
	now += window
	if l.update(1, now); l.answered() != (1+1./3)/2 {
		t.Errorf("%g of the ticks were to be answered", l.answered())
	}
}
