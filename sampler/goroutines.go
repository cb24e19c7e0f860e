package sampler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/regs"
	"sfsample/sampler/goroutines"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// GoProcess is what a dump shows of the goroutines of a Go program.
type GoProcess struct {
	PID        int
	Process    string
	Version    string       // of Go
	Goroutines []*Goroutine // that no thread runs, by number
	Counts     GoCounts
	// Stackless is how many of Goroutines have no stack, since there are too many different ones.
	Stackless int
	Err       error // why they are not shown, and what helps; nil: they are
}

// GoCounts tell what became of the goroutines of a process.
type GoCounts = goroutines.Counts

// GoObject is what a goroutine waits on.
type GoObject = goroutines.Object

// Goroutine is a goroutine that no thread runs.
type Goroutine struct {
	*GoState
	ID, Parent uint64        // Parent 0: not known
	Waits      time.Duration // at least this long; 0: not known
	Objects    []GoObject
	SP         uint64
	Thread     int32 // that it is locked to, as its own pid namespace has it; 0: none
	// Runs and SP tell whether it has run between two dumps: one of them has changed then, as a rule.
	Runs uint8
}

// GoState is what goroutines of a process may have in common: those with the same have the same GoState.
type GoState struct {
	Status  string        // "waiting", "runnable", "preempted" or "leaked"
	Reason  string        // what it waits for, in the words of Go's runtime; empty: not known, or it does not wait
	Runtime bool          // it is one of the runtime's own, in the runtime's own code
	Creator *output.Frame // the statement that started it; nil: not known
	Stack   *output.Stack // nil: see [GoProcess.Stackless]

	coroutine bool // it runs the body of an iter.Pull
}

// goStateKey is what a GoState is made of.
type goStateKey struct {
	raw            *stack
	status, reason string
	start, creator uint64 // addresses
}

// Bounds of a dump's goroutines.
const (
	// goroutinesFor is how long a dump may read them.
	goroutinesFor = 5 * time.Second
	// maxGoFrames bounds the frames of different stacks (about 200 bytes each when they are named).
	maxGoFrames = 1 << 17
)

// goroutines reads the goroutines of those of the processes that are Go programs.
func (p *Pipeline) goroutines(pids []int) (list []*GoProcess) {
	until := time.Now().Add(goroutinesFor)
	for _, pid := range pids {
		t := p.targets.of(pid)
		if t.space == nil || t.limit != "" {
			continue
		}
		if g := p.goroutinesOf(t, until); g != nil {
			list = append(list, g)
		}
	}
	return list
}

// goTries is how often the goroutines are read of a process that maps other code meanwhile.
const goTries = 3

// goroutinesOf reads the goroutines of a process; nil: it is no Go program.
func (p *Pipeline) goroutinesOf(t *target, until time.Time) (g *GoProcess) {
	p.walks.attest(t, time.Since(p.cfg.Start))
	for range goTries {
		m, gen := goModule(t), t.space.Generation()
		if m == nil {
			return nil
		}
		g = &GoProcess{PID: t.pid, Process: t.name}
		if g.Err = p.readGoroutines(t, m, g, until); errors.Is(g.Err, symbol.ErrNotGo) {
			return nil
		}
		if p.walks.attest(t, time.Since(p.cfg.Start)); t.space.Generation() == gen {
			return g
		}
	}
	return &GoProcess{PID: t.pid, Process: t.name, Err: errors.New("the process maps and unmaps code all the time")}
}

// goModule is the object that has Go's runtime: the program, or one whose code was met in stacks. nil: there is none.
func goModule(t *target) *module.Module {
	exe, _, err := proc.Exe(t.pid)
	var other *module.Module
	for i, m := range t.space.Modules() {
		program := m.Path == exe || err != nil && i == 0
		if m.Arch == nil || m.Arch.WordBytes != 8 || m.VDSO() || !m.Go(program) {
			continue
		}
		if program {
			return m // what else Go's linker has made are its plugins
		}
		if other == nil {
			other = m
		}
	}
	return other
}

// goMemory is the memory of a process, for package goroutines.
type goMemory struct {
	module.Source
	list []module.Range
}

// ReadRanges implements goroutines.Memory.
func (m *goMemory) ReadRanges(buf []byte, list []goroutines.Range) (done int) {
	m.list = m.list[:0]
	for _, r := range list {
		m.list = append(m.list, module.Range(r))
	}
	if v, ok := m.Source.(module.Vector); ok {
		done, _ = v.ReadRanges(buf, m.list)
		return done
	}
	for _, r := range list {
		n, err := m.ReadAt(buf[done:done+r.Size], int64(r.Addr))
		if done += n; err != nil {
			break
		}
	}
	return done
}

// goReading is the reading of one process's goroutines.
type goReading struct {
	p       *Pipeline
	t       *target
	mem     *goMemory
	runtime *goroutines.Runtime
	arch    *regs.Arch
	walker  *unwind.Walker
	out     *GoProcess
	now     uint64   // of the target's monotonic clock, in nanoseconds; 0: not known
	since   []uint64 // of each goroutine of out
	known   map[uint64][]*stack
	held    int // frames in known
	states  map[goStateKey]*GoState
	names   map[uint64]*output.Frame
}

// readGoroutines reads, unwinds and names the goroutines of the runtime in m.
func (p *Pipeline) readGoroutines(t *target, m *module.Module, out *GoProcess, until time.Time) error {
	f, err := m.OpenFile()
	if err != nil {
		return fmt.Errorf("its program cannot be read: %w", err)
	}
	defer f.Close()
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	prog, err := symbol.OpenGoProgram(f, late.New(ctx))
	if err != nil {
		return err
	}
	defer prog.Close()
	r := &goReading{p: p, t: t, mem: &goMemory{Source: t.space.Source()}, arch: m.Arch, walker: t.walker(m.Arch, 0, &p.cfg), out: out,
		known: map[uint64][]*stack{}, names: map[uint64]*output.Frame{}, states: map[goStateKey]*GoState{}, now: clockOf(t.pid)}
	if r.runtime, err = goroutines.Open(prog, m.Bias, r.mem); err != nil && ctx.Err() != nil {
		return errors.New("there was no time left to read its program")
	} else if err != nil {
		return err
	}
	out.Version = r.runtime.Version
	if out.Counts, err = r.runtime.Read(r.mem, until, r.take); err != nil {
		return err
	}
	for k, g := range r.states {
		r.name(k, g)
	}
	r.waits()
	slices.SortFunc(out.Goroutines, func(a, b *Goroutine) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

// clockOf is the monotonic clock as a process has it, which Go's runtime reads; 0: it has a time namespace of its own.
func clockOf(pid int) uint64 {
	own, ownErr := proc.Namespace(unix.Getpid(), "time")
	its, err := proc.Namespace(pid, "time")
	var ts unix.Timespec
	if own != its || (ownErr == nil) != (err == nil) || unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}

// take unwinds a goroutine.
func (r *goReading) take(g *goroutines.G, copied []byte) {
	d := &Goroutine{ID: g.ID, Parent: g.Origin.Parent, Objects: g.Wait.Objects, Thread: int32(g.Thread), Runs: g.Runs, SP: g.Stack.SP}
	frames, end := r.walk(g, copied)
	reason := ""
	if !end.Complete() {
		reason = end.Reason.String()
	}
	k := goStateKey{raw: r.stack(frames, reason), status: g.Status.String(), reason: g.Wait.Reason, start: g.Origin.Start, creator: g.Origin.GoPC}
	if k.raw == nil {
		r.out.Stackless++
	}
	if d.GoState = r.states[k]; d.GoState == nil {
		d.GoState = &GoState{Status: k.status, Reason: k.reason}
		r.states[k] = d.GoState
	}
	r.out.Goroutines, r.since = append(r.out.Goroutines, d), append(r.since, g.Wait.Since)
}

// waits tells how long each has waited at least. A collection of garbage that finds a goroutine waiting for the first time notes the time of the
// collection before it (markroot, runtime/mgcmark.go; gcMark, runtime/mgc.go), when that goroutine may have run still. It was found
// before the next later time that is noted in any.
//
// What a coroutine and who has made it hand to each other leaves the time that they have (coroswitch_m, runtime/coro.go): of these nothing is told. Of
// who goes on behind the last value of one that has ended the time may be that of its wait for that still, and who helped a collection may
// have run on for a time slice.
func (r *goReading) waits() {
	times := slices.Compact(slices.Sorted(slices.Values(r.since)))
	stale := map[uint64]bool{}
	for _, g := range r.out.Goroutines {
		if g.coroutine || g.Reason == "coroutine" {
			stale[g.ID], stale[g.Parent] = true, true
		}
	}
	for i, g := range r.out.Goroutines {
		since := r.since[i]
		if since == 0 || since >= r.now || stale[g.ID] {
			continue
		}
		if at, _ := slices.BinarySearch(times, since+1); at < len(times) && times[at] < r.now {
			g.Waits = time.Duration(r.now - times[at])
		}
	}
}

// stack is the stack with these frames and this end; nil: there are too many.
func (r *goReading) stack(frames []unwind.Frame, end string) *stack {
	p := r.p
	p.keys = frameKeys(p.keys[:0], frames)
	h := hashFrames(p.keys, nil, end)
	for _, s := range r.known[h] {
		if s.is(p.keys, nil, end) {
			return s
		}
	}
	if r.held+len(frames) > maxGoFrames {
		return nil
	}
	r.held += len(frames)
	s := r.t.intern(p.cfg.Names, p.keys, nil, end)
	r.known[h] = append(r.known[h], s)
	return s
}

// walk walks the stack of a goroutine, from larger copies if that takes them.
func (r *goReading) walk(g *goroutines.G, copied []byte) ([]unwind.Frame, unwind.End) {
	set := regs.Set{PC: g.PC}
	set.SetReg(r.arch.SP, g.Stack.SP)
	if r.arch != regs.S390X { // Go has no frame pointers there
		set.SetReg(r.arch.FP, g.FP)
	}
	walk := r.walker.WalkCaller
	if g.PC == g.Origin.Start { // it has not run yet
		walk = r.walker.Walk
	}
	p := r.p
	var others []unwind.Region
	for again := 0; ; again++ {
		gen := r.t.space.Generation()
		p.walks.mem.Reset(g.Stack.SP, copied, nil)
		p.walks.mem.Also = others
		frames, end := walk(&set, &p.walks.mem, p.walks.frames[:0])
		p.walks.frames = frames
		if r.t.space.Generation() != gen && again < maxWalks {
			continue
		}
		if end.Reason == unwind.OutsideCopy && len(r.walker.Stacks()) > 0 {
			o, ok := r.other(g, end.Addr)
			if !ok || len(others) == maxOtherStacks {
				return frames, end
			}
			others = append(others, o)
			continue
		}
		size := min(4*len(copied), g.Stack.Bytes(), maxCopy)
		if end.Reason != unwind.OutsideCopy || size <= len(copied) {
			return frames, end
		}
		more := r.runtime.Stack(r.mem, g, size)
		if more == nil {
			return frames, end
		}
		copied = more
	}
}

// maxOtherStacks bounds the pieces of other stacks that are read for one goroutine.
const maxOtherStacks = 16

// other reads a piece of another stack than the goroutine's own, where addr is: that of C code that has called it. The thread of that
// is locked to the goroutine, so that the stack stays as it is while the goroutine waits.
func (r *goReading) other(g *goroutines.G, addr uint64) (o unwind.Region, ok bool) {
	x := stackExtent(r.t.space.Mappings(), addr)
	if x.High == 0 {
		return o, false
	}
	o.Addr = max(x.Low, (addr-min(addr, taking.RedZone))&^7)
	size, _ := x.Bytes(o.Addr, otherCopy)
	o.Bytes = r.runtime.Memory(r.mem, g, o.Addr, size)
	return o, uint64(len(o.Bytes)) >= addr-o.Addr+8
}

// name names what a state has of addresses.
func (r *goReading) name(k goStateKey, g *GoState) {
	if k.raw != nil {
		g.Stack = r.p.cfg.Names.stack(k.raw)
	}
	if k.creator != 0 {
		g.Creator = r.frame(k.creator, true)
	}
	if f := r.frame(k.start, false); f != nil {
		g.coroutine = f.Func == "runtime.corostart"
		g.Runtime = ofRuntime(f.Func) && !slices.Contains(userStarts, f.Func) && g.Stack != nil &&
			!slices.ContainsFunc(g.Stack.Frames, func(f output.Frame) bool { return !ofRuntime(f.Func) })
	}
}

// userStarts are functions of the runtime that goroutines begin in which are the program's (runtime/traceback.go,
// isSystemGoroutine). What runs finalizers is, while one of the program's is on its stack.
var userStarts = []string{"runtime.main", "runtime.handleAsyncEvent", "runtime.corostart"}

// ofRuntime tells whether a function is of Go's runtime.
func ofRuntime(fn string) bool { return strings.HasPrefix(fn, "runtime.") }

// frame names the function at an address; nil: it has no name.
func (r *goReading) frame(pc uint64, caller bool) *output.Frame {
	if f, ok := r.names[pc]; ok {
		return f
	}
	var f *output.Frame
	raw := r.t.frame(r.p.cfg.Names, frameKey{pc: pc, caller: caller})
	if list := r.p.cfg.Names.frames(r.t.names, raw); raw.module != nil && len(list) > 0 && list[len(list)-1].Func != "" {
		f = &list[len(list)-1]
	}
	r.names[pc] = f
	return f
}
