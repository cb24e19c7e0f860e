package clocks

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
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
			c := &Clock{place: place{cpu: tt.cpu}, board: NewBoard(1, 1e9, 1000), k: s, ticks: answered{phase: tt.phase}}
			nice := tt.now != 5_000
			hasten = func(bool) error { return nil }
			denied, err := c.prepare(nice)
			hasten = hastenThread
			if err != nil || denied != nil || c.prompt == nice {
				t.Errorf("prepare: %v, %v, real time %t", denied, err, c.prompt)
			}
			if c.search.witness.ring != nil {
				t.Error("it has a witness of ticks that are 1 us apart")
			}
			if c.board.Interval = leastInterval; tt.cpu != Anywhere {
				c.search.close()
				c.search = search{}
				c.search.open(c)
			}
			if ring := c.search.witness.ring; ring != nil && nice || ring == nil && !nice && eventsOf(tt.cpu) {
				t.Errorf("it has a witness: %t, at normal priority: %t", ring != nil, nice)
			}
			if c.ticks.last != tt.tick || c.shown.done.Load() != tt.tick || c.shown.met.Load() != tt.tick {
				t.Errorf("at %d, phase %d: tick %d, done %d, met %d; want %d", tt.now, tt.phase, c.ticks.last, c.shown.done.Load(), c.shown.met.Load(), tt.tick)
			}
			if c.life.thread.Load() != int32(unix.Gettid()) {
				t.Errorf("it is thread %d, says %d", unix.Gettid(), c.life.thread.Load())
			}
			if slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || slack != 1 {
				t.Errorf("its sleeps may be %d ns longer: %v", slack, err)
			}
			if u := c.up; u.tardy(120_000, false) {
				t.Error("it takes 120 us for late, before it knows how long a wake-up takes")
			}
			if u := c.up; !u.tardy(120_001, false) {
				t.Error("it does not take more than 120 us for late")
			}
			fds := map[int]string{c.search.self: fmt.Sprintf("/task/%d/sched", unix.Gettid())}
			if w := &c.search.witness; w.ring != nil {
				fds[w.event] = "anon_inode:[perf_event]"
			}
			for fd, want := range fds {
				file, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
				if _, err := os.Stat("/proc/thread-self/sched"); fd > 0 != (err == nil && tt.cpu != Anywhere) || fd > 0 && !strings.HasSuffix(file, want) {
					t.Errorf("CPU %d: file %d is %q, want %s", tt.cpu, fd, file, want)
				}
				if fd > 0 {
					if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
						t.Errorf("children have %s: flags %#x, %v", want, flags, err)
					}
				}
			}
			c.search.close()
			for fd, name := range fds {
				if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fd > 0 && err != unix.EBADF {
					t.Errorf("%s is still open: %v", name, err)
				}
			}
			if c.tracees.seizes.alarm == nil {
				t.Error("it has no alarm")
			} else {
				c.tracees.seizes.alarm.Close()
			}
			if want := uint64(1) << max(tt.cpu, 0); tt.cpu >= 0 && c.place.own[0] != want {
				t.Errorf("CPU %d: bound to %b", tt.cpu, c.place.own)
			}
		})
	}
}

// TestLeaves: a clock that ends goes to another CPU, then may go anywhere, and gives up its priority, before Go's runtime has it back. So does one that
// cannot be bound, and one that is to end before.
func TestLeaves(t *testing.T) {
	const bound = "[10], slack false"
	away := []string{"[1101], slack false", "[1111], slack true"}
	for _, tt := range []struct {
		name  string
		cpu   int
		binds unix.Errno
		quit  bool
		want  []string
	}{
		{"is to end", 1, 0, true, away},
		{"cannot be bound", 1, unix.EINVAL, false, append([]string{bound}, away...)},
		{"has no CPU", Anywhere, 0, true, []string{"[], slack true"}},
		{"ends", 1, 0, false, append([]string{bound}, away...)},
	} {
		onThread(func() {
			s := newScript(t)
			s.now, s.binds = 1e9, tt.binds
			b := NewBoard(1, 1e9, 1000)
			b.cpus = unix.CPUSet{0xf}
			c := &Clock{place: place{cpu: tt.cpu}, board: b, k: s}
			c.prepare(true)
			c.life.quit.Store(tt.quit)
			s.asleep = func() { c.life.quit.Store(true) }
			if c.Outside(); !slices.Equal(s.policy, tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, s.policy, tt.want)
			}
		})
	}
}

// eventsOf tells whether this program may have perf events of a CPU.
func eventsOf(cpu int) bool {
	event, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER5}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(event)
	}
	return err == nil
}

// TestGivesBack: a thread that was hastened may have the usual policy again, also without a privilege.
func TestGivesBack(t *testing.T) {
	for _, how := range []string{"slackens", "gives back"} {
		allowed := true
		onThread(func() {
			nice := func() (policy uint32, nice int32) {
				now, err := unix.SchedGetAttr(0, 0)
				if err != nil {
					t.Fatal(err)
				}
				return now.Policy, now.Nice
			}
			_, before := nice()
			back := Hasten(false)
			if policy, _ := nice(); policy != unix.SCHED_FIFO {
				allowed = false
				return
			}
			const nobody = 65534
			unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody) // of this thread alone, which ends
			if how == "slackens" {
				ptrace.RawPolicy(0, unix.SCHED_NORMAL)
			} else {
				back()
			}
			if policy, now := nice(); policy != unix.SCHED_NORMAL || now != before {
				t.Errorf("it %s: policy %d, nice %d; want %d, %d", how, policy, now, unix.SCHED_NORMAL, before)
			}
		})
		if !allowed {
			t.Skip("no real-time priority")
		}
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
			before.Nice = min(before.Nice+1, 19)
			if err := unix.SchedSetAttr(0, before, 0); err != nil {
				t.Error(err)
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
			case now.Policy != unix.SCHED_NORMAL || before.Runtime != 0 && now.Runtime != 100_000 || now.Nice != before.Nice:
				t.Errorf("policy %d, a slice of %d ns, nice %d; want nice %d", now.Policy, now.Runtime, now.Nice, before.Nice)
			}
			giveBack(unix.Gettid(), before)
			back := Hasten(nice)
			if same, err := unix.SchedGetAttr(0, 0); err != nil || *same != *now {
				t.Errorf("%+v for a while, want %+v: %v", same, now, err)
			}
			if back(); denied == nil {
				if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != unix.SCHED_NORMAL || now.Nice != before.Nice {
					t.Errorf("%+v then, want %+v: %v", now, before, err)
				}
			}
			c := &Clock{place: place{cpu: Anywhere}, board: NewBoard(1, 1e9, 1000), k: newScript(t)}
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
	for end := time.Now().Add(testprog.Patience); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// TestDenied: a bank tells why its clocks have no real-time priority, once one has not.
func TestDenied(t *testing.T) {
	defer func() { hasten = hastenThread }()
	b := bank(t, 1)
	for _, err := range []error{nil, unix.EPERM, nil} {
		hasten = func(bool) error { return err }
		b.rover = rover{}
		if !b.Ask(0) {
			t.Fatal("no clock could be made")
		}
		defer b.rover.clock.stop()
		if b.rover.clock.prompt != (err == nil) {
			t.Errorf("real time %t, denied: %v", b.rover.clock.prompt, err)
		}
		if err != nil && b.Denied != err {
			t.Errorf("denied: %v, want %v", b.Denied, err)
		}
	}
	if b.Denied != unix.EPERM {
		t.Errorf("denied: %v, want that of the second", b.Denied)
	}
}

// TestWokenWithoutSignals: a clock that sleeps until it is asked wakes up also where no signal comes, since its user may have none under way (ulimit -i).
func TestWokenWithoutSignals(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit); err != nil {
		t.Fatal(err)
	}
	b := bank(t, 1)
	for i := range 3 {
		if !b.Ask(0) {
			t.Fatal("no clock could be made")
		}
		b.Go()
		c := b.rover.clock
		await(t, fmt.Sprint("request ", i, " is taken"), func() bool { return !c.requests.waiting() })
		await(t, "the clock sleeps", func() bool {
			st, err := (procfs.FS{}).Task(os.Getpid(), int(c.life.thread.Load())).Stat()
			return err == nil && st.State == 'S' && !c.life.active.Load()
		})
		none := unix.Rlimit{Cur: 0, Max: limit.Max}
		if err := unix.Setrlimit(unix.RLIMIT_SIGPENDING, &none); err != nil {
			t.Fatal(err)
		}
		defer unix.Setrlimit(unix.RLIMIT_SIGPENDING, &limit)
	}
	unix.Setrlimit(unix.RLIMIT_SIGPENDING, &limit)
	b.rover.clock.stop()
}

// TestBankLive runs real clocks: one for a CPU and one without, which ticks and requests come to, and which end.
func TestBankLive(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	cpu := lastCPU(&all)
	b := bank(t, 6)
	b.board.Start, b.board.Interval, b.board.Spread = ptrace.Now(), 1e6, 5e5
	if b.Need(cpu, 0) {
		t.Error("there is a clock before it was made")
	}
	if b.Clocks() != 1 {
		t.Fatal("no clock could be made")
	}
	c := b.clocks[cpu]
	for i := range c.tracees.samples {
		want := commonRoom
		if i < first {
			want = firstRoom
		}
		if got := len(c.tracees.samples[i].Buffer.Stack.Room); got != want {
			t.Errorf("sample %d has room for %d bytes of stack, want %d", i, got, want)
		}
	}
	if c.who != 1 || c.place.cpu != cpu || c.ticks.phase != phase(cpu, 5e5) || c.search.last != -1 || b.board.clocks[1].Load() != c {
		t.Errorf("clock %d of CPU %d, phase %d, last %d", c.who, c.place.cpu, c.ticks.phase, c.search.last)
	}
	await(t, "ticks", func() bool { return c.shown.done.Load() >= c.ticks.born+3 })
	if !b.Need(cpu, c.ticks.born+3) {
		t.Error("a clock that ticks is not there")
	}
	if b.Everywhere(2, c.ticks.born) || b.Everywhere(1, c.ticks.born-1) || !b.Everywhere(1, c.ticks.born) {
		t.Error("one CPU has a clock, from its first tick on")
	}
	if b.clocks[cpu] != c {
		t.Error("a second clock was made")
	}
	if !b.Ask(3) || b.rover.clock.place.cpu != Anywhere || b.rover.clock.who != 2 || len(b.rover.clock.tracees.samples) != 24 {
		t.Errorf("clock %d for requests has %d samples", b.rover.clock.who, len(b.rover.clock.tracees.samples))
	}
	r := b.rover.clock
	b.Go()
	await(t, "a clock without a request", func() bool {
		st, err := (procfs.FS{}).Task(unix.Getpid(), int(r.life.thread.Load())).Stat()
		return err == nil && st.State == 'S' && r.requests.begun.Load() == 1
	})
	if b.Ask(4); r.requests.begun.Load() != 1 {
		t.Error("a request was taken before it was to begin")
	}
	if b.Go(); b.rover.clock != r {
		t.Error("a second clock for requests was made")
	}
	await(t, "requests", func() bool { return b.rover.clock.requests.begun.Load() == 2 })
	thread := func(c *Clock) bool { return unix.Tgkill(unix.Getpid(), int(c.life.thread.Load()), 0) == nil }
	if !thread(c) || !thread(r) {
		t.Error("clocks have no threads")
	}
	// One that has long to sleep is woken to end.
	far := bank(t, 1)
	far.board.Start -= int64(2 * time.Hour)
	far.board.Interval = int64(time.Hour)
	far.Need(cpu, 0)
	long := far.clocks[cpu]
	b.Close()
	far.Close()
	for _, c := range []*Clock{c, r, long} {
		await(t, "the end of a clock", func() bool { return !thread(c) })
	}
	b = bank(t, 400)
	b.Ask(0)
	if n := len(b.rover.clock.tracees.samples); n != 1024 {
		t.Errorf("%d samples for requests, want 1024 at most", n)
	}
	b.Close()
}
