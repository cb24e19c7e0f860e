package clocks

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/taking"
)

// onRegs is a script that says when registers are read, and which threads go on when.
type onRegs struct {
	*script
	read func()
	went map[int]int64
}

func (k *onRegs) Regs(tid, note int, buf []byte) (int, unix.Errno) {
	k.read()
	return k.script.Regs(tid, note, buf)
}

func (k *onRegs) Cont(tid, sig int) unix.Errno {
	errno := k.script.Cont(tid, sig)
	k.went[tid] = k.now
	return errno
}

func (k *onRegs) Listen(tid int) unix.Errno {
	errno := k.script.Listen(tid)
	k.went[tid] = k.now
	return errno
}

// TestKeeperHolds: as long as the keeper reads of a thread that has stopped the board tells who holds which thread, and since when, and no longer. A sample's thread
// is let go when it goes on.
func TestKeeperHolds(t *testing.T) {
	own := ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted}
	for _, tt := range []struct {
		name string
		s    ptrace.Status
		asks bool
	}{
		{"a stop that nobody wants", own, false},
		{"a signal", ptrace.Status{TID: 7, Kind: ptrace.KindSignal, Raw: usr1, Signal: unix.SIGUSR1}, false},
		{"a request", own, true},
		{"a request, and its process is stopped", ptrace.Status{TID: 7, Kind: ptrace.KindGroupStop, Raw: groupStop, Signal: unix.SIGTSTP}, true},
		{"an exit", ptrace.Status{TID: 7, Kind: ptrace.KindExit}, false},
	} {
		k := keepDesk(t)
		var m *Sample
		if tt.asks {
			m = k.ask(0, k.now)
		}
		looks, begun := 0, k.now
		look := func() {
			looks++
			list := k.b.Held(nil)
			if len(list) != 1 || list[0].By != 999 || list[0].TID != 7 || list[0].Since < begun || list[0].Since > k.now {
				t.Errorf("%s: %v are held, want thread 7 by 999, since %d to %d", tt.name, list, begun, k.now)
			}
		}
		kernel := &onRegs{k.script, look, map[int]int64{}}
		k.p.k = kernel
		k.p.opt.Early = func(int, int) any { look(); return nil }
		k.report(tt.s)
		if list := k.b.Held(nil); looks == 0 || len(list) != 0 || k.b.kept.tid.Load() != 0 {
			t.Errorf("%s: %d looks, then %v are held", tt.name, looks, list)
		}
		if m != nil && (m.At.Released < kernel.went[7] || m.At.Released > m.At.End || m.At.Stopped >= kernel.went[7]) {
			t.Errorf("%s: it goes on at %d, its sample says %d", tt.name, kernel.went[7], m.At.Released)
		}
	}
}

// seizing is a kernel that has seized whom it was asked to, but for some, by process.
type seizing struct {
	*script
	seized  map[int]int // by thread
	options int
	tries   int
	refuses int
	ended   []ptrace.Status
}

func (k *seizing) SeizeIn(pid, tid, options int) (ended []ptrace.Status, err error) {
	if k.alarm != k.now+heldAtMost {
		k.t.Errorf("thread %d is seized with an alarm at %d, at %d", tid, k.alarm, k.now)
	}
	if k.seized[tid] != 0 {
		k.t.Errorf("thread %d is seized twice", tid)
	}
	k.tries++
	ended, k.ended = k.ended, nil
	if pid == k.refuses {
		return ended, unix.EPERM
	}
	k.seized[tid], k.options = pid, options
	return ended, nil
}

// threadsOf are the threads of a process, by their ids.
func threadsOf(t *testing.T, pid int) map[int]int {
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]int{}
	for _, tid := range ids {
		all[tid] = pid
	}
	return all
}

// family starts a process with a child. done ends both.
func family(t *testing.T) (top, child int, done func()) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{parentName}, Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	top = testprog.StartCmd(t, cmd).PID
	for tid := range threadsOf(t, top) {
		if list, err := (procfs.FS{}).Task(top, tid).Children(); err != nil {
			t.Fatal(err)
		} else if len(list) > 0 {
			child = list[0]
		}
	}
	if child == 0 {
		t.Fatal("it has no child")
	}
	return top, child, func() { in.Close() }
}

// TestKeeperChildren: all threads of processes are held, and those of their children and of theirs, each once; who may not be traced is left out.
func TestKeeperChildren(t *testing.T) {
	top, child, done := family(t)
	defer done()
	own := os.Getpid()
	keeper := func(held map[int]int, refuses int) (*seizing, *Keeper) {
		k := &seizing{script: newScript(t), seized: map[int]int{}, refuses: refuses}
		k.step, k.passes = 0, 0
		p := newKeeper(k, NewBoard(1, 0, 1), KeeperOptions{PIDs: []int{own}, Children: true})
		maps.Copy(p.pids, held)
		return k, p
	}
	has := func(set map[int]int, pid int) bool { return set[pid] == pid }
	for _, tt := range []struct {
		name       string
		of         int
		held       map[int]int
		refuses    int
		top, child bool
	}{
		{"of its parent's parent", own, nil, 0, true, true},
		{"of its parent", top, nil, 0, false, true},
		{"of itself", child, nil, 0, false, false},
		{"held before", top, map[int]int{child: child}, 0, false, false},
		{"refused", top, nil, child, false, false},
		{"ended", 1 << 30, nil, 0, false, false},
	} {
		k, p := keeper(tt.held, tt.refuses)
		p.seizeChildren(nil, tt.of)
		if has(k.seized, top) != tt.top || has(k.seized, child) != tt.child || has(k.seized, own) {
			t.Errorf("%s: seized %v", tt.name, k.seized)
		}
		if tt.held == nil && !maps.Equal(k.seized, p.pids) {
			t.Errorf("%s: seized %v, and holds %v", tt.name, k.seized, p.pids)
		}
		if len(k.seized) > 0 && k.options != p.options() {
			t.Errorf("%s: seized with %#x", tt.name, k.options)
		}
	}
	// All its threads, but who is held already; what ends meanwhile is answered.
	tids := threadsOf(t, top)
	k, p := keeper(map[int]int{top: top, 8: 108}, 0)
	k.ended = []ptrace.Status{{TID: 8, Kind: ptrace.KindGone}}
	if err := p.seizeAll(nil, top); err != nil {
		t.Fatal(err)
	}
	for tid := range tids {
		if (k.seized[tid] == top) != (tid != top) || p.pids[tid] != top {
			t.Errorf("thread %d of %v: seized for %d, held for %d", tid, tids, k.seized[tid], p.pids[tid])
		}
	}
	if p.pids[8] != 0 {
		t.Error("a thread that has ended while others were seized is held")
	}
	// Nobody may be traced: that is no error, and is not tried again where nobody else is found.
	if k, p = keeper(nil, top); p.seizeAll(nil, top) != nil || len(p.pids) != 0 || k.tries < len(tids) || k.tries > 2*len(tids) {
		t.Errorf("a process of %d threads that may not be traced: %v, after %d seizes", len(tids), p.pids, k.tries)
	}
}

// TestKeepFamily keeps real processes: the children that a process has made are held if that is wanted.
func TestKeepFamily(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer func() { runtime.GOMAXPROCS(procs) }()
	top, child, done := family(t)
	defer done()
	timers, _ := resources(t)
	for _, children := range []bool{true, false} {
		board := NewBoard(1, ptrace.Now(), 1e9)
		p, err := Keep(new(taking.Live), board, KeeperOptions{PIDs: []int{top}, Children: children, Unwanted: func(int) bool { return true }, Replaced: func(int) {}, News: func() {}})
		if errors.Is(err, unix.EPERM) {
			return // as TestKeep tells
		}
		if err != nil {
			t.Fatal(err)
		}
		keeper := int(board.keeper.Load())
		want := map[int]int{top: keeper, child: 0}
		if children {
			want[child] = keeper
		}
		for pid, by := range want {
			if st, err := (procfs.FS{}).Status(pid); err != nil || st.TracerPid != by || keeper == 0 {
				t.Errorf("children are wanted: %t; process %d is traced by %d, want %d: %v", children, pid, st.TracerPid, by, err)
			}
		}
		p.Close()
		<-p.ended
	}
	if now, _ := resources(t); now > timers {
		t.Errorf("%d timers; before the keepers there were %d", now, timers)
	}
}

// turning is a script of reports, one each turn.
type turning struct {
	*script
	reports []report
}

type report struct {
	s   ptrace.Status
	ok  bool
	err error
}

func (k *turning) Report() (ptrace.Status, bool, error) {
	r := k.reports[0]
	k.reports = k.reports[1:]
	return r.s, r.ok, r.err
}

// TestKeeperTurn: at each turn requests are made, and one report is answered if one comes within a millisecond; without tracees it sleeps for as long.
func TestKeeperTurn(t *testing.T) {
	usr := ptrace.Status{TID: 8, Kind: ptrace.KindSignal, Raw: usr1, Signal: unix.SIGUSR1}
	for _, tt := range []struct {
		name  string
		r     report
		came  bool
		want  string
		sleep bool
	}{
		{"a report", report{usr, true, nil}, true, "interrupt 7, cont 8 10", false},
		{"none", report{usr, false, nil}, false, "interrupt 7", false},
		{"an error", report{usr, false, unix.EINVAL}, false, "interrupt 7", false},
		{"nobody", report{usr, false, unix.ECHILD}, false, "interrupt 7", true},
	} {
		k := keepDesk(t)
		k.step, k.passes = 0, 0
		k.p.k = &turning{k.script, []report{tt.r}}
		k.yields = func() { k.now += 100 * us }
		k.c.place.cpu = Anywhere // waits for the keeper, and the request stays
		k.ask(0, k.now)
		k.did()
		k.delay = func() int64 { return 0 }
		begun := k.now
		if came := k.p.turn(nil); came != tt.came || k.did() != tt.want {
			t.Errorf("%s: one has come: %t", tt.name, came)
		}
		if k.alarm != begun+1e6 || len(k.sleeps) > 1 || (len(k.sleeps) == 1 && k.sleeps[0] == begun+1e6) != tt.sleep {
			t.Errorf("%s: alarm after %d ns, sleeps %v", tt.name, k.alarm-begun, k.sleeps)
		}
	}
}

// TestKeeperGoesOn: a thread goes on traced, or, at the end, without us; one that was killed then is not forgotten: its end is to come.
func TestKeeperGoesOn(t *testing.T) {
	for _, tt := range []struct {
		leaves, killed bool
		want           string
		known          bool
	}{{false, false, "cont 7 10", true}, {true, false, "detach 7 10", false}, {true, true, "detach 7 10", true}} {
		k := keepDesk(t)
		k.p.waits.of(7)
		if tt.leaves {
			k.p.phase.Store(leaves)
		}
		k.actors[7].killed = tt.killed
		k.p.goOn(7, 10)
		if got := k.did(); got != tt.want || (k.p.waits.marks[7] != nil) != tt.known {
			t.Errorf("%+v: %s, known %t", tt, got, k.p.waits.marks[7] != nil)
		}
	}
}

// TestKeeperReborn: a process that has the id of one that has ended has not ended.
func TestKeeperReborn(t *testing.T) {
	for kind, ended := range map[ptrace.Kind]bool{ptrace.KindFork: false, ptrace.KindVfork: false, ptrace.KindClone: true} {
		k := keepDesk(t)
		k.report(ptrace.Status{TID: 108, Kind: ptrace.KindGone})
		if !k.p.End(108) {
			t.Fatal("a process has not ended")
		}
		k.messages[7] = 108
		if k.report(ptrace.Status{TID: 7, Kind: kind}); k.p.End(108) != ended {
			t.Errorf("born by %d: ended %t", kind, !ended)
		}
	}
}

// TestKeepError: what hinders Keep is told.
func TestKeepError(t *testing.T) {
	k := &seizing{script: newScript(t), seized: map[int]int{}}
	p := newKeeper(k, NewBoard(1, 0, 1), KeeperOptions{})
	err := p.seizeAll(nil, 1<<30)
	if got := fmt.Sprint(err); got != "list the threads of 1073741824: "+fmt.Sprint(errors.Unwrap(err)) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
