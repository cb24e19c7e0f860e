package unwind

import (
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// TestRegisters: a frame has the registers that the frames further in have saved or left alone, those of .eh_frame where .sframe
// tells none.
func TestRegisters(t *testing.T) {
	a := regs.AMD64
	saves := sframe.Row{CFA: fromReg(7, 24), RA: atCFA(-8), Saved: []sframe.SavedRule{{Reg: 14, Rule: atCFA(-16)}}, Keep: a.CalleeSaved &^ (1<<14 | 1<<6)}
	leaf := spRow(8)
	leaf.Keep = a.CalleeSaved &^ (1 << 6)
	eh := []sframe.Entry{covers(0x400000, 0x400040, sframe.Row{Outermost: true}), covers(0x401000, 0x401040, leaf), covers(0x402000, 0x402040, saves)}
	for _, tt := range []struct {
		name   string
		order  []How
		rows   map[How][]sframe.Entry
		frames int
	}{
		{"eh_frame", []How{EHFrame}, map[How][]sframe.Entry{EHFrame: eh}, 3},
		{"sframe ends early", []How{SFrame, EHFrame}, map[How][]sframe.Entry{SFrame: {covers(0x401000, 0x401040, spRow(8)), covers(0x402000, 0x402040, spRow(1<<20))}, EHFrame: eh}, 3},
	} {
		w := New(a, &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: tt.rows}, tt.order, 0)
		in, mem := set(0x401000, 6, 0xf, 7, sp, 14, 1, 15, 2), words(a, sp, 0x402010, 0xb, 0x14, 0x400020)
		frames, _ := w.Walk(in, mem, nil)
		if len(frames) != tt.frames {
			t.Fatalf("%s: frames %+v", tt.name, frames)
		}
		for n, want := range []uint64{1, 1, 0x14} {
			got, ok := w.Registers(in, mem, n, frames[n])
			if r14, known := got.Reg(14); !ok || !known || r14 != want || got.R[15] != 2 || got.PC != frames[n].PC {
				t.Errorf("%s: frame %d: %v, r14 %#x, r15 %#x; want %#x, 2", tt.name, n, ok, r14, got.R[15], want)
			}
			rbp, known := got.Reg(6)
			if rsp, too := got.Reg(7); !known || rbp != 0xf || !too || rsp != frames[n].SP {
				t.Errorf("%s: frame %d: rbp %#x, %v, rsp %#x, %v", tt.name, n, rbp, known, rsp, too)
			}
		}
		if _, ok := w.Registers(in, mem, 2, Frame{PC: frames[2].PC, SP: frames[2].SP + 8}); ok {
			t.Errorf("%s: registers of a frame at another place", tt.name)
		}
		if _, ok := w.Registers(in, mem, 1, frames[2]); ok {
			t.Errorf("%s: registers of a frame that is another one", tt.name)
		}
		if _, ok := w.Registers(in, mem, 3, Frame{}); ok {
			t.Errorf("%s: registers of a frame that there is not", tt.name)
		}
		for _, n := range []int{-1, 2} {
			short := New(a, &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: tt.rows}, tt.order, 2)
			if _, ok := short.Registers(in, mem, n, frames[2]); ok {
				t.Errorf("%s: registers of frame %d of two", tt.name, n)
			}
		}
		if again, _ := w.Walk(in, mem, nil); len(again) != tt.frames {
			t.Errorf("%s: later walks have %d frames", tt.name, len(again))
		}
	}
}
