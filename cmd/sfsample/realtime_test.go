package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
)

// TestRealTime: the run on a program in real time ends in time, although its clock may never get the CPU that it is bound to; what is taken meanwhile
// is stopped from elsewhere, which is told.
func TestRealTime(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU, which such a program takes")
	}
	for _, priority := range []uint32{50, 99} {
		t.Run(fmt.Sprint(priority), func(t *testing.T) {
			cmd := exec.Command(testprog.Compile(t, []string{"-O1", "-pthread"}, "crowd.c"), "mappings", "1", "1", "1")
			cmd.Dir = t.TempDir()
			p := testprog.StartCmd(t, cmd)
			if err := unix.SchedSetAttr(p.PID, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0); err != nil {
				t.Skip("no real-time priority: ", err)
			}
			begun := time.Now()
			o := begin(t, tool("-p", fmt.Sprint(p.PID), "-hz", "199", "-d", "2s", "-o", "folded=-")).end(t)
			o.want(t, exitDone, "stopped from elsewhere")
			if took := time.Since(begun); took > 2*time.Second+endsWithin {
				t.Errorf("it ends after %v", took)
			}
			if !strings.Contains(o.stdout, ";crowd_work ") {
				t.Errorf("nothing is taken:\n%s\n%s", o.stdout, o.stderr)
			}
		})
	}
}
