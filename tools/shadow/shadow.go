package main

import (
	"slices"

	"sfsample/unwind"
)

// kind is what an instruction does to the stack of return addresses.
type kind uint8

const (
	other kind = iota
	call
	ret
	syscallInsn
	leave // a plain branch out of a function that goes on in another frame than its caller's
)

// entry is one true return address.
type entry struct {
	ret uint64 // where the frame's callee returns to
	sp  uint64 // stack pointer in the frame once it did
	// exact: a signal interrupted the frame at ret, which is no return address.
	exact bool
	// trampoline: a handler returns to ret, the first instruction of a signal
	// trampoline.
	trampoline bool
	// base: taken from the first walk, not from a call that was seen.
	base bool
	// rewritten: the program has put ret in place of the true one.
	rewritten bool
	// moved: the word on the stack was popped into a register, or is saved
	// elsewhere, and not yet returned to (vfork, a coroutine that is resumed).
	moved bool
}

// point is the state around an instruction.
type point struct{ pc, sp uint64 }

// shadow is the true stack of a thread, innermost entry last.
type shadow struct {
	link    bool // a call leaves the return address in a register, not on the stack
	wordLen uint64
	entries []entry
	// needBase: what is below entries is not known yet.
	needBase bool
	// partial: the walk that gave the base was cut.
	partial bool
	// stacks holds the entries of stacks that were switched away from.
	stacks map[uint64]shadowStack
	stack  uint64 // identity of the current one

	// arriving: a stack seen for the first time, not yet returned into. What
	// lies on it is not known, and a walk from the code that makes the switch
	// cannot stand for it.
	arriving bool

	badBase  []uint64 // base entries that a return refuted
	switches int
	// sameStack: both addresses lie on one stack.
	sameStack func(a, b uint64) bool
}

type shadowStack struct {
	entries           []entry
	needBase, partial bool
}

// slot is the address of the word that holds an entry's return address, where
// calls push it.
func (s *shadow) slot(e *entry) uint64 { return e.sp - s.wordLen }

// dead: the stack pointer has left the callee of e behind.
func (s *shadow) dead(e *entry, sp uint64) bool {
	if s.link {
		return sp > e.sp
	}
	return sp > s.slot(e)
}

// step takes one executed instruction. stackOf names the stack that an address
// lies on.
func (s *shadow) step(k kind, from, to point, insnLen uint64, stackOf func(uint64) uint64) {
	if id := stackOf(to.sp); id != s.stack {
		s.change(id, to)
	}
	if k == ret && s.link && to.pc == from.pc+insnLen {
		return // the condition did not hold
	}
	if k == ret || k == leave {
		s.arriving = false
	}
	switch k {
	case call:
		next := from.pc + insnLen
		if to.pc == next {
			break // call of the next instruction: a way to learn the pc
		}
		s.entries = append(s.entries, entry{ret: next, sp: from.sp})
		return
	case ret, leave:
		if n := len(s.entries); n > 0 {
			if top := s.entries[n-1]; top.ret == to.pc && top.sp <= to.sp && !top.exact {
				s.entries = s.entries[:n-1] // also ret n, which drops arguments
				return
			}
			if i := s.find(to); i >= 0 {
				s.entries = s.entries[:i]
				return
			}
		}
	case syscallInsn:
		if n := len(s.entries); n > 0 && s.entries[n-1].exact && s.entries[n-1].sp == to.sp && to.pc == s.entries[n-1].ret {
			s.entries = s.entries[:n-1] // sigreturn
			return
		}
	}
	s.drop(k, from, to, insnLen)
}

// find returns the index of the entry that is exactly where a return went,
// above any signal; -1 if there is none.
func (s *shadow) find(to point) int {
	for i := len(s.entries) - 1; i >= 0 && s.link && !s.entries[i].exact; i-- {
		if s.entries[i].ret == to.pc && s.entries[i].sp == to.sp {
			return i
		}
	}
	return -1
}

// drop removes the entries that the stack pointer has passed.
func (s *shadow) drop(k kind, from, to point, insnLen uint64) {
	for n := len(s.entries); n > 0; n = len(s.entries) {
		e := &s.entries[n-1]
		if e.exact {
			// Left by a jump out of the handler, if at all.
			if to.sp < e.sp || k == syscallInsn || !s.sameStack(e.sp, to.sp) {
				return
			}
			s.entries = s.entries[:n-1]
			continue
		}
		if e.moved {
			switch {
			case to.pc == e.ret:
				s.entries = s.entries[:n-1]
				continue
			case to.sp <= s.slot(e):
				e.moved = false // pushed again
			}
			return
		}
		if !s.dead(e, to.sp) && !(s.link && (k == ret || k == leave) && to.sp == e.sp) {
			// With a link register, frames called from a frame have its stack
			// pointer: only a return says that they are gone.
			return
		}
		if k == other && !s.link && from.sp == s.slot(e) && to.sp == e.sp && to.pc > from.pc && to.pc <= from.pc+2 {
			// pop: the instruction has one or two bytes and goes on behind itself.
			e.moved = true
			return
		}
		if k == ret && e.base && to.sp == e.sp && to.pc != e.ret {
			s.badBase = append(s.badBase, e.ret)
		}
		s.entries = s.entries[:n-1]
	}
}

// change goes over to another stack: back to the one that a signal handler on
// an alternate stack interrupted, or to another coroutine.
func (s *shadow) change(id uint64, to point) {
	defer func() { s.stack = id }()
	for i := len(s.entries) - 1; i >= 0; i-- {
		if e := &s.entries[i]; e.exact && s.sameStack(e.sp, to.sp) {
			if e.ret != to.pc || e.sp != to.sp {
				s.entries = s.entries[:i] // longjmp
			}
			return
		}
	}
	s.switches++
	if s.stacks == nil {
		s.stacks = map[uint64]shadowStack{}
	}
	s.stacks[s.stack] = shadowStack{s.entries, s.needBase, s.partial}
	if next, ok := s.stacks[id]; ok {
		s.entries, s.needBase, s.partial = next.entries, next.needBase, next.partial
		if n := len(s.entries); n > 0 && !s.link && s.entries[n-1].sp == to.sp {
			// The stack pointer is what it is to be behind the return; the
			// return address is to be pushed for that.
			s.entries[n-1].moved = true
		}
		return
	}
	s.entries, s.needBase, s.partial = nil, true, false
	s.arriving = true
}

// signal takes a signal's delivery: the handler runs at to and returns to the
// trampoline.
func (s *shadow) signal(interrupted, to point, trampoline uint64, stackOf func(uint64) uint64) {
	s.entries = append(s.entries, entry{ret: interrupted.pc, sp: interrupted.sp, exact: true})
	sp := to.sp
	if !s.link {
		sp += s.wordLen
	}
	s.entries = append(s.entries, entry{ret: trampoline, sp: sp, trampoline: true})
	s.stack = stackOf(to.sp)
}

// adopt takes the frames of a walk as the base below what was seen.
func (s *shadow) adopt(frames []unwind.Frame, complete bool) {
	if gap := gapIn(frames); gap > 0 {
		frames = frames[:gap]
	}
	s.needBase = false
	s.partial = !complete
	known := len(s.entries)
	if len(frames) <= known+1 {
		s.partial = s.partial || len(frames) < known+1
		return
	}
	var base []entry
	for _, f := range frames[known+1:] {
		base = append(base, entry{ret: f.PC, sp: f.SP, exact: f.How == unwind.Signal,
			trampoline: !f.Caller && f.How != unwind.Signal, base: true})
	}
	slices.Reverse(base)
	s.entries = append(base, s.entries...)
}

// verdict is what a walk is worth.
type verdict uint8

const (
	right verdict = iota
	ahead         // shows the frame that the code is about to jump to, as its table says
	cut
	wrong
	numVerdicts
)

var verdictNames = [numVerdicts]string{"right", "ahead", "cut", "wrong"}

// gapIn is the index of the frame that stands for what is missing, -1 if there is none.
func gapIn(frames []unwind.Frame) int {
	return slices.IndexFunc(frames, func(f unwind.Frame) bool { return f.How == unwind.Gap && f.PC == 0 })
}

// rooted tells whether frames are those of the true stack that lie inside of the outermost ones, of which there are from.
func (s *shadow) rooted(frames []unwind.Frame, from int) bool {
	for i, f := range slices.Backward(frames) {
		if s.entries[from+len(frames)-1-i].ret != f.PC {
			return false
		}
	}
	return true
}

// judge compares a walk with the true stack. at is the frame from which the
// walk went wrong, or at which it was cut. What stands behind a gap has to be the root of the true stack.
func (s *shadow) judge(frames []unwind.Frame, complete bool) (v verdict, at int) {
	n := len(s.entries)
	if gap := gapIn(frames); gap > 0 {
		if v, at = s.judge(frames[:gap], false); v == wrong {
			return v, at
		}
		root := frames[gap+1:]
		if !s.partial && gap-1+len(root) > n {
			return wrong, gap
		}
		for from := 0; from+len(root) <= n; from++ {
			if s.rooted(root, from) {
				return cut, gap - 1
			}
			if !s.partial {
				break
			}
		}
		if s.partial && len(root) > n {
			return cut, gap - 1 // beyond what is known
		}
		return wrong, gap
	}
	for i := 1; i < len(frames); i++ {
		if i > n {
			if s.partial {
				break // beyond what is known
			}
			return wrong, i - 1
		}
		e := &s.entries[n-i]
		if frames[i].PC != e.ret || frames[i].Caller == (e.exact || e.trampoline) {
			return wrong, i - 1
		}
	}
	switch {
	case len(frames) >= n+1 && (complete || s.partial):
		return right, 0
	case complete:
		return wrong, len(frames) - 1 // says complete, and is not
	}
	return cut, len(frames) - 1
}
