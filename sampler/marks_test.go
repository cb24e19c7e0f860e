package sampler

import (
	"slices"
	"sync/atomic"
	"testing"

	"sfsample/sampler/module"
	"sfsample/sampler/taking"
)

// TestMarksTakeTurns: of more objects than captures hold marks of, those that were met last are asked for, and of many no tables.
func TestMarksTakeTurns(t *testing.T) {
	header := func(n int) *module.Mark { return &module.Mark{Addr: uint64(n) << 20, Data: make([]byte, 800)} }
	table := func(n int) *module.Mark {
		return &module.Mark{Addr: uint64(n)<<20 + 0x5000, Data: make([]byte, 512), Table: true}
	}
	var m marked
	for n := 1; n <= 3*taking.MaxMarks; n++ {
		m.walks++
		if !m.meet(header(n)) || m.meet(header(n)) {
			t.Fatalf("object %d is new once", n)
		}
		m.meet(table(n))
		made := m.make()
		var headers, tables []int
		for _, a := range made.Areas[:made.N] {
			if a.Base&0xfffff == 0 {
				headers = append(headers, int(a.Base>>20))
			} else {
				tables = append(tables, int(a.Base>>20))
			}
		}
		slices.Sort(headers)
		first := max(1, n-taking.MaxMarks+1)
		if len(headers) != n-first+1 || headers[0] != first || headers[len(headers)-1] != n {
			t.Errorf("after %d objects: headers of %v", n, headers)
		}
		if want := min(n, max(0, manyMarks-n)); len(tables) != want {
			t.Errorf("after %d objects: tables of %v, want %d", n, tables, want)
		}
	}
}

// TestMarksAreShared: what one thread of a process has met captures of all hold, and that is news to who knows the state before.
func TestMarksAreShared(t *testing.T) {
	var shared atomic.Pointer[taking.Marks]
	a, b := &Feedback{marks: &shared}, &Feedback{marks: &shared}
	b.Set(Advice{NeedStop: 1})
	before := b.state()
	marks := &taking.Marks{N: 1}
	v := a.Get()
	v.Marks = marks
	a.Set(v)
	if got := b.Get(); got.Marks != marks || got.NeedStop != 1 {
		t.Errorf("another thread's advice is %+v", got)
	}
	if b.state() == before {
		t.Error("the state does not tell what is news")
	}
}
