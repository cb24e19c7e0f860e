package sampler

import (
	"encoding/binary"
	"io"

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
// was cut for want of, 0: of none.
func (ws *walks) others(t *target, a *regs.Arch, c *capture.Capture, v *Advice, frames []unwind.Frame, lack uint64) {
	old := v.Others
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
		if s := t.thread(c.TID); s.goes < maxGoes {
			if o, also, ok = goOther(t.space, threadPointer(a.Name, c.Regs), &old, b.low, c.StackAddr); !ok && !also.Apart {
				s.goes++
			}
		}
		if !ok {
			o, ok = ws.source(a, c, frames, b.over)
		}
		if !ok {
			continue
		}
		for i := range old {
			if x := &old[i]; x.Bytes > 0 && x.Word == o.Word && x.Reg == o.Reg && x.Into == o.Into {
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
		o.Bytes = copySize(o.Bytes, b.high-b.low+taking.RedZone, b.short && have > 0, have)
		add(o)
		if also.Apart {
			also.Bytes = o.Bytes
			add(also)
		}
	}
	// What this walk did not want the next may, but not for ever.
	for _, o := range old {
		o.Bytes -= o.Bytes / 128
		add(o)
	}
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
	w := t.walker(u.Arch, c.PACMask, ws.cfg)
	ws.load(c)
	ws.mem.More = t.space
	frames, end := w.Walk(&u.Set, &ws.mem, ws.ahead[:0])
	ws.ahead, ws.over = frames, append(ws.over[:0], w.Stacks()...)
	return frames, end
}

// source tells where the address stood by which a walk went over to another stack: the word that
// it was loaded from, or else the last one with that value below the frame that it went from, on
// that frame's stack; or a register.
func (ws *walks) source(a *regs.Arch, c *capture.Capture, frames []unwind.Frame, i int) (o taking.Other, ok bool) {
	s := ws.over[i]
	if s.Word != 0 {
		return taking.Other{Word: s.Word}, true
	}
	low := c.StackAddr
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
	for off := 0; off+a.WordBytes <= len(c.Regs); off += a.WordBytes {
		v := uint64(binary.NativeEndian.Uint32(c.Regs[off:]))
		if a.WordBytes == 8 {
			v = binary.NativeEndian.Uint64(c.Regs[off:])
		}
		if v == s.Base {
			return taking.Other{Reg: off}, true
		}
	}
	return o, false
}

// Fields of Go's types g and m, in bytes from their beginnings: the bounds of a stack are the first two words of a g, the g of the thread's own stack is
// the first of an m (runtime/runtime2.go of Go 1.19 to 1.26).
const (
	goM, goSP = 48, 56 // of g: its m, and sched.sp
	goG       = 64     // bytes of a g up to there
	// Where an m has the goroutine that it runs differs between releases: between these. A thread has its g so many bytes at most below its thread pointer,
	// where the linker has put it among variables of C.
	goCurFrom, goCurTo = 96, 384
	goBelow            = 256
	// maxGoes is how often it is looked for them in vain: each time may take some 30 reads.
	maxGoes = 4
)

// goOther tells how the stack is found that low lies on, if it belongs to a Go thread on x86-64 whose thread pointer is tp. Where C is called, the runtime
// keeps the stack pointer of the goroutine in its g, and where C calls back that of the thread's own stack in g0: these have the same place
// whatever goroutine runs, and however deep. known are the stacks that were found before. If it is the first of the two, also is the other, on which
// sp lies.
func goOther(mem io.ReaderAt, tp uint64, known *[taking.MaxOthers]taking.Other, low, sp uint64) (o, also taking.Other, ok bool) {
	if tp == 0 {
		return o, also, false
	}
	t := goThread{mem: mem}
	for _, o := range known {
		if !o.Apart {
			continue
		}
		at := o.Word - goSP
		if o.Into != 0 {
			at = t.word(o.Word)
		}
		if t.read(at) && t.on(low) {
			return taking.Other{Word: o.Word, Apart: true, Into: o.Into}, also, true
		}
	}
	var below [goBelow]byte
	if n, _ := mem.ReadAt(below[:], int64(tp-goBelow)); n < len(below) {
		return o, also, false
	}
	for off := goBelow - 8; off >= 0; off -= 8 {
		if !t.read(binary.LittleEndian.Uint64(below[off:])) {
			continue
		}
		m := t.m()
		g0 := t.word(m)
		if !t.read(g0) || t.m() != m {
			continue
		}
		own := taking.Other{Word: g0 + goSP, Apart: true}
		if t.on(low) {
			also, _ = t.current(m, sp)
			return own, also, true
		}
		o, ok = t.current(m, low)
		return o, own, ok
	}
	return o, also, false
}

// goThread reads the runtime's structures of a Go thread.
type goThread struct {
	mem io.ReaderAt
	g   [goG]byte // that was read last
}

// read reads the g at addr.
func (t *goThread) read(addr uint64) bool {
	if addr == 0 || addr&7 != 0 {
		return false
	}
	n, _ := t.mem.ReadAt(t.g[:], int64(addr))
	return n == len(t.g)
}

// m is its m, and on tells whether addr lies on its stack.
func (t *goThread) m() uint64 { return binary.LittleEndian.Uint64(t.g[goM:]) }
func (t *goThread) on(addr uint64) bool {
	return addr >= binary.LittleEndian.Uint64(t.g[:]) && addr < binary.LittleEndian.Uint64(t.g[8:])
}

// word is the word at addr, 0 if it cannot be read.
func (t *goThread) word(addr uint64) uint64 {
	var b [8]byte
	if n, _ := t.mem.ReadAt(b[:], int64(addr)); n < len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

// current finds the goroutine of an m on whose stack addr lies.
func (t *goThread) current(m, addr uint64) (o taking.Other, ok bool) {
	var fields [goCurTo - goCurFrom]byte
	if n, _ := t.mem.ReadAt(fields[:], int64(m+goCurFrom)); n < len(fields) {
		return o, false
	}
	for i := 0; i < len(fields); i += 8 {
		if t.read(binary.LittleEndian.Uint64(fields[i:])) && t.m() == m && t.on(addr) {
			return taking.Other{Word: m + goCurFrom + uint64(i), Apart: true, Into: goSP}, true
		}
	}
	return o, false
}
