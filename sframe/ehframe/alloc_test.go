//go:build !race

package ehframe_test

import (
	"runtime"
	"testing"

	"sfsample/regs"
)

// TestMachinesReturn: a machine, of some 1400 bytes, is not made anew for each function or CIE; a CIE has a state of that
// size itself. (With the race detector a sync.Pool forgets at random.)
func TestMachinesReturn(t *testing.T) {
	const n = 500
	for _, tt := range []struct {
		cies int
		most uint64
	}{{1, 1000}, {n, 2500}} {
		b := &builder{arch: regs.AMD64}
		for i := range n {
			if i < tt.cies {
				b.cie(1, "", nil, cfaSP8...)
			}
			b.fde(b.cies[len(b.cies)-1], b.abs(0x5000+0x20*uint64(i), 0x20), nil)
		}
		tab := b.open(t)
		var before, after runtime.MemStats
		for range 2 { // the second time what is made once is there
			runtime.ReadMemStats(&before)
			for range tab.Funcs() {
			}
			runtime.ReadMemStats(&after)
		}
		if got := tab.CacheBytes(); got > 64*1500+32*1024+20_000 {
			t.Errorf("%d CIEs: %d bytes are kept", tt.cies, got)
		}
		if got := (after.TotalAlloc - before.TotalAlloc) / n; got > tt.most {
			t.Errorf("%d CIEs: %d bytes for each function", tt.cies, got)
		} else {
			t.Logf("%d CIEs: %d bytes for each function", tt.cies, got)
		}
	}
}
