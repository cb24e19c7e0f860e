package unwind

import (
	"bytes"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
)

// DefaultOrder is the order of methods of a walk for which none was chosen.
//
// Code stands before FramePointer: what it says follows from the instructions,
// while a frame pointer may be none, or that of a caller.
var DefaultOrder = []How{SFrame, EHFrame, Code, FramePointer, BackChain}

// DefaultMaxDepth is the number of frames after which a walk is cut for which
// no other was chosen.
const DefaultMaxDepth = 512

// Walker walks the stacks of one process. It is used by one goroutine at a time.
type Walker struct {
	main   *walk
	second *walk   // with .eh_frame before .sframe; made when first needed
	tables *walk   // by tables alone; made when first needed
	spare  []Frame // frames of their walks
}

// process is what walks ask: of the process, and of its architecture.
type process struct {
	arch     *regs.Arch
	conv     *convention
	space    Space
	layout   Layout   // nil if space has none
	follower Follower // nil if space has none
	stacks   Stacks   // nil if space has none
	origins  Origins  // nil if space has none
	own      own
}

// walk follows one stack at a time by the methods of one order.
type walk struct {
	arch     *regs.Arch
	proc     *process
	code     knownCode
	maxDepth int

	set  regs.Set // of the frame that the walk stands at
	next next
	to   *entry // of the caller that was computed last

	came     came // how the walk came to the frame that it stands at
	late     []lateRow
	called   bool        // the walk ends at an innermost frame that is an entry, but was called
	linked   *sframe.Row // that led to the frame, if the back chain did
	switches switches
	doubt    doubt
	owned    []Owned // frames of the walk that are of the runtime's code
}

// own is what belongs to a runtime: nil, if the process has none. leaves: its callers all lie on other stacks.
type own struct {
	runtime Runtime
	starter starter
	leaves  bool
}

// came is how a walk came to a frame.
type came struct {
	found    How
	caller   bool // from the frame that it has called, not from a signal
	fallback bool
}

// New returns a walker for stacks of architecture a in space. order lists the
// methods to try for each frame; maxDepth bounds the number of frames. nil and 0
// stand for the defaults. Whether order makes sense on a, [CheckOrder] says.
func New(a *regs.Arch, space Space, order []How, maxDepth int) *Walker {
	if order == nil {
		order = DefaultOrder
	}
	if maxDepth <= 0 {
		maxDepth = DefaultMaxDepth
	}
	p := &process{arch: a, space: space, conv: conventions[a.Name]}
	if p.conv == nil {
		p.conv = &convention{}
	}
	p.layout, _ = space.(Layout)
	p.follower, _ = space.(Follower)
	p.stacks, _ = space.(Stacks)
	p.origins, _ = space.(Origins)
	return &Walker{main: newWalk(p, slices.Clone(order), maxDepth)}
}

func newWalk(p *process, order []How, maxDepth int) *walk {
	return &walk{arch: p.arch, proc: p, code: knownCode{proc: p, order: order}, maxDepth: maxDepth}
}

// Walk appends the frames of a stack to frames, innermost first, and returns
// them with the way in which the stack ended. set is not changed. The frame
// with the registers' own PC is always there.
func (w *Walker) Walk(set *regs.Set, mem *Memory, frames []Frame) ([]Frame, End) {
	return w.from(set, false, mem, frames)
}

// WalkCaller is Walk for a stack whose innermost frame waits for a call to return of which nothing is left on the stack: the registers'
// PC is a return address, as that of a goroutine that is parked.
func (w *Walker) WalkCaller(set *regs.Set, mem *Memory, frames []Frame) ([]Frame, End) {
	return w.from(set, true, mem, frames)
}

func (w *Walker) from(set *regs.Set, caller bool, mem *Memory, frames []Frame) ([]Frame, End) {
	first := len(frames)
	frames, end := w.repeated(set, caller, mem, frames)
	return w.root(frames, first, end, mem)
}

// repeated walks, and once more in another order if that may lead further.
func (w *Walker) repeated(set *regs.Set, caller bool, mem *Memory, frames []Frame) ([]Frame, End) {
	first := len(frames)
	frames, end := w.main.run(set, caller, mem, frames)
	if end.Reason == Complete || end.Reason == DepthLimit || !worthRepeating(w.main.code.order, frames[first:]) {
		return frames, end
	}
	// SFrame recovers no register but SP and FP, and some assemblers wrote
	// wrong rows: .eh_frame may lead further.
	other, otherEnd := w.secondWalk().run(set, caller, mem, w.spare[:0])
	w.spare = other
	if otherEnd.Reason == Complete || len(other) > len(frames)-first {
		otherEnd.Repeated = true
		w.main.switches.over = append(w.main.switches.over[:0], w.second.switches.over...)
		w.main.owned = append(w.main.owned[:0], w.second.owned...)
		return append(frames[:first], other...), otherEnd
	}
	return frames, end
}

// secondWalk is w.second, made if it is not there yet.
func (w *Walker) secondWalk() *walk {
	if w.second == nil {
		w.second = newWalk(w.main.proc, ehFrameFirst(w.main.code.order), w.main.maxDepth)
	}
	return w.second
}

// worthRepeating: the frames took rows of .sframe, and the order has .eh_frame
// after it.
func worthRepeating(order []How, frames []Frame) bool {
	sf, eh := -1, -1
	for i, h := range order {
		switch h {
		case SFrame:
			sf = i
		case EHFrame:
			eh = i
		}
	}
	if sf < 0 || eh < sf {
		return false
	}
	for i := range frames {
		if frames[i].How == SFrame {
			return true
		}
	}
	return false
}

// ehFrameFirst returns order with EHFrame moved to the front.
func ehFrameFirst(order []How) []How {
	out := []How{EHFrame}
	for _, h := range order {
		if h != EHFrame {
			out = append(out, h)
		}
	}
	return out
}

// run is [Walker.Walk] without the repetition. caller: it begins at a frame that has called
// another one.
func (w *walk) run(set *regs.Set, caller bool, mem *Memory, frames []Frame) ([]Frame, End) {
	first := len(frames)
	e := w.begin(set, caller)
	s := &w.set
	for {
		frames = slices.Grow(frames, 1)[:len(frames)+1]
		w.here(e, &frames[len(frames)-1])

		// advance, for nearly all frames: a row with a short form, and a return
		// address that was met before.
		if e.flags&isPlain != 0 && w.next.findPlain(w.arch, s, &e.plain, !w.came.caller, mem) && len(frames)-first < w.maxDepth {
			to := w.code.cache.caller(e, w.next.pc)
			if to != nil && (to.flags&afterCall != 0 || e.how != FramePointer && e.how != Code) {
				w.late = append(w.late, lateRow{w.next.cfa, e.num})
				w.next.enter(w.arch, s, s.Known)
				w.came = came{e.how, true, false}
				e = to
				continue
			}
		}

		to, reason := w.advance(e, mem, frames[first:])
		if reason != 0 {
			all, end := w.settle(frames[first:], w.end(reason, e), e, mem)
			return frames[:first+len(all)], end
		}
		e = to
	}
}

// begin sets the walk to its first frame, whose entry it returns.
func (w *walk) begin(set *regs.Set, caller bool) *entry {
	w.code.refresh()
	w.late, w.called, w.linked, w.came = w.late[:0], false, nil, came{caller: caller}
	w.switches.begin(set.R[w.arch.SP&(regs.NumRegs-1)])
	w.doubt.from, w.owned = 0, w.owned[:0]
	w.set = *set
	w.next.limit = w.proc.limit(&w.set)
	if w.proc.own.starter != nil {
		w.proc.own.starter.Start()
	}
	return w.code.lookup(set.PC, caller)
}

// here makes f the frame that the walk stands at, that of e.
func (w *walk) here(e *entry, f *Frame) {
	// Field by field: a Frame put together and copied is slower.
	f.PC, f.SP = w.set.PC, w.set.R[w.arch.SP&(regs.NumRegs-1)]
	f.Caller, f.How, f.Fallback = w.came.caller && e.flags&isTrampoline == 0, w.came.found, w.came.fallback
}

// advance takes the walk from the frame of e, the last of frames, to its caller,
// whose entry it returns. A reason other than 0 ends the walk, and [walk.end]
// says how. A step is what [Step] does, with the checks between that need to
// know what is mapped.
func (w *walk) advance(e *entry, mem *Memory, frames []Frame) (*entry, Reason) {
	if w.came.found != BackChain {
		w.linked = nil
	}
	if e.flags&isOwned != 0 {
		if to, reason, ok := w.ask(e, mem, frames); ok {
			return to, reason
		}
		w.code.rowOf(e)
	}
	row, how, failed, reason := w.step(e, !w.came.caller, mem)
	switch {
	case reason != 0:
		if reason == OutsideCopy && w.next.over {
			w.switches.leave(w.proc, frames, w.next.base, w.next.savedSP)
		}
		return nil, reason
	case len(frames) >= w.maxDepth:
		return nil, DepthLimit
	}
	w.linked = row
	if w.next.over {
		w.switches.leave(w.proc, frames, w.next.base, w.next.savedSP)
	}
	if w.next.jumped {
		w.doubt.note(frames, w.next.pc)
	}
	w.catchUp(mem)
	w.next.commit(w.arch, &w.set, row, mem)
	if row.Signal {
		w.came = came{found: Signal, fallback: failed}
		return w.interrupted(frames)
	}
	w.came = came{found: how, caller: true, fallback: failed}
	if w.next.sp > w.next.limit || w.next.sp < frames[len(frames)-1].SP {
		w.next.limit = w.proc.limit(&w.set) // a jump to another stack
	}
	return w.to, 0
}

// interrupted goes on in the frame that a signal interrupted: its stack may be
// another one, and a forged one may lead back to a frame that was seen.
func (w *walk) interrupted(frames []Frame) (*entry, Reason) {
	s := &w.set
	if seen(frames, s.PC, w.next.sp) {
		w.next.fault = s.PC
		return nil, Loop
	}
	if w.next.sp > w.next.limit || w.next.sp-frames[len(frames)-1].SP > maxSignalFrame {
		w.switches.leave(w.proc, frames, w.next.sp, w.next.savedSP)
	}
	w.next.limit = w.proc.limit(s)
	return w.code.lookup(s.PC, false), 0
}

// maxSignalFrame is more than the kernel stores for a signal: the largest is
// arm64's with the ZA array of SME, 64 KiB at most, and the vector registers.
const maxSignalFrame = 128 << 10

// lateRow is a row that was used for SP, FP and PC only. Hardly any row needs
// another register, so what rows say of those is put off until one does. A
// pointer to the row would double the time of a walk while the garbage
// collector marks: it has to be told of each pointer that is written.
type lateRow struct {
	cfa uint64
	num uint32 // of the row in cache.plain
}

// catchUp applies the rows put off to the other registers.
func (w *walk) catchUp(mem *Memory) {
	s := &w.set
	own := uint32(1)<<(w.arch.SP&(regs.NumRegs-1)) | 1<<(w.arch.FP&(regs.NumRegs-1))
	for i := range w.late {
		l := &w.late[i]
		s.Known = s.Known&own | restorePlain(w.arch, s, w.code.cache.plain[l.num], l.cfa, mem)&^own
	}
	w.late = w.late[:0]
}

// step finds the row that leads from frame e to its caller: the one of the
// first method that has one, or of a later method if it fails a check. fallback
// says that the latter happened. After success w.next holds the caller.
func (w *walk) step(e *entry, top bool, mem *Memory) (row *sframe.Row, how How, fallback bool, reason Reason) {
	if e.flags&isPlain == 0 && (e.row == nil || !e.row.Outermost) {
		w.catchUp(mem)
	}
	w.next.over, w.next.jumped = false, false
	row, how, reason = w.found(e, top, mem)
	if reason == 0 && how == FramePointer && w.proc.generated(w.set.PC) && w.code.overCall(w.set.R[w.arch.SP&(regs.NumRegs-1)], w.next.cfa-2*uint64(w.arch.WordBytes), mem) {
		// The frame pointer is a caller's, as it seems.
		next, to := w.next, w.to
		if found := w.search(e, top, mem); found != nil {
			return found, Code, true, 0
		}
		w.next, w.to = next, to
	}
	switch reason {
	case 0, Outermost:
		return row, how, false, reason
	case OutsideCopy:
		if how != FramePointer { // else what points there may be no frame pointer
			return row, how, false, reason
		}
		if found := w.search(e, top, mem); found != nil {
			return found, Code, true, 0
		}
		return row, how, false, reason
	}
	other, otherHow := w.fallBack(e, top, mem)
	if other == nil {
		other, otherHow = w.search(e, top, mem), Code
	}
	fault := w.next.fault
	switch {
	case other == nil && top && w.calledEntry(e, mem):
		if !w.arch.Link && w.code.allows(FramePointer) {
			w.called = false
			return w.proc.conv.entry, FramePointer, row != nil, 0
		}
		w.next.fault = fault
		return row, how, false, reason
	case other == nil:
		return row, how, false, reason
	case other.Outermost:
		return other, otherHow, true, Outermost
	}
	return other, otherHow, row != nil, 0
}

// calledEntry: e is the innermost frame, in a function that starts stacks, and
// has a caller all the same. clone is a wrapper in the parent, where it returns
// from behind the system call with no row; glibc ends its table there, since
// one would be wrong in the child. w.next holds the caller, if there is one.
func (w *walk) calledEntry(e *entry, mem *Memory) bool {
	if w.proc.conv.entry == nil || !w.code.isEntry(e) {
		return false
	}
	keep := w.next
	w.called = w.try(w.proc.conv.entry, FramePointer, e, true, mem) == 0
	if !w.called {
		w.next = keep
	}
	return w.called
}

// limit is the end of the mapping that the stack pointer of s points into.
func (p *process) limit(s *regs.Set) uint64 {
	if p.layout != nil {
		if _, end, ok := p.layout.Mapping(s.R[p.arch.SP&(regs.NumRegs-1)]); ok {
			return end
		}
	}
	return ^uint64(0)
}

// found tries the row of the first method that has one.
func (w *walk) found(e *entry, top bool, mem *Memory) (*sframe.Row, How, Reason) {
	row, how := e.row, e.how
	if how == BackChain && row == nil {
		row, r := w.chain(e, top, mem)
		return row, how, r
	}
	if row == nil {
		w.next.fault = w.set.PC
		return nil, how, NoRow
	}
	if row == arm64SignalRow {
		if fault, r := findSignalSP(w.arch, &w.set, mem); r != 0 {
			w.next.fault = fault
			return row, how, r
		}
	}
	if top && row == arm64Convention.frame && w.code.inLeaf(&w.set, mem) {
		row = w.proc.conv.entry
	}
	if e.flags&isJump != 0 {
		row, how = w.jumping(row)
	}
	if other := restored(w.arch, w.came, row, top); other != nil {
		if r := w.try(other, how, e, top, mem); r == 0 && w.to.flags&afterCall != 0 || r == OutsideCopy && w.next.over {
			return other, how, r
		}
	}
	return row, how, w.try(row, how, e, top, mem)
}

// restored returns what row means for a caller whose frame pointer is back already, nil if that is nothing else. SBCL's call_into_lisp_ makes the
// frame of what it calls, with its own frame pointer in it, and its table tells of the moment before the call: the CFA is 16 above the
// word that the frame pointer points to. Lisp returns with that word in the register. By the row alone the next frame would be left out.
func restored(a *regs.Arch, at came, row *sframe.Row, top bool) *sframe.Row {
	if top || row.CFA.Base != sframe.FromExpr || at.found != FramePointer && at.found != Code || !at.caller {
		return nil
	}
	if n := row.CFA.Offset; n < 0 || int(n) >= len(row.Exprs) || !bytes.Equal(row.Exprs[n], []byte{opBreg0 + a.FP, 0, opDeref, opLit0 + 16, opPlus}) {
		return nil
	}
	other := *row
	other.CFA = fromReg(a.FP, 16)
	return &other
}

// jumping returns the row of where the innermost frame is about to jump, if a register tells that: there
// its registers are the same. It returns row if none is known. Where a function is left by such a jump, the
// frame pointer is a caller's.
func (w *walk) jumping(row *sframe.Row) (*sframe.Row, How) {
	w.code.window.read(w.proc.space, w.set.PC)
	if reg, ok := w.proc.conv.jumps(&w.code.window); ok && w.set.Known>>reg&1 != 0 {
		if to := w.code.rowOf(w.code.lookup(w.set.R[reg], false)); to.row != nil && (to.how == SFrame || to.how == EHFrame || to.how == Code) {
			return to.row, to.how
		}
	}
	return row, FramePointer
}

// try computes the caller and checks that its PC is code. After success
// w.next holds the caller and w.to its entry, unless row is a signal frame's.
func (w *walk) try(row *sframe.Row, how How, e *entry, top bool, mem *Memory) Reason {
	w.next.over, w.next.jumped = false, false
	r := w.next.find(w.arch, &w.set, row, top, mem)
	if row.Switch || r == NoProgress || r == StackSwitch {
		r = w.goOver(row, how, top, mem, r)
	}
	if r != 0 {
		return r
	}
	return w.check(row.Signal, how, e)
}

// fiberTop is how many bytes of a stack's mapping may lie above its outermost frame where no return address has to say that it is
// one: there is no room for a caller. So fibers begin that make their first frame themselves (D's core.thread.fiber).
const fiberTop = 32

// check looks at the caller's PC in w.next.
func (w *walk) check(signal bool, how How, e *entry) Reason {
	pc := w.next.pc
	w.next.fault = pc
	if signal {
		// The interrupted PC is what it is: a jump to nowhere raises signals.
		return 0
	}
	if pc == 0 {
		// The ABI marks the deepest frame by a frame pointer of 0. A return
		// address of 0 without it may be anything that a wrong rule found, and
		// so may a pair of zeros where x86's rbp was taken for a frame pointer.
		if w.code.isEntry(e) || w.next.fpKnown && w.next.fp == 0 && (how != FramePointer || w.arch.Link) {
			return Outermost
		}
		if (how == SFrame || how == EHFrame) && !w.next.over && w.next.limit-w.next.cfa <= fiberTop {
			return Outermost
		}
		return ZeroReturn
	}
	to := w.code.lookup(pc, true)
	w.to = to
	if to.flags&isCode == 0 {
		return NotCode
	}
	if (how == FramePointer || how == BackChain || how == Code || w.next.over) && to.flags&(afterCall|isTrampoline) == 0 && !w.code.isEntry(to) {
		// A register that was taken for a frame pointer and is none can point
		// at code addresses too, but hardly behind calls. Code may have been
		// followed to where it never goes.
		if w.next.jumped = how != BackChain && !w.next.over && w.proc.generated(pc-1); w.next.jumped {
			return 0
		}
		return NotAfterCall
	}
	return 0
}

// fallBack tries the methods after the one that e has. It returns the row that
// leads on, w.next holding the caller, or nil.
func (w *walk) fallBack(e *entry, top bool, mem *Memory) (*sframe.Row, How) {
	i := slices.Index(w.code.order, e.how)
	if i < 0 {
		// Nothing had a row; or the trampoline's layout, which no table knows
		// better.
		return nil, Regs
	}
	w.catchUp(mem)
	keep := w.next // the first failure is the one to report
	pc := e.pc
	w.code.unread = false
	for _, h := range w.code.order[i+1:] {
		if h == FramePointer && e.row != nil && !mayKeepFP(w.arch, e.row) {
			// The frame pointer is a caller's, and following it would leave
			// out the frames between.
			continue
		}
		if h == BackChain && e.row != nil && !e.row.RA.Deref {
			// In the same way: the return address is not on the stack, so that
			// the chain is a caller's.
			continue
		}
		w.code.window.read(w.proc.space, w.set.PC)
		row, ok := w.code.methodRow(h, pc, top)
		unread := w.code.unread
		if ok && row == nil {
			// A 0 in the place of a link is no end where a row tells of a return address, and so of a
			// caller: code without chains leaves what it finds there.
			if row, r := w.chain(e, top, mem); r == 0 {
				return row, h
			}
		}
		if row == nil {
			w.code.unread = unread
			continue
		}
		if r := w.try(row, h, e, top, mem); r == 0 || r == Outermost && row.Outermost {
			return row, h
		}
		w.code.unread = unread // not what was looked up of the caller
	}
	w.next = keep
	return nil, Regs
}

// maxSearch is how many words of the stack are looked at for the call that has
// led to a frame.
const maxSearch = 256

// search looks upwards on the stack for a return address behind a call whose code
// leads to frame e, with the stack pointer that it has: this proves it. It finds
// the callers of functions that do not return, as those which start a program.
// It returns the row, w.next holding the caller, or nil.
func (w *walk) search(e *entry, top bool, mem *Memory) *sframe.Row {
	if w.proc.follower == nil || e.flags&isCode == 0 || !w.code.allows(Code) || w.code.isEntry(e) {
		return nil
	}
	w.catchUp(mem)
	keep := w.next
	word := uint64(w.arch.WordBytes)
	sp := w.set.R[w.arch.SP&(regs.NumRegs-1)]
	left := maxStarts
	for addr := sp; addr < sp+maxSearch*word; addr += word {
		ra, r := mem.word(w.arch, addr)
		if r != 0 {
			break
		}
		ra &^= w.arch.PACMask
		if w.proc.generated(ra - 1) {
			if left == 0 || w.code.lookup(ra, true).flags&afterCall == 0 {
				continue
			}
			left--
		}
		row, err := w.proc.follower.Called(ra, 0, w.set.PC)
		if err != nil {
			row, left = w.byRegister(ra, addr, left, mem)
		}
		if row != nil && w.try(row, Code, e, top, mem) == 0 && w.next.pc == ra && w.next.cfa+uint64(int64(row.RA.Offset)) == addr {
			return row
		}
	}
	w.next = keep
	return nil
}

// mayKeepFP: what a row says, whatever else is wrong with it, leaves room for a
// frame that the frame pointer points to. It does not if the frame pointer is
// still the caller's, nor in hand-written code that has no frame: the CFA is
// neither in SP nor in FP (glibc's longjmp describes the frame that it jumps to).
func mayKeepFP(a *regs.Arch, row *sframe.Row) bool {
	return row.FP.Base != sframe.Same &&
		row.CFA.Base == sframe.FromReg && (row.CFA.Reg == a.SP || row.CFA.Reg == a.FP)
}

// end turns the reason for which the walk does not go beyond frame e into its end.
func (w *walk) end(reason Reason, e *entry) End {
	switch reason {
	case Outermost:
		return End{Reason: Complete}
	case DepthLimit:
		return End{Reason: DepthLimit}
	case OutsideCopy, Loop:
		// Not even for a known entry: what lies beyond the copy is not known.
	default:
		if w.code.isEntry(e) && !w.called {
			return End{Reason: Complete}
		}
	}
	return End{Reason: reason, Addr: w.next.fault}
}

// seen: one of the frames has this pc and stack pointer.
func seen(frames []Frame, pc, sp uint64) bool {
	for i := range frames {
		if frames[i].PC == pc && frames[i].SP == sp {
			return true
		}
	}
	return false
}

// Registers returns the registers that the stack of set has in its frame with index n, which is to be f: by .eh_frame first, if that
// is among the methods, since .sframe recovers SP and FP alone. ok is false where no walk leads there. As in [Step], a register that no row
// recovers is not known.
func (w *Walker) Registers(set *regs.Set, mem *Memory, n int, f Frame) (at regs.Set, ok bool) {
	depth, list := w.main.maxDepth, []*walk{w.main}
	if w.main.code.allows(EHFrame) {
		list = []*walk{w.secondWalk(), w.main}
	}
	for _, x := range list {
		if n < 0 || n >= depth {
			break
		}
		x.maxDepth = n + 1
		frames, _ := x.run(set, false, mem, w.spare[:0])
		x.maxDepth = depth
		w.spare = frames
		if len(frames) == n+1 && frames[n].PC == f.PC && frames[n].SP == f.SP && x.set.PC == f.PC {
			x.catchUp(mem)
			return x.set, true
		}
	}
	return regs.Set{}, false
}
