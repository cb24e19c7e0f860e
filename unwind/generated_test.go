package unwind

import (
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// origins is a space that knows what is an object's.
type origins struct {
	space
	object [2]uint64
	stale  uint64 // of a function that its caller does not call
}

var _ Origins = (*origins)(nil)

func (s *origins) Origin(pc uint64) (code, object bool) {
	return s.Executable(pc), inside(pc, s.object)
}

func (s *origins) Calls(ra, pc uint64) bool { return pc != s.stale }

// Code of an object, all of it behind calls, with rows: the CFA is the stack pointer plus 16 in the first
// half, stacks begin in the second. Generated code, which keeps frame pointers: behind no call, and behind calls.
const (
	testObject, testRoot   = 0x1000, 0x1800
	testJumped, testCalled = 0x8000, 0x9000
	testStale              = testObject + 0x50 // its caller calls another function
)

func generatedSpace() *origins {
	s := &origins{space: space{
		mapped: [][2]uint64{{testObject, 0x2000}, {testJumped, 0xa000}},
		stack:  [2]uint64{0x40000, 0x41000},
		code:   map[uint64][]byte{testObject: make([]byte, 0x1000), testCalled: make([]byte, 0x1000)},
		rows: map[How][]sframe.Entry{EHFrame: {
			{Start: testObject, End: testRoot, Row: sframe.Row{CFA: fromReg(regs.AMD64.SP, 16), RA: atCFA(-8)}},
			{Start: testRoot, End: 0x2000, Row: sframe.Row{Outermost: true}},
		}},
	}, object: [2]uint64{testObject, 0x2000}, stale: testStale - 1}
	for _, code := range s.code {
		for i := range code {
			code[i] = 0xe8 // call rel32 before every address
		}
	}
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
		{"no room for a gap", testJumped + 0x10, 1, []uint64{7, testObject + 0x40, 5, 5, testObject + 0x10, 7, testRoot + 0x10}, 2,
			[]uint64{testJumped + 0x10}, NotCode, 5},
		{"no root", testJumped + 0x10, 2, []uint64{7, 5, 7, 5, testObject + 0x10, 7, 5}, 0,
			[]uint64{testJumped + 0x10}, NotCode, 5},
	}
	for _, tt := range tests {
		a, s := regs.AMD64, generatedSpace()
		set := set(tt.pc, uint64(a.SP), fp, uint64(a.FP), fp+8*tt.fp)
		mem := words(a, fp, tt.words...)
		got, end := New(a, s, nil, tt.depth).Walk(set, mem, nil)
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
