package clocks

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// bank has no clocks, and a board of 10 ms.
func bank(t *testing.T, samples int) *Bank {
	return NewBank(new(taking.Live), NewBoard(8, ptrace.Now()+int64(time.Hour), 10_000*us), Options{Samples: samples})
}

// idleClock is one that nobody runs. It ends when the channel is closed.
func idleClock(b *Bank, number, samples int) (*Clock, chan struct{}) {
	ended := make(chan struct{})
	c := &Clock{who: int32(number), board: b.board, tracees: tracees{samples: make([]Sample, samples)}, life: life{ended: ended}}
	b.board.clocks[number].Store(c)
	return c, ended
}

// TestExpire: a clock that has met nobody for more than 3 s ends; its number is free when its samples are taken.
func TestExpire(t *testing.T) {
	b := bank(t, 0)
	b.board.Interval = 10_000 * us
	c, ended := idleClock(b, 1, 2)
	other, _ := idleClock(b, 2, 0)
	b.clocks[0], b.clocks[1] = c, other
	c.shown.met.Store(100)
	other.shown.met.Store(101)
	c.shown.done.Store(401)
	other.shown.done.Store(401)
	c.shown.missed.Store(3)
	c.shown.late.Store(4)
	c.shown.looked.Store(5)
	other.shown.missed.Store(30)
	c.tracees.samples[1].state.Store(filled)
	if b.Expire(400); b.Clocks() != 2 {
		t.Error("a clock has ended after 3 s without a meeting, want after more")
	}
	counts := func() {
		t.Helper()
		if m, l, k := b.Counts(); m != 33 || l != 4 || k != 5 {
			t.Errorf("%d missed, %d late, %v looked", m, l, k)
		}
	}
	counts()
	b.Expire(401)
	counts()
	if b.Clocks() != 1 || b.clocks[0] != nil || !c.life.quit.Load() || other.life.quit.Load() || b.board.clocks[1].Load() != c {
		t.Errorf("%d clocks; quit %t", b.Clocks(), c.life.quit.Load())
	}
	if list := b.Drain(); len(list) != 1 || list[0] != &c.tracees.samples[1] {
		t.Errorf("%d samples of a clock that ends", len(list))
	}
	close(ended)
	if b.Expire(401); b.board.clocks[1].Load() != c || len(b.old) != 1 {
		t.Error("a clock is forgotten before its samples are taken")
	}
	counts()
	c.tracees.samples[1].Done()
	if b.Expire(401); b.board.clocks[1].Load() != nil || len(b.old) != 0 {
		t.Error("a clock that has ended keeps its number")
	}
	counts()
}

// TestExpireRover: the clock that is bound to no CPU ends when it was asked for nothing for 30 s, and a stop that it waits for is there.
func TestExpireRover(t *testing.T) {
	b := bank(t, 0)
	b.board.Interval = 10_000 * us
	c, _ := idleClock(b, 1, 2)
	b.rover.clock = c
	for n, step := range []struct {
		do   func()
		tick int64
		ends bool
	}{
		{func() { c.requests.made.Store(7) }, 5000, false},
		{func() { c.requests.begun.Store(7); c.tracees.samples[1].state.Store(asked) }, 9000, false},
		{func() { c.tracees.samples[1].state.Store(filled); c.life.active.Store(true) }, 13000, false},
		{func() { c.life.active.Store(false) }, 16000, false},
		{func() { c.requests.made.Store(8); c.requests.begun.Store(8) }, 16001, false},
		{func() {}, 19001, false},
		{func() {}, 19002, true},
	} {
		step.do()
		if b.Expire(step.tick); (b.rover.clock == nil) != step.ends || c.life.quit.Load() != step.ends {
			t.Errorf("step %d: ended %t", n, b.rover.clock == nil)
		}
	}
	if list := b.Drain(); len(list) != 1 || len(b.old) != 1 {
		t.Errorf("%d samples of a clock that ends, %d that end", len(list), len(b.old))
	}
}

// three is a bank with a clock of each kind.
func three(t *testing.T, samples int) (*Bank, []*Clock) {
	b := bank(t, samples)
	var list []*Clock
	for n := range 3 {
		c, _ := idleClock(b, n+1, samples)
		list = append(list, c)
	}
	b.clocks[7], b.old, b.rover.clock = list[0], []*Clock{list[1]}, list[2]
	list[2].place.cpu = Anywhere
	return b, list
}

// TestDrain: the samples of all clocks come by the time at which their threads were let go, each until it is given back.
func TestDrain(t *testing.T) {
	b, clocks := three(t, 3)
	for i, c := range clocks {
		for j := range c.tracees.samples {
			c.tracees.samples[j].At.Released = int64(10 + (i*7+j*5)%9) // 10 15 11, 17 13 18, 15 11 16
		}
		c.tracees.samples[0].state.Store(filled)
		c.tracees.samples[2].state.Store(asked)
	}
	clocks[1].tracees.samples[1].state.Store(filled)
	times := func() (list []int64) {
		for _, m := range b.Drain() {
			list = append(list, m.At.Released)
		}
		return list
	}
	for range 2 {
		if got := times(); !slices.Equal(got, []int64{10, 13, 15, 17}) {
			t.Errorf("samples of the times %v", got)
		}
	}
	b.Drain()[1].Done()
	if got := times(); !slices.Equal(got, []int64{10, 15, 17}) || clocks[1].tracees.samples[1].state.Load() != free {
		t.Errorf("samples of the times %v after one was given back", got)
	}
}

// TestBusy: a clock that answers a tick, or has requests to make, may ask for a stop; Waits tells of whom.
func TestBusy(t *testing.T) {
	b, clocks := three(t, 2)
	if b.Busy() || b.Waits() != nil {
		t.Error("clocks at rest are busy")
	}
	for i, c := range clocks {
		c.life.active.Store(true)
		if !b.Busy() {
			t.Errorf("clock %d answers a tick, and is not busy", i)
		}
		c.life.active.Store(false)
	}
	clocks[2].requests.add(4)
	if !b.Busy() {
		t.Error("there is a request, and nobody is busy")
	}
	clocks[2].requests.begun.Add(1)
	if b.Busy() {
		t.Error("the request was taken, and its clock is busy")
	}
	for i, c := range clocks {
		c.tracees.samples[0].state.Store([]int32{free, ready, filled}[i]) // ready: that thread is being seized
		c.tracees.samples[1].PID, c.tracees.samples[1].TID = 10*i, 10*i+1
		c.tracees.samples[1].state.Store(asked)
	}
	got := b.Waits()
	slices.SortFunc(got, func(x, y Asked) int { return x.PID - y.PID })
	if want := []Asked{{0, 1}, {10, 11}, {20, 21}}; !slices.Equal(got, want) {
		t.Errorf("clocks wait for %v, want %v", got, want)
	}
}

// TestClose: the end of a bank waits for its clocks, and half a second for those that hang.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bank(t, 0)
		for n := range 4 {
			c, ended := idleClock(b, n+1, 0)
			c.shown.missed.Store(1)
			switch n {
			case 0:
				b.clocks[0] = c
			case 1:
				b.rover.clock = c
			default:
				b.old = append(b.old, c)
			}
			time.AfterFunc(time.Duration(n+1)*100*time.Millisecond, func() {
				if !c.life.quit.Load() && n < 2 {
					t.Errorf("clock %d is not to end", n)
				}
				close(ended)
			})
		}
		begun := time.Now()
		b.Close()
		if d := time.Since(begun); d != 400*time.Millisecond || b.Clocks() != 0 || b.rover.clock != nil || b.missed != 4 {
			t.Errorf("closed after %v, want 400 ms; %d ticks missed", d, b.missed)
		}
		b = bank(t, 0)
		for n := range 3 {
			c, _ := idleClock(b, n+1, 0)
			b.clocks[n] = c
		}
		begun = time.Now()
		b.Close()
		if d := time.Since(begun); d != 500*time.Millisecond {
			t.Errorf("clocks that hang: closed after %v, want 500 ms", d)
		}
	})
}

// TestCloseWakes: a clock that was about to sleep when it was woken to end is woken again.
func TestCloseWakes(t *testing.T) {
	tid, sent := signals(t)
	synctest.Test(t, func(t *testing.T) {
		b := bank(t, 0)
		c, ended := idleClock(b, 1, 0)
		c.life.thread.Store(int32(tid))
		b.clocks[0] = c
		time.AfterFunc(25*time.Millisecond, func() { close(ended) })
		b.Close()
	})
	n := 0
	for sent() {
		n++
	}
	if n != 3 {
		t.Errorf("woken %d times in 25 ms, want at once, after 10 and after 20", n)
	}
}

// signals lets the calling thread, to which the test must be locked, tell whether it was sent an alarm.
func signals(t *testing.T) (tid int, sent func() bool) {
	runtime.LockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (ptrace.AlarmSignal - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		t.Fatal(err)
	}
	tid = unix.Gettid()
	sent = func() bool {
		var now unix.Timespec
		sig, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if errno != 0 && errno != unix.EAGAIN {
			t.Fatal(errno)
		}
		return sig == ptrace.AlarmSignal
	}
	t.Cleanup(func() {
		for sent() {
		}
		unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		runtime.UnlockOSThread()
	})
	return tid, sent
}

// TestNudge: only a clock that has waited for a stop, for longer, gets a signal; and who ended in front of it is
// reaped.
func TestNudge(t *testing.T) {
	tid, sent := signals(t)
	for _, tt := range []struct {
		name       string
		cpu        int
		since      int64
		want, reap bool
	}{
		{"at rest", 0, 0, false, false},
		{"just asked", 0, 100, false, false},
		{"asked before", 0, 99, true, true},
		{"without a CPU", Anywhere, 99, false, true},
	} {
		child, err := os.StartProcess("/proc/self/exe", []string{"x", "-test.run=^$"}, &os.ProcAttr{})
		if err != nil {
			t.Fatal(err)
		}
		var info [128]byte
		if _, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_PID, uintptr(child.Pid), uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
		b := bank(t, 0)
		c, _ := idleClock(b, 1, 2)
		c.place.cpu = tt.cpu
		c.life.thread.Store(int32(tid))
		c.grip.since.Store(tt.since)
		c.tracees.samples[0].TID = child.Pid // of an old sample
		b.clocks[0] = c
		b.Nudge(100)
		if got := sent(); got != tt.want {
			t.Errorf("%s: a signal was sent: %t", tt.name, got)
		}
		if unix.Kill(child.Pid, 0) != nil {
			t.Errorf("%s: a process was reaped that nobody asks", tt.name)
		}
		c.tracees.samples[1].TID = child.Pid
		c.tracees.samples[1].state.Store(asked)
		b.Nudge(100)
		if got := errors.Is(unix.Kill(child.Pid, 0), unix.ESRCH); got != tt.reap {
			t.Errorf("%s: reaped: %t", tt.name, got)
		}
		sent()
		child.Wait()
	}
}

// TestWake: a clock that sleeps is woken to end, and for requests if there are any.
func TestWake(t *testing.T) {
	tid, sent := signals(t)
	b, clocks := three(t, 0)
	for _, c := range clocks {
		c.life.thread.Store(int32(tid))
	}
	if b.Go(); sent() {
		t.Error("a clock without requests is woken")
	}
	if !b.Ask(3) || sent() {
		t.Error("a request wakes, or is not taken")
	}
	if b.Go(); !sent() {
		t.Error("a clock with requests is not woken")
	}
	if clocks[2].requests.list[0].Load() != 3 {
		t.Errorf("slot %d is asked for, want 3", clocks[2].requests.list[0].Load())
	}
	if clocks[0].stop(); !clocks[0].life.quit.Load() || !sent() {
		t.Error("a clock that is to end is not woken")
	}
	b.rover = rover{}
	if b.Go(); sent() {
		t.Error("nobody is woken")
	}
}

// TestNeed: a clock counts from its first tick on, as long as it is not two behind; where there is no number for one,
// it is tried again after a hundred ticks.
func TestNeed(t *testing.T) {
	b := bank(t, 3)
	b.board.Interval = patient
	c, _ := idleClock(b, 1, 0)
	b.clocks[2] = c
	c.ticks.born = 4
	c.shown.done.Store(5)
	for n, want := range map[int64]bool{3: false, 4: true, 5: true, 6: true, 7: false} {
		if got := b.Need(2, n); got != want {
			t.Errorf("a clock that was born at 4 and has done 5 is there at %d: %t", n, got)
		}
	}
	c.grip.since.Store(1)
	if !b.Need(2, 7) || b.Away(2, 7) {
		t.Error("a clock that waits for a stop is not there")
	}
	for n := 1; n < maxClocks; n++ {
		b.board.clocks[n].Store(c)
	}
	if b.Need(0, 1) || !b.Away(0, 1) || b.Clocks() != 1 || b.Ask(0) || b.Denied != nil {
		t.Error("there is a clock without a number")
	}
	b.board.clocks[9].Store(nil)
	if b.Need(0, 1+again-1); b.Clocks() != 1 {
		t.Error("a CPU that could have no clock is tried again too early")
	}
	if b.Need(0, 1+again); b.Clocks() != 2 || b.clocks[0].who != 9 {
		t.Error("a CPU that could have no clock is not tried again, or not by the free number")
	}
	b.Close()
}

// TestHangs: nobody waits for a clock that was given up, or for those that a keeper would answer which was.
func TestHangs(t *testing.T) {
	for name, give := range map[string]func(b *Bank, c *Clock){
		"the clock hangs":  func(_ *Bank, c *Clock) { c.grip.holds.Store(-5) },
		"the keeper hangs": func(b *Bank, _ *Clock) { b.board.kept.since.Store(-5) },
		"nobody hangs":     func(b *Bank, c *Clock) { c.grip.holds.Store(5); b.board.kept.since.Store(5) },
	} {
		synctest.Test(t, func(t *testing.T) {
			hangs := name != "nobody hangs"
			b := bank(t, 0)
			c, _ := idleClock(b, 1, 1)
			b.clocks[0] = c
			c.life.active.Store(true)
			c.tracees.samples[0].state.Store(asked)
			c.requests.add(1)
			give(b, c)
			if b.Busy() == hangs || (len(b.Waits()) == 0) != hangs {
				t.Errorf("%s: busy %t, waits for %v", name, b.Busy(), b.Waits())
			}
			begun := time.Now()
			b.Close()
			if d := time.Since(begun); (d == 0) != hangs {
				t.Errorf("%s: its end is awaited for %v", name, d)
			}
		})
	}
}

// TestStay: a clock that meets nobody stays for as long as is asked for, if that is longer than 3 s.
func TestStay(t *testing.T) {
	for stay, want := range map[time.Duration]int64{0: 300, time.Second: 300, 5 * time.Second: 500} {
		b := bank(t, 0)
		b.opt.Stay = stay
		c, _ := idleClock(b, 1, 0)
		b.clocks[0] = c
		c.shown.done.Store(1000)
		if b.Expire(want); b.Clocks() != 1 {
			t.Errorf("to stay for %v: it has ended after %d ticks", stay, want)
		}
		if b.Expire(want + 1); b.Clocks() != 0 {
			t.Errorf("to stay for %v: it is there after %d ticks", stay, want+1)
		}
	}
}

// TestEverywhere: each CPU has a clock, if all were there at a tick, are bound, and get their CPUs.
func TestEverywhere(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(c *Clock)
		cpus int
		want bool
	}{
		{"all", func(*Clock) {}, 2, true},
		{"more than there are CPUs", func(*Clock) {}, 1, true},
		{"too few", func(*Clock) {}, 3, false},
		{"born at the tick", func(c *Clock) { c.ticks.born = 10 }, 2, true},
		{"born later", func(c *Clock) { c.ticks.born = 11 }, 2, false},
		{"cannot be bound", func(c *Clock) { c.life.barred.Store(true) }, 2, false},
		{"gets no CPU", func(c *Clock) { c.shown.done.Store(0) }, 2, false},
	} {
		b := bank(t, 0)
		for cpu := range 2 {
			c, _ := idleClock(b, cpu+1, 0)
			c.shown.done.Store(10)
			b.clocks[cpu] = c
		}
		tt.set(b.clocks[1])
		if got := b.Everywhere(tt.cpus, 10); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// TestFit: four samples of a clock have the room that is wanted, if so many are free and the bound allows it; none has
// less than before.
func TestFit(t *testing.T) {
	const s, y = commonRoom, 50
	for _, tt := range []struct {
		name string
		have string // a letter for each sample: fits, smaller, Beyond smaller, taken
		want string // in place of it, afterwards
	}{
		{"all fit", "fffff", "fffff"},
		{"none fits", "ssssss", "ffffss"},
		{"one fits", "sfssss", "ffffss"},
		{"four fit", "sffffs", "sffffs"},
		{"three fit", "sfffss", "ffffss"},
		{"beyond", "bfffss", "Bfffss"},
		{"taken", "tfttst", "tfttft"},
		{"none is free", "tttt", "tttt"},
	} {
		size := map[rune][2]int{'f': {s, y}, 's': {s - 1, 10}, 'b': {2 * s, y - 1}, 'B': {2 * s, y}, 't': {0, 0}}
		b := bank(t, 0)
		c, _ := idleClock(b, 1, len(tt.have))
		b.clocks[0] = c
		for i, kind := range tt.have {
			m := &c.tracees.samples[i]
			m.Buffer.Stack.Room, m.Buffer.Beyond.Room = make([]byte, size[kind][0]), make([]byte, size[kind][1])
			if kind == 't' {
				m.state.Store(asked)
			}
		}
		b.Fit(s, y)
		for i, kind := range tt.want {
			m := &c.tracees.samples[i]
			if got := [2]int{len(m.Buffer.Stack.Room), len(m.Buffer.Beyond.Room)}; got != size[kind] {
				t.Errorf("%s: sample %d has room for %v, want %v", tt.name, i, got, size[kind])
			}
			if (m.state.Load() == asked) != (kind == 't') || m.state.Load() == filled {
				t.Errorf("%s: sample %d is in state %d", tt.name, i, m.state.Load())
			}
		}
	}
	b := bank(t, 0)
	c, _ := idleClock(b, 1, 4)
	b.clocks[0] = c
	const large = maxRoom/2 + commonRoom
	if b.Fit(large, 0); len(c.tracees.samples[1].Buffer.Stack.Room) != large || c.tracees.samples[2].Buffer.Stack.Room != nil || b.Room() != 0 {
		t.Errorf("room for %d and %d bytes, %d left: want two large ones and none left", len(c.tracees.samples[1].Buffer.Stack.Room), len(c.tracees.samples[2].Buffer.Stack.Room), b.Room())
	}
}

// TestFree: a clock that is freed ends, and may go where this program may; others stay as they are.
func TestFree(t *testing.T) {
	var all, now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	b := bank(t, 1)
	defer b.Close()
	b.Need(0, 0)
	b.Ask(0)
	c := b.clocks[0]
	await(t, "the clock is bound", func() bool {
		return unix.SchedGetaffinity(int(c.life.thread.Load()), &now) == nil && now.Count() == 1 || c.life.barred.Load()
	})
	if b.board.Free(int(b.rover.clock.life.thread.Load())); c.life.quit.Load() || b.rover.clock.life.quit.Load() {
		t.Error("who is not bound is to end, or another one")
	}
	b.board.Free(int(c.life.thread.Load()))
	if err := unix.SchedGetaffinity(int(c.life.thread.Load()), &now); err == nil && now != all || !c.life.quit.Load() || !c.life.barred.Load() || b.rover.clock.life.quit.Load() {
		t.Errorf("a clock that is freed may be on %d CPUs of %d (%v), is to end: %t", now.Count(), all.Count(), err, c.life.quit.Load())
	}
	c.wake()
	await(t, "the clock ends", func() bool {
		select {
		case <-c.life.ended:
			return true
		default:
			return false
		}
	})
	b.board.Free(0)
	if attr, err := unix.SchedGetAttr(int(b.rover.clock.life.thread.Load()), 0); err == nil && attr.Policy != unix.SCHED_NORMAL || !b.rover.clock.life.quit.Load() {
		t.Errorf("the clock that is bound to no CPU has policy %d, is to end: %t", attr.Policy, b.rover.clock.life.quit.Load())
	}
}
