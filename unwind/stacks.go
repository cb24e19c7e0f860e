package unwind

import (
	"sfsample/regs"
	"sfsample/sframe"
)

// A caller may lie on another stack: behind libgcc's __morestack, which goes on
// in another segment (-fsplit-stack), where C is called from a language with stacks of
// its own (Go's asmcgocall and systemstack, SBCL), behind swapcontext. A row of
// a table says so, never a mere convention. The new stack pointer has to point
// into another mapping that can be written, to a frame that a call has left.
// Progress counts on each stack by itself: back on one that was left, the stack
// pointer has to be above where it was then (cgo alternates between two). So a
// walk ends, and maxStacks bounds how often it may go over.

// maxStacks bounds the changes of stacks in one walk.
const maxStacks = 64

// Stacks is what a Space may know besides: without it no walk goes over to another
// stack but by a signal frame.
type Stacks interface {
	// Writable: addr lies in a mapping that can be read and written.
	Writable(addr uint64) bool
}

// Stack is a stack that a walk went over to.
type Stack struct {
	Frame int    // index of the first frame there, among those of the walk
	SP    uint64 // its stack pointer
}

// left is a stack that the walk has been on.
type left struct {
	start, end uint64 // of its mapping
	high       uint64 // highest stack pointer there
}

// Stacks returns the stacks that the last Walk went over to, apart from those
// behind signal frames: for whoever copies them next time. It is valid until the
// next walk.
func (w *Walker) Stacks() []Stack { return w.over }

// goOver tries a row that leads below the stack pointer, or out of its mapping:
// reason says which. It returns the reason if that is no change of stacks.
func (w *Walker) goOver(row *sframe.Row, how How, top bool, mem *Memory, reason Reason) Reason {
	if how != SFrame && how != EHFrame || w.layout == nil || w.stacks == nil || len(w.over) >= maxStacks {
		return reason
	}
	failed := w.next
	w.next.anywhere = true
	r := w.next.find(w.arch, &w.set, row, top, mem)
	w.next.anywhere = false
	to := w.next.sp
	if r == OutsideCopy {
		to = w.next.cfa // what has to be read first
	}
	if r != 0 && r != OutsideCopy || !w.another(to) {
		w.next = failed
		return reason
	}
	w.next.over = r == 0
	return r
}

// another tells whether sp points into another stack than the current one, and
// above where that was left.
func (w *Walker) another(sp uint64) bool {
	start, end, ok := w.layout.Mapping(sp)
	old := w.set.R[w.arch.SP&(regs.NumRegs-1)]
	if !ok || old >= start && old < end || !w.stacks.Writable(sp) {
		return false
	}
	for _, l := range w.left {
		if l.start == start && l.end == end && sp <= l.high {
			return false
		}
	}
	return true
}

// leave notes that the walk goes over to another stack, from that of frame.
func (w *Walker) leave(frames []Frame) {
	sp := frames[len(frames)-1].SP
	start, end, _ := w.layout.Mapping(sp)
	w.over = append(w.over, Stack{Frame: len(frames), SP: w.next.sp})
	for i := range w.left {
		if l := &w.left[i]; l.start == start && l.end == end {
			l.high = sp
			return
		}
	}
	w.left = append(w.left, left{start, end, sp})
}
