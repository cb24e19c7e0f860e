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
	r := begin(t, tool("-v", "-p", strconv.Itoa(p.pid), "-o", "/dev/null"))
	r.traces(t, p.pid)
	p.worked(t, 10) // some ticks pass in this time, also where one of the threads begins late
	r.interrupt(t)
	o := r.end(t)
	o.want(t, exitDone)
	var sent, taken, most int
	if _, err := fmt.Sscanf(line(o.stderr, "interrupts: "), "%d sent, %d stops taken, at most %d outstanding", &sent, &taken, &most); err != nil {
		t.Fatalf("no count of interrupts: %v in\n%s", err, o.stderr)
	}
	if most < spinnerThreads {
		t.Errorf("at most %d interrupts were outstanding at once, want those of %d threads that never sleep", most, spinnerThreads)
	}
	if taken > sent || taken < sent-len(tasks(t, p.pid)) {
		t.Errorf("%d interrupts sent, %d stops taken: more are missing than the process has threads", sent, taken)
	}
	p.untouched(t)
}
