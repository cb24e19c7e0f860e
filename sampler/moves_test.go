package sampler

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/sampler/ledger"
)

// migrations is how often a thread was moved to another CPU (proc_sched_show_task, kernel/sched/debug.c).
func migrations(t *testing.T, tid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/sched", tid))
	if err != nil {
		t.Skip("the scheduler does not tell of moves: ", err)
	}
	for line := range bytes.Lines(text) {
		if name, number, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "se.nr_migrations" {
			n, err := strconv.Atoi(string(bytes.TrimSpace(number)))
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
	}
	t.Fatalf("no se.nr_migrations in %q", text)
	return 0
}

// TestMoves: a thread that is let go stays on its CPU, though another is idle.
func TestMoves(t *testing.T) {
	if raceEnabled {
		t.Skip("clocks of the race detector's builds give no priority up")
	}
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil || cpus.Count() < 2 {
		t.Skip("one CPU on this machine")
	}
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, "ehframe", "deep"), "s", "4")
	before := migrations(t, p.PID)
	r, err := Run(context.Background(), Options{Hz: 999, Budget: Budget{MaxOverhead: 100}, PIDs: []int{p.PID}}, 2*time.Second, testPipeline(new(byFunction)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Clocks.Denied != nil {
		t.Skip("no real-time priority: ", r.Clocks.Denied)
	}
	moves, samples := migrations(t, p.PID)-before, int(r.Count[ledger.Sampled])
	t.Logf("%d moves, %d samples", moves, samples)
	if moves > samples/10 {
		t.Errorf("a thread was moved %d times while it was sampled %d times", moves, samples)
	}
}
