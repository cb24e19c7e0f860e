package sampler

import (
	"bytes"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// marked are the marks of objects that were met on a process's stacks and may go while it runs: the captures of its threads
// are to hold them.
type marked struct {
	list     []metMark
	walks    int64
	made     *taking.Marks                 // of the list
	expected bool                          // see expect
	shared   *atomic.Pointer[taking.Marks] // of a dump's threads, see Feedback
}

// metMark is where a mark is, and the last walk that has met its object. What object that is does not matter: another one in
// its place may have its own there.
type metMark struct {
	area  unix.RemoteIovec
	last  int64
	table bool
}

// manyMarks is from how many on those of tables are left out, since each takes time of the pause: headers and build-ids of
// more objects tell more.
const manyMarks = 8

const (
	// keptMarks is for how many walks of a process a mark is kept that none has met.
	keptMarks = 1000
	// expectedMarks is for how many that of an object is that may be met.
	expectedMarks = 100
)

// expect makes captures hold the marks of objects that may be met, before the first walk: that may wait long for tables, and
// until it tells what it has met no capture would show what was mapped.
func (t *target) expect(fb *Feedback) {
	m := &t.past.marked
	if m.expected || t.space == nil || fb == nil || fb.marks == nil {
		return
	}
	m.expected = true
	m.walks = expectedMarks - keptMarks
	for _, x := range t.space.Modules() {
		i := slices.IndexFunc(x.Maps, func(r procfs.Mapping) bool { return r.Perms&procfs.Exec != 0 })
		if i < 0 {
			continue
		}
		if code, ok := t.space.CodeAt(x.Maps[i].Start); ok && !code.Fixed {
			for j := range code.Marks {
				if len(m.list) < manyMarks && !code.Marks[j].Table {
					m.meet(&code.Marks[j])
				}
			}
		}
	}
	m.walks = 0
	if len(m.list) > 0 {
		fb.marks.Store(m.make())
	}
}

// marks returns the marks that captures of the process are to hold, after a walk.
func (t *target) marks(frames []unwind.Frame) *taking.Marks {
	m := &t.past.marked
	m.walks++
	changed := false
	var code module.Code
	for i := range frames {
		pc := frames[i].LookupPC()
		if code.Start <= pc && pc < code.End {
			continue // of the same
		}
		if code, _ = t.space.CodeAt(pc); code.Fixed {
			continue
		}
		for j := range code.Marks {
			changed = m.meet(&code.Marks[j]) || changed
		}
	}
	old := func(x metMark) bool { return m.walks-x.last > keptMarks }
	if changed || slices.ContainsFunc(m.list, old) {
		m.list = slices.DeleteFunc(m.list, old)
		return m.make()
	}
	return m.made
}

// make makes the list what captures are to hold.
func (m *marked) make() *taking.Marks {
	m.made = new(taking.Marks)
	for _, x := range m.list {
		m.made.Areas[m.made.N] = x.area
		m.made.N++
	}
	return m.made
}

// meet notes that a mark's object was met. It tells whether that is new. When there are too many, those go that were not met
// for longest, of tables first.
func (m *marked) meet(mark *module.Mark) (changed bool) {
	i := slices.IndexFunc(m.list, func(x metMark) bool { return uint64(x.area.Base) == mark.Addr })
	switch {
	case i < 0 && mark.Table && len(m.list) >= manyMarks:
		return false
	case i < 0:
		i = len(m.list)
		m.list = append(m.list, metMark{area: unix.RemoteIovec{Base: uintptr(mark.Addr)}})
	}
	x := &m.list[i]
	x.last, x.table = m.walks, mark.Table
	if x.area.Len >= len(mark.Data) { // one that is longer tells more
		return false
	}
	x.area.Len = len(mark.Data)
	if goes := m.goes(); goes >= 0 {
		m.list = slices.Delete(m.list, goes, goes+1)
	}
	return true
}

// goes is which mark has no room, -1 if there is none.
func (m *marked) goes() int {
	goes := -1
	for i, x := range m.list {
		if (x.table && len(m.list) > manyMarks || len(m.list) > taking.MaxMarks) &&
			(goes < 0 || x.table && !m.list[goes].table || x.table == m.list[goes].table && x.last < m.list[goes].last) {
			goes = i
		}
	}
	return goes
}

// borne compares the marks of an object with what memory held. asked is false if it was not read where all of them are but
// those of tables.
func borne(read *capture.Copies, marks []module.Mark) (asked, same bool) {
	same = true
	for _, m := range marks {
		b, ok := read.At(m.Addr)
		switch {
		case !ok && m.Table:
			continue
		case !ok:
			return false, false
		}
		same = same && bytes.HasPrefix(b, m.Data)
	}
	return len(marks) > 0, same
}
