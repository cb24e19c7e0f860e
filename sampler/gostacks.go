package sampler

import (
	"encoding/binary"
	"io"
	"slices"

	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// Fields of Go's types g and m, in bytes from their beginnings: the bounds of a stack are the first two words of a g, the g of the thread's own stack is
// the first of an m (runtime/runtime2.go of Go 1.19 to 1.26).
const (
	goM, goSP = 48, 56 // of g: its m, and sched.sp
	// Where an m has the goroutine that it runs differs between releases: between these. A thread has its g so many bytes at most below its thread pointer,
	// where the linker has put it among variables of C.
	goCurFrom, goCurTo = 96, 384
	goBelow            = 256
	// The g of signals is between the field with g0 and those; of one that goes over to the thread's own stack for a call into the vDSO so many bytes at most lie there.
	goSignalFrom = 64
	maxVisit     = 256
	minGoStack   = 2048
	maxGoStack   = 1 << 30
	tpReg        = 168 // fs_base in NT_PRSTATUS (struct user_regs_struct, sys/user.h)
	// maxGoes is how often it is looked in vain for the stack in them, which the thread may have left by then, and a quarter of that for them: each time may
	// take a hundred reads.
	maxGoes = 64
)

// goBounds is where in NT_PRSTATUS the register is that has the g of what the thread runs while it is in Go's code: R14, X28 and R13 (struct user_regs_struct,
// sys/user.h and asm/ptrace.h; psw and gprs of s390x's s390_regs; "Go internal ABI specification" and, of s390x, cmd/internal/obj/s390x).
var goBounds = map[string]int{"amd64": 8, "arm64": 28 * 8, "s390x": 16 + 13*8}

// bounds is [taking.Advice]'s for a thread of which that is the innermost frame.
func (ws *walks) bounds(t *target, a *regs.Arch, pc uint64) int {
	m, _, ok := t.space.Module(pc)
	if !ok || t.managed() != nil || !module.IsGo(m) {
		return 0
	}
	return goBounds[a.Name]
}

// goThread reads the runtime's structures of a Go thread on x86-64.
type goThread struct {
	mem  io.ReaderAt
	maps []procfs.Mapping
	seen *goSeen
	tp   uint64 // thread pointer; 0: not known, or of another architecture
	way  taking.Way
	m    uint64                   // 0: not known
	g    [taking.RecordBytes]byte // that was read last
}

// goSeen is what is remembered of a Go thread.
type goSeen struct {
	goes  uint8 // how often it was looked in vain for what the runtime keeps of it
	way   taking.Way
	m     uint64          // where that was last
	moved bool            // that is not always in the same place: a thread of C's, which borrows it
	told  *Kin            // what it was told of its kin
	homes [2]taking.Range // the thread's own stack, and that of signal handlers, where it has left another one
}

// ownRoom is how far from the end of a mapping a stack of C's threads begins at most, in bytes: what is above are its thread's own structures, or the arguments
// of the program. Go does not know where such a one ends.
const ownRoom = 256 << 10

// recordCopy is how much room there is at least for a stack of which a record tells, in bytes: no more is copied of it than there is.
const recordCopy = 16 << 10

// maxKin bounds what is copied of a further stack of a thread of which nothing is known but what others need, in bytes.
const maxKin = 32 << 10

// goThread is what is known of the thread of a capture.
func (ws *walks) goThread(t *target, a *regs.Arch, c *capture.Capture, k *Kin) goThread {
	g := goThread{mem: t.space.Source(), maps: t.space.Mappings(), seen: &t.thread(c.TID).golang}
	if a.Name != "amd64" || t.managed() != nil {
		return g
	}
	g.tp, g.way = threadPointer(a.Name, c.Regs.Note), g.seen.way
	if g.way.TLS == 0 && k != nil {
		g.way = k.Others[0].Way
	}
	if g.tp == 0 || g.way.TLS == 0 {
		return g
	}
	slot := g.tp + uint64(g.way.TLS)
	now := g.word(slot)
	if !g.read(now) {
		return g
	}
	m := g.of()
	if g.word(slot) != now { // it may run on another thread by now
		m = g.seen.m
	}
	if g0 := g.word(m); g.read(g0) && g.of() == m {
		g.is(m)
	}
	return g
}

// is: that is where the runtime keeps what it knows of the thread.
func (g *goThread) is(m uint64) {
	if m != g.seen.m || g.seen.homes[0].To == 0 {
		g.seen.homes = g.home(m)
	}
	g.seen.moved = g.seen.moved || g.seen.m != 0 && g.seen.m != m
	g.m, g.seen.m, g.seen.way = m, m, g.way
}

// goOther tells how the stack is found that low lies on, to which a Go thread went over from a frame. The word by which
// a walk went over lies elsewhere at each depth. The runtime keeps the stack pointer of the goroutine in its g where that is left, and that of the
// thread's own stack in g0 where C calls back: these have the same place whatever goroutine runs, and however deep. If C calls back, also is the other of the
// two. blind: no word tells where the walk has gone.
func (ws *walks) goOther(t *target, g *goThread, low uint64, from *unwind.Frame, blind bool) (o, also taking.Other, ok bool) {
	if !blind && !ws.goLeaves(t, from.LookupPC()) {
		return o, also, false
	}
	if !g.sought() {
		return o, also, false
	}
	return g.which(low, from.SP, blind, len(ws.over) > 1)
}

// sought tells whether m is known, and where an m has its goroutine, or could be found.
func (g *goThread) sought() bool {
	switch {
	case g.tp == 0:
		return false
	case g.m != 0:
		return true
	case g.seen.goes >= maxGoes:
		return false
	}
	found, ok := g.find()
	switch {
	case !found:
		g.seen.goes += maxGoes / 4
	case !ok:
		g.seen.goes++
	}
	return ok
}

// first is what a thread tells of its kin before any has gone over to its own stack: where the record of the goroutine that it left will be. nil: it cannot.
func (g *goThread) first() *Kin {
	if !g.sought() {
		return nil
	}
	return &Kin{Others: [2]taking.Other{g.anyone(g.way.G, recordCopy)}, Beyond: recordCopy}
}

// anyone tells how the stack is found of any thread whose record's address is so far in m.
func (g *goThread) anyone(field int32, bytes int) taking.Other {
	return taking.Other{Reg: tpReg, At: goSP, Via: true, Way: taking.Way{TLS: g.way.TLS, M: goM, G: field}, Bytes: bytes}
}

// which tells how the stack is found that low lies on, to which the thread went over from that with before: see [walks.goOther].
func (g *goThread) which(low, before uint64, blind, twice bool) (o, also taking.Other, ok bool) {
	own, current := g.other(0), g.other(g.way.G)
	if blind {
		return current, also, true
	}
	if !g.record(&own) {
		return o, also, false
	}
	switch here, there := g.on(low), g.on(before); {
	case here == there:
		return o, also, false
	case here:
		o, also = own, current
	default:
		o, also = current, own
	}
	if !twice { // who goes over once has no frames of a callback: nearly all threads of nearly all programs
		also = taking.Other{}
	}
	return o, also, true
}

// goLeaves tells whether code is of a function of Go's that has kept, in such a record, how it has left the stack that it was called on.
func (ws *walks) goLeaves(t *target, pc uint64) bool {
	m, vaddr, ok := t.space.Module(pc)
	return ok && module.GoLeaves(m, vaddr)
}

// other tells how the stack is found whose record's address is so far in m.
func (g *goThread) other(field int32) taking.Other {
	switch {
	case g.seen.moved:
		return g.anyone(field, 0)
	case field == 0:
		return taking.Other{Word: g.word(g.m), At: goSP}
	}
	return taking.Other{Word: g.m + uint64(field), Via: true, At: goSP, Homes: g.seen.homes}
}

// home is where the thread whose m that is has left another stack: its own one, and that of signal handlers, if that is known. They are empty, if
// the first is not.
func (g *goThread) home(m uint64) (homes [2]taking.Range) {
	g0 := g.word(m)
	if !g.read(g0) || g.of() != m {
		return homes
	}
	own := taking.Range{From: binary.LittleEndian.Uint64(g.g[:]), To: binary.LittleEndian.Uint64(g.g[8:])}
	if x := stackExtent(g.maps, own.To-1); x.High-own.To < ownRoom {
		own = taking.Range{From: x.Below, To: x.High}
	}
	homes[0] = own
	for field := uint64(goSignalFrom); field < goCurFrom; field += 8 {
		if x := g.word(m + field); x != g0 && g.read(x) && g.of() == m {
			homes[1] = taking.Range{From: binary.LittleEndian.Uint64(g.g[:]), To: binary.LittleEndian.Uint64(g.g[8:])}
		}
	}
	return homes
}

// ours puts what leads to the stacks of any thread right for this one. A thread is told of its kin what it was not told yet.
func (g *goThread) ours(list []taking.Other, k *Kin) {
	if g.m == 0 {
		g.seen.told = k // it may be none of Go's
		return
	}
	n := len(list)
	for i := range list {
		o := &list[i]
		if o.Bytes == 0 {
			n = min(n, i)
		} else if o.At != 0 && (o.Way.TLS != 0) != g.seen.moved {
			*o = g.instead(o)
		}
	}
	if k == g.seen.told {
		return
	}
	g.seen.told = k
	for i := range k.Others {
		x := g.instead(&k.Others[i])
		if x.Bytes > 0 && n < len(list) && !slices.ContainsFunc(list[:n], func(o taking.Other) bool { return o.Same(&x) }) {
			list[n] = x
			n++
		}
	}
	for i := range k.Words {
		w := &k.Words[i]
		if base := g.base(w.Field); w.Bytes > 0 && base > w.Below && n < len(list) {
			if x := (taking.Other{Word: base - w.Below, Kept: true, Bytes: w.Bytes}); !slices.ContainsFunc(list[:n], func(o taking.Other) bool { return o.Same(&x) }) {
				list[n] = x
				n++
			}
		}
	}
}

// base is where the words of kin are counted from, 0 if it is not known.
func (g *goThread) base(field int32) uint64 {
	switch {
	case !g.read(g.word(g.m+uint64(field))) || g.of() != g.m:
		return 0
	case field != 0:
		return binary.LittleEndian.Uint64(g.g[8:])
	}
	return binary.LittleEndian.Uint64(g.g[goSP:])
}

// visits tells whether a word lies where one does whenever the thread's own stack is gone over to for a call into the vDSO.
func (g *goThread) visits(o *taking.Other) bool {
	return g.m != 0 && o.Word != 0 && g.base(0)-o.Word < maxVisit
}

// kinWord tells where a word lies that leads to another stack, for threads of kin. ok is false if that is nothing that it has in common with them.
func (g *goThread) kinWord(o *taking.Other) (w KinWord, ok bool) {
	w = KinWord{Bytes: min(o.Bytes, maxKin), Below: g.base(0) - o.Word}
	if !o.Kept || w.Below < maxVisit {
		return w, o.Kept
	}
	for w.Field = goSignalFrom; w.Field < goCurFrom; w.Field += 8 {
		if end := g.base(w.Field); end > 0 && g.on(o.Word) {
			w.Below = end - o.Word
			return w, true
		}
	}
	return w, false
}

// instead leads to the stack of this thread's to which o leads.
func (g *goThread) instead(o *taking.Other) taking.Other {
	x := g.other(g.field(o))
	x.Bytes, x.Stack = o.Bytes, o.Stack
	return x
}

// field is where in m the address of the record is stored of which o tells.
func (g *goThread) field(o *taking.Other) int32 {
	if o.Way.TLS != 0 && o.Way.G == 0 || o.Way.TLS == 0 && !o.Via {
		return 0
	}
	return g.way.G
}

// kin is k with what a thread's advice tells of further stacks; k itself if that is no news.
func (g *goThread) kin(k *Kin, list []taking.Other) *Kin {
	if g.m == 0 {
		return k
	}
	var now Kin
	if k != nil {
		now = *k
	}
	news := false
	for _, o := range list {
		if o.At == 0 {
			if w, ok := g.kinWord(&o); o.Word != 0 && ok && now.meet(w) {
				news = true
			}
			continue
		}
		i, field := 0, g.field(&o)
		if field == 0 {
			i = 1
		}
		if bytes := min(o.Bytes, maxKin); bytes > now.Others[i].Bytes {
			news = true
			now.Others[i] = g.anyone(field, bytes)
		}
	}
	now.Beyond = now.Others[0].Bytes + now.Others[1].Bytes
	if !news || now.Others[0].Bytes == 0 {
		return k
	}
	return &now
}

// meet notes a word. false: it is known, or there is no room.
func (k *Kin) meet(w KinWord) bool {
	for i := range k.Words {
		switch x := &k.Words[i]; {
		case x.Bytes == 0:
			*x = w
			return true
		case x.Field == w.Field && x.Below == w.Below:
			more := w.Bytes > x.Bytes
			x.Bytes = max(x.Bytes, w.Bytes)
			return more
		}
	}
	return false
}

// find finds m, by the g of what the thread runs, and the field with that of the goroutine that it runs. found: the first.
func (g *goThread) find() (found, ok bool) {
	var below [goBelow]byte
	if n, _ := g.mem.ReadAt(below[:], int64(g.tp-goBelow)); n < len(below) {
		return false, false
	}
	for off := goBelow - 8; off >= 0; off -= 8 {
		if !g.read(binary.LittleEndian.Uint64(below[off:])) {
			continue
		}
		m := g.of()
		g0 := g.word(m)
		if !g.read(g0) || g.of() != m {
			continue
		}
		slot := g.tp - goBelow + uint64(off)
		field, ok := g.current(m, g0, slot)
		if ok {
			g.way = taking.Way{TLS: int32(off - goBelow), M: goM, G: field}
			g.is(m)
		}
		return true, ok
	}
	return false, false
}

// current finds the field of an m with the goroutine that it runs: one but g0, and not the variable at slot, which has the g of now.
func (g *goThread) current(m, g0, slot uint64) (field int32, ok bool) {
	var fields [goCurTo - goCurFrom]byte
	if n, _ := g.mem.ReadAt(fields[:], int64(m+goCurFrom)); n < len(fields) {
		return 0, false
	}
	for i := 0; i < len(fields); i += 8 {
		at := m + goCurFrom + uint64(i)
		if x := binary.LittleEndian.Uint64(fields[i:]); x != g0 && at != slot && g.read(x) && g.of() == m && g.goroutine() {
			return goCurFrom + int32(i), true
		}
	}
	return 0, false
}

// record reads the g that o, which is one of [goThread.other], tells of.
func (g *goThread) record(o *taking.Other) bool {
	switch {
	case o.Way.TLS != 0:
		return g.read(g.word(g.m + uint64(o.Way.G)))
	case o.Via:
		return g.read(g.word(o.Word))
	}
	return g.read(o.Word)
}

// read reads the g at addr.
func (g *goThread) read(addr uint64) bool {
	if addr == 0 || addr&7 != 0 {
		return false
	}
	n, _ := g.mem.ReadAt(g.g[:], int64(addr))
	return n == len(g.g)
}

// of is the m of the g that was read last, and on tells whether addr lies on its stack.
func (g *goThread) of() uint64 { return binary.LittleEndian.Uint64(g.g[goM:]) }
func (g *goThread) on(addr uint64) bool {
	return addr >= binary.LittleEndian.Uint64(g.g[:]) && addr < binary.LittleEndian.Uint64(g.g[8:])
}

// goroutine tells whether what was read last has the bounds of a goroutine's stack, which runtime.stackalloc makes: other structures have their m in the same place.
func (g *goThread) goroutine() bool {
	low, size := binary.LittleEndian.Uint64(g.g[:]), binary.LittleEndian.Uint64(g.g[8:])-binary.LittleEndian.Uint64(g.g[:])
	return low > 0 && low%minGoStack == 0 && size >= minGoStack && size <= maxGoStack && size&(size-1) == 0
}

// word is the word at addr, 0 if it cannot be read.
func (g *goThread) word(addr uint64) uint64 {
	var b [8]byte
	if n, _ := g.mem.ReadAt(b[:], int64(addr)); n < len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}
