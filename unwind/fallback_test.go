package unwind

import (
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// following is a space in which code tells a row.
type following struct {
	space
	row *sframe.Row
}

func (s *following) Follow(pc uint64, caller bool) (*sframe.Row, error) { return s.row, nil }
func (s *following) Called(ra, pc uint64) (*sframe.Row, error)          { return nil, sframe.ErrNoRow }

// TestWrongRow: glibc 2.36's memcpy for i386 pushes eax and its table does not say so. What its row takes for the
// return address is eax. The code, whose way is pop; mov; mov; mov; ret, tells from the same
// registers that it is one word higher.
func TestWrongRow(t *testing.T) {
	const code, caller, sp = 0x1000, 0x1800, 0x40000
	a := regs.I386
	s := &following{space{
		mapped: [][2]uint64{{code, code + 0x1000}}, stack: [2]uint64{sp, sp + 0x1000},
		code: map[uint64][]byte{caller - 5: {0xe8, 0, 0, 0, 0}},
		rows: map[How][]sframe.Entry{EHFrame: {
			{Start: code, End: code + 0x100, Row: sframe.Row{CFA: fromReg(a.SP, 4), RA: atCFA(-4)}},
			{Start: code + 0x700, End: code + 0x1000, Row: sframe.Row{Outermost: true}},
		}},
	}, &sframe.Row{CFA: fromReg(a.SP, 8), RA: atCFA(-4)}}
	for _, order := range [][]How{nil, {EHFrame}} {
		set := set(code+0x10, uint64(a.SP), sp)
		got, end := New(a, s, order, 0).Walk(set, words(a, sp, 5, caller), nil)
		if order != nil {
			if len(got) != 1 || end.Reason != NotCode || end.Addr != 5 {
				t.Errorf("by the table: %v, %v at %#x", got, end.Reason, end.Addr)
			}
			continue
		}
		if len(got) != 2 || end.Reason != Complete || got[1] != (Frame{PC: caller, SP: sp + 8, Caller: true, How: Code, Fallback: true}) {
			t.Errorf("frames %+v, %v; want the caller by code, complete", got, end.Reason)
		}
	}
}
