package module

import (
	"slices"
	"time"
)

// Change is a part of the address space that is other code now than it was before.
type Change struct {
	Start, End uint64
	// Replaced: an object had it before, which is not there any more, or the program told otherwise of the code there.
	// Else there was none, or no code at all.
	Replaced bool
}

// maxChanges bounds the changes that are kept apart.
const maxChanges = 256

// Changes returns what has changed since it was last asked. Code that was there
// when the mappings were read for the first time is no change.
func (s *Space) Changes() []Change {
	list := s.history.changes
	s.history.changes = nil
	return list
}

// history is what has become of code.
type history struct {
	changes []Change // that nobody has taken yet
	moved   []region // where objects were that have gone
}

// compare notes where the new code is not that of before, and takes over since when
// the rest is there. Both lists are in ascending order.
func (h *history) compare(old, code []codeRange) {
	for at := uint64(0); len(old) > 0 || len(code) > 0; {
		was, wasEnd := cover(old, at)
		is, isEnd := cover(code, at)
		end := min(wasEnd, isEnd)
		switch {
		case !was.same(is):
			if was != nil && was.mod != nil {
				h.move(region{at, end - at})
			}
			h.note(Change{at, end, was != nil && was.mod != nil})
		case is != nil && at == is.start:
			is.since = was.since
		}
		at = end
		if len(old) > 0 && old[0].end <= at {
			old = old[1:]
		}
		if len(code) > 0 && code[0].end <= at {
			code = code[1:]
		}
	}
}

// cover returns the first range of a list if it covers addr, else nil, and how far
// that holds. No range ends at addr or before.
func cover(list []codeRange, addr uint64) (r *codeRange, end uint64) {
	switch {
	case len(list) == 0:
		return nil, ^uint64(0)
	case addr < list[0].start:
		return nil, list[0].start
	}
	return &list[0], list[0].end
}

// same tells whether two ranges, nil for no code, are code of the same object at the
// same place.
func (r *codeRange) same(q *codeRange) bool {
	if r == nil || q == nil || r.mod == nil || q.mod == nil {
		return (r == nil) == (q == nil) && (r == nil || r.mod == q.mod)
	}
	a, b := r.mod, q.mod
	return a == b || a.obj.cached.key == b.obj.cached.key && a.Bias == b.Bias && a.Path == b.Path
}

// note notes c. When there are too many, the last one grows.
func (h *history) note(c Change) {
	if n := len(h.changes); n >= maxChanges {
		last := &h.changes[n-1]
		last.Start, last.End = min(last.Start, c.Start), max(last.End, c.End)
		last.Replaced = true
		return
	}
	h.changes = append(h.changes, c)
}

// maxMoved bounds the places of objects that have gone.
const maxMoved = 256

// move notes that an object was at r and is not any more. When there are too many
// such places, they become one.
func (h *history) move(r region) {
	for i := range h.moved {
		m := &h.moved[i]
		if m.addr <= r.addr+r.size && r.addr <= m.addr+m.size || len(h.moved) == maxMoved {
			end := max(m.addr+m.size, r.addr+r.size)
			m.addr = min(m.addr, r.addr)
			m.size = end - m.addr
			return
		}
	}
	h.moved = append(h.moved, r)
}

// was tells whether an object was at pc and is not any more.
func (h *history) was(pc uint64) bool {
	return slices.ContainsFunc(h.moved, func(r region) bool { return pc-r.addr < r.size })
}

// Code is what is known of an executable mapping.
type Code struct {
	Start, End uint64
	Module     *Module   // nil: no object's
	Since      time.Time // when it was first seen so
	// Proven: whether the mapping is still of the module was looked at by the last
	// Verify. It is not if there are too many modules.
	Proven bool
	// Fixed: the module is there for as long as the program.
	Fixed bool
	// Marks tell the module from others in its place; none: it is known by its mappings only.
	Marks []Mark
	// Retold is how often the program tells otherwise of code of no object.
	Retold Retold
	// Moved: other objects than now were at the address before, whatever is there now.
	Moved bool
}

// Retold is how often a program tells otherwise of its generated code. That leaves no trace behind: told A, then B, then A
// again is seen only by who looks in between.
type Retold uint8

const (
	Never Retold = iota
	New          // it has told for so short a time that nobody can know
	Seldom
	Often // or more often than can be seen
)

// retold is when a program was seen to tell for the first time, and to have told otherwise.
type retold struct {
	first, last, often time.Time
	looks, quiet       int // since first and since last
}

const (
	// retoldOften: changes that are seen so soon after one another, or after so few looks, may be some of many. Of what changes
	// all the time, every other look sees it.
	retoldOften = 100 * time.Millisecond
	retoldLooks = 8
	// retoldLong is for how long a program is taken to go on so.
	retoldLong = 10 * time.Second
)

func (r *retold) note(now time.Time) {
	if now.Sub(r.last) < retoldOften || !r.last.IsZero() && r.quiet < retoldLooks {
		r.often = now
	}
	r.last, r.quiet = now, 0
}

func (r *retold) at(clock func() time.Time) Retold {
	if r.first.IsZero() {
		return Never
	}
	switch now := clock(); {
	case now.Sub(r.often) < retoldLong:
		return Often
	case now.Sub(r.first) < retoldOften || r.looks < 2*retoldLooks:
		return New
	case r.last.IsZero():
		return Never
	}
	return Seldom
}

// CodeAt returns the executable mapping at pc. The mappings are not read anew.
func (s *Space) CodeAt(pc uint64) (Code, bool) {
	code := Code{Moved: s.history.was(pc)}
	r := s.mapped.code.find(pc)
	if r == nil {
		return code, false
	}
	code.Start, code.End, code.Module, code.Since = r.start, r.end, r.mod, r.since
	if r.mod == nil {
		code.Proven, code.Retold = true, s.jit.retold.at(s.access.opt.Now)
	} else {
		code.Proven, code.Fixed, code.Marks = r.mod.proven, s.stay.has(s, r.mod), r.mod.probes.marks
	}
	return code, true
}
