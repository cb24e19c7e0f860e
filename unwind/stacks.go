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

// switches are the changes of stacks in a walk.
type switches struct {
	left []left  // stacks that the walk has been on
	over []Stack // those that it went over to
	low  uint64  // lowest stack pointer of the current one
}

// begin begins a walk at a stack pointer.
func (s *switches) begin(sp uint64) { s.left, s.over, s.low = s.left[:0], s.over[:0], sp }

// Stacks returns the stacks that the last Walk went over to, innermost first. If it ended
// with OutsideCopy, it was in want of memory of the last of them. The
// slice is valid until the next walk.
func (w *Walker) Stacks() []Stack { return w.main.switches.over }

// goOver tries a row that leads below the stack pointer, or out of its mapping, or one of a
// function that may change stacks. reason is what came of the row as one that stays on
// the stack; it is returned if that is so.
func (w *walk) goOver(row *sframe.Row, how How, top bool, mem *Memory, reason Reason) Reason {
	if how != SFrame && how != EHFrame || w.proc.layout == nil || w.proc.stacks == nil {
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
	if !w.switches.may(w.proc, sp, w.next.base, row.Switch) {
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

// may tells whether a walk may go over to another stack, from the stack pointer sp: addr points into one, above where that was left.
// anywhere: it may lie in the same mapping.
func (s *switches) may(p *process, sp, addr uint64, anywhere bool) bool {
	if p.layout == nil || p.stacks == nil || len(s.over) >= maxStacks || !p.stacks.Writable(addr) {
		return false
	}
	start, end, ok := p.layout.Mapping(addr)
	if !ok {
		return false
	}
	for _, l := range s.left {
		if l.start == start && l.end == end && addr <= l.high && (!anywhere || addr >= l.low) {
			return false
		}
	}
	return sp < start || sp >= end || anywhere && (addr < s.low || addr > sp)
}

// leave notes that the walk goes over to another stack by the address base, loaded from the word at word, from that of the
// last of frames.
func (s *switches) leave(p *process, frames []Frame, base, word uint64) {
	sp := frames[len(frames)-1].SP
	if p.layout != nil {
		if start, end, ok := p.layout.Mapping(sp); ok {
			s.left = append(s.left, left{start, end, s.low, sp})
		}
	}
	s.over = append(s.over, Stack{Frame: len(frames), Base: base, Word: word})
	s.low = base
}
