package clocks

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// witness is the kernel's word on who had a clock's CPU at its ticks: an event of that CPU (perf_event_open(2), PERF_COUNT_SW_CPU_CLOCK), whose timer has the
// interval of the ticks and expires just before the clock's own, so that one interrupt serves both. It notes the thread that it has met and where that
// was, and wakes nobody (perf_swevent_hrtimer, kernel/events/core.c). It is for who has CAP_PERFMON, or CAP_SYS_ADMIN.
type witness struct {
	event int         // its file
	ring  []byte      // a page about the records, and one of them; nil: there is no such event
	set   atomic.Bool // its timer has the phase of the ticks
	// later is how long after its tick the clock is to wake up, in nanoseconds: that the event's record is made by then, and not long before.
	later  int64
	silent int  // ticks for which there was no record, though there should have been, since the last for which there was one
	still  int  // ticks without a record at which nobody of the board had the CPU, since the last at which somebody had it
	asks   bool // the last tick had no record: it is to be told whether somebody was found
	told   int  // ticks since the timer has its phase for which there was one
	// pause is for how many ticks nobody tries to give the timer its phase again, -1: never; next for how many after the next failure.
	pause, next int64
}

// met is a thread that had a CPU at a tick.
type met struct {
	at int64  // CLOCK_MONOTONIC, nanoseconds
	pc uint64 // in code of its own, else 0
	id int    // the thread's; 0: nobody's, or one of another PID namespace
	of int    // its process's
}

const (
	// beforehand is how long before a tick the clock begins to wait for it awake, to have the event's timer begin, in nanoseconds: its own timer wakes it up later than that
	// seldom. The call takes 1 to 3 us, and 12 to 19 where the CPU has done other things before; onset at most.
	beforehand, onset = 60_000, 30_000
	// firstLater is how much later than the call is over the clock wakes up first, and mostLater bounds later. The interrupt comes some microseconds after the timer has expired, 5 to
	// 25 in a virtual machine: within that both timers have.
	firstLater, mostLater = 5_000, 50_000
	// leastInterval is the least of ticks for which there is an event.
	leastInterval = 8 * mostLater
	// behind is how much later than the first record of a tick that was seen the clock is to wake up, and apart from how much later on it was another interrupt that
	// has woken it up: the event's takes less. In between the thread has gone on.
	behind, apart = 300, 1_000
	// slower and sooner are by how much it wakes up later for a tick without a record, and for one with.
	slower, sooner = 500, 10
	// ajar is at every how many-th tick without a record it is looked who has the CPU though nobody had it at enough of such.
	ajar = 32
	// enough is after how many ticks without a record the timer begins anew, and after how many with one it is taken to be right. longestPause is for how long at most it does not.
	enough, longestPause = 32, 4_000_000_000
	// never is the interval of a timer that nobody needs.
	never = 3_600_000_000_000
)

// Tests have others.
var setPeriod, realTimeOf, cpuOf = ptrace.RawPeriod, ptrace.RawRealTime, ptrace.RawCPU

// open makes the event of a CPU, whose timer does not run yet. Without one, clocks find threads by what /proc tells of them.
func (w *witness) open(cpu int, interval int64) {
	if interval < leastInterval {
		return
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: never, Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitUseClockID | unix.PerfBitPinned, Clockid: unix.CLOCK_MONOTONIC, Wakeup: 1 << 30,
	}
	event, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return
	}
	ring, err := unix.Mmap(event, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(event)
		return
	}
	w.event, w.ring = event, ring
}

func (w *witness) close() {
	if w.ring != nil {
		unix.Munmap(w.ring)
		unix.Close(w.event)
		w.ring = nil
	}
}

// begin gives the event's timer its phase, at the tick at a time, unless the clock is to rest until then. An interval later it expires first. It is tried less and less often where that fails.
//
//go:nosplit
//go:norace
func (w *witness) begin(k taking.Kernel, tick, rest, interval int64) {
	if w.pause != 0 {
		w.pause = max(w.pause-1, -1)
		return
	}
	if max(k.Now(), rest) > tick-beforehand {
		return // for the next one
	}
	k.Sleep(tick - beforehand)
	if k.Now() < tick-beforehand {
		return // the clock was woken for something else
	}
	for k.Now() < tick {
	}
	if setPeriod(w.event, interval) != 0 {
		w.pause = -1
		return
	}
	took := k.Now() - tick
	w.read() // what the timer has met before
	if took >= min(onset, interval/16) {
		w.fail(interval)
		return
	}
	w.silent, w.still, w.told, w.later = 0, 0, 0, took+firstLater // the timer has expired by then
	w.set.Store(true)
}

// fail has nobody rely on the event, and its timer stand still, until that has its phase again.
//
//go:nosplit
//go:norace
func (w *witness) fail(interval int64) {
	setPeriod(w.event, never)
	w.set.Store(false)
	w.later, w.pause, w.next = 0, w.next, min(2*w.next+1, longestPause/interval)
}

// pass takes the records of ticks that nobody asks for.
//
//go:nosplit
//go:norace
func (w *witness) pass(interval int64) {
	if w.set.Load() {
		if _, _, throttled := w.read(); throttled {
			w.fail(interval)
		}
	}
}

// Offsets in the event's first page (struct perf_event_mmap_page, include/uapi/linux/perf_event.h).
const (
	dataHead = 1024
	dataTail = 1032
)

// read takes all records. m is the last one; ok is false if there is none. throttled: the timer stands still, or has another phase, since it has met so many (perf_event_max_sample_rate).
//
//go:nosplit
//go:norace
func (w *witness) read() (m met, ok, throttled bool) {
	records := w.ring[len(w.ring)/2:]
	head := atomic.LoadUint64((*uint64)(unsafe.Pointer(&w.ring[dataHead])))
	tail := (*uint64)(unsafe.Pointer(&w.ring[dataTail]))
	for at := *tail; at != head; {
		i := int(at) & (len(records) - 1)
		kind, mode, size := binary.NativeEndian.Uint32(records[i:]), binary.NativeEndian.Uint16(records[i+4:]), binary.NativeEndian.Uint16(records[i+6:])
		if size < 8 || uint64(size) > head-at {
			break // the kernel makes none such
		}
		switch kind {
		case unix.PERF_RECORD_THROTTLE, unix.PERF_RECORD_UNTHROTTLE:
			throttled = true
		case unix.PERF_RECORD_SAMPLE:
			m, ok = met{}, true
			if mode&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_USER {
				m.pc = binary.NativeEndian.Uint64(records[int(at+8)&(len(records)-1):])
			}
			ids := records[int(at+16)&(len(records)-1):]
			m.of, m.id = int(binary.NativeEndian.Uint32(ids)), int(binary.NativeEndian.Uint32(ids[4:]))
			m.at = int64(binary.NativeEndian.Uint64(records[int(at+24)&(len(records)-1):]))
		}
		at += uint64(size)
	}
	atomic.StoreUint64(tail, head)
	return m, ok, throttled
}

// wakes is a clock's wake-up: whose it is, for which tick, when it was due, when it was, and whether the first for that tick.
type wakes struct {
	thread, cpu     int
	tick, due, wake int64
	first           bool
}

// tell tells who had the CPU at the tick of a wake-up. false: nothing is known, as where its CPU was taken from the clock; and what has met the
// clock itself has come too late. Some kernels make no record where a CPU is idle (seen on one of two CPUs of a virtual machine): where nobody was found at enough ticks without
// one, it was idle.
//
//go:nosplit
//go:norace
func (w *witness) tell(x *wakes, interval int64) (m met, told bool) {
	w.asks = false
	if !w.set.Load() {
		return met{}, false
	}
	m, there, throttled := w.read()
	if throttled {
		w.fail(interval)
		return met{}, false
	}
	told = there && m.at >= x.tick && m.at <= x.wake && m.id != x.thread && cpuOf() == x.cpu
	learns := x.first && x.due == x.tick+w.later // a later one has no record of its own
	switch w.asks = !there && learns; {
	case w.asks && w.still >= enough && w.still%ajar != 0:
		w.asks = false
		w.still++
		return met{}, true
	case !told && learns && there:
		w.still, w.later = 0, min(w.later+slower, mostLater)
		w.misses(interval)
	case told:
		if w.told++; w.told >= enough {
			w.next = 0
		}
		w.silent = 0
		if learns {
			w.later = min(w.later+sooner, m.at-x.tick+behind, mostLater)
		}
	}
	if !told {
		return met{}, false
	}
	if x.due-m.at > apart {
		m.pc = 0
	}
	return m, true
}

// misses notes a tick without the record that there should have been.
//
//go:nosplit
//go:norace
func (w *witness) misses(interval int64) {
	if w.silent++; w.silent >= enough {
		w.fail(interval)
	}
}

// looked tells it whether somebody of the board was found to have the CPU at the tick that it was asked for last, if it had no record.
//
//go:nosplit
//go:norace
func (w *witness) looked(found bool, interval int64) {
	switch {
	case !w.asks:
	case found:
		w.still = 0
		w.misses(interval)
	default:
		w.still++
	}
}
