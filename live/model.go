package live

import (
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

// recent is how many rounds the window of the recent ones has.
const recent = 10

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
	mu     sync.Mutex
	tables tables

	now   *window   // the round under way
	past  []*window // the last rounds, oldest first
	all   *window
	round Round // the last
	first time.Time
}

// New returns an empty model.
func New() *Model {
	return &Model{tables: newTables(), now: newWindow(maxRound), all: newWindow(maxCells)}
}

// Add counts a sample.
func (m *Model) Add(s *output.Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cell{m.tables.stack(s.Stack), m.tables.thread(s), m.tables.wait(s)}
	m.now.add(c, Weight{s.CPU, s.Wall})
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
		funcs: m.tables.funcs[:len(m.tables.funcs):len(m.tables.funcs)], stacks: m.tables.stacks[:len(m.tables.stacks):len(m.tables.stacks)], waits: m.tables.waits[:len(m.tables.waits):len(m.tables.waits)],
		threads: slices.Clone(m.tables.threads),
	}
	if !m.first.IsZero() && !m.round.End.IsZero() {
		p.Elapsed = m.round.End.Sub(m.first)
	}
	p.cells = make([]counted, 0, len(w.cells))
	for c, x := range w.cells {
		p.cells = append(p.cells, counted{c, x})
		p.CPU += x.CPU
	}
	return p
}
