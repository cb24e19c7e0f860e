package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestLimitFollows: each collection moves the limit of a program most of whose memory is alive. One that stood would have memory
// collected at each allocation.
func TestLimitFollows(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	var l limit
	defer func(usual int64) { l.keep(usual) }(debug.SetMemoryLimit(-1)) // it is asked for after each collection to come
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
}
