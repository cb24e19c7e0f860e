package sampler

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// place says where the tracing thread runs. Polling for a stop saves its wake-up
// from a CPU of its own; on the target's CPU it only keeps the target from
// stopping. There even sleeping makes the target wait for all that a tick takes
// besides the stop.
type place struct {
	cpus unix.CPUSet // that we may use
	n    int         // how many these are; 0: not known
}

// home finds out which CPUs there are for the calling thread.
func (p *place) home() {
	if unix.SchedGetaffinity(0, &p.cpus) == nil {
		p.n = p.cpus.Count()
	}
}

// poll tells whether to poll for the stops of so many threads: with as many as
// there are CPUs, one of them is on ours.
func (p *place) poll(threads int) bool { return threads < p.n }

// leave moves the calling thread away from a CPU, if it is there and has a
// choice. It may come back when the scheduler wants it to.
func (p *place) leave(cpu int) {
	if p.n < 2 || !p.cpus.IsSet(cpu) || ownCPU() != cpu {
		return
	}
	others := p.cpus
	others.Clear(cpu)
	if unix.SchedSetaffinity(0, &others) == nil {
		unix.SchedSetaffinity(0, &p.cpus)
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
