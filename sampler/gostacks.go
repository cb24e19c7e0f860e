package sampler

import (
	"encoding/binary"
	"io"

	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// Fields of Go's types g and m, in bytes from their beginnings: the bounds of a stack are the first two words of a g, the g of the thread's own stack is
// the first of an m (runtime/runtime2.go of Go 1.19 to 1.26).
const (
	goM, goSP = 48, 56 // of g: its m, and sched.sp
	// Where an m has the goroutine that it runs differs between releases: between these. A thread has its g so many bytes at most below its thread pointer,
	// where the linker has put it among variables of C.
	goCurFrom, goCurTo = 96, 384
	goBelow            = 256
	// maxGoes is how often it is looked in vain for the stack in them, which the thread may have left by then, and a quarter of that for them: each time may
	// take a hundred reads.
	maxGoes = 64
)

// goOther tells how the stack is found that low lies on, if a Go thread on x86-64 has called C which called back, or nearly so: then the word by which
// a walk went over lies elsewhere at each depth. The runtime keeps the stack pointer of the goroutine in its g where C is called, and that of the
// thread's own stack in g0 where C calls back: these have the same place whatever goroutine runs, and however deep. known are the stacks that were found
// before. If it is found for the first time, also is the other of the two. blind: no word tells where the walk has gone.
func (ws *walks) goOther(t *target, a *regs.Arch, c *capture.Capture, known *[taking.MaxOthers]taking.Other, low uint64, blind bool) (o, also taking.Other, ok bool) {
	g := goThread{mem: t.space}
	for i := range known {
		if known[i].At != 0 && (blind && known[i].Via && len(c.Blocks) > 0 || g.record(&known[i]) && g.on(low)) {
			return known[i], also, true
		}
	}
	// Who goes over once has no frames of a callback: nearly all threads of nearly all programs.
	s := t.thread(c.TID)
	tp := threadPointer(a.Name, c.Regs)
	if a.Name != "amd64" || tp == 0 || !blind && len(ws.over) < 2 || s.goes >= maxGoes {
		return o, also, false
	}
	own, current, ok := g.find(tp, low, c.StackAddr, blind)
	switch {
	case own.At == 0:
		s.goes += maxGoes / 4
	case !ok:
		s.goes++
	case blind:
		s.goes++ // what was found before has led nowhere, if anything was
		return current, also, true
	case g.record(&own) && g.on(low):
		return own, current, true
	case g.record(&current) && g.on(low):
		return current, own, true
	}
	return o, also, false
}

// goThread reads the runtime's structures of a Go thread.
type goThread struct {
	mem io.ReaderAt
	g   [taking.RecordBytes]byte // that was read last
}

// find finds the g of the own stack of the thread whose thread pointer is tp, and that of the goroutine that it runs: ok if each has one of two addresses on
// its stack. anyone: the goroutine may be another one by now.
func (t *goThread) find(tp, a, b uint64, anyone bool) (own, current taking.Other, ok bool) {
	var below [goBelow]byte
	if n, _ := t.mem.ReadAt(below[:], int64(tp-goBelow)); n < len(below) {
		return own, current, false
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
		own = taking.Other{Word: g0, At: goSP}
		if t.on(a) {
			a, b = b, a
		}
		if t.on(b) {
			current, ok = t.current(m, a, func(field, g uint64) bool { return anyone && g != g0 && field != tp-goBelow+uint64(off) })
		}
		return own, current, ok
	}
	return own, current, false
}

// current finds the goroutine of an m on whose stack addr lies, or another in one of its fields that will do.
func (t *goThread) current(m, addr uint64, do func(field, g uint64) bool) (o taking.Other, ok bool) {
	var fields [goCurTo - goCurFrom]byte
	if n, _ := t.mem.ReadAt(fields[:], int64(m+goCurFrom)); n < len(fields) {
		return o, false
	}
	for i := 0; i < len(fields); i += 8 {
		if g := binary.LittleEndian.Uint64(fields[i:]); t.read(g) && t.m() == m && (t.on(addr) || do(m+goCurFrom+uint64(i), g)) {
			return taking.Other{Word: m + goCurFrom + uint64(i), Via: true, At: goSP}, true
		}
	}
	return o, false
}

// record reads the g that o tells of.
func (t *goThread) record(o *taking.Other) bool {
	if o.Via {
		return t.read(t.word(o.Word))
	}
	return t.read(o.Word)
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
