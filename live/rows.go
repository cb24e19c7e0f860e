package live

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"sfsample/output"
)

// By says what a row is.
type By uint8

const (
	ByFunction By = iota
	ByScript      // functions of scripts
	ByModule
	ByThread
	ByWait
)

// Query says which rows are asked for.
type Query struct {
	By      By
	Wall    bool // blocked threads too
	ByTotal bool // the order
	Filter  *regexp.Regexp
}

// Row is a line of the table.
type Row struct {
	Key         string // the same for the same thing, at any time
	Self, Total time.Duration
	Name        string
	Where       string // of a function its module, of a thread what it did most, of a wait how many threads

	id uint32
}

// weight is what a cell counts for.
func (q *Query) weight(c *counted) time.Duration {
	if q.Wall {
		return c.Wall
	}
	return c.CPU
}

// Rows are the rows of a table, in its order, and the sum of which each is a part.
func (p *Picture) Rows(q Query) (rows []Row, sum time.Duration) {
	g := p.groups(q)
	self, total := make([]time.Duration, g.many), make([]time.Duration, g.many)
	seen := make([]int, g.many) // by which cell, from 1
	for i := range p.cells {
		c := &p.cells[i]
		w := q.weight(c)
		if w == 0 {
			continue
		}
		sum += w
		first := true
		g.each(c, func(id uint32) {
			if first {
				self[id] += w
				first = false
			}
			if seen[id] != i+1 {
				seen[id] = i + 1
				total[id] += w
			}
		})
	}
	for id, t := range total {
		if t > 0 {
			r := g.row(uint32(id))
			r.Self, r.Total, r.id = self[id], t, uint32(id)
			if q.Filter == nil || q.Filter.MatchString(r.Name) || q.Filter.MatchString(r.Where) {
				rows = append(rows, r)
			}
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		x, y := [2]time.Duration{a.Self, a.Total}, [2]time.Duration{b.Self, b.Total}
		if q.ByTotal {
			x[0], x[1], y[0], y[1] = x[1], x[0], y[1], y[0]
		}
		return cmp.Or(cmp.Compare(y[0], x[0]), cmp.Compare(y[1], x[1]), strings.Compare(a.Key, b.Key))
	})
	return rows, sum
}

// groups tells to which rows a cell counts: to the first itself, to all in total.
type groups struct {
	many int
	each func(c *counted, f func(id uint32))
	row  func(id uint32) Row
}

func (p *Picture) groups(q Query) groups {
	switch q.By {
	case ByThread:
		most := p.most(q)
		return groups{len(p.threads), func(c *counted, f func(uint32)) { f(c.thread) }, func(id uint32) Row {
			t := &p.threads[id]
			name := fmt.Sprintf("%7d %s", t.TID, t.Name)
			if t.Name != t.Process {
				name += " (" + t.Process + ")"
			}
			return Row{Key: fmt.Sprint("t", id), Name: name, Where: most[id]}
		}}
	case ByWait:
		many := p.waiters(q)
		return groups{len(p.waits), func(c *counted, f func(uint32)) { f(c.wait) }, func(id uint32) Row {
			return Row{Key: "w" + p.waits[id], Name: p.waits[id], Where: output.Plural(int64(len(many[id])), "thread")}
		}}
	case ByModule:
		names, of := p.modules()
		return groups{len(names), func(c *counted, f func(uint32)) {
			for _, fn := range p.stacks[c.stack] {
				f(of[fn])
			}
		}, func(id uint32) Row { return Row{Key: "m" + names[id], Name: names[id]} }}
	}
	return groups{len(p.funcs), func(c *counted, f func(uint32)) {
		for _, fn := range p.stacks[c.stack] {
			if q.By != ByScript || p.funcs[fn].Script {
				f(fn)
			}
		}
	}, func(id uint32) Row {
		fn := &p.funcs[id]
		return Row{Key: fmt.Sprint("f", id), Name: fn.Name, Where: fn.Module}
	}}
}

// modules numbers the modules of functions.
func (p *Picture) modules() (names []string, of []uint32) {
	ids := map[string]uint32{}
	of = make([]uint32, len(p.funcs))
	for i := range p.funcs {
		name := p.funcs[i].Module
		if name == "" {
			name = "[none]"
		}
		id, ok := ids[name]
		if !ok {
			id = uint32(len(names))
			ids[name] = id
			names = append(names, name)
		}
		of[i] = id
	}
	return names, of
}

// most is for each thread what it did for the longest time: a wait, or a function.
func (p *Picture) most(q Query) []string {
	type did struct {
		thread uint32
		what   string
	}
	sums := map[did]time.Duration{}
	for i := range p.cells {
		c := &p.cells[i]
		what := p.waits[c.wait]
		if what == Running {
			what = p.funcs[p.stacks[c.stack][0]].Name
		}
		if w := q.weight(c); w > 0 {
			sums[did{c.thread, what}] += w
		}
	}
	longest := make([]time.Duration, len(p.threads))
	what := make([]string, len(p.threads))
	for d, w := range sums {
		if w > longest[d.thread] || w == longest[d.thread] && d.what < what[d.thread] {
			longest[d.thread], what[d.thread] = w, d.what
		}
	}
	return what
}

// waiters are the threads of each wait.
func (p *Picture) waiters(q Query) []map[uint32]bool {
	list := make([]map[uint32]bool, len(p.waits))
	for i := range p.cells {
		c := &p.cells[i]
		if q.weight(c) == 0 {
			continue
		}
		if list[c.wait] == nil {
			list[c.wait] = map[uint32]bool{}
		}
		list[c.wait][c.thread] = true
	}
	return list
}

// Part is a part of a row.
type Part struct {
	Name   string
	Weight time.Duration
}

// Detail is what there is to know of a row.
type Detail struct {
	Callers, Callees []Part // of a function; heaviest first
	Functions        []Part // of anything else
	Stacks           []Stack
}

// Stack is a call path of a row, innermost first.
type Stack struct {
	Weight time.Duration
	Frames []string
	At     int // index of the function that the row is of; -1: of none
}

// Bounds of a detail.
const (
	maxParts = 8
	maxPaths = 3
)

// Detail tells of a row of q.
func (p *Picture) Detail(q Query, r *Row) Detail {
	g := p.groups(q)
	callers, callees, functions := map[uint32]time.Duration{}, map[uint32]time.Duration{}, map[uint32]time.Duration{}
	stacks := map[uint32]time.Duration{}
	ofFunction := q.By == ByFunction || q.By == ByScript
	for i := range p.cells {
		c := &p.cells[i]
		w, in := q.weight(c), false
		g.each(c, func(id uint32) { in = in || id == r.id })
		if w == 0 || !in {
			continue
		}
		list := p.stacks[c.stack]
		stacks[c.stack] += w
		if !ofFunction {
			functions[list[0]] += w
			continue
		}
		// Of a function that calls itself the outermost counts for callers, the innermost for callees.
		inner := slices.Index(list, r.id)
		outer := len(list) - 1
		for list[outer] != r.id {
			outer--
		}
		if inner > 0 {
			callees[list[inner-1]] += w
		}
		if outer+1 < len(list) {
			callers[list[outer+1]] += w
		}
	}
	d := Detail{Callers: p.parts(callers), Callees: p.parts(callees), Functions: p.parts(functions)}
	ids := slices.SortedFunc(maps.Keys(stacks), func(a, b uint32) int { return cmp.Or(cmp.Compare(stacks[b], stacks[a]), cmp.Compare(a, b)) })
	for _, id := range ids[:min(maxPaths, len(ids))] {
		s := Stack{Weight: stacks[id], At: -1}
		for i, f := range p.stacks[id] {
			s.Frames = append(s.Frames, p.funcs[f].Name)
			if ofFunction && f == r.id && s.At < 0 {
				s.At = i
			}
		}
		d.Stacks = append(d.Stacks, s)
	}
	return d
}

func (p *Picture) parts(sums map[uint32]time.Duration) []Part {
	var list []Part
	for id, w := range sums {
		list = append(list, Part{p.funcs[id].Name, w})
	}
	slices.SortFunc(list, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Name, b.Name))
	})
	return list[:min(maxParts, len(list))]
}
