package unwind

import (
	"errors"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
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
//   - Where no method leads on, there and in the code of compilers that write no tables, the
//     root of the stack can be shown: from a return address further up, in code of an object,
//     tables alone lead to an entry, and each frame's function is the one that its caller calls.
//     (What calls have left on the stack that have returned leads to a live frame too, but to
//     one that calls another function by now.) What a caller calls by a register proves
//     nothing: such a root begins above it. One frame stands for what lies between, of which
//     nothing is known.

// Origins is what a Space may know of where code comes from. Without it every
// return address has to be behind a call, and roots behind gaps are not shown.
type Origins interface {
	// Origin tells whether pc lies in executable memory that is of no file or of an
	// object, and whether it is of an object. Mappings are not read anew: words of all kinds are asked about.
	Origin(pc uint64) (code, object bool)
	// Calls tells whether the call in front of ra goes to the function that pc lies in. known: the code tells where it goes.
	Calls(ra, pc uint64) (calls, known bool)
}

// generated: pc lies in code that belongs to no object.
func (p *process) generated(pc uint64) bool {
	if p.origins == nil {
		return false
	}
	code, object := p.origins.Origin(pc)
	return code && !object
}

// doubt is of the first frame that is provisional: its index, and the return address that led there. 0: there is none, or a later one has
// proved it.
type doubt struct {
	from int
	word uint64
}

// note notes that the frame behind the last of frames, of a return address, is not proved yet.
func (d *doubt) note(frames []Frame, ra uint64) {
	if d.from == 0 || proved(frames[d.from:]) {
		d.from, d.word = len(frames), ra
	}
}

// proved: a row of a table has led on from one of the frames before the last.
func proved(frames []Frame) bool {
	return slices.ContainsFunc(frames[1:], func(f Frame) bool { return f.How == SFrame || f.How == EHFrame || f.How == ByRuntime })
}

// settle cuts the frames of a walk that has come to its end at the first that is not
// proved, or that was found by a frame pointer of another. e is the entry of the last one.
func (w *walk) settle(frames []Frame, end End, e *entry, mem *Memory) ([]Frame, End) {
	keep := len(frames)
	if w.doubt.from > 0 && !proved(frames[w.doubt.from:]) && !(end.Reason == Complete && (w.code.isEntry(e) || e.row != nil && e.row.Outermost)) {
		keep = w.doubt.from
	}
	if n, word := w.code.passedOver(frames[:keep], mem); n < keep {
		keep, w.doubt.word = n, word
	}
	if keep == len(frames) {
		return frames, end
	}
	w.switches.over = slices.DeleteFunc(w.switches.over, func(s Stack) bool { return s.Frame > keep })
	w.owned = slices.DeleteFunc(w.owned, func(o Owned) bool { return o.Frame >= keep })
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
func (c *knownCode) passedOver(frames []Frame, mem *Memory) (n int, word uint64) {
	size := uint64(c.proc.arch.WordBytes)
	for i := 0; i+1 < len(frames); i++ {
		f := &frames[i]
		if frames[i+1].How != FramePointer || !c.proc.generated(f.LookupPC()) || f.Caller && c.lookup(f.PC, true).flags&afterCall == 0 {
			continue
		}
		calls := !c.proc.generated(frames[i+1].LookupPC())
		// The caller's frame begins behind the pair at the frame pointer.
		from, to := f.SP, frames[i+1].SP-2*size
		if to-from > maxPassed {
			return i + 1, frames[i+1].PC
		}
		for addr := from; addr < to; addr += size {
			v, r := mem.word(c.proc.arch, addr)
			v &^= c.proc.arch.PACMask
			if r == 0 && c.proc.generated(v-1) && (!calls || c.lookup(v, true).flags&afterCall != 0) {
				return i + 1, v
			}
		}
	}
	return len(frames), 0
}

// overCall: on the stack between from and to, a stack pointer and the pair to which the frame pointer has led, there is a word that may be a
// return address in generated code.
func (c *knownCode) overCall(from, to uint64, mem *Memory) bool {
	size := uint64(c.proc.arch.WordBytes)
	if to-from > maxSearch*size {
		return false
	}
	for addr := from; addr < to; addr += size {
		v, r := mem.word(c.proc.arch, addr)
		if v &^= c.proc.arch.PACMask; r == 0 && c.proc.generated(v-1) && c.lookup(v, true).flags&afterCall != 0 {
			return true
		}
	}
	return false
}

// maxStarts bounds the words that one search takes for where a function begins.
const maxStarts = 32

// byRegister returns the row of the generated code at the walk's place, if the call in front of ra, which lies at addr, is through a register that calls preserve, and this
// has led there: what the frame has saved of that register is where its function begins, and from there the code leads to the place with a frame
// that has that word in that slot, and the return address at addr. (Mono calls each program's Main so.) left words may be tried yet.
func (w *walk) byRegister(ra, addr uint64, left int, mem *Memory) (*sframe.Row, int) {
	if w.proc.conv.calls == nil || left == 0 || !w.proc.generated(w.set.PC) || !w.proc.generated(ra-1) {
		return nil, left
	}
	var b [3]byte
	if w.proc.space.Code(ra-3, b[:]) < len(b) {
		return nil, left
	}
	reg, ok := w.proc.conv.calls(b)
	if !ok {
		return nil, left
	}
	size := uint64(w.arch.WordBytes)
	starts := func(start uint64, in func(row *sframe.Row) bool) *sframe.Row {
		if left == 0 || start == 0 || !w.proc.generated(start) {
			return nil
		}
		left--
		if row, err := w.proc.follower.Called(ra, start, w.set.PC); err == nil && in(row) {
			return row
		}
		return nil
	}
	if w.set.Known>>reg&1 != 0 {
		if row := starts(w.set.R[reg], func(row *sframe.Row) bool { return row.Keep>>reg&1 != 0 }); row != nil {
			return row, left
		}
	}
	for slot := w.set.R[w.arch.SP&(regs.NumRegs-1)]; slot < addr; slot += size {
		start, r := mem.word(w.arch, slot)
		if r != 0 {
			break
		}
		saved := sframe.SavedRule{Reg: reg, Rule: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: int32(slot - addr - size)}}
		if row := starts(start, func(row *sframe.Row) bool { return slices.Contains(row.Saved, saved) }); row != nil {
			return row, left
		}
	}
	return nil, left
}

const (
	// maxGap is how far up the root of a stack is looked for, in bytes.
	maxGap = 32 << 10
	// maxRoots bounds the return addresses from which a root is looked for.
	maxRoots = 256
)

// root puts the root of a stack that was cut with end behind frames, with a frame between that
// stands for what is missing, if the last of frames is of code without a table (generated, or a compiler's that writes none) and
// the root proves itself. A return address tells the stack pointer on x86 alone:
// elsewhere it is saved at any place of a frame.
func (w *Walker) root(frames []Frame, first int, end End, mem *Memory) ([]Frame, End) {
	last, p := &frames[len(frames)-1], w.main.proc
	switch end.Reason {
	case NoRow, NotCode, NotAfterCall, ZeroReturn, NoProgress, Misaligned, StackSwitch, Unreadable:
	default:
		return frames, end
	}
	if p.arch.Link || p.origins == nil || w.main.code.tabled(last.LookupPC()) {
		return frames, end
	}
	if code, _ := p.origins.Origin(last.LookupPC()); !code {
		return frames, end
	}
	if w.tables == nil {
		order := slices.DeleteFunc(slices.Clone(w.main.code.order), func(h How) bool { return h != SFrame && h != EHFrame })
		w.tables = newWalk(p, order, w.main.maxDepth)
	}
	t, size := w.tables, uint64(p.arch.WordBytes)
	set := regs.Set{Known: 1 << (p.arch.SP & (regs.NumRegs - 1))}
	var live []Frame
	found := uint64(0) // the address of the word that has led there
	for addr, tries := last.SP&^(size-1), 0; addr-last.SP+size < maxGap && tries < maxRoots; addr += size {
		v, r := mem.word(p.arch, addr)
		if r != 0 {
			if live == nil {
				end.Lacks = addr
			}
			break
		}
		if code, object := p.origins.Origin(v - 1); !code || !object || slices.ContainsFunc(live, func(f Frame) bool { return f.SP == addr+size }) || !w.main.code.tabled(v-1) {
			continue
		}
		t.code.refresh()
		if t.code.lookup(v, true).flags&afterCall == 0 {
			continue
		}
		tries++
		set.PC, set.R[p.arch.SP&(regs.NumRegs-1)] = v, addr+size
		up, upEnd := t.run(&set, true, mem, w.spare[:0])
		w.spare = up
		if upEnd.Reason != Complete || len(frames)-first+1+len(up) > w.main.maxDepth {
			continue
		}
		if live != nil {
			live = apart(live, up)
			continue
		}
		if e := t.code.lookup(up[len(up)-1].PC, true); !t.code.isEntry(e) && (e.row == nil || !e.row.Outermost) && !p.ends(up) {
			continue // zeros are no root
		}
		if live = p.live(up); live != nil {
			live, found = slices.Clone(live), addr
		}
	}
	if len(live) == 0 {
		return frames, end
	}
	frames = append(append(frames, Frame{SP: found, How: Gap}), live...)
	frames[len(frames)-len(live)].How = Gap
	return frames, End{Reason: FramesMissing, Addr: end.Addr}
}

// apart returns what is certain of the frames of a root, after another word further up has led to up. Where that is a frame called from the same one as
// one of the root's is, both may be what has called on from there, and one has returned: another call may leave its return address elsewhere, with arguments
// above it.
func apart(live, up []Frame) []Frame {
	if len(up) < 2 {
		return live
	}
	for i := range live {
		if i > 0 && live[i].SP == up[1].SP && live[i].PC == up[1].PC && (live[i-1].PC != up[0].PC || live[i-1].SP != up[0].SP) {
			return live[i:]
		}
	}
	return live
}

// live returns the frames of a stack found by its tables from a word on that are of now, nil if that word is of a call that has returned.
func (p *process) live(up []Frame) []Frame {
	from := 0
	for i := range up[1:] {
		calls, known := p.origins.Calls(up[i+1].PC, up[i].LookupPC())
		switch {
		case known && !calls:
			return nil
		case !known && !p.base(up[i:]):
			from = i + 1
		}
	}
	return up[from:]
}

// base: the caller of the first frame calls nothing else by a register, as it is the entry, or called by that and of another object: a thread's
// start, or that of main (glibc's is in two functions).
func (p *process) base(up []Frame) bool {
	entry := func(i int) bool { return i < len(up) && p.space.Entry(up[i].LookupPC()) }
	switch {
	case entry(1):
		return true
	case p.together(up[0].PC, up[1].PC): // where goroutines and coroutines begin, whatever their function calls
		return false
	case entry(2):
		return true
	}
	return entry(3) && p.together(up[1].PC, up[2].PC) && !p.together(up[2].PC, up[3].PC)
}

// together: two addresses lie in one mapping.
func (p *process) together(a, b uint64) bool {
	if p.layout == nil {
		return false
	}
	start, end, ok := p.layout.Mapping(a)
	return ok && start <= b && b < end
}

// nearEnd is how far from the end of its mapping the outermost frame of a stack lies at most that is known by that.
const nearEnd = 1 << 10

// ends: a walk has come to where its stack's mapping ends (Valgrind begins its own stacks with a return address of zero there).
func (p *process) ends(up []Frame) bool {
	if p.layout == nil || len(up) < 2 {
		return false
	}
	sp := up[len(up)-1].SP
	_, end, ok := p.layout.Mapping(sp)
	return ok && end-sp <= nearEnd
}

// tabled: a table that the walk may use has a row for pc, or knows why there is none.
func (c *knownCode) tabled(pc uint64) bool {
	for _, h := range c.order {
		if h == SFrame || h == EHFrame {
			if row, err := c.proc.space.Row(pc, h); row != nil || err != nil && !errors.Is(err, sframe.ErrNoRow) {
				return true
			}
		}
	}
	return false
}
