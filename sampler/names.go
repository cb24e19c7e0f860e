package sampler

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
	"sfsample/sampler/symbol/rootfs"
)

// NameOptions says how frames are named.
type NameOptions struct {
	Demangle       symbol.Demangle
	Inlines, Lines bool
	Debuginfod     *symbol.Debuginfod // nil: not asked
	Progress       func(line string)  // told before work that takes long; may be nil
	Log            *slog.Logger
}

// Names gives names to frames, once for each distinct address. Files are opened
// by whoever sees a module first, while its process still lives; all else
// belongs to the goroutine that writes.
type Names struct {
	opt    NameOptions
	maps   map[mapKey]*output.Mapping
	frames map[frameKey][]output.Frame

	mu      sync.Mutex // of what follows
	objects map[objectKey]*object
	modules map[*module.Module]*object
	roots   map[int][]*rootfs.Root
	jit     map[int]*symbol.PerfMap
}

// objectKey tells files apart: by build-id or, without one, as modules.
type objectKey struct {
	buildID string
	module  *module.Module
}

type mapKey struct {
	module *module.Module
	start  uint64
}

type frameKey struct {
	module *module.Module
	pc     uint64
	caller bool
}

// object is a file with symbols; file is nil if it could not be opened.
type object struct {
	path    string
	buildID string
	syms    *symbol.Object
	file    module.File
	err     error
}

// maxNames bounds the names that are kept (about 200 bytes each); beyond it they
// are looked up again.
const maxNames = 1 << 16

// NewNames returns a Names that knows nothing yet.
func NewNames(opt NameOptions) *Names {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Names{
		opt: opt, objects: map[objectKey]*object{}, modules: map[*module.Module]*object{},
		maps: map[mapKey]*output.Mapping{}, frames: map[frameKey][]output.Frame{}, roots: map[int][]*rootfs.Root{},
		jit: map[int]*symbol.PerfMap{},
	}
}

// stack names a stack of process pid, once.
func (n *Names) stack(pid int, s *stack) *output.Stack {
	if s.named == nil {
		st := &output.Stack{Frames: make([]output.Frame, 0, len(s.kernel)+len(s.frames)), End: s.end}
		st.Frames = append(st.Frames, s.kernel...)
		for i := range s.frames {
			st.Frames = append(st.Frames, n.frame(pid, &s.frames[i])...)
			for j := len(st.Frames) - 1; j >= len(s.kernel) && st.Frames[j].How == ""; j-- {
				st.Frames[j].How = s.frames[i].How.String()
			}
		}
		s.named = st
	}
	return s.named
}

// frame names a frame: several, innermost first, if functions are inlined
// there.
func (n *Names) frame(pid int, r *rawFrame) []output.Frame {
	if r.module == nil {
		return []output.Frame{n.jitFrame(pid, r)}
	}
	k := frameKey{r.module, r.PC, r.Caller}
	f, ok := n.frames[k]
	if !ok {
		f = n.look(pid, r)
		if len(n.frames) >= maxNames {
			clear(n.frames)
		}
		n.frames[k] = f
	}
	return f
}

// jitFrame names a frame in code that belongs to no object: what a JIT compiler
// made, if it says so in its perf map.
func (n *Names) jitFrame(pid int, r *rawFrame) output.Frame {
	f := output.Frame{PC: r.PC, Module: r.region, Offset: r.PC - r.regionStart}
	if r.region == "" {
		return f
	}
	if sym, ok := n.perfMap(pid).Lookup(r.LookupPC()); ok {
		f.Func, f.Offset = sym.Name, r.PC-sym.Start
	}
	return f
}

// perfMap is the perf map of a process; it need not exist.
func (n *Names) perfMap(pid int) *symbol.PerfMap {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.jit[pid]
	if m == nil {
		var root *rootfs.Root
		if roots := n.rootsOf(pid); len(roots) > 0 {
			root = roots[0]
		}
		inner, uid := pid, uint32(0)
		if s, err := (procfs.FS{}).Status(pid); err == nil {
			uid = uint32(s.UID[1])
			if k := len(s.NSpid); k > 0 {
				inner = s.NSpid[k-1]
			}
		}
		m = symbol.NewPerfMap(root, fmt.Sprintf("/tmp/perf-%d.map", inner), uid)
		n.jit[pid] = m
	}
	return m
}

// look names a frame that was not seen before.
func (n *Names) look(pid int, r *rawFrame) []output.Frame {
	// vaddr is of the address that is looked up; the frame tells its own.
	vaddr := r.vaddr + (r.PC - r.LookupPC())
	plain := output.Frame{PC: r.PC, Module: r.module.Name(), Mapping: n.mapping(r), Offset: vaddr}
	o := n.object(pid, r.module)
	if o.syms == nil {
		return []output.Frame{plain}
	}
	var list []output.Frame
	for _, s := range o.syms.Frames(r.vaddr) {
		f := plain
		f.File, f.Line, f.Inlined = s.File, s.Line, s.Inlined
		if s.Name != "" {
			f.Func, f.Offset = s.Name, vaddr-s.Start
		}
		list = append(list, f)
	}
	if list == nil {
		list = append(list, plain)
	}
	return list
}

// function is the name of the function at vaddr of a module, empty if unknown.
func (n *Names) function(pid int, m *module.Module, vaddr uint64) string {
	if o := n.object(pid, m); o.syms != nil {
		if s, ok := o.syms.Lookup(vaddr); ok {
			return s.Name
		}
	}
	return ""
}

func (n *Names) mapping(r *rawFrame) *output.Mapping {
	for i := range r.module.Maps {
		m := &r.module.Maps[i]
		if r.PC < m.Start || r.PC >= m.End {
			continue
		}
		k := mapKey{r.module, m.Start}
		if n.maps[k] == nil {
			n.maps[k] = &output.Mapping{Start: m.Start, End: m.End, FileOff: m.Offset, Path: r.module.Path, BuildID: r.module.BuildID}
		}
		return n.maps[k]
	}
	return nil
}

// object is the file of a module, opened when the module is first seen.
func (n *Names) object(pid int, m *module.Module) *object {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.modules[m]; o != nil {
		return o
	}
	k := objectKey{buildID: m.BuildID}
	if m.BuildID == "" {
		k.module = m
	}
	o := n.objects[k]
	if o == nil {
		o = n.open(pid, m)
		n.objects[k] = o
	}
	n.modules[m] = o
	return o
}

func (n *Names) open(pid int, m *module.Module) *object {
	o := &object{path: m.Path, buildID: m.BuildID}
	if o.file, o.err = m.OpenFile(); o.err != nil {
		n.opt.Log.Debug("no names for a module", "module", m.Path, "err", o.err)
		return o
	}
	o.syms = symbol.Open(o.file, m.Path, symbol.Options{
		Demangle: n.opt.Demangle, Inlines: n.opt.Inlines, Lines: n.opt.Lines, Progress: n.opt.Progress, Roots: n.rootsOf(pid), Debuginfod: n.opt.Debuginfod, Log: n.opt.Log,
	})
	return o
}

// rootsOf are the folders in which debug files are looked for: the root of the
// process, and ours.
func (n *Names) rootsOf(pid int) []*rootfs.Root {
	if r, ok := n.roots[pid]; ok {
		return r
	}
	var list []*rootfs.Root
	for _, dir := range []string{fmt.Sprintf("/proc/%d/root", pid), "/"} {
		if r, err := rootfs.Open(dir); err == nil {
			list = append(list, r)
		}
	}
	n.roots[pid] = list
	return list
}

// Missing lists the modules without full names, and why.
func (n *Names) Missing() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for _, o := range n.objects {
		why := ""
		switch {
		case o.err != nil:
			why = o.err.Error()
		case o.syms != nil:
			why = o.syms.Missing()
		}
		if why != "" {
			list = append(list, fmt.Sprintf("%s (build-id %s): %s", o.path, o.buildID, why))
		}
	}
	slices.Sort(list)
	return list
}
