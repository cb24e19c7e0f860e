package goroutines

import "io"

// Bounds of the runtime's own table of words: Go 1.26 has 47 of 32 bytes at most.
const (
	maxReasons     = 256
	maxReasonBytes = 64
)

// readReasons reads the words for what goroutines wait for, by number, from the runtime's own table (waitReasonStrings,
// runtime/runtime2.go) of size bytes. nil: it does not hold words.
func (r *Runtime) readReasons(mem io.ReaderAt, addr, size uint64) []string {
	const stringBytes = 16 // address and length
	if size == 0 || size%stringBytes != 0 || size/stringBytes > maxReasons {
		return nil
	}
	b := make([]byte, size)
	if !r.read(mem, addr, b) {
		return nil
	}
	list := make([]string, 0, size/stringBytes)
	for ; len(b) > 0; b = b[stringBytes:] {
		at, n := r.order.Uint64(b), r.order.Uint64(b[8:])
		if n > maxReasonBytes {
			return nil
		}
		s := make([]byte, n)
		if n > 0 && !r.read(mem, at, s) {
			return nil
		}
		for _, c := range s {
			if c < ' ' || c > '~' {
				return nil
			}
		}
		list = append(list, string(s))
	}
	return list
}

// reasonsOf are the words by number of a minor version of Go, for programs that do not tell where theirs are; nil for
// other versions.
func reasonsOf(minor int) []string {
	head := []string{"", "GC assist marking", "IO wait"}
	nilChan := []string{"chan receive (nil chan)", "chan send (nil chan)"}
	collector := []string{"dumping heap", "garbage collection", "garbage collection scan", "panicwait"}
	workers := []string{"GC assist wait", "GC sweep wait", "GC scavenge wait"}
	selects, chans := []string{"select", "select (no cases)"}, []string{"chan receive", "chan send"}
	idle := []string{"finalizer wait", "force gc (idle)"}
	var list []string
	add := func(more ...string) { list = append(list, more...) }
	add(head...)
	if minor < 26 {
		add(nilChan...)
	}
	add(collector...)
	if minor < 26 {
		add(selects...)
	}
	add(workers...)
	if minor < 26 {
		add(chans...)
	}
	add(idle...)
	if minor >= 25 {
		add("GOMAXPROCS updater (idle)")
	}
	add("semacquire", "sleep")
	if minor >= 26 {
		add(nilChan...)
		add(selects[1], selects[0])
		add(chans...)
	}
	add("sync.Cond.Wait")
	if minor < 20 {
		add("timer goroutine (idle)")
	} else {
		add("sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock")
	}
	if minor >= 24 {
		add("sync.WaitGroup.Wait")
	}
	add("trace reader (blocked)", "wait for GC cycle", "GC worker (idle)")
	if minor >= 20 {
		add("GC worker (active)")
	}
	add("preempted", "debug call")
	if minor >= 20 {
		add("GC mark termination", "stopping the world")
	}
	if minor >= 22 {
		add("flushing proc caches", "trace goroutine status", "trace proc status", "page trace flush", "coroutine")
	}
	if minor >= 23 {
		add("GC weak to strong wait")
	}
	switch {
	case minor == 24:
		add("synctest.Run", "synctest.Wait", "chan receive (synctest)", "chan send (synctest)", "select (synctest)")
	case minor >= 25:
		add("synctest.Run", "synctest.Wait", "chan receive (durable)", "chan send (durable)", "select (durable)", "sync.WaitGroup.Wait (durable)", "cleanup wait")
	}
	if _, ok := releases[minor]; !ok {
		return nil
	}
	return list
}
