package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"sfsample/ptrace/procfs"
)

// seldomHz is up to which rate an agent is content with one processor of Go's: the coordinator, unwinding and naming take
// turns, which the runtime ends after 10 ms, and a tick takes longer.
const seldomHz = 20

// modest has Go's runtime wake fewer threads: a goroutine that becomes ready wakes another thread if a processor is idle,
// and the runtime's monitor looks each 20 us while any is busy (sysmon, runtime/proc.go).
func modest(hz int) {
	if n := 2; os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) <= runtime.NumCPU()+spare {
		if hz <= seldomHz {
			n = 1
		}
		runtime.GOMAXPROCS(n)
	}
	memory.keep(modestAim)
	slack := lateMonitor
	if hz <= seldomHz {
		slack = laterMonitor
	}
	calm(slack)
}

// By how much later the runtime's monitor may be waked: it is to see that nothing is busy any more, and a tick takes longer. Without that it took a
// fifth of all CPU time of a profile at 99 Hz.
const (
	sampleMonitor = 5 * time.Millisecond // of a run
	lateMonitor   = 10 * time.Millisecond
	laterMonitor  = 40 * time.Millisecond
)

// calm has the kernel wake the runtime's monitor late: then it sees once that nothing is busy any more, and not ten times before. What
// it finds out, a goroutine that runs for long or a processor in a system call, it finds out so much later. The monitor is the first thread that the runtime
// makes (main, runtime/proc.go), and the kernel lists threads in the order of their birth (next_tid, fs/proc/base.c).
func calm(slack time.Duration) {
	if ids, _ := (procfs.FS{}).TaskIDs(os.Getpid()); len(ids) > 1 {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", ids[1]), []byte(strconv.Itoa(int(slack))), 0) // in nanoseconds; takes CAP_SYS_NICE
	}
}
