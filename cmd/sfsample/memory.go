package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// weightBytes is what the collector believes to be in use besides.
const weightBytes = 16 << 20

// From where on memory is collected sooner, in bytes, if no more is alive.
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
		memory.weight = weightBytes
		debug.SetGCPercent(50)
	}
	memory.keep(memoryAim)
	return weight
}

// memory is this program's limit.
var memory limit

// limit is the memory limit of Go's runtime. It moves with what is alive: above it the runtime would collect all the time, some
// fifty times a second, for nothing.
type limit struct {
	mu          sync.Mutex
	aim, weight int64
}

// keep sets the limit to aim bytes, or more if more is alive, now and after each collection. The environment's stands.
func (l *limit) keep(aim int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	l.mu.Lock()
	first := l.aim == 0
	l.aim = aim
	l.mu.Unlock()
	if first {
		l.follow(new(collected))
	}
	l.adjust()
}

// collected is reachable by nobody: its finalizer runs after each collection.
type collected struct{ _ *byte }

func (l *limit) follow(c *collected) {
	runtime.SetFinalizer(c, func(c *collected) {
		l.adjust()
		l.follow(c)
	})
}

// adjust leaves room for a quarter and an eighth of what is alive. What is no object's counts too: the limit is of the total but
// for what is released (runtime/debug, SetMemoryLimit).
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
	least := size(live) + size(live)/4 + max(size(total)-size(objects)-size(free)-size(released), 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	debug.SetMemoryLimit(max(l.aim+l.weight, least+least/8))
}
