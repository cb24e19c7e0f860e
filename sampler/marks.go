package sampler

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// marked are the marks of objects that were met on a process's stacks and may go while it runs: the captures of its threads
// are to hold them.
type marked struct {
	list  []metMark
	walks int64
	made  *taking.Marks // of the list
}

// metMark is where a mark is, and the last walk that has met its object. What object that is does not matter: another one in
// its place may have its own there.
type metMark struct {
	area unix.RemoteIovec
	last int64
}

// keptMarks is for how many walks of a process a mark is kept that none has met.
const keptMarks = 1000

// marks returns the marks that captures of the process are to hold, after a walk.
func (t *target) marks(frames []unwind.Frame) *taking.Marks {
	m := &t.past.marked
	m.walks++
	changed := false
	for i := range frames {
		code, ok := t.space.CodeAt(frames[i].LookupPC())
		if !ok || code.Fixed {
			continue
		}
		for j := range code.Marks {
			changed = m.meet(&code.Marks[j]) || changed
		}
	}
	if changed {
		m.list = slices.DeleteFunc(m.list, func(x metMark) bool { return m.walks-x.last > keptMarks })
		m.made = new(taking.Marks)
		bytes := 0
		for _, x := range m.list {
			if bytes += x.area.Len; bytes <= capture.MarkBytes {
				m.made.Areas[m.made.N] = x.area
				m.made.N++
			}
		}
	}
	return m.made
}

// meet notes that a mark's object was met. It tells whether that is new. When there are too many, it takes the place of
// the one that was not met for longest.
func (m *marked) meet(mark *module.Mark) (changed bool) {
	oldest := 0
	for i := range m.list {
		x := &m.list[i]
		if uint64(x.area.Base) == mark.Addr {
			x.last = m.walks
			changed = x.area.Len < len(mark.Data) // one that is longer tells more
			x.area.Len = max(x.area.Len, len(mark.Data))
			return changed
		}
		if x.last < m.list[oldest].last {
			oldest = i
		}
	}
	x := metMark{unix.RemoteIovec{Base: uintptr(mark.Addr), Len: len(mark.Data)}, m.walks}
	if len(m.list) < capture.MaxMarks {
		m.list = append(m.list, x)
	} else {
		m.list[oldest] = x
	}
	return true
}

// borne compares the marks of an object with what memory held. asked is false if it was not read where all of them are.
func borne(read *capture.Marks, marks []module.Mark) (asked, same bool) {
	same = true
	for _, m := range marks {
		b, ok := read.At(m.Addr)
		if !ok {
			return false, false
		}
		same = same && bytes.HasPrefix(b, m.Data)
	}
	return len(marks) > 0, same
}
