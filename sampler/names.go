package sampler

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
	"sfsample/unwind"
)

// NameOptions says how frames are named.
type NameOptions struct {
	Demangle       symbol.Demangle
	Inlines, Lines bool
	Debuginfod     *symbol.Debuginfod // nil: not asked
	Progress       func(line string)  // told before work that takes long; may be nil
	Log            *slog.Logger
	// Until ends what takes long: see [symbol.Options]. It may be nil.
	Until *late.Time
	// Recorded: the processes are those of a recording. Whatever bears their
	// number now is another process and is not asked.
	Recorded bool
}

// Names gives names to frames, once for each distinct address of a file. Files
// are opened by whoever sees a module first, while its process still lives; all
// else belongs to the goroutine that writes.
type Names struct {
	opt NameOptions

	mu       sync.Mutex // of what follows, and of all processes, views and objects
	own      *view      // the one with our own root
	views    map[viewKey]*view
	objects  map[objectKey]*object
	used     objectList
	cached   int               // frames in all objects
	reports  reports           // of objects that are closed or could not be opened
	unread   map[string]Missed // see Unread; of objects that are closed
	nameless map[string]int    // see Nameless
}

// processNames is what naming needs of one process. It is read while the process
// lives and kept until the last of its stacks is named.
type processNames struct {
	view    *view
	jit     *symbol.PerfMap // nil: none
	modules map[*module.Module]*seenModule
}

// seenModule is a module that was met in a stack of its process.
type seenModule struct {
	object   *object
	mappings []*output.Mapping // of module.Maps, made when asked for
}

// Bounds of what is kept.
const (
	// maxNames bounds the addresses whose names are kept (about 200 bytes each);
	// beyond it they are looked up again.
	maxNames = 1 << 16
	// maxModules bounds what one process may load and unload before its modules
	// are looked at anew.
	maxModules = 4096
	// maxReports bounds the lines of Missing about what is closed.
	maxReports = 1000
)

// NewNames returns a Names that knows nothing yet.
func NewNames(opt NameOptions) *Names {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Names{
		opt: opt, views: map[viewKey]*view{}, objects: map[objectKey]*object{}, reports: reports{},
		unread: map[string]Missed{}, nameless: map[string]int{},
	}
}

// process opens what names of process pid are taken from.
func (n *Names) process(pid int) *processNames {
	p := &processNames{modules: map[*module.Module]*seenModule{}}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.own == nil {
		n.own = ownView()
	}
	p.view = n.own
	if n.opt.Recorded {
		p.jit = perfMap(n.own, pid, uint32(os.Geteuid()))
	} else if v := n.viewOf(pid); v != nil {
		p.view = v
		p.jit = livePerfMap(v, pid)
	}
	if p.jit != nil {
		p.jit.Until = n.opt.Until
	}
	p.view.refs++
	return p
}

// livePerfMap is the perf map of a process that lives; it need not exist. Its
// name bears the number that the process has in its own namespace.
func livePerfMap(v *view, pid int) *symbol.PerfMap {
	s, err := (procfs.FS{}).Status(pid)
	if err != nil {
		return nil
	}
	if k := len(s.NSpid); k > 0 {
		pid = s.NSpid[k-1]
	}
	return perfMap(v, pid, uint32(s.UID[1]))
}

func perfMap(v *view, pid int, uid uint32) *symbol.PerfMap {
	if len(v.roots) == 0 {
		return nil
	}
	return symbol.NewPerfMap(v.roots[0], fmt.Sprintf("/tmp/perf-%d.map", pid), uid)
}

// forget closes what belongs to a process alone. No stack of it is named
// afterwards.
func (n *Names) forget(p *processNames) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dropModules(p)
	if p.jit != nil {
		if why := p.jit.Problem(); why != "" {
			n.reports.add(why)
		}
		p.jit.Close()
		p.jit = nil
	}
	n.leave(p.view)
	n.evictIdle()
}

// dropModules forgets the modules of a process; mu is held.
func (n *Names) dropModules(p *processNames) {
	for _, s := range p.modules {
		s.object.refs--
	}
	clear(p.modules)
}

// stack names a stack, once.
func (n *Names) stack(s *stack) *output.Stack {
	if s.named == nil && s.plain != nil {
		s.named, s.wait = n.waiting(s)
		s.tell = nil
	}
	if s.named == nil {
		st := &output.Stack{Frames: make([]output.Frame, 0, len(s.kernel)+len(s.frames)), End: s.end}
		st.Frames = append(st.Frames, s.kernel...)
		for _, r := range s.frames {
			st.Frames = append(st.Frames, n.frames(s.process, r)...)
		}
		s.named = st
	}
	return s.named
}

// waiting puts what is waited for on a stack as its innermost frame.
func (n *Names) waiting(s *stack) (*output.Stack, string) {
	plain := n.stack(s.plain)
	what := s.tell(plain.Frames)
	if what == "" {
		return plain, ""
	}
	st := s.plain.waiting[what]
	if st == nil && len(s.plain.waiting) < maxWaits {
		st = &output.Stack{Frames: append([]output.Frame{{Func: "[" + what + "]", Waits: true}}, plain.Frames...), End: plain.End}
		if s.plain.waiting == nil {
			s.plain.waiting = map[string]*output.Stack{}
		}
		s.plain.waiting[what] = st
	}
	if st == nil {
		return plain, ""
	}
	return st, what
}

// frames names a frame: several, innermost first, if functions are inlined
// there.
func (n *Names) frames(p *processNames, r *rawFrame) []output.Frame {
	if r.named != nil {
		return r.named
	}
	var list []output.Frame
	if r.script != nil {
		r.named = []output.Frame{r.script.frame(r.pc)}
		return r.named
	}
	if r.how == unwind.Gap && r.pc == 0 {
		return []output.Frame{{Func: output.FramesMissing}}
	}
	if r.module == nil {
		// Not kept: a JIT compiler writes other code there, or names it later.
		list = []output.Frame{p.jitFrame(r)}
	} else {
		list = n.moduleFrames(p, r)
		r.named = list
	}
	for i := range list {
		list[i].How = r.how.String()
	}
	return list
}

// moduleFrames is frames for code that belongs to an object.
func (n *Names) moduleFrames(p *processNames, r *rawFrame) []output.Frame {
	o, mapping := n.acquire(p, r)
	defer n.release(o)
	// vaddr is of the address that is looked up; the frame tells its own.
	vaddr := r.vaddr + (r.pc - r.lookup)
	plain := output.Frame{PC: r.pc, Module: r.module.Name(), Mapping: mapping, Offset: vaddr}
	syms := n.look(o, r.vaddr)
	if r.covered && len(syms) > 0 && syms[len(syms)-1].Loose && syms[len(syms)-1].Start < r.fn.Start {
		syms = nil // a function of its own lies behind the symbol
	}
	if len(syms) == 0 {
		if !r.covered {
			start, ok := module.Begins(r.module, r.vaddr)
			if !ok {
				return []output.Frame{plain}
			}
			r.fn = module.Function{Start: start, Piece: start}
		}
		syms = []symbol.Frame{{}}
	}
	list := make([]output.Frame, len(syms))
	for i, s := range syms {
		f := plain
		f.File, f.Line, f.Inlined = s.File, s.Line, s.Inlined
		if s.Name != "" {
			f.Func, f.Offset = s.Name, vaddr-s.Start
		} else if !s.Inlined && r.fn.Start != 0 {
			f.Func, f.Offset = n.byStart(o, r), vaddr-r.fn.Piece
		}
		list[i] = f
	}
	return list
}

// byStart names a frame whose address has no symbol by where its function
// begins: by the symbol there, if the address is in a piece elsewhere, else as
// cc1plus:fn_007ca800, so that all samples of one function have one name.
// No symbol of C, C++, Rust or Go has a single colon in it; names of one module
// sort by address; the digits are those of a disassembly.
func (n *Names) byStart(o *object, r *rawFrame) string {
	if r.fn.Piece != r.fn.Start {
		if syms := n.look(o, r.fn.Start); len(syms) > 0 {
			if s := syms[len(syms)-1]; s.Name != "" && s.Start == r.fn.Start {
				return s.Name
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	file := r.module.Path
	if o.view != n.own { // not a file of ours, whatever its path
		file = r.module.Name()
	}
	if _, known := n.nameless[file]; !known && len(n.nameless) >= maxReports {
		file = "others"
	}
	n.nameless[file]++
	return fmt.Sprintf("%s:fn_%08x", r.module.Name(), r.fn.Start)
}

// vdso is the kernel's name for its own object in every process.
const vdso = "[vdso]"

// jitFrame names a frame in code that belongs to no object: what a JIT compiler
// made, if it says so in its perf map, else all of a region alike, by where it
// begins.
func (p *processNames) jitFrame(r *rawFrame) output.Frame {
	f := output.Frame{PC: r.pc, Module: r.region, Offset: r.regionStart}
	if r.region == vdso { // nobody could look into it before the process ended; it lies elsewhere in each
		f.Func, f.Offset = vdso, r.pc-r.regionStart
		return f
	}
	if r.region == "" || p == nil || p.jit == nil {
		return f
	}
	if sym, ok := p.jit.Lookup(r.lookup); ok {
		f.Func, f.Offset = sym.Name, r.pc-sym.Start
	}
	return f
}

// look returns the names at vaddr of an object that is in use.
func (n *Names) look(o *object, vaddr uint64) []symbol.Frame {
	if o.syms == nil {
		return nil
	}
	n.mu.Lock()
	list, ok := o.frames[vaddr]
	n.mu.Unlock()
	if ok {
		return list
	}
	list = o.syms.Frames(vaddr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cached++; n.cached > maxNames {
		for other := range n.used.all() {
			clear(other.frames)
		}
		n.cached = 1
	}
	o.frames[vaddr] = list
	n.used.resize(o, o.syms.Bytes())
	return list
}

// function is the name of the function at vaddr of a module, empty if unknown.
func (n *Names) function(p *processNames, m *module.Module, vaddr uint64) string {
	o := n.hold(p, m)
	defer n.release(o)
	if o.syms != nil {
		if s, ok := o.syms.Lookup(vaddr); ok {
			return s.Name
		}
	}
	return ""
}

// open makes sure that the file of a module is open, which takes a process that
// lives.
func (n *Names) open(p *processNames, m *module.Module) {
	n.release(n.hold(p, m))
}

// hold returns the file of a module, which is not closed before release.
func (n *Names) hold(p *processNames, m *module.Module) *object {
	n.mu.Lock()
	defer n.mu.Unlock()
	o := n.module(p, m).object
	o.pins++
	return o
}

// acquire is hold for a frame; it returns the mapping of its address too.
func (n *Names) acquire(p *processNames, r *rawFrame) (*object, *output.Mapping) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.module(p, r.module)
	s.object.pins++
	s.object.asked = true
	return s.object, s.mapping(r)
}

func (n *Names) release(o *object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.pins--; o.pins == 0 && !o.closed && o.syms != nil && symbol.Silent(o.syms) {
		n.close(o)
		o.rest()
	}
	n.evict()
}

func (s *seenModule) mapping(r *rawFrame) *output.Mapping {
	for i := range r.module.Maps {
		m := &r.module.Maps[i]
		if r.pc < m.Start || r.pc >= m.End {
			continue
		}
		if s.mappings == nil {
			s.mappings = make([]*output.Mapping, len(r.module.Maps))
		}
		if s.mappings[i] == nil {
			s.mappings[i] = &output.Mapping{Start: m.Start, End: m.End, FileOff: m.Offset, Image: r.module.ImageBase(), Path: r.module.Path, BuildID: r.module.BuildID}
		}
		return s.mappings[i]
	}
	return nil
}

// module returns a module of p with its file opened; mu is held.
func (n *Names) module(p *processNames, m *module.Module) *seenModule {
	s := p.modules[m]
	if s != nil && (!s.object.closed || time.Now().Before(s.object.again)) {
		n.used.touch(s.object)
		return s
	}
	if s == nil {
		if len(p.modules) >= maxModules {
			n.dropModules(p)
		}
		s = new(seenModule)
		p.modules[m] = s
	}
	s.object = n.find(p.view, m)
	s.object.refs++
	return s
}

// Missing lists the modules without full names, and why.
func (n *Names) Missing() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for o := range n.used.all() {
		n.reportObject(o)
	}
	var list []string
	for line := range n.reports {
		list = append(list, line)
	}
	slices.Sort(list)
	return list
}

// Missed counts the addresses of a module that there was no time for.
type Missed struct {
	Names int // of their functions
	Lines int // of which debugging information is known
}

// Unread counts, by module, the addresses of which was not read what there is: see [NameOptions].
func (n *Names) Unread() map[string]Missed {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := maps.Clone(n.unread)
	for o := range n.used.all() {
		o.countUnread(all)
	}
	return all
}

// Nameless counts the addresses without a symbol that were named by the start of
// their function, by file: its path in our own root, or the name alone of one in
// another root.
func (n *Names) Nameless() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.nameless)
}

// reports are lines for Missing.
type reports map[string]bool

// add keeps one.
func (r reports) add(line string) {
	if len(r) < maxReports {
		r[line] = true
	}
}
