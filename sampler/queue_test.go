package sampler

import (
	"context"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/sampler/ledger"
)

// bindTo binds the threads of a process to a CPU.
func bindTo(t *testing.T, pid, cpu int) {
	t.Helper()
	var set unix.CPUSet
	set.Set(cpu)
	ids, err := proc.TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range ids {
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueueBudget: where threads share a CPU a stop comes late, and ticks are left out meanwhile. What was taken is a sample all the same, and a thread that
// waits for the CPU does that at those ticks.
func TestQueueBudget(t *testing.T) {
	const threads = 16
	p := testprog.Start(t, spinnersProg(t), strconv.Itoa(threads))
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	bindTo(t, p.PID, allowed(&cpus)[0])
	r, err := Run(context.Background(), Options{Hz: 999, Budget: Budget{MaxOverhead: 0.003}, PIDs: []int{p.PID}}, 3*time.Second, testPipeline(new(byFunction)), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, throttled, samples := r.Count[ledger.Waiting], r.Count[ledger.Throttled], r.Count[ledger.Sampled]
	t.Logf("%d samples of %d stops; of %d ticks %d waiting, %d throttled", samples, r.Stops.Asked, r.Expected, waiting, throttled)
	if throttled == 0 {
		t.Error("no tick was left out, though a sample takes more than 3 us")
	}
	if samples < r.Stops.Asked*19/20-threads { // of 63 on an emulated machine 5 were none, and it is not known why
		t.Errorf("%d samples of %d stops", samples, r.Stops.Asked)
	}
	if busy := r.Expected * threads / (threads + 1); waiting < busy*(threads-3)/threads || throttled > 2*busy/threads {
		t.Errorf("of %d ticks threads have waited for the CPU in %d, and %d were left out", busy, waiting, throttled)
	}
}
