package live

import (
	"cmp"
	"slices"

	"sfsample/output"
)

// The entries that are shared when a table is full.
const (
	moreFuncs   = "[more: too many functions]"
	moreStacks  = "[more: too many distinct stacks]"
	moreThreads = "[more: too many threads]"
	moreWaits   = "[more: too many kinds of wait]"
)

// Running is the wait of a thread that waits for nothing.
const Running = "running"

// full is the number of the entry that is shared when a table is full, of every table.
const full = 0

// Func is a function, or what stands in a stack for one.
type Func struct {
	Name, Module string // as they are shown
	Script       bool
}

// Thread is a thread that was sampled.
type Thread struct {
	PID, TID      int
	Process, Name string // as they are shown
}

// tables number functions, stacks, threads and waits. They only grow, and nothing in them changes but the names of threads.
type tables struct {
	funcs   []Func
	funcIDs map[Func]uint32
	stacks  [][]uint32 // functions, innermost first
	ids     map[string]uint32
	text    int // bytes of the names of functions
	frames  int // of all stacks
	known   map[*output.Stack]uint32
	threads []Thread
	tids    map[int]uint32
	waits   []string
	waitIDs map[string]uint32
}

func newTables() tables {
	return tables{
		funcs: []Func{{Name: moreFuncs}, {Name: moreStacks}}, funcIDs: map[Func]uint32{},
		stacks: [][]uint32{{1}}, ids: map[string]uint32{}, known: map[*output.Stack]uint32{},
		threads: []Thread{{Name: moreThreads}}, tids: map[int]uint32{},
		waits: []string{moreWaits, Running}, waitIDs: map[string]uint32{Running: 1},
	}
}

func (t *tables) stack(s *output.Stack) uint32 {
	if s == nil || len(s.Frames) == 0 {
		return t.intern([]uint32{t.function(&output.Frame{Func: "[no stack]"})})
	}
	if id, ok := t.known[s]; ok {
		return id
	}
	list := make([]uint32, len(s.Frames), len(s.Frames)+1)
	for i := range s.Frames {
		list[i] = t.function(&s.Frames[i])
	}
	if s.End != "" && "["+s.End+"]" != output.FramesMissing {
		list = append(list, t.function(&output.Frame{Func: "[truncated: " + s.End + "]"}))
	}
	id := t.intern(list)
	if len(t.known) >= maxKnown { // their frames would be kept from the collector
		clear(t.known)
	}
	t.known[s] = id
	return id
}

// intern numbers a stack.
func (t *tables) intern(list []uint32) uint32 {
	key := make([]byte, 0, 4*len(list))
	for _, f := range list {
		key = append(key, byte(f), byte(f>>8), byte(f>>16), byte(f>>24))
	}
	if id, ok := t.ids[string(key)]; ok {
		return id
	}
	if len(t.stacks) >= maxStacks || t.frames+len(list) > maxFrames {
		return full
	}
	id := uint32(len(t.stacks))
	t.stacks, t.frames = append(t.stacks, slices.Clip(list)), t.frames+len(list)
	t.ids[string(key)] = id
	return id
}

func (t *tables) function(f *output.Frame) uint32 {
	key := Func{f.Label(), output.Printable(f.Module), f.Script}
	if id, ok := t.funcIDs[key]; ok {
		return id
	}
	size := len(key.Name) + len(key.Module)
	if len(t.funcs) >= maxFuncs || t.text+size > maxText {
		return full
	}
	t.text += size
	id := uint32(len(t.funcs))
	t.funcs = append(t.funcs, key)
	t.funcIDs[key] = id
	return id
}

func (t *tables) thread(s *output.Sample) uint32 {
	now := Thread{s.PID, s.TID, output.Printable(s.Process), output.Printable(s.Thread)}
	id, ok := t.tids[s.TID]
	switch {
	case ok && t.threads[id].PID == s.PID:
		t.threads[id] = now // its name may have changed
		return id
	case len(t.threads) >= maxThreads:
		return full
	}
	id = uint32(len(t.threads))
	t.threads = append(t.threads, now)
	t.tids[s.TID] = id
	return id
}

func (t *tables) wait(s *output.Sample) uint32 {
	text := output.Printable(cmp.Or(s.Wait, s.State, Running))
	id, ok := t.waitIDs[text]
	if !ok && len(t.waits) >= maxWaits {
		return full
	}
	if !ok {
		id = uint32(len(t.waits))
		t.waits = append(t.waits, text)
		t.waitIDs[text] = id
	}
	return id
}
