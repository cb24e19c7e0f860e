package unwind

import (
	"sfsample/regs"
	"sfsample/sframe"
)

// Answer is what one method says of a frame's caller.
type Answer struct {
	How How
	PC  uint64 // return address
	SP  uint64 // the caller's stack pointer
	FP  uint64 // the caller's frame pointer, if FPKnown
	// FPKnown is clear where the method lost the frame pointer; a difference
	// in FP alone counts only where both know it.
	FPKnown bool
	// Reason why there is no caller: Outermost, or the check that failed. 0
	// where the other fields hold.
	Reason Reason
}

// Difference is a frame whose caller two methods see differently.
type Difference struct {
	Frame Frame // whose rows differ
	Depth int   // of the frame: 0 is the innermost
	A, B  Answer
}

// Verify walks a stack as Walk does and asks at each frame each pair of
// methods of the order that have a row there for the caller. It calls yield for
// each pair that differs. It is slow: the cache serves the walk alone.
//
// FramePointer and BackChain take no part where a table has an answer: they are
// conventions that code need not keep, and a difference says nothing of the table.
func (w *Walker) Verify(set *regs.Set, mem *Memory, yield func(Difference)) End {
	s := *set
	frame := Frame{PC: s.PC, SP: s.R[w.arch.SP&(regs.NumRegs-1)], How: Regs}
	w.start()
	w.linked = nil
	limit := w.limit(&s)
	for depth := range w.maxDepth {
		top := !frame.Caller
		w.next.limit = limit
		w.set, w.late, w.called = s, w.late[:0], false
		e := w.lookup(s.PC, frame.Caller)
		if e.flags&(isTrampoline|isCode) == isCode {
			w.compare(&s, e, frame, depth, top, mem, yield)
		}
		w.next.limit = limit
		if frame.How != BackChain {
			w.linked = nil
		}
		row, how, fallback, reason := w.step(e, top, mem)
		if reason != 0 {
			return w.end(reason, e)
		}
		w.linked = row
		w.next.commit(w.arch, &s, row, mem)
		if row.Signal {
			how = Signal
		}
		if row.Signal || w.next.sp > limit || w.next.sp < frame.SP {
			limit = w.limit(&s) // of another stack
		}
		frame = Frame{PC: s.PC, SP: w.next.sp, Caller: !row.Signal, How: how, Fallback: fallback}
	}
	return End{Reason: DepthLimit}
}

// compare asks all methods of the order for the caller of frame.
func (w *Walker) compare(s *regs.Set, e *entry, frame Frame, depth int, top bool, mem *Memory, yield func(Difference)) {
	var answers [numHow]Answer
	n := 0
	tables := false
	for _, h := range w.order {
		if tables && h != SFrame && h != EHFrame {
			continue
		}
		w.window.read(w.space, s.PC)
		row, ok := w.methodRow(h, frame.LookupPC(), top)
		if ok && row == nil {
			row, _ = w.chain(e, top, mem)
		}
		if row == nil || n == len(answers) {
			continue
		}
		tables = tables || h == SFrame || h == EHFrame
		answers[n] = w.answer(h, s, row, top, mem)
		for _, a := range answers[:n] {
			if a.differs(&answers[n]) {
				yield(Difference{Frame: frame, Depth: depth, A: a, B: answers[n]})
			}
		}
		n++
	}
}

func (w *Walker) answer(h How, s *regs.Set, row *sframe.Row, top bool, mem *Memory) Answer {
	a := Answer{How: h, Reason: w.next.find(w.arch, s, row, top, mem)}
	if a.Reason == 0 {
		a.PC, a.SP, a.FP, a.FPKnown = w.next.pc, w.next.sp, w.next.fp, w.next.fpKnown
		if !row.Signal && !w.space.Executable(a.PC-1) && !w.space.Executable(a.PC) {
			a.Reason = NotCode
		}
	}
	return a
}

func (a *Answer) differs(b *Answer) bool {
	if a.Reason != 0 || b.Reason != 0 {
		return a.Reason != b.Reason
	}
	return a.PC != b.PC || a.SP != b.SP || a.FPKnown && b.FPKnown && a.FP != b.FP
}
