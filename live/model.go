package live

import (
	"maps"
	"slices"
	"sync"
	"time"

	"sfsample/output"
	"sfsample/sampler/ledger"
)

// Bounds of what a Model holds, about 35 MB in all.
const (
	maxFuncs   = 1 << 16
	maxStacks  = 1 << 16
	maxFrames  = 1 << 20 // of all stacks
	maxText    = 8 << 20 // bytes of the names of functions
	maxThreads = 1 << 14
	maxWaits   = 1 << 10
	maxCells   = 1 << 16 // of all rounds
	maxRound   = 1 << 14 // cells of one
	maxKnown   = 1 << 12 // stacks that are recognised by their pointer
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

// recent is how many rounds the window of the recent ones has.
const recent = 10

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

// cell is what is told apart: the numbers of a stack, a thread and a wait.
type cell struct{ stack, thread, wait uint32 }

// Weight is the time that samples stand for.
type Weight struct{ CPU, Wall time.Duration }

func (w *Weight) add(x Weight) {
	w.CPU += x.CPU
	w.Wall += x.Wall
}

// Round is what is told of a round.
type Round struct {
	Start, End         time.Time
	Account            ledger.Account
	Processes, Threads int
	P50, P99, Max      time.Duration // of the pauses
	Stops              int64         // that these are of
	Stride             float64       // ticks for each that was answered
	Last               bool          // the run ends with it
}

// window is what was counted in some rounds.
type window struct {
	cells   map[cell]Weight
	account ledger.Account
	took    time.Duration // of the rounds
	max     time.Duration // the longest pause
	limit   int           // of cells
}

func newWindow(limit int) *window { return &window{cells: map[cell]Weight{}, limit: limit} }

func (w *window) add(c cell, x Weight) {
	sum, ok := w.cells[c]
	if !ok && len(w.cells) >= w.limit {
		c = cell{stack: full}
		sum = w.cells[c]
	}
	sum.add(x)
	w.cells[c] = sum
}

func (w *window) merge(x *window) {
	for c, weight := range x.cells {
		w.add(c, weight)
	}
	w.end(&x.account, x.took, x.max)
}

// end adds what is told of a round.
func (w *window) end(a *ledger.Account, took, longest time.Duration) {
	w.account.Ticks += a.Ticks
	w.account.Expected += a.Expected
	for i, n := range a.Count {
		w.account.Count[i] += n
	}
	w.took += took
	w.max = max(w.max, longest)
}

// Model counts samples.
type Model struct {
	mu sync.Mutex

	funcs   []Func
	funcIDs map[Func]uint32
	stacks  [][]uint32 // functions, innermost first
	ids     map[string]uint32
	text    int // bytes of their names
	frames  int // of all stacks
	known   map[*output.Stack]uint32
	threads []Thread
	tids    map[int]uint32
	waits   []string
	waitIDs map[string]uint32

	now   *window   // the round under way
	past  []*window // the last rounds, oldest first
	all   *window
	round Round // the last
	first time.Time
}

// full is the number of the entry that is shared when a table is full, of every table.
const full = 0

// New returns an empty model.
func New() *Model {
	m := &Model{
		funcIDs: map[Func]uint32{}, ids: map[string]uint32{}, known: map[*output.Stack]uint32{}, tids: map[int]uint32{}, waitIDs: map[string]uint32{},
		now: newWindow(maxRound), all: newWindow(maxCells),
	}
	m.funcs = []Func{{Name: moreFuncs}, {Name: moreStacks}}
	m.stacks = [][]uint32{{1}}
	m.threads = []Thread{{Name: moreThreads}}
	m.waits = []string{moreWaits, Running}
	m.waitIDs[Running] = 1
	return m
}

// Add counts a sample.
func (m *Model) Add(s *output.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cell{m.stack(s.Stack), m.thread(s), m.wait(s)}
	m.now.add(c, Weight{s.CPU, s.Wall})
}

func (m *Model) stack(s *output.Stack) uint32 {
	if s == nil || len(s.Frames) == 0 {
		return m.intern([]uint32{m.function(&output.Frame{Func: "[no stack]"})})
	}
	if id, ok := m.known[s]; ok {
		return id
	}
	list := make([]uint32, len(s.Frames), len(s.Frames)+1)
	for i := range s.Frames {
		list[i] = m.function(&s.Frames[i])
	}
	if s.End != "" && "["+s.End+"]" != output.FramesMissing {
		list = append(list, m.function(&output.Frame{Func: "[truncated: " + s.End + "]"}))
	}
	id := m.intern(list)
	if len(m.known) >= maxKnown { // their frames would be kept from the collector
		clear(m.known)
	}
	m.known[s] = id
	return id
}

// intern numbers a stack.
func (m *Model) intern(list []uint32) uint32 {
	key := make([]byte, 0, 4*len(list))
	for _, f := range list {
		key = append(key, byte(f), byte(f>>8), byte(f>>16), byte(f>>24))
	}
	if id, ok := m.ids[string(key)]; ok {
		return id
	}
	if len(m.stacks) >= maxStacks || m.frames+len(list) > maxFrames {
		return full
	}
	id := uint32(len(m.stacks))
	m.stacks, m.frames = append(m.stacks, slices.Clip(list)), m.frames+len(list)
	m.ids[string(key)] = id
	return id
}

func (m *Model) function(f *output.Frame) uint32 {
	key := Func{f.Label(), output.Printable(f.Module), f.Script}
	if id, ok := m.funcIDs[key]; ok {
		return id
	}
	size := len(key.Name) + len(key.Module)
	if len(m.funcs) >= maxFuncs || m.text+size > maxText {
		return full
	}
	m.text += size
	id := uint32(len(m.funcs))
	m.funcs = append(m.funcs, key)
	m.funcIDs[key] = id
	return id
}

func (m *Model) thread(s *output.Sample) uint32 {
	t := Thread{s.PID, s.TID, output.Printable(s.Process), output.Printable(s.Thread)}
	id, ok := m.tids[s.TID]
	switch {
	case ok && m.threads[id].PID == s.PID:
		m.threads[id] = t // its name may have changed
		return id
	case len(m.threads) >= maxThreads:
		return full
	}
	id = uint32(len(m.threads))
	m.threads = append(m.threads, t)
	m.tids[s.TID] = id
	return id
}

func (m *Model) wait(s *output.Sample) uint32 {
	text := s.Wait
	if text == "" {
		text = s.State
	}
	if text == "" {
		text = Running
	}
	text = output.Printable(text)
	id, ok := m.waitIDs[text]
	if !ok && len(m.waits) >= maxWaits {
		return full
	}
	if !ok {
		id = uint32(len(m.waits))
		m.waits = append(m.waits, text)
		m.waitIDs[text] = id
	}
	return id
}

// EndRound ends the round under way.
func (m *Model) EndRound(r Round) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first.IsZero() {
		m.first = r.Start
	}
	m.now.end(&r.Account, r.End.Sub(r.Start), r.Max)
	m.all.merge(m.now)
	if n := len(m.past); r.Last && n > 0 && 2*m.now.took < m.past[n-1].took {
		// The rest of a run whose targets have ended: by itself it would show nothing in the place of the last round.
		m.past[n-1].merge(m.now)
		m.now, m.round.End = newWindow(maxRound), r.End
		return
	}
	if m.past = append(m.past, m.now); len(m.past) > recent {
		m.past = slices.Delete(m.past, 0, 1)
	}
	m.now, m.round = newWindow(maxRound), r
}

// Reset forgets what was counted.
func (m *Model) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now, m.past, m.all, m.round = newWindow(maxRound), nil, newWindow(maxCells), Round{Processes: m.round.Processes, Threads: m.round.Threads}
}

// Window says which rounds are looked at.
type Window uint8

const (
	Recent Window = iota // the last ten rounds
	Last                 // the last one
	All                  // since the beginning, or Reset
	numWindows
)

// Picture is a model as it was when a round had ended.
type Picture struct {
	Round   Round // the last
	Took    time.Duration
	Elapsed time.Duration // since the first round's start
	Account ledger.Account
	Max     time.Duration // the longest pause
	CPU     time.Duration

	cells   []counted
	funcs   []Func
	stacks  [][]uint32
	threads []Thread
	waits   []string
}

type counted struct {
	cell
	Weight
}

// Take returns how the model stands.
func (m *Model) Take(which Window) *Picture {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.all
	switch {
	case which == All:
	case len(m.past) == 0:
		w = newWindow(maxCells)
	case which == Last:
		w = m.past[len(m.past)-1]
	default:
		w = newWindow(maxCells)
		for _, x := range m.past {
			w.merge(x)
		}
	}
	p := &Picture{
		Round: m.round, Took: w.took, Account: w.account, Max: w.max,
		// These grow, and what is there does not change.
		funcs: m.funcs[:len(m.funcs):len(m.funcs)], stacks: m.stacks[:len(m.stacks):len(m.stacks)], waits: m.waits[:len(m.waits):len(m.waits)],
		threads: slices.Clone(m.threads),
	}
	if !m.first.IsZero() && !m.round.End.IsZero() {
		p.Elapsed = m.round.End.Sub(m.first)
	}
	p.cells = make([]counted, 0, len(w.cells))
	for c, x := range maps.All(w.cells) {
		p.cells = append(p.cells, counted{c, x})
		p.CPU += x.CPU
	}
	return p
}
