package clocks

import (
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/sampler/taking"
)

// TestBoard: threads come and go; a slot that is in use by a clock stays as it is.
func TestBoard(t *testing.T) {
	b := NewBoard(3, 5, 7)
	if b.Start != 5 || b.Interval != 7 || b.stride.Load() != int64(Every) {
		t.Errorf("a new board: %d, %d, stride %d", b.Start, b.Interval, b.stride.Load())
	}
	put := func(tid, want int) {
		t.Helper()
		if got := b.Put(Thread{TID: tid}); got != want {
			t.Fatalf("thread %d is in slot %d, want %d", tid, got, want)
		}
		if want >= 0 && (b.slots[want].TID != tid || !b.slots[want].used || b.slots[want].holder.Load() != 0) {
			t.Fatalf("slot %d has thread %d, used %t, held by %d", want, b.slots[want].TID, b.slots[want].used, b.slots[want].holder.Load())
		}
	}
	in := func(want int32) {
		t.Helper()
		if n := b.index.n.Load(); n != want {
			t.Fatalf("%d slots to look at, want %d", n, want)
		}
	}
	put(10, 0)
	put(11, 1)
	in(2)
	put(12, 2)
	put(13, -1)
	in(3)
	if !b.Remove(1) || b.slots[1].used || b.slots[1].holder.Load() != 0 {
		t.Error("slot 1 is not free")
	}
	in(3)
	b.slots[1].take(4) // a clock, which has read of it before it left
	put(13, -1)
	b.slots[1].give()
	put(13, 1)
	b.slots[1].take(4)
	if b.Remove(1) || !b.slots[1].used || b.slots[1].holder.Load() != 4 {
		t.Error("a slot that a clock holds was freed")
	}
	if b.Advise(1, taking.Advice{Want: 9}) || b.slots[1].Advice.Want != 0 || b.slots[1].holder.Load() != 4 {
		t.Error("a slot that a clock holds was changed")
	}
	b.slots[1].give()
	if !b.Advise(1, taking.Advice{Want: 9}) || b.slots[1].Advice.Want != 9 || b.slots[1].holder.Load() != 0 {
		t.Error("advice has not come")
	}
	b.Remove(1)
	b.slots[1].take(4)
	b.Remove(2)
	in(2) // the slot before it is held
	b.slots[1].give()
	put(14, 1)
	in(2)
	b.Remove(1)
	in(1)
	b.Remove(0)
	in(0)
}

// TestBoardFill: nothing of the former thread is left in a slot.
func TestBoardFill(t *testing.T) {
	b := NewBoard(1, 0, 1)
	b.Put(Thread{})
	var crowd atomic.Int32
	s := &b.slots[0]
	for n, f := range []func(){func() { s.sampled.Store(3) }, func() { s.vain.Store(vain(3, Lost)) }, func() { s.vain.Store(vain(3, Refused)) }, func() { s.vain.Store(vain(3, Execs)) }} {
		f()
		if got, want := b.Met(0, 3), []Meeting{Sampled, Lost, Refused, Execs}[n]; got != want {
			t.Errorf("met: %d, want %d", got, want)
		}
		if b.Met(0, 4) != NotMet {
			t.Error("met at a tick that was not")
		}
		if asked := b.Asked(0); n == 0 && asked != 3 {
			t.Errorf("asked at %d, want 3", asked)
		}
		b.Remove(0)
		s.wait.kept = 5
		s.last.stood.Store(6)
		s.last.wait = 7
		b.Put(Thread{TID: 2, PID: 3, Sched: 4, Stat: 5, Debug: 6, Call: 11, Stack: 12, Clock: 13, Group: 14, Crowd: &crowd, Pages: 7, Advice: taking.Advice{Beyond: 8}, Run: 10})
		if s.open.call != 11 || s.open.stack != 12 || s.kin != (kin{13, 14, &crowd}) || s.wait.kept != 0 || s.last.stood.Load() != -1 {
			t.Errorf("slot %+v", s)
		}
		for tick := range int64(5) {
			if b.Met(0, tick) != NotMet {
				t.Errorf("a new thread was met at tick %d", tick)
			}
		}
		if b.Asked(0) != -1 || s.last.wait != 0 {
			t.Errorf("asked at %d, has waited for %d", b.Asked(0), s.last.wait)
		}
		if s.TID != 2 || s.PID != 3 || s.open.sched != 4 || s.open.stat != 5 || s.open.debug != 6 || s.pages != 7 || s.Advice.Beyond != 8 || s.last.run.Load() != 10 {
			t.Errorf("slot %+v", s)
		}
	}
}

// TestIndex: a thread's slot is found by its id, also after others have come and gone, and the thread itself in another slot.
func TestIndex(t *testing.T) {
	b := NewBoard(4, 0, 1)
	const far = 1<<pidBits - 1
	for i, id := range []int{7, 8, far} {
		b.Put(Thread{TID: id})
		if got := b.find(id); got != i {
			t.Errorf("thread %d is in slot %d, want %d", id, got, i)
		}
	}
	for _, id := range []int{-1, 0, 6, 9, 1 << leafBits, far - 1, far + 1, 1 << 40} {
		if got := b.find(id); got != -1 {
			t.Errorf("thread %d is in slot %d", id, got)
		}
	}
	b.Put(Thread{TID: far + 1}) // there is none such
	b.Remove(3)
	b.Remove(0)
	if b.find(7) != -1 || b.find(8) != 1 || b.find(far) != 2 {
		t.Errorf("slots %d, %d, %d", b.find(7), b.find(8), b.find(far))
	}
	b.Put(Thread{TID: 8}) // its id is another's before it was taken off
	b.Remove(1)
	if got := b.find(8); got != 0 {
		t.Errorf("the new one is in slot %d", got)
	}
}

// TestNumbers: clocks have numbers from 1 on, each the first that is free.
func TestNumbers(t *testing.T) {
	b := NewBoard(1, 0, 1)
	for want := 1; want < 4096; want++ {
		if got := b.number(); got != want {
			t.Fatalf("number %d, want %d", got, want)
		}
		b.clocks[want].Store(new(Clock))
	}
	if got := b.number(); got != 0 {
		t.Errorf("number %d where there is none", got)
	}
	b.clocks[17].Store(nil)
	if got := b.number(); got != 17 {
		t.Errorf("number %d, want 17, which is free again", got)
	}
}

// TestWaits: clocks of any number are seen to wait for stops, as soon as that is given away.
func TestWaits(t *testing.T) {
	b := NewBoard(1, 0, 1)
	for range 3 {
		n := b.number()
		c := new(Clock)
		b.clocks[n].Store(c)
		for at, want := range map[int64]bool{40: false, 50: false, 51: true} {
			if c.grip.since.Store(50); b.Waits(at) != want {
				t.Errorf("clock %d waits since 50, before %d: %t", n, at, !want)
			}
		}
		if c.grip.since.Store(0); b.Waits(100) {
			t.Errorf("clock %d waits for nobody", n)
		}
	}
	b.clocks[2].Store(nil)
	if b.number() != 2 {
		t.Error("a number that is free is not given")
	}
	b.clocks[3].Load().grip.since.Store(1)
	if !b.Waits(100) {
		t.Error("the last clock is forgotten when a number before it is given")
	}
}

// TestFreeEnded: the thread of a clock that has ended is left alone: its id may be another's.
func TestFreeEnded(t *testing.T) {
	b := bank(t, 0)
	gone, ended := idleClock(b, 1, 0)
	close(ended)
	onThread(func() {
		there, _ := idleClock(b, 2, 0)
		for _, c := range []*Clock{gone, there} {
			c.life.thread.Store(int32(unix.Gettid()))
		}
		b.board.cpus = unix.CPUSet{}
		for _, tid := range []int{1, unix.Gettid(), 0} {
			b.board.Free(tid)
			if gone.life.quit.Load() || there.life.quit.Load() != (tid != 1) || there.life.barred.Load() != (tid != 1) {
				t.Errorf("thread %d is freed: the clock that has ended is to end %t, the other %t", tid, gone.life.quit.Load(), there.life.quit.Load())
			}
		}
	})
}

// TestHeldByWhom: each who holds a thread is told, with since when, until it is given up.
func TestHeldByWhom(t *testing.T) {
	b := NewBoard(1, 0, 1)
	if list := b.Held(nil); len(list) != 0 {
		t.Errorf("%v are held by nobody", list)
	}
	hold := func(n int, by, tid int32, since int64) *Clock {
		c := new(Clock)
		c.life.thread.Store(by)
		c.grip.holding.Store(tid)
		c.grip.holds.Store(since)
		b.clocks[n].Store(c)
		return c
	}
	hold(4, 40, 41, 0)
	c := hold(4095, 50, 51, 400)
	b.keeper.Store(60)
	b.kept.tid.Store(61)
	b.kept.since.Store(500)
	list := b.Held(nil)
	if want := []Hold{{60, 61, 500, &b.kept.since}, {50, 51, 400, &c.grip.holds}}; !slices.Equal(list, want) {
		t.Fatalf("held are %v, want %v", list, want)
	}
	late := list[0]
	b.kept.since.Store(700) // another hold
	late.GiveUp()
	list[1].GiveUp()
	if !(&Bank{board: b}).hangs(c) || !slices.Equal(b.Held(nil), []Hold{{60, 61, 700, &b.kept.since}}) {
		t.Errorf("with one given up: %v", b.Held(nil))
	}
}

// TestSkip: a clock sleeps to the next tick that is answered, but not for long.
func TestSkip(t *testing.T) {
	b := NewBoard(1, 0, asleep/10)
	for _, tt := range []struct {
		stride     Stride
		last, want int64
	}{{Every, 4, 4}, {2 * Every, 4, 5}, {2 * Every, 5, 5}, {3 * Every, 3, 5}, {64 * Every, 64, 74}, {0, 4, 4}} {
		b.SetStride(tt.stride)
		a, pause := answered{last: tt.last}, int64(5)
		a.skip(b, &pause)
		if left := max(1, 5-(tt.want-tt.last)); a.last != tt.want || pause != left {
			t.Errorf("stride %d: after tick %d it wakes up for the one after %d, want %d, with a pause of %d more, want %d", tt.stride, tt.last, a.last, tt.want, pause, left)
		}
	}
}

// TestStrideAnswers: of so many ticks as many are answered as the stride says, at most one apart from even.
func TestStrideAnswers(t *testing.T) {
	for stride := Every; stride < 5*Every; stride++ {
		last, n := int64(0), 0
		for tick := int64(1); tick <= 1000*int64(stride); tick++ {
			if !stride.Answers(tick) {
				continue
			}
			n++
			if gap := tick - last; last > 0 && (gap < int64(stride/Every) || gap > int64((stride+Every-1)/Every)) {
				t.Fatalf("stride %d: ticks %d and %d are answered", stride, last, tick)
			}
			last = tick
		}
		if n != 1000*int(Every) {
			t.Errorf("stride %d: %d of %d ticks are answered", stride, n, 1000*stride)
		}
	}
	if got := (3 * Every / 2).Ticks(); got != 1.5 {
		t.Errorf("one of %v ticks is answered, want of 1.5", got)
	}
	if Stride(0).Answers(8) {
		t.Error("a tick is answered at rest")
	}
}
