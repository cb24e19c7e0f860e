package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// weightBytes is what the collector believes to be in use besides.
const weightBytes = 16 << 20

// From where on memory is collected sooner, in bytes. It leaves room under 64 MB for the program's file and what the
// runtime does not count.
const (
	memoryAim = 58 << 20
	modestAim = 44 << 20 // of an agent
)

// spareMemory has garbage collected when there is half as much as is in use, of a
// large heap: memory is the target's. A small heap is collected less often than
// that: on a busy machine each time holds up the tracing thread for milliseconds
// now and then. To the collector the weight is in use; nobody touches it, so that
// it takes no memory.
func spareMemory() (weight []byte) {
	if os.Getenv("GOGC") == "" {
		weight = make([]byte, weightBytes)
		debug.SetGCPercent(50)
	}
	memory.keep(memoryAim)
	return weight
}

// memory is the limit of this program's.
var memory limit

// limit is that of Go's runtime. It moves with what is alive: above it the runtime would collect all the time, some
// fifty times a second, for nothing.
type limit struct {
	aim, set atomic.Int64
}

// keep sets the limit to aim bytes, or more if more is alive, now and after each collection. The environment's stands.
func (l *limit) keep(aim int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if l.aim.Swap(aim) == 0 {
		l.follow(new(collected))
	}
	l.adjust()
}

// collected is nobody's: each collection finds that out.
type collected struct{ _ *byte }

func (l *limit) follow(c *collected) {
	runtime.SetFinalizer(c, func(c *collected) {
		l.adjust()
		l.follow(c)
	})
}

// adjust moves the limit, if it has to move far: to do so stops the program for a moment.
func (l *limit) adjust() {
	const live, total, objects, free, released = 0, 1, 2, 3, 4
	m := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(m)
	size := func(i int) int64 {
		if m[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(m[i].Value.Uint64())
	}
	set := l.set.Load()
	// The limit is of the total but for what is released (runtime/debug, SetMemoryLimit): what is no object's counts too.
	besides := size(total) - size(objects) - size(free) - size(released)
	most := wanted(l.aim.Load(), size(live), max(besides, 0), set)
	if most != set && l.set.CompareAndSwap(set, most) {
		debug.SetMemoryLimit(most)
	}
}

// wanted is the limit while live bytes are alive, the weight among them, the runtime takes others besides, and set is the limit.
func wanted(aim, live, besides, set int64) int64 {
	aim += weightBytes
	least := live + live/4 + besides
	switch {
	case least > max(aim, set):
		return least + least/8
	case max(aim, least+least/4) < set || set < aim:
		return max(aim, least+least/8)
	}
	return set
}
