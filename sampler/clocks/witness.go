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
	silent int // ticks in a row for which there was no record
	// pause is for how many ticks nobody tries to give the timer its phase again, and next for how many after the next failure; -1: never.
	pause, next int
}

// met is a thread that had a CPU at a tick.
type met struct {
	at int64  // CLOCK_MONOTONIC, nanoseconds
	pc uint64 // in code of its own, else 0
	id int    // the thread's; 0: nobody's, or one of another PID namespace
}

const (
	// beforehand is how long before a tick the clock begins to wait for it awake, to have the event's timer begin, in nanoseconds: its own timer wakes it up later than that
	// seldom. The call takes 1 to 3 us, and 12 to 19 where the CPU has done other things before; onset at most.
	beforehand, onset = 60_000, 30_000
	// firstLater is what later begins with, and mostLater bounds it. The interrupt comes some microseconds after the timer has expired, 5 to 25 in a
	// virtual machine: within that both timers have.
	firstLater, mostLater = 5_000, 50_000
	// behind is how much later than the first record of a tick that was seen the clock is to wake up, and apart from how much later on it was another interrupt that
	// has woken it up: the event's takes less. In between the thread has gone on.
	behind, apart = 300, 1_500
	// slower and sooner are by how much it wakes up later for a tick without a record, and for one with.
	slower, sooner = 500, 10
	// mostSilent is after how many ticks without one the timer begins anew, and longestPause for how many at most it does not.
	mostSilent, longestPause = 32, 1024
)

// Tests have others.
var setPeriod, realTimeOf, cpuOf = ptrace.RawPeriod, ptrace.RawRealTime, ptrace.RawCPU

// open makes the event of a CPU. Without one, clocks find threads by what /proc tells of them.
func (w *witness) open(cpu int, interval int64) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: uint64(interval), Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitUseClockID, Clockid: unix.CLOCK_MONOTONIC, Wakeup: 1 << 30,
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
	w.event, w.ring, w.later = event, ring, firstLater
}

func (w *witness) close() {
	if w.ring != nil {
		unix.Munmap(w.ring)
		unix.Close(w.event)
		w.ring = nil
	}
}

// begin gives the event's timer its phase, at the tick at a time. An interval later it expires first. It is tried less and less often where that fails.
//
//go:nosplit
//go:norace
func (w *witness) begin(k taking.Kernel, tick, interval int64) {
	if w.pause != 0 {
		w.pause = max(w.pause-1, -1)
		return
	}
	if k.Now() > tick-beforehand {
		return // for the next one
	}
	k.Sleep(tick - beforehand)
	if k.Now() < tick-beforehand {
		return // the clock was woken for something else
	}
	for k.Now() < tick {
	}
	if k.Now() < tick+onset {
		if setPeriod(w.event, interval) != 0 {
			w.pause = -1
			return
		}
	}
	if k.Now() >= tick+onset { // it came too late
		w.fail()
		return
	}
	w.silent, w.later = 0, firstLater
	w.set.Store(true)
}

// fail has nobody rely on the event until its timer has its phase again.
//
//go:nosplit
//go:norace
func (w *witness) fail() {
	w.set.Store(false)
	w.later, w.pause, w.next = 0, w.next, min(2*w.next+1, longestPause)
}

// skip passes the records of ticks that nobody asks for.
//
//go:nosplit
//go:norace
func (w *witness) skip() {
	if w.ring != nil {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&w.ring[dataTail])), atomic.LoadUint64((*uint64)(unsafe.Pointer(&w.ring[dataHead]))))
	}
}

// Offsets in the event's first page (struct perf_event_mmap_page, include/uapi/linux/perf_event.h).
const (
	dataHead = 1024
	dataTail = 1032
)

// read takes all records. m is the last one; false: there is none.
//
//go:nosplit
//go:norace
func (w *witness) read() (m met, ok bool) {
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
		case unix.PERF_RECORD_THROTTLE, unix.PERF_RECORD_UNTHROTTLE: // the timer stands still, or has another phase
			w.fail()
		case unix.PERF_RECORD_SAMPLE:
			m, ok = met{}, true
			if mode&unix.PERF_RECORD_MISC_CPUMODE_MASK == unix.PERF_RECORD_MISC_USER {
				m.pc = binary.NativeEndian.Uint64(records[int(at+8)&(len(records)-1):])
			}
			m.id = int(binary.NativeEndian.Uint32(records[int(at+16)&(len(records)-1)+4:])) // behind the process's
			m.at = int64(binary.NativeEndian.Uint64(records[int(at+24)&(len(records)-1):]))
		}
		at += uint64(size)
	}
	atomic.StoreUint64(tail, head)
	return m, ok
}

// tell tells who had the CPU at the tick for which the clock was to wake up when it was due, and did at wake. false: nothing is known. Where the clock
// may be on another CPU, as its own was taken from it, here is not that.
//
//go:nosplit
//go:norace
func (w *witness) tell(here int, due, wake, interval int64) (m met, told bool) {
	if w.ring == nil || !w.set.Load() {
		return met{}, false
	}
	m, told = w.read()
	tick := due - w.later
	if told = told && m.at >= tick && m.at <= wake && w.set.Load() && cpuOf() == here; !told {
		w.later = min(w.later+slower, mostLater, interval/8)
		if w.silent++; w.silent >= mostSilent {
			w.fail()
		}
		return met{}, false
	}
	w.silent, w.next = 0, 0
	w.later = min(w.later+sooner, m.at-tick+behind, mostLater, interval/8)
	if due-m.at > apart {
		m.pc = 0
	}
	return m, true
}
