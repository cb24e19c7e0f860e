package unwind

import (
	"cmp"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// following is a space in which code tells a row; without one, nothing.
type following struct {
	space
	row    *sframe.Row
	called map[uint64]*sframe.Row // rows by the address behind the call that proves them; and where its register leads added
	asked  []Frame                // by Follow: PC and Caller
}

func (s *following) Follow(pc uint64, caller bool) (*sframe.Row, error) {
	s.asked = append(s.asked, Frame{PC: pc, Caller: caller})
	if s.row == nil {
		return nil, sframe.ErrNoRow
	}
	return s.row, nil
}

func (s *following) Called(ra, start, pc uint64) (*sframe.Row, error) {
	if row := s.called[ra+start]; row != nil {
		return row, nil
	}
	return nil, sframe.ErrNoRow
}

// TestWrongRow: glibc 2.36's memcpy for i386 pushes eax and its table does not say so. What its row takes for the
// return address is eax. The code, whose way is pop; mov; mov; mov; ret, tells from the same
// registers that it is one word higher.
func TestWrongRow(t *testing.T) {
	const code, caller, sp = 0x1000, 0x1800, 0x40000
	a := regs.I386
	s := &following{space: space{
		mapped: [][2]uint64{{code, code + 0x1000}}, stack: [2]uint64{sp, sp + 0x1000},
		code: map[uint64][]byte{caller - 5: {0xe8, 0, 0, 0, 0}},
		rows: map[How][]sframe.Entry{EHFrame: {
			{Start: code, End: code + 0x100, Row: sframe.Row{CFA: fromReg(a.SP, 4), RA: atCFA(-4)}},
			{Start: code + 0x700, End: code + 0x1000, Row: sframe.Row{Outermost: true}},
		}},
	}, row: &sframe.Row{CFA: fromReg(a.SP, 8), RA: atCFA(-4)}}
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

// TestCode: a row that the code tells leads to a return address behind a call, and nowhere else, however often it is asked; where it
// tells none, the next method is asked.
func TestCode(t *testing.T) {
	a := regs.AMD64
	for _, tt := range []struct {
		name  string
		row   *sframe.Row
		ra    uint64
		order []How
		want  []Frame
		end   End
	}{
		{"behind a call", &sframe.Row{CFA: fromReg(7, 8), RA: atCFA(-8)}, 0x402010, []How{Code, FramePointer},
			[]Frame{{PC: 0x401010, SP: sp}, {PC: 0x402010, SP: sp + 8, Caller: true, How: Code}}, End{}},
		{"behind none", &sframe.Row{CFA: fromReg(7, 8), RA: atCFA(-8)}, 0x403010, []How{Code},
			[]Frame{{PC: 0x401010, SP: sp}}, End{Reason: NotAfterCall, Addr: 0x403010}},
		{"nothing", nil, 0x402010, []How{Code, FramePointer},
			[]Frame{{PC: 0x401010, SP: sp}, {PC: 0x402010, SP: sp + 24, Caller: true, How: FramePointer}}, End{}},
	} {
		s := &following{space: space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{0x40200b: call5}, entries: [][2]uint64{{0x402000, 0x402040}}}, row: tt.row}
		w := New(a, s, tt.order, 0)
		for round := range 2 {
			got, end := w.Walk(set(0x401010, 7, sp, 6, sp+8), words(a, sp, tt.ra, 0, 0x402010), nil)
			if !slices.Equal(got, tt.want) || end != tt.end {
				t.Errorf("%s, round %d: %+v, %v at %#x; want %+v, %v at %#x", tt.name, round, got, end.Reason, end.Addr, tt.want, tt.end.Reason, tt.end.Addr)
			}
			if asked := []Frame{{PC: 0x401010}, {PC: tt.ra, Caller: true}}; !slices.Equal(s.asked, asked) {
				t.Errorf("%s, round %d: asked for %+v, want %+v", tt.name, round, s.asked, asked)
			}
		}
	}
}

// TestJump: an innermost frame that is about to jump to where a register says, in code of which nothing is known, has the
// caller that there is at that place. Its frame pointer may be another function's, which must not be left out.
func TestJump(t *testing.T) {
	const pc, to, ra = 0x401010, 0x404000, 0x402010
	at := func(reg uint8, code ...byte) (*space, *regs.Set) {
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{pc: code, ra - 5: call5, 0x40300b: call5},
			rows: map[How][]sframe.Entry{EHFrame: {{Start: to, End: to + 0x10, Row: sframe.Row{CFA: fromReg(7, 8), RA: atCFA(-8)}},
				{Start: 0x402000, End: 0x404000, Row: sframe.Row{Outermost: true}}}}}
		return s, set(pc, 7, sp, 6, sp+16, uint64(reg), to)
	}
	stack := words(regs.AMD64, sp, ra, 0, 0, 0x403010)
	for _, tt := range []struct {
		name string
		reg  uint8
		code []byte
		want uint64 // the caller
	}{
		{"jmp *%rdx", 1, []byte{0xff, 0xe2}, ra},
		{"jmp *%rdi", 5, []byte{0xff, 0xe7}, ra},
		{"jmp *%r11", 11, []byte{0x41, 0xff, 0xe3}, ra},
		{"notrack jmp *%rax", 0, []byte{0x3e, 0xff, 0xe0}, ra},
		{"another register", 1, []byte{0xff, 0xe0}, 0x403010},
		{"jmp *(%rdx)", 1, []byte{0xff, 0x22}, 0x403010},
		{"call *%rdx", 1, []byte{0xff, 0xd2}, 0x403010},
	} {
		s, set := at(tt.reg, tt.code...)
		w := New(regs.AMD64, s, nil, 0)
		for range 2 {
			if got, end := w.Walk(set, stack, nil); len(got) != 2 || got[1].PC != tt.want || !end.Complete() {
				t.Errorf("%s: %+v, %v; want the caller %#x", tt.name, got, end.Reason, tt.want)
			}
		}
	}
	// Where the register leads to nothing that is known, it says nothing.
	s, set := at(1, 0xff, 0xe2)
	set.R[1] = 0x401800
	if got, _ := New(regs.AMD64, s, nil, 0).Walk(set, stack, nil); len(got) != 2 || got[1].PC != 0x403010 {
		t.Errorf("to code without a table: %+v", got)
	}
}

// TestSearch: a return address further up, behind a call to the function of the innermost frame, is its caller if the code leads
// there with just the stack pointer that it has.
func TestSearch(t *testing.T) {
	const pc, ra, mask = 0x401010, 0x402010, 0x7f << 48
	a := regs.AMD64
	at := func(n int32) *sframe.Row { return &sframe.Row{CFA: fromReg(a.SP, 8*n+8), RA: atCFA(-8)} }
	stack := func(n int, also ...int) []uint64 {
		w := make([]uint64, 300)
		for _, n := range append(also, n) {
			w[n] = ra
		}
		return w
	}
	for _, tt := range []struct {
		name  string
		order []How
		words []uint64
		row   *sframe.Row
		pc    uint64
		found bool
		fp    uint64 // 0: 3, to which nothing leads
	}{
		{"on top", nil, stack(0), at(0), pc, true, 0},
		{"further up", nil, stack(7), at(7), pc, true, 0},
		{"a copy of it below", nil, stack(7, 3), at(7), pc, true, 0},
		{"elsewhere", nil, stack(7), at(6), pc, false, 0},
		{"last word", nil, stack(maxSearch - 1), at(maxSearch - 1), pc, true, 0},
		{"too far", nil, stack(maxSearch), at(maxSearch), pc, false, 0},
		{"beyond the copy", nil, stack(7)[:7], at(7), pc, false, 0},
		{"code is not asked", []How{EHFrame, FramePointer}, stack(7), at(7), pc, false, 0},
		{"stacks begin there", nil, stack(7), at(7), 0x403010, false, 0},
		{"not in code", nil, stack(7), at(7), 0x100, false, 0},
		{"another call", nil, stack(7), nil, pc, false, 0},
		{"frame pointer beyond the copy", nil, stack(7), at(7), pc, true, sp + 1<<20},
		{"frame pointer beyond the copy, elsewhere", nil, stack(7), at(6), pc, false, sp + 1<<20},
	} {
		s := &following{space: space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{ra - 5: call5},
			entries: [][2]uint64{{ra - 0x10, ra + 0x10}, {0x403000, 0x403040}}}, called: map[uint64]*sframe.Row{ra: tt.row}}
		got, end := New(a, s, tt.order, 0).Walk(set(tt.pc, 7, sp, 6, cmp.Or(tt.fp, 3)), words(a, sp, tt.words...), nil)
		if tt.found {
			want := []Frame{{PC: pc, SP: sp}, {PC: ra, SP: sp + uint64(tt.row.CFA.Offset), Caller: true, How: Code, Fallback: true}}
			if !slices.Equal(got, want) || end.Complete() != (tt.fp == 0) {
				t.Errorf("%s: %+v, %v; want %+v", tt.name, got, end.Reason, want)
			}
		} else if len(got) != 1 || end.Complete() != (tt.pc == 0x403010) || !end.Complete() && (end.Addr != 3 && end.Addr != tt.fp+8 && tt.pc == pc) {
			t.Errorf("%s: %+v, %v at %#x; want no caller", tt.name, got, end.Reason, end.Addr)
		}
	}
	// A return address that is signed.
	arm := regs.ARM64.WithPAC(mask)
	s := &following{space: space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{ra - 4: le(0x94000000)}},
		called: map[uint64]*sframe.Row{ra: {CFA: fromReg(arm.SP, 16), RA: atCFA(-8)}}}
	got, _ := New(arm, s, []How{Code}, 2).Walk(set(pc, uint64(arm.SP), sp), words(arm, sp, 0, ra|0x2a<<48), nil)
	if len(got) != 2 || got[1].PC != ra {
		t.Errorf("signed: %+v", got)
	}
}

// TestByRegister: a return address behind a call through a register that calls preserve is the caller's, if the frame has saved where its function begins in the place
// that the code from there on says, or has it in the register still.
func TestByRegister(t *testing.T) {
	const pc, ra, start = 0x500040, 0x500810, 0x500020
	a := regs.AMD64
	row := func(slot int32, keep uint32) *sframe.Row {
		r := &sframe.Row{CFA: fromReg(a.SP, 40), RA: atCFA(-8), Keep: keep}
		if keep == 0 {
			r.Saved = []sframe.SavedRule{{Reg: 15, Rule: atCFA(slot)}}
		}
		return r
	}
	byR15, byRBX := []byte{0x41, 0xff, 0xd7}, []byte{0x90, 0xff, 0xd3}
	for _, tt := range []struct {
		name  string
		call  []byte
		row   *sframe.Row
		words []uint64
		reg   uint64 // r15, or rbx; 0: not known
		found bool
	}{
		{"saved", byR15, row(-40, 0), []uint64{start, 0, 0, 0, ra}, 0, true},
		{"saved further up", byR15, row(-24, 0), []uint64{0, 0, start, 0, ra}, 0, true},
		{"saved, and used since", byR15, row(-40, 0), []uint64{start, 0, 0, 0, ra}, 0x500400, true},
		{"saved elsewhere", byR15, row(-32, 0), []uint64{start, 0, 0, 0, ra}, 0, false},
		{"the frame is larger", byR15, row(-48, 0), []uint64{0, start, 0, 0, 0, ra}, 0, false},
		{"another function was saved", byR15, row(-40, 0), []uint64{start + 1, 0, 0, 0, ra}, 0, false},
		{"kept", byR15, row(0, 1<<15), []uint64{0, 0, 0, 0, ra}, start, true},
		{"kept, but not known", byR15, row(0, 1<<15), []uint64{start, 0, 0, 0, ra}, 0, false},
		{"kept, another function", byR15, row(0, 1<<15), []uint64{0, 0, 0, 0, ra}, start + 8, false},
		{"through rbx", byRBX, row(0, 1<<3), []uint64{0, 0, 0, 0, ra}, start, true},
		{"through rbx, of another", byR15, row(0, 1<<3), []uint64{0, 0, 0, 0, ra}, start, false},
		{"through r11", []byte{0x41, 0xff, 0xd3}, row(0, 1<<3), []uint64{0, 0, 0, 0, ra}, start, false},
		{"through rax", []byte{0x90, 0xff, 0xd0}, row(-40, 0), []uint64{start, 0, 0, 0, ra}, 0, false},
		{"too many words that may be", byR15, row(-40-8*maxStarts, 0), append(slices.Repeat([]uint64{0x500100}, maxStarts+4), start, ra), 0, false},
	} {
		s := &allGenerated{following: following{space: space{mapped: [][2]uint64{{0x500000, 0x501000}}, code: map[uint64][]byte{ra - 3: tt.call}},
			called: map[uint64]*sframe.Row{ra + start: tt.row}}}
		if tt.name == "too many words that may be" {
			tt.row.CFA.Offset = int32(8 * len(tt.words))
			tt.row.Saved[0].Rule.Offset = -16
		}
		set := set(pc, 7, sp, 6, 3)
		if tt.reg != 0 {
			n := uint8(15)
			if tt.call[0] != 0x41 || tt.row.Keep == 1<<3 {
				n = 3
			}
			set.SetReg(n, tt.reg)
		}
		got, _ := New(a, s, nil, 0).Walk(set, words(a, sp, tt.words...), nil)
		if tt.found {
			want := Frame{PC: ra, SP: sp + uint64(tt.row.CFA.Offset), Caller: true, How: Code, Fallback: true}
			if len(got) < 2 || got[1] != want {
				t.Errorf("%s: %+v; want %+v", tt.name, got, want)
			}
		} else if len(got) > 1 {
			t.Errorf("%s: %+v; want no caller", tt.name, got)
		}
	}
}

// allGenerated is a space of which all code is generated.
type allGenerated struct{ following }

// Origin implements Origins.
func (s *allGenerated) Origin(pc uint64) (code, object bool) { return s.Executable(pc), false }

// Calls implements Origins.
func (s *allGenerated) Calls(ra, pc uint64) (calls, known bool) { return false, true }

var _ Origins = (*allGenerated)(nil)

// TestOverCall: where the frame pointer leads over a return address in generated code, the caller is looked for there first; if it is not found, the stack is cut.
func TestOverCall(t *testing.T) {
	const pc, start, ra, beyond = 0x500040, 0x500020, 0x500810, 0x500910
	a := regs.AMD64
	for _, found := range []bool{true, false} {
		s := &allGenerated{following: following{space: space{mapped: [][2]uint64{{0x500000, 0x501000}}, code: map[uint64][]byte{ra - 3: {0x41, 0xff, 0xd7}, beyond - 5: call5}},
			called: map[uint64]*sframe.Row{}}}
		if found {
			s.called[ra+start] = &sframe.Row{CFA: fromReg(a.SP, 24), RA: atCFA(-8), Saved: []sframe.SavedRule{{Reg: 15, Rule: atCFA(-24)}}}
		}
		stack := words(a, sp, start, 0, ra, 0, 0, 0, beyond)
		w := New(a, s, nil, 0)
		for range 3 { // what is kept leads there too
			got, end := w.Walk(set(pc, 7, sp, 6, sp+40), stack, nil)
			if found && (len(got) != 3 || got[1].PC != ra || got[1].How != Code || got[2].PC != beyond || got[2].How != FramePointer) {
				t.Fatalf("%+v, %v; want frames at %#x and %#x", got, end.Reason, uint64(ra), uint64(beyond))
			}
			if !found && (len(got) != 1 || end.Reason != NotAfterCall) {
				t.Fatalf("%+v, %v; want no caller", got, end.Reason)
			}
		}
	}
}
