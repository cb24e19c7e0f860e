package unwind

import (
	"slices"

	"sfsample/regs"
)

// Generated code has no tables, unless the program gives its debugger some. Three
// things can be known of it all the same:
//
//   - Code that jumps where other code calls (HotSpot's interpreter, in which a return
//     address is where it is to go on, not what stands behind a call) keeps frame
//     pointers. A return address in generated code that is not behind a call is taken
//     provisionally. It stands if the chain comes to a frame that proves itself, one that
//     a row of a table has led on from or an entry. Else the stack is cut at the first
//     frame that is not proved.
//   - A frame pointer in generated code may be that of a caller: where it has passed over
//     a word that may be a return address there, the stack is cut.
//   - Where no method leads on, the root of the stack can be shown: the first return
//     address further up, in code of an object, from which tables alone lead to an
//     entry, and whose function its caller calls by name. (What calls have left on the
//     stack that have returned leads to a live frame too, but to one that calls another
//     function by now.) One frame stands for what lies between, of which nothing is known.

// Origins is what a Space may know of where code comes from. Without it every
// return address has to be behind a call, and roots behind gaps are not shown.
type Origins interface {
	// Origin tells whether pc lies in executable memory that is of no file or of an
	// object, and whether it is of an object. Mappings are not read anew: words of all kinds are asked about.
	Origin(pc uint64) (code, object bool)
	// Calls tells whether the call in front of ra goes directly to the function that pc
	// lies in.
	Calls(ra, pc uint64) bool
}

// generated: pc lies in code that belongs to no object.
func (w *Walker) generated(pc uint64) bool {
	if w.origins == nil {
		return false
	}
	code, object := w.origins.Origin(pc)
	return code && !object
}

// provisional notes that the frame behind the last of frames, of the return address
// in w.next, is not proved yet.
func (w *Walker) provisional(frames []Frame) {
	if w.doubt.from == 0 || proved(frames[w.doubt.from:]) {
		w.doubt.from, w.doubt.word = len(frames), w.next.pc
	}
}

// proved: a row of a table has led on from one of the frames before the last.
func proved(frames []Frame) bool {
	return slices.ContainsFunc(frames[1:], func(f Frame) bool { return f.How == SFrame || f.How == EHFrame || f.How == ByRuntime })
}

// settle cuts the frames of a walk that has come to its end at the first that is not
// proved, or that was found by a frame pointer of another. e is the entry of the last one.
func (w *Walker) settle(frames []Frame, end End, e *entry, mem *Memory) ([]Frame, End) {
	keep := len(frames)
	if w.doubt.from > 0 && !proved(frames[w.doubt.from:]) && !(end.Reason == Complete && (w.isEntry(e) || e.row != nil && e.row.Outermost)) {
		keep = w.doubt.from
	}
	if n, word := w.passedOver(frames[:keep], mem); n < keep {
		keep, w.doubt.word = n, word
	}
	if keep == len(frames) {
		return frames, end
	}
	w.over = slices.DeleteFunc(w.over, func(s Stack) bool { return s.Frame > keep })
	w.own.frames = slices.DeleteFunc(w.own.frames, func(o Owned) bool { return o.Frame >= keep })
	if end.Reason != OutsideCopy {
		end = End{Reason: NotAfterCall, Addr: w.doubt.word}
	}
	return frames[:keep], end
}

// maxPassed bounds the words of a frame that are looked at, in bytes.
const maxPassed = 64 << 10

// passedOver returns how many frames there are up to the first, in generated code,
// from which a frame pointer has led on over a word that may be a return address in
// such code, and that word. Where the caller is of an object, only one behind a call
// counts: HotSpot's call_stub keeps the address there that it calls.
func (w *Walker) passedOver(frames []Frame, mem *Memory) (n int, word uint64) {
	size := uint64(w.arch.WordBytes)
	for i := 0; i+1 < len(frames); i++ {
		f := &frames[i]
		if frames[i+1].How != FramePointer || !w.generated(f.LookupPC()) || f.Caller && w.lookup(f.PC, true).flags&afterCall == 0 {
			continue
		}
		calls := !w.generated(frames[i+1].LookupPC())
		// The caller's frame begins behind the pair at the frame pointer.
		from, to := f.SP, frames[i+1].SP-2*size
		if to-from > maxPassed {
			return i + 1, frames[i+1].PC
		}
		for addr := from; addr < to; addr += size {
			v, r := mem.word(w.arch, addr)
			v &^= w.arch.PACMask
			if r == 0 && w.generated(v-1) && (!calls || w.lookup(v, true).flags&afterCall != 0) {
				return i + 1, v
			}
		}
	}
	return len(frames), 0
}

const (
	// maxGap is how far up the root of a stack is looked for, in bytes.
	maxGap = 32 << 10
	// maxRoots bounds the return addresses from which a root is looked for.
	maxRoots = 64
)

// root puts the root of a stack that was cut with end behind frames, with a frame between that
// stands for what is missing, if the last of frames is of generated code without a table and
// the root proves itself. A return address tells the stack pointer on x86 alone:
// elsewhere it is saved at any place of a frame.
func (w *Walker) root(frames []Frame, first int, end End, mem *Memory) ([]Frame, End) {
	last := &frames[len(frames)-1]
	switch end.Reason {
	case NoRow, NotCode, NotAfterCall, ZeroReturn, NoProgress, Misaligned, StackSwitch, Unreadable:
	default:
		return frames, end
	}
	if w.arch.Link || !w.generated(last.LookupPC()) || w.tabled(last.LookupPC()) {
		return frames, end
	}
	if w.tables == nil {
		tables := slices.DeleteFunc(slices.Clone(w.order), func(h How) bool { return h != SFrame && h != EHFrame })
		w.tables = New(w.arch, w.space, tables, w.maxDepth)
		w.tables.own.runtime, w.tables.own.leaves = w.own.runtime, w.own.leaves
	}
	t, size := w.tables, uint64(w.arch.WordBytes)
	set := regs.Set{Known: 1 << (w.arch.SP & (regs.NumRegs - 1))}
	for addr, tries := last.SP&^(size-1), 0; addr-last.SP+size < maxGap && tries < maxRoots; addr += size {
		v, r := mem.word(w.arch, addr)
		if r != 0 {
			break
		}
		if code, object := w.origins.Origin(v - 1); !code || !object || !w.tabled(v-1) {
			continue
		}
		t.start()
		if t.lookup(v, true).flags&afterCall == 0 {
			continue
		}
		tries++
		set.PC, set.R[w.arch.SP&(regs.NumRegs-1)] = v, addr+size
		up, upEnd := t.walk(&set, true, mem, w.spare[:0])
		w.spare = up
		if upEnd.Reason != Complete || len(frames)-first+1+len(up) > w.maxDepth || len(up) > 1 && !w.origins.Calls(up[1].PC, v-1) {
			continue
		}
		up[0].How = Gap
		frames = append(append(frames, Frame{SP: addr, How: Gap}), up...)
		return frames, End{Reason: FramesMissing, Addr: end.Addr}
	}
	return frames, end
}

// tabled: a table that the walk may use has a row for pc.
func (w *Walker) tabled(pc uint64) bool {
	for _, h := range w.order {
		if h == SFrame || h == EHFrame {
			if row, err := w.space.Row(pc, h); err == nil && row != nil {
				return true
			}
		}
	}
	return false
}
