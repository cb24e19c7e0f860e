package main

import (
	"fmt"
	"strconv"
	"testing"
)

// TestOutstanding samples more busy threads than most machines have CPUs: they
// are interrupted together, and the stops are awaited together. A sampler that
// awaits each before it interrupts the next has one outstanding at a time.
func TestOutstanding(t *testing.T) {
	p := startTarget(t, "spinners")
	most := 0
	// At a given tick their runtime may let one of the threads wait: it takes some.
	for range 5 {
		if most = max(most, outstanding(t, p)); most >= spinnerThreads {
			break
		}
	}
	if most < spinnerThreads {
		t.Errorf("at most %d interrupts were outstanding at once, want those of %d threads that never sleep", most, spinnerThreads)
	}
	p.untouched(t)
}

// outstanding samples the process for a while and returns how many interrupts were
// outstanding at most.
func outstanding(t *testing.T, p *proc) (most int) {
	t.Helper()
	r := begin(t, tool("-v", "-p", strconv.Itoa(p.pid), "--max-overhead", "100", "-o", "/dev/null"))
	r.traces(t, p.pid)
	p.worked(t, 10)
	r.interrupt(t)
	o := r.end(t)
	o.want(t, exitDone)
	var sent, taken int
	if _, err := fmt.Sscanf(line(o.stderr, "interrupts: "), "%d sent, %d stops taken, at most %d outstanding", &sent, &taken, &most); err != nil {
		t.Fatalf("no count of interrupts: %v in\n%s", err, o.stderr)
	}
	if taken > sent || taken < sent-len(tasks(t, p.pid)) {
		t.Errorf("%d interrupts sent, %d stops taken: more are missing than the process has threads", sent, taken)
	}
	return most
}
