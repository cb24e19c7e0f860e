package module

import (
	"bytes"
	"testing"

	"sfsample/internal/sframetest"
	"sfsample/sframe"
)

// TestStubRow: the row that GNU ld writes for .plt.got is put right, those of
// other stubs and functions stay as they are.
func TestStubRow(t *testing.T) {
	const (
		lazy = 0x401000 // two entries of .plt
		got  = 0x401100 // three of .plt.got
		fn   = 0x402000
	)
	row := func(off uint32, cfa int64) sframetest.Row {
		return sframetest.Row{Off: off, SP: true, WordBytes: 1, Words: []int64{cfa}}
	}
	for _, version := range []uint8{2, 3} {
		section := &sframetest.Section{Version: version, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x400000,
			Funcs: []sframetest.Func{
				{Start: lazy, Size: 32, Width: 1, Mask: true, Rep: 16, Rows: []sframetest.Row{row(0, 8), row(11, 16)}},
				{Start: got, Size: 24, Width: 1, Mask: true, Rep: 8, Rows: []sframetest.Row{row(0, 16)}},
				{Start: fn, Size: 16, Width: 1, Rows: []sframetest.Row{row(0, 16)}},
			}}
		data := section.Bytes()
		s, err := sframe.Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for pc, want := range map[uint64]int32{
			lazy: 8, lazy + 6: 8, lazy + 11: 16, lazy + 16: 8, lazy + 31: 16,
			got: 8, got + 1: 8, got + 8: 8, got + 22: 8,
			fn: 16, fn + 5: 16,
		} {
			r, err := s.Row(pc)
			if err != nil {
				t.Fatalf("V%d, %#x: %v", version, pc, err)
			}
			if r = trueRow(s, pc, r); r.CFA.Offset != want || r.RA.Offset != -8 || !r.RA.Deref {
				t.Errorf("V%d, %#x: CFA at SP%+d, RA %+v, want SP%+d", version, pc, r.CFA.Offset, r.RA, want)
			}
		}
	}
}
