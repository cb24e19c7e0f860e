package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// endsWithin is far above the second after which all is over, and far below what is left to do then of these programs.
const endsWithin = 6 * time.Second

// mostSlowdown bounds what is allowed for busy CPUs.
const mostSlowdown = 10

// slowdown is how many times as long as on idle CPUs a thread takes now for what it computes: others may have the CPUs.
func slowdown() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var now, from unix.Timespec
	clock := func(ts *unix.Timespec) int64 {
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, ts) // a thread has one
		return ts.Nano()
	}
	begun := time.Now()
	for clock(&from); clock(&now)-from.Nano() < int64(100*time.Millisecond); {
	}
	return max(1, float64(time.Since(begun))/float64(now.Nano()-from.Nano()))
}

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
				var r *running
				for tries := 0; ; tries++ {
					slow := slowdown()
					r = begin(t, tool(append(flags, "-d", map[bool]string{false: sampling.String(), true: "1h"}[interrupted])...))
					begun := time.Now().Add(sampling)
					if interrupted {
						time.Sleep(sampling) // so that there is work
						r.interrupt(t)
					}
					o := r.end(t)
					o.want(t, exitDone)
					slow = min(max(slow, slowdown()), mostSlowdown)
					if took, most := time.Since(begun), time.Duration(slow*float64(endsWithin)); took > most {
						t.Errorf("interrupted %t: it ends after %v, want a second or so, at most %v", interrupted, took, most)
					}
					waiting := tt.args[0] != "threads" || strings.Contains(o.stdout, ";wait_deep")
					told := tt.told == "" || strings.Contains(o.stderr, tt.told) && strings.Contains(o.stdout, "[truncated: "+tt.told+"]")
					if waiting && told {
						break
					}
					if tries == 5 || slow < 2 { // on busy CPUs nothing may be unwound in time
						t.Errorf("interrupted %t: the threads that wait are in the result: %t; the samples that were left are told: %t\n%.1000s\n%s", interrupted, waiting, told, o.stdout, o.stderr)
						break
					}
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
			slow := slowdown()
			r := begin(t, tool(append([]string{"dump"}, startCrowd(t, args...)...)...))
			begun := time.Now()
			r.end(t).want(t, exitDone)
			if took, most := time.Since(begun), dumpFor+time.Duration(min(max(slow, slowdown()), mostSlowdown)*float64(endsWithin)); took > most {
				t.Errorf("it takes %v, want %v or so, at most %v", took, dumpFor, most)
			}
			if most := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; most > crowdKB && !raceEnabled {
				t.Errorf("it took %d MB", most>>10)
			}
		})
	}
}
