package sampler

import (
	"log/slog"
	"testing"

	"sfsample/sampler/capture"
	"sfsample/unwind"
)

// TestTop: where a stack ends is known from a walk that came to its end; of memory with stacks of many goroutines that tells nothing.
func TestTop(t *testing.T) {
	const low, high = 0xc000_0000, 0xc000_8000 // of goSpace
	tg := &target{space: &goSpace{}, opened: true, pages: -1}
	ws := &walks{cfg: &PipelineConfig{Log: slog.New(slog.DiscardHandler)}}
	c := &capture.Capture{Regs: capture.Registers{Call: capture.Call{SP: low + 0x1080}}, Stack: capture.Stack{Addr: low + 0x1000, Bytes: make([]byte, 0x1000)}}
	var one, many Advice
	many.Bounds = 8
	for _, tt := range []struct {
		last      uint64
		reason    unwind.Reason
		one, many uint64
	}{
		{low + 0x1800, unwind.Complete, low + 0x1800 + behindStack, 0},
		{low + 0x1400, unwind.Complete, low + 0x1800 + behindStack, 0},
		{high - 8, unwind.Complete, high, 0},
		{low + 0x1f00, unwind.NoRow, high, 0},
		{low + 0x1f00, unwind.OutsideCopy, 0, 0},
	} {
		for v, want := range map[*Advice]uint64{&one: tt.one, &many: tt.many} {
			ws.locate(tg, c, v, block{high: tt.last, short: tt.reason == unwind.OutsideCopy}, unwind.End{Reason: tt.reason})
			if v.Stack.Top != want || v.Stack.Low != low || v.Stack.High != high {
				t.Errorf("ends at %#x (%v), bounds at %d: %+v; want %#x", tt.last, tt.reason, v.Bounds, v.Stack, want)
			}
		}
	}
}
