package sampler

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// byFunction is a sink that counts complete samples by the functions in them.
type byFunction struct {
	mu    sync.Mutex
	count map[string]int
}

// Add implements output.Sink.
func (b *byFunction) Add(s *output.Sample) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count == nil {
		b.count = map[string]int{}
	}
	if s.Stack.End != "" {
		b.count[s.Stack.End]++
		return nil
	}
	for _, f := range s.Stack.Frames {
		b.count[f.Func]++
	}
	return nil
}

// Close implements output.Sink.
func (b *byFunction) Close() error { return nil }

func (b *byFunction) of(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[name]
}

// startUnfilled starts a process with stacks that end where a page begins that
// nobody brings: who reads that page hangs.
func startUnfilled(t *testing.T, args ...string) *testprog.Proc {
	t.Helper()
	path := threadsProg(t, "unfilled.c")
	if err := exec.Command(path).Run(); err != nil { // its input is at its end: it only tries
		t.Skipf("userfaultfd is not to be had here: %v", err)
	}
	cmd := exec.Command(path, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	t.Cleanup(func() { in.Close() }) // ends the child of its vfork as well
	return p
}

// TestUnfilledPage samples threads beside such pages, one of them stopped for it,
// and ones that wait for what may never come.
func TestUnfilledPage(t *testing.T) {
	p := startUnfilled(t, "vfork")
	threads := []string{"spin", "await", "spin_within", "await_within", "touch", "in_vfork"}
	sink := new(byFunction)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Options{Hz: 99, All: true, WallWeight: true, PIDs: []int{p.PID}}, 0, testPipeline(sink), nil, nil)
		ended <- err
	}()
	limit := time.Now().Add(testprog.Patience)
	for _, name := range threads {
		// Where a stack ends is known after its first sample.
		for sink.of(name) < 3 {
			if time.Now().After(limit) {
				t.Fatalf("no sample of %s", name)
			}
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Error(err)
	}
}

// TestUnfilledPageAtExit takes the stacks of such threads at their exits: who takes them holds all threads, and must not wait.
func TestUnfilledPageAtExit(t *testing.T) {
	p := startUnfilled(t)
	ready, ended := make(chan struct{}), make(chan error, 1)
	var r Result
	go func() {
		var err error
		r, err = Run(context.Background(), Options{Hz: 99, ExitStacks: true, PIDs: []int{p.PID}}, 0, testPipeline(new(byFunction)), func() { close(ready) }, nil)
		ended <- err
	}()
	within(t, ready, "the run does not begin")
	p.Signal(t, syscall.SIGKILL)
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Error(err)
	}
	if r.Exits.Taken == 0 {
		t.Error("no stack of a thread at its exit")
	}
}

// TestDumpUnfilledPage dumps the same threads: each that is blocked shows its
// stack without a stop, the one in a vfork in uninterruptible sleep.
func TestDumpUnfilledPage(t *testing.T) {
	p := startUnfilled(t, "vfork")
	var wrong []string
	for limit := time.Now().Add(testprog.Patience); time.Now().Before(limit); {
		d, err := Dump(Options{PIDs: []int{p.PID}}, testPipeline(new(byFunction)))
		if err != nil {
			t.Fatal(err)
		}
		if wrong = blockedWrong(d.Threads); len(wrong) == 0 {
			return // until then, some thread was still on its way
		}
	}
	t.Error(wrong)
}

// blockedWrong says what a dump of unfilled lacks. The thread that spins may be
// without a CPU for longer than a dump waits.
func blockedWrong(threads []*ThreadDump) (wrong []string) {
	states := map[string]byte{"await": 'S', "await_within": 'S', "touch": 'S', "in_vfork": 'D'}
	for _, th := range threads {
		if th.Stack == nil || th.Stack.End != "" || th.Taken != "no stop" {
			continue
		}
		for _, f := range th.Stack.Frames {
			if states[f.Func] == th.State {
				delete(states, f.Func)
			}
		}
	}
	if len(threads) != 7 {
		wrong = append(wrong, fmt.Sprintf("%d threads, want 7", len(threads)))
	}
	for name, state := range states {
		wrong = append(wrong, fmt.Sprintf("no complete stack of %s in state %c, taken without a stop", name, state))
	}
	return wrong
}
