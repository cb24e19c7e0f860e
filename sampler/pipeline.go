package sampler

import (
	"fmt"
	"log/slog"
	"time"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/ledger"
	"sfsample/sampler/module"
	"sfsample/unwind"
)

// Walk says how stacks are followed.
type Walk struct {
	Order    []unwind.How // nil: the default
	MaxDepth int
	Verify   bool // every two methods are compared at each frame
}

// PipelineConfig says how captures become samples.
type PipelineConfig struct {
	Host   string // GOARCH of the kernel that the captures come from
	Start  time.Time
	Walk   Walk
	Sink   output.Sink
	Names  *Names
	Record *capture.Writer // nil: no recording
	Log    *slog.Logger
	// Open gives the address space of a process, live or recorded; of a live one also what it reads, if that may be told of mappings
	// and is to be closed.
	Open    func(pid int) (Target, *Survivor, error)
	Kernel  bool // the kernel's part of stacks is wanted
	Scripts ScriptOptions
	// Wait, if set, looks at what a blocked thread waits for, by its system call, its stack pointer and its run
	// count (0: not known). What it returns puts that in a few words, with the thread's frames; it is called on
	// another goroutine. nil: nothing can be told.
	Wait func(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string
	// Until is how long targets are read for stacks, of which a run ends its part: what is captured and not walked then has none, but
	// counts. nil: there is no end.
	Until *late.Time
	// Slow, if set, is called when unwinding and naming still go on half a second
	// after the last capture; at once, with held, if a thread is held until this program ends.
	Slow func(held bool)
	// Live: captures come from processes that live now, whose memory and names
	// may be read.
	Live bool
}

// ScriptOptions say what is shown of scripts.
type ScriptOptions struct {
	On bool // their frames take the place of their interpreter's
	// Only: other frames of stacks that have such are left out. Locked: so are stacks of threads that do not hold their interpreter's lock.
	Only, Locked bool
}

// Target is what the pipeline asks about one process.
type Target interface {
	unwind.Space
	// Source is what reads memory of now. No read waits for a page that the server of a file would have to bring. That of a live
	// process is a [module.Vector].
	Source() module.Source
	Code
	Layout
	History
	// Modules returns the objects with code, by address.
	Modules() []*module.Module
	// Close ends the use of it.
	Close()
}

// Code tells what an address belongs to.
type Code interface {
	// Module returns the object that covers pc, and pc in its own numbering.
	Module(pc uint64) (*module.Module, uint64, bool)
	// Origin implements unwind.Origins.
	Origin(pc uint64) (code, object bool)
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
	// CodeAt returns the executable mapping at pc. Of its fields Moved is told without one, too.
	CodeAt(pc uint64) (module.Code, bool)
}

// Pipeline turns captures into samples: it says what is done with each, in which order, and puts frames of scripts in the place of their
// interpreter's.
type Pipeline struct {
	cfg     PipelineConfig
	pool    *pool
	targets targets
	walks   walks
	out     sender
	rec     recorder
	failed  failure
	stats   Unwound
	keys    []frameKey // of the stack under way
	script  scriptWalk // of its interpreter
	left    leftOut
}

// leftOut counts ticks of samples that are left out, by the class that they were given: as their stacks tell only later whether they are.
type leftOut struct {
	tick       time.Duration // between two ticks
	all, round [ledger.NumClasses]int64
}

// add counts ticks of a class.
func (l *leftOut) add(c ledger.Class, ticks int64) {
	l.all[c] += ticks
	l.round[c] += ticks
}

// tell has an account tell of them.
func tellLeft(a *ledger.Account, left *[ledger.NumClasses]int64) {
	for c, n := range left {
		a.Leave(ledger.Class(c), n)
	}
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
	pid     int
	names   *processNames
	space   Target
	source  *Survivor      // of space; nil: nobody is told, and nothing closed
	pages   procfs.Pagemap // if it was opened
	opened  bool
	name    string
	limit   string // why its code is not unwound
	mapped  mapped // what was last recorded of its mappings
	past    past
	walkers map[walkerKey]*unwind.Walker
	threads map[int]*seen
	met     met
	asked   asked
	scripts *scripts
}

// mapped are mappings as they were recorded.
type mapped struct {
	gen     uint64
	maps    []procfs.Mapping
	written map[*module.Module]written // of those without a build-id
}

type walkerKey struct {
	arch *regs.Arch
	pac  uint64
}

// seen is what the pipeline remembers of a thread.
type seen struct {
	name   string
	named  time.Duration // when the name was read
	last   *stack
	state  string
	sent   time.Duration // time of the last sample that went out
	want   int           // how much of its stack to copy, to the byte; 0: nothing is known
	vain   uint          // cut stacks in a row that have told nothing new of what to copy
	golang goSeen

	waiting, waitsOn *stack // see waits
	asleep           asleep
	ask              bool // what it waits for
	script           threadScript
	gil              string // as that of output.Sample
}

// NewPipeline makes a pipeline; it works once a run gives it captures.
func NewPipeline(cfg PipelineConfig) *Pipeline {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pipeline{cfg: cfg, pool: new(pool), stats: Unwound{Cut: map[string]int64{}, Frames: map[unwind.How]int64{}}}
	p.out = sender{cfg: &p.cfg, failed: &p.failed, queue: make(chan named, queued)}
	p.rec = recorder{cfg: &p.cfg, failed: &p.failed}
	p.targets = targets{cfg: &p.cfg, rec: &p.rec, out: &p.out, all: map[int]*target{}, modules: map[string]bool{}, problems: map[string]bool{}}
	p.walks = walks{cfg: &p.cfg, pool: p.pool, differences: map[string]int64{}}
	return p
}

// Stats is what was unwound. Call it when the run is over.
func (p *Pipeline) Stats() Unwound { return p.stats }

// unwindAtMost is how long targets are read after the end of a run, so that all is over within a second but for names.
const unwindAtMost = 900 * time.Millisecond

// await waits for the end of what is unwound and named.
func (cfg *PipelineConfig) await(end <-chan struct{}, held bool) {
	if cfg.Slow != nil && held {
		cfg.Slow(true)
	} else if cfg.Slow != nil {
		slow := time.NewTimer(500 * time.Millisecond)
		defer slow.Stop()
		select {
		case <-end:
			return
		case <-slow.C:
			cfg.Slow(false)
		}
	}
	<-end
}

// consume works until the items end, which come each tick. nudge tells of one that cannot wait.
func (p *Pipeline) consume(list <-chan item, nudge <-chan struct{}, tick time.Duration) {
	items, end := newInbox(list, nudge, tick), p.out.begin(tick)
	for {
		if p.walks.hurry {
			items.hurry()
			p.walks.hurry = false
		}
		it, _ := items.next()
		if it.end {
			break
		}
		switch {
		case it.capture != nil:
			if it.program != nil && it.program.replaced.Load() {
				p.targets.replaced(it.capture.PID)
			}
			if it.early != nil {
				p.targets.early(it.capture.PID, it.capture.At, it.early)
			}
			p.walks.hurry = p.walks.hurry || p.pool.scarce()
			p.capture(it.capture, it.fb)
			p.pool.put(it.capture)
		case it.credit != nil:
			p.credit(it.credit)
		case it.spent != nil:
			p.spent(it.spent)
		case it.opened != 0:
			p.opened(it.opened)
		case it.fork.child != 0:
			p.targets.forked(it.fork)
		case it.gone != 0:
			p.targets.forget(it.gone)
		case it.left.tid != 0:
			p.targets.leave(it.left)
		case it.round != nil:
			p.targets.thin()
			tellLeft(&it.round.Account, &p.left.round)
			p.left.round = [ledger.NumClasses]int64{}
			p.out.round(it.round)
		case it.batches != 0:
			items.rare = it.batches > 0
			p.out.batches(it.batches)
		}
	}
	p.targets.closeAll()
	end()
}

// capture unwinds one capture and sends it on.
func (p *Pipeline) capture(c *capture.Capture, fb *Feedback) {
	t := p.targets.of(c.PID)
	s := t.thread(c.TID)
	p.walks.attest(t, c.At)
	t.expect(fb)
	p.targets.name(t, c.TID, s, c.At)
	st, state := p.unwind(t, c, fb)
	p.rec.maps(t, c.TID)
	p.rec.write(c)
	s.last, s.state = st, state
	s.sleeps(c)
	if s.gil = ""; p.script.ok && p.script.stack.Locked {
		s.gil = "held"
	}
	if p.cfg.Scripts.Locked && s.gil == "" {
		if c.Taken != capture.Exiting {
			p.left.add(ledger.Sampled, 1)
		}
		return
	}
	s.waitsFor(&p.cfg, c.PID, c.TID)
	p.out.send(t, c.TID, s, c.At, c.Taken.String(), &c.Weight)
}

// asleep is where a blocked thread was seen, to be asked what it waits for.
type asleep struct {
	nr       int64
	sp, runs uint64
}

// sleeps notes where a thread was seen blocked.
func (s *seen) sleeps(c *capture.Capture) {
	s.asleep = asleep{nr: c.Regs.Call.NR, sp: c.Regs.Call.SP, runs: c.Count}
	if c.Taken != capture.Unstopped { // the stop has made it run
		s.asleep = asleep{nr: c.Regs.Call.NR}
	}
	s.ask = c.Blocked
}

// waitsFor makes the last stack of a blocked thread one of those that are told apart by what is waited for. Where
// nothing can be told it is tried again with the thread's next credit.
func (s *seen) waitsFor(cfg *PipelineConfig, pid, tid int) {
	if cfg.Wait == nil || !s.ask || cfg.Until.Over() {
		return
	}
	tell := cfg.Wait(pid, tid, s.asleep.nr, s.asleep.sp, s.asleep.runs)
	if tell == nil {
		return
	}
	s.ask = false
	// The other fields belong to the goroutine that names.
	s.last = &stack{kernel: s.last.kernel, text: s.last.text, frames: s.last.frames, end: s.last.end, process: s.last.process, plain: s.last, tell: tell}
}

// noStack is the one frame of the stack that is credited to a thread of which there is
// no capture: a recording may have been cut, or have lost it.
var noStack = &stack{named: &output.Stack{Frames: []output.Frame{{Func: "[no stack]"}}}}

// credit gives the last stack of a thread more weight.
func (p *Pipeline) credit(c *capture.Credit) {
	t := p.targets.of(c.PID)
	s := t.thread(c.TID)
	if s.last == nil {
		s.last, s.state = noStack, "blocked"
	}
	p.rec.write(c)
	if p.cfg.Scripts.Locked && (s.gil == "" || c.Waited) { // whether it held the lock while it waited for a CPU is not known
		if !c.Waited && p.left.tick > 0 {
			p.left.add(ledger.Reused, int64(c.Wall/p.left.tick))
		}
		return
	}
	s.waitsFor(&p.cfg, c.PID, c.TID)
	if c.Waited {
		s = &seen{name: s.name, last: s.waits(), state: "waiting"}
	}
	p.out.send(t, c.TID, s, c.At, "reused", &c.Weight)
}

// waits is the last stack of a thread with the frame on it that stands for waiting for a CPU.
func (s *seen) waits() *stack {
	if s.waiting == nil || s.waitsOn != s.last {
		s.waiting = &stack{kernel: []output.Frame{{Func: "[waiting for a CPU]", Waits: true}}, frames: s.last.frames, end: s.last.end, process: s.last.process}
		s.waitsOn = s.last
	}
	return s.waiting
}

// neverCaught is the one frame of the stack to which CPU time goes that no
// sample stands for.
var neverCaught = &stack{named: &output.Stack{Frames: []output.Frame{{Func: "[never caught running]"}}}}

// noThread is the name of what CPU time is of that is no known thread's.
const noThread = "[no thread known]"

func (p *Pipeline) spent(c *capture.Spent) {
	t := p.targets.of(c.PID)
	s := &seen{name: noThread}
	if c.TID != 0 {
		s = t.thread(c.TID)
		p.targets.name(t, c.TID, s, p.out.latest)
	}
	p.rec.write(c)
	if p.cfg.Scripts.Locked {
		return
	}
	p.out.send(t, c.TID, &seen{name: s.name, last: neverCaught, state: "running"}, p.out.latest, "none", &c.Weight)
}

// Reasons for which a stack has no caller at all, besides those of unwinding.
const (
	noMaps = "no mappings"
	noRegs = "no registers"
	// codeChanged: what was mapped when the stack was captured is not known.
	codeChanged = "code changed"
	// noTime: what the file of the code's object tells of it was not read, as sampling had ended; or the whole stack.
	noTime = "no time left"
)

// unwind walks the stack of a capture. The state is "running" or the number of
// the system call.
func (p *Pipeline) unwind(t *target, c *capture.Capture, fb *Feedback) (*stack, string) {
	p.script.ok = false
	p.script.left = maxScriptReads
	state := "running"
	if p.cfg.Until.Over() {
		c.Doubt, c.Stack.Bytes, c.Roots = capture.Unwalked, c.Stack.Bytes[:0], c.Roots[:0]
		c.Beyond.Reset()
	}
	if c.Doubt == capture.Unwalked {
		if c.Blocked {
			state = "blocked" // what a number means depends on the program's architecture
		}
		return p.cut(t, c, nil, noTime), state
	}
	u, err := t.user(p.cfg.Host, c)
	if c.Blocked {
		state = callName(u.Arch, c.Regs.Call.NR)
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
	if t.space == nil || t.past.unlisted {
		return p.cut(t, c, frame0, noMaps), state
	}
	if p.cfg.Scripts.On {
		mem := scriptMemory{p, t}
		copyBefore(p, t, c, mem, p.runtime(t, mem))
	}
	frames, end, sure := p.walks.surely(t, c, &u)
	p.readScript(t, c, &u, frames, end.Complete() && sure == len(frames))
	if p.cfg.Walk.Verify {
		p.walks.verifyWalk(t, c, &u)
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
	return p.cut(t, c, frames, t.reason(frames, end)), state
}

// reason says why a stack is cut.
func (t *target) reason(frames []unwind.Frame, end unwind.End) string {
	if end.Reason != unwind.DepthLimit && end.Reason != unwind.OutsideCopy {
		if m, _, ok := t.space.Module(frames[len(frames)-1].LookupPC()); ok && m.Late() {
			return noTime
		}
	}
	return end.Reason.String()
}

// advise tells the engine what the thread's next capture should hold, and whether it takes a stop.
func (p *Pipeline) advise(t *target, u *regs.User, c *capture.Capture, fb *Feedback, frames []unwind.Frame, end unwind.End) {
	if fb == nil {
		return
	}
	v := p.walks.advise(t, u, c, fb, frames, end)
	p.adviseScript(t, t.thread(c.TID), &v)
	// The stop of a blocked thread that had no room for its script has made it run, so that what it runs can be copied at another one only.
	v.Short = v.Short || c.Blocked && c.Taken == capture.Stopped && !p.script.ok && v.Recipe != nil
	fb.Set(v)
	if v.NeedStop == c.Count || v.Short {
		p.pool.asks.Store(true)
	}
}

func (p *Pipeline) cut(t *target, c *capture.Capture, frames []unwind.Frame, reason string) *stack {
	p.stats.Stacks++
	p.stats.Cut[reason]++
	return p.intern(t, c, frames, c.Kernel, reason)
}
