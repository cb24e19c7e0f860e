package sampler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// targets is what is known of the processes that captures came of, until they are forgotten, and what there is to report of those that were.
type targets struct {
	cfg               *PipelineConfig
	rec               *recorder
	out               *sender
	all               map[int]*target
	modules, problems map[string]bool // to report, of each at most maxReported
}

// of returns what is known of a process, opened at its first capture.
func (ts *targets) of(pid int) *target {
	if t := ts.all[pid]; t != nil {
		return t
	}
	t := &target{pid: pid, walkers: map[walkerKey]*unwind.Walker{}, threads: map[int]*seen{}, met: newMet()}
	t.names = ts.cfg.Names.process(pid)
	var err error
	if t.space, t.source, err = ts.cfg.Open(pid); err != nil {
		ts.cfg.Log.Warn("read the mappings of a process", "pid", pid, "err", err)
	}
	ts.all[pid] = t
	if ts.cfg.Live {
		t.name, _ = proc.Task(pid, pid).Comm()
		if is32(pid) {
			t.limit = regs.CompatLimit(ts.cfg.Host)
		}
		ts.rec.write(&capture.Name{PID: pid, Name: t.name})
	}
	return t
}

func (t *target) thread(tid int) *seen {
	s := t.threads[tid]
	if s == nil {
		s = new(seen)
		t.threads[tid] = s
	}
	return s
}

// offer makes mappings those of the process, read by whomever. It tells whether
// there is a use for them.
func (t *target) offer(maps []procfs.Mapping) bool {
	if t.source == nil || len(maps) == 0 {
		return false
	}
	t.source.Offer(maps) // nobody changes a list
	return t.space.Refresh() == nil
}

// replaced is told that the process is another program by now than that of the
// captures that are still to come before it is forgotten.
func (ts *targets) replaced(pid int) {
	isNew := ts.all[pid] == nil
	t := ts.of(pid)
	t.past.over, t.past.unlisted = true, t.past.unlisted || isNew // then its mappings are the next program's
	if t.source != nil {
		t.source.Replace()
	}
}

// forked gives a new process what is known of its parent.
func (ts *targets) forked(f fork) {
	parent := ts.all[f.parent]
	if parent == nil || parent.space == nil {
		return
	}
	t := ts.of(f.child)
	if t.name == "" {
		t.name = parent.name
	}
	if ts.cfg.Until.Over() {
		return
	}
	t.offer(parent.space.Mappings())
}

// opened reads, while a process lives for certain, what is needed to unwind and
// name its captures after its end: its mappings and its program.
func (p *Pipeline) opened(pid int) {
	t := p.targets.of(pid)
	if t.space == nil || p.cfg.Until.Over() {
		return
	}
	p.walks.attest(t, time.Since(p.cfg.Start))
	if p.cfg.Scripts.On {
		p.script.left = maxScriptReads
		p.runtime(t, scriptMemory{p, t})
	}
	exe, _, err := proc.Exe(pid)
	if err != nil {
		return
	}
	for _, m := range t.space.Modules() {
		if m.Path == exe {
			p.cfg.Names.open(t.names, m)
		}
	}
}

// early takes what the engine has read of a young process.
func (ts *targets) early(pid int, at time.Duration, e *early) {
	isNew := ts.all[pid] == nil
	t := ts.of(pid)
	if isNew && t.source != nil && e.pages >= 0 {
		t.source.Of(e.pages)
	} else {
		e.pages.Close()
	}
	if ts.cfg.Until.Over() {
		return
	}
	if name := strings.TrimSuffix(string(e.comm), "\n"); name != "" && name != t.name {
		t.name = name
		ts.rec.write(&capture.Name{PID: pid, Name: t.name})
	}
	if t.offer(e.maps) {
		t.past.unlisted = false
		t.past.known(at, t.space)
	}
}

// close keeps what there is to report of a process.
func (ts *targets) close(t *target) {
	if t == nil || t.space == nil {
		return
	}
	for _, m := range t.space.Modules() {
		r := m.Report()
		if r.Used && len(ts.modules) < maxReported {
			ts.modules[r.String()] = true
		}
		for _, problem := range r.Problems {
			if len(ts.problems) < maxReported {
				ts.problems[problem.String()] = true
			}
		}
	}
	t.space.Close()
	if t.source != nil {
		t.source.Close()
	}
	if t.opened {
		t.pages.Close()
	}
}

// leave drops what is known of a thread.
func (ts *targets) leave(l left) {
	if t := ts.all[l.pid]; t != nil {
		delete(t.threads, l.tid)
	}
}

// forget drops what is known of a process that has ended or become another.
func (ts *targets) forget(pid int) {
	ts.rec.write(&capture.Gone{PID: pid})
	if t := ts.all[pid]; t != nil {
		ts.close(t)
		ts.out.forget(t.names) // behind the last of its stacks
	}
	delete(ts.all, pid)
}

func (ts *targets) closeAll() {
	for _, t := range ts.all {
		ts.close(t)
	}
	clear(ts.all)
}

// maxReported bounds the modules and the defects of tables that are reported: a
// program can start others without end.
const maxReported = 1000

// Modules lists the modules that were used, with their tables, and the defects
// of tables. Call it when the run is over.
func (p *Pipeline) Modules() (modules, problems []string) {
	return slices.Sorted(maps.Keys(p.targets.modules)), slices.Sorted(maps.Keys(p.targets.problems))
}

// walker returns the walker for stacks of one architecture.
func (t *target) walker(a *regs.Arch, pac uint64, cfg *PipelineConfig) *unwind.Walker {
	if a == regs.ARM64 && pac == 0 {
		pac = unknownPAC
	}
	k := walkerKey{a, pac}
	w := t.walkers[k]
	if w == nil {
		if len(t.walkers) >= maxWalkers {
			clear(t.walkers)
		}
		if pac != 0 {
			a = a.WithPAC(pac)
		}
		w = unwind.New(a, t.space, cfg.Walk.Order, cfg.Walk.MaxDepth)
		if m := t.managed(); m != nil {
			w.SetRuntime(m, false)
		} else {
			w.SetRuntime(module.NewGoSwitch(t.space, taking.RedZone), true)
		}
		t.walkers[k] = w
	}
	return w
}

// maxWalkers bounds the walkers of a process: a recording may tell any mask.
const maxWalkers = 8

// unknownPAC strips return addresses of arm64 where the kernel has not told the
// mask: bits 48–54, which no address of a kernel with 48-bit addresses has
// (arch/arm64/include/asm/pointer_auth.h).
const unknownPAC = 0x7f << 48

// place is the module and address of a frame, for the log.
func (t *target) place(f unwind.Frame) string {
	if m, vaddr, ok := t.space.Module(f.LookupPC()); ok {
		return fmt.Sprintf("%s+%#x", m.Name(), vaddr)
	}
	return fmt.Sprintf("%#x", f.PC)
}

// threadNameAge is how long the name of a thread is believed.
const threadNameAge = time.Second

// name reads the name of a thread, if that was not done lately.
func (ts *targets) name(t *target, tid int, s *seen, at time.Duration) {
	if !ts.cfg.Live || s.name != "" && at-s.named < threadNameAge || t.past.over || ts.cfg.Until.Over() {
		return
	}
	s.named = at
	name, err := proc.Task(t.pid, tid).Comm()
	if err != nil || name == s.name {
		return
	}
	s.name = name
	ts.rec.write(&capture.Name{PID: t.pid, TID: tid, Name: name})
}
