package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/regs"
	"sfsample/unwind"
)

// config is what a run does.
type config struct {
	command []string
	steps   int // instructions in all
	stretch int // instructions in a row, then the program runs on for a while
	wait    time.Duration
	seed    uint64
	orders  [][]unwind.How
}

// tracer follows one process.
type tracer struct {
	config  config
	res     *result
	rng     *rand.Rand
	tracee  tracee
	program *program
	walkers []*unwind.Walker
	base    *unwind.Walker // whose first walk gives the base
	shadow  shadow
	mem     unwind.Memory
	stack   []byte
	frames  []unwind.Frame
	// pending are wrong chains that the next jump may prove to be ahead.
	pending []pendingChain
}

// pendingChain is a chain judged wrong at its innermost frame. glibc's longjmp
// and swapcontext have tables that describe where they are about to jump; if
// the thread gets there, with that stack pointer, the chain was right in this sense.
type pendingChain struct {
	tally   *tally
	place   place
	example string
	target  point
	left    int // instructions in which it must come true
}

// aheadWithin is more than longjmp takes from loading the first register of the
// target to the jump, with the undoing of a shadow stack.
const aheadWithin = 64

// orderName is an order as --unwind spells it.
func orderName(order []unwind.How) string {
	var names []string
	for _, h := range order {
		names = append(names, h.String())
	}
	return strings.Join(names, ",")
}

// run follows the command, started anew as often as it exits, until enough
// instructions were stepped.
func run(c config) (*result, error) {
	// All requests of a tracee come from the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	res := &result{tallies: map[string]*tally{}, badBase: map[string]int{}}
	for _, o := range c.orders {
		res.orders = append(res.orders, orderName(o))
		res.tallies[orderName(o)] = new(tally)
	}
	rng := rand.New(rand.NewPCG(c.seed, 0))
	for first := true; res.steps < c.steps; first = false {
		before := res.steps
		t := &tracer{config: c, res: res, rng: rng}
		if err := t.follow(first); err != nil && !errors.Is(err, errExited) {
			return res, err
		}
		if res.steps == before && !first {
			break // too short to be met at a later moment
		}
	}
	return res, nil
}

// follow starts the command once. fromStart: the first stretch begins at its
// first instruction.
func (t *tracer) follow(fromStart bool) error {
	cmd := exec.Command(t.config.command[0], t.config.command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	t.tracee.pid = cmd.Process.Pid
	defer func() {
		unix.Kill(t.tracee.pid, unix.SIGKILL)
		cmd.Wait()
	}()
	if _, err := t.tracee.wait(); err != nil { // the stop of the exec
		return err
	}
	if err := t.attach(); err != nil {
		return err
	}
	for first := true; t.res.steps < t.config.steps; first = false {
		if !first || !fromStart {
			if err := t.tracee.runFor(time.Duration(1 + t.rng.Int64N(int64(t.config.wait)))); err != nil {
				return err
			}
		}
		if err := t.program.space.Refresh(); errors.Is(err, unix.ESRCH) { // it has called exec
			if err := t.attach(); err != nil {
				return err
			}
		}
		if err := t.followStretch(); err != nil {
			return err
		}
	}
	return nil
}

// attach makes the walkers for the process as it is now.
func (t *tracer) attach() error {
	if err := t.tracee.readRegs(); err != nil {
		return err
	}
	var err error
	if t.program, err = openProgram(&t.tracee); err != nil {
		return err
	}
	walker := func(order []unwind.How) *unwind.Walker {
		return unwind.New(t.program.arch, t.program.space, order, 4096)
	}
	t.walkers = nil
	for _, o := range t.config.orders {
		t.walkers = append(t.walkers, walker(o))
	}
	t.base = walker([]unwind.How{unwind.EHFrame, unwind.SFrame, unwind.FramePointer, unwind.BackChain})
	return nil
}

// followStretch steps through one stretch.
func (t *tracer) followStretch() error {
	if err := t.tracee.readRegs(); err != nil {
		return err
	}
	if err := t.program.refresh(); err != nil {
		return err
	}
	t.res.stretches++
	t.shadow = shadow{link: t.program.arch.Link, wordLen: uint64(t.program.arch.WordBytes), needBase: true}
	t.shadow.sameStack = func(a, b uint64) bool { return t.program.stackOf(a) == t.program.stackOf(b) }
	t.shadow.stack = t.program.stackOf(t.tracee.at().sp)
	defer func() {
		t.settle(point{}, true)
		t.res.switches += t.shadow.switches
		for _, pc := range t.shadow.badBase {
			p := t.program.place(pc - 1)
			t.res.badBase[fmt.Sprintf("%s+%#x %s", p.module, p.offset, p.fn)]++
		}
	}()
	sig := unix.Signal(0)
	left := min(t.config.stretch, t.config.steps-t.res.steps)
	// The end of the stretch may lie inside a longjmp: then the verdict on its
	// chains is a few instructions away.
	for ; left > 0 || len(t.pending) > 0; left-- {
		if left > 0 {
			t.compare()
			t.res.steps++
		}
		from := t.tracee.at()
		link := t.tracee.user.Set.R[t.program.arch.RA&31]
		d := t.program.insn(from.pc)
		if err := t.tracee.singleStep(sig); err != nil {
			return errExited
		}
		delivered := sig
		var err error
		if sig, err = t.tracee.wait(); err != nil {
			return err
		}
		if sig == unix.SIGTRAP {
			sig = 0
		}
		if err := t.tracee.readRegs(); err != nil {
			return err
		}
		if t.program.arch == regs.S390X && d.kind == other && t.tracee.user.Set.PC != from.pc+d.len {
			if t.ranTwo(link) {
				return errNotExact
			}
		}
		t.advance(d, delivered != 0, from)
		t.settle(t.tracee.at(), false)
	}
	return nil
}

// advance brings the shadow up to date after a step.
func (t *tracer) advance(d decoded, delivered bool, from point) {
	to := t.tracee.at()
	if d.kind == syscallInsn {
		// It may have changed the mappings.
		_ = t.program.refresh()
	}
	if to == from && d.kind != other {
		return // the stop is for a signal; the instruction has not run
	}
	if delivered && t.handlerEntered(from, to) {
		return
	}
	n := d.len
	if d.kind == call && !t.program.arch.Link {
		if ra, err := t.program.word(to.sp); err == nil {
			n = ra - from.pc
		}
	}
	k := d.kind
	if t.program.arch.Link && k == other && to.pc != from.pc+n && t.program.behindCall(to.pc) && changesFrame(t.program.place(from.pc).fn) {
		k = leave
	}
	t.shadow.step(k, from, to, n, t.program.stackOf)
}

// errNotExact: the machine's single step cannot serve as an oracle.
var errNotExact = errors.New("a single step ran a branch and the instruction that it leads to (the program event recording of QEMU's s390x does; try a real machine)")

// ranTwo: a step from a branch ran a call too, since the link register holds a
// new return address. Seen on s390x under QEMU.
func (t *tracer) ranTwo(link uint64) bool {
	now := t.tracee.user.Set.R[t.program.arch.RA]
	return now != link && t.program.behindCall(now)
}

// handlerEntered: a delivered signal began a handler rather than being ignored.
// The interrupted pc is the one that the kernel stored, since it goes back
// before a system call that is to be restarted.
func (t *tracer) handlerEntered(from, to point) bool {
	if to.pc == from.pc && to.sp == from.sp {
		return false
	}
	var tramp, pcAt, spAt uint64
	switch t.program.arch.Name {
	case "amd64":
		var err error
		if tramp, err = t.program.word(to.sp); err != nil {
			return false
		}
		pcAt, spAt = to.sp+8+168, to.sp+8+160
	case "arm64":
		tramp, pcAt, spAt = t.tracee.user.Set.R[30], to.sp+568, to.sp+560
	case "s390x":
		tramp, pcAt, spAt = t.tracee.user.Set.R[14], to.sp+344, to.sp+472
	}
	pc, err := t.program.word(pcAt)
	if err != nil {
		return false
	}
	sp, err := t.program.word(spAt)
	if err != nil || sp != from.sp || from.pc-pc > 8 {
		return false
	}
	t.res.signals++
	t.shadow.signal(point{pc, sp}, to, tramp, t.program.stackOf)
	return true
}

// redZone lies below the stack pointer (System V ABI AMD64, section 3.2.2).
const redZone = 128

// copyStack reads the stack from the red zone to the outermost frame known.
func (t *tracer) copyStack() {
	sp := t.tracee.at().sp
	size := uint64(8 << 10)
	if n := len(t.shadow.entries); n > 0 {
		if top := t.shadow.entries[0].sp; top > sp && top-sp < 1<<20 {
			size = top - sp + 512
		}
	}
	if uint64(cap(t.stack)) < size+redZone {
		t.stack = make([]byte, size+redZone)
	}
	b := t.stack[:size+redZone]
	n, _ := t.program.src.ReadAt(b, int64(sp-redZone))
	t.mem.Reset(sp-redZone, b[:max(0, n)], t.program.src)
}

// compare judges the walks of all orders at the current instruction.
func (t *tracer) compare() {
	if t.shadow.arriving {
		t.res.arriving++
		return
	}
	t.copyStack()
	if t.shadow.needBase {
		frames, end := t.base.Walk(&t.tracee.user.Set, &t.mem, t.frames[:0])
		t.frames = frames
		if t.program.switching(frames) {
			t.res.arriving++
			return
		}
		n := slices.IndexFunc(frames, func(f unwind.Frame) bool { return f.How == unwind.FramePointer })
		if n < 0 {
			t.shadow.adopt(frames, end.Complete())
		} else { // may be any word: code without tables may use the register for something else
			t.shadow.adopt(frames[:n], false)
		}
	}
	t.res.maxDepth = max(t.res.maxDepth, len(t.shadow.entries)+1)
	for i, w := range t.walkers {
		var end unwind.End
		begun := time.Now()
		t.frames, end = w.Walk(&t.tracee.user.Set, &t.mem, t.frames[:0])
		t.res.tallies[t.res.orders[i]].walked(len(t.frames)-1, len(t.shadow.entries), time.Since(begun))
		v, at := t.shadow.judge(t.frames, end.Complete())
		if v == wrong && t.rewrote(at) {
			v, at = t.shadow.judge(t.frames, end.Complete())
		}
		t.count(t.res.tallies[t.res.orders[i]], v, at, end)
	}
}

// count adds a verdict to the tally of its order.
func (t *tracer) count(tally *tally, v verdict, at int, end unwind.End) {
	if v == right {
		tally.counts[right]++
		return
	}
	p := t.program.place(t.frames[at].LookupPC())
	p.verdict = v
	if at > 0 {
		inner := t.program.place(t.frames[0].PC)
		p.inner = inner.module + " " + inner.fn
	}
	p.defect = t.defect(at, end.Reason)
	switch {
	case v == cut:
		p.reason = end.Reason
	case at+1 < len(t.frames):
		p.how = t.frames[at+1].How
	}
	if v == wrong && at == 0 && len(t.frames) > 1 {
		t.pending = append(t.pending, pendingChain{tally, p, t.example(at),
			point{t.frames[1].PC, t.frames[1].SP}, aheadWithin})
		return
	}
	tally.add(p, func() string { return t.example(at) })
}

// settle decides on the pending chains after a step to a new point; end: there
// are no more steps.
func (t *tracer) settle(to point, end bool) {
	keep := t.pending[:0]
	for _, c := range t.pending {
		c.left--
		switch {
		case c.target == to:
			c.place.verdict = ahead
			fallthrough
		case c.left == 0 || end:
			c.tally.add(c.place, func() string { return c.example })
		default:
			keep = append(keep, c)
		}
	}
	t.pending = keep
}

// rewrote: the frame after at is not the one that was called from, but is what
// the program has stored in its place since.
func (t *tracer) rewrote(at int) bool {
	n := len(t.shadow.entries)
	if t.program.arch.Link || at+1 > n || at+1 >= len(t.frames) {
		return false
	}
	e := &t.shadow.entries[n-1-at]
	if e.exact || e.moved {
		return false
	}
	v, err := t.program.word(t.shadow.slot(e))
	if err != nil || v == e.ret || v != t.frames[at+1].PC {
		return false
	}
	e.ret, e.rewritten = v, true
	t.res.rewritten++
	return true
}

// example shows the walk and the true stack around frame at.
func (t *tracer) example(at int) string {
	var b strings.Builder
	n := len(t.shadow.entries)
	for i := max(0, at-1); i <= at+2; i++ {
		got, want := "-", "-"
		if i < len(t.frames) {
			p := t.program.place(t.frames[i].LookupPC())
			got = fmt.Sprintf("%#x %s+%#x %s [%v] sp %#x", t.frames[i].PC, p.module, p.offset, p.fn, t.frames[i].How, t.frames[i].SP)
		}
		if i == 0 {
			want = fmt.Sprintf("%#x", t.tracee.at().pc)
		} else if i <= n {
			e := &t.shadow.entries[n-i]
			p := t.program.place(e.ret - 1)
			want = fmt.Sprintf("%#x %s+%#x %s sp %#x", e.ret, p.module, p.offset, p.fn, e.sp)
		}
		fmt.Fprintf(&b, "        #%d got %s; true %s\n", i, got, want)
	}
	return b.String()
}
