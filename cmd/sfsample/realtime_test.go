package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

// TestRealTime: the run on a program in real time ends before that does, although its clock may never get the CPU that it is bound to, and in the
// midst of its end not again. What is taken meanwhile is stopped from elsewhere, which is told. The program runs all the time, and is not idle.
func TestRealTime(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU on this machine, which such a program takes")
	}
	if raceEnabled {
		t.Skip("race build: a clock keeps a processor of Go's there, and may wait for its CPU with it")
	}
	hog := testprog.Compile(t, []string{"-O1"}, "hog.c")
	for _, priority := range []uint32{1, 1, 1, 1, 1, 50, 99} {
		cmd := exec.Command(hog)
		cmd.Dir = t.TempDir()
		p := testprog.StartCmd(t, cmd)
		if err := unix.SchedSetAttr(p.PID, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: priority}, 0); err != nil {
			t.Skip("no real-time priority: ", err)
		}
		o := begin(t, tool("-p", fmt.Sprint(p.PID), "-hz", "199", "-d", "1s", "-o", "folded=-")).end(t)
		o.want(t, exitDone, "; lost: ")
		if err := unix.Kill(p.PID, 0); err != nil || stateOf(t, p.PID) == 'Z' {
			t.Fatalf("priority %d: it has not ended before its target did", priority)
		}
		if priority > 1 && (!strings.Contains(o.stdout, ";hog_work ") || !strings.Contains(o.stderr, "stopped from elsewhere")) {
			t.Errorf("priority %d: nothing is taken:\n%s\n%s", priority, o.stdout, o.stderr)
		}
		if m := regexp.MustCompile(`(\d+) idle`).FindStringSubmatch(o.stderr); m != nil {
			if idle, _ := strconv.Atoi(m[1]); idle > 50 {
				t.Errorf("priority %d: it is idle at %d of 199 ticks:\n%s", priority, idle, o.stderr)
			}
		}
		p.Kill()
	}
}

// TestRealTimeNaps: who is stopped from elsewhere is not read in its waits instead, by a clock that gets the CPU when it sleeps: of a program in real time that works
// for 6 ms and sleeps for 0.3 nearly all CPU time is its work.
func TestRealTimeNaps(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU on this machine, which such a program takes")
	}
	if raceEnabled {
		t.Skip("race build: a clock keeps a processor of Go's there, and may wait for its CPU with it")
	}
	seldom := testprog.Compile(t, []string{"-O1", "-pthread"}, "seldom.c")
	for name, attr := range map[string]unix.SchedAttr{
		"FIFO 50":  {Policy: unix.SCHED_FIFO, Priority: 50},
		"RR 1":     {Policy: unix.SCHED_RR, Priority: 1},
		"deadline": {Policy: unix.SCHED_DEADLINE, Runtime: 9_000_000, Deadline: 10_000_000, Period: 10_000_000},
	} {
		p := testprog.Start(t, seldom, "1", "6000", "300")
		ids, err := (procfs.FS{}).TaskIDs(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		attr.Size = unix.SizeofSchedAttr
		if err := unix.SchedSetAttr(ids[len(ids)-1], &attr, 0); err != nil {
			t.Skip("no real-time priority: ", err)
		}
		o := begin(t, tool("-p", fmt.Sprint(p.PID), "-hz", "199", "-d", "2s", "-o", "folded=-")).end(t)
		o.want(t, exitDone, "threads have real-time priority")
		work, all := 0, 0
		for line := range strings.Lines(o.stdout) {
			stack, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			if weight, err := strconv.Atoi(n); err == nil {
				if all += weight; strings.Contains(stack, ";seldom_work") {
					work += weight
				}
			}
		}
		if all < 100 || 10*work < 9*all {
			t.Errorf("%s: %d of %d are its work:\n%s\n%s", name, work, all, o.stdout, o.stderr)
		}
		p.Kill()
	}
}
