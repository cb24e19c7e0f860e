package sampler

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"time"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// walks walks the stacks of captures, one at a time, and tells what to copy of the next. What it adds to a capture was read while the
// thread had not run since, and a frame is sure only if its code was mapped at the capture's moment (past.go).
type walks struct {
	cfg    *PipelineConfig
	pool   *pool
	mem    unwind.Memory // of the walk under way
	also   []unwind.Region
	over   []unwind.Stack // stacks that the walk under way went over to
	owned  []unwind.Owned // frames of it that are of a runtime's code
	later  []unwind.Owned // and of one ahead, see foresee
	blocks []block        // of memory that it wanted
	frames []unwind.Frame
	ahead  []unwind.Frame // of a walk that only tells what to copy
	live   taking.Live
	pages  taking.Buffer // room to read a pagemap
	hurry  bool          // the engine has got advice that makes its next captures better

	differences map[string]int64 // see verify.go
}

// maxWalks bounds how often a stack is walked whose process changes its mappings
// all the time.
const maxWalks = 8

// otherCopy is how much is read of another stack at first, in bytes.
const otherCopy = 32 << 10

// largeCopy is how much may be copied on the chance that it is needed, in bytes.
const largeCopy = 1 << 20

// behindStack is how much is copied behind the outermost frame, in bytes. A thread
// that begins or ends may have its outermost frame lower than it is in between.
const behindStack = 4 << 10

// walk unwinds; a thread that was not stopped, or still is, and whose stack outgrew its copy is read again,
// whole, while it has not run.
func (ws *walks) walk(t *target, c *capture.Capture, u *regs.User) ([]unwind.Frame, unwind.End) {
	w := t.walker(u.Arch, c.Regs.PACMask, ws.cfg)
	for again := 0; ; again++ {
		gen := t.space.Generation()
		ws.load(c)
		m := t.managed()
		if m != nil && m.Begin() {
			t.manage(m)
		}
		frames, end := w.Walk(&u.Set, &ws.mem, ws.frames[:0])
		ws.frames, ws.over, ws.owned = frames, append(ws.over[:0], w.Stacks()...), append(ws.owned[:0], w.Owned()...)
		ws.later = ws.later[:0]
		if t.space.Generation() != gen && again < maxWalks {
			continue // the mappings were read anew on the way: begin with those
		}
		if m != nil && !m.Confirm() && again < maxWalks {
			continue
		}
		if end.Reason == unwind.ZeroReturn && ws.cfg.Live && again < maxWalks && ws.relist(t, c) {
			continue // whether it is at the end of its stack's mapping is known now
		}
		if end.Reason != unwind.OutsideCopy || !ws.cfg.Live || ws.cfg.Until.Over() || !ws.extend(t, c, end) {
			return frames, end
		}
	}
}

// load makes the stack copies of a capture those of the next walk.
func (ws *walks) load(c *capture.Capture) {
	ws.mem.Reset(c.Stack.Addr, c.Stack.Bytes, nil)
	ws.also = ws.also[:0]
	for addr, b := range c.Beyond.All() {
		ws.also = append(ws.also, unwind.Region{Addr: addr, Bytes: b})
	}
	ws.mem.Also = ws.also
}

// extend reads more of a thread's stack, if it has not run since: of another stack, if the walk went over to one. What
// the capture held before stays as it is otherwise.
func (ws *walks) extend(t *target, c *capture.Capture, end unwind.End) bool {
	start := c.Stack.Addr
	if len(ws.over) > 0 {
		return ws.readOther(t, c, end.Addr)
	}
	if end.Addr < start || end.Addr-start >= maxCopy {
		return false
	}
	size := min(max(4*len(c.Stack.Bytes), int(end.Addr-start)+minCopy, 2*firstCopy), maxCopy)
	if x := stackExtent(t.space.Mappings(), start); x.High > 0 {
		size, _ = x.Bytes(start, size)
	}
	b := ws.readStill(t, c, start, size)
	if len(b) <= int(end.Addr-start) || !bytes.Equal(b[:min(len(b), len(c.Stack.Bytes))], c.Stack.Bytes) {
		return false
	}
	before := held(c)
	c.Stack.Bytes = append(c.Stack.Bytes[:0], b...)
	ws.pool.grown(held(c) - before)
	return true
}

// readStill reads the memory of a thread, nil if it may have run since the
// capture.
func (ws *walks) readStill(t *target, c *capture.Capture, start uint64, size int) []byte {
	b := make([]byte, size)
	n := 0
	if !ws.still(c, func() { n, _ = t.space.Source().ReadAt(b, int64(start)) }) || n <= 0 {
		return nil
	}
	return b[:n]
}

// still calls read and tells whether the thread has not run from its capture to the end of that.
func (ws *walks) still(c *capture.Capture, read func()) bool {
	if c.Taken != capture.Unstopped {
		return false
	}
	read()
	s, err := proc.Task(c.PID, c.TID).Schedstat()
	return err == nil && s.Count == c.Count
}

// readOther adds a part of another stack to a capture.
func (ws *walks) readOther(t *target, c *capture.Capture, addr uint64) bool {
	x := stackExtent(t.space.Mappings(), addr)
	size := min(max(otherCopy, len(c.Beyond.Bytes)), maxCopy-len(c.Beyond.Bytes))
	if x.High == 0 || size <= taking.RedZone {
		return false
	}
	start := max(x.Low, (addr-taking.RedZone)&^7)
	size, _ = x.Bytes(start, size)
	b := ws.readStill(t, c, start, size)
	if uint64(len(b)) < addr-start+8 {
		return false
	}
	before := held(c)
	c.Beyond.Add(start, b)
	ws.pool.grown(held(c) - before)
	return true
}

// advise tells how much stack the thread's next capture should hold,
// of which stacks, and whether it takes a stop.
func (ws *walks) advise(t *target, u *regs.User, c *capture.Capture, fb *Feedback, frames []unwind.Frame, end unwind.End) Advice {
	v := fb.Get()
	short := end.Reason == unwind.OutsideCopy
	ws.hurry = ws.hurry || short || end.Reason == unwind.UnknownRegister || v.Want == 0
	v.Short = short && c.Taken != capture.Unstopped
	firstShort := short && len(ws.over) == 0
	lack := uint64(0)
	if v.Short {
		lack = end.Addr
	}
	s := t.thread(c.TID)
	if short && ws.cfg.Live {
		ws.relist(t, c)
	}
	if v.Short && ws.cfg.Live && bits.OnesCount(s.vain) <= 1 {
		known := slices.Clone(ws.over)
		if ahead, aheadEnd := ws.foresee(t, c, u); len(ws.over) >= len(known) {
			frames, end = ahead, aheadEnd
			short = end.Reason == unwind.OutsideCopy
		} else { // by now there is something else where the walk went over to another stack
			ws.load(c)
			ws.over = append(ws.over[:0], known...)
		}
	}
	ws.blocks = wanted(ws.blocks[:0], c.Stack.Addr, frames, ws.over, short)
	ws.blocks[0].short = ws.blocks[0].short || firstShort // it may have been deeper than it is by now
	first := ws.blocks[0]
	if v.Bounds == 0 && len(frames) > 0 {
		v.Bounds = ws.bounds(t, u.Arch, frames[0].PC)
	}
	if ws.cfg.Live {
		ws.locate(t, c, &v, first, end)
	}
	if s.want == 0 {
		s.want = usualCopy
	}
	s.want = copySize(s.want, first.high-c.Stack.Addr, first.short, len(c.Stack.Bytes), slowly)
	if all, ok := v.Stack.Bytes(c.Stack.Addr, maxCopy); first.short && ok && all <= largeCopy {
		s.want = max(s.want, all) // usually the mapping ends where the stack begins
	}
	if lacks := end.Lacks - c.Stack.Addr; len(ws.over) == 0 && end.Lacks < v.Stack.High && lacks < maxCopy {
		s.want = max(s.want, int(lacks)+firstCopy)
	}
	v.Want = wholeCopy(s.want)
	if k := fb.known(); len(ws.blocks) > 1 || k == nil && v.Bounds != 0 && u.Arch == regs.AMD64 || v.Others[0].Bytes > 0 || k != s.golang.told {
		fb.learn(ws.others(t, u.Arch, c, &v, frames, lack, k))
	}
	if marks := t.marks(frames); marks != v.Marks {
		v.Marks, ws.hurry = marks, true
	}
	if end.Reason == unwind.UnknownRegister && c.Taken == capture.Unstopped {
		v.Foreign = u.Arch.Name != ws.cfg.Host
		v.NeedStop = c.Count
	}
	if s.vain++; !v.Short || v != fb.Get() {
		s.vain = 0
	}
	return v
}

// relist reads the mappings of a process anew if the stack of a capture lies in none of those that are known: it may be
// mapped, or have grown, since they were read, which is no news to a Space as long as all code is what it was. It tells whether it lies in one now.
func (ws *walks) relist(t *target, c *capture.Capture) bool {
	sp := stackPointer(&c.Regs)
	if m := mappingAt(t.space.Mappings(), sp); m != nil || t.asked.maps >= maxAsked {
		return false
	}
	t.asked.maps++
	if err := t.space.Refresh(); err != nil {
		ws.cfg.Log.Debug("read the mappings", "pid", c.PID, "err", err)
		return false
	}
	return mappingAt(t.space.Mappings(), sp) != nil
}

// locate finds out where the stack of a capture lies, of which first was wanted.
func (ws *walks) locate(t *target, c *capture.Capture, v *Advice, first block, end unwind.End) {
	x, sp := &v.Stack, stackPointer(&c.Regs)
	if sp < x.Low || sp >= x.High {
		if now := stackExtent(t.space.Mappings(), sp); now.Low != x.Low || now.High != x.High {
			*x = now
		}
	}
	if x.High == 0 {
		return
	}
	if !x.Asked && time.Since(t.asked.at) < zerosHold && t.asked.tells(x) {
		x.Asked, x.Zeros = true, true
	}
	if first.short || end.Lacks > 0 {
		ws.askZeros(t, x, c.Stack.Addr, len(c.Stack.Bytes), cmp.Or(v.Want, firstCopy))
	}
	switch last := first.high; {
	case v.Bounds != 0: // many stacks lie there, each with its own end
		x.Top = 0
	case end.Complete() && len(ws.over) == 0 && last > c.Stack.Addr:
		if top := min(last+behindStack, x.High); top > x.Top {
			x.Top = ws.resident(t, last, top)
		}
	case first.short:
		x.Top = 0
	}
}

// askZeros finds out whether pages of a stack may be asked for that are not in memory, if such a one has ended the copy
// from addr on, of which there are have bytes, and want were to be copied: a frame may hold much that was never written, its
// end among it.
func (ws *walks) askZeros(t *target, x *taking.Extent, addr uint64, have, want int) {
	room, _ := x.Bytes(addr, want)
	if x.Asked || have >= room || t.asked.n >= maxAsked {
		return
	}
	t.asked.n++
	t.asked.zeros, t.asked.at = zeros(proc, t.pid), time.Now()
	x.Asked, x.Zeros = true, t.asked.tells(x)
}

// asked is what a process was asked about its memory.
type asked struct {
	n     int
	maps  int    // how often for its mappings
	zeros []span // in ascending order, see [zeros]
	at    time.Time
}

// zerosHold is for how long what is known of all mappings is believed of those of other threads: another may have come in the place of one.
const zerosHold = 200 * time.Millisecond

// tells whether the answer holds for a stack, too: it was asked about all.
func (a *asked) tells(x *taking.Extent) bool {
	i, _ := slices.BinarySearchFunc(a.zeros, x.Low, func(s span, addr uint64) int { return cmp.Compare(s.high, addr+1) })
	return i < len(a.zeros) && a.zeros[i].low <= x.Low && x.High <= a.zeros[i].high
}

// resident is top or, if a page between from and there is not in memory, where that
// page begins.
func (ws *walks) resident(t *target, from, top uint64) uint64 {
	if !t.opened {
		t.pages, t.opened = proc.OpenPagemap(t.pid), true
	}
	return from + uint64(taking.Present(&ws.live, int(t.pages), from, int(top-from), &ws.pages))
}

// copySize is how many bytes of a stack to copy next, after a copy of have
// bytes in which the outermost frame found was reach bytes from the start;
// short: the copy was too small. old is what was to be copied before: what a thread has needed once it may need again. Where it needs less
// it shrinks each time by a part in slowly. See [wholeCopy].
func copySize(old int, reach uint64, short bool, have, slowly int) int {
	need := minCopy
	if reach < maxCopy {
		need = int(reach) + 1024
	}
	if short {
		need = max(4*have, need)
	} else {
		need += need/4 + minCopy // room for a signal's frame
		need = max(need, old-old/slowly)
	}
	return min(need, maxCopy)
}

// wholeCopy is how many bytes are copied where so many are wanted.
func wholeCopy(want int) int {
	return min(max((want+minCopy-1)&^(minCopy-1), minCopy), maxCopy)
}

// stackPointer is that of a thread.
func stackPointer(r *capture.Registers) uint64 {
	if len(r.Note) > 0 {
		return ptrace.StackPointer(r.Note)
	}
	return r.Call.SP
}
