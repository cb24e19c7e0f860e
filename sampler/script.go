package sampler

import (
	"cmp"
	"errors"
	"io"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/runtimes"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// Scripts counts frames of scripts.
type Scripts struct {
	Placed  int64 // in the place of a native frame, beside one, or of another native stack than the thread's
	Loose   int64 // not tied to one, as where a stack could not be unwound to there
	Unnamed int64 // of Placed and Loose: their code was gone when it was read
	Unseen  int64 // stacks of threads of which the interpreter's state was not known, or not copied
}

// script is a line of a script's function that was met.
type script struct {
	id      uint64
	runtime string
	fn      *runtimes.Function // without its lines; nil: its name could not be read
	line    int
}

// frame is what outputs show of it. pc is in the native frame that runs it.
func (s *script) frame(pc uint64) output.Frame {
	f := output.Frame{PC: pc, Module: s.runtime, How: s.runtime, Script: true, Func: "[code is gone]"}
	if s.fn != nil {
		f.Func, f.File, f.Line = s.fn.Name, s.fn.File, s.line
	}
	return f
}

// scripts is what is known of the interpreter of a process.
type scripts struct {
	gen       uint64 // of the mappings that were looked through
	looked    map[*module.Module]bool
	runtime   runtimes.Runtime // nil: none was found
	loop      uint64           // where its loop's function begins; 0: not known
	runner    uint64           // and the function that calls it at first; 0: not known
	functions map[runtimes.Key]*runtimes.Function
	lines     map[scriptLine]*script
	held      int    // bytes of functions
	next      uint64 // id
}

type scriptLine struct {
	fn   *runtimes.Function
	line int
}

// Bounds of the functions that are remembered of a process, and of their lines.
const (
	maxScripts     = 1 << 13
	maxScriptBytes = 64 << 20 // of functions
)

// threadScript is what is known of a thread's states in the interpreter.
type threadScript struct {
	roots []taking.Root
	next  time.Duration // when they may be looked for again
	wait  time.Duration
	blind bool // they were last looked for without registers
}

// scriptWalk is the script's part of the stack under way.
type scriptWalk struct {
	ok     bool // it was copied
	stack  runtimes.Stack
	places []runtimes.Place
	memory runtimes.Memory
	room   taking.Buffer
	told   map[string]bool // why scripts are not shown
	left   int             // reads that the capture under way may still do
	// recorded is the memory that a recording has, by process and address.
	recorded map[int]map[uint64][]byte
}

// maxScriptReads bounds what is read of an interpreter for a capture: reads, and one more for each 4 KB. The first list of Erlang's modules may take 330,000.
const maxScriptReads = 1 << 19

var errEnough = errors.New("enough was read for this capture")

// takes tells whether n bytes may be read yet for the capture under way, and counts them.
func (w *scriptWalk) takes(n int) bool {
	w.left -= 1 + n>>12
	return w.left >= 0
}

// bounded is memory of a process that is read for the capture under way, and not recorded.
type bounded struct {
	io.ReaderAt
	w *scriptWalk
}

// ReadAt implements io.ReaderAt.
func (m bounded) ReadAt(b []byte, addr int64) (int, error) {
	if !m.w.takes(len(b)) {
		return 0, errEnough
	}
	return m.ReaderAt.ReadAt(b, addr)
}

// scriptMemory is the memory of a process, live or as far as it was recorded.
type scriptMemory struct {
	p *Pipeline
	t *target
}

// ReadAt implements io.ReaderAt.
func (m scriptMemory) ReadAt(b []byte, addr int64) (int, error) {
	if !m.p.script.takes(len(b)) {
		return 0, errEnough
	}
	if !m.p.cfg.Live {
		n := copy(b, m.p.script.recorded[m.t.pid][uint64(addr)])
		if n < len(b) {
			return n, io.ErrUnexpectedEOF
		}
		return n, nil
	}
	n, err := m.t.space.Source().ReadAt(b, addr)
	if err == nil && m.p.cfg.Record != nil {
		m.p.rec.write(&capture.Memory{PID: m.t.pid, Addr: uint64(addr), Bytes: append([]byte(nil), b...)})
	}
	return n, err
}

// Replayed tells whether it is a recording's.
func (m scriptMemory) Replayed() bool { return !m.p.cfg.Live }

// Gather reads several areas to buf, one behind the other, at the price of few if the target can. false: not all could be read.
func (m scriptMemory) Gather(list []runtimes.Span, buf []byte) bool {
	if v, ok := m.t.space.Source().(module.Vector); ok && m.p.cfg.Live && m.p.cfg.Record == nil {
		ranges := make([]module.Range, len(list))
		for i, s := range list {
			ranges[i] = module.Range{Addr: s.Addr, Size: s.Len}
			m.p.script.takes(s.Len)
		}
		if m.p.script.left < 0 {
			return false
		}
		n, err := v.ReadRanges(buf, ranges)
		return err == nil && n == len(buf)
	}
	for _, s := range list {
		if n, _ := m.ReadAt(buf[:s.Len], int64(s.Addr)); n != s.Len {
			return false
		}
		buf = buf[s.Len:]
	}
	return true
}

// runtime is the interpreter of a process, nil if it has none that is known.
func (p *Pipeline) runtime(t *target, mem io.ReaderAt) runtimes.Runtime {
	s := t.scripts
	if s == nil {
		s = &scripts{looked: map[*module.Module]bool{}, functions: map[runtimes.Key]*runtimes.Function{}, lines: map[scriptLine]*script{}}
		t.scripts = s
	}
	gen := t.space.Generation()
	if s.runtime != nil || s.gen == gen && gen != 0 {
		return s.runtime
	}
	s.gen = gen
	before := s.looked
	s.looked = map[*module.Module]bool{} // of those that are there
	for _, m := range t.space.Modules() {
		again := before[m] || s.looked[m]
		if s.looked[m] = true; again || m.VDSO() || !runtimes.Candidate(m.Path) {
			continue
		}
		rt, err := runtimes.Recognise(runtimes.Object{Path: m.Path, Bias: m.Bias, Open: func() (runtimes.File, error) { return openLate(p.cfg.Names, m) },
			Origin: func(pc uint64) (generated, bare bool) { return t.origin(pc, m) }}, mem)
		if err != nil {
			p.warnScripts(t.pid, err)
		}
		if rt == nil {
			continue
		}
		s.runtime = rt
		p.cfg.Log.Debug("interpreter", "pid", t.pid, "name", rt.Name(), "version", rt.Version(), "module", m.Path)
		break
	}
	return s.runtime
}

// lateFile is the file of a module, which is read as long as there is time.
type lateFile struct {
	*late.File
	io.Closer
}

// openLate opens the file of a module, to be read within the time for names.
func openLate(n *Names, m *module.Module) (lateFile, error) {
	f, err := m.OpenFile()
	if err != nil {
		return lateFile{}, err
	}
	return lateFile{late.Open(n.opt.Until, f), f}, nil
}

// origin tells whether pc is in generated code, or in code of m that has no table.
func (t *target) origin(pc uint64, m *module.Module) (generated, bare bool) {
	code, object := t.space.Origin(pc)
	if !code || !object {
		return code, false
	}
	// V8 maps its builtins a second time, near the code that it generates.
	if of, _, ok := t.space.Module(pc); !ok || of != m && of.Path != m.Path {
		return false, false
	}
	_, err := t.space.Row(pc, unwind.EHFrame)
	return false, err != nil
}

// warnScripts tells once why scripts of a process are not shown.
func (p *Pipeline) warnScripts(pid int, err error) {
	w := &p.script
	if text := err.Error(); len(w.told) < maxReported && !w.told[text] {
		if w.told == nil {
			w.told = map[string]bool{}
		}
		w.told[text] = true
		p.cfg.Log.Warn(text, "pid", pid)
	}
}

// copyBefore copies what a walk needs of a runtime that leads it, unless it was copied at the stop.
func copyBefore(p *Pipeline, t *target, c *capture.Capture, mem scriptMemory, of runtimes.Runtime) {
	if rt, ok := of.(runtimes.Beforehand); ok && p.cfg.Live && len(c.Roots) == 0 {
		p.walks.owned = p.walks.owned[:0]
		p.findRoots(t, c, rt, mem)
		p.copyScript(t, c, rt)
	}
}

// readScript decodes what was copied of the interpreter of a capture's thread, whose native frames these are. complete: all of them. Of a thread that has not run since, it is copied now.
func (p *Pipeline) readScript(t *target, c *capture.Capture, u *regs.User, frames []unwind.Frame, complete bool) {
	w := &p.script
	w.ok = false
	if !p.cfg.Scripts.On || u.Arch.WordBytes != 8 {
		return
	}
	mem := scriptMemory{p, t}
	rt := p.runtime(t, mem)
	if rt == nil {
		return
	}
	anchored, byRegisters := rt.(runtimes.Anchored)
	inLoop := func(f unwind.Frame) bool { return t.inLoop(f.LookupPC()) }
	if byRegisters {
		if !slices.ContainsFunc(frames, inLoop) {
			return // it runs none
		}
		t.thread(c.TID).script.next = 0 // whose state that is changes with what it does
	}
	if len(c.Roots) == 0 && p.cfg.Live {
		p.findRoots(t, c, rt, mem)
	}
	switch rt := rt.(type) {
	case runtimes.Managed:
		if len(c.Roots) == 0 && p.cfg.Live {
			p.copyScript(t, c, rt)
		}
		w.load(&c.Stack, &c.Beyond)
		w.stack.Reset()
		rt.Identify(p.walks.owned, w.memory, &w.stack)
		w.ok = true
	case runtimes.Interpreter:
		if len(c.Roots) == 0 && p.cfg.Live {
			p.copyScript(t, c, rt)
		}
		if len(c.Roots) == 0 {
			p.stats.Scripts.Unseen++
			return
		}
		w.load(&c.Stack, &c.Beyond)
		rt.Frames(w.memory, mem, c.Roots, &w.stack)
		w.ok = true
		if byRegisters {
			anchored.Anchor(frames, complete, t.inFunction(frames), func(i int) regs.Set {
				set, _ := t.walker(u.Arch, c.Regs.PACMask, &p.cfg).Registers(&u.Set, &p.walks.mem, i, frames[i])
				return set
			}, &w.stack)
			if w.stack.Short && len(w.stack.Frames) == 0 {
				p.stats.Scripts.Unseen++
			}
		}
		p.innermost(t, c, u, rt, frames)
	}
}

// locks is what reads the locks that runtimes keep, by process.
func (ts *targets) locks(pids []int) map[int]*runtimes.Locks {
	list := map[int]*runtimes.Locks{}
	for _, pid := range pids {
		if s := ts.of(pid).scripts; s != nil {
			if l := runtimes.LocksOf(s.runtime); l != nil {
				list[pid] = l
			}
		}
	}
	return list
}

// managed is the runtime of a process if it knows its way through code of its own, nil if there is none.
func (t *target) managed() runtimes.Managed {
	if t.scripts == nil {
		return nil
	}
	m, _ := t.scripts.runtime.(runtimes.Managed)
	return m
}

// manage has the walkers of a process ask its runtime.
func (t *target) manage(m runtimes.Managed) {
	for _, w := range t.walkers {
		w.SetRuntime(m, false)
	}
}

// innermost puts right where the innermost frame of a script is, by the registers of the loop that runs it: those of the first of its native
// frames. Without them that is known only of a blocked thread: what blocks was called, and before calls the loop keeps it in memory.
func (p *Pipeline) innermost(t *target, c *capture.Capture, u *regs.User, rt runtimes.Interpreter, frames []unwind.Frame) {
	st := &p.script.stack
	frame, at, ok := rt.Registers(u.Arch)
	if !ok || len(st.Frames) == 0 || st.Segments[0].Entry != 0 {
		return
	}
	var set regs.Set
	jitted := false // what has these in registers and memory as it likes
	for i := range frames {
		if jitted = t.jitted(frames[i].LookupPC()); jitted {
			break
		}
		if t.inLoop(frames[i].LookupPC()) {
			set, _ = t.walker(u.Arch, c.Regs.PACMask, &p.cfg).Registers(&u.Set, &p.walks.mem, i, frames[i])
			break
		}
	}
	f, known := set.Reg(frame)
	instr, both := set.Reg(at)
	switch f0 := &st.Frames[0]; {
	case known && both && f == f0.Addr:
		f0.At = instr
	case jitted || !known && !c.Blocked || known && f == f0.Addr:
		f0.At = 0
	}
}

// inLoop tells whether pc is in the function of an interpreter's loop.
func (t *target) inLoop(pc uint64) bool {
	s := t.scripts
	if rt, ok := s.runtime.(runtimes.Interpreter); ok && s.loop == 0 {
		s.loop = t.functionStart(rt.Loop())
	}
	return s.loop != 0 && t.functionStart(pc) == s.loop
}

// jitted tells whether pc is in code that an interpreter has generated, which runs in the place of its loop.
func (t *target) jitted(pc uint64) bool {
	rt, ok := t.scripts.runtime.(runtimes.Generating)
	if !ok {
		return false
	}
	if _, _, object := t.space.Module(pc); object {
		return false
	}
	maps := t.space.Mappings()
	i, _ := slices.BinarySearchFunc(maps, pc, func(m procfs.Mapping, pc uint64) int { return cmp.Compare(m.End, pc+1) })
	return i < len(maps) && pc >= maps[i].Start && rt.Generates(maps[i].Path)
}

// inFunction tells of frames whether one is of the function that begins at an address, 0 being an interpreter's loop.
func (t *target) inFunction(frames []unwind.Frame) func(i int, entry uint64) bool {
	return func(i int, entry uint64) bool {
		if entry == 0 {
			pc := frames[i].LookupPC()
			return t.inLoop(pc) || t.jitted(pc) || t.inPlaceOfLoop(frames, i)
		}
		return t.functionStart(frames[i].LookupPC()) == entry
	}
}

// inPlaceOfLoop tells whether a frame is of code that was generated and that what calls the loop has called instead of it, where the runtime does not tell its
// generated code.
func (t *target) inPlaceOfLoop(frames []unwind.Frame, i int) bool {
	s := t.scripts
	if _, tells := s.runtime.(runtimes.Generating); tells {
		return false
	}
	if _, _, inFile := t.space.Module(frames[i].LookupPC()); inFile {
		return false
	}
	for j := len(frames) - 2; j > i && s.runner == 0; j-- { // its outermost activation runs what is not compiled yet
		if t.inLoop(frames[j].LookupPC()) {
			s.runner = t.functionStart(frames[j+1].LookupPC())
		}
	}
	if i+1 >= len(frames) || s.runner == 0 {
		return false
	}
	return t.functionStart(frames[i+1].LookupPC()) == s.runner
}

// load makes copies of a stack and of other memory what is decoded.
func (w *scriptWalk) load(stack *capture.Stack, beyond *capture.Copies) {
	w.memory = append(w.memory[:0], unwind.Region{Addr: stack.Addr, Bytes: stack.Bytes})
	for addr, b := range beyond.All() {
		w.memory = append(w.memory, unwind.Region{Addr: addr, Bytes: b})
	}
}

// Bounds of how long it is waited until the states of a thread are looked for again.
const (
	leastRootWait = 20 * time.Millisecond
	mostRootWait  = 2 * time.Second
)

// findRoots looks for the interpreter's states of a thread, if that is due.
func (p *Pipeline) findRoots(t *target, c *capture.Capture, rt runtimes.Runtime, mem io.ReaderAt) {
	s := &t.thread(c.TID).script
	blind := len(c.Regs.Note) == 0
	if c.At < s.next && (blind || !s.blind) || blind && len(s.roots) > 0 {
		return
	}
	s.blind = blind
	th := runtimes.Thread{TID: c.TID, Pointer: threadPointer(p.cfg.Host, c.Regs.Note), SP: c.Regs.Call.SP, First: c.TID == c.PID, StackAddr: c.Stack.Addr, Stack: c.Stack.Bytes}
	if x := stackExtent(t.space.Mappings(), th.SP); x.High > 0 {
		th.StackEnd = x.High
	}
	if th.Pointer == 0 {
		if st, err := proc.Status(c.TID); err == nil && len(st.NSpid) > 0 {
			th.TID = st.NSpid[len(st.NSpid)-1]
		}
	}
	s.roots = rt.Roots(mem, th)
	s.wait = min(max(2*s.wait, leastRootWait), mostRootWait)
	if len(s.roots) > 0 {
		s.wait = 0
	}
	s.next = c.At + s.wait
}

// threadPointer is what NT_PRSTATUS tells of where the thread's own data is, 0 if nothing: fs_base of struct user_regs_struct
// (arch/x86/include/asm/user_64.h), access registers 0 and 1 of s390_regs (arch/s390/include/uapi/asm/ptrace.h).
func threadPointer(host string, note []byte) uint64 {
	switch {
	case host == "amd64" && len(note) >= 176:
		return regs.AMD64.Order.Uint64(note[168:])
	case host == "s390x" && len(note) >= 152:
		return regs.S390X.Order.Uint64(note[144:])
	}
	return 0
}

// memoryKernel reads memory as a target gives it.
type memoryKernel struct {
	taking.Live
	mem io.ReaderAt
}

// Memory implements taking.Kernel.
func (k *memoryKernel) Memory(tid int, addr uint64, buf []byte) int {
	n, _ := k.mem.ReadAt(buf, int64(addr))
	return n
}

// Gather implements taking.Kernel.
func (k *memoryKernel) Gather(tid int, from []unix.RemoteIovec, buf []byte) int {
	return gatherEach(k, tid, from, buf)
}

// copyScript adds the interpreter's memory to a capture of a thread that has not run since.
func (p *Pipeline) copyScript(t *target, c *capture.Capture, rt runtimes.Runtime) {
	s := &t.thread(c.TID).script
	if len(s.roots) == 0 {
		return
	}
	w, b := &p.script, &p.script.room
	now := bounded{t.space.Source(), w}
	if b.Beyond.Room == nil {
		b.Beyond.Room = make([]byte, taking.MostRoom)
	}
	b.StackAddr, b.Stack = c.Stack.Addr, taking.Copy{Room: c.Stack.Bytes, N: len(c.Stack.Bytes)}
	ok := p.walks.still(c, func() {
		w.stack.Reset()
		for found := -1; len(w.stack.Frames)+len(w.stack.Spans) > found; { // each time it is known where more lies
			found = len(w.stack.Frames) + len(w.stack.Spans)
			b.Beyond.N, b.NBlocks, b.NRoots = 0, 0, 0
			taking.Follow(&memoryKernel{mem: now}, c.TID, rt.Recipe(s.roots, &w.stack), b, -1)
			w.load(&c.Stack, &capture.Copies{Blocks: b.Blocks[:b.NBlocks], Bytes: b.Beyond.Used()})
			switch rt := rt.(type) {
			case runtimes.Managed:
				rt.Identify(p.walks.owned, w.memory, &w.stack)
				continue
			case runtimes.Interpreter:
				rt.Frames(w.memory, now, b.Roots[:b.NRoots], &w.stack)
			}
			if !w.stack.Short {
				break
			}
		}
	})
	b.Stack = taking.Copy{}
	if !ok || b.NRoots == 0 {
		s.next = 0 // the states may be others
		return
	}
	before := held(c)
	c.Beyond.Bytes = append(c.Beyond.Bytes, b.Beyond.Used()...)
	c.Beyond.Blocks = append(c.Beyond.Blocks, b.Blocks[:b.NBlocks]...)
	c.Roots = append(c.Roots, b.Roots[:b.NRoots]...)
	p.pool.grown(held(c) - before)
}

// adviseScript tells what to copy of the interpreter's memory at a thread's next stop.
func (p *Pipeline) adviseScript(t *target, s *seen, v *Advice) {
	room := 0
	for _, o := range v.Others {
		room += o.Bytes
	}
	if t.scripts == nil || t.scripts.runtime == nil || len(s.script.roots) == 0 {
		v.Recipe, v.Beyond = nil, room
		return
	}
	if !p.script.ok {
		p.script.stack.Reset()
	}
	if known := v.Recipe; !p.script.ok && known != nil && known.Roots[0] == s.script.roots[0] {
		v.Beyond = room + known.Room // there was no room for it
		return
	}
	r := t.scripts.runtime.Recipe(s.script.roots, &p.script.stack)
	if v.Recipe == nil || *v.Recipe != *r {
		v.Recipe = r
	}
	v.Beyond = room + v.Recipe.Room
}

// foreseeScript gives advice on a thread that is about to be stopped for the first time.
func (p *Pipeline) foreseeScript(pid, tid int, fb *Feedback) {
	t, v := p.targets.of(pid), fb.Get()
	p.script.left = maxScriptReads
	if !p.cfg.Scripts.On || !p.cfg.Live || t.space == nil || v.Recipe != nil {
		return
	}
	mem := scriptMemory{p, t}
	rt := p.runtime(t, mem)
	if rt == nil {
		return
	}
	s := t.thread(tid)
	p.findRoots(t, &capture.Capture{PID: pid, TID: tid, At: time.Since(p.cfg.Start)}, rt, mem)
	p.script.ok = false
	p.adviseScript(t, s, &v)
	fb.Set(v)
}

// scriptCut is the end of a stack whose script frames go on in memory that was not copied.
const scriptCut = "more script frames than were copied"

// intern returns the stack of a capture, in which script frames have the place of their interpreter's.
func (p *Pipeline) intern(t *target, c *capture.Capture, frames []unwind.Frame, kernel []byte, end string) *stack {
	w := &p.script
	p.keys = p.keys[:0]
	if !w.ok || len(w.stack.Frames) == 0 {
		p.keys = frameKeys(p.keys, frames)
		return t.intern(p.cfg.Names, p.keys, kernel, end)
	}
	var placed int
	if t.managed() != nil {
		w.places, placed = runtimes.Identified(w.places[:0], frames, &w.stack)
	} else {
		w.places, placed = runtimes.Merge(w.places[:0], frames, end == "", &w.stack, t.inFunction(frames))
	}
	p.stats.Scripts.Placed += int64(placed)
	p.stats.Scripts.Loose += int64(len(w.stack.Frames) - placed)
	mem := scriptMemory{p, t}
	for _, pl := range w.places {
		var k frameKey
		if pl.Native >= 0 {
			k = frameKeyAt(frames, pl.Native)
		}
		switch {
		case pl.Script >= 0:
			sc := p.scriptAt(t, mem, &w.stack.Frames[pl.Script])
			if sc.fn != nil && (sc.fn.Name == "" || sc.fn.Stub && p.cfg.Scripts.Only) {
				continue
			}
			k = frameKey{pc: k.pc, script: sc}
		case p.cfg.Scripts.Only:
			continue
		}
		p.keys = append(p.keys, k)
	}
	if w.stack.Short {
		end = scriptCut
	}
	if most := p.cfg.Walk.MaxDepth; most > 0 && len(p.keys) > most {
		p.keys, end = p.keys[:most], unwind.DepthLimit.String()
	}
	return t.intern(p.cfg.Names, p.keys, kernel, end)
}

// functionStart is where the function at pc begins, 0 if that is not known.
func (t *target) functionStart(pc uint64) uint64 {
	m, _, ok := t.space.Module(pc)
	if !ok {
		return 0
	}
	f, ok := t.space.Function(pc)
	if !ok {
		return 0
	}
	return f.Start + m.Bias
}

// scriptAt is the function and line of a script frame, the one that was met before if there is one.
func (p *Pipeline) scriptAt(t *target, mem scriptMemory, f *runtimes.Frame) *script {
	s := t.scripts
	var fn *runtimes.Function
	if k, ok := s.runtime.Key(p.script.memory, mem, f); ok {
		if fn = s.functions[k]; fn == nil || fn.Passing {
			var now *runtimes.Function
			if c, copies := s.runtime.(runtimes.Copying); copies {
				now, ok = c.Copied(p.script.memory, mem, f, k)
			} else {
				now, ok = s.runtime.Function(mem, f, k)
			}
			switch {
			case !ok:
				fn = nil
			case fn == nil || !reflect.DeepEqual(fn, now):
				n := now.Bytes()
				if s.held += n; len(s.functions) >= maxScripts || s.held > maxScriptBytes {
					clear(s.functions)
					clear(s.lines) // which hold them, and what was met the lines
					t.met.forget()
					s.held = n
				}
				fn = now
				s.functions[k] = fn
			}
		}
	}
	l := scriptLine{fn: fn}
	if fn == nil {
		p.stats.Scripts.Unnamed++
	} else {
		l.line = fn.Line(f.At)
	}
	sc := s.lines[l]
	if sc == nil {
		if len(s.lines) >= maxScripts {
			clear(s.lines)
		}
		s.next++
		sc = &script{id: s.next, runtime: s.runtime.Name(), line: l.line}
		if fn != nil {
			sc.fn = &runtimes.Function{Name: fn.Name, File: fn.File, Stub: fn.Stub}
		}
		s.lines[l] = sc
	}
	return sc
}
