package unwind

import (
	"slices"
	"testing"

	"sfsample/regs"
)

// testRuntime owns the generated code of a generatedSpace that is behind no call. The stack pointer of a caller is the word at the stack
// pointer, its PC the one behind, and its frame pointer the next.
type testRuntime struct{ asked []uint64 }

func (r *testRuntime) Owns(pc uint64) bool { return pc>>12 == testJumped>>12 }

func (r *testRuntime) Caller(from *regs.Set, top bool, mem *Memory, to *regs.Set) (Reason, uint64) {
	a := regs.AMD64
	r.asked = append(r.asked, from.PC)
	switch from.PC {
	case testJumped:
		return NoRow, 0
	case testJumped + 3:
		return Outermost, 0
	}
	var words [3]uint64
	for i := range words {
		addr := from.R[a.SP] + 8*uint64(i)
		v, err := mem.Word(a, addr)
		if err != nil {
			return err.(Reason), addr
		}
		words[i] = v
	}
	to.PC = words[1]
	for i, reg := range []uint8{a.SP, 0, a.FP} {
		if to.R[reg] = words[i]; i != 0 || words[i] != 0 {
			to.Known |= 1 << reg
		}
	}
	return 0, 0
}

// runtimeSpace has stacks besides.
type runtimeSpace struct{ *origins }

func (s *runtimeSpace) Writable(addr uint64) bool { return inside(addr, s.stack, s.also) }

// TestRuntime walks stacks that a runtime knows its way through. The stack begins at 0x40000.
func TestRuntime(t *testing.T) {
	const at, top, other = 0x40000, 0x41000, 0x50000
	tests := []struct {
		name  string
		pc    uint64
		words []uint64
		depth int
		want  []uint64
		owned []int
		end   Reason
		addr  uint64
	}{
		{"to an object", testJumped + 1, []uint64{at + 32, testJumped + 2, 0, 0, at + 64, testObject + 0x10, 0, 0, 7, testRoot + 0x10}, 0,
			[]uint64{testJumped + 1, testJumped + 2, testObject + 0x10, testRoot + 0x10}, []int{0, 1}, Complete, 0},
		{"another method", testJumped, []uint64{0, testObject + 0x10, 7, testRoot + 0x10}, 0, []uint64{testJumped, testObject + 0x10, testRoot + 0x10}, []int{0}, Complete, 0},
		{"no progress", testJumped + 1, []uint64{at + 32, testJumped + 2, 0, 0, at + 32, testJumped + 3, 0}, 0,
			[]uint64{testJumped + 1, testJumped + 2}, []int{0, 1}, NoProgress, at + 32},
		{"no code", testJumped + 1, []uint64{at + 32, 5}, 0, []uint64{testJumped + 1}, []int{0}, NotCode, 5},
		{"behind no call", testJumped + 1, []uint64{at + 32, testCalled + 0x801, 0}, 0, []uint64{testJumped + 1}, []int{0}, NotAfterCall, testCalled + 0x801},
		{"misaligned", testJumped + 1, []uint64{at + 36, testJumped + 2, 0}, 0, []uint64{testJumped + 1}, []int{0}, Misaligned, at + 36},
		{"signed", testJumped + 1, []uint64{at + 32, testRoot + 0x10 | 0x2a<<48, 0}, 0, []uint64{testJumped + 1, testRoot + 0x10}, []int{0}, Complete, 0},
		{"another stack", testJumped + 1, []uint64{other, testRoot + 0x10, 0}, 0, []uint64{testJumped + 1, testRoot + 0x10}, []int{0}, Complete, 0},
		{"another stack, and from there", testJumped + 1, []uint64{other, testObject + 0x10, 0}, 0, []uint64{testJumped + 1, testObject + 0x10}, []int{0}, OutsideCopy, other + 8},
		{"below on the same stack", testJumped + 1, []uint64{at - 32, testRoot + 0x10, 0}, 0, []uint64{testJumped + 1, testRoot + 0x10}, []int{0}, Complete, 0},
		{"no such stack", testJumped + 1, []uint64{top + 32, testJumped + 2, 0}, 0, []uint64{testJumped + 1}, []int{0}, NoProgress, top + 32},
		{"no stack pointer", testJumped + 1, []uint64{0, testJumped + 2, 0}, 0, []uint64{testJumped + 1}, []int{0}, UnknownRegister, 0},
		{"to the end of the stack", testJumped + 1, []uint64{top, testRoot + 0x10, 0}, 0, []uint64{testJumped + 1, testRoot + 0x10}, []int{0}, Complete, 0},
		{"on the spot", testJumped + 1, []uint64{at, testRoot + 0x10, 0}, 0, []uint64{testJumped + 1, testRoot + 0x10}, []int{0}, Complete, 0},
		{"to an entry", testJumped + 1, []uint64{at + 32, testCalled + 0x20, 0}, 0, []uint64{testJumped + 1, testCalled + 0x20}, []int{0}, Complete, 0},
		{"no caller", testJumped + 3, nil, 0, []uint64{testJumped + 3}, []int{0}, Complete, 0},
		{"depth", testJumped + 1, []uint64{at + 32, testJumped + 2, 0}, 1, []uint64{testJumped + 1}, []int{0}, DepthLimit, 0},
		{"not copied", testJumped + 1, []uint64{at + 0x800, testJumped + 2, 0}, 0, []uint64{testJumped + 1, testJumped + 2}, []int{0, 1}, OutsideCopy, at + 0x800},
	}
	for _, tt := range tests {
		a, s, r := regs.AMD64, &runtimeSpace{generatedSpace()}, new(testRuntime)
		delete(s.code, testCalled)
		s.mapped = append(s.mapped, [2]uint64{testCalled, 0xa000})
		s.stack[0], s.also = at-0x100, [2]uint64{other, other + 0x1000}
		s.entries = append(s.entries, [2]uint64{testCalled, testCalled + 0x40})
		order := []How{EHFrame} // so that the runtime alone leads on
		if tt.pc == testJumped {
			order = nil
		}
		signed := *a
		signed.PACMask = 0x7f << 48
		w := New(&signed, s, order, tt.depth)
		w.SetRuntime(r, false)
		mem := words(a, at, tt.words...)
		if tt.end == NoProgress || tt.end == NotCode {
			mem = words(a, at, append(tt.words, make([]uint64, 8)...)...)
		}
		got, end := w.Walk(set(tt.pc, uint64(a.SP), at, uint64(a.FP), at), mem, nil)
		var pcs []uint64
		for i, f := range got {
			if pcs = append(pcs, f.PC); i > 0 && r.Owns(got[i-1].PC) && got[i-1].PC != testJumped && f.How != ByRuntime {
				t.Errorf("%s: frame %d was found by %s", tt.name, i, f.How)
			}
		}
		var over []Stack
		if sp := tt.words; len(got) > 1 && (sp[0] == other || sp[0] == at-32) {
			over = []Stack{{Frame: 1, Base: sp[0]}}
		}
		if !slices.Equal(w.Stacks(), over) {
			t.Errorf("%s: stacks %+v, want %+v", tt.name, w.Stacks(), over)
		}
		var owned []int
		for _, o := range w.Owned() {
			owned = append(owned, o.Frame)
			if o.Set.PC != got[o.Frame].PC || o.Top != (o.Frame == 0) {
				t.Errorf("%s: frame %d is said to be %+v", tt.name, o.Frame, o)
			}
		}
		if !slices.Equal(pcs, tt.want) || !slices.Equal(owned, tt.owned) || end.Reason != tt.end || end.Addr != tt.addr {
			t.Errorf("%s: %#x, of the runtime %v, %v at %#x; want %#x, %v, %v at %#x", tt.name, pcs, owned, end.Reason, end.Addr, tt.want, tt.owned, tt.end, tt.addr)
		}
	}
}

// TestRuntimeLeaves: callers that a runtime knows to lie on other stacks do, wherever they lie, and so does what it lacks of them.
func TestRuntimeLeaves(t *testing.T) {
	const at = uint64(0x40000)
	for _, tt := range []struct {
		name   string
		leaves bool
		words  []uint64
		end    Reason
		over   []Stack
	}{
		{"above", true, []uint64{at + 32, testRoot + 0x10, 0}, Complete, []Stack{{Frame: 1, Base: at + 32}}},
		{"above, on the same stack", false, []uint64{at + 32, testRoot + 0x10, 0}, Complete, nil},
		{"not copied", true, []uint64{at + 32}, OutsideCopy, []Stack{{Frame: 1, Base: at + 8}}},
		{"not copied, on the same stack", false, []uint64{at + 32}, OutsideCopy, nil},
		{"on the spot", true, []uint64{at, testRoot + 0x10, 0}, FramesMissing, nil},
	} {
		a, s := regs.AMD64, &runtimeSpace{generatedSpace()}
		delete(s.code, testCalled)
		s.stack[0] = at - 0x100
		w := New(a, s, []How{EHFrame}, 0)
		w.SetRuntime(new(testRuntime), tt.leaves)
		_, end := w.Walk(set(testJumped+1, uint64(a.SP), at, uint64(a.FP), at), words(a, at, tt.words...), nil)
		if end.Reason != tt.end || !slices.Equal(w.Stacks(), tt.over) {
			t.Errorf("%s: %v, stacks %+v; want %v, %+v", tt.name, end.Reason, w.Stacks(), tt.end, tt.over)
		}
	}
}
