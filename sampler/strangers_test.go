package sampler

import (
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/sampler/clocks"
	"sfsample/sampler/taking"
)

// shares adds up CPU time by the function that a sample's thread was in, or was called by.
type shares struct {
	mu      sync.Mutex
	all     time.Duration
	work    time.Duration
	threads map[int]bool // that were met in work
}

// Add implements output.Sink.
func (s *shares) Add(x *output.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += x.CPU
	if x.Stack == nil {
		return nil
	}
	for _, f := range x.Stack.Frames {
		if f.Func == "work" {
			s.work += x.CPU
			s.threads[x.TID] = true
		}
	}
	return nil
}

// Close implements output.Sink.
func (s *shares) Close() error { return nil }

// needWitness skips where clocks get no word of the kernel on who had their CPU.
func needWitness(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("no clock has a witness for long in this build")
	}
	board := clocks.NewBoard(1, ptrace.Now(), 10e6)
	bank := clocks.NewBank(new(taking.Live), board, clocks.Options{Samples: 1})
	defer bank.Close()
	bank.Need(ptrace.RawCPU(), 0)
	for end := time.Now().Add(time.Second); !bank.Witnessed() && time.Now().Before(end); {
		ptrace.RawSleep(ptrace.Now() + 1e6)
	}
	if !bank.Witnessed() {
		t.Skip("no clock has a witness")
	}
}

// TestStrangers: threads that live for less than a tick are sampled, and their samples stand for those that were not met, within the CPU time of the process.
func TestStrangers(t *testing.T) {
	needWitness(t)
	for _, tt := range []struct {
		us, busy string
		threads  int // to be met
		share    int // of all CPU time, 1/share is to be theirs
	}{{"1000", "0", 20, 3}, {"5000", "0", 20, 3}, {"1000", "3", 4, 40}} {
		us := tt.us
		p := testprog.StartCmd(t, exec.Command(threadsProg(t, "brief.c"), us, tt.busy))
		sink := &shares{threads: map[int]bool{}}
		before, errno := ptrace.RawClock(cpuClock(p.PID))
		if errno != 0 {
			t.Fatal(errno)
		}
		r, err := Run(t.Context(), Options{PIDs: []int{p.PID}, Hz: 99, Stop: StopAuto}, 3*time.Second, testPipeline(sink), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		after, _ := ptrace.RawClock(cpuClock(p.PID))
		spent := time.Duration(after - before)
		t.Logf("%s us: %d threads in work, %v of %v; the process %v; %+v", us, len(sink.threads), sink.work, sink.all, spent, r.Account)
		if len(sink.threads) < tt.threads || sink.work < sink.all/time.Duration(tt.share) {
			t.Errorf("%s us: %d threads were met in work, for %v of %v", us, len(sink.threads), sink.work, sink.all)
		}
		if sink.all > spent+spent/50 {
			t.Errorf("%s us: samples stand for %v, the process has spent %v", us, sink.all, spent)
		}
		if got := r.Account.Sum(); got != r.Account.Expected {
			t.Errorf("%s us: of %d thread ticks %d are accounted for", us, r.Account.Expected, got)
		}
		_ = unix.Kill(p.PID, unix.SIGKILL)
	}
}
