package sampler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"time"

	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// PipelineConfig says how captures become samples.
type PipelineConfig struct {
	Host     string // GOARCH of the kernel that the captures come from
	Start    time.Time
	Order    []unwind.How // nil: the default
	MaxDepth int
	Sink     output.Sink
	Names    *Names
	Record   *capture.Writer // nil: no recording
	Log      *slog.Logger
	// Open gives the address space of a process, live or recorded.
	Open   func(pid int) (Target, error)
	Kernel bool // the kernel's part of stacks is wanted
	Verify bool // every two methods are compared at each frame
	// Scripts: frames of scripts take the place of their interpreter's. ScriptsOnly: other frames of stacks that have such are left out.
	Scripts, ScriptsOnly bool
	// Wait, if set, looks at what a blocked thread waits for, by its system call, its stack pointer and its run
	// count (0: not known). What it returns puts that in a few words, with the thread's frames; it is called on
	// another goroutine. nil: nothing can be told.
	Wait func(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string
	// Slow, if set, is called when unwinding and naming still go on half a second
	// after the last capture.
	Slow func()
	// Live: captures come from processes that live now, whose memory and names
	// may be read.
	Live bool
}

// Target is what the pipeline asks about one process. A live one may also be told of its mappings (Offer), and
// that it is another program by now (Replace); its program's architecture (Arch) is not known of every one.
type Target interface {
	unwind.Space
	// ReadAt reads memory of now. No read waits for a page that the server of a file would have to bring.
	io.ReaderAt
	Code
	Layout
	History
	// Modules returns the objects with code, by address.
	Modules() []*module.Module
	// Report tells what is known of each module.
	Report() []module.Report
	// Close ends the use of it.
	Close()
}

// Code tells what an address belongs to.
type Code interface {
	// Module returns the object that covers pc, and pc in its own numbering.
	Module(pc uint64) (*module.Module, uint64, bool)
	// Function returns the function that covers pc by the unwind tables.
	Function(pc uint64) (module.Function, bool)
}

// Layout is the list of mappings.
type Layout interface {
	// Mappings returns the mappings as they were last read.
	Mappings() []procfs.Mapping
	// Refresh reads the mappings anew.
	Refresh() error
	// Listed is when the list of mappings had been read last.
	Listed() time.Time
}

// History tells what became of code.
type History interface {
	// Verify compares the objects with memory and drops those that are no longer
	// what they were.
	Verify() (changed bool, err error)
	// Changes returns which code has changed since it was last asked.
	Changes() []module.Change
	Place
}

// Place is what is at an address, and has been.
type Place interface {
	// CodeAt returns the executable mapping at pc.
	CodeAt(pc uint64) (module.Code, bool)
	// Moved tells whether other objects than now were at pc before.
	Moved(pc uint64) bool
}

// Pipeline turns captures into samples: it unwinds them, has them named, and
// hands them to the outputs. It keeps what it knows of each process.
type Pipeline struct {
	cfg     PipelineConfig
	pool    *pool
	fs      procfs.FS
	targets map[int]*target
	queue   chan named
	latest  time.Duration // of the samples that were sent, for what has no time of its own
	stats   Unwound
	err     error // those of the outputs and of the recording
	// recordErr is why nothing more is recorded.
	recordErr error

	mem    unwind.Memory // of the walk under way
	also   []unwind.Region
	over   []unwind.Stack // stacks that the walk under way went over to
	owned  []unwind.Owned // frames of it that are of a runtime's code
	blocks []block        // of memory that it wanted
	held   int            // thread that is stopped while its capture is unwound
	live   taking.Live
	pages  taking.Buffer // room to read a pagemap
	frames []unwind.Frame
	ahead  []unwind.Frame // of a walk that only tells what to copy
	keys   []frameKey     // of the stack under way
	script scriptWalk     // of its interpreter
	hurry  bool           // the engine has got advice that makes its next captures better

	modules, problems map[string]bool // to report, of each at most maxReported
	differences       map[string]int64
}

// Unwound counts what unwinding found.
type Unwound struct {
	Stacks   int64 // captures walked
	Complete int64
	Cut      map[string]int64 // by reason
	Repeated int64            // walks where .eh_frame led further than .sframe
	Frames   map[unwind.How]int64
	Short    int64 // transfers that a stop may have ended early
	Scripts  Scripts
}

// target is one process in the pipeline.
type target struct {
	pid      int
	names    *processNames
	space    Target
	pages    procfs.Pagemap // if it was opened
	opened   bool
	err      error // why there is no space
	name     string
	limit    string // why its code is not unwound
	gen      uint64 // of the mappings that were last recorded
	past     past
	walkers  map[walkerKey]*unwind.Walker
	threads  map[int]*seen
	stacks   map[uint64][]*stack
	frames   map[frameKey]*rawFrame
	stackGen uint64 // generation of the mappings that stacks and frames belong to
	held     int    // frames in stacks
	asked    int    // stacks of which was asked what their missing pages are
	scripts  *scripts
}

type walkerKey struct {
	arch *regs.Arch
	pac  uint64
}

// seen is what the pipeline remembers of a thread.
type seen struct {
	name  string
	named time.Duration // when the name was read
	last  *stack
	state string
	sent  time.Duration // time of the last sample that went out
	vain  uint          // cut stacks in a row that have told nothing new of what to copy

	waiting, waitsOn *stack // see waits
	asleep           asleep
	ask              bool // what it waits for
	script           threadScript
}

// NewPipeline makes a pipeline; it works once a run gives it captures.
func NewPipeline(cfg PipelineConfig) *Pipeline {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Pipeline{
		cfg: cfg, pool: new(pool), targets: map[int]*target{}, queue: make(chan named, queued),
		modules: map[string]bool{}, problems: map[string]bool{}, differences: map[string]int64{},
		stats: Unwound{Cut: map[string]int64{}, Frames: map[unwind.How]int64{}},
	}
}

// Stats is what was unwound. Call it when the run is over.
func (p *Pipeline) Stats() Unwound { return p.stats }

// queued bounds the samples that wait to be named. Each may bring a stack of its
// own.
const queued = 1 << 11

// begin starts the goroutine that names and writes; the function it returns
// waits for its end.
func (p *Pipeline) begin(tick time.Duration) (end func()) {
	done, nudge := make(chan error), make(chan struct{})
	go func() { done <- p.write(newInbox(p.queue, nudge, tick)) }()
	return func() {
		close(p.queue)
		close(nudge)
		if err := <-done; err != nil {
			p.fail(err)
		}
	}
}

// write names and hands on what comes, until the queue ends. An error of one
// output is no reason to keep samples from the others: the sink knows which.
func (p *Pipeline) write(queue *inbox[named]) (err error) {
	for {
		n, ok := queue.next()
		if !ok {
			return err
		}
		if n.gone != nil {
			p.cfg.Names.forget(n.gone)
			continue
		}
		if n.round != nil {
			if s, ok := p.cfg.Sink.(RoundSink); ok {
				err = errors.Join(err, s.EndRound(n.round))
			}
			continue
		}
		n.sample.Stack = p.cfg.Names.stack(n.stack)
		n.sample.Wait = n.stack.wait
		if e := p.cfg.Sink.Add(&n.sample); e != nil {
			err = errors.Join(err, e)
		}
	}
}

// await waits for the end of what is unwound and named.
func (p *Pipeline) await(end <-chan struct{}) {
	if p.cfg.Slow != nil {
		slow := time.NewTimer(500 * time.Millisecond)
		defer slow.Stop()
		select {
		case <-end:
			return
		case <-slow.C:
			p.cfg.Slow()
		}
	}
	<-end
}

// fail keeps an error of the recording or of the outputs for the end.
func (p *Pipeline) fail(err error) {
	p.err = errors.Join(p.err, err)
}

// consume works until the items end, which come each tick. nudge tells of one that cannot wait.
func (p *Pipeline) consume(list <-chan item, nudge <-chan struct{}, tick time.Duration) {
	items, end := newInbox(list, nudge, tick), p.begin(tick)
	for {
		if p.hurry {
			items.hurry()
			p.hurry = false
		}
		it, _ := items.next()
		if it.end {
			break
		}
		switch {
		case it.capture != nil:
			if it.early != nil {
				p.early(it.capture.PID, it.capture.At, it.early)
			}
			if it.program != nil && it.program.replaced.Load() {
				p.replaced(it.capture.PID)
			}
			p.hurry = p.hurry || p.pool.scarce()
			p.capture(it.capture, it.fb)
			p.pool.put(it.capture)
		case it.credit != nil:
			p.credit(it.credit)
		case it.spent != nil:
			p.spent(it.spent)
		case it.opened != 0:
			p.opened(it.opened)
		case it.fork.child != 0:
			p.forked(it.fork)
		case it.gone != 0:
			p.forget(it.gone)
		case it.left.tid != 0:
			p.leave(it.left)
		case it.round != nil:
			p.queue <- named{round: it.round}
		}
	}
	p.closeAll()
	end()
}

// capture unwinds one capture and sends it on.
func (p *Pipeline) capture(c *capture.Capture, fb *Feedback) {
	t := p.target(c.PID)
	s := t.thread(c.TID)
	p.attest(t, c.At)
	p.nameThread(t, c.TID, s, c.At)
	st, state := p.unwind(t, c, fb)
	p.recordMaps(t, c.TID)
	p.record(c)
	s.last, s.state = st, state
	s.sleeps(c)
	p.waitsFor(t, c.TID, s)
	p.send(t, c.TID, s, c.At, c.Taken.String(), &c.Weight)
}

// asleep is where a blocked thread was seen, to be asked what it waits for.
type asleep struct {
	nr       int64
	sp, runs uint64
}

// sleeps notes where a thread was seen blocked.
func (s *seen) sleeps(c *capture.Capture) {
	s.asleep = asleep{nr: c.Call.NR, sp: c.Call.SP, runs: c.Count}
	if c.Taken != capture.Unstopped { // the stop has made it run
		s.asleep = asleep{nr: c.Call.NR}
	}
	s.ask = c.Blocked
}

// waitsFor makes the last stack of a blocked thread one of those that are told apart by what is waited for. Where
// nothing can be told it is tried again with the thread's next credit.
func (p *Pipeline) waitsFor(t *target, tid int, s *seen) {
	if p.cfg.Wait == nil || !s.ask {
		return
	}
	tell := p.cfg.Wait(t.pid, tid, s.asleep.nr, s.asleep.sp, s.asleep.runs)
	if tell == nil {
		return
	}
	s.ask = false
	// The other fields belong to the goroutine that names.
	s.last = &stack{kernel: s.last.kernel, text: s.last.text, frames: s.last.frames, end: s.last.end, process: s.last.process, plain: s.last, tell: tell}
}

// threadNameAge is how long the name of a thread is believed.
const threadNameAge = time.Second

func (p *Pipeline) nameThread(t *target, tid int, s *seen, at time.Duration) {
	if !p.cfg.Live || s.name != "" && at-s.named < threadNameAge {
		return
	}
	s.named = at
	name, err := p.fs.Comm(t.pid, tid)
	if err != nil || name == s.name {
		return
	}
	s.name = name
	p.record(&capture.Name{PID: t.pid, TID: tid, Name: name})
}

func (p *Pipeline) send(t *target, tid int, s *seen, at time.Duration, taken string, w *capture.Weight) {
	name := s.name
	if name == "" {
		name = t.name
	}
	// Credits have the coordinator's time, captures that of their clock: a thread's samples go out in order.
	at = max(at, t.thread(tid).sent)
	t.thread(tid).sent = at
	p.latest = max(p.latest, at)
	p.queue <- named{stack: s.last, sample: output.Sample{
		Time: p.cfg.Start.Add(at), PID: t.pid, TID: tid, Process: t.name, Thread: name,
		State: s.state, Taken: taken, CPU: w.CPU, Wall: w.Wall, Delay: w.Delay, Pause: w.Pause, Late: w.Late,
	}}
}

// noStack is the one frame of the stack that is credited to a thread of which there is
// no capture: a recording may have been cut, or have lost it.
var noStack = &stack{named: &output.Stack{Frames: []output.Frame{{Func: "[no stack]"}}}}

// credit gives the last stack of a thread more weight.
func (p *Pipeline) credit(c *capture.Credit) {
	t := p.target(c.PID)
	s := t.thread(c.TID)
	if s.last == nil {
		s.last, s.state = noStack, "blocked"
	}
	p.record(c)
	p.waitsFor(t, c.TID, s)
	if c.Waited {
		s = &seen{name: s.name, last: s.waits(), state: "waiting"}
	}
	p.send(t, c.TID, s, c.At, "reused", &c.Weight)
}

// waits is the last stack of a thread with the frame on it that stands for waiting for a CPU.
func (s *seen) waits() *stack {
	if s.waiting == nil || s.waitsOn != s.last {
		s.waiting = &stack{kernel: []output.Frame{{Func: "[waiting for a CPU]"}}, frames: s.last.frames, end: s.last.end, process: s.last.process}
		s.waitsOn = s.last
	}
	return s.waiting
}

// neverCaught is the one frame of the stack to which CPU time goes that no
// sample stands for.
var neverCaught = &stack{named: &output.Stack{Frames: []output.Frame{{Func: "[never caught running]"}}}}

func (p *Pipeline) spent(c *capture.Spent) {
	t := p.target(c.PID)
	p.record(c)
	p.send(t, c.PID, &seen{last: neverCaught, state: "running"}, p.latest, "none", &c.Weight)
}

// Reasons for which a stack has no caller at all, besides those of unwinding.
const (
	noMaps = "no mappings"
	noRegs = "no registers"
	// codeChanged: what was mapped when the stack was captured is not known.
	codeChanged = "code changed"
)

// unwind walks the stack of a capture. The state is "running" or the number of
// the system call.
func (p *Pipeline) unwind(t *target, c *capture.Capture, fb *Feedback) (*stack, string) {
	p.script.ok = false
	u, err := p.user(t, c)
	state := "running"
	if c.Blocked {
		state = callName(u.Arch, c.Call.NR)
	}
	if c.Taken != capture.Unstopped && ownStop(c.Kernel) {
		c.Kernel = c.Kernel[:0]
	}
	if err != nil {
		return p.cut(t, c, nil, noRegs), state
	}
	if t.space != nil && c.Taken == capture.Stopped && shortened(&u, t.space.Code) {
		p.stats.Short++
	}
	frame0 := []unwind.Frame{{PC: u.Set.PC}}
	if u.Limit != "" {
		return p.cut(t, c, frame0, u.Limit), state
	}
	if t.space == nil {
		return p.cut(t, c, frame0, noMaps), state
	}
	frames, end, sure := p.surely(t, c, &u)
	p.readScript(t, c, &u, frames)
	if p.cfg.Verify {
		p.verifyWalk(t, c, &u)
	}
	p.advise(t, &u, c, fb, frames, end)
	for i := range frames[:sure] {
		p.stats.Frames[frames[i].How]++
	}
	if end.Repeated {
		p.stats.Repeated++
	}
	if sure < len(frames) {
		return p.cut(t, c, frames[:sure], codeChanged), state
	}
	if end.Complete() {
		p.stats.Stacks++
		p.stats.Complete++
		return p.intern(t, c, frames, c.Kernel, ""), state
	}
	p.cfg.Log.Debug("stack cut", "pid", c.PID, "tid", c.TID, "reason", end.Reason, "addr", fmt.Sprintf("%#x", end.Addr), "frames", len(frames),
		"at", t.place(frames[len(frames)-1]))
	return p.cut(t, c, frames, end.Reason.String()), state
}

func (p *Pipeline) cut(t *target, c *capture.Capture, frames []unwind.Frame, reason string) *stack {
	p.stats.Stacks++
	p.stats.Cut[reason]++
	return p.intern(t, c, frames, c.Kernel, reason)
}

// maxWalks bounds how often a stack is walked whose process changes its mappings
// all the time.
const maxWalks = 8

// walk unwinds; a thread that was not stopped, or still is, and whose stack outgrew its copy is read again,
// whole, while it has not run.
func (p *Pipeline) walk(t *target, c *capture.Capture, u *regs.User) ([]unwind.Frame, unwind.End) {
	w := t.walker(u.Arch, c.PACMask, &p.cfg)
	for again := 0; ; again++ {
		gen := t.space.Generation()
		p.load(c)
		p.manage(t)
		frames, end := w.Walk(&u.Set, &p.mem, p.frames[:0])
		p.frames, p.over, p.owned = frames, append(p.over[:0], w.Stacks()...), append(p.owned[:0], w.Owned()...)
		if t.space.Generation() != gen && again < maxWalks {
			continue // the mappings were read anew on the way: begin with those
		}
		if m := t.managed(); m != nil && !m.Confirm() && again < maxWalks {
			continue
		}
		if end.Reason != unwind.OutsideCopy || !p.cfg.Live || !p.extend(t, c, end) {
			return frames, end
		}
	}
}

// load makes the stack copies of a capture those of the next walk.
func (p *Pipeline) load(c *capture.Capture) {
	p.mem.Reset(c.StackAddr, c.Stack, nil)
	p.also = p.also[:0]
	at := 0
	for _, b := range c.Blocks {
		p.also = append(p.also, unwind.Region{Addr: b.Addr, Bytes: c.Beyond[at : at+b.Len]})
		at += b.Len
	}
	p.mem.Also = p.also
}

// extend reads more of a thread's stack, if it has not run since: of another stack, if the walk went over to one. What
// the capture held before stays as it is otherwise.
func (p *Pipeline) extend(t *target, c *capture.Capture, end unwind.End) bool {
	start := c.StackAddr
	if len(p.over) > 0 {
		return p.readOther(t, c, end.Addr)
	}
	if end.Addr < start || end.Addr-start >= maxCopy {
		return false
	}
	size := min(max(4*len(c.Stack), int(end.Addr-start)+minCopy, 2*firstCopy), maxCopy)
	if x := stackExtent(t.space.Mappings(), start); x.High > 0 {
		size, _ = x.Bytes(start, size)
	}
	b := p.readStill(t, c, start, size)
	if len(b) <= int(end.Addr-start) || !bytes.Equal(b[:min(len(b), len(c.Stack))], c.Stack) {
		return false
	}
	before := held(c)
	c.Stack = append(c.Stack[:0], b...)
	p.pool.grown(held(c) - before)
	return true
}

// readStill reads the memory of a thread, nil if it may have run since the
// capture.
func (p *Pipeline) readStill(t *target, c *capture.Capture, start uint64, size int) []byte {
	b := make([]byte, size)
	n := 0
	if !p.still(c, func() { n, _ = t.space.ReadAt(b, int64(start)) }) || n <= 0 {
		return nil
	}
	return b[:n]
}

// still calls read and tells whether the thread has not run from its capture to the end of that.
func (p *Pipeline) still(c *capture.Capture, read func()) bool {
	if c.TID != p.held && c.Taken != capture.Unstopped {
		return false
	}
	read()
	if c.TID == p.held {
		return true
	}
	s, err := p.fs.Schedstat(c.PID, c.TID)
	return err == nil && s.Count == c.Count
}

// otherCopy is how much is read of another stack at first, in bytes.
const otherCopy = 32 << 10

// readOther adds a part of another stack to a capture.
func (p *Pipeline) readOther(t *target, c *capture.Capture, addr uint64) bool {
	x := stackExtent(t.space.Mappings(), addr)
	size := min(max(otherCopy, len(c.Beyond)), maxCopy-len(c.Beyond))
	if x.High == 0 || size <= taking.RedZone {
		return false
	}
	start := max(x.Low, (addr-taking.RedZone)&^7)
	size, _ = x.Bytes(start, size)
	b := p.readStill(t, c, start, size)
	if uint64(len(b)) < addr-start+8 {
		return false
	}
	before := held(c)
	c.Beyond, c.Blocks = append(c.Beyond, b...), append(c.Blocks, capture.Block{Addr: start, Len: len(b)})
	p.pool.grown(held(c) - before)
	return true
}

// advise tells the engine how much stack the thread's next capture should hold,
// of which stacks, and whether it takes a stop.
func (p *Pipeline) advise(t *target, u *regs.User, c *capture.Capture, fb *Feedback, frames []unwind.Frame, end unwind.End) {
	if fb == nil {
		return
	}
	v := fb.Get()
	short := end.Reason == unwind.OutsideCopy
	p.hurry = p.hurry || short || end.Reason == unwind.UnknownRegister || v.Want == 0
	v.Short = short && c.Taken != capture.Unstopped
	firstShort := short && len(p.over) == 0
	lack := uint64(0)
	if v.Short {
		lack = end.Addr
	}
	s := t.thread(c.TID)
	if short && p.cfg.Live {
		p.relist(t, c)
	}
	if v.Short && p.cfg.Live && c.TID != p.held && bits.OnesCount(s.vain) <= 1 {
		frames, end = p.foresee(t, c, u)
		short = end.Reason == unwind.OutsideCopy
	}
	p.blocks = wanted(p.blocks[:0], c.StackAddr, frames, p.over, short)
	p.blocks[0].short = p.blocks[0].short || firstShort // it may have been deeper than it is by now
	first := p.blocks[0]
	if p.cfg.Live {
		p.locate(t, c, &v, first, end)
	}
	want := copySize(v.Want, first.high-c.StackAddr, first.short, len(c.Stack))
	if all, ok := v.Stack.Bytes(c.StackAddr, maxCopy); first.short && ok && all <= largeCopy {
		want = max(want, all) // usually the mapping ends where the stack begins
	}
	v.Want = want
	if len(p.blocks) > 1 || v.Others[0].Bytes > 0 {
		p.others(t, u.Arch, c, &v, frames, lack)
	}
	if end.Reason == unwind.UnknownRegister && c.Taken == capture.Unstopped {
		v.Foreign = u.Arch.Name != p.cfg.Host
		v.NeedStop = c.Count
	}
	if s.vain++; !v.Short || v != fb.Get() {
		s.vain = 0
	}
	p.adviseScript(t, s, &v)
	fb.Set(v)
	if v.NeedStop == c.Count || v.Short {
		p.pool.asks.Store(true)
	}
}

// copySize is how many bytes of a stack to copy next, after a copy of have
// bytes in which the outermost frame found was reach bytes from the start;
// short: the copy was too small. old is what was to be copied before.
func copySize(old int, reach uint64, short bool, have int) int {
	need := minCopy
	if reach < maxCopy {
		need = int(reach) + 1024
	}
	if short {
		need = max(4*have, need)
	} else {
		need += need/4 + minCopy     // room for a signal's frame
		need = max(need, old-old/64) // shrinks slowly
	}
	return min(max((need+minCopy-1)&^(minCopy-1), minCopy), maxCopy)
}

// largeCopy is how much may be copied on the chance that it is needed, in bytes.
const largeCopy = 1 << 20

// behindStack is how much is copied behind the outermost frame, in bytes. A thread
// that begins or ends may have its outermost frame lower than it is in between.
const behindStack = 4 << 10

// stackPointer is that of a capture.
func stackPointer(c *capture.Capture) uint64 {
	if len(c.Regs) > 0 {
		return ptrace.StackPointer(c.Regs)
	}
	return c.Call.SP
}

// relist reads the mappings of a process anew if the stack of a capture lies in none of those that are known: it may be
// mapped, or have grown, since they were read, which is no news to a Space as long as all code is what it was.
func (p *Pipeline) relist(t *target, c *capture.Capture) {
	sp := stackPointer(c)
	if m := mappingAt(t.space.Mappings(), sp); m != nil || t.asked >= maxAsked {
		return
	}
	t.asked++
	if err := t.space.Refresh(); err != nil {
		p.cfg.Log.Debug("read the mappings", "pid", c.PID, "err", err)
	}
}

// locate finds out where the stack of a capture lies, of which first was wanted.
func (p *Pipeline) locate(t *target, c *capture.Capture, v *Advice, first block, end unwind.End) {
	x, sp := &v.Stack, stackPointer(c)
	if sp < x.Low || sp >= x.High {
		if now := stackExtent(t.space.Mappings(), sp); now.Low != x.Low || now.High != x.High {
			*x = now
		}
	}
	if x.High == 0 {
		return
	}
	if first.short {
		p.askZeros(t, x, c.StackAddr, len(c.Stack), max(v.Want, 1))
	}
	switch last := first.high; {
	case end.Complete() && len(p.over) == 0 && last > c.StackAddr:
		if top := min(last+behindStack, x.High); top > x.Top {
			x.Top = p.resident(t, last, top)
		}
	case first.short:
		x.Top = 0
	}
}

// askZeros finds out whether pages of a stack may be asked for that are not in memory, if such a one has ended the copy
// from addr on, of which there are have bytes, and want were to be copied: a frame may hold much that was never written, its
// end among it.
func (p *Pipeline) askZeros(t *target, x *taking.Extent, addr uint64, have, want int) {
	room, _ := x.Bytes(addr, want)
	if x.Asked || have >= room || t.asked >= maxAsked {
		return
	}
	t.asked++
	x.Asked, x.Zeros = true, zeros(p.fs, t.pid, addr)
}

// resident is top or, if a page between from and there is not in memory, where that
// page begins.
func (p *Pipeline) resident(t *target, from, top uint64) uint64 {
	if !t.opened {
		t.pages, t.opened = p.fs.OpenPagemap(t.pid), true
	}
	return from + uint64(taking.Present(&p.live, int(t.pages), from, int(top-from), &p.pages))
}
