package unwind

import (
	"sfsample/regs"
	"sfsample/sframe"
)

// A caller may lie on another stack: behind libgcc's __morestack, which goes on
// in another segment (-fsplit-stack), where C is called from a language with stacks of
// its own (Go's asmcgocall and systemstack, SBCL), behind swapcontext. A row of
// a table says so, never a mere convention. The new stack pointer has to point
// into memory that can be written, to a frame that a call has left: into another
// mapping, or where the row is one of a function known to change stacks, anywhere.
// Progress counts on each stack by itself: back on one that was left, the stack
// pointer has to be above where it was then (cgo alternates between two). So a
// walk ends, and maxStacks bounds how often it may go over.

// maxStacks bounds the changes of stacks in one walk.
const maxStacks = 64

// sameStack is by how much the stack pointer moves at most, in bytes, where a function
// that may change stacks has not: less than what Go leaves free below any stack
// pointer (internal/abi/stack.go: StackSmall, and the guard above it).
const sameStack = 128

// Stacks is what a Space may know besides: without it no walk goes over to another
// stack but by a signal frame.
type Stacks interface {
	// Writable: addr lies in a mapping that can be read and written.
	Writable(addr uint64) bool
}

// Stack is a stack that a walk went over to, or would have with more memory: for
// whoever copies it next time.
type Stack struct {
	Frame int // index of the first frame there, among those of the walk; their number, if there is none
	// Base is the address by which the walk went there, that of the frame, or less:
	// a stack pointer or frame pointer. It was loaded from the word at
	// Word; 0: it was in a register.
	Base, Word uint64
}

// left is a stack that the walk has been on.
type left struct {
	start, end uint64 // of its mapping
	low, high  uint64 // stack pointers of the frames there
}

// Stacks returns the stacks that the last Walk went over to, innermost first. If it ended
// with OutsideCopy, it was in want of memory of the last of them. The
// slice is valid until the next walk.
func (w *Walker) Stacks() []Stack { return w.over }

// goOver tries a row that leads below the stack pointer, or out of its mapping, or one of a
// function that may change stacks. reason is what came of the row as one that stays on
// the stack; it is returned if that is so.
func (w *Walker) goOver(row *sframe.Row, how How, top bool, mem *Memory, reason Reason) Reason {
	if how != SFrame && how != EHFrame || w.layout == nil || w.stacks == nil {
		return reason
	}
	stays := w.next
	w.next.anywhere = true
	r := w.next.find(w.arch, &w.set, row, top, mem)
	w.next.anywhere = false
	sp := w.set.R[w.arch.SP&(regs.NumRegs-1)]
	if r != 0 && r != OutsideCopy || row.Switch && w.next.base-sp < sameStack {
		w.next = stays
		return reason
	}
	if len(w.over) >= maxStacks || !w.another(w.next.base, row.Switch) {
		w.next = stays
		if row.Switch && (reason == 0 || reason == OutsideCopy) {
			w.next.fault = w.next.base
			return StackSwitch
		}
		return reason
	}
	w.next.over = true
	return r
}

// another tells whether addr points into another stack than the current one, and
// above where that was left. anywhere: that stack may lie in the same mapping.
func (w *Walker) another(addr uint64, anywhere bool) bool {
	if !w.stacks.Writable(addr) {
		return false
	}
	start, end, ok := w.layout.Mapping(addr)
	if !ok {
		return false
	}
	for _, l := range w.left {
		if l.start == start && l.end == end && addr <= l.high && (!anywhere || addr >= l.low) {
			return false
		}
	}
	sp := w.set.R[w.arch.SP&(regs.NumRegs-1)]
	return sp < start || sp >= end || anywhere && (addr < w.low || addr > sp)
}

// leave notes that the walk goes over to another stack by the address base, from that of the
// last of frames.
func (w *Walker) leave(frames []Frame, base uint64) {
	sp := frames[len(frames)-1].SP
	if w.layout != nil {
		if start, end, ok := w.layout.Mapping(sp); ok {
			w.left = append(w.left, left{start, end, w.low, sp})
		}
	}
	w.over = append(w.over, Stack{Frame: len(frames), Base: base, Word: w.next.savedSP})
	w.low = base
}
