package sampler

import (
	"os"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// yieldToOthers makes every thread of this process that has the usual policy one
// that takes a CPU from nobody when it wakes (SCHED_BATCH, sched(7)): unwinding
// can wait until the target has used up its slice.
func yieldToOthers() {
	ids, err := (procfs.FS{}).TaskIDs(os.Getpid())
	if err != nil {
		return
	}
	for _, tid := range ids {
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy == unix.SCHED_NORMAL {
			unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_BATCH, Nice: attr.Nice}, 0)
		}
	}
}
