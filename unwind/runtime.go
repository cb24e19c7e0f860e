package unwind

import "sfsample/regs"

// A runtime may know the callers of code that it has generated, or of code of an object that has no table, better than any convention. Its
// answer may need what a row cannot say: a stack pointer that lies in memory, a return address in a register, another stack.
// It is checked as that of a row: the caller is in code, behind a call where that is not the runtime's own, and higher up on the same stack,
// or on another that may be one.

// Runtime knows the callers of its code.
type Runtime interface {
	// Owns: pc is in code of which Caller may be asked. The answer holds as long as the generation of the Space.
	Owns(pc uint64) bool
	// Caller sets to, which is empty, to the registers of the caller of a frame in such code: PC, SP and what else is known.
	// from are those of the frame, top as in [Step]. It leads on only where that is proven. NoRow: it cannot tell,
	// and other methods may try; Outermost: there is no caller; any other reason ends the walk. addr is what that is about: with OutsideCopy the
	// address that was wanted.
	Caller(from *regs.Set, top bool, mem *Memory, to *regs.Set) (r Reason, addr uint64)
}

// A starter is a Runtime that is told when a walk begins: what it keeps of a walk ends there.
type starter interface{ Start() }

// Owned is a frame of a runtime's code.
type Owned struct {
	Frame int  // index among the frames of the walk
	Top   bool // as in [Step]
	Set   regs.Set
}

// SetRuntime has r asked for the callers of its code. leaves: they all lie on other stacks.
func (w *Walker) SetRuntime(r Runtime, leaves bool) {
	w.second, w.tables = nil, nil
	o := own{runtime: r, leaves: leaves}
	o.starter, _ = r.(starter)
	w.main.proc.own = o
	w.main.code.cache.clear()
}

// Owned returns the frames of the last Walk that are of the runtime's code, innermost first. The slice is valid until the next
// walk.
func (w *Walker) Owned() []Owned { return w.main.owned }

// ask takes the walk from the frame of e, the last of frames, to the caller that the runtime knows. ok is false if it does not.
func (w *walk) ask(e *entry, mem *Memory, frames []Frame) (to *entry, reason Reason, ok bool) {
	w.catchUp(mem)
	s, top, leaves := &w.set, !w.came.caller, w.proc.own.leaves
	old := s.R[w.arch.SP&(regs.NumRegs-1)]
	w.owned = append(w.owned, Owned{len(frames) - 1, top, *s})
	var up regs.Set
	switch reason, w.next.fault = w.proc.own.runtime.Caller(s, top, mem, &up); {
	case reason == NoRow:
		if leaves { // a row leads on as well
			w.owned = w.owned[:len(w.owned)-1]
		}
		return nil, 0, false
	case reason != 0:
		if reason == OutsideCopy && leaves && w.switches.may(w.proc, old, w.next.fault, true) {
			w.switches.leave(w.proc, frames, w.next.fault, 0)
		}
		return nil, reason, true
	case len(frames) >= w.maxDepth:
		return nil, DepthLimit, true
	}
	up.PC &^= w.arch.PACMask
	sp, known := up.Reg(w.arch.SP)
	w.next.fault = sp
	switch {
	case !known:
		return nil, UnknownRegister, true
	case sp&uint64(w.arch.WordBytes-1) != 0:
		return nil, Misaligned, true
	case leaves, sp > w.next.limit, sp < old, sp == old && !top:
		if !w.switches.may(w.proc, old, sp, true) {
			return nil, NoProgress, true
		}
		w.switches.leave(w.proc, frames, sp, 0)
	}
	w.next.fault = up.PC
	switch to = w.code.lookup(up.PC, true); {
	case to.flags&isCode == 0:
		return nil, NotCode, true
	case to.flags&(isOwned|afterCall|isTrampoline) == 0 && !w.code.isEntry(to):
		return nil, NotAfterCall, true
	}
	w.set, w.linked, w.came = up, nil, came{found: ByRuntime, caller: true}
	w.next.limit = w.proc.limit(&w.set)
	return to, 0, true
}
