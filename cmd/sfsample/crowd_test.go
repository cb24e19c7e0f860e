package main

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

// startCrowd starts that program with many threads or mappings, and returns the flags that have its processes sampled.
func startCrowd(t *testing.T, args ...string) (flags []string) {
	t.Helper()
	cmd := exec.Command(testprog.Compile(t, []string{"-O1", "-pthread"}, "crowd.c"), args...)
	cmd.Dir = t.TempDir()
	p := testprog.StartCmd(t, cmd)
	flags = []string{"-p", fmt.Sprint(p.PID)}
	for _, line := range p.Lines {
		flags = append(flags, "-p", strings.TrimPrefix(line, "pid "))
	}
	return flags
}

// endsWithin is far above the second after which all is over, and far below what is left to do then of these programs. Others may have the CPUs.
const endsWithin = 6 * time.Second

// crowdKB is far above what it takes to sample any of these programs, and below what their mappings have as text.
const crowdKB = 200 << 10

// TestWorkLeft: work that is left at the end of a run is not waited for. The result has all samples: what is not unwound is told.
func TestWorkLeft(t *testing.T) {
	many := "10000"
	if raceEnabled {
		many = "4000"
	}
	for name, tt := range map[string]struct {
		args []string
		told string // of the samples that are left, if some are on any machine
	}{
		"threads":         {[]string{"threads", many}, ""},
		"mappings":        {[]string{"mappings", "60000", "1", "1"}, "no mappings"},
		"mappings of six": {[]string{"mappings", "15500", "1", "6"}, ""},
		"files of six":    {[]string{"mappings", "15500", "15500", "6"}, "no mappings"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := append(startCrowd(t, tt.args...), "--threads", "all", "-o", "folded=-")
			for _, interrupted := range []bool{false, true} {
				const sampling = 3 * time.Second
				r := begin(t, tool(append(flags, "-d", map[bool]string{false: sampling.String(), true: "1h"}[interrupted])...))
				begun := time.Now().Add(sampling)
				if interrupted {
					time.Sleep(sampling) // so that there is work
					r.interrupt(t)
				}
				o := r.end(t)
				o.want(t, exitDone, tt.told)
				if took := time.Since(begun); took > endsWithin {
					t.Errorf("interrupted %t: it ends after %v, want a second or so", interrupted, took)
				}
				if tt.args[0] == "threads" && !strings.Contains(o.stdout, ";wait_deep") {
					t.Errorf("interrupted %t: the threads that wait are not in the result:\n%.1000s", interrupted, o.stdout)
				}
				if tt.told != "" && !strings.Contains(o.stdout, "[truncated: "+tt.told+"]") {
					t.Errorf("interrupted %t: the result has no sample that was left:\n%.1000s", interrupted, o.stdout)
				}
				if most := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; most > crowdKB && !raceEnabled {
					t.Errorf("interrupted %t: it took %d MB", interrupted, most>>10)
				}
			}
		})
	}
}

// TestDumpOfCrowd: a dump reads no more lists of mappings than there is time and room for.
func TestDumpOfCrowd(t *testing.T) {
	for name, args := range map[string][]string{
		"mappings of six": {"mappings", "15500", "1", "6"},
		"files of six":    {"mappings", "15500", "15500", "6"},
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, tool(append([]string{"dump"}, startCrowd(t, args...)...)...))
			begun := time.Now()
			r.end(t).want(t, exitDone)
			if took := time.Since(begun); took > dumpFor+endsWithin {
				t.Errorf("it takes %v, want %v or so", took, dumpFor)
			}
			if most := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; most > crowdKB && !raceEnabled {
				t.Errorf("it took %d MB", most>>10)
			}
		})
	}
}
