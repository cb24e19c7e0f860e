package clocks

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// TestPlaces: a clock is bound to its CPU alone, of however many there are; when it ends it goes to the others that this program may be on.
func TestPlaces(t *testing.T) {
	for _, cpu := range []int{0, 5, 62, 63, 64, 127, 128, 1023, 1024, 5000} {
		b := NewBoard(1, 0, 1000)
		for i := range b.cpus {
			b.cpus[i] = 0
		}
		for i := range 1024 {
			if i%3 != 0 {
				b.cpus.Set(i)
			}
		}
		c := &Clock{place: place{cpu: cpu}, board: b, k: newScript(t)}
		onThread(func() {
			if c.prepare(true); c.tracees.seizes.alarm != nil {
				c.tracees.seizes.alarm.Close()
			}
			c.search.close()
		})
		for i := range 6000 {
			own := i/64 < len(c.place.own) && c.place.own[i/64]>>(i%64)&1 != 0
			all, away := false, false
			if i < 1024 {
				all, away = c.place.all[i/64]>>(i%64)&1 != 0, c.place.away[i/64]>>(i%64)&1 != 0
			}
			if may := i < 1024 && i%3 != 0; own != (i == cpu) || all != may || away != (may && i != cpu) {
				t.Errorf("a clock of CPU %d: CPU %d is its own %t, one of all %t, one to leave to %t", cpu, i, own, all, away)
			}
		}
	}
}

// TestBoardCPUs: a board knows the CPUs that who makes it may be on.
func TestBoardCPUs(t *testing.T) {
	onThread(func() {
		var all, one unix.CPUSet
		if err := unix.SchedGetaffinity(0, &all); err != nil {
			t.Error(err)
			return
		}
		one.Set(lastCPU(&all))
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Error(err)
			return
		}
		if b := NewBoard(1, 0, 1000); b.cpus != one || b.Spread != 500 {
			t.Errorf("%d CPUs, want one; phases are %d apart at most", b.cpus.Count(), b.Spread)
		}
	})
}

// TestHomes: a CPU has a clock from when that is made until it is dropped, and none that is beyond all.
func TestHomes(t *testing.T) {
	b := bank(t, 1)
	defer b.Close()
	home := func(want bool) {
		t.Helper()
		for cpu := range b.board.homes {
			if has := b.board.homes[cpu].Load(); has != (want && cpu == 3) {
				t.Errorf("CPU %d has a clock: %t", cpu, has)
			}
		}
	}
	home(false)
	b.Need(3, 0)
	home(true)
	if want := phase(3, b.board.Spread); b.Last != want || want == 0 {
		t.Errorf("the last clock has its tick after %d ns, want %d", b.Last, want)
	}
	c := b.clocks[3]
	b.drop(3)
	home(false)
	if len(b.old) != 1 || b.old[0] != c || b.Clocks() != 0 || !c.life.quit.Load() {
		t.Errorf("%d clocks end, %d are left", len(b.old), b.Clocks())
	}
	var last int64
	for cpu := range 5 { // whether or not there are so many
		b.Need(cpu, 0)
		last = max(last, phase(cpu, b.board.Spread))
	}
	if b.Last != last || last <= phase(4, b.board.Spread) {
		t.Errorf("the last of five has its tick after %d ns, want %d", b.Last, last)
	}
	b.board.home(maxClocks-1, true)
	b.board.home(maxClocks, true)
	if !b.board.homes[maxClocks-1].Load() {
		t.Error("the last CPU has no clock")
	}
}

// resources are how many timers and files this process has.
func resources(t *testing.T) (timers, files int) {
	b, _ := os.ReadFile("/proc/self/timers") // CONFIG_CHECKPOINT_RESTORE
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("ID:")), len(list)
}

// TestStarted: what a clock has is given back when it ends: its number stays until its samples are taken.
func TestStarted(t *testing.T) {
	timers, files := resources(t)
	for _, cpu := range []int{0, Anywhere, 1<<16 - 1} {
		b := NewBoard(1, 0, 1<<40)
		c, _, err := Start(new(taking.Live), b, cpu, 1, Options{Samples: 3, First: 77, Nice: true, Phase: 5})
		if err != nil {
			t.Fatal(err)
		}
		if b.clocks[1].Load() != c || c.place.cpu != cpu || c.who != 1 || c.ticks.phase != 5 || c.prompt {
			t.Errorf("CPU %d: clock %d of CPU %d, phase %d, real time %t", cpu, c.who, c.place.cpu, c.ticks.phase, c.prompt)
		}
		for i := range c.tracees.samples {
			if m := &c.tracees.samples[i]; len(m.Buffer.Regs.Room) != regs.PrstatusMaxBytes || len(m.Buffer.FPRegs.Room) != taking.FPRegsBytes || len(m.Buffer.Stack.Room) != 77 || len(m.Buffer.Beyond.Room) != 0 {
				t.Errorf("sample %d has room for %d and %d bytes", i, len(m.Buffer.Stack.Room), len(m.Buffer.Beyond.Room))
			}
		}
		c.life.quit.Store(true)
		await(t, "the end of a clock", func() bool {
			if st, err := (procfs.FS{}).Task(os.Getpid(), int(c.life.thread.Load())).Stat(); err == nil && st.State == 'S' {
				c.wake()
			}
			select {
			case <-c.life.ended:
				return true
			default:
				return false
			}
		})
		if c.life.barred.Load() && cpu == Anywhere {
			t.Error("a clock without a CPU cannot be bound")
		}
	}
	if now, open := resources(t); now > timers || open > files { // less: clocks of other tests have ended
		t.Errorf("%d timers, %d files; before the clocks there were %d and %d", now, open, timers, files)
	}
}

// TestLeft: what samples have room for beyond 16 KB each, of their own stack and further ones, counts, up to 24 MB; clocks begin with four large ones if there is that much.
func TestLeft(t *testing.T) {
	const most, large, each = 24 << 20, 256 << 10, 16 << 10
	b := bank(t, 6)
	if b.Room() != most {
		t.Errorf("room for %d bytes without clocks", b.Room())
	}
	full, ended := idleClock(b, 1, 2)
	close(ended)
	b.clocks[7] = full
	room := make([]byte, 2*most)
	fill := func(stack, beyond int) {
		m := &full.tracees.samples[1]
		m.Buffer.Stack.Room, m.Buffer.Beyond.Room = room[:stack], room[:beyond]
	}
	for _, tt := range []struct{ stack, beyond, want int }{
		{0, 0, most}, {each, 0, most}, {each - 1000, 1000, most}, {each - 1000, 1001, most - 1}, {each, 1000, most - 1000}, {each + 7, 0, most - 7}, {most + each, 0, 0}, {2 * most, 0, 0},
	} {
		fill(tt.stack, tt.beyond)
		if got := b.Room(); got != tt.want {
			t.Errorf("a sample of %d and %d bytes leaves room for %d, want %d", tt.stack, tt.beyond, got, tt.want)
		}
	}
	for _, tt := range []struct {
		deep, left int
		want       []int
	}{
		{0, 4 * large, []int{large, large, large, large, each, each}},
		{0, 4*large - 1, []int{each, each, each, each, each, each}},
		{3, 4 * large, []int{large, large, large, large, each, each}},
		{5, 5 * large, []int{large, large, large, large, large, each}},
		{5, 5*large - 1, []int{each, each, each, each, each, each}},
	} {
		b.opt.Deep = tt.deep
		fill(most+each-tt.left, 0)
		o := b.opt
		c, err := b.start(Anywhere, o)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for i := range c.tracees.samples {
			got = append(got, len(c.tracees.samples[i].Buffer.Stack.Room))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%d deep, %d left: room for %v, want %v", tt.deep, tt.left, got, tt.want)
		}
		b.end(c)
		b.Close()
		b.old, b.clocks[7] = nil, full
		b.board.clocks[c.who].Store(nil)
	}
}

// TestFitMore: a sample grows by what is left, with what it has; small rooms for further stacks are made for more samples.
func TestFitMore(t *testing.T) {
	const most, each = 24 << 20, 16 << 10
	for _, tt := range []struct {
		name          string
		had, left     int // room of the one sample, and of all beyond it
		stack, beyond int
		grows         bool
	}{
		{"as much as there is", each + 5000, 1000, each + 6000, 0, true},
		{"a byte more", each + 5000, 1000, each + 6001, 0, false},
		{"for further stacks, too", each + 5000, 1000, each, 1000, true}, // it keeps what it has
		{"for more of them", each + 5000, 1000, each, 1001, false},
		{"all that is left", each, 1000, each, 1000, true},
		{"more than is left", each, 1000, each, 1001, false},
	} {
		b := bank(t, 0)
		c, _ := idleClock(b, 1, 1)
		other, _ := idleClock(b, 2, 1)
		b.clocks[0], b.clocks[1] = c, other
		c.tracees.samples[0].fill(tt.had, 0)
		other.tracees.samples[0].fill(most+each-tt.left-(tt.had-each), 0)
		other.tracees.samples[0].state.Store(filled)
		if b.Room() != tt.left {
			t.Fatalf("%s: %d left", tt.name, b.Room())
		}
		b.Fit(tt.stack, tt.beyond)
		m := &c.tracees.samples[0]
		if got := len(m.Buffer.Stack.Room) >= tt.stack && len(m.Buffer.Beyond.Room) >= tt.beyond; got != tt.grows || m.state.Load() != free {
			t.Errorf("%s: room for %d and %d, in state %d", tt.name, len(m.Buffer.Stack.Room), len(m.Buffer.Beyond.Room), m.state.Load())
		}
	}
	const step = 8 << 10
	for _, tt := range []struct {
		name          string
		stack, beyond int
		deep          int
		rover         bool
		want          int // samples that have it
	}{
		{"a deep stack", each + 1, 0, 0, false, 4},
		{"a small further one", each, step, 0, false, 16},
		{"too small a one", each, step - 1, 0, false, 4},
		{"as much as four rooms", 4*each - step, step, 0, false, 16},
		{"more than four rooms", 4*each - step + 1, step, 0, false, 4},
		{"without a CPU", each + 1, 0, 0, true, 16},
		{"a deep run", each + 1, 0, 7, false, 7},
		{"a deep run, a small further one", each, step, 7, false, 16},
		{"a deeper run, a small further one", each, step, 18, false, 18},
	} {
		b := bank(t, 0)
		b.opt.Deep = tt.deep
		c, _ := idleClock(b, 1, 20)
		if tt.rover {
			b.rover.clock = c
		} else {
			b.clocks[0] = c
		}
		b.Fit(tt.stack, tt.beyond)
		n := 0
		for i := range c.tracees.samples {
			if m := &c.tracees.samples[i]; len(m.Buffer.Stack.Room) >= tt.stack && len(m.Buffer.Beyond.Room) >= tt.beyond {
				n++
			}
		}
		if n != tt.want {
			t.Errorf("%s: %d samples have it, want %d", tt.name, n, tt.want)
		}
	}
	// A clock that comes later has what was wanted last.
	b := bank(t, 5)
	defer b.Close()
	b.Fit(1000, 3*step)
	b.Need(0, 0)
	b.Ask(0)
	for cpu, c := range map[int]*Clock{0: b.clocks[0], Anywhere: b.rover.clock} {
		n := 0
		for i := range c.tracees.samples {
			if len(c.tracees.samples[i].Buffer.Beyond.Room) == 3*step {
				n++
			}
		}
		if want := map[int]int{0: 5, Anywhere: 16}[cpu]; n != want {
			t.Errorf("of a new clock of CPU %d %d samples have it, want %d", cpu, n, want)
		}
	}
	for beyond, want := range map[int]int{0: 0, 1: step, step - 1: step, step: step, step + 1: 2 * step} {
		if got := RoundUp(beyond); got != want {
			t.Errorf("room for %d bytes is %d, want %d", beyond, got, want)
		}
	}
}
