package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
)

// TestRealTime: the run on a program in real time ends in time, although its clock may never get the CPU that it is bound to; what is taken meanwhile
// is stopped from elsewhere, which is told. It runs all the time, and is not idle: one that gives way to its clock goes on on another CPU at once.
func TestRealTime(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU on this machine, which such a program takes")
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
			o.want(t, exitDone, "; lost: ")
			if took := time.Since(begun); took > 2*time.Second+endsWithin {
				t.Errorf("it ends after %v", took)
			}
			if priority > 1 && (!strings.Contains(o.stdout, ";crowd_work ") || !strings.Contains(o.stderr, "stopped from elsewhere")) {
				t.Errorf("nothing is taken:\n%s\n%s", o.stdout, o.stderr)
			}
			idle := 0
			if m := regexp.MustCompile(`(\d+) idle`).FindStringSubmatch(o.stderr); m != nil {
				idle, _ = strconv.Atoi(m[1])
			}
			if idle > 100 {
				t.Errorf("it is idle at %d of 398 ticks:\n%s", idle, o.stderr)
			}
		})
	}
}
