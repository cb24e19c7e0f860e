package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestWanted lets what is alive grow and shrink: the limit is always some way above it, never below the aim, and seldom moved.
func TestWanted(t *testing.T) {
	const mb = 1 << 20
	var set int64
	moved := 0
	for _, live := range []int64{18, 20, 30, 50, 60, 62, 61, 63, 60, 62, 64, 70, 90, 88, 91, 90, 89, 92, 90, 60, 58, 61, 20, 21, 20} {
		next := wanted(40*mb, live*mb, 4*mb, set)
		if next != set {
			moved++
		}
		set = next
		if set < 56*mb || set < live*mb*5/4+4*mb || set > max(56, live*2+4)*mb {
			t.Errorf("limit %d MB, %d alive", set/mb, live)
		}
	}
	if moved > 7 || set != 56*mb {
		t.Errorf("the limit was moved %d times, and is %d MB in the end", moved, set/mb)
	}
}

// TestLimitFollows: each collection moves the limit of a program most of whose memory is alive. One that stood would have memory
// collected at each allocation.
func TestLimitFollows(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	var l limit
	l.keep(8 << 20)
	kept := make([]byte, 64<<20)
	for deadline := time.Now().Add(10 * time.Second); debug.SetMemoryLimit(-1) < 80<<20; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("the limit is %d MB, with %d MB alive", debug.SetMemoryLimit(-1)>>20, len(kept)>>20)
		}
	}
	runtime.KeepAlive(kept)
	kept = nil
	for deadline := time.Now().Add(10 * time.Second); debug.SetMemoryLimit(-1) > 40<<20; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("the limit is %d MB when that has gone", debug.SetMemoryLimit(-1)>>20)
		}
	}
	l.aim.Store(1 << 60) // the collector goes on to ask
}
