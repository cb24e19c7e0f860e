package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
)

// TestRealTime: a program in real time is sampled, from elsewhere, which is told; and the run ends in time although its clock may never get the
// CPU that it is bound to.
func TestRealTime(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU, which such a program takes")
	}
	for _, priority := range []uint32{1, 50, 99} {
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
			n := 0
			for _, m := range regexp.MustCompile(`(?m);crowd_work (\d+)$`).FindAllStringSubmatch(o.stdout, -1) {
				k, _ := strconv.Atoi(m[1])
				n += k
			}
			if n < 40 { // of 398; others may have the CPU that is left
				t.Errorf("%d ticks are in crowd_work:\n%s\n%s", n, o.stdout, o.stderr)
			}
		})
	}
}
