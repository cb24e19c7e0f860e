package unwind

import (
	"bytes"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// twoStacks is a space with two stacks, as each of which frames lie that go back
// to the other.
type twoStacks struct{ space }

func (s *twoStacks) Writable(addr uint64) bool { return inside(addr, s.stack, s.also) }

// readOnly is a space in which nothing can be written.
type readOnly struct{ space }

func (*readOnly) Writable(uint64) bool { return false }

// unknownStacks is a space in which all can be written, and no mapping is known.
type unknownStacks struct{ space }

func (*unknownStacks) Writable(uint64) bool { return true }

// TestGoOver walks over two stacks, the other one below and the own one above, by
// a row that has the CFA from the frame pointer: back and forth as long as each
// is left upwards, and no further.
func TestGoOver(t *testing.T) {
	const low, high, code = 0x10000, 0x40000, 0x1000
	a := regs.AMD64
	s := &twoStacks{space{
		mapped: [][2]uint64{{code, code + 0x1000}},
		stack:  [2]uint64{high, high + 0x1000}, also: [2]uint64{low, low + 0x1000},
		// call rel32 before every address.
		code: map[uint64][]byte{code: make([]byte, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {{Start: code, End: code + 0x800, Row: sframe.Row{
			CFA: fromReg(a.FP, 16), RA: atCFA(-8), FP: atCFA(-16), Keep: a.CalleeSaved &^ (1 << a.FP),
		}}, {Start: code + 0x800, End: code + 0x1000, Row: sframe.Row{Outermost: true}}}},
	}}
	for i := range s.code[code] {
		s.code[code][i] = 0xe8
	}
	// A frame is a pair: the caller's frame pointer, and where it goes on.
	frames := func(pairs ...[3]uint64) *Memory {
		b := [2][]byte{make([]byte, 0x1000), make([]byte, 0x1000)}
		for _, p := range pairs {
			at, region := p[0]-low, 0
			if p[0] >= high {
				at, region = p[0]-high, 1
			}
			copy(b[region][at:], put(a, nil, p[1], p[2]))
		}
		m := new(Memory)
		m.Reset(high, b[1], nil)
		m.Also = []Region{{Addr: low, Bytes: b[0]}}
		return m
	}
	const ret, last = code + 0x100, code + 0x900
	tests := []struct {
		name string
		mem  *Memory
		n    int
		end  Reason
		addr uint64
		over int
	}{
		{"there", frames([3]uint64{high + 0x100, low + 0x10, ret}, [3]uint64{low + 0x10, low + 0x80, ret}, [3]uint64{low + 0x80, 0, last}), 4, Complete, 0, 1},
		{"and-back", frames([3]uint64{high + 0x100, low + 0x10, ret}, [3]uint64{low + 0x10, high + 0x200, ret}, [3]uint64{high + 0x200, low + 0x90, ret},
			[3]uint64{low + 0x90, 0, last}), 5, Complete, 0, 3},
		{"back-below", frames([3]uint64{high + 0x100, low + 0x10, ret}, [3]uint64{low + 0x10, high + 0x40, ret}, [3]uint64{high + 0x40, 0, last}), 3, StackSwitch, high + 0x50, 1},
		{"same-again", frames([3]uint64{high + 0x100, low + 0x10, ret}, [3]uint64{low + 0x10, high + 0x100, ret}), 3, StackSwitch, high + 0x110, 1},
		{"not-a-stack", frames([3]uint64{high + 0x100, 0x70000, ret}), 2, StackSwitch, 0x70010, 0},
		{"down", frames([3]uint64{high + 0x100, high + 0x20, ret}), 2, NoProgress, high + 0x20, 0},
		{"down-misaligned", frames([3]uint64{high + 0x100, high + 0x21, ret}), 2, NoProgress, high + 0x21, 0},
		{"not-copied", frames([3]uint64{high + 0x100, low + 0xff8, ret}), 2, OutsideCopy, low + 0x1000, 1},
	}
	for _, tt := range tests {
		set := &regs.Set{PC: code + 0x10, Known: 1<<a.SP | 1<<a.FP}
		set.R[a.SP], set.R[a.FP] = high+0x80, high+0x100
		// A mere convention leads to no other stack.
		w := New(a, s, []How{FramePointer}, 0)
		if got, _ := w.Walk(set, tt.mem, nil); len(got) > 2 || len(w.Stacks()) > 0 {
			t.Errorf("%s, by frame pointers: %+v, %d changes", tt.name, got, len(w.Stacks()))
		}
		w = New(a, s, []How{EHFrame}, 0)
		got, end := w.Walk(set, tt.mem, nil)
		if len(got) != tt.n || end.Reason != tt.end || end.Addr != tt.addr || len(w.Stacks()) != tt.over {
			t.Errorf("%s: %d frames, %v at %#x, %d changes; want %d, %v at %#x, %d", tt.name, len(got), end.Reason, end.Addr, len(w.Stacks()), tt.n, tt.end, tt.addr, tt.over)
		}
	}
}

// TestGoOverLimits: a walk goes over to other stacks maxStacks times, by rows of tables alone and in spaces that know of stacks.
func TestGoOverLimits(t *testing.T) {
	const low, high, code = 0x10000, 0x40000, 0x1000
	a := regs.AMD64
	space := space{
		mapped: [][2]uint64{{code, code + 0x1000}},
		stack:  [2]uint64{high, high + 0x8000}, also: [2]uint64{low, low + 0x8000},
		code: map[uint64][]byte{code: bytes.Repeat([]byte{0xe8}, 0x1000)}, // call rel32 before every address
		// The caller's stack pointer lies in the word at this one's.
		rows: map[How][]sframe.Entry{EHFrame: {{Start: code, End: code + 0x1000, Row: sframe.Row{CFA: atReg(a.SP, 0), RA: atCFA(-8)}}}},
	}
	b := [2][]byte{make([]byte, 0x8000), make([]byte, 0x8000)}
	for i := range 0x7f0 { // each to the other stack, 16 bytes higher
		copy(b[0][16*i:], put(a, nil, high+16*uint64(i+1), code+0x100))
		copy(b[1][16*i:], put(a, nil, low+16*uint64(i+1), code+0x100))
	}
	m := new(Memory)
	m.Reset(high, b[1], nil)
	m.Also = []Region{{Addr: low, Bytes: b[0]}}
	set := &regs.Set{PC: code + 0x10, Known: 1 << a.SP}
	set.R[a.SP] = high
	w := New(a, &twoStacks{space}, []How{EHFrame}, 0)
	got, end := w.Walk(set, m, nil)
	if len(got) != maxStacks+1 || end.Reason != StackSwitch && end.Reason != NoProgress || len(w.Stacks()) != maxStacks {
		t.Errorf("%d frames, %v, %d changes; want %d, %d", len(got), end.Reason, len(w.Stacks()), maxStacks+1, maxStacks)
	}
	if want := (Stack{Frame: 2, Base: high + 32, Word: low + 16}); w.Stacks()[1] != want {
		t.Errorf("the second change is %+v, want %+v", w.Stacks()[1], want)
	}
	if got, end := New(a, &space, []How{EHFrame}, 0).Walk(set, m, nil); len(got) != 1 || end.Reason != NoProgress || end.Addr != low+16 {
		t.Errorf("without knowledge of stacks: %d frames, %v at %#x", len(got), end.Reason, end.Addr)
	}
}

// TestAnother: which addresses lie in another stack than the one that the walk is on, of which the frames from 0x40800 to 0x41000 were seen.
func TestAnother(t *testing.T) {
	const low, high = 0x10000, 0x40000
	for _, tt := range []struct {
		name     string
		addr     uint64
		anywhere bool
		left     []left
		want     bool
	}{
		{"other mapping", low + 8, false, nil, true},
		{"its end", low + 0xfff, false, nil, true},
		{"no mapping", low + 0x1000, false, nil, false},
		{"same mapping, below", high + 8, false, nil, false},
		{"same mapping, above", high + 0x1008, false, nil, false},
		{"same mapping, below, anywhere", high + 0x7ff, true, nil, true},
		{"lowest frame, anywhere", high + 0x800, true, nil, false},
		{"stack pointer, anywhere", high + 0x1000, true, nil, false},
		{"above it, anywhere", high + 0x1001, true, nil, true},
		{"other mapping that was left", low + 8, false, []left{{low, low + 0x1000, 0x10000, 0x10008}}, false},
		{"above where it was left", low + 9, false, []left{{low, low + 0x1000, 0x10000, 0x10008}}, true},
		{"below where it was left", low + 8, false, []left{{low, low + 0x1000, 0x10100, 0x10200}}, false},
		{"below where it was left, anywhere", low + 0xff, true, []left{{low, low + 0x1000, 0x10100, 0x10200}}, true},
		{"lowest of what was left, anywhere", low + 0x100, true, []left{{low, low + 0x1000, 0x10100, 0x10200}}, false},
		{"mapping that begins there", low + 8, false, []left{{low, low + 0x2000, 0x10000, 0x10008}}, true},
		{"mapping that ends there", low + 8, false, []left{{low - 0x1000, low + 0x1000, 0x10000, 0x10008}}, true},
	} {
		s := &twoStacks{space{stack: [2]uint64{high, high + 0x2000}, also: [2]uint64{low, low + 0x1000}}}
		on := switches{low: high + 0x800, left: tt.left}
		if got := on.may(New(regs.AMD64, s, nil, 0).main.proc, high+0x1000, tt.addr, tt.anywhere); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if w := New(regs.AMD64, &readOnly{space{also: [2]uint64{low, low + 0x1000}}}, nil, 0); w.main.switches.may(w.main.proc, high, low+8, false) {
		t.Error("a stack that cannot be written")
	}
	if w := New(regs.AMD64, &unknownStacks{}, nil, 0); w.main.switches.may(w.main.proc, high, low+8, true) {
		t.Error("a stack whose ends are not known")
	}
	// The first and last bytes of the walk's own mapping belong to it.
	for _, sp := range []uint64{high, high + 0x1fff} {
		w := New(regs.AMD64, &twoStacks{space{stack: [2]uint64{high, high + 0x2000}}}, nil, 0)
		if w.main.switches.may(w.main.proc, sp, high+8, false) {
			t.Errorf("the stack pointer %#x is on another stack", sp)
		}
	}
}

// TestSwitchRow: functions that are known to change stacks lead to others in the same mapping, below and
// above, but not back to where the walk has been; where they have not changed stacks, they lead on.
func TestSwitchRow(t *testing.T) {
	const stack, code = 0x40000, 0x1000
	a := regs.AMD64
	s := &twoStacks{space{
		mapped: [][2]uint64{{code, code + 0x1000}},
		stack:  [2]uint64{stack, stack + 0x4000},
		code:   map[uint64][]byte{code: make([]byte, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {{Start: code, End: code + 0x800, Row: sframe.Row{
			CFA: fromReg(a.FP, 16), RA: atCFA(-8), FP: atCFA(-16), Switch: true,
		}}, {Start: code + 0x800, End: code + 0x1000, Row: sframe.Row{Outermost: true}}}},
	}}
	for i := range s.code[code] {
		s.code[code][i] = 0xe8 // call rel32 before every address
	}
	const ret, last = code + 0x100, code + 0x900
	tests := []struct {
		name   string
		frames [][3]uint64 // address of a pair: frame pointer and where it goes on
		copied uint64      // bytes from stack on; 0: all
		n      int
		end    Reason
		over   []Stack
	}{
		{"below", [][3]uint64{{0x2000, 0x100, ret}, {0x100, 0, last}}, 0, 3, Complete, []Stack{{1, stack + 0x2000, 0}, {2, stack + 0x100, 0}}},
		{"above", [][3]uint64{{0x3000, 0, last}}, 0, 2, Complete, []Stack{{1, stack + 0x3000, 0}}},
		{"not changed", [][3]uint64{{0x1040, 0, last}}, 0, 2, Complete, nil},
		{"hardly changed", [][3]uint64{{0x1078, 0, last}}, 0, 2, Complete, nil},
		{"just changed", [][3]uint64{{0x1080, 0, last}}, 0, 2, Complete, []Stack{{1, stack + 0x1080, 0}}},
		{"between the stacks", [][3]uint64{{0x2000, 0x1800, ret}, {0x1800, 0, last}}, 0, 3, Complete, []Stack{{1, stack + 0x2000, 0}, {2, stack + 0x1800, 0}}},
		{"up to what was left", [][3]uint64{{0x2000, 0x100, ret}, {0x100, 0x2008, ret}}, 0, 3, StackSwitch, []Stack{{1, stack + 0x2000, 0}, {2, stack + 0x100, 0}}},
		{"above what was left", [][3]uint64{{0x2000, 0x100, ret}, {0x100, 0x2018, ret}, {0x2018, 0, last}}, 0, 4, Complete,
			[]Stack{{1, stack + 0x2000, 0}, {2, stack + 0x100, 0}, {3, stack + 0x2018, 0}}},
		{"same place", [][3]uint64{{0x2000, 0x2000, ret}}, 0, 2, NoProgress, []Stack{{1, stack + 0x2000, 0}}},
		{"into what was left", [][3]uint64{{0x2000, 0x1000, ret}}, 0, 2, NoProgress, []Stack{{1, stack + 0x2000, 0}}},
		{"nowhere", [][3]uint64{{0x2000, 0x9000, ret}}, 0, 2, StackSwitch, []Stack{{1, stack + 0x2000, 0}}},
		{"not copied", [][3]uint64{{0x2000, 0, ret}}, 0x1100, 1, OutsideCopy, []Stack{{1, stack + 0x2000, 0}}},
	}
	for _, tt := range tests {
		b := make([]byte, 0x4000)
		for _, f := range tt.frames {
			fp := f[1]
			if fp != 0 {
				fp += stack
			}
			copy(b[f[0]:], put(a, nil, fp, f[2]))
		}
		if tt.copied > 0 {
			b = b[:tt.copied]
		}
		m := new(Memory)
		m.Reset(stack, b, nil)
		set := &regs.Set{PC: code + 0x10, Known: 1<<a.SP | 1<<a.FP}
		set.R[a.SP], set.R[a.FP] = stack+0x1000, stack+tt.frames[0][0]
		w := New(a, s, []How{EHFrame}, 0)
		got, end := w.Walk(set, m, nil)
		if len(got) != tt.n || end.Reason != tt.end || !slices.Equal(w.Stacks(), tt.over) {
			t.Errorf("%s: %d frames, %v at %#x, by %#x; want %d, %v, %#x", tt.name, len(got), end.Reason, end.Addr, w.Stacks(), tt.n, tt.end, tt.over)
		}
		if last := stack + tt.frames[len(tt.frames)-1][1]; tt.end == StackSwitch && end.Addr != last && (tt.name != "nowhere" || end.Addr != last+16) {
			t.Errorf("%s: the stack that it does not go to is at %#x, want %#x", tt.name, end.Addr, last)
		}
	}
}

// TestRestored: SBCL's call_into_lisp_ has pushed its frame pointer where Lisp's frame begins, and its table tells of that moment. The
// walk comes from Lisp with that word as the frame pointer, as Lisp returns: the next frame, here on another stack, is not left out.
func TestRestored(t *testing.T) {
	const low, high, lisp, c = 0x10000, 0x40000, 0x1000, 0x2000
	a := regs.AMD64
	calls := sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8), FP: atCFA(-16),
		Exprs: [][]byte{{opBreg0 + 6, 0, opDeref, opLit0 + 16, opPlus}}}
	s := &twoStacks{space{
		mapped: [][2]uint64{{lisp, lisp + 0x2000}}, stack: [2]uint64{high, high + 0x1000}, also: [2]uint64{low, low + 0x1000},
		code: map[uint64][]byte{c: bytes.Repeat([]byte{0xe8}, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {{Start: c, End: c + 0x100, Row: calls},
			{Start: c + 0x100, End: c + 0x800, Row: sframe.Row{CFA: fromReg(a.FP, 16), RA: atCFA(-8), FP: atCFA(-16)}},
			{Start: c + 0x800, End: c + 0x1000, Row: sframe.Row{Outermost: true}}}},
	}}
	stack := make([]byte, 0x1000)
	copy(stack[0xff0:], put(a, nil, low+0x100, c+0x10))
	other := make([]byte, 0x1000)
	copy(other[0x100:], put(a, nil, low+0x200, c+0x110))
	copy(other[0x200:], put(a, nil, 0, c+0x810))
	m := new(Memory)
	m.Reset(high, stack, nil)
	at := set(lisp+0x10, uint64(a.SP), high+0x80, uint64(a.FP), high+0xff0)
	w := New(a, s, nil, 0)
	if _, end := w.Walk(at, m, nil); end.Reason != OutsideCopy || !slices.Equal(w.Stacks(), []Stack{{Frame: 2, Base: low + 0x100}}) {
		t.Errorf("without the other stack: %v at %#x, %+v", end.Reason, end.Addr, w.Stacks())
	}
	m.Also = []Region{{Addr: low, Bytes: other}}
	got, end := w.Walk(at, m, nil)
	var pcs []uint64
	for _, f := range got {
		pcs = append(pcs, f.PC)
	}
	if want := []uint64{lisp + 0x10, c + 0x10, c + 0x110, c + 0x810}; !slices.Equal(pcs, want) || !end.Complete() {
		t.Errorf("frames %#x, %v; want %#x, complete", pcs, end.Reason, want)
	}
	// In call_into_lisp_ itself the table is right.
	at = set(c+0x10, uint64(a.SP), high+0x80, uint64(a.FP), high+0xff0)
	if got, end := w.Walk(at, m, nil); len(got) != 3 || got[1].PC != c+0x110 || !end.Complete() {
		t.Errorf("from its own code: %+v, %v", got, end.Reason)
	}
}

// TestRestoredRow: which rows have another meaning, and where the walk has come from then.
func TestRestoredRow(t *testing.T) {
	a := regs.AMD64
	expr := []byte{0x76, 0, 0x06, 0x40, 0x22} // DW_OP_breg6 0, deref, lit16, plus (DWARF 5, section 7.7.1)
	other := []byte{0x76, 0, 0x06, 0x38, 0x22}
	by := func(n int32, exprs ...[]byte) sframe.Row {
		return sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr, Offset: n}, RA: atCFA(-8), FP: atCFA(-16), Exprs: exprs}
	}
	fp, code := came{found: FramePointer, caller: true}, came{found: Code, caller: true}
	for _, tt := range []struct {
		name string
		row  sframe.Row
		came came
		top  bool
		want bool
	}{
		{"by a frame pointer", by(0, expr), fp, false, true},
		{"by code", by(0, expr), code, false, true},
		{"second expression", by(1, other, expr), fp, false, true},
		{"by a table", by(0, expr), came{found: EHFrame, caller: true}, false, false},
		{"by a signal", by(0, expr), came{found: Signal}, false, false},
		{"interrupted", by(0, expr), came{found: FramePointer}, false, false},
		{"innermost", by(0, expr), fp, true, false},
		{"another expression", by(0, other), fp, false, false},
		{"another expression, by code", by(0, other), code, false, false},
		{"another one's expression", by(0, other, expr), fp, false, false},
		{"expression that there is not", by(1, expr), fp, false, false},
		{"expression before the first", by(-1, expr), fp, false, false},
		{"no expression", sframe.Row{CFA: fromReg(a.FP, 0), Exprs: [][]byte{expr}}, fp, false, false},
	} {
		before := tt.row
		got := restored(a, tt.came, &tt.row, tt.top)
		if (got != nil) != tt.want || tt.row.CFA != before.CFA {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if got != nil && (got.CFA != sframe.Rule{Base: sframe.FromReg, Reg: a.FP, Offset: 16} || got.RA != tt.row.RA || got.FP != tt.row.FP) {
			t.Errorf("%s: %+v, want the frame pointer plus 16", tt.name, got)
		}
	}
}

// lateSpace learns of the stack's mapping when it is first asked what may be executed, as it does when mappings are read anew in the midst of a walk.
type lateSpace struct {
	space
	known bool
}

func (s *lateSpace) Executable(pc uint64) bool {
	s.known = true
	return s.space.Executable(pc)
}

func (s *lateSpace) Mapping(addr uint64) (start, end uint64, ok bool) {
	if !s.known {
		return 0, 0, false
	}
	return s.space.Mapping(addr)
}

// TestLateMapping: a caller with the stack pointer of its leaf is on the same stack, also when its mapping becomes known between them.
func TestLateMapping(t *testing.T) {
	a := regs.ARM64
	const code, stack = 0x1000, 0x40000
	s := &lateSpace{space: space{
		mapped: [][2]uint64{{code, code + 0x1000}},
		stack:  [2]uint64{stack, stack + 0x100},
		code:   map[uint64][]byte{code: make([]byte, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {
			{Start: code, End: code + 0x100, Row: sframe.Row{CFA: fromReg(a.SP, 0), Keep: ^uint32(0)}},
			{Start: code + 0x100, End: code + 0x200, Row: sframe.Row{CFA: fromReg(a.SP, 0x110), RA: atCFA(-8), Keep: ^uint32(0)}},
			{Start: code + 0x200, End: code + 0x300, Row: sframe.Row{Outermost: true}},
		}},
	}}
	words := make([]uint64, 64)
	words[(0x80+0x110-8)/8] = code + 0x210
	m := new(Memory)
	m.Reset(stack, put(a, nil, words...), nil)
	frames, end := New(a, s, []How{EHFrame}, 0).Walk(set(code+0x10, uint64(a.SP), stack+0x80, uint64(a.RA), code+0x110), m, nil)
	if len(frames) != 3 || end.Reason != Complete {
		t.Errorf("%d frames, %v", len(frames), end)
	}
}
