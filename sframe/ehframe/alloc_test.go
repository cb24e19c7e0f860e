//go:build !race

package ehframe_test

import (
	"runtime"
	"testing"

	"sfsample/regs"
)

// TestMachinesReturn: a machine, of some 1400 bytes, is not made anew for each function. (With the race detector a sync.Pool
// forgets at random.)
func TestMachinesReturn(t *testing.T) {
	const n = 500
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	for i := range uint64(n) {
		b.fde(cie, b.abs(0x5000+0x20*i, 0x20), nil)
	}
	tab := b.open(t)
	var before, after runtime.MemStats
	for range 2 { // the second time what is made once is there
		runtime.ReadMemStats(&before)
		for range tab.Funcs() {
		}
		runtime.ReadMemStats(&after)
	}
	if got := (after.TotalAlloc - before.TotalAlloc) / n; got > 1000 {
		t.Errorf("%d bytes for each function", got)
	}
}
