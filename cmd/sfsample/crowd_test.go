package main

import (
	"fmt"
	"os/exec"
	"strings"
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

// TestWorkLeft: work that is left at the end of a run is not waited for. The result has all samples: what is not unwound is told.
func TestWorkLeft(t *testing.T) {
	for name, args := range map[string][]string{
		"threads": {"threads", "10000"},
	} {
		t.Run(name, func(t *testing.T) {
			flags := append(startCrowd(t, args...), "--threads", "all", "-o", "folded=-")
			for _, interrupted := range []bool{false, true} {
				const sampling = 3 * time.Second
				cmd := tool(append(flags, "-d", map[bool]string{false: sampling.String(), true: "1h"}[interrupted])...)
				r := begin(t, cmd)
				begun := time.Now()
				if interrupted {
					time.Sleep(sampling) // so that there is work
					begun = time.Now()
					r.interrupt(t)
				}
				o := r.end(t)
				took := time.Since(begun)
				o.want(t, exitDone, "no time left")
				if !interrupted {
					took -= sampling
				}
				if took > endsWithin {
					t.Errorf("interrupted %t: it ends %v after that, want a second or so", interrupted, took)
				}
				if !strings.Contains(o.stdout, "[truncated: no time left]") {
					t.Errorf("interrupted %t: the result has no sample that was left:\n%.1000s", interrupted, o.stdout)
				}
			}
		})
	}
}
