package sampler

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
	"sfsample/unwind"
)

// rawFrame is a frame with the object that its code lies in. The stacks of a
// process share it: a program has far fewer of them than stacks.
type rawFrame struct {
	frameKey
	module  *module.Module  // nil: none
	lookup  uint64          // the address that names the frame
	vaddr   uint64          // the same in the module's own numbering
	fn      module.Function // that holds it, if covered
	covered bool            // by an unwind table
	// region is what to show without a module: the kernel's name of the
	// mapping or "[anon]"; empty if the address is not mapped.
	region      string
	regionStart uint64

	named []output.Frame // set by the goroutine that names, if names there stay
}

// frameKey is what tells frames of a process apart.
type frameKey struct {
	pc     uint64
	how    unwind.How
	caller bool    // pc is a return address
	signal bool    // pc is in a signal trampoline, which nothing has called
	script *script // the frame is one of a script, which stands for the native one at pc; nil: it is native
}

// frameKeyAt is the key of the frame at i.
func frameKeyAt(frames []unwind.Frame, i int) frameKey {
	f := &frames[i]
	return frameKey{f.PC, f.How, f.Caller, i+1 < len(frames) && frames[i+1].How == unwind.Signal, nil}
}

// frameKeys appends the keys of all frames to list.
func frameKeys(list []frameKey, frames []unwind.Frame) []frameKey {
	for i := range frames {
		list = append(list, frameKeyAt(frames, i))
	}
	return list
}

// stack is a distinct stack of one process. It is named once.
type stack struct {
	kernel []output.Frame // innermost first
	text   string         // what kernel was made of
	frames []*rawFrame
	end    string

	process *processNames // whose frames they are; nil: there are none
	named   *output.Stack // set by the goroutine that names

	plain *stack                      // the same without what is waited for; nil: this one is
	tell  func([]output.Frame) string // what is waited for, in words
	// Of the goroutine that names:
	wait    string                   // what tell has told
	waiting map[string]*output.Stack // of a plain one, by what is waited for
}

// maxWaits bounds how many stacks are made of one that differ in what is waited for.
const maxWaits = 256

// named is a sample on its way to being named, or the news that no more will
// come of a process.
type named struct {
	stack  *stack
	sample output.Sample
	gone   *processNames
	round  *Round

	batches int8 // see item
}

// Bounds of what a target remembers. Programs have few distinct stacks; for
// others, names are looked up again.
const (
	// maxHeld bounds the frames of the stacks (8 bytes each, and 104 once they
	// are named).
	maxHeld = 1 << 16
	// maxFrames bounds the distinct frames (about 300 bytes each).
	maxFrames = 1 << 14
	// roundPart is one part in so many of both: what is kept beyond the end of a round, so that an agent stays small for ever.
	roundPart = 64
)

// met is the distinct stacks and frames of a process that were met, of one generation of its mappings.
type met struct {
	gen    uint64
	stacks map[uint64][]*stack // by hash
	frames map[frameKey]*rawFrame
	held   int // frames in stacks
}

func newMet() met { return met{stacks: map[uint64][]*stack{}, frames: map[frameKey]*rawFrame{}} }

// forget drops them all.
func (m *met) forget() {
	clear(m.stacks)
	clear(m.frames)
	m.held = 0
}

// thin forgets what processes have shown, where that is much.
func (ts *targets) thin() {
	for _, t := range ts.all {
		if t.met.held > maxHeld/roundPart || len(t.met.frames) > maxFrames/roundPart {
			t.met.forget()
		}
	}
}

// intern returns the stack with these frames and this end, the one that was
// seen before if there is one.
func (t *target) intern(names *Names, frames []frameKey, kernel []byte, end string) *stack {
	if t.space != nil && t.space.Generation() != t.met.gen {
		// The same addresses may be other code now.
		t.met.forget()
		t.met.gen = t.space.Generation()
	}
	h := hashFrames(frames, kernel, end)
	for _, s := range t.met.stacks[h] {
		if s.is(frames, kernel, end) {
			return s
		}
	}
	if t.met.held += len(frames) + 1; t.met.held > maxHeld || len(t.met.frames) > maxFrames {
		t.met.forget()
		t.met.held = len(frames) + 1
	}
	s := &stack{frames: make([]*rawFrame, len(frames)), end: end, text: string(kernel), kernel: kernelFrames(kernel), process: t.names}
	for i := range frames {
		s.frames[i] = t.frame(names, frames[i])
	}
	t.met.stacks[h] = append(t.met.stacks[h], s)
	return s
}

// frame returns the frame with this key, the one that was seen before if there
// is one.
func (t *target) frame(names *Names, k frameKey) *rawFrame {
	if r := t.met.frames[k]; r != nil {
		return r
	}
	r := &rawFrame{frameKey: k, lookup: k.pc}
	if k.caller && !k.signal {
		r.lookup = k.pc - 1
	}
	if t.space != nil && k.script == nil {
		r.module, r.vaddr, _ = t.space.Module(r.lookup)
		if r.module != nil {
			names.open(t.names, r.module)
			r.fn, r.covered = t.space.Function(r.lookup)
		} else {
			r.region, r.regionStart = regionOf(t.space.Mappings(), k.pc)
		}
	}
	t.met.frames[k] = r
	return r
}

// regionOf names the mapping that covers pc.
func regionOf(maps []procfs.Mapping, pc uint64) (name string, start uint64) {
	m := mappingAt(maps, pc)
	if m == nil {
		return "", 0
	}
	if m.Path != "" && !strings.HasPrefix(m.Path, "[anon") {
		return path.Base(m.Path), m.Start
	}
	return "[anon]", m.Start
}

func (s *stack) is(frames []frameKey, kernel []byte, end string) bool {
	return s.end == end && s.text == string(kernel) && slices.EqualFunc(s.frames, frames, func(a *rawFrame, b frameKey) bool {
		return a.frameKey == b
	})
}

// hashFrames is FNV-1a over what tells stacks apart, by words.
func hashFrames(frames []frameKey, kernel []byte, end string) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range frames {
		h = (h ^ frames[i].pc) * prime
		h = (h ^ uint64(frames[i].how)) * prime
		if s := frames[i].script; s != nil {
			h = (h ^ s.id) * prime
		}
	}
	for _, c := range kernel {
		h = (h ^ uint64(c)) * prime
	}
	for _, c := range []byte(end) {
		h = (h ^ uint64(c)) * prime
	}
	return h
}

// ownStop tells whether the kernel's part of a stack is that of a stop by a
// tracer, us: what the thread did in the kernel before is over then
// (kernel/signal.c, ptrace_stop).
func ownStop(text []byte) bool { return bytes.Contains(text, []byte("] ptrace_stop")) }

// kernelFrames names the kernel's part of a stack: the content of
// /proc/PID/task/TID/stack or, where that may not be read, a line with the name
// of the system call.
func kernelFrames(text []byte) []output.Frame {
	if len(text) == 0 {
		return nil
	}
	if text[0] != '[' {
		return []output.Frame{{Func: string(text), Kernel: true}}
	}
	list, err := procfs.ParseStack(text)
	if err != nil {
		return nil
	}
	frames := make([]output.Frame, len(list))
	for i, f := range list {
		frames[i] = output.Frame{Func: f.Func, Offset: f.Offset, Module: f.Module, Kernel: true}
	}
	return frames
}
