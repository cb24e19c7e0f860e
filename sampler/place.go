package sampler

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// place decides how to wait for stops. Polling for one saves the wake-up of the
// tracing thread, if that has a CPU for itself; on the target's own it only keeps
// the target from stopping.
//
// The tracing thread is not bound to other CPUs than the target's: there may be
// somebody whom it would have to wait for, while threads are stopped.
type place struct {
	n int // CPUs that we may use; 0: not known
}

// home finds out which CPUs there are for the calling thread.
func (p *place) home() {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		p.n = set.Count()
	}
}

// recheck is how many stops the CPU that a thread was seen on is believed for.
const recheck = 32

// poll tells whether to poll for the stops of these threads. With as many as
// there are CPUs, one of them is on ours.
func (p *place) poll(list []*thread) bool {
	if len(list) >= p.n {
		return false
	}
	own := -1
	for _, t := range list {
		if t.near == 0 {
			continue
		}
		if t.near > 1 {
			t.near--
		}
		if own < 0 {
			own = ownCPU()
		}
		if own == t.cpu {
			return false
		}
	}
	return true
}

// avoid takes the calling thread off the CPU that t was seen on, if that is its
// own and there are others. A thread of real-time priority wakes where it was
// (kernel/sched/rt.c, select_task_rq_rt): on the target's CPU it would stay there
// for good, and the target would wait for all that a tick takes, twice a pause.
func (p *place) avoid(t *thread) {
	if t.near == 0 || p.n < 2 || t.cpu != ownCPU() {
		return
	}
	var all, others unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others = all
	if others.Clear(t.cpu); others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil {
		unix.SchedSetaffinity(0, &all) // it need not stay away
	}
}

// locate remembers where a thread runs that did not stop while we polled for it:
// if that is here, it could not.
func (t *thread) locate(fs procfs.FS) {
	t.late, t.near = false, 0
	if st, err := fs.TaskStat(t.proc.pid, t.tid); err == nil {
		t.cpu, t.near = st.Processor, recheck
	}
}

// ownCPU is the CPU that the calling thread runs on.
func ownCPU() int {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return -1
	}
	runtime.KeepAlive(&cpu)
	return int(cpu)
}

// yieldToOthers makes every thread of this process that has the usual policy one
// that takes a CPU from nobody when it wakes (SCHED_BATCH, sched(7)): unwinding
// can wait until the target has used up its slice. The tracing thread cannot,
// and goes back by itself.
func yieldToOthers() {
	ids, err := (procfs.FS{}).TaskIDs(os.Getpid())
	if err != nil {
		return
	}
	for _, tid := range ids {
		if policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0); errno == 0 && policy == schedOther {
			setScheduler(tid, schedBatch, 0)
		}
	}
}
