package clocks

import (
	"testing"

	"sfsample/sampler/taking"
)

// TestTollOf: the median of what was lost around a wake-up, less what the waker has seen of it.
func TestTollOf(t *testing.T) {
	w := &waker{n: tolls, every: tollEvery}
	var lost []span
	for i := range int64(tolls) {
		at := 1_000_000 * (i + 1)
		w.seen[i] = span{at, at + 100}
		lost = append(lost, span{at - 500_000, at - 400_000}, span{at - 4_000 - i, at + 5_100}) // others, and this one
	}
	if got, want := w.toll(lost), int64(4_000+tolls/2+5_000); got != want {
		t.Errorf("toll %d, want %d", got, want)
	}
	for i := range lost {
		lost[i].to += tollEvery // others have had the CPU as well
	}
	if got := w.toll(lost); got != 0 {
		t.Errorf("toll %d of a CPU that others have", got)
	}
}

// TestTollTwice: a thread that goes on before its clock does is preempted once more.
func TestTollTwice(t *testing.T) {
	toll := new(Toll)
	toll.each.Store(7)
	m := &Sample{At: Moments{Wake: 10, Asked: 15, Stopped: 40, End: 50}, Stopped: Usage{Run: 25}}
	if got := toll.Taken(m); got != 47 {
		t.Errorf("taken %d, want %d", got, 47)
	}
	m.tracee.ran = 4
	if got := toll.Taken(m); got != 54-4 {
		t.Errorf("taken %d, want %d", got, 54-4)
	}
	m.Peeked.Asleep = true
	if got := toll.Taken(m); got != 40-4 {
		t.Errorf("taken %d of one that was asleep, want %d", got, 40-4)
	}
}

// TestToll: a wake-up costs the thread that it meets time, also without real-time priority.
func TestToll(t *testing.T) {
	for _, nice := range []bool{false, true} {
		got := toll(new(taking.Live), nice)
		if t.Logf("nice %t: %d ns", nice, got); got == 0 {
			t.Errorf("nice %t: no toll is to be had", nice)
		}
	}
}
