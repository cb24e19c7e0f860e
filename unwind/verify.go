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
// each pair that differs. It is slow: the cache serves the walk alone, and each
// step makes every check.
//
// FramePointer and BackChain take no part where a table has an answer: they are
// conventions that code need not keep, and a difference says nothing of the table.
func (w *Walker) Verify(set *regs.Set, mem *Memory, yield func(Difference)) End {
	frames, walk := w.spare[:0], w.main
	e := walk.begin(set, false)
	for {
		frames = append(frames, Frame{})
		walk.here(e, &frames[len(frames)-1])
		w.spare = frames
		if e.flags&(isTrampoline|isCode) == isCode {
			walk.compare(e, frames, mem, yield)
		}
		to, reason := walk.advance(e, mem, frames)
		if reason != 0 {
			return walk.end(reason, e)
		}
		e = to
	}
}

// compare asks all methods of the order for the caller of the last of frames.
func (w *walk) compare(e *entry, frames []Frame, mem *Memory, yield func(Difference)) {
	keep := w.next
	frame, top := frames[len(frames)-1], !w.came.caller
	var answers [numHow]Answer
	n := 0
	tables := false
	for _, h := range w.code.order {
		if tables && h != SFrame && h != EHFrame {
			continue
		}
		w.code.window.read(w.proc.space, frame.PC)
		w.code.unread = false // each method by itself
		row, ok := w.code.methodRow(h, frame.LookupPC(), top)
		if ok && row == nil {
			row, _ = w.chain(e, top, mem)
		}
		if row == nil || n == len(answers) {
			continue
		}
		tables = tables || h == SFrame || h == EHFrame
		answers[n] = w.answer(h, row, top, mem)
		for _, a := range answers[:n] {
			if a.differs(&answers[n]) {
				yield(Difference{Frame: frame, Depth: len(frames) - 1, A: a, B: answers[n]})
			}
		}
		n++
	}
	w.next = keep
}

func (w *walk) answer(h How, row *sframe.Row, top bool, mem *Memory) Answer {
	a := Answer{How: h, Reason: w.next.find(w.arch, &w.set, row, top, mem)}
	if a.Reason == 0 {
		a.PC, a.SP, a.FP, a.FPKnown = w.next.pc, w.next.sp, w.next.fp, w.next.fpKnown
		if !row.Signal && !w.proc.space.Executable(a.PC-1) && !w.proc.space.Executable(a.PC) {
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
