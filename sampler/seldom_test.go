package sampler

import (
	"context"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/sampler/ledger"
)

// TestSeldom: threads that run for less than a tick and sleep for many get the samples that their CPU time stands for.
func TestSeldom(t *testing.T) {
	const hz, seconds = 999, 3
	p := testprog.Start(t, threadsProg(t, "seldom.c"), "16", "300", "40000")
	before, errno := ptrace.RawClock(cpuClock(p.PID))
	if errno != 0 {
		t.Fatal(errno)
	}
	r, err := Run(context.Background(), Options{Hz: hz, Budget: Budget{MaxOverhead: 100}, PIDs: []int{p.PID}}, seconds*time.Second, testPipeline(new(byFunction)), nil, nil)
	after, _ := ptrace.RawClock(cpuClock(p.PID))
	if err != nil {
		t.Fatal(err)
	}
	used := time.Duration(after - before)
	got, want := r.Count[ledger.Sampled], int64(used.Seconds()*hz)
	t.Logf("%v of CPU time: %d samples of %d", used, got, want)
	if got < want/3 {
		t.Errorf("%d samples for %v of CPU time, want about %d: %v", got, used, want, &r.Account)
	}
}
