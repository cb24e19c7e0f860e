package clocks

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sfsample/sampler/taking"
)

// onSpent is a script that says when a CPU clock is asked.
type onSpent struct {
	*script
	ask func(clock int32)
}

func (k *onSpent) Spent(clock int32) int64 {
	k.ask(clock)
	return k.script.Spent(clock)
}

// TestTell: while groups are read nobody may rely on them; then they are told of as at the time when all had been read. Those that were given back are not read.
func TestTell(t *testing.T) {
	s := newScript(t)
	s.spent = map[int32]int64{-70: 5, -80: 6, -90: 7}
	b := NewBoard(1, 0, 1)
	for i, clock := range []int32{-70, -80, -90} {
		if g := b.Group(clock); g != i {
			t.Fatalf("group %d, want %d", g, i)
		}
	}
	b.Ungroup(1)
	for n, tt := range []struct {
		spent, ran int64
	}{{5, -1}, {5, 0}, {6, 1}, {6, 0}, {-1, -1}, {-1, -1}, {0, -1}, {0, 0}, {40, 40}} { // at first nothing is known
		s.spent[-70], s.asked = tt.spent, nil
		at := s.now
		b.Tell(&onSpent{s, func(int32) {
			s.now += us
			if told := b.early.told.Load(); told != 0 {
				t.Errorf("reading %d: groups were told of at %d, and are being read", n, told)
			}
		}}, true)
		if told := b.early.told.Load(); told != at+2*us || !slices.Equal(s.asked, []int32{-70, -90}) {
			t.Errorf("reading %d: told of at %d, want %d; asked %v", n, told, at+2*us, s.asked)
		}
		if b.Ran(0) != tt.ran || b.Ran(2) != -int64(max(0, 1-n)) {
			t.Errorf("reading %d: the first has run for %d, want %d; the third for %d", n, b.Ran(0), tt.ran, b.Ran(2))
		}
	}
	if b.Ungroup(0); b.early.told.Load() != 0 {
		t.Error("a group was given back, and what was told counts")
	}
	s.spent[-95] = 0 // what the one before it had in the end
	if g := b.Group(-95); g != 0 {
		t.Errorf("group %d, want the one that was given back", g)
	}
	b.early.met.Store(3)
	if met := b.Tell(s, false); b.Ran(0) != -1 || met != 3 || b.early.told.Load() != 0 {
		t.Errorf("a new group has run for %d; %d were met, want 3; told of at %d, on which nobody relies", b.Ran(0), met, b.early.told.Load())
	}
}

// TestKeeperClose: the end of a keeper is awaited for half a second, and not if it hangs.
func TestKeeperClose(t *testing.T) {
	for _, tt := range []struct{ since, ends, want time.Duration }{
		{0, 100 * time.Millisecond, 100 * time.Millisecond},
		{5, 100 * time.Millisecond, 100 * time.Millisecond},
		{0, time.Hour, 500 * time.Millisecond},
		{-5, 100 * time.Millisecond, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newKeeper(newScript(t), NewBoard(1, 0, 1), KeeperOptions{})
			ended := make(chan struct{})
			p.ended = ended
			p.board.kept.since.Store(int64(tt.since))
			time.AfterFunc(tt.ends, func() { close(ended) })
			begun := time.Now()
			if p.Close(); time.Since(begun) != tt.want || p.phase.Load() != closes {
				t.Errorf("holds since %d: closed after %v, in phase %d; want %v", tt.since, time.Since(begun), p.phase.Load(), tt.want)
			}
		})
	}
}

// TestDisturbed: threads whose limits are not over are not looked at; one that is not in its call then is looked at again after a millisecond. A thread that
// has heard a signal is known until it is dropped.
func TestDisturbed(t *testing.T) {
	s := newScript(t)
	s.now = 1000
	d := disturbed{marks: map[int]*taking.Mark{}}
	due := func(why string, want int64) {
		t.Helper()
		if d.due != want {
			t.Errorf("%s: the first limit is over at %d, want %d", why, d.due, want)
		}
	}
	if m := d.of(7); m == nil || d.of(7) != m || d.of(8) == m {
		t.Error("a thread has not one mark")
	}
	if d.watched(9) || d.interrupted(9) || d.watched(7) || len(d.marks) != 2 {
		t.Errorf("threads of which nothing is known are watched; %d are known", len(d.marks))
	}
	for _, tt := range []struct {
		tid        int
		signal     bool
		at, due    int64
		heardAfter []int
	}{
		{7, true, 0, 0, []int{7}}, {7, true, 5000, 5000, []int{7}}, {8, false, 7000, 5000, []int{7}}, {8, true, 3000, 3000, []int{7, 8}}, {9, false, 3001, 3000, []int{7, 8}},
	} {
		m := d.of(tt.tid)
		m.Due = tt.at
		d.stopped(tt.tid, m, tt.signal)
		due("stopped", tt.due)
		if !slices.Equal(d.heard, tt.heardAfter) {
			t.Errorf("%v have heard signals, want %v", d.heard, tt.heardAfter)
		}
	}
	s.now = 2999
	d.turn(s)
	due("before", 3000)
	s.now = 3000
	d.turn(s)
	due("one is over", 3001)
	s.now = 3001
	d.turn(s)
	due("two are over", 5000)
	if got := []int64{d.marks[7].Due, d.marks[8].Due, d.marks[9].Due}; !slices.Equal(got, []int64{5000, 3000 + 1e6, 3001 + 1e6}) {
		t.Errorf("due at %v", got)
	}
	d.drop(7)
	d.drop(9)
	d.drop(10)
	if !slices.Equal(d.heard, []int{8}) || len(d.marks) != 1 {
		t.Errorf("%v have heard signals, %d are known", d.heard, len(d.marks))
	}
	s.now = 5000
	d.turn(s)
	due("the others were dropped", 3000+1e6)
	d.drop(8)
	s.now = 4e6
	d.turn(s)
	due("nobody is left", 0)
	if len(s.log) != 0 {
		t.Errorf("it did %v to threads that are in no call", s.log)
	}
}
