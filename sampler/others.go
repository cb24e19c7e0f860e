package sampler

import (
	"encoding/binary"
	"slices"

	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// block is a piece of memory that a walk wanted.
type block struct {
	low, high uint64 // where it began, and the highest stack pointer met there
	over      int    // index of the change of stacks that led there, among those of the walk; -1: none
	short     bool   // the walk ended for want of more of it
}

// nearStack is how far apart stacks may lie, in bytes, to be copied as one: what lies between costs
// less than another read.
const nearStack = 16 << 10

// wanted appends the blocks that a walk of a stack from addr on wanted, which went over to the
// stacks over; there is always the first one. short: it ended for want of the last.
func wanted(list []block, addr uint64, frames []unwind.Frame, over []unwind.Stack, short bool) []block {
	last := 0 // block that the walk is in
	list = append(list, block{low: addr, over: -1})
	from := 0
	for i := range len(over) + 1 {
		to := len(frames)
		if i < len(over) {
			to = over[i].Frame
		}
		if b := &list[last]; to > from {
			b.high = max(b.high, b.low, frames[to-1].SP)
		}
		if i == len(over) {
			break
		}
		from = to
		for last = 0; last < len(list); last++ {
			if b := &list[last]; over[i].Base >= b.low && over[i].Base < max(b.low, b.high)+nearStack {
				break
			}
		}
		if last == len(list) {
			list = append(list, block{low: over[i].Base, high: over[i].Base, over: i})
		}
	}
	list[last].short = short
	return list
}

// others brings what is known of further stacks up to date, after a walk that wanted ws.blocks. lack is the address that it
// was cut for want of, 0: of none. k is what is known of the thread's kin, and returned as it is now.
func (ws *walks) others(t *target, a *regs.Arch, c *capture.Capture, v *Advice, frames []unwind.Frame, lack uint64, k *Kin) *Kin {
	g := ws.goThread(t, a, c, k)
	if k == nil && v.Bounds != 0 {
		k = g.first()
	}
	old := v.Others
	g.ours(old[:], k)
	v.Others, v.Beyond = [taking.MaxOthers]taking.Other{}, 0
	n := 0
	add := func(o taking.Other) {
		if o.Bytes = min(o.Bytes, maxCopy-v.Beyond); n < len(v.Others) && o.Bytes >= minCopy {
			v.Others[n] = o
			v.Beyond += o.Bytes
			n++
		}
	}
	for _, b := range ws.blocks[1:] {
		var o, also taking.Other
		ok := false
		if ws.over[b.over].Word == 0 { // else a signal frame tells, where the thread was interrupted
			from := ws.over[b.over].Frame - 1
			o, also, ok = ws.goOther(t, &g, b.low, &frames[from], ws.blind(t, from))
		}
		if !ok {
			o, ok = ws.source(a, c, frames, b.over)
			o.Kept = o.Kept || g.visits(&o)
		}
		if !ok {
			continue
		}
		for i := range old {
			if x := &old[i]; x.Bytes > 0 && x.Same(&o) {
				o, x.Bytes = *x, 0
			}
		}
		if b.low < o.Stack.Low || b.low >= o.Stack.High {
			o.Stack = stackExtent(t.space.Mappings(), b.low)
		}
		have := ws.copied(b.low)
		if lack-(b.low-taking.RedZone) < uint64(o.Bytes) {
			ws.askZeros(t, &o.Stack, b.low, have, o.Bytes)
		}
		o.Bytes = wholeCopy(copySize(o.Bytes, b.high-b.low+taking.RedZone, b.short && have > 0, have, lessSlowly))
		if o.At != 0 {
			o.Bytes = max(o.Bytes, recordCopy)
		}
		add(o)
		if also.At != 0 && !slices.ContainsFunc(old[:], func(x taking.Other) bool { return x.Bytes > 0 && x.Same(&also) }) {
			also.Bytes = o.Bytes
			add(also)
		}
	}
	// What this walk did not want the next may, but not for ever, and not by a word of a stack of which a record tells now.
	told := v.Others[:n]
	for _, o := range old {
		if o.At == 0 && !o.Kept && slices.ContainsFunc(told, func(r taking.Other) bool { return r.At != 0 && r.Stack.Low == o.Stack.Low && r.Stack.High > 0 }) {
			continue
		}
		switch {
		case o.Homes[0].To != 0:
			o.Bytes = max(o.Bytes-o.Bytes/1024, min(o.Bytes, recordCopy)) // it costs no time where it is of no use
		case o.Kept:
			o.Bytes -= o.Bytes / 1024 // it costs no time where no signal is handled
		default:
			o.Bytes -= o.Bytes / 128
		}
		add(o)
	}
	return g.kin(k, v.Others[:n])
}

// blind tells whether a frame is that of a function that goes over to another stack, of which no word tells: see [module.GoSwitch].
func (ws *walks) blind(t *target, frame int) bool {
	is := func(o unwind.Owned) bool { return o.Frame == frame }
	return t.managed() == nil && (slices.ContainsFunc(ws.owned, is) || slices.ContainsFunc(ws.later, is))
}

// copied is how many bytes the capture under way has of a further stack, from addr on.
func (ws *walks) copied(addr uint64) int {
	for _, r := range ws.also {
		if off := addr - r.Addr; off < uint64(len(r.Bytes)) {
			return len(r.Bytes) - int(off)
		}
	}
	return 0
}

// sourceBytes bounds how far below a frame the word is looked for that leads to another stack.
const sourceBytes = 64 << 10

// foresee walks a stack once more that was cut for want of memory, with the memory as it is by
// now. What comes of it is no stack of any moment, but tells what to copy next time.
func (ws *walks) foresee(t *target, c *capture.Capture, u *regs.User) ([]unwind.Frame, unwind.End) {
	w := t.walker(u.Arch, c.Regs.PACMask, ws.cfg)
	ws.load(c)
	ws.mem.More = t.space.Source()
	frames, end := w.Walk(&u.Set, &ws.mem, ws.ahead[:0])
	ws.ahead, ws.over, ws.later = frames, append(ws.over[:0], w.Stacks()...), append(ws.later[:0], w.Owned()...)
	return frames, end
}

// source tells where the address stood by which a walk went over to another stack: the word that
// it was loaded from, or else the last one with that value below the frame that it went from, on
// that frame's stack; or a register.
func (ws *walks) source(a *regs.Arch, c *capture.Capture, frames []unwind.Frame, i int) (o taking.Other, ok bool) {
	s := ws.over[i]
	if s.Word != 0 {
		return taking.Other{Word: s.Word, Kept: true}, true
	}
	low := c.Stack.Addr
	if i > 0 {
		low = ws.over[i-1].Base
	}
	word := uint64(a.WordBytes)
	from := frames[s.Frame-1].SP
	for addr := from; addr >= low+word && from-addr < sourceBytes; {
		addr -= word
		if v, err := ws.mem.Word(a, addr); err != nil {
			break
		} else if v == s.Base {
			return taking.Other{Word: addr}, true
		}
	}
	for off := 0; off+a.WordBytes <= len(c.Regs.Note); off += a.WordBytes {
		v := uint64(binary.NativeEndian.Uint32(c.Regs.Note[off:]))
		if a.WordBytes == 8 {
			v = binary.NativeEndian.Uint64(c.Regs.Note[off:])
		}
		if v == s.Base {
			return taking.Other{Reg: off}, true
		}
	}
	return o, false
}
