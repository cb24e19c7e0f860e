package sampler

import (
	"sync/atomic"
	"testing"

	"sfsample/sampler/taking"
)

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
