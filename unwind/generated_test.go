package unwind

import (
	"errors"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// origins is a space that knows what is an object's.
type origins struct {
	space
	object [2]uint64
	stale  uint64 // of a function that its caller does not call
	blind  uint64 // of a caller whose call goes by a register
}

var _ Origins = (*origins)(nil)

func (s *origins) Origin(pc uint64) (code, object bool) {
	return s.Executable(pc), inside(pc, s.object)
}

func (s *origins) Calls(ra, pc uint64) (calls, known bool) {
	return pc != s.stale && pc != ra-1 && ra != s.blind, ra != s.blind
}

// Row tells of one address that a table knows of it, and has no row.
func (s *origins) Row(pc uint64, h How) (*sframe.Row, error) {
	if pc == testCovered {
		return nil, errors.New("goes over to another stack")
	}
	return s.space.Row(pc, h)
}

// Code of an object, all of it behind calls, with rows but for a little: the CFA is the stack pointer plus 16 in the first
// half, stacks begin in the second. Generated code, which keeps frame pointers: behind no call, and behind calls.
const (
	testObject, testRoot   = 0x1000, 0x1800
	testJumped, testCalled = 0x8000, 0x9000
	testUncalled           = testObject + 0x300 // behind no call
	testStale              = testObject + 0x50  // its caller calls another function
	testEntry              = testObject + 0x700 // of a function that starts stacks
	testUntabled           = testRoot - 0x70
	testBlind              = testObject + 0x60 // calls by a register
	testCovered            = testJumped + 0x70 // in a function whose start a table knows
	testWide               = testObject + 0x90 // of a frame of 32 bytes
)

func generatedSpace() *origins {
	s := &origins{space: space{
		mapped: [][2]uint64{{testObject, 0x2000}, {testJumped, 0xa000}},
		stack:  [2]uint64{0x40000, 0x41000}, entries: [][2]uint64{{testEntry, testEntry + 0x40}},
		code: map[uint64][]byte{testObject: make([]byte, 0x1000), testCalled: make([]byte, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {
			{Start: testWide - 4, End: testWide, Row: sframe.Row{CFA: fromReg(regs.AMD64.SP, 32), RA: atCFA(-8)}},
			{Start: testObject, End: testRoot - 0x80, Row: sframe.Row{CFA: fromReg(regs.AMD64.SP, 16), RA: atCFA(-8)}},
			{Start: testRoot, End: 0x2000, Row: sframe.Row{Outermost: true}},
		}},
	}, object: [2]uint64{testObject, 0x2000}, stale: testStale - 1, blind: testBlind}
	for _, code := range s.code {
		for i := range code {
			code[i] = 0xe8 // call rel32 before every address
		}
	}
	clear(s.code[testObject][testUncalled-testObject-16 : testUncalled-testObject])
	return s
}

// TestGenerated walks stacks of generated code. The stack begins at 0x40000; a frame pointer of n points to
// word n.
func TestGenerated(t *testing.T) {
	const fp = 0x40000
	tests := []struct {
		name  string
		pc    uint64
		fp    uint64
		words []uint64
		depth int
		want  []uint64 // PCs; 0: what is missing
		end   Reason
		addr  uint64
	}{
		{"proved", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, testJumped + 0x20, testObject + 0x10, testRoot + 0x10}, Complete, 0},
		{"proved by an entry", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, testJumped + 0x20, testRoot + 0x10}, Complete, 0},
		{"proved by a function that starts stacks", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testEntry + 0x10, 7, 5}, 0,
			[]uint64{testJumped + 0x10, testJumped + 0x20, testEntry + 0x10}, Complete, 0},
		{"an end by zeros is no proof", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 0, testObject + 0x10, 7, 0}, 0,
			[]uint64{testJumped + 0x10}, NotAfterCall, testJumped + 0x20},
		{"back to the first byte of generated code", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x10, testRoot + 0x10}, FramesMissing, testJumped},
		{"proved, then cut", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testObject + 0x10, 7, testObject + 0x20, 7, 5}, 0,
			[]uint64{testJumped + 0x10, testJumped + 0x20, testObject + 0x10, testObject + 0x20}, NotCode, 5},
		{"not proved", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testJumped + 0x30, 7}, 0,
			[]uint64{testJumped + 0x10}, NotAfterCall, testJumped + 0x20},
		{"a row that does not lead on is no proof", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testJumped + 0x10}, NotAfterCall, testJumped + 0x20},
		{"not proved within the depth", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testObject + 0x10, 7, testRoot + 0x10}, 2,
			[]uint64{testJumped + 0x10}, NotAfterCall, testJumped + 0x20},
		{"not proved within the copy", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, fp + 0x800, testJumped + 0x30}, 0,
			[]uint64{testJumped + 0x10}, OutsideCopy, fp + 0x808},
		{"not proved, doubted anew", testJumped + 0x10, 1, []uint64{7, fp + 24, testJumped + 0x20, 5, testObject + 0x10, 7, testObject + 0x20, 7, 5}, 3,
			[]uint64{testJumped + 0x10}, NotAfterCall, testJumped + 0x20},
		// The frame pointer is that of a caller's caller, whose own return address it has passed over.
		{"passed over", testCalled + 0x10, 3, []uint64{7, testCalled + 0x20, 7, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testCalled + 0x10}, NotAfterCall, testCalled + 0x20},
		{"passed over by a caller", testCalled + 0x10, 1, []uint64{7, fp + 40, testCalled + 0x20, 7, testCalled + 0x40, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testCalled + 0x10, testCalled + 0x20}, NotAfterCall, testCalled + 0x40},
		{"passed over, with its root", testCalled + 0x10, 3, []uint64{7, testCalled + 0x20, 7, fp + 40, testCalled + 0x30, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testCalled + 0x10, 0, testObject + 0x10, testRoot + 0x10}, FramesMissing, testCalled + 0x20},
		// HotSpot's call_stub keeps the address there that it calls.
		{"the address called is no caller", testCalled + 0x10, 3, []uint64{7, testJumped + 0x20, 7, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testCalled + 0x10, testObject + 0x10, testRoot + 0x10}, Complete, 0},
		{"the caller of an object's", testCalled + 0x10, 3, []uint64{7, testCalled + 0x20, 7, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testCalled + 0x10}, NotAfterCall, testCalled + 0x20},
		{"gap", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x10, testRoot + 0x10}, FramesMissing, 5},
		{"what a call has left", testJumped + 0x10, 1, []uint64{7, testStale, 5, testRoot + 0x20, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testRoot + 0x20}, FramesMissing, 5},
		{"what a call has left, to a frame", testJumped + 0x10, 1, []uint64{7, testStale, 5, testObject + 0x30, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x30, testRoot + 0x10}, FramesMissing, 5},
		{"what a call has left, that leads to a frame through another", testJumped + 0x10, 1, []uint64{7, testObject + 0xa0, 5, testStale, 5, testObject + 0x30, 7, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x30, testObject + 0x10, testRoot + 0x10}, FramesMissing, 5},
		{"gap up to a call by a register", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, testObject + 0x48, 7, testBlind, 7, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testBlind, testObject + 0x10, testRoot + 0x10}, FramesMissing, 5},
		{"gap up to a call by a register, of a thread's start", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, testBlind, 7, testEntry + 0x10, 7, 5}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x40, testBlind, testEntry + 0x10}, FramesMissing, 5},
		{"called by one frame, from two words of another", testJumped + 0x10, 1, []uint64{7, testWide, 5, testObject + 0x40, 5, testObject + 0x30, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x30, testRoot + 0x10}, FramesMissing, 5},
		{"called by one frame, from one word", testJumped + 0x10, 1, []uint64{7, testWide, 5, 5, 5, testObject + 0x30, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testWide, testObject + 0x30, testRoot + 0x10}, FramesMissing, 5},
		{"zeros are no root", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, 0, 5, testObject + 0x30, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testObject + 0x30, testRoot + 0x10}, FramesMissing, 5},
		{"no gap in what a table knows", testCovered, 1, []uint64{7, testObject + 0x40, 5, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testCovered}, NotCode, 5},
		{"gap behind an object's code without a table", testUntabled, 1, []uint64{7, testObject + 0x40, 5, 5, testObject + 0x10, 7, testRoot + 0x10}, 0,
			[]uint64{testUntabled, 0, testObject + 0x10, testRoot + 0x10}, FramesMissing, 5},
		{"gap, not to where nothing is called", testJumped + 0x10, 1, []uint64{7, testUncalled, 5, testRoot + 0x10}, 0,
			[]uint64{testJumped + 0x10, 0, testRoot + 0x10}, FramesMissing, 5},
		{"gap to the last byte of an object", testJumped + 0x10, 1, []uint64{7, 0x2000, 5, 5}, 0,
			[]uint64{testJumped + 0x10, 0, 0x2000}, FramesMissing, 5},
		{"first byte of an object is behind no call", testJumped + 0x10, 1, []uint64{7, testObject, 5, 5}, 0,
			[]uint64{testJumped + 0x10}, NotCode, 5},
		{"no room for a gap", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, 5, testObject + 0x10, 7, testRoot + 0x10}, 2,
			[]uint64{testJumped + 0x10}, NotCode, 5},
		{"no root", testJumped + 0x10, 2, []uint64{7, 5, 7, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testJumped + 0x10}, NotCode, 5},
	}
	walkers := map[int]*Walker{} // by depth: nothing is left of the walk before
	for _, tt := range tests {
		a := regs.AMD64
		set := set(tt.pc, uint64(a.SP), fp, uint64(a.FP), fp+8*tt.fp)
		mem := words(a, fp, tt.words...)
		w := walkers[tt.depth]
		if w == nil {
			w = New(a, generatedSpace(), nil, tt.depth)
			walkers[tt.depth] = w
		}
		got, end := w.Walk(set, mem, nil)
		var pcs []uint64
		for _, f := range got {
			pcs = append(pcs, f.PC)
		}
		ok := len(pcs) == len(tt.want) && end.Reason == tt.end && end.Addr == tt.addr
		for i := range min(len(pcs), len(tt.want)) {
			ok = ok && pcs[i] == tt.want[i]
		}
		if !ok {
			t.Errorf("%s: %#x, %v at %#x; want %#x, %v at %#x", tt.name, pcs, end.Reason, end.Addr, tt.want, tt.end, tt.addr)
		}
	}
}

// TestPassedOver: which word makes a frame pointer one of another, where it has led over the word from generated code to a caller
// in such code, or to one of an object.
func TestPassedOver(t *testing.T) {
	const at = 0x40000
	for _, tt := range []struct {
		name   string
		from   Frame
		caller uint64
		word   uint64
		place  int // of the word
		how    How
		n      int // frames that stay
	}{
		{"called", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x30, 1, FramePointer, 1},
		{"jumped", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testJumped + 0x30, 1, FramePointer, 1},
		{"jumped, to an object", Frame{PC: testCalled + 0x10}, testObject, testJumped + 0x30, 1, FramePointer, 2},
		{"called, to an object", Frame{PC: testCalled + 0x10}, testObject + 8, testCalled + 0x30, 1, FramePointer, 1},
		{"behind the last byte", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x1000, 1, FramePointer, 1},
		{"at the first byte", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testJumped, 1, FramePointer, 2},
		{"at the stack pointer", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x30, 0, FramePointer, 1},
		{"last", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x30, 3, FramePointer, 1},
		{"in the pair", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x30, 4, FramePointer, 2},
		{"of an object", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testObject + 8, 1, FramePointer, 2},
		{"no code", Frame{PC: testCalled + 0x10}, testCalled + 0x20, 5, 1, FramePointer, 2},
		{"signed", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testJumped + 0x30 | 0x2a<<48, 1, FramePointer, 1},
		{"by a row", Frame{PC: testCalled + 0x10}, testCalled + 0x20, testCalled + 0x30, 1, EHFrame, 2},
		{"from an object", Frame{PC: testObject + 0x10}, testCalled + 0x20, testCalled + 0x30, 1, FramePointer, 2},
		{"from a caller", Frame{PC: testCalled + 0x10, Caller: true}, testCalled + 0x20, testCalled + 0x30, 1, FramePointer, 1},
		{"from behind a jump", Frame{PC: testJumped + 0x10, Caller: true}, testCalled + 0x20, testCalled + 0x30, 1, FramePointer, 2},
	} {
		a := *regs.AMD64
		a.PACMask = 0x7f << 48
		words := make([]uint64, 6)
		words[tt.place] = tt.word
		b := put(&a, nil, words...)
		m := new(Memory)
		m.Reset(at, b, nil)
		tt.from.SP = at
		frames := []Frame{tt.from, {PC: tt.caller, SP: at + 48, Caller: true, How: tt.how}}
		n, word := New(&a, generatedSpace(), nil, 0).main.code.passedOver(frames, m)
		if n != tt.n || n == 1 && word != tt.word&^a.PACMask {
			t.Errorf("%s: %d frames, %#x; want %d", tt.name, n, word, tt.n)
		}
	}
	// A frame of more than may be looked at is not believed.
	for size, want := range map[uint64]int{maxPassed: 2, maxPassed + 8: 1} {
		frames := []Frame{{PC: testCalled + 0x10, SP: at}, {PC: testCalled + 0x20, SP: at + size + 16, Caller: true, How: FramePointer}}
		if n, word := New(regs.AMD64, generatedSpace(), nil, 0).main.code.passedOver(frames, words(regs.AMD64, at)); n != want || n == 1 && word != testCalled+0x20 {
			t.Errorf("over %d bytes: %d frames, %#x; want %d", size, n, word, want)
		}
	}
}

// TestRootBounds: a root is looked for in so many bytes from the stack pointer on, and from so many return addresses.
func TestRootBounds(t *testing.T) {
	const at = 0x40000
	stale := make([]uint64, 3*maxRoots)
	for i := range maxRoots {
		stale[3*i] = testObject + 0x10 // leads to 0
	}
	for _, tt := range []struct {
		name  string
		words []uint64
		depth int
		want  End
	}{
		{"last bytes", make([]uint64, maxGap/8-2), 0, End{Reason: FramesMissing}},
		{"beyond", make([]uint64, maxGap/8-1), 0, End{Reason: NoProgress}},
		{"last address", stale[3:], 0, End{Reason: FramesMissing}},
		{"one more", stale, 0, End{Reason: NoProgress}},
		{"as deep as may be", nil, 4, End{Reason: FramesMissing}},
		{"too deep", nil, 2, End{Reason: NoProgress}},
		{"in memory that cannot be read", nil, -1, End{Reason: NoProgress}},
	} {
		s := generatedSpace()
		s.stack[1] += 0x10000
		words, a := append(append([]uint64{}, tt.words...), testObject+0x40, 1, testRoot+0x10), regs.AMD64
		m := new(Memory)
		m.Reset(at, put(a, nil, words...), nil)
		if tt.depth < 0 {
			m.Addr += 8
		}
		// The frame before: what is there counts for the depth of another stack.
		got, end := New(a, s, nil, tt.depth).Walk(set(testJumped+0x10, uint64(a.SP), at, uint64(a.FP), 1), m, make([]Frame, 5))
		if tt.depth < 0 && end.Lacks != at || tt.name == "beyond" && end.Lacks != 0 {
			t.Errorf("%s: the memory ended at %#x", tt.name, end.Lacks)
		}
		if end.Reason != tt.want.Reason || end.Addr != 1 || end.Reason == FramesMissing && (len(got) != 9 || got[6] != (Frame{SP: at + 8*uint64(len(tt.words)), How: Gap}) || got[7].How != Gap) {
			t.Errorf("%s: %+v, %v at %#x; want %v at 1", tt.name, got[5:], end.Reason, end.Addr, tt.want.Reason)
		}
	}
}

// TestSettle: with the frames that are cut go the stacks and the runtime's frames that belong to them.
func TestSettle(t *testing.T) {
	w := New(regs.AMD64, generatedSpace(), nil, 0)
	frames := []Frame{{PC: testJumped}, {PC: testJumped + 1, Caller: true, How: Code}, {PC: testJumped + 2, Caller: true, How: Code}, {PC: 5}}
	for _, tt := range []struct {
		from int
		end  End
		want End
	}{
		{0, End{Reason: NotCode, Addr: 5}, End{Reason: NotCode, Addr: 5}},
		{2, End{Reason: NotCode, Addr: 5}, End{Reason: NotAfterCall, Addr: 7}},
		{2, End{Reason: DepthLimit}, End{Reason: NotAfterCall, Addr: 7}},
		{2, End{Reason: OutsideCopy, Addr: 8}, End{Reason: OutsideCopy, Addr: 8}},
	} {
		w.main.doubt.from, w.main.doubt.word = tt.from, 7
		w.main.switches.over = []Stack{{Frame: 1}, {Frame: 2}, {Frame: 3}}
		w.main.owned = []Owned{{Frame: 0}, {Frame: 1}, {Frame: 2}}
		got, end := w.main.settle(frames, tt.end, &entry{}, words(regs.AMD64, 0))
		n, over, owned := 4, 3, 3
		if tt.from > 0 {
			n, over, owned = 2, 2, 2
		}
		if len(got) != n || len(w.main.switches.over) != over || len(w.main.owned) != owned || end != tt.want {
			t.Errorf("%+v: %d frames, %d stacks, %d of the runtime, %+v", tt, len(got), len(w.main.switches.over), len(w.main.owned), end)
		}
	}
}

// TestApart: what is called from one frame by two words is not certain, nor is what lies below.
func TestApart(t *testing.T) {
	live := []Frame{{PC: 1, SP: 10}, {PC: 2, SP: 20}, {PC: 3, SP: 40}, {PC: 4, SP: 50}}
	for _, tt := range []struct {
		up   []Frame
		want int // frames that are left out
	}{
		{[]Frame{{PC: 9, SP: 24}, {PC: 3, SP: 40}, {PC: 4, SP: 50}}, 2},
		{[]Frame{{PC: 2, SP: 24}, {PC: 3, SP: 40}, {PC: 4, SP: 50}}, 2},
		{[]Frame{{PC: 9, SP: 44}, {PC: 4, SP: 50}}, 3},
		{[]Frame{{PC: 2, SP: 20}, {PC: 3, SP: 40}, {PC: 4, SP: 50}}, 0}, // the same
		{[]Frame{{PC: 9, SP: 24}, {PC: 8, SP: 32}, {PC: 4, SP: 50}}, 0}, // it is looked at by itself
		{[]Frame{{PC: 4, SP: 50}}, 0},
	} {
		if got := apart(live, tt.up); len(live)-len(got) != tt.want {
			t.Errorf("%+v: %+v", tt.up, got)
		}
	}
}

// TestStackEnds: a stack that ends in zeros ends where its mapping does.
func TestStackEnds(t *testing.T) {
	s := generatedSpace()
	for _, tt := range []struct {
		sp   []uint64
		want bool
	}{
		{[]uint64{0x40100, 0x41000 - nearEnd}, true},
		{[]uint64{0x40100, 0x40ff8}, true},
		{[]uint64{0x40100, 0x41000 - nearEnd - 8}, false},
		{[]uint64{0x40ff8}, false},          // one word alone
		{[]uint64{0x40ff0, 0x41008}, false}, // in no mapping
	} {
		var up []Frame
		for _, sp := range tt.sp {
			up = append(up, Frame{SP: sp})
		}
		if got := New(regs.AMD64, s, nil, 0).main.proc.ends(up); got != tt.want {
			t.Errorf("%#x: %t, want %t", tt.sp, got, tt.want)
		}
	}
}

// TestBase: main is called by a register, as a thread's function is; who calls what else so may be calling another by now.
func TestBase(t *testing.T) {
	const exe, libc, entry = 0x1000, 0x8000, testEntry
	s := generatedSpace()
	s.stack, s.also = [2]uint64{exe, 0x2000}, [2]uint64{libc, libc + 0x1000}
	p := New(regs.AMD64, s, nil, 0).main.proc
	for _, tt := range []struct {
		pcs  []uint64
		want bool
	}{
		{[]uint64{exe, entry + 1}, true},
		{[]uint64{exe, libc, entry + 1}, true},
		{[]uint64{exe, exe + 8, entry + 1}, false}, // a goroutine's function, and what that calls
		{[]uint64{exe, libc + 8, libc + 16, entry + 1}, true},
		{[]uint64{exe, exe + 8, libc + 16, entry + 1}, false},           // what a thread's function calls
		{[]uint64{libc + 1, libc + 8, libc + 16, entry + 1}, false},     // what glibc calls by itself
		{[]uint64{exe, libc, libc + 8, libc + 16, entry + 1}, false},    // further down
		{[]uint64{exe, libc + 8, libc + 16, exe + 8, entry + 1}, false}, //
		{[]uint64{exe, libc, libc + 8}, false},                          // no entry
		{[]uint64{exe + 8, exe, entry + 1}, false},                      // the first byte of the mapping
		{[]uint64{exe + 8, exe + 0xfff, entry + 1}, false},              // the last
		{[]uint64{exe + 8, exe + 0x1000, entry + 1}, true},              // beyond it
		{[]uint64{libc, libc - 1, entry + 1}, true},
	} {
		var up []Frame
		for _, pc := range tt.pcs {
			up = append(up, Frame{PC: pc, Caller: true})
		}
		if got := p.base(up); got != tt.want {
			t.Errorf("%#x: %t, want %t", tt.pcs, got, tt.want)
		}
	}
	// Where mappings are not known, nothing lies in one with anything, and no stack is at its end.
	if p.layout = nil; p.together(exe, exe) || p.ends([]Frame{{}, {}}) {
		t.Error("two addresses in one mapping, or the end of one, without mappings")
	}
}
