package clocks

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// TestPhases: clocks tick within half an interval, at moments that are far apart for any number of neighbours.
func TestPhases(t *testing.T) {
	for _, hz := range []int64{1, 99, 999, 2500, 5000, 10000, 20000} {
		for _, cpus := range []int{2, 8, 64, 200} {
			span := int64(time.Second) / hz / 2
			var at []int64
			for cpu := range cpus {
				at = append(at, phase(cpu, span))
			}
			slices.Sort(at)
			if at[0] < 0 || at[cpus-1] >= span {
				t.Fatalf("%d Hz: clocks tick from %d to %d ns after the tick, want below %d", hz, at[0], at[cpus-1], span)
			}
			for i := range cpus - 1 {
				if gap := at[i+1] - at[i]; gap < span/int64(3*cpus) {
					t.Errorf("%d Hz, %d CPUs: two clocks tick within %d ns", hz, cpus, gap)
				}
			}
		}
	}
}

func newBank(interval int64) *Bank {
	return NewBank(new(taking.Live), NewBoard(8, ptrace.Now(), interval), Options{Samples: 2})
}

// TestBegins: a clock has no tick that had begun before it.
func TestBegins(t *testing.T) {
	b := newBank(int64(time.Hour))
	defer b.Close()
	for range 2 {
		if b.Need(0, 0) {
			t.Error("a clock that has just begun had the tick that was under way")
		}
	}
	if !b.Need(0, b.clocks[0].ticks.born) || b.Away(0, 0) {
		t.Error("a clock does not have its first tick")
	}
}

// TestBarred: that a clock cannot be bound is found out.
func TestBarred(t *testing.T) {
	const cpu = 1<<16 - 1
	b := newBank(int64(time.Hour))
	defer b.Close()
	const n = 1000 // no clock has done so many
	for {
		if b.Need(cpu, n) {
			t.Fatalf("there is a clock for CPU %d", cpu)
		}
		if b.Clocks() == 0 {
			break
		}
		runtime.Gosched()
	}
	if !b.Away(cpu, n) {
		t.Error("it is not told that there can be none")
	}
	if b.Need(cpu, n+99); b.Clocks() != 0 {
		t.Error("it is tried again too early")
	}
	if b.Need(cpu, n+100); b.Clocks() != 1 {
		t.Error("it is not tried again after a hundred ticks")
	}
}

// TestStarved: a clock that gets no CPU is not taken to have met nobody, and is not replaced. Neither is one that waits
// for a thread.
func TestStarved(t *testing.T) {
	b := newBank(int64(10 * time.Millisecond))
	c := &Clock{board: b.board, tracees: tracees{samples: make([]Sample, 1)}, ticks: answered{phase: 3}}
	c.shown.done.Store(5)
	b.clocks[0] = c
	// The sixth tick is 50 ms before the eleventh.
	if b.Away(0, 10) || !b.Need(0, 10) {
		t.Error("a clock that may still get its CPU is taken to be away")
	}
	if !b.Away(0, 11) || b.Need(0, 11) {
		t.Error("a clock that has missed a tick for so long is taken to be there")
	}
	if c.life.active.Store(true); b.Away(0, 18) || !b.Away(0, 19) {
		t.Error("a clock that answers a tick is away after eight more, not before")
	}
	c.life.active.Store(false)
	due := b.board.Start + 6*b.board.Interval + 3
	if c.shown.rest.Store(due + 1); b.Away(0, 11) || !b.Need(0, 11) {
		t.Error("a clock that has left its CPU to others at a tick is taken to be away")
	}
	if c.shown.rest.Store(due); !b.Away(0, 11) {
		t.Error("a clock that has missed a tick after that is taken to be there")
	}
	b.Expire(1000)
	c.grip.since.Store(1)
	if b.Away(0, 11) {
		t.Error("a clock that waits for a stop is taken to be away")
	}
	c.grip.since.Store(0)
	// At a lower rate than one tick in 50 ms it is the tick before that counts.
	b.board.Interval = int64(time.Minute)
	if b.Away(0, 6) || !b.Away(0, 7) {
		t.Error("a clock that has missed a whole tick of a minute is taken to be there")
	}
	b.board.Interval = int64(10 * time.Millisecond)
	c.shown.done.Store(1000)
	c.tracees.samples[0].state.Store(asked)
	b.Expire(1000)
	if b.clocks[0] != c {
		t.Fatal("a clock was ended that had no CPU, or waits for a thread")
	}
	c.tracees.samples[0].state.Store(free)
	ended := make(chan struct{})
	close(ended)
	c.life.ended = ended
	if b.Expire(1000); b.clocks[0] != nil {
		t.Error("a clock that has met nobody goes on")
	}
}

// TestPut: a slot that a clock still looks at is nobody else's, also the first that was never used.
func TestPut(t *testing.T) {
	b := NewBoard(3, 0, 1)
	if !b.slots[0].take(1) || b.Put(Thread{}) != -1 {
		t.Fatal("a slot was given that a clock holds")
	}
	b.slots[0].give()
	for i := range 3 {
		if got := b.Put(Thread{TID: i}); got != i {
			t.Errorf("slot %d, want %d", got, i)
		}
	}
	if b.Put(Thread{}) != -1 || !b.Remove(1) || b.Put(Thread{}) != 1 {
		t.Error("want the one slot that is free")
	}
}
