package output

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are what the writers need to know of the run.
type Options struct {
	Hz     float64 // ticks a second
	Wall   bool    // samples weigh wall-clock time, not CPU time
	By     By      // what follows the process's name
	Lines  bool    // file and line in labels, where they are known
	Micros bool    // Folded counts microseconds, not ticks
}

// By says what is told apart below, or in, the frame of the process.
type By string

const (
	ByProcess By = "process" // nothing
	ByPID     By = "pid"     // the name of the process ends in its id, app-123
	ByThread  By = "thread"  // the thread's name is a frame
	ByState   By = "state"   // the state is: running, or the call that is waited in
)

// weight is what a sample counts for.
func (o Options) weight(s *Sample) time.Duration {
	if o.Wall {
		return s.Wall
	}
	return s.CPU
}

// tick is the time between two ticks, a microsecond if the rate is not known.
func (o Options) tick() time.Duration {
	if o.Hz <= 0 {
		return time.Microsecond
	}
	return time.Duration(float64(time.Second) / o.Hz)
}

// deal expresses weights in whole units, by largest remainder (Hamilton): each
// gets what it has of whole ones, and those that the rounded sum has beyond
// that go one each to the largest rests, to the first of equal ones. none is
// how many weights got no unit at all.
func deal(weights []int64, unit int64) (units []int64, none int) {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	return dealOut(weights, unit, (sum+unit/2)/unit)
}

// dealOut is deal where it is known how many units there are: what the weights have of whole ones, or more.
func dealOut(weights []int64, unit, all int64) (units []int64, none int) {
	units = make([]int64, len(weights))
	var dealt int64
	var order []int
	for i, w := range weights {
		units[i] = w / unit
		dealt += units[i]
		if w%unit > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b]%unit, weights[a]%unit) })
	for _, i := range order[:min(int64(len(order)), all-dealt)] {
		units[i]++
	}
	for i, w := range weights {
		if w > 0 && units[i] == 0 {
			none++
		}
	}
	return units, none
}

// paths counts samples by call path, in names. It is what folded lines and
// flame graphs are made of.
type paths struct {
	opts  Options
	run   Run
	kinds bool // names carry what they are, see appendKind
	names table
	tree  tree
	cache stackCache[pathKey]
	buf   []byte
}

type pathKey struct {
	stack           *Stack
	process, second string // second: the frame below the process, if any
	pid             int    // 0: not told
}

func newPaths(o Options) paths {
	p := paths{opts: o, tree: newTree(maxNodes)}
	p.names.add(overflow)
	return p
}

// describe is told of the run, at its end.
func (p *paths) describe(r Run) { p.run = r }

// add counts s. It does not allocate for a stack that it recognises.
func (p *paths) add(s *Sample) { p.tree.nodes[p.find(s)].self += int64(p.opts.weight(s)) }

// find returns the node of a sample's stack.
func (p *paths) find(s *Sample) uint32 {
	k := pathKey{stack: s.Stack, process: s.Process}
	switch p.opts.By {
	case ByPID:
		k.pid = s.PID
	case ByThread:
		k.second = s.Thread
	case ByState:
		k.second = s.State
	}
	n, ok := p.cache.ids[k]
	if !ok {
		n = p.walk(k)
		p.cache.keep(k, k.stack, n)
	}
	return n
}

// walk follows a stack from the root: process, thread, how it was cut, then its
// frames, outermost first.
func (p *paths) walk(k pathKey) uint32 {
	process := k.process
	if k.pid != 0 {
		process = fmt.Sprintf("%s-%d", process, k.pid)
	}
	n, ok := p.step(0, p.plain(process, KindProcess))
	if ok && (p.opts.By == ByThread || p.opts.By == ByState) {
		n, ok = p.step(n, p.plain(k.second, KindProcess))
	}
	if k.stack == nil {
		return n
	}
	if cut := k.stack.truncated(); ok && cut != "" {
		n, ok = p.step(n, p.plain(cut, KindMarker))
	}
	for i := len(k.stack.Frames) - 1; ok && i >= 0; i-- {
		n, ok = p.step(n, p.frame(&k.stack.Frames[i]))
	}
	if !ok && len(k.stack.Frames) > 0 {
		p.buf = p.frame(&k.stack.Frames[0])
		id, ok := p.names.id(p.buf)
		n = p.tree.leaf(n, id, ok)
	}
	return n
}

// frame is the key of a frame of a stack.
func (p *paths) frame(f *Frame) []byte {
	name := appendFolded(p.buf[:0], f, p.opts.Lines)
	if p.kinds {
		name = appendKind(name, kindOf(f), f.Module)
	}
	return name
}

// plain is the key of a frame that is a name alone.
func (p *paths) plain(name string, k Kind) []byte {
	b := foldSafe(appendClean(p.buf[:0], name), 0)
	if p.kinds {
		b = appendKind(b, k, "")
	}
	return b
}

// step goes from node n to its child of this name, as tree.step does.
func (p *paths) step(n uint32, name []byte) (uint32, bool) {
	p.buf = name // keep what it has grown to
	id, ok := p.names.id(name)
	return p.tree.step(n, id, ok)
}

// Notes says of the result what a reader should know.
func (p *paths) Notes() []string { return p.tree.notes() }

func (p *paths) name(n uint32) string { return p.names.keys[p.tree.nodes[n].frame] }

// Folded writes collapsed stacks: one line for each distinct call path, root
// first, frames joined by ';', then a blank and the number of ticks; sorted by
// byte value, as LC_ALL=C sort would. The first frame is the process. A stack
// that was cut has "[truncated: REASON]" below it.
//
// The counts are whole ones, of ticks or of microseconds, dealt so that their
// sum is that of the weights; a stack that gets none has no line, and is told
// in [Folded.Notes].
type Folded struct {
	paths
	w    io.Writer
	none int  // stacks without a line
	some bool // a stack has one
}

// NewFolded returns a Folded that writes to w when it is closed.
func NewFolded(w io.Writer, o Options) *Folded {
	return &Folded{paths: newPaths(o), w: w}
}

// Add counts one sample; it never fails.
func (f *Folded) Add(s *Sample) error {
	f.add(s)
	return nil
}

// Close writes the lines.
func (f *Folded) Close() error { return f.write(f.w) }

func (f *Folded) write(w io.Writer) error {
	unit := f.opts.tick()
	if f.opts.Micros {
		unit = time.Microsecond
	}
	weights := make([]int64, len(f.tree.nodes))
	for i := range f.tree.nodes {
		weights[i] = f.tree.nodes[i].self
	}
	list, first := f.tree.children()
	fw := foldedWriter{p: &f.paths, list: list, first: first, out: bufio.NewWriterSize(w, 1<<16)}
	fw.counts, f.none = deal(weights, int64(unit))
	f.some = slices.ContainsFunc(fw.counts, func(n int64) bool { return n > 0 })
	fw.below(0)
	return fw.out.Flush()
}

// Notes adds to those of all flame graphs how many stacks have no line.
func (f *Folded) Notes() []string {
	notes := f.paths.Notes()
	switch {
	case f.none == 0 || f.opts.Micros:
	case !f.some:
		notes = append(notes, fmt.Sprintf("it is empty, as all stacks together weigh less than half a tick of %v (try: --unit us)", f.opts.tick().Round(time.Microsecond)))
	default:
		notes = append(notes, fmt.Sprintf("stacks that weigh too little for a whole tick and have no line: %d; their time is counted with the others (try: --unit us)", f.none))
	}
	return notes
}

// foldedWriter walks a tree; path holds the frames above the current node,
// each followed by ';'.
type foldedWriter struct {
	p           *paths
	list, first []uint32
	counts      []int64 // of each node, by itself
	path        []byte
	out         *bufio.Writer // remembers its first error
}

// item is a line, or all lines that go on from a node: the text that follows
// the path decides where it stands among its neighbours.
type item struct {
	text string
	node uint32
	line bool
}

func (w *foldedWriter) below(n uint32) {
	children := w.list[w.first[n]:w.first[n+1]]
	items := make([]item, 0, len(children))
	for _, c := range children {
		name := w.p.name(c)
		if n := w.counts[c]; n != 0 {
			items = append(items, item{name + " " + strconv.FormatInt(n, 10), c, true})
		}
		if w.first[c] < w.first[c+1] {
			items = append(items, item{name + ";", c, false})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.text, b.text) })
	for _, it := range items {
		if it.line {
			w.out.Write(w.path)
			w.out.WriteString(it.text)
			w.out.WriteByte('\n')
			continue
		}
		above := len(w.path)
		w.path = append(w.path, it.text...)
		w.below(it.node)
		w.path = w.path[:above]
	}
}
