package clocks

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStays: a thread is kept on its CPU after it was met on another, for twice as many samples each time.
func TestStays(t *testing.T) {
	s := &Slot{}
	for i, tt := range []struct {
		clock int32
		times int // how often that one meets it
		kept  int // and how often it is to be kept then
	}{
		{1, 5, 0}, // nobody has met it before
		{2, 20, 16},
		{1, 40, 32},
		{1, 1, 0},
		{2, 3, 3},
		{1, 200, 128},
		{2, 1, 1},
		{1, 1, 1},
		{2, 2000, 1024},
		{1, 2000, 1024},
	} {
		kept := 0
		for range tt.times {
			if s.stays(tt.clock) {
				kept++
			}
		}
		if kept != tt.kept {
			t.Errorf("step %d: clock %d has met it %d times and kept it %d times, want %d", i, tt.clock, tt.times, kept, tt.kept)
		}
	}
	if s.fresh(0); s.stays(7) {
		t.Error("another thread in the same slot is kept as well")
	}
}

// TestKept: who lets a thread go that is to be kept on its CPU has given up its priority then, and has it back after; the time that the thread has run for meanwhile
// is not taken from it.
func TestKept(t *testing.T) {
	defer func(p func(int, int) unix.Errno, r func(int, int64)) { setPolicy, ring = p, r }(setPolicy, ring)
	for _, tt := range []struct {
		name    string
		works   bool // there is a raiser
		denied  unix.Errno
		away    bool // the thread was met on another CPU before
		does    conduct
		raised  int64 // how long after the release by the raiser, 0: the clock went on
		ran     int64 // the thread since
		want    string
		wantRan int64
	}{
		{"the thread runs at once", true, 0, true, stops, 60 * us, 45 * us, "[interrupt 7 ring true policy 0 5 detach 7 0]", 45 * us},
		{"the thread blocks", true, 0, true, stops, 0, 3 * us, "[interrupt 7 ring true policy 0 5 detach 7 0 policy 0 1 ring false]", 3 * us},
		{"it is put on another CPU all the same", true, 0, true, stops, 0, 1000 * us, "[interrupt 7 ring true policy 0 5 detach 7 0 policy 0 1 ring false]", 5 * us},
		{"its times go back", true, 0, true, stops, 0, -3 * us, "[interrupt 7 ring true policy 0 5 detach 7 0 policy 0 1 ring false]", 0},
		{"a signal", true, 0, true, signalled, 60 * us, 45 * us, "[interrupt 7 ring true policy 0 5 detach 7 10]", 45 * us},
		{"it was here before", true, 0, false, stops, 0, 0, "[interrupt 7 detach 7 0]", 0},
		{"no raiser works", false, 0, true, stops, 0, 0, "[interrupt 7 detach 7 0]", 0},
		{"it stops late", true, 0, true, queues, 0, 0, "[interrupt 7 detach 7 0]", 0},
		{"the priority is denied", true, unix.EPERM, true, stops, 0, 0, "[interrupt 7 ring true policy 0 5 detach 7 0 policy 0 1 ring false]", 0},
	} {
		a := &actor{tid: 7, does: tt.does, state: 'R', run: 500, patience: 1}
		s, b, c := desk(t, 1, a)
		r := &raiser{k: s, after: raiseAfter, tried: true}
		r.life.active.Store(tt.works)
		c.tracees.raiser = r
		c.prompt = true
		if tt.away {
			b.slots[0].let.by = 2
		}
		b.slots[0].last.run.Store(1)
		setPolicy = func(tid, policy int) unix.Errno {
			s.note("policy %d %d", tid, policy)
			return tt.denied
		}
		ring = func(timer int, at int64) { s.note("ring %t", at > s.now) }
		before := int64(0)
		s.letGo = func() {
			before = s.now
			a.run += tt.ran
			if s.now += 5 * us; tt.raised > 0 {
				s.now = before + tt.raised
				if !r.low.CompareAndSwap(true, false) {
					t.Errorf("%s: the clock has its priority when it lets go", tt.name)
				}
				r.began.Store(s.now)
				s.now += 10 * us
			}
		}
		c.answer(0, s.now)
		c.await(s.now + 20_000*us)
		m := &c.tracees.samples[0]
		if got := fmt.Sprint(s.log); got != tt.want || m.state.Load() != filled || c.tracees.out != 0 || r.low.Load() {
			t.Errorf("%s: %s, want %s; sample in state %d", tt.name, got, tt.want, m.state.Load())
		}
		if m.tracee.ran > tt.wantRan+3*us || m.tracee.ran < tt.wantRan {
			t.Errorf("%s: it has run for %d ns, want %d", tt.name, m.tracee.ran, tt.wantRan)
		}
		if want := m.At.Released; tt.raised > 0 && want != before+tt.raised-tt.ran {
			t.Errorf("%s: it was let go %d ns after it was, want %d", tt.name, want-before, tt.raised-tt.ran)
		}
		if r.life.active.Load() != (tt.works && tt.denied == 0) {
			t.Errorf("%s: the raiser is relied on: %t", tt.name, r.life.active.Load())
		}
	}
}

// TestLearn: a clock that was given its priority back before the thread was on the CPU stays without for longer the next time.
func TestLearn(t *testing.T) {
	const interval = 8 * 300 * us
	r := &raiser{after: raiseAfter}
	for i, tt := range []struct{ began, ran, times, want int64 }{
		{7, 3, 1, 50 * us},
		{0, 0, 1, 50 * us}, // it has blocked
		{7, 0, 1, 100 * us},
		{7, 0, 1, 200 * us},
		{7, 0, 9, 300 * us},
		{7, 3, 1, 300*us - 300*us/64},
		{7, 3, 1000, 50 * us},
	} {
		for range tt.times {
			r.learn(tt.began, tt.ran, interval)
		}
		if r.after != tt.want {
			t.Errorf("step %d: %d ns, want %d", i, r.after, tt.want)
		}
	}
	if r.learn(7, 0, 400*us); r.after != 50*us {
		t.Errorf("%d ns where ticks are 400 us apart", r.after)
	}
}
