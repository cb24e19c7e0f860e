package clocks

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func()) { <-ptrace.OnThread(f) }

// TestPrepare: what a clock's thread is, and from which tick on it counts.
func TestPrepare(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpu := lastCPU(&all)
	for _, tt := range []struct {
		cpu        int
		now, phase int64
		tick       int64
	}{
		{cpu, -5, 0, -1},        // before tick 0
		{cpu, 0, 0, 0},          // at it
		{cpu, 0, 1, -1},         // before the first of this clock
		{cpu, 4_999, 0, 4},      //
		{cpu, 5_000, 0, 5},      //
		{cpu, 5_000, 1, 4},      //
		{Anywhere, 7_500, 0, 7}, //
		{cpu, -10_000, 0, -1},   // by far
	} {
		onThread(func() {
			s := newScript(t)
			s.now = 1e9 + tt.now
			c := &Clock{cpu: tt.cpu, mask: make([]uint64, 1), board: NewBoard(1, 1e9, 1000), k: s, phase: tt.phase}
			denied, err := c.prepare(true)
			if err != nil || denied != nil || c.prompt {
				t.Errorf("prepare: %v, %v, real time %t at normal priority", denied, err, c.prompt)
			}
			if c.tick != tt.tick || c.done.Load() != tt.tick || c.met.Load() != tt.tick {
				t.Errorf("at %d, phase %d: tick %d, done %d, met %d; want %d", tt.now, tt.phase, c.tick, c.done.Load(), c.met.Load(), tt.tick)
			}
			if c.thread.Load() != int32(unix.Gettid()) {
				t.Errorf("it is thread %d, says %d", unix.Gettid(), c.thread.Load())
			}
			if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 1 {
				t.Errorf("its sleeps may be %d ns longer: %v", slack, err)
			}
			if want := uint64(1) << max(tt.cpu, 0); tt.cpu >= 0 && c.mask[0] != want {
				t.Errorf("CPU %d: bound to %b", tt.cpu, c.mask)
			}
		})
	}
}

// TestHasten: the first of the priorities in real time, which children do not get, or else a short slice (Linux 6.12).
func TestHasten(t *testing.T) {
	for _, nice := range []bool{true, false} {
		onThread(func() {
			before, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			denied := hasten(nice)
			now, err := unix.SchedGetAttr(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case nice && denied != nil:
				t.Errorf("denied, and not asked for: %v", denied)
			case !nice && denied == nil:
				if now.Policy != unix.SCHED_FIFO || now.Priority != 1 || now.Flags&unix.SCHED_FLAG_RESET_ON_FORK == 0 {
					t.Errorf("policy %d, priority %d, flags %#x", now.Policy, now.Priority, now.Flags)
				}
			case now.Policy != unix.SCHED_NORMAL || before.Runtime != 0 && now.Runtime != 100_000:
				t.Errorf("policy %d, a slice of %d ns", now.Policy, now.Runtime)
			}
			c := &Clock{cpu: Anywhere, board: NewBoard(1, 1e9, 1000), k: newScript(t)}
			again, err := c.prepare(nice)
			if err != nil || (again == nil) != (denied == nil) || c.prompt != (!nice && denied == nil) {
				t.Errorf("denied: %v, then %v; real time %t: %v", denied, again, c.prompt, err)
			}
		})
	}
}

// await waits until something is so.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// TestBankLive runs real clocks: one for a CPU and one without, which ticks and requests come to, and which end.
// TestDenied: a bank tells why its clocks have no real-time priority, once one has not.
func TestDenied(t *testing.T) {
	defer func() { hasten = hastenThread }()
	b := bank(t, 1)
	for _, err := range []error{nil, unix.EPERM, nil} {
		hasten = func(bool) error { return err }
		b.rover = nil
		if !b.Ask(0) {
			t.Fatal("no clock could be made")
		}
		defer b.rover.stop()
		if b.rover.prompt != (err == nil) {
			t.Errorf("real time %t, denied: %v", b.rover.prompt, err)
		}
		if err != nil && b.Denied != err {
			t.Errorf("denied: %v, want %v", b.Denied, err)
		}
	}
	if b.Denied != unix.EPERM {
		t.Errorf("denied: %v, want that of the second", b.Denied)
	}
}
