package clocks

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// TestTaken: a sample that waited for the CPU of others has not taken that of the thread.
func TestTaken(t *testing.T) {
	for _, tt := range []struct {
		name string
		ran  int64 // between request and stop, which are 25 apart
		on   int64 // when it was let go, before the clock went on
		want int64
	}{
		{"others had the CPU for 15", 10, 0, 5 + 10 + 10},
		{"alone", 25, 0, 40},
		{"run times are rounded up", 30, 0, 40},
		{"others had the CPU, and it ran on", 10, 6, 5 + 10 + 10 - 6},
		{"alone, and it ran on", 25, 6, 40 - 6},
	} {
		m := &Sample{tracee: tracee{ran: tt.on}, At: Moments{Wake: 10, Asked: 15, Stopped: 40, End: 50}, Asked: Usage{Run: 1000}, Stopped: Usage{Run: 1000 + tt.ran}}
		if got := m.taken(); got != tt.want {
			t.Errorf("%s: took %d, want %d", tt.name, got, tt.want)
		}
	}
}

// Wait statuses (ptrace(2)).
const (
	interrupted = uint32(unix.PTRACE_EVENT_STOP<<16 | int(unix.SIGTRAP)<<8 | 0x7f)
	groupStop   = uint32(unix.PTRACE_EVENT_STOP<<16 | int(unix.SIGTSTP)<<8 | 0x7f)
	usr1        = uint32(unix.SIGUSR1)<<8 | 0x7f
	trap        = uint32(unix.SIGTRAP)<<8 | 0x7f
	vforkDone   = uint32(unix.PTRACE_EVENT_VFORK_DONE<<16 | int(unix.SIGTRAP)<<8 | 0x7f)
	exited      = uint32(7 << 8)
	killed      = uint32(9)
)

// TestRelease: each stop is answered as ptrace(2) wants it by who holds threads for one sample, and left to who
// keeps them; and which stop is our own is told to who copies.
func TestRelease(t *testing.T) {
	before := take
	defer func() { take = before }()
	for _, tt := range []struct {
		name       string
		status     uint32
		errno      unix.Errno
		kept       bool
		want       string
		own, copys bool
	}{
		{"interrupt", interrupted, 0, false, "[detach 7 0]", true, true},
		{"interrupt, kept", interrupted, 0, true, "[]", true, true},
		{"signal", usr1, 0, false, "[detach 7 10]", false, true},
		{"breakpoint", trap, 0, false, "[detach 7 5]", false, true},
		{"group stop", groupStop, 0, false, "[detach 7 0]", false, true},
		{"group stop, kept", groupStop, 0, true, "[]", false, true},
		{"exit", exited, 0, false, "[reap 7]", false, false},
		{"kill, kept", killed, 0, true, "[reap 7]", false, false},
		{"no child", 0, unix.ECHILD, false, "[]", false, false},
	} {
		for _, fails := range []unix.Errno{0, unix.ESRCH} {
			s, b, c := desk(t, 1, &actor{tid: 7, run: 5, wait: 6, tracee: true, stopped: true})
			b.NoRestart = true
			advice := &b.slots[0].Advice
			m := &c.tracees.samples[0]
			m.TID, m.tracee.id, m.Stopped.runs = 7, 7, -7
			copied := false
			s.opens = func(fd int) {
				if fd == 70+fileSched && (!copied || len(s.log) > 0) {
					t.Errorf("%s: its times are read when it is not stopped: copied %t, %s", tt.name, copied, s.log)
				}
			}
			take = func(k taking.Kernel, tid int, a *taking.Advice, buf *taking.Buffer, pages, by int, noRestart bool) unix.Errno {
				copied = true
				if k != taking.Kernel(s) || tid != 7 || a != advice || buf != &m.Buffer || pages != 74 || by != taking.StoppedFor(tt.status) || (by == taking.OwnStop) != tt.own || !noRestart {
					t.Errorf("%s: thread %d, pages %d, stopped for %d, noRestart %t", tt.name, tid, pages, by, noRestart)
				}
				s.now += 3 * us
				buf.Lived = true
				return fails
			}
			began := s.now
			if !m.take(s, b, c.text[:], tt.status, tt.errno, tt.kept) {
				t.Errorf("%s: it has not left", tt.name)
			}
			if tt.copys && m.Buffer.Lived == tt.kept {
				t.Errorf("%s: its memory is known to have been its own: %t", tt.name, m.Buffer.Lived)
			}
			// Its times are those of its stop.
			if want := (Usage{5, 6, 12}); tt.copys && m.Stopped != want || !tt.copys && m.Stopped.runs != -7 {
				t.Errorf("%s: %+v", tt.name, m.Stopped)
			}
			if got := fmt.Sprint(s.log); got != tt.want || copied != tt.copys {
				t.Errorf("%s: answered by %s, want %s; copied %t", tt.name, got, tt.want, copied)
			}
			if want := !tt.copys || fails != 0; m.Gone != want {
				t.Errorf("%s: gone %t where the copy fails with %d", tt.name, m.Gone, fails)
			}
			if m.Status != tt.status || m.At.Stopped != began || m.At.Released != s.now {
				t.Errorf("%s: status %#x, stopped %d, released %d", tt.name, m.Status, m.At.Stopped, m.At.Released)
			}
		}
	}
}

// TestJudge: what proves that a thread has not run its own code, and what only may be.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name        string
		waits       bool
		ran         int64
		cpu         int
		files       map[int]string
		broken      map[int]unix.Errno
		gone        bool
		lived       bool
		tick        met
		wantMoved   bool
		wantGone    bool
		wantUnknown bool // the run time stays that of the request
	}{
		{name: "was in the queue", waits: true, ran: 50 * us, cpu: 1},
		{name: "has hardly run", ran: 3 * us, cpu: 1},
		{name: "ran elsewhere", ran: 3*us + 1, cpu: 1, wantMoved: true},
		{name: "ran here", ran: 3*us + 1, cpu: 0},
		{name: "nobody knows where", ran: 50 * us, files: map[int]string{72: "7 (a"}, wantMoved: true},
		{name: "no times", ran: 50 * us, cpu: 1, files: map[int]string{71: "x"}, wantUnknown: true},
		{name: "no memory", ran: 3 * us, files: map[int]string{74: ""}, wantGone: true},
		{name: "its memory was seen in the stop", ran: 3 * us, files: map[int]string{74: ""}, lived: true},
		{name: "memory unreadable", broken: map[int]unix.Errno{74: unix.EIO}},
		{name: "gone", ran: 3 * us, gone: true, wantGone: true},
		{name: "is where it was", ran: 50 * us, cpu: 1, tick: met{at: 60 * us, pc: 0x1234}},
		{name: "is elsewhere in its code", waits: true, tick: met{at: 60 * us, pc: 0x1235}, wantMoved: true},
		{name: "is another thread", ran: 50 * us, tick: met{at: 60 * us, pc: 0x1234}, files: map[int]string{71: "x"}, wantUnknown: true, wantGone: true, wantMoved: true},
	} {
		a := &actor{tid: 7, run: 1000*us + tt.ran, wait: 90, cpu: tt.cpu, state: 'R', tracee: true}
		s, b, c := desk(t, 1, a)
		if tt.files != nil {
			s.files = tt.files
		}
		if tt.broken != nil {
			s.broken = tt.broken
		}
		slot, m := &b.slots[0], &c.tracees.samples[0]
		slot.take(1)
		slot.last.run.Store(3)
		slot.last.wait = 4
		m.state.Store(asked)
		m.Asked.Run, m.Asked.Wait, m.proof.waits, m.At.Released, m.Gone = 1000*us, 80, tt.waits, 77, tt.gone
		m.Buffer.Lived, m.proof.tick, m.At.Wake, m.At.Stopped, m.Moved = tt.lived, tt.tick, 60*us, 60*us+70, tt.tick.pc == 0x1234
		m.Buffer.Regs.N = copy(m.Buffer.Regs.Room, noteAt(0x1234))
		m.read(s, slot, c.text[:])
		if m.judge(s, b, c.text[:], 0); m.Moved != tt.wantMoved || m.Gone != tt.wantGone {
			t.Errorf("%s: moved %t, gone %t", tt.name, m.Moved, m.Gone)
		}
		run, wait := a.run, int64(90)
		if tt.wantUnknown {
			run, wait = 1000*us, 80
		}
		if m.Stopped.Run != run || m.Stopped.Wait != wait {
			t.Errorf("%s: run %d, wait %d; want %d, %d", tt.name, m.Stopped.Run, m.Stopped.Wait, run, wait)
		}
		if tt.wantUnknown || tt.wantGone {
			wait = 4
		}
		if tt.wantGone {
			run = 3
		}
		if want := (Usage{a.run, 90 - 70, 12}); tt.tick.pc != 0 && !tt.wantUnknown && m.Asked != want {
			t.Errorf("%s: at the request it had %+v, want %+v", tt.name, m.Asked, want)
		}
		if slot.last.run.Load() != run || slot.last.wait != wait {
			t.Errorf("%s: the board knows of %d ns on a CPU, and of %d waiting", tt.name, slot.last.run.Load(), slot.last.wait)
		}
		if m.state.Load() != filled || slot.holder.Load() != 0 || m.At.End != s.now {
			t.Errorf("%s: state %d, held by %d, ended at %d of %d", tt.name, m.state.Load(), slot.holder.Load(), m.At.End, s.now)
		}
	}
	// Without a pagemap nobody asks for it.
	s, b, c := desk(t, 1, &actor{tid: 7})
	b.slots[0].pages = -1
	if c.tracees.samples[0].judge(s, b, c.text[:], 0); c.tracees.samples[0].Gone || s.reads[-1] != 0 {
		t.Error("a sample without a pagemap is gone")
	}
	b.slots[0].pages = 0 // a file like any other
	s.files[0] = ""
	if c.tracees.samples[0].judge(s, b, c.text[:], 0); !c.tracees.samples[0].Gone {
		t.Error("an empty pagemap with number 0 is not seen")
	}
}

// TestFindSleepers: where a process has not run since its threads were looked at, nobody looks at them again.
func TestFindSleepers(t *testing.T) {
	actors := []*actor{{tid: 7, state: 'R', run: 10 * us}, {tid: 8, state: 'R', run: 20 * us}, {tid: 9, state: 'R', run: 30 * us}, {tid: 6, state: 'R', run: 40 * us}}
	s, b, c := desk(t, 1, actors...)
	s.spent = map[int32]int64{-70: 1000, -90: 2000, -60: -1}
	for i, clock := range []int32{-70, -70, -90, -60} {
		b.slots[i].kin.clock = clock
		b.slots[i].last.run.Store(actors[i].run)
	}
	c.search.last = -1
	look := func(why string, asked []int32, read ...int) {
		t.Helper()
		s.asked = nil
		clear(s.reads)
		c.find(5, 0)
		var got []int
		for _, a := range actors {
			if s.reads[10*a.tid+fileSched] > 0 {
				got = append(got, a.tid)
			}
		}
		if !slices.Equal(got, read) || !slices.Equal(s.asked, asked) {
			t.Errorf("%s: the times of %v are read, by the clocks %v; want %v by %v", why, got, s.asked, read, asked)
		}
	}
	each := []int32{-70, -90, -60}
	look("at first", each, 7, 8, 9, 6)
	look("nobody has run, but one whose process tells nothing", each, 6)
	s.spent[-70]++
	look("the first process has run", each, 7, 8, 6)
	look("and not since", each, 6)
	b.slots[1].kin.clock = 0
	look("one is not to be asked about", []int32{-70, -90, -60}, 8, 6)
	s.spent[-90]++
	s.broken[90+fileSched] = unix.EACCES
	look("its times cannot be read", []int32{-70, -90, -60}, 8, 9, 6)
	look("and are asked for until they can", []int32{-70, -90, -60}, 8, 9, 6)

	// The clock of a process with many threads goes through them all, so it is asked after some reads only.
	var crowd atomic.Int32
	for i := range actors {
		b.slots[i].kin.clock, b.slots[i].kin.crowd = -70, &crowd
	}
	clear(s.broken)
	s.spent[-70]++
	crowd.Store(2*perRead + 1)
	look("a crowd", []int32{-70}, 7, 8, 9, 6)
	look("of whom nobody has run", []int32{-70}, 7, 8)
	crowd.Store(4 * perRead)
	look("a larger one", nil, 7, 8, 9, 6)

	// Whoever was met at the last tick has run since, most likely.
	for i := range actors {
		b.slots[i].kin.crowd = nil
	}
	b.slots[1].kin.clock = -71
	c.search.last = 1
	c.shown.done.Store(6)
	c.shown.met.Store(6)
	s.spent[-70]++
	s.spent[-71]++
	look("one was met", []int32{-70}, 7, 8, 9, 6)
	c.shown.done.Store(7)
	s.spent[-70]++
	s.spent[-71]++
	look("and then nobody", []int32{-71, -70}, 7, 8, 9, 6)
}

// TestFindGroups: of those who have not run between a reading before the tick and the tick nobody is looked at, and of others whatever was
// seen of them before.
func TestFindGroups(t *testing.T) {
	actors := []*actor{{tid: 7, state: 'R', run: 10 * us}, {tid: 8, state: 'R', run: 20 * us}, {tid: 9, state: 'R', run: 30 * us}}
	s, b, c := desk(t, 1, actors...)
	s.spent = map[int32]int64{-70: 1000, -90: 2000}
	groups := []int{b.Group(-70), b.Group(-90)}
	for i, g := range []int{0, 0, 1} {
		b.slots[i].kin.clock, b.slots[i].kin.group = []int32{-70, -90}[g], groups[g]
	}
	c.search.last = -1
	n := int64(4)
	look := func(why string, wake int64, read ...int) {
		t.Helper()
		clear(s.reads)
		for i := range actors { // they have run since the last tick
			b.slots[i].last.run.Store(0)
			b.slots[i].last.stood.Store(-1)
		}
		n++
		c.find(n, wake)
		var got []int
		for _, a := range actors {
			if s.reads[10*a.tid+fileSched] > 0 {
				got = append(got, a.tid)
			}
		}
		if !slices.Equal(got, read) {
			t.Errorf("%s: the times of %v are read, want %v", why, got, read)
		}
	}
	look("nothing was told", s.now, 7, 8, 9)
	b.Tell(s, true)
	told := b.early.told.Load()
	look("nobody has run since", told)
	look("what was told came after the tick", told-1, 7, 8, 9)
	s.spent[-70]++
	look("one process has run, but not at this wake-up", told)
	look("one process has run", told+1, 7, 8)
	b.Tell(s, true)
	look("and not since that was told", b.early.told.Load())
	if b.Ran(groups[0]) != 1 || b.Ran(groups[1]) != 0 {
		t.Error("the first process has run between two readings, and the other has not")
	}
	s.spent[-90] = -1
	look("a process is gone", b.early.told.Load()+1, 9)
	b.Tell(s, true)
	if b.Ran(groups[1]) != -1 {
		t.Error("of a process that is gone it is known for how long it has run")
	}
	s.spent[-90] = 0
	b.Tell(s, true)
	look("a process that has not run yet", b.early.told.Load())
	b.Ungroup(groups[0])
	look("a process was given back", b.early.told.Load()+1, 7, 8, 9)
	for b.Group(-70) >= 0 {
	}
	if g := b.Group(-70); g != -1 {
		t.Errorf("group %d where there is no room", g)
	}
	b.Ungroup(-1)
	if b.Ungroup(3); b.Group(-90) != 3 {
		t.Error("the room of a process that has gone is not used again")
	}
}

// TestHolds: whom a clock may have stopped at a tick.
func TestHolds(t *testing.T) {
	_, b, c := desk(t, 1, &actor{tid: 7})
	s := &b.slots[0]
	if b.Holds(0, 5) {
		t.Error("nobody has taken it")
	}
	s.take(c.who)
	if !b.Holds(0, 5) {
		t.Error("a clock has it")
	}
	s.sampled.Store(5)
	if s.give(); !b.Holds(0, 5) || b.Holds(0, 6) {
		t.Error("a clock has had it at tick 5")
	}
	if b.most = 2; b.Waits(100) {
		t.Error("no clock waits")
	}
	if c.grip.since.Store(50); !b.Waits(51) || b.Waits(50) {
		t.Error("a clock waits since 50")
	}
}

// TestFind: whom a clock of CPU 0 finds at tick 5, and which files that takes.
func TestFind(t *testing.T) {
	ran := func(tid int, exec int64) *actor { return &actor{tid: tid, state: 'R', exec: exec} }
	slept := func(tid int, exec int64) *actor { return &actor{tid: tid, state: 'S', exec: exec} }
	// The clock got its CPU at a time that it can read.
	own := func(at int64) func(*script, *Board) {
		return func(s *script, b *Board) {
			c := b.clocks[1].Load()
			c.search.self, s.files[fileOwn] = fileOwn, fmt.Sprintf("x (1, #threads: 1)\nse.exec_start : %d.%06d\n", at/1e6, at%1e6)
		}
	}
	prompt := func(at int64) func(*script, *Board) {
		return func(s *script, b *Board) {
			own(at)(s, b)
			b.clocks[1].Load().prompt = true
		}
	}
	// The clock's timer has expired at 990 us, and it has got the CPU at 1000.
	witness := func(m met, set func(s *script, b *Board, c *Clock)) func(*script, *Board) {
		return func(s *script, b *Board) {
			c := b.clocks[1].Load()
			prompt(5e6)(s, b)
			w := ringOf(m) // it wakes up 5 us behind the tick
			c.ticks.phase, c.search.witness.later = 985*us-b.Start-5*b.Interval, 5*us
			c.life.thread.Store(99)
			c.search.witness.event, c.search.witness.ring, c.up.due = w.event, w.ring, 990*us
			c.search.witness.set.Store(true)
			if set != nil {
				set(s, b, c)
			}
		}
	}
	two := []*actor{ran(7, 5e6), ran(8, 4e6)} // the other one has had the CPU last, as far as the scheduler is asked
	tests := []struct {
		name   string
		actors []*actor
		last   int
		set    func(s *script, b *Board)
		want   int    // thread, 0: none
		debugs string // threads whose sched was read
	}{
		{"nobody", nil, -1, nil, 0, "[]"},
		{"one", []*actor{ran(7, 5)}, -1, nil, 7, "[7]"},
		{"one, again", []*actor{ran(7, 5)}, 0, nil, 7, "[7]"},
		{"the last is off the board", []*actor{ran(7, 5)}, 1, nil, 7, "[7]"},
		{"the last has left", []*actor{ran(7, 5), ran(8, 6)}, 1, func(s *script, b *Board) { b.slots[1].used = false }, 7, "[7]"},
		{"has not run", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { b.slots[0].last.run.Store(1000 * us) }, 0, "[]"},
		{"was sampled now", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { b.slots[0].sampled.Store(5) }, 0, "[]"},
		{"was sampled later", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { b.slots[0].sampled.Store(6) }, 0, "[]"},
		{"was sampled before", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { b.slots[0].sampled.Store(4) }, 7, "[7]"},
		{"sleeps, and nobody tells since when", []*actor{{tid: 7, state: 'S', exec: 5}}, -1, nil, 0, "[7]"},
		{"elsewhere", []*actor{{tid: 7, state: 'R', cpu: 1}}, -1, nil, 0, "[]"},
		{"no times", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { s.broken[71] = unix.ESRCH }, 0, "[]"},
		{"times of no thread", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { s.files[71] = "1000\n" }, 0, "[]"},
		{"old times", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) {
			s.broken[71] = unix.ESRCH
			copy(b.clocks[1].Load().text[:], "9 9 9\n")
		}, 0, "[]"},
		{"no place", []*actor{ran(7, 5)}, -1, func(s *script, b *Board) { s.files[72] = "7 (a) R 1" }, 0, "[]"},
		{"the last on the CPU", []*actor{ran(7, 5), ran(8, 6e6+7), ran(9, 6e6+6)}, -1, nil, 8, "[7 8 9]"},
		{"the last on the CPU was last", []*actor{ran(7, 5), ran(8, 6e6+7), ran(9, 6e6+6)}, 2, nil, 8, "[7 8 9]"},
		{"nothing tells: the one of the last tick", []*actor{ran(7, 0), ran(8, 0), ran(9, 0)}, 1, func(s *script, b *Board) {
			for _, fd := range []int{73, 83, 93} {
				s.broken[fd] = unix.EACCES
			}
		}, 8, "[7 8 9]"},
		{"was seen in its own code", two, 0, witness(met{992 * us, 0x1234, 8, 4711}, nil), 8, "[]"},
		{"was seen in its own code, and is the last", two, 1, witness(met{992 * us, 0x1234, 8, 4711}, nil), 8, "[]"},
		{"was seen in the kernel", two, 1, witness(met{992 * us, 0, 7, 4711}, nil), 7, "[7]"},
		{"was seen in the kernel, and has lost its CPU to another", two, 0, witness(met{992 * us, 0, 8, 4711}, nil), 0, "[8]"},
		{"somebody else was seen", two, 0, witness(met{992 * us, 0x1234, 9, 4711}, nil), 0, "[]"},
		{"nobody was seen", two, 0, witness(met{992 * us, 0, 0, 4711}, nil), 0, "[]"},
		{"was seen at the tick before", two, 1, witness(met{980 * us, 0x1234, 8, 4711}, nil), 7, "[7 8]"},
		{"will be seen", two, 1, witness(met{1001 * us, 0x1234, 8, 4711}, nil), 7, "[7 8]"},
		{"was seen, and the clock has come late", two, 0, witness(met{992 * us, 0x1234, 7, 4711}, func(s *script, b *Board, c *Clock) { s.late = 8*us + 1 }), 7, "[7]"},
		{"was seen in its own code, at real-time priority", two, 0, witness(met{992 * us, 0x1234, 7, 4711}, func(s *script, b *Board, c *Clock) { s.realTime = 7 }), 7, "[7]"},
		{"the witness has no phase yet", two, 1, witness(met{992 * us, 0x1234, 8, 4711}, func(s *script, b *Board, c *Clock) { c.search.witness.set.Store(false) }), 7, "[7 8]"},
		{"was seen, and is off the board", two, 1, witness(met{992 * us, 0x1234, 8, 4711}, func(s *script, b *Board, c *Clock) { b.index.put(8, -1) }), 0, "[]"},
		{"was seen, and is not yet on the board", two, 1, witness(met{992 * us, 0x1234, 9, 4711}, func(s *script, b *Board, c *Clock) { b.index.put(9, 2) }), 0, "[]"},
		{"was preempted", []*actor{ran(7, 5e6)}, -1, own(5e6), 7, "[7]"},
		{"was preempted by a thread of the kernel", []*actor{ran(7, 5e6)}, -1, own(5e6 + handover), 7, "[7]"},
		{"waits for the CPU", []*actor{ran(7, 5e6)}, -1, own(5e6 + handover + 1), 0, "[7]"},
		{"was preempted by real-time priority", []*actor{ran(7, 5e6)}, -1, prompt(5e6 + atOnce), 7, "[7]"},
		{"had blocked before, and was woken since", []*actor{ran(7, 5e6)}, -1, prompt(5e6 + atOnce + 1), 0, "[7]"},
		{"waits longer than another", []*actor{ran(7, 5e6), ran(8, 5e6+4)}, -1, own(5e6 + 9), 8, "[7 8]"},
		{"the search ends", []*actor{ran(7, 5e6), ran(8, 5e6)}, -1, own(5e6), 7, "[7]"},
		{"has blocked", []*actor{ran(7, 4e6), slept(8, 5e6)}, -1, own(5e6), 8, "[7 8]"},
		{"had blocked before, and nobody came", []*actor{slept(7, 5e6)}, -1, own(5e6 + atOnce + 1), 0, "[7]"},
		{"has blocked, and that cannot be read", []*actor{slept(7, 5e6)}, -1, func(s *script, b *Board) {
			own(5e6)(s, b)
			s.broken[73] = unix.EACCES
		}, 0, "[7]"},
		{"waits, as far as can be read", []*actor{ran(7, 5e6)}, -1, func(s *script, b *Board) {
			own(6e6)(s, b)
			s.broken[73] = unix.EACCES
		}, 7, "[7]"},
		{"its own time cannot be read", []*actor{ran(7, 5e6)}, -1, func(s *script, b *Board) {
			own(6e6)(s, b)
			s.broken[fileOwn] = unix.EACCES
		}, 7, "[7]"},
		{"has real-time priority, and has blocked", []*actor{slept(7, 5e6), ran(8, 4e6)}, -1, func(s *script, b *Board) {
			own(5e6)(s, b)
			s.files[72] = "7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 -51 0" + strings.Repeat(" 0", 30)
		}, 0, "[8]"},
		{"hangs", []*actor{{tid: 7, state: 'D', exec: 5e6}}, -1, own(5e6), 0, "[]"},
		{"has blocked elsewhere", []*actor{{tid: 7, state: 'S', cpu: 1, exec: 5e6}}, -1, own(5e6), 0, "[]"},
	}
	rt, cpu := realTimeOf, cpuOf
	defer func() { realTimeOf, cpuOf = rt, cpu }()
	cpuOf = func() int { return 0 }
	for _, tt := range tests {
		s, b, c := desk(t, 1, tt.actors...)
		s.step = 0
		realTimeOf = func(tid int) bool { return tid == s.realTime }
		c.search.last = tt.last
		for i, a := range tt.actors {
			a.run, a.wait, b.slots[i].open.stack = 1000*us, 44, 9
			b.slots[i].last.run.Store(900 * us)
		}
		if tt.set != nil {
			tt.set(s, b)
		}
		got := 0
		if p := &c.search.picked; c.find(5, 1000*us+s.late) {
			got = b.slots[p.slot].TID
			if seen := strings.HasPrefix(tt.name, "was seen in its own code") && s.realTime == 0; (p.tick.pc != 0) != seen {
				t.Errorf("%s: %+v", tt.name, p)
			} else if seen {
				if *p != (pick{slot: p.slot, tick: met{992 * us, 0x1234, got, 4711}}) || len(s.reads) != 0 {
					t.Errorf("%s: %+v; read %v", tt.name, p, s.reads)
				}
			} else if asleep := s.owners[got].state == 'S'; p.run != 1000*us || p.wait != 44 || p.count != 12 || p.asleep != asleep {
				t.Errorf("%s: %+v", tt.name, p)
			}
		}
		debugs := []int{}
		for _, a := range tt.actors {
			if s.reads[10*a.tid+fileDebug] > 0 {
				debugs = append(debugs, a.tid)
			}
			if n := s.reads[10*a.tid+fileSched]; n > 1 {
				t.Errorf("%s: the times of thread %d are read %d times", tt.name, a.tid, n)
			}
		}
		if got != tt.want || fmt.Sprint(debugs) != tt.debugs {
			t.Errorf("%s: thread %d, want %d; sched of %v was read", tt.name, got, tt.want, debugs)
		}
	}
}

// TestFindTimes: for how long a thread has run, and how often it has got a CPU, counts from the last look, wherever it was then.
func TestFindTimes(t *testing.T) {
	a := &actor{tid: 7, state: 'R', cpu: 1, run: 100 * us}
	s, b, c := desk(t, 1, a)
	for n, tt := range []struct {
		ran         int64
		woken       int
		cpu         int
		home        bool
		found       bool
		since, gets int64
	}{
		{0, 0, 0, false, false, 0, 0},
		{50 * us, 3, 1, false, false, 0, 0},
		{7 * us, 2, 0, false, true, 7 * us, 2},
		{40 * us, 5, 1, true, false, 0, 0}, // is left to the clock of that CPU
		{2 * us, 1, 0, true, true, 42 * us, 6},
		{0, 4, 0, false, false, 0, 0},
		{us, 1, 0, false, true, us, 1},
	} {
		a.run, a.woken, a.cpu = a.run+tt.ran, a.woken+tt.woken, tt.cpu
		b.home(1, tt.home)
		found := c.find(int64(n), s.now)
		if p := &c.search.picked; found != tt.found || found && (p.ran != tt.since || p.times != tt.gets || p.count != uint64(12+a.woken)) {
			t.Errorf("look %d: found %t, has run for %d since, got a CPU %d times, %d in all", n, found, p.ran, p.times, p.count)
		}
	}
}

// TestFindElsewhere: that a thread has run is not used up by the clock of another CPU, if its own has one.
func TestFindElsewhere(t *testing.T) {
	for _, home := range []bool{true, false} {
		a := &actor{tid: 7, state: 'R', run: 1000 * us, cpu: 1}
		_, b, c := desk(t, 1, a)
		b.slots[0].last.run.Store(900 * us)
		if b.home(1, home); c.find(5, 0) {
			t.Error("a thread of another CPU was found")
		}
		if got, want := b.slots[0].last.run.Load() == 900*us, home; got != want {
			t.Errorf("its CPU has a clock: %t, that it has run is still to be seen: %t", home, got)
		}
		if a.cpu = 0; c.find(5, 0) != home {
			t.Errorf("its CPU had a clock: %t; it was found: %t", home, !home)
		}
	}
}

// TestAskLate: who may have run between the clock's wake-up and the request is not as the tick has met it.
func TestAskLate(t *testing.T) {
	for _, tt := range []struct {
		name   string
		late   int64 // from the wake-up, ns
		run    int64
		broken bool
		doubt  bool
		want   bool
	}{
		{name: "at once", late: 40 * us, run: 401},
		{name: "has not run", late: 60 * us, run: 400},
		{name: "has run", late: 60 * us, run: 401, want: true},
		{name: "nobody knows", late: 60 * us, run: 400, broken: true, want: true},
		{name: "a late wake-up", late: 40 * us, run: 400, doubt: true, want: true},
	} {
		a := actor{tid: 7, run: tt.run, state: 'R'}
		s, b, c := desk(t, 1, &a)
		c.up.doubt = tt.doubt
		if tt.broken {
			s.broken[71] = unix.EIO
		}
		b.slots[0].take(1)
		p := &c.search.picked
		*p = pick{slot: 0, run: 400}
		c.ask(&b.slots[0], p, 6, s.now-tt.late)
		if m := &c.tracees.samples[0]; m.state.Load() != filled || m.Moved != tt.want {
			t.Errorf("%s: state %d, moved %t", tt.name, m.state.Load(), m.Moved)
		}
	}
}

// TestPeek: a thread that has blocked is read without a stop, if it has not run since.
func TestPeek(t *testing.T) {
	const call = "232 0x7 0xab 0x2 0x3 0x4 0x5 0x7ffe10 0x401000\n"
	for _, tt := range []struct {
		name string
		text string
		set  func(*script, *Clock, *actor)
		ok   bool // it is no other's to find
		want bool
		lost bool
	}{
		{name: "blocked", text: call, ok: true, want: true},
		{name: "blocked in call 0", text: "0" + call[3:], ok: true, want: true},
		{name: "runs again", text: "running\n"},
		{name: "waits for a page", text: "-1 0x7ffe10 0x401000\n"},
		{name: "has run meanwhile", text: call, set: func(s *script, c *Clock, a *actor) {
			s.opens = func(fd int) {
				if fd == 70+fileCall {
					a.woken++
				}
			}
		}},
		{name: "cannot be read", text: call, set: func(s *script, c *Clock, a *actor) { s.broken[70+fileCall] = unix.EPERM }},
		{name: "the clock had its CPU late", text: call, ok: true, want: true, set: func(s *script, c *Clock, a *actor) { c.up.doubt = true }},
		{name: "no room", text: call, ok: true, lost: true, set: func(s *script, c *Clock, a *actor) { c.tracees.samples[0].state.Store(filled) }},
	} {
		a := &actor{tid: 7, state: 'S', run: 500, wait: 60}
		s, b, c := desk(t, 1, a)
		s.files[70+fileCall] = tt.text
		if tt.set != nil {
			tt.set(s, c, a)
		}
		slot, m := &b.slots[0], &c.tracees.samples[0]
		slot.take(1)
		m.Buffer.Regs.N, m.Moved, m.Gone = 3, true, true // of an earlier stop
		p := pick{slot: 0, run: 500, wait: 60, count: 12, asleep: true}
		if ok := c.peek(slot, &p, 6, 999); ok != tt.ok {
			t.Errorf("%s: answered %t", tt.name, ok)
		}
		if s.seizes != 0 || slot.holder.Load() != 0 || (slot.sampled.Load() == 6) != tt.want || (b.Met(0, 6) == Lost) != tt.lost {
			t.Errorf("%s: %d seizes, held by %d, sampled at %d, met %d", tt.name, s.seizes, slot.holder.Load(), slot.sampled.Load(), b.Met(0, 6))
		}
		if !tt.want {
			if !tt.lost && m.state.Load() != free {
				t.Errorf("%s: the sample stays in state %d", tt.name, m.state.Load())
			}
			continue
		}
		want := capture.Call{NR: 232, Args: [6]uint64{7, 0xab, 2, 3, 4, 5}, SP: 0x7ffe10, PC: 0x401000}
		if tt.text != call {
			want.NR = 0
		}
		if m.state.Load() != filled || !m.Peeked.Asleep || m.Peeked.Call != want || m.Peeked.Count != 12 || m.Moved != c.up.doubt || m.Gone || m.Stopped.Run != 500 || m.Stopped.Wait != 60 ||
			m.Buffer.Regs.N != 0 || m.Buffer.Stack.N != len(m.Buffer.Stack.Room) || m.Buffer.StackAddr != 0x7ffe10-taking.RedZone || m.TID != 7 || m.Tick != 6 || m.At.Wake != 999 || m.At.Stopped != m.At.Asked || m.At.Released != m.At.Asked {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
}

// TestInCall: who is in the midst of a call that a stop would cut short is not stopped, but read in the wait that it was in before, if it
// is still there; where the kernel does not show what a thread is in, this is so of one that may have been woken in vain.
func TestInCall(t *testing.T) {
	call := fmt.Sprintf("%d 0x7 0xab 0x2 0xc8 0x4 0x5 0x7ffffffe10 0x401000\n", unix.SYS_EPOLL_PWAIT)
	const (
		frame   = "[<0>] do_syscall_64+0x71/0x280\n[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n"
		waits   = "[<0>] do_epoll_wait+0x548/0x5a0\n" + frame
		random  = "[<0>] get_random_bytes_user+0xbc/0x140\n" + frame
		user    = "[<0>] irqentry_exit_to_user_mode+0x110/0x1a0\n[<0>] asm_sysvec_apic_timer_interrupt+0x16/0x20\n"
		stopped = "stopped"
		read    = "read"
		left    = "left"
		away    = "not met"
	)
	for _, tt := range []struct {
		name  string
		stack string // in the kernel; empty: it cannot be read
		ran   int64  // since the wait
		set   func(*script, *actor)
		want  string
	}{
		{"woken in vain", waits, 10 * us, nil, read},
		{"behind the wait", user, 10 * us, nil, stopped},
		{"has worked, and is woken in the midst of the wait", waits, 10*us + 1, nil, read},
		{"has begun another", waits, 500 * us, func(s *script, a *actor) { s.fill = 1 }, left},
		{"on another CPU by now", "elsewhere", 500 * us, nil, away},
		{"is elsewhere in a wait", waits, 10 * us, func(s *script, a *actor) { s.fill = 1 }, left},
		{"transfer", random, 500 * us, func(s *script, a *actor) { s.fill = 1 }, left},
		{"nobody knows: woken in vain", "", 10 * us, nil, read},
		{"nobody knows: has worked", "", 10*us + 1, nil, stopped},
		{"nobody knows: is elsewhere", "", 10 * us, func(s *script, a *actor) { s.fill = 1 }, stopped},
		{"nobody knows: on another CPU meanwhile", "", 10 * us, func(s *script, a *actor) {
			s.opens = func(fd int) {
				if fd == 70+filePages {
					a.woken = 2
				}
			}
		}, stopped},
		{"nobody knows: was not put on a CPU", "", 10 * us, func(s *script, a *actor) { a.woken = 0 }, stopped},
	} {
		a := &actor{tid: 7, state: 'S', run: 400 * us, wait: 60}
		s, b, c := desk(t, 2, a)
		slot := &b.slots[0]
		slot.open.stack = 70 + fileStack
		s.files[70+fileStack], s.files[70+fileCall] = waits, call
		if tt.stack == "" {
			s.broken[70+fileStack] = unix.EACCES
		}
		slot.take(1)
		c.peek(slot, &pick{slot: 0, run: 400 * us, wait: 60, count: 12, asleep: true}, 5, 999)
		s.files[70+fileStack], s.peeks = strings.TrimPrefix(tt.stack, "elsewhere"), true
		a.state, a.run, a.woken = 'R', a.run+tt.ran, 1
		if tt.set != nil {
			tt.set(s, a)
		}
		met := c.answer(6, s.now)
		got := stopped
		switch m := &c.tracees.samples[1]; {
		case s.seizes == 0 && b.Met(0, 6) == InCall:
			got = left
		case s.seizes == 0 && b.Met(0, 6) == NotMet:
			got = away
		case s.seizes == 0 && b.Met(0, 6) == Sampled && m.Peeked.Asleep && m.Peeked.Call == c.tracees.samples[0].Peeked.Call && m.Peeked.Count == 13 && m.state.Load() == filled:
			got = read
		case s.seizes != 1 || b.Met(0, 6) != Sampled || m.Peeked.Asleep:
			t.Errorf("%s: %d seizes, met %d", tt.name, s.seizes, b.Met(0, 6))
		}
		if got != tt.want || met == (got == away) || slot.holder.Load() != 0 {
			t.Errorf("%s: %s, want %s; met %t, held by %d", tt.name, got, tt.want, met, slot.holder.Load())
		}
	}
}

// TestLook: what a thread is in is read where its stack is open, which number 0 says it is not.
func TestLook(t *testing.T) {
	var text [100]byte
	for fd, want := range map[int]inCall{-1: unknown, 0: unknown, 1: waiting, 2: elsewhere, 3: unknown} {
		s := newScript(t)
		s.files[-1], s.files[0], s.files[1], s.files[2], s.files[3] = inWait, inWait, inWait, "", inWait
		s.broken[3] = unix.EPERM
		if got := look(s, fd, text[:]); got != want || (s.reads[fd] > 0) != (fd > 0) {
			t.Errorf("file %d: %d, want %d; read %d times", fd, got, want, s.reads[fd])
		}
	}
}

// TestWait: which words of a stack tell a wait is learned from each that is met at one place.
func TestWait(t *testing.T) {
	var w wait
	m := &Sample{}
	m.Peeked.Call = capture.Call{NR: unix.SYS_EPOLL_PWAIT, Args: [6]uint64{3: 200}, SP: 1 << 40, PC: 0x401000}
	m.Buffer.StackAddr, m.Buffer.Stack.Room = 1<<40-taking.RedZone, make([]byte, taking.RedZone+8*waitWords)
	m.Buffer.Stack.N = len(m.Buffer.Stack.Room)
	word := func(i int) *byte { return &m.Buffer.Stack.Room[taking.RedZone+8*i] }
	w.note(m)
	if w.kept != 1<<waitWords-1 || !w.same(m) {
		t.Errorf("the first wait: words %#x, is it the same: %t", w.kept, w.same(m))
	}
	*word(3) = 1
	m.Buffer.Stack.Room[taking.RedZone-1] = 1 // below is what others have left
	if w.same(m) {
		t.Error("another word, and the same wait")
	}
	w.note(m)
	if w.kept != 1<<waitWords-1-1<<3 || !w.same(m) {
		t.Errorf("the second wait: words %#x", w.kept)
	}
	w.kept = 0
	if w.note(m); w.kept != 1<<waitWords-1 || !w.same(m) {
		t.Errorf("a wait of which no word was left: words %#x", w.kept)
	}
	*word(3), *word(5) = 2, 2
	m.Buffer.Regs.Room = make([]byte, 512)
	if w.met(m); w.kept>>5&1 == 0 {
		t.Error("a stop with another stack pointer has told of the wait")
	}
	*word(5) = 0
	m.Peeked.Call.PC++
	if w.note(m); w.kept != 1<<waitWords-1 || !w.same(m) {
		t.Errorf("a wait elsewhere: words %#x", w.kept)
	}
	before := w
	m.Peeked.Call.Args = [6]uint64{}
	if w.note(m); w != before {
		t.Error("a wait without a limit was kept")
	}
	m.Peeked.Call.Args, m.Buffer.Stack.N = before.call.Args, m.Buffer.Stack.N-1
	if w.note(m); w != before || w.same(m) {
		t.Error("a wait of which there is too little of the stack was kept, or found")
	}
}

// TestWaitMet: a stop in the midst of a wait tells which words of its stack are not always the same, if enough of that was copied.
func TestWaitMet(t *testing.T) {
	defer func() { take = taking.Take }()
	const all = 1<<waitWords - 1
	for _, tt := range []struct {
		name   string
		met    bool // its registers were written, so that it waits on
		sp     uint64
		copied int
		kept   uint32
		want   uint32
	}{
		{"in a wait", true, 0, 8 * waitWords, all, all &^ (1<<5 | 1)},
		{"where little is known", true, 0, 8 * waitWords, 1<<5 | 1<<7, 1 << 7},
		{"where one word is known", true, 0, 8 * waitWords, 1, 0},
		{"no wait is known", true, 0, 8 * waitWords, 0, 0},
		{"in no wait", false, 0, 8 * waitWords, all, all},
		{"elsewhere", true, 8, 8 * waitWords, all, all},
		{"of too little a stack", true, 0, 8*waitWords - 1, all, all},
	} {
		_, b, c := desk(t, 1, &actor{tid: 7, tracee: true, asked: true, stopped: true})
		m, w := &c.tracees.samples[0], &b.slots[0].wait
		w.kept, w.call.SP = tt.kept, tt.sp
		m.TID, m.tracee.id = 7, 7
		m.state.Store(asked)
		b.slots[0].take(1)
		take = func(_ taking.Kernel, _ int, _ *taking.Advice, buf *taking.Buffer, _, _ int, _ bool) unix.Errno {
			clear(buf.Stack.Room)
			buf.Stack.Room[0], buf.Stack.Room[8*6-1] = 1, 1 // words 0 and 5
			buf.Regs.N, buf.Stack.N, buf.StackAddr, buf.Call.Met = 0, tt.copied, 0, tt.met
			return 0
		}
		c.tracees.out = 1
		if c.stopped(m, interrupted, 0); w.kept != tt.want || c.tracees.out != 0 {
			t.Errorf("%s: words %#x, want %#x; %d on their way", tt.name, w.kept, tt.want, c.tracees.out)
		}
	}
}

// TestRoom: which buffer a thread gets.
func TestRoom(t *testing.T) {
	type sample struct {
		state         int32
		stack, beyond int
	}
	for _, tt := range []struct {
		name    string
		want    int
		beyond  int
		samples []sample
		get     int
	}{
		{"none", 0, 0, nil, -1},
		{"all taken", 0, 0, []sample{{asked, 1 << 20, 0}, {filled, 1 << 20, 0}}, -1},
		{"first that fits", 100, 0, []sample{{free, 99, 0}, {free, 100, 0}, {free, 200, 0}}, 1},
		{"beyond", 100, 50, []sample{{free, 300, 49}, {free, 100, 50}}, 1},
		{"taken ones are passed over", 100, 0, []sample{{asked, 100, 0}, {filled, 100, 0}, {free, 100, 0}}, 2},
		{"none fits: the largest", 1000, 0, []sample{{free, 10, 0}, {free, 30, 0}, {free, 20, 0}, {asked, 90, 0}}, 1},
		{"as large as is asked for: before more of others", 100, 50, []sample{{free, 100, 10}, {free, 99, 40}}, 0},
		{"equally large: the first", 1000, 0, []sample{{free, 30, 0}, {free, 30, 0}}, 0},
		{"nothing is known: 256 KiB", 0, 0, []sample{{free, 262143, 0}, {free, 262144, 0}, {free, 1 << 20, 0}}, 1},
	} {
		_, _, c := desk(t, len(tt.samples))
		for i, s := range tt.samples {
			c.tracees.samples[i].Buffer.Stack.Room, c.tracees.samples[i].Buffer.Beyond.Room = make([]byte, s.stack), make([]byte, s.beyond)
			c.tracees.samples[i].state.Store(s.state)
		}
		if got := c.room(&taking.Advice{Want: tt.want, Beyond: tt.beyond}); got != tt.get {
			t.Errorf("%s: sample %d, want %d", tt.name, got, tt.get)
		}
		for i, s := range tt.samples {
			want := s.state
			if i == tt.get {
				want = ready
			}
			if got := c.tracees.samples[i].state.Load(); got != want {
				t.Errorf("%s: sample %d is in state %d", tt.name, i, got)
			}
		}
	}
}

// TestAsk: a request that is made, that is refused, and one whose stop comes late.
func TestAsk(t *testing.T) {
	for _, tt := range []struct {
		name            string
		a               actor
		refused, queued bool
		late            bool // it is asked for, and has not stopped
	}{
		{name: "stops", a: actor{}, queued: true},
		{name: "not in the queue", a: actor{cpu: 1}},
		{name: "may not be traced", a: actor{does: refuses}, refused: true},
		{name: "is gone", a: actor{does: vanishes}},
		{name: "went between", a: actor{deaf: unix.ESRCH}},
		{name: "another tracer's", a: actor{deaf: unix.EPERM}, refused: true},
		{name: "late", a: actor{does: queues, patience: 1}, late: true, queued: true},
	} {
		a := tt.a
		a.tid, a.run, a.wait, a.state = 7, 500, 60, 'R'
		s, b, c := desk(t, 1, &a)
		slot, m := &b.slots[0], &c.tracees.samples[0]
		m.Moved, m.Gone, m.proof = true, true, proof{waits: true, tick: met{pc: 6}}
		slot.take(1)
		sinceAtStop, requested := int64(-1), int64(0)
		s.opens = func(fd int) {
			if fd == 72 && a.asked {
				sinceAtStop, requested = c.grip.since.Load(), s.now
			}
		}
		p := &c.search.picked
		*p = pick{slot: 0, run: 400, wait: 50}
		c.ask(slot, p, 6, 999)
		met := b.Met(0, 6)
		made := a.deaf == 0 && a.does != refuses && a.does != vanishes
		if (met == Refused) != tt.refused || made != (met == Sampled) || met == Lost {
			t.Errorf("%s: met %d", tt.name, met)
		}
		state, holder, out := int32(filled), int32(0), 0
		switch {
		case tt.late:
			state, holder, out = asked, 1, 1
		case !made:
			state = free
		}
		if m.state.Load() != state || slot.holder.Load() != holder || c.tracees.out != out || c.grip.since.Load() != 0 {
			t.Errorf("%s: sample in state %d, slot held by %d, %d on their way, asking since %d", tt.name, m.state.Load(), slot.holder.Load(), c.tracees.out, c.grip.since.Load())
		}
		if !made {
			continue
		}
		if tt.late && (c.apart < s.now-requested || c.apart != s.now-m.At.Asked) {
			t.Errorf("%s: %d ns are told to be no work of the clock, want %d", tt.name, c.apart, s.now-m.At.Asked)
		}
		if sinceAtStop != 999 {
			t.Errorf("%s: asking since %d while it waits, want the wake-up, 999", tt.name, sinceAtStop)
		}
		if m.TID != 7 || m.PID != 107 || m.Slot != 0 || m.Tick != 6 || m.At.Wake != 999 || m.Asked.Run != 400 || m.Asked.Wait != 50 || m.At.Asked <= 1e9 || m.Gone || m.proof.waits != tt.queued {
			t.Errorf("%s: %v", tt.name, m)
		}
	}
}

// TestLongExec: a seize that waits for an exec ends after 10 ms, whether or not the clock is nudged, or with the clock; and its process is left
// alone for 0.1 s, not others.
func TestLongExec(t *testing.T) {
	for _, tt := range []struct {
		name    string
		nudges  int64
		quit    bool
		seizes  int
		seconds float64
	}{
		{"alarm", 0, false, 1, 0.01},
		{"nudged", 1000 * us, false, 10, 0.01},
		{"ends", 1000 * us, true, 1, 0.001},
	} {
		s, b, c := desk(t, 2, &actor{tid: 7, does: hangs, state: 'R'}, &actor{tid: 8, state: 'R'})
		s.step, s.nudges = 0, tt.nudges
		c.life.quit.Store(tt.quit)
		ask := func(i int, n int64) (seizes int) {
			t.Helper()
			before := s.hung + s.seizes
			b.slots[i].take(1)
			c.ask(&b.slots[i], &pick{slot: i}, n, s.now)
			if c.grip.since.Load() != 0 || b.slots[i].holder.Load() != 0 || s.alarm != 0 || len(bankOf(c).Waits()) != 0 {
				t.Errorf("%s: asks since %d, held by %d, alarm at %d", tt.name, c.grip.since.Load(), b.slots[i].holder.Load(), s.alarm)
			}
			return s.hung + s.seizes - before
		}
		begun := s.now
		if got, took := ask(0, 3), float64(s.now-begun)/1e9; got != tt.seizes || took != tt.seconds || b.Met(0, 3) != Execs {
			t.Errorf("%s: %d seizes in %v s, met %d; want %d in %v", tt.name, got, took, b.Met(0, 3), tt.seizes, tt.seconds)
		}
		if c.apart != s.now-begun {
			t.Errorf("%s: %d ns are told to be no work of the clock, want %d", tt.name, c.apart, s.now-begun)
		}
		c.life.quit.Store(false)
		s.now += 99_000 * us
		if got := ask(0, 4); got != 0 || b.Met(0, 4) != Execs {
			t.Errorf("%s: %d seizes, met %d within 0.1 s", tt.name, got, b.Met(0, 4))
		}
		if got := ask(1, 4); got != 1 || b.Met(1, 4) != Sampled {
			t.Errorf("%s: %d seizes of another process, met %d", tt.name, got, b.Met(1, 4))
		}
		s.now += 2_000 * us
		if ask(0, 5) == 0 {
			t.Errorf("%s: no seize after 0.1 s", tt.name)
		}
	}
}

// bankOf is a bank of one clock.
func bankOf(c *Clock) *Bank { return &Bank{clocks: map[int]*Clock{0: c}} }

// TestLongExecs: of more processes than there is room for the latest are left alone, whatever their ids.
func TestLongExecs(t *testing.T) {
	var e longExecs
	const most = 1<<pidBits - 1
	for i := range 20 {
		e.put(most-i, int64(i)*1e6)
	}
	for i := range 20 {
		if got := e.has(most-i, 50e6); got != (i >= 4) {
			t.Errorf("process %d of 20: left alone %t", i, got)
		}
	}
	if e.has(most-19, 119e6) || !e.has(most-19, 118e6) || e.has(0, 0) {
		t.Error("want 100 ms")
	}
}

// TestOwnTimes: a sample has no times of the one that had its room before: of a thread that ends, or whose times cannot be read, those of the request.
func TestOwnTimes(t *testing.T) {
	for name, set := range map[string]func(s *script, a *actor){
		"ends":       func(_ *script, a *actor) { a.does = ends },
		"unwaitable": func(_ *script, a *actor) { a.does = unwaitable },
		"no times":   func(s *script, _ *actor) { s.broken[71] = unix.EIO },
		"asleep, and no times": func(s *script, a *actor) {
			a.state = 'S'
			s.broken[71] = unix.EIO
		},
	} {
		a := &actor{tid: 7, state: 'R', run: 500, wait: 60}
		s, b, c := desk(t, 1, a)
		s.files[70+fileCall] = "232 0x7 0xab 0x2 0x3 0x4 0x5 0x7ffe10 0x401000\n"
		set(s, a)
		m, slot := &c.tracees.samples[0], &b.slots[0]
		m.Stopped = Usage{9e9, 9e9, 99}
		slot.take(1)
		p := pick{run: 400, wait: 50, count: 12, asleep: a.state == 'S'}
		if c.tracees.seizes.any = true; p.asleep {
			if c.peek(slot, &p, 6, 999); m.state.Load() != free {
				t.Errorf("%s: it is read", name)
			}
			continue
		}
		if c.ask(slot, &p, 6, 999); m.Stopped != m.Asked || m.state.Load() != filled || m.Asked != (Usage{400, 50, 12}) || slot.last.run.Load() == 9e9 {
			t.Errorf("%s: stopped with %+v, known %+v", name, m.Stopped, slot.last.run.Load())
		}
	}
}

// TestAwait: late stops are waited for, or looked for every half millisecond without an alarm, not beyond the next tick, and whatever comes ends the
// wait for that thread.
func TestAwait(t *testing.T) {
	one, two := &actor{tid: 7, does: queues, patience: 2}, &actor{tid: 8, does: unwaitable}
	s, b, c := desk(t, 3, one, two)
	s.delay = func() int64 { return 0 }
	s.step = 0
	for i, a := range []*actor{one, two} {
		a.tracee, a.asked = true, true
		b.slots[i].take(1)
		m := &c.tracees.samples[i+1] // the first is free
		m.TID, m.tracee.id, m.Slot = a.tid, a.tid, i
		m.state.Store(asked)
	}
	c.tracees.out = 2
	begun := s.now
	c.await(begun + 1200*us)
	// The second is answered in the first look, after which there is one more at once.
	if c.tracees.out != 0 || len(s.sleeps) != 0 || s.alarm != 0 {
		t.Errorf("slept until %v from %d on; %d on their way, alarm at %d", s.sleeps, begun, c.tracees.out, s.alarm)
	}
	if !c.tracees.samples[2].Gone || c.tracees.samples[2].state.Load() != filled {
		t.Error("a thread whose end another has taken is not gone")
	}

	// The wait ends with the last stop, and at the tick if that does not come.
	for _, tt := range []struct {
		patience int
		alarm    bool // each turn looks twice with one
		sleeps   string
		out      int
	}{
		{0, false, "[]", 0},
		{1, false, "[500000]", 0},
		{2, false, "[500000 1000000]", 0},
		{3, false, "[500000 1000000 1200000]", 1},
		{0, true, "[]", 0},
		{1, true, "[]", 0},
		{2, true, "[500000]", 0},
		{5, true, "[500000 1000000]", 0},
		{6, true, "[500000 1000000 1200000]", 1},
	} {
		a := &actor{tid: 7, does: queues, patience: tt.patience, tracee: true, asked: true}
		s, b, c := desk(t, 1, a)
		s.delay, s.step = func() int64 { return 0 }, 0
		if !tt.alarm {
			c.tracees.seizes.alarm = nil
		}
		b.slots[0].take(1)
		c.tracees.samples[0].TID, c.tracees.samples[0].tracee.id = 7, 7
		c.tracees.samples[0].state.Store(asked)
		c.tracees.out = 1
		begun := s.now
		c.await(begun + 1200*us)
		for i := range s.sleeps {
			s.sleeps[i] -= begun
		}
		if fmt.Sprint(s.sleeps) != tt.sleeps || c.tracees.out != tt.out || s.alarm != 0 {
			t.Errorf("slept until %v, want %s; %d on their way, alarm at %d", s.sleeps, tt.sleeps, c.tracees.out, s.alarm)
		}
	}
}

// interruptedWait is a script in which a wait is cut short by a signal, once.
type interruptedWait struct {
	*script
	done bool
}

func (s *interruptedWait) Wait(tid int, block bool) (int, uint32, unix.Errno) {
	if block && s.alarm == 0 {
		s.t.Error("the clock sleeps until a thread stops, past its next tick")
	}
	if !s.done {
		s.done = true
		return 0, 0, unix.EINTR
	}
	return s.script.Wait(tid, block)
}

// TestAwaitInterrupted: a signal to the clock is no stop.
func TestAwaitInterrupted(t *testing.T) {
	a := &actor{tid: 7, tracee: true, asked: true}
	s, b, c := desk(t, 1, a)
	c.k = &interruptedWait{script: s}
	b.slots[0].take(1)
	c.tracees.samples[0].TID, c.tracees.samples[0].tracee.id = 7, 7
	c.tracees.samples[0].state.Store(asked)
	c.tracees.out = 1
	if c.await(s.now + 5000*us); c.tracees.samples[0].Gone || c.tracees.out != 0 || len(s.sleeps) != 0 {
		t.Errorf("gone %t, %d on their way, after %d sleeps", c.tracees.samples[0].Gone, c.tracees.out, len(s.sleeps))
	}
}

// TestRoomTaken: a sample that the coordinator takes away to give it more room is not one that the clock has.
func TestRoomTaken(t *testing.T) {
	_, _, c := desk(t, 2000) // it looks at all of them meanwhile
	m := &c.tracees.samples[0]
	m.Buffer.Stack.Room = make([]byte, 10) // less than is asked for
	for i := range c.tracees.samples[1:] {
		c.tracees.samples[i+1].state.Store(asked)
	}
	var over atomic.Bool
	done := make(chan bool)
	go func() {
		for !over.Load() {
			if m.state.CompareAndSwap(free, filled) {
				m.state.CompareAndSwap(filled, free)
			}
		}
		close(done)
	}()
	for range 3_000 {
		i := c.room(&taking.Advice{Want: 100})
		if has := m.state.Load() == ready; has != (i == 0) {
			t.Errorf("sample %d, and it is the clock's: %t", i, has)
			break
		}
		m.state.CompareAndSwap(ready, free)
	}
	over.Store(true)
	<-done
}

// TestTicks: which ticks a clock answers that wakes late, or early, and what it tells of that.
func TestTicks(t *testing.T) {
	const interval, phase = 10_000 * us, 3000 * us
	const early = -4 * us
	a := &actor{tid: 7, state: 'R'}
	// Two ticks are not seen, 4 and 5.
	delays := []int64{0, interval / 2, interval/2 + 1, early, 0, 2*interval + 7, 0, interval - 1, 0, 0}
	var c *Clock
	_, b, list := play(t, 11, 4, []*actor{a}, func(int64) {}, func(b *Board) {
		c = b.clocks[1].Load()
		c.ticks.phase, c.prompt = phase, true
		s := c.k.(*script)
		s.step = 0
		s.delay = func() int64 {
			if c.life.active.Load() {
				t.Error("it sleeps, and answers a tick")
			}
			a.run += us
			if len(s.sleeps) > len(delays) {
				return 0
			}
			d := delays[len(s.sleeps)-1]
			if d == early {
				s.now = s.sleeps[len(s.sleeps)-1] + early
			}
			return d
		}
		s.opens = func(int) {
			if !c.life.active.Load() {
				t.Error("it answers a tick, and says that it does not")
			}
		}
	})
	var wakes []int64
	for _, m := range list {
		wakes = append(wakes, m.At.Wake-b.Start-m.Tick*interval-phase)
	}
	if got := fmt.Sprint(ticksOf(list)); got != "[0 1 2 3 6 7 8 9 10]" {
		t.Errorf("ticks %s", got)
	}
	// The sample of tick 8 takes 1 us, and so up to 999 ns after the time of the next.
	if got := fmt.Sprint(wakes); got != "[0 5000000 5000001 0 7 0 9999999 999 0]" {
		t.Errorf("woke after its ticks by %s", got)
	}
	if m, l := c.shown.missed.Load(), c.shown.late.Load(); m != 2 || l != 2 {
		t.Errorf("%d ticks unseen, %d late; want 2, 2", m, l)
	}
	// The one after the last was to end it.
	if c.shown.done.Load() != 11 || c.shown.met.Load() != 11 || c.shown.looked.Load() != 0 {
		t.Errorf("done %d, met %d, looked %d", c.shown.done.Load(), c.shown.met.Load(), c.shown.looked.Load())
	}
}

// beganLate holds how long after their ticks the first four samples began, in us, and whether the second alone is moved.
func beganLate(t *testing.T, b *Board, list []*Sample, want string, moved bool) {
	t.Helper()
	var late []int64
	for i, m := range list[:min(4, len(list))] {
		late = append(late, (m.At.Wake-b.Start-m.Tick*b.Interval)/us)
		if m.Moved != (i == 1 && moved) {
			t.Errorf("sample of tick %d: moved %t", m.Tick, m.Moved)
		}
	}
	if got := fmt.Sprint(late); got != want {
		t.Errorf("samples of ticks %d began %s us late, want %s", ticksOf(list), got, want)
	}
}

// TestTardy: a clock without real-time priority that gets its CPU late tries again on the grid, some times for a tick; one
// that is always so late, or has the priority, does not.
func TestTardy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt bool
		delays []int64
		want   string // how long after their ticks the samples were begun, us
		moved  bool   // the second is of a wake-up that came late each time
	}{
		{"once", false, []int64{0, 300 * us, 0, 0}, "[0 500 0 0]", false},
		{"priority", true, []int64{0, 300 * us, 0, 0}, "[0 300 0 0]", false},
		{"late each time", false, []int64{0, 300 * us, 250 * us, 71 * us, 500 * us, 90 * us, 0, 0}, "[0 2090 0 0]", true},
		{"late each time, then once", false, []int64{0, 300 * us, 250 * us, 71 * us, 500 * us, 90 * us, 300 * us, 0, 0}, "[0 2090 500 0]", true},
		{"as ever", false, []int64{40 * us, 100 * us, 101 * us, 0, 0}, "[40 100 250 0]", false},
		{"usual", false, []int64{120 * us, 121 * us, 50 * us, 120 * us, 0}, "[120 300 120 0]", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &actor{tid: 7, state: 'R'}
			_, b, list := play(t, 4, 4, []*actor{a}, func(int64) {}, func(b *Board) {
				c := b.clocks[1].Load()
				c.prompt, c.up.least = tt.prompt, usual
				s := c.k.(*script)
				s.step = 0
				s.delay = func() int64 {
					a.run += us
					if len(s.sleeps) > len(tt.delays) {
						return 0
					}
					return tt.delays[len(s.sleeps)-1]
				}
			})
			beganLate(t, b, list, tt.want, tt.moved)
		})
	}
}

// TestBehind: who is found asleep by a clock that may have got its CPU by that is looked for again, on the grid; a clock that came
// at once, or has real-time priority, reads it there.
func TestBehind(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt bool
		delays []int64
		want   string // how long after their ticks the samples were begun, us
		moved  bool   // the second is of a wake-up that came late each time
	}{
		{"at once", false, []int64{2 * us, 7 * us, 2 * us, 2 * us}, "[2 7 2 2]", false},
		{"behind", false, []int64{2 * us, 8 * us, 2 * us, 2 * us, 2 * us}, "[2 252 2 2]", false},
		{"priority", true, []int64{2 * us, 8 * us, 2 * us, 2 * us}, "[2 8 2 2]", false},
		{"behind each time", false, []int64{2 * us, 8 * us, 8 * us, 8 * us, 8 * us, 8 * us, 2 * us, 2 * us}, "[2 1008 2 2]", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &actor{tid: 7, state: 'S'}
			_, b, list := play(t, 4, 4, []*actor{a}, func(int64) {}, func(b *Board) {
				c := b.clocks[1].Load()
				c.prompt, c.up.least, c.search.self = tt.prompt, usual, fileOwn
				s := c.k.(*script)
				s.step = 0
				s.files[fileOwn] = "x (1, #threads: 1)\nse.exec_start : 5.000000\n"
				s.files[70+fileCall] = "232 0x7 0xab 0x2 0x3 0x4 0x5 0x7ffe10 0x401000\n"
				s.delay = func() int64 {
					a.run += us
					a.exec = 5e6
					if len(s.sleeps) > len(tt.delays) {
						return 2 * us
					}
					return tt.delays[len(s.sleeps)-1]
				}
			})
			beganLate(t, b, list, tt.want, tt.moved)
			for _, m := range list[:min(4, len(list))] {
				if !m.Peeked.Asleep {
					t.Errorf("sample of tick %d: not asleep", m.Tick)
				}
			}
			if c := b.clocks[1].Load(); c.shown.missed.Load() != 0 || c.shown.done.Load() != 4 { // the one after the last was to end it
				t.Errorf("missed %d ticks, the last done is %d", c.shown.missed.Load(), c.shown.done.Load())
			}
		})
	}
}

// TestBetween: who waits for the CPU when a clock without real-time priority gets it from somebody else is looked for again, on the
// grid, as it may have been woken since the tick.
func TestBetween(t *testing.T) {
	for _, tt := range []struct {
		name  string
		gaps  []int64 // from when the thread left the CPU to when the clock got it, by wake-ups, ns
		want  string  // how long after their ticks the samples were begun, us
		moved bool    // the second is of a wake-up like that each time
	}{
		{"preempted", []int64{0, atOnce, 0, 0}, "[2 2 2 2]", false},
		{"woken since", []int64{0, atOnce + 1, 0, 0, 0}, "[2 252 2 2]", false},
		{"woken since, each time", []int64{0, 5000, 5000, 5000, 5000, handover, 0, 0}, "[2 1002 2 2]", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &actor{tid: 7, state: 'R', exec: 5e6}
			_, b, list := play(t, 4, 4, []*actor{a}, func(int64) {}, func(b *Board) {
				c := b.clocks[1].Load()
				c.up.least, c.search.self = usual, fileOwn
				s := c.k.(*script)
				s.step = 0
				s.delay = func() int64 {
					own := int64(5e6)
					if len(s.sleeps) <= len(tt.gaps) {
						own += tt.gaps[len(s.sleeps)-1]
					}
					s.files[fileOwn] = fmt.Sprintf("x (1, #threads: 1)\nse.exec_start : %d.%06d\n", own/1e6, own%1e6)
					a.run += us
					return 2 * us
				}
			})
			beganLate(t, b, list, tt.want, tt.moved)
		})
	}
}

// TestLooked: a look at which nobody is found costs time, and meets nobody.
func TestLooked(t *testing.T) {
	a := &actor{tid: 7, state: 'S'}
	var c *Clock
	play(t, 10, 4, []*actor{a}, func(tick int64) {}, func(b *Board) { c = b.clocks[1].Load(); c.shown.met.Store(-5) })
	if got := c.shown.looked.Load(); got != 11*us { // one file each, at ticks 0 to 10
		t.Errorf("looks have taken %d ns, want 11 of 1 us", got)
	}
	if c.shown.met.Load() != -5 || c.shown.done.Load() != 10 {
		t.Errorf("met %d, done %d", c.shown.met.Load(), c.shown.done.Load())
	}
}

// TestAnswer: the one that is found is not asked if it was asked, or left, between.
func TestAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*Slot)
		want bool
	}{
		{"as it was", func(*Slot) {}, true},
		{"sampled", func(s *Slot) { s.sampled.Store(3) }, false},
		{"sampled for the tick before", func(s *Slot) { s.sampled.Store(2) }, true},
		{"left", func(s *Slot) { s.used = false }, false},
		{"held", func(s *Slot) { s.holder.Store(9) }, false},
	} {
		a := &actor{tid: 8, state: 'R', run: 5}
		s, b, c := desk(t, 1, &actor{tid: 7, state: 'S'}, a)
		b.slots[1].last.run.Store(0)
		s.opens = func(fd int) {
			if fd == 82 && !a.asked && !a.tracee {
				tt.set(&b.slots[1])
			}
		}
		if got := c.answer(3, s.now); got != tt.want || (s.seizes == 1) != tt.want || c.search.last != 1 {
			t.Errorf("%s: answered %t, %d stops, last slot %d", tt.name, got, s.seizes, c.search.last)
		}
		if h := b.slots[1].holder.Load(); h != 0 && h != 9 {
			t.Errorf("%s: the slot is held by %d", tt.name, h)
		}
	}
}

// TestKilledWhileStopped: a thread that was killed while it was stopped cannot be let go. Its end is awaited, and reaped.
// One that has called exec is let go under the id that it has then, and nothing is known of it.
func TestKilledWhileStopped(t *testing.T) {
	for does, want := range map[conduct]string{
		dies:       "[interrupt 7 detach 7 0 reap 7]",
		execs:      "[interrupt 7 interrupt 107 detach 107 0]",
		execsLater: "[interrupt 7 interrupt 107 detach 107 0]",
	} {
		for _, pages := range []int{74, -1} {
			s, b, c := desk(t, 1, &actor{tid: 7, does: does, state: 'R', run: 5})
			b.slots[0].last.run.Store(1)
			b.slots[0].pages = pages
			c.answer(0, s.now)
			if does != execs && (c.tracees.out != 1 || c.tracees.samples[0].state.Load() != asked || c.grip.since.Load() != 0 || c.grip.holds.Load() != 0) {
				t.Errorf("%v: %d on their way, sample in state %d", does, c.tracees.out, c.tracees.samples[0].state.Load())
			}
			c.await(s.now + 5000*us)
			m := &c.tracees.samples[0]
			if got := fmt.Sprint(s.log); got != want || c.tracees.out != 0 || !m.Gone || m.state.Load() != filled || m.TID != 7 {
				t.Errorf("%v: %s, want %s; %d on their way, gone %t, state %d of thread %d", does, got, want, c.tracees.out, m.Gone, m.state.Load(), m.TID)
			}
		}
	}
}

// TestLeavesItsCPU: at a rate at which a look takes longer than a tick, a clock has a quarter of its CPU at most.
// The time that a thread takes to stop is not the clock's.
func TestLeavesItsCPU(t *testing.T) {
	for _, does := range []conduct{stops, lingers} {
		a := &actor{tid: 7, does: does, state: 'R'}
		s, b, c := desk(t, 4, a)
		b.Interval = 20 * us
		s.step = 10 * us
		begun, slept, from, n := s.now, int64(0), int64(0), 0
		s.delay = func() int64 { from = s.now; return 0 }
		s.asleep = func() {
			slept += s.now - from
			a.runs(s, s.now-from)
			for _, m := range c.drain(nil) {
				n++
				m.Done()
			}
			c.life.quit.Store(n >= 100)
		}
		c.Outside()
		own := s.now - begun - slept
		if does == lingers {
			own -= int64(n) * 50 * us
		}
		if share := float64(own) / float64(own+slept); share < 0.2 || share > 0.3 {
			t.Errorf("%v: of %d us without the stops it slept %d: %.2f are its own, want a quarter", does, (own+slept)/us, slept/us, share)
		}
	}
}

// TestInherited: what a tracee makes with CLONE_PTRACE, and nobody has asked for, goes on.
func TestInherited(t *testing.T) {
	a, born := &actor{tid: 7}, &actor{tid: 55, does: queues, patience: 2}
	var s *script
	script, _, list := play(t, 10, 4, []*actor{a}, func(tick int64) {
		a.runs(s, 10_000*us)
		if tick == 3 {
			s.actors[born.tid] = born
			born.tracee, born.asked = true, true
			s.seizes++
		}
	}, func(b *Board) { s = b.clocks[1].Load().k.(*script) })
	if born.tracee || born.stopped {
		t.Errorf("the child is left: tracee %t, stopped %t", born.tracee, born.stopped)
	}
	if script.releases[born.tid] != 0 || len(list) != 10 {
		t.Errorf("%d samples of 10", len(list))
	}
}
