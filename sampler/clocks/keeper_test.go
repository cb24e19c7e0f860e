package clocks

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// kept is a keeper by script, and what it has told.
type kept struct {
	*script
	p        *Keeper
	b        *Board
	c        *Clock
	replaced []int
	news     int
	full     bool // there is no room for the stack of an exit
	unwanted bool // nobody has asked for it
	back     int  // rooms that were given back
}

// keepDesk is a keeper of process 107 with thread 7 and of process 108 with thread 8, all of them stopped, on
// the board in that order. Clock 5 has samples.
func keepDesk(t *testing.T) *kept {
	var actors []*actor
	for _, tid := range []int{7, 107, 8, 108} {
		actors = append(actors, &actor{tid: tid, state: 'R', tracee: true, stopped: true, run: 900, wait: 70})
	}
	k := new(kept)
	k.script, k.b, k.c = desk(t, 4, actors...)
	for i := range actors { // of memory that lasts
		k.b.slots[i].pages = -1
	}
	k.c.who, k.c.prompt = 5, true
	k.b.clocks[1].Store(nil)
	k.b.clocks[5].Store(k.c)
	k.b.keeper.Store(999)
	k.p = newKeeper(k.script, k.b, KeeperOptions{
		PIDs:     []int{107, 108},
		Unwanted: func(int) bool { return k.unwanted },
		Back:     func(*taking.Buffer) { k.back++ },
		Replaced: func(pid int) { k.note("replaced %d", pid); k.replaced = append(k.replaced, pid) },
		News:     func() { k.news++ },
		Early:    func(pid, tid int) any { return fmt.Sprintf("early %d of %d after %s", tid, pid, k.log) },
		Room: func(tid int) (*taking.Buffer, taking.Advice) {
			if k.full {
				return nil, taking.Advice{}
			}
			return &taking.Buffer{Regs: taking.Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, Stack: taking.Copy{Room: make([]byte, 64)}}, taking.Advice{}
		},
	})
	maps.Copy(k.p.pids, map[int]int{7: 107, 107: 107, 8: 108, 108: 108})
	k.p.begin()
	k.yields = k.p.serve
	return k
}

// ask has the clock ask for the thread in a slot.
func (k *kept) ask(slot int, wake int64) *Sample {
	return k.askFor(pick{slot: slot, run: 800, wait: 60}, wake)
}

// askFor is ask for who was picked so.
func (k *kept) askFor(p pick, wake int64) *Sample {
	slot := p.slot
	k.b.slots[slot].take(k.c.who)
	i := 0
	for k.c.tracees.samples[i].state.Load() != free {
		i++
	}
	k.c.ask(&k.b.slots[slot], &p, 3, wake)
	return &k.c.tracees.samples[i]
}

// report has a thread stop, or end, and the keeper answer that.
func (k *kept) report(s ptrace.Status) {
	if a := k.actors[s.TID]; a != nil {
		a.stopped = true
	}
	k.p.handle(s)
}

// open tells whether a sample waits for its stop, and checks that all say so, or none.
func (k *kept) open(m *Sample) bool {
	k.t.Helper()
	s := &k.b.slots[m.Slot]
	waits := m.state.Load() == asked
	if waits != (s.holder.Load() == 5) || waits != (s.request.Load() == -1) || waits != (k.p.asked[m.TID] == wanted{m, k.c}) {
		k.t.Errorf("sample in state %d, slot held by %d with request %d, keeper awaits %t of %t", m.state.Load(), s.holder.Load(), s.request.Load(), k.p.asked[m.TID].m == m, k.p.asked[m.TID].c == k.c)
	}
	return waits
}

// did is what was done since the last call.
func (k *kept) did() string {
	log := k.log
	k.log = nil
	return strings.Join(log, ", ")
}

// barred is a kernel in which each seize of some thread waits for an exec until the alarm rings, so often.
type barred struct {
	*script
	tid, often int
	reports    []ptrace.Status
}

func (k *barred) SeizeIn(pid, tid, options int) ([]ptrace.Status, error) {
	if tid != k.tid || k.often == 0 {
		return nil, nil
	}
	k.often--
	k.now = max(k.now, k.alarm)
	return nil, unix.EINTR
}

func (k *barred) Report() (s ptrace.Status, ok bool, err error) {
	if len(k.reports) == 0 {
		return ptrace.Status{}, false, nil
	}
	s, k.reports = k.reports[0], k.reports[1:]
	return s, true, nil
}

// TestKeeperLongExec: while a thread cannot be seized, who is held is answered within 10 ms; after a second it is told that it cannot be held.
func TestKeeperLongExec(t *testing.T) {
	own := os.Getpid()
	for often, want := range map[int]error{5: nil, 200: errLongExec} {
		k := &barred{script: newScript(t, &actor{tid: 8, tracee: true, stopped: true}), tid: own, often: often}
		k.reports = []ptrace.Status{{TID: 8, Kind: ptrace.KindSignal, Signal: unix.SIGUSR1, Raw: usr1}}
		p := newKeeper(k, NewBoard(1, 0, 1), KeeperOptions{PIDs: []int{own}})
		begun := k.now
		err := p.seizeAll(nil, own)
		if !errors.Is(err, want) || (p.pids[own] == own) != (want == nil) {
			t.Errorf("%d seizes in vain: %v, want %v", often, err, want)
		}
		if took := k.now - begun; want != nil && (took < 1e9 || took > 12e8) {
			t.Errorf("given up after %d ns, want a second", took)
		}
		if a := k.actors[8]; a.stopped {
			t.Errorf("%d seizes in vain: a thread that has stopped meanwhile was not answered", often)
		}
	}
}

// TestKeeperRequest: the way of a request, by the keeper, to the sample.
func TestKeeperRequest(t *testing.T) {
	k := keepDesk(t)
	m := k.ask(2, k.now)
	if got := k.did(); got != "signal 999, interrupt 8" || !k.open(m) {
		t.Errorf("a request: %s", got)
	}
	if m.TID != 8 || m.PID != 108 || m.Asked.Run != 800 || m.Tick != 3 || m.At.Asked <= 1e9 || k.b.Asked(2) != 3 || k.c.tracees.out != 0 || k.c.grip.since.Load() != 0 {
		t.Errorf("%v; %d on their way", m, k.c.tracees.out)
	}
	k.p.serve() // what was asked is not asked again
	second := k.ask(0, k.now)
	if got := k.did(); got != "signal 999, interrupt 7" || !k.open(second) || !k.open(m) || second == m {
		t.Errorf("a second request: %s", got)
	}
	k.report(ptrace.Status{TID: 8, Kind: ptrace.KindInterrupt, Raw: interrupted})
	if got := k.did(); got != "cont 8 0" || k.open(m) || !k.open(second) || m.state.Load() != filled {
		t.Errorf("its stop: %s", got)
	}
	if m.Gone || m.Moved || m.Status != interrupted || m.Stopped.Run != 900 || m.Stopped.Wait != 70 || m.Buffer.Regs.N == 0 {
		t.Errorf("%v", m)
	}
	k.report(ptrace.Status{TID: 8, Kind: ptrace.KindInterrupt, Raw: interrupted}) // one that nobody wants
	if got := k.did(); !strings.HasPrefix(got, "cont 8 0") {
		t.Errorf("a stop more: %s", got)
	}
}

// TestKeeperMoved: a thread may have run when it had left the clock's CPU by the request, or the clock may have.
func TestKeeperMoved(t *testing.T) {
	for _, tt := range []struct {
		late, ran int64
		at, cpu   int // where it is at the request, and at the stop
		moved     bool
	}{{399_999, 0, 0, 0, false}, {400_000, 0, 0, 0, true}, {0, settled + 1, 1, 1, true}, {0, settled + 1, 0, 1, false},
		{0, settled, 1, 1, false}, {0, settled + 1, 1, 0, false}} {
		k := keepDesk(t)
		k.step = 0
		wake := k.now
		a := k.actors[7]
		k.yields = func() { k.now, a.cpu = wake+tt.late, tt.at; k.p.serve() }
		m := k.ask(0, wake)
		a.run, a.cpu = 800+tt.ran, tt.cpu
		a.stopped = true
		k.report(ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted})
		if m.Moved != tt.moved || m.At.Asked != wake+tt.late {
			t.Errorf("request after %d ns on CPU %d, ran %d, then on CPU %d: moved %t, want %t", tt.late, tt.at, tt.ran, tt.cpu, m.Moved, tt.moved)
		}
	}
}

// TestKeeperLate: a clock keeps its CPU until the request is pending. If the keeper has not turned to it by 400 µs, it is given up, and the tick
// tried again; if it has, the clock waits for as long again.
func TestKeeperLate(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		k := keepDesk(t)
		k.c.prompt = prompt
		k.step, k.passes = 0, 0
		yields := 0
		k.yields = func() { yields++; k.now += 100 * us }
		if !prompt { // it spins, so that the target does not get the CPU
			k.passes = us
		}
		s, wake := &k.b.slots[0], k.now
		k.c.up.due = wake
		m := k.ask(0, wake)
		if k.now-wake < 400*us || k.now-wake > 402*us || (yields == 4) != prompt || (yields == 0) == prompt {
			t.Errorf("real time %t: waited %d ns for the keeper, yielded %d times", prompt, k.now-wake, yields)
		}
		if m.state.Load() != free || s.holder.Load() != 0 || k.b.Asked(0) >= 3 || k.b.Met(0, 3) != NotMet || k.c.up.again != wake+grid {
			t.Errorf("real time %t: sample in state %d, slot held by %d, asked at %d, again after %d ns", prompt, m.state.Load(), s.holder.Load(), k.b.Asked(0), k.c.up.again-wake)
		}
		k.did()
		if k.p.serve(); k.did() != "" || s.request.Load() != 0 || len(k.p.asked) != 0 {
			t.Errorf("the keeper asks late")
		}
	}
	k := keepDesk(t)
	k.step, k.passes = 0, 0
	wake, s := k.now, &k.b.slots[0]
	k.yields = func() {
		if k.now += 100 * us; k.now == wake+300*us {
			s.request.Store(claimed)
		}
	}
	if m := k.ask(0, wake); k.now != wake+800*us || m.state.Load() != asked {
		t.Errorf("waited %d ns for a request that is being made, its sample is in state %d", k.now-wake, m.state.Load())
	}
	k = keepDesk(t)
	k.c.place.cpu = Anywhere // keeps nobody from its CPU
	wake = k.now
	k.yields = func() { k.now = wake + 400*us }
	m := k.ask(0, wake)
	if k.p.serve(); !k.open(m) || !m.Moved {
		t.Errorf("a request of a clock without a CPU: %v", m)
	}
}

// TestKeeperGone: a thread that has ended cannot be asked.
func TestKeeperGone(t *testing.T) {
	k := keepDesk(t)
	delete(k.actors, 7)
	k.files[71] = "1 1 1\n"
	wake := k.now
	m := k.ask(0, wake)
	if k.now-wake > 100*us {
		t.Errorf("its clock waits for %d ns", k.now-wake)
	}
	if !m.Gone || m.state.Load() != filled || k.open(m) {
		t.Errorf("%v", m)
	}
}

// TestKeeperStops: the answer to each stop, without and with a request that is pending: it is answered by our own stop
// and by a group stop, made again after others, and void after an exec and an end.
func TestKeeperStops(t *testing.T) {
	status := func(event int, sig unix.Signal) uint32 { return uint32(event<<16 | int(sig)<<8 | 0x7f) }
	for _, tt := range []struct {
		name           string
		s              ptrace.Status
		message        uint64
		atExit         bool
		want, wantWith string // what is done
		open, gone     bool   // the request after it
	}{
		{"interrupt", ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted}, 0, false, "cont 7 0", "cont 7 0", false, false},
		{"interrupt, killed since", ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted}, 0, true, "", "", true, false},
		{"group stop", ptrace.Status{TID: 7, Kind: ptrace.KindGroupStop, Raw: groupStop, Signal: unix.SIGTSTP}, 0, false, "listen 7", "listen 7", false, false},
		{"group stop, killed since", ptrace.Status{TID: 7, Kind: ptrace.KindGroupStop, Raw: groupStop}, 0, true, "", "", true, false},
		{"signal", ptrace.Status{TID: 7, Kind: ptrace.KindSignal, Raw: usr1, Signal: unix.SIGUSR1}, 0, false, "cont 7 10", "cont 7 10, interrupt 7", true, false},
		{"signal, at exit", ptrace.Status{TID: 7, Kind: ptrace.KindSignal, Raw: usr1, Signal: unix.SIGUSR1}, 0, true, "cont 7 10", "cont 7 10, interrupt 7", true, false},
		{"clone", ptrace.Status{TID: 7, Kind: ptrace.KindClone, Raw: status(unix.PTRACE_EVENT_CLONE, unix.SIGTRAP)}, 31, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"clone, killed since", ptrace.Status{TID: 7, Kind: ptrace.KindClone}, 0, true, "", "interrupt 7", true, false},
		{"fork", ptrace.Status{TID: 7, Kind: ptrace.KindFork}, 31, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"vfork", ptrace.Status{TID: 7, Kind: ptrace.KindVfork}, 31, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"vfork done", ptrace.Status{TID: 7, Kind: ptrace.KindVforkDone, Raw: vforkDone}, 0, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"other", ptrace.Status{TID: 7, Kind: ptrace.KindOther}, 0, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"call", ptrace.Status{TID: 7, Kind: ptrace.KindSyscall, Raw: usr1}, 0, false, "cont 7 0", "cont 7 0, interrupt 7", true, false},
		{"call, killed since", ptrace.Status{TID: 7, Kind: ptrace.KindSyscall, Raw: usr1}, 0, true, "", "", true, false},
		{"exec", ptrace.Status{TID: 107, Kind: ptrace.KindExec}, 107, false, "replaced 107, cont 107 0", "replaced 107, cont 107 0", true, false},
		{"exec of a thread", ptrace.Status{TID: 107, Kind: ptrace.KindExec}, 7, false, "replaced 107, cont 107 0", "replaced 107, cont 107 0", false, true},
		{"end", ptrace.Status{TID: 7, Kind: ptrace.KindGone}, 0, false, "", "", false, true},
	} {
		for _, with := range []bool{false, true} {
			k := keepDesk(t)
			if tt.message != 0 {
				k.messages[tt.s.TID] = tt.message
			}
			want := tt.want
			var m *Sample
			if with {
				want = tt.wantWith
				m = k.ask(0, k.now)
				k.did()
			}
			k.atExit[tt.s.TID] = tt.atExit
			k.report(tt.s)
			if got := k.did(); got != want {
				t.Errorf("%s, request pending %t: %s, want %s", tt.name, with, got, want)
			}
			if with && (k.open(m) != tt.open || m.Gone != tt.gone) {
				t.Errorf("%s: request pending %t, gone %t", tt.name, k.open(m), m.Gone)
			}
			pids := map[int]int{7: 107, 107: 107, 8: 108, 108: 108}
			var gone []int
			switch {
			case tt.name == "clone":
				pids[31] = 107
			case tt.message == 31:
				pids[31] = 31
			case tt.gone:
				delete(pids, 7)
				gone = []int{7}
			}
			if !maps.Equal(k.p.pids, pids) {
				t.Errorf("%s: threads of processes %v, want %v", tt.name, k.p.pids, pids)
			}
			if _, got, _ := k.p.Ends(); !slices.Equal(got, gone) {
				t.Errorf("%s: gone %v, want %v", tt.name, got, gone)
			}
			if _, got, _ := k.p.Ends(); got != nil {
				t.Errorf("%s: gone %v a second time", tt.name, got)
			}
		}
	}
}

// TestKeeperExec: by an exec, what was asked of the thread that was the leader is void, as is what was asked of
// the caller; other threads' is not.
func TestKeeperExec(t *testing.T) {
	k := keepDesk(t)
	caller, leader, other := k.ask(0, k.now), k.ask(1, k.now), k.ask(2, k.now)
	k.actors[107].stopped = true
	k.messages[107] = 7
	k.report(ptrace.Status{TID: 107, Kind: ptrace.KindExec})
	if k.open(caller) || k.open(leader) || !k.open(other) || !caller.Gone || !leader.Gone || other.Gone {
		t.Errorf("caller: %v\nleader: %v\nother: %v", caller, leader, other)
	}
}

// TestKeeperBegins: what ends before the program runs does not count; it runs when the first process has called exec,
// and will not when that has ended.
func TestKeeperBegins(t *testing.T) {
	begun := func(k *kept) bool {
		select {
		case <-k.p.Begun():
			return true
		default:
			return false
		}
	}
	fresh := func() *kept {
		k := keepDesk(t)
		k.p.runs, k.p.begun = false, make(chan struct{})
		return k
	}
	k := fresh()
	k.messages[108], k.messages[107] = 8, 7
	k.report(ptrace.Status{TID: 7, Kind: ptrace.KindExit})
	if got := k.did(); got != "cont 7 0" {
		t.Errorf("an exit before the program: %s", got)
	}
	k.report(ptrace.Status{TID: 108, Kind: ptrace.KindExec})
	k.report(ptrace.Status{TID: 8, Kind: ptrace.KindGone})
	k.report(ptrace.Status{TID: 108, Kind: ptrace.KindGone, Raw: 1})
	if begun(k) {
		t.Error("it runs since another process has called exec, or ended")
	}
	k.report(ptrace.Status{TID: 107, Kind: ptrace.KindExec})
	if !begun(k) || !slices.Equal(k.replaced, []int{108, 107}) {
		t.Errorf("replaced %v, runs %t", k.replaced, begun(k))
	}
	if exits, gone, full := k.p.Ends(); exits != nil || gone != nil || full != 0 || k.news != 0 {
		t.Errorf("before the program %d exits, gone %v, %d without room", len(exits), gone, full)
	}
	k.report(ptrace.Status{TID: 107, Kind: ptrace.KindExec}) // once more
	k.report(ptrace.Status{TID: 107, Kind: ptrace.KindGone, Raw: 5 << 8})
	for _, pid := range []int{107, 108} {
		if !k.p.End(pid) {
			t.Errorf("process %d has not ended", pid)
		}
	}
	for _, tid := range []int{7, 8, 55} {
		if k.p.End(tid) {
			t.Errorf("thread %d is a process that has ended", tid)
		}
	}
	k = fresh()
	if k.report(ptrace.Status{TID: 107, Kind: ptrace.KindGone, Raw: 9}); !begun(k) {
		t.Error("the first process has ended, and its program is awaited")
	}
	if _, gone, _ := k.p.Ends(); len(gone) != 1 {
		t.Errorf("gone %v at an end in vain", gone)
	}
}

// TestKeeperExits: a thread's stack at its exit, with what is known of it; it goes on whatever happens.
func TestKeeperExits(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, tid := os.Getpid(), unix.Gettid()
	k := keepDesk(t)
	a := k.actors[7]
	k.actors[tid], a.tid = a, tid
	s := ptrace.Status{TID: tid, Kind: ptrace.KindExit}
	for _, known := range []bool{true, false} {
		k.p.pids = map[int]int{}
		if known {
			k.p.pids[tid] = pid
		}
		a.stopped = true
		from, err := (procfs.FS{}).Task(pid, tid).Schedstat()
		if err != nil {
			t.Fatal(err)
		}
		k.report(s)
		to, _ := (procfs.FS{}).Task(pid, tid).Schedstat()
		exits, _, full := k.p.Ends()
		if got := k.did(); got != fmt.Sprintf("cont %d 0", tid) || len(exits) != 1 || full != 0 || k.news != 1 {
			t.Fatalf("%s; %d exits, %d without room, %d news", got, len(exits), full, k.news)
		}
		x := exits[0]
		if x.TID != tid || x.PID != pid || x.At < 1e9 || x.At > k.now || x.Run < from.Run || x.Run > to.Run || x.Buffer.Regs.N == 0 || x.Early != fmt.Sprintf("early %d of %d after []", tid, pid) {
			t.Errorf("thread %d of %d at %d, ran %v, %v", x.TID, x.PID, x.At, x.Run, x.Early)
		}
		k.news = 0
	}
	a.stopped, a.killed = true, true
	k.report(s)
	if exits, _, _ := k.p.Ends(); k.did() != fmt.Sprintf("cont %d 0", tid) || exits != nil || k.news != 0 || k.back != 1 {
		t.Errorf("a thread whose registers cannot be read has an exit, or its room is not given back (%d are)", k.back)
	}
	k.full, k.unwanted, a.stopped = true, true, true
	k.report(s)
	if exits, _, full := k.p.Ends(); k.did() != fmt.Sprintf("cont %d 0", tid) || exits != nil || full != 0 || k.news != 0 {
		t.Errorf("a thread that nobody has asked for has an exit, or lacks room for it (%d do)", full)
	}
	k.unwanted = false
	for n := range int64(2) {
		a.stopped = true
		k.report(s)
		if exits, _, full := k.p.Ends(); k.did() != fmt.Sprintf("cont %d 0", tid) || exits != nil || full != n+1 || k.news != 0 {
			t.Errorf("%d exits without room, want %d", full, n+1)
		}
	}
	if got := processOf(k.p.pids, 1<<30); got != 0 {
		t.Errorf("a thread that does not exist is of process %d", got)
	}
}

// TestKeeperLetsGo: at the end a thread that hears signals is let go at its next one, so that no wait ends for one which was sent
// while it was traced, and is waited for as long as that may take; so is whoever stops by itself, and nobody else is waited for, nor with --no-restart.
func TestKeeperLetsGo(t *testing.T) {
	for _, noRestart := range []bool{false, true} {
		k := keepDesk(t)
		k.b.NoRestart = noRestart
		hears := ptrace.Status{TID: 7, Kind: ptrace.KindSignal, Signal: unix.SIGURG, Raw: uint32(unix.SIGURG)<<8 | 0x7f}
		k.report(hears)
		stops := []ptrace.Status{
			{TID: 8, Kind: ptrace.KindGroupStop, Raw: uint32(unix.PTRACE_EVENT_STOP<<16|int(unix.SIGSTOP)<<8) | 0x7f},
			{TID: 107, Kind: ptrace.KindSignal, Signal: unix.SIGUSR1, Raw: uint32(unix.SIGUSR1)<<8 | 0x7f},
			hears,
		}
		want := "cont 7 23, detach 8 0, detach 107 10, detach 7 23"
		if noRestart {
			stops, want = stops[:2], "cont 7 23, detach 8 0, detach 107 10"
		}
		turns := 0
		k.p.letGo(func() (came bool) {
			if turns++; turns%2 == 1 || len(stops) == 0 { // none comes at once
				return noRestart && len(stops) > 0
			}
			k.report(stops[0])
			stops = stops[1:]
			return true
		})
		if got := k.did(); got != want || len(stops) > 0 || turns > 7 {
			t.Errorf("noRestart %t: %s after %d turns, want %s", noRestart, got, turns, want)
		}
		for _, heard := range []bool{false, true} {
			k := keepDesk(t)
			k.b.NoRestart = noRestart
			if heard {
				k.report(hears)
			}
			want, turns := 1, 0
			if heard && !noRestart {
				want = lastStops / keeperTick
			}
			k.step, k.passes = 0, 0
			if k.p.letGo(func() bool { turns++; k.now += keeperTick; return false }); turns != want {
				t.Errorf("noRestart %t, heard %t: nobody stops, it ends after %d turns, want %d", noRestart, heard, turns, want)
			}
		}
	}
}

func TestKeeperOptions(t *testing.T) {
	k := keepDesk(t)
	if got := k.p.options(); got != unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_TRACESYSGOOD {
		t.Errorf("options %#x", got)
	}
	k.p.opt.Children = true
	if got := k.p.options(); got != unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_TRACEEXIT|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACEFORK|unix.PTRACE_O_TRACEVFORK {
		t.Errorf("options %#x with children", got)
	}
}

// The test binary is also the process that is kept, told apart by argv[0].
const (
	targetName = "clocks-target"
	parentName = "clocks-parent" // has a target for its child
	spinName   = "clocks-spin"   // computes as long as it has its parent
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case targetName:
		target()
	case spinName:
		fmt.Println("ready")
		for x, parent := uint64(1), os.Getppid(); os.Getppid() == parent; { // the tests may be killed
			for range 1 << 26 {
				x ^= x << 13
				x ^= x >> 7
				x ^= x << 17
			}
		}
		os.Exit(0)
	case parentName:
		child := &exec.Cmd{Path: "/proc/self/exe", Args: []string{targetName}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		child.Run()
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// target tells that it runs, waits for a line, has a thread end, and ends with status 3.
func target() {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	<-ptrace.OnThread(func() {})
	os.Exit(3)
}

// counted is this machine's kernel, with counts of what a keeper does when it has nobody.
type counted struct {
	taking.Live
	now          int64 // as last told
	alone, slept int
	odd          int64 // a sleep of another length than a millisecond
}

func (k *counted) Now() int64 {
	k.now = k.Live.Now()
	return k.now
}

func (k *counted) Report() (ptrace.Status, bool, error) {
	s, ok, err := k.Live.Report()
	if err == unix.ECHILD {
		k.alone++
	}
	return s, ok, err
}

func (k *counted) Sleep(until int64) {
	if k.slept++; until-k.now != 1e6 {
		k.odd = until - k.now
	}
	k.Live.Sleep(until)
}

// TestKeep keeps a real process: all its threads are tracees, each that ends leaves a stack, and the end of the
// process is told; with the keeper they are let go.
func TestKeep(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer func() { runtime.GOMAXPROCS(procs) }()
	for _, launch := range []bool{false, true} {
		cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{targetName}, Stderr: os.Stderr}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		pid := testprog.StartCmd(t, cmd).PID
		board := NewBoard(1, ptrace.Now(), 1e9)
		news, launched := make(chan struct{}, 1000), false
		o := KeeperOptions{
			PIDs:     []int{pid},
			Unwanted: func(int) bool { return false },
			Room: func(tid int) (*taking.Buffer, taking.Advice) {
				return &taking.Buffer{Regs: taking.Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: taking.Copy{Room: make([]byte, taking.FPRegsBytes)}, Stack: taking.Copy{Room: make([]byte, 4096)}}, taking.Advice{}
			},
			Replaced: func(int) {}, Early: func(pid, tid int) any { return nil }, News: func() { news <- struct{}{} },
		}
		if launch {
			o.Launch = func() { launched = board.keeper.Load() != 0 }
		}
		kernel := new(counted)
		p, err := Keep(kernel, board, o)
		if errors.Is(err, unix.EPERM) {
			t.Skip("processes may not be traced here")
		}
		if err != nil {
			t.Fatal(err)
		}
		keeper := int(board.keeper.Load())
		ids, err := (procfs.FS{}).TaskIDs(pid)
		if err != nil || len(ids) < 2 {
			t.Fatalf("threads %v: %v", ids, err)
		}
		for _, tid := range ids {
			st, err := (procfs.FS{}).Status(tid)
			if err != nil || keeper == 0 || st.TracerPid != keeper {
				t.Errorf("thread %d is traced by %d, want %d: %v", tid, st.TracerPid, keeper, err)
			}
		}
		if !launch {
			<-p.Begun()
		}
		// A clock asks for a stop of its first thread, which waits in a system call.
		slot := board.Put(Thread{TID: pid, PID: pid, Sched: -1, Stat: -1, Debug: -1, Pages: -1})
		c := &Clock{who: 1, board: board, k: new(taking.Live), tracees: tracees{samples: make([]Sample, 1)}}
		m := &c.tracees.samples[0]
		m.Buffer.Regs.Room, m.Buffer.FPRegs.Room, m.Buffer.Stack.Room = make([]byte, regs.PrstatusMaxBytes), make([]byte, taking.FPRegsBytes), make([]byte, 4096)
		board.clocks[1].Store(c)
		await(t, "the keeper's answer to a request", func() bool {
			if m.state.Load() == free { // for the first time, or the keeper came too late
				board.slots[slot].take(1)
				c.ask(&board.slots[slot], &pick{slot: slot}, 0, ptrace.Now())
			}
			return m.state.Load() == filled
		})
		if m.Gone || m.Status != interrupted || m.Buffer.Stack.N == 0 || !board.Remove(slot) {
			t.Errorf("%v, %d bytes of the stack", m, m.Buffer.Stack.N)
		}
		in.Write([]byte("\n"))
		deadline := time.After(10 * time.Second)
		var exits []Exit
		var gone []int
		for !p.End(pid) {
			select {
			case <-news:
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatal("its end is not told")
			}
		}
		x, g, _ := p.Ends()
		exits, gone = append(exits, x...), append(gone, g...)
		if launch { // it has never called exec: its end is all there is to tell
			if <-p.Begun(); len(exits) != 0 || !slices.Equal(gone, []int{pid}) || !launched {
				t.Errorf("%d exits, gone %v before the program; launched %t", len(exits), gone, launched)
			}
		} else {
			for _, x := range exits {
				// One that has just been born may never have touched its stack.
				if x.PID != pid || x.Buffer.Regs.N == 0 || x.Buffer.Stack.N == 0 && slices.Contains(ids, x.TID) || !slices.Contains(gone, x.TID) {
					t.Errorf("thread %d of %d has left %d bytes of registers and %d of its stack; gone %v", x.TID, x.PID, x.Buffer.Regs.N, x.Buffer.Stack.N, gone)
				}
			}
			if len(exits) < len(ids) || !slices.Contains(gone, pid) {
				t.Errorf("%d exits of at least %d, gone %v", len(exits), len(ids), gone)
			}
		}
		p.Close()
		if kernel.slept != kernel.alone || kernel.odd != 0 {
			t.Errorf("%d times without a thread it slept %d times, once for %d ns; want 1 ms each time", kernel.alone, kernel.slept, kernel.odd)
		}
		if board.keeper.Load() != 0 {
			t.Error("the board has a keeper that has ended")
		}
		if unix.Tgkill(os.Getpid(), keeper, 0) == nil {
			t.Error("the keeper's thread lives")
		}
	}
	if got := runtime.GOMAXPROCS(0); got != procs+2*spareProcs {
		t.Errorf("%d processors for Go, want %d more than %d for each keeper", got, spareProcs, procs)
	}
}

// TestKeepNobody: a process that is not there cannot be kept.
func TestKeepNobody(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	board := NewBoard(1, 0, 1)
	p, err := Keep(new(taking.Live), board, KeeperOptions{PIDs: []int{1 << 30}})
	if err == nil || !strings.Contains(err.Error(), "list the threads of 1073741824") || board.keeper.Load() != 0 {
		t.Errorf("error %v, keeper %d", err, board.keeper.Load())
	}
	p.Close()
}
