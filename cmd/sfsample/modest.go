package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

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

// calm has the runtime's monitor waked late, if it is found.
func calm(slack time.Duration) {
	for try := 0; try < tries && !relax(slack); try++ {
		runtime.Gosched()
	}
}

// By how much later the runtime's monitor may be waked: it is to see that nothing is busy any more, and a tick takes longer. Without that it took a
// fifth of all CPU time of a profile at 99 Hz.
const (
	sampleMonitor = 5 * time.Millisecond // of a run
	lateMonitor   = 10 * time.Millisecond
	laterMonitor  = 40 * time.Millisecond
)

// tries is how often the monitor is looked for: it may just run.
const tries = 100

// relax has the kernel wake the runtime's monitor late: then it sees once that nothing is busy any more, and not ten times before. What
// it finds out, a goroutine that runs for long or a processor in a system call, it finds out so much later. false: it was not found.
func relax(slack time.Duration) (found bool) {
	fs := procfs.FS{}
	ids, _ := fs.TaskIDs(os.Getpid())
	for _, tid := range ids {
		if call, err := fs.Task(os.Getpid(), tid).Syscall(); err == nil && !call.Running && call.NR == unix.SYS_NANOSLEEP { // as no other does
			_ = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), []byte(strconv.Itoa(int(slack))), 0) // in nanoseconds; takes CAP_SYS_NICE
			found = true
		}
	}
	return found
}
