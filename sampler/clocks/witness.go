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
}

// met is a thread that had a CPU at a tick.
type met struct {
	at int64  // CLOCK_MONOTONIC, nanoseconds
	pc uint64 // in code of its own, else 0
	id int    // the thread's; 0: nobody's, or one of another PID namespace
}

const (
	// lead is how long before a tick the event's timer is to expire, in nanoseconds: the call that begins it takes 1 to 3 us.
	lead = 3_000
	// beforehand is how long before that the clock waits for the moment awake, in nanoseconds: its own timer wakes it up later than that seldom.
	beforehand = 60_000
	// firstLater is what later begins with, and mostLater bounds it. The interrupt comes some microseconds after the timer has expired, 5 to 25 in a
	// virtual machine: within that both timers have.
	firstLater, mostLater = 5_000, 50_000
	// behind is how much later than the first record of a tick that was seen the clock is to wake up.
	behind = 300
	// slower and sooner are by how much it wakes up later for a tick without a record, and for one with.
	slower, sooner = 500, 10
	// mostSilent is after how many ticks without one the timer begins anew.
	mostSilent = 32
)

// Tests have others.
var setPeriod, realTimeOf = ptrace.RawPeriod, ptrace.RawRealTime

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

// begin gives the event's timer its phase, shortly before the tick at a time. An interval later it expires first.
//
//go:nosplit
//go:norace
func (w *witness) begin(k taking.Kernel, tick, interval int64) {
	if tick -= lead; k.Now() > tick-beforehand {
		return // for the next one
	}
	k.Sleep(tick - beforehand)
	if k.Now() < tick-beforehand {
		return // the clock was woken for something else
	}
	for k.Now() < tick {
	}
	if k.Now() < tick+lead/2 {
		w.silent, w.later = 0, firstLater
		w.set.Store(setPeriod(w.event, interval) == 0)
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
		if kind == unix.PERF_RECORD_SAMPLE {
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

// tell tells who had the CPU at the tick for which the clock was to wake up when it was due, and did at wake. false: nothing is known.
//
//go:nosplit
//go:norace
func (w *witness) tell(due, wake, interval int64) (m met, told bool) {
	if w.ring == nil || !w.set.Load() {
		return met{}, false
	}
	m, told = w.read()
	tick := due - w.later
	if told = told && m.at >= tick-2*lead && m.at <= wake; !told {
		w.later = min(w.later+slower, mostLater, interval/8)
		if w.silent++; w.silent >= mostSilent {
			w.set.Store(false)
		}
		return met{}, false
	}
	w.silent = 0
	w.later = max(0, min(w.later+sooner, m.at-tick+behind, mostLater, interval/8))
	return m, true
}
