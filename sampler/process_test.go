package sampler

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/watch"
)

// TestFewFiles: a thread of which no file can be opened for want of descriptors is not taken for one that
// has exited.
func TestFewFiles(t *testing.T) {
	tasks, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	th := newThread(&process{mem: memory{tasks: tasks}}, os.Getpid())
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: lim.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = th.schedstat(make([]byte, 512))
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); back != nil {
		t.Fatal(back)
	}
	if err != unix.EMFILE {
		t.Errorf("%v, want %v", err, unix.EMFILE)
	}
	th.tid = 1 << 30
	if _, err = th.schedstat(make([]byte, 512)); err != unix.ESRCH {
		t.Errorf("of no thread: %v, want %v", err, unix.ESRCH)
	}
}

// TestSwitches: where the kernel keeps no run counts, what stands in for them tells who has not run.
func TestSwitches(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	tasks, err := unix.Open(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	th := newThread(&process{mem: memory{tasks: tasks}, uncounted: true}, cmd.Process.Pid)
	echo := func() {
		if _, err := io.WriteString(in, "x\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() (s procfs.Schedstat) { // until it is back in read
		for {
			call, err := th.syscall(make([]byte, 512))
			if err != nil {
				t.Fatal(err)
			}
			if !call.Running {
				if s, err = th.schedstat(make([]byte, 512)); err != nil {
					t.Fatal(err)
				}
				return s
			}
			runtime.Gosched()
		}
	}
	echo()
	before := waits()
	for range 3 {
		if s, err := th.schedstat(make([]byte, 512)); err != nil || s.Count != before.Count || s.Count == 0 {
			t.Errorf("it has not run: %+v, then %+v, %v", before, s, err)
		}
	}
	echo()
	if after := waits(); after.Count == before.Count {
		t.Errorf("it has run: %+v as before", after)
	}
}

// TestCountsRuns: the probe of the run counts; zeros and no file are none.
func TestCountsRuns(t *testing.T) {
	if !countsRuns(procfs.FS{}) {
		t.Skip("this kernel keeps no run counts")
	}
	root := t.TempDir()
	if countsRuns(procfs.FS{Root: root}) {
		t.Error("counts without a file")
	}
	dir := fmt.Sprintf("%s/%d/task/%d", root, os.Getpid(), os.Getpid())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/schedstat", []byte("0 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if countsRuns(procfs.FS{Root: root}) {
		t.Error("0 is a count")
	}
}

// TestLate: the ticks that had passed when a thread was found blocked are unsure, and none behind what is to be credited is
// given away: a clock may have met the thread there.
func TestLate(t *testing.T) {
	for _, tt := range []struct{ credit, idle, unsure, owed int64 }{{9, 0, 0, 21}, {10, 1, 0, 20}, {12, 1, 2, 18}, {15, 1, 5, 15}, {20, 6, 5, 10}} {
		ac := &accounts{book: ledger.NewBook(), out: new(outlet)}
		p := &process{}
		th := &thread{proc: p}
		ac.book.Advance(9)
		ac.book.Open(&th.line, 0)
		ac.book.Advance(30)
		th.sleeps(10, procfs.Schedstat{Count: 1})
		th.late = 15
		ac.creditIdle(th, tt.credit)
		a := ac.book.Account()
		if a.Count[ledger.Idle] != tt.idle || a.Count[ledger.Unsure] != tt.unsure || ac.book.Owed(&th.line, 30) != tt.owed {
			t.Errorf("credited up to %d: %v, %d owed; want %+v", tt.credit, &a, ac.book.Owed(&th.line, 30), tt)
		}
		ac.creditIdle(th, 30)
		if a = ac.book.Account(); a.Count[ledger.Unsure] != 5 || a.Sum() != 21 {
			t.Errorf("credited up to %d and 30: %v", tt.credit, &a)
		}
	}
}

// TestUnsure: of ticks between two looks, in which a thread ran nobody knows when, as many are unsure as its CPU time stands for, and what is less than a
// tick counts with the next; of blocked threads' stacks each tick is.
func TestUnsure(t *testing.T) {
	const tick = int64(10 * time.Millisecond)
	for _, tt := range []struct {
		all  bool
		ran  time.Duration // between two looks, of five ticks each
		want []int64       // of how many ticks in all
	}{
		{false, 100 * time.Microsecond, []int64{0, 0, 0}},
		{false, 4 * time.Millisecond, []int64{0, 0, 1, 1, 2}},
		{false, 25 * time.Millisecond, []int64{2, 5, 7, 10}},
		{false, 50 * time.Millisecond, []int64{4, 8}}, // the tick of a look is not among those before
		{true, 100 * time.Microsecond, []int64{4, 8}},
	} {
		ac := &accounts{opt: &Options{All: tt.all}, ticks: &ticks{interval: tick}, book: ledger.NewBook(), out: new(outlet), load: &load{both: clocks.Every}}
		th := &thread{proc: &process{watch: watch.NewProcess(0, watch.Timing{Interval: time.Duration(tick)}, 0)}, slot: -1}
		ac.book.Open(&th.line, 0)
		var n int64
		var s procfs.Schedstat
		for _, want := range tt.want {
			ac.book.Advance(n)
			ac.book.Give(&th.line, n, ledger.Idle)
			s.Count++
			th.sleeps(n, s)
			n += 5
			ac.book.Advance(n)
			s.Run += tt.ran
			ac.unsure(th, n, s.Run)
			if a := ac.book.Account(); a.Count[ledger.Unsure] != want || ac.book.Owed(&th.line, n) != 1 {
				t.Errorf("%+v: %d ticks are unsure up to tick %d, and %d owed, want %d and 1", tt, a.Count[ledger.Unsure], n, ac.book.Owed(&th.line, n), want)
			}
		}
	}
}

// TestRan: of the ticks at which a thread ran, as many as its run time stands for, those that were left out are told as such first.
func TestRan(t *testing.T) {
	const tick = int64(time.Millisecond)
	for _, tt := range []struct {
		stride                  clocks.Stride
		ran                     []time.Duration // each in eight ticks
		throttled, unmet, doubt int64
	}{
		{clocks.Every, []time.Duration{8 * time.Millisecond}, 0, 8, 0},
		{2 * clocks.Every, []time.Duration{8 * time.Millisecond}, 4, 4, 0},
		{2 * clocks.Every, []time.Duration{3 * time.Millisecond}, 3, 0, 0},
		{2 * clocks.Every, []time.Duration{600 * time.Microsecond, 600 * time.Microsecond}, 1, 0, int64(200 * time.Microsecond)},
		{4 * clocks.Every, []time.Duration{20 * time.Millisecond}, 6, 2, 4 * tick}, // more than it owes
	} {
		ac := &accounts{ticks: &ticks{interval: tick}, book: ledger.NewBook(), load: &load{both: tt.stride}}
		th, n := new(thread), int64(0)
		ac.book.Advance(n)
		ac.book.Open(&th.line, 0)
		for _, ran := range tt.ran {
			n += 8
			ac.book.Advance(n)
			ac.ran(th, n, ran, ledger.Unmet)
			ac.book.Give(&th.line, n, ledger.Idle)
		}
		if a := ac.book.Account(); a.Count[ledger.Throttled] != tt.throttled || a.Count[ledger.Unmet] != tt.unmet || int64(th.queue.doubt) != tt.doubt {
			t.Errorf("%+v: %d throttled, %d not met, and %v more", tt, a.Count[ledger.Throttled], a.Count[ledger.Unmet], th.queue.doubt)
		}
	}
}

// holding is a board of which a clock holds each thread, and has asked it at a tick.
type holding struct {
	board
	asked int64
}

func (holding) Holds(int, int64) bool { return true }
func (h holding) Asked(int) int64     { return h.asked }

// TestStandsNoMore: a thread that was let go since it was found not to run has not blocked, if the sample is still to come.
func TestStandsNoMore(t *testing.T) {
	p := testprog.Start(t, spinnersProg(t), "1")
	ids, err := proc.TaskIDs(p.PID)
	if err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	tasks, err := unix.Open(fmt.Sprintf("/proc/%d/task", p.PID), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	l := bareEngine(Options{}).looks
	th := newThread(&process{pid: p.PID, mem: memory{tasks: tasks}}, ids[1])
	th.slot = 0
	l.book.Open(&th.line, 0)
	l.book.Advance(8)
	l.book.Give(&th.line, 4, ledger.Idle)
	for asked, want := range map[int64]bool{4: false, 5: true, 8: true} {
		l.listing.board = holding{asked: asked}
		if got := l.stands(th, 8); got != want {
			t.Errorf("asked at tick %d, of which 5 to 8 are owed: stands %t", asked, got)
		}
	}
}

// TestStands: a thread that is stopped for us has not blocked, whichever call it stands in.
func TestStands(t *testing.T) {
	other := startWaiting(t)
	tasks, err := unix.Open(fmt.Sprintf("/proc/%d/task", other.PID), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	l := bareEngine(Options{}).looks
	l.listing.board = holding{asked: -1}
	th := newThread(&process{pid: other.PID, mem: memory{tasks: tasks}}, other.PID)
	th.slot = 0
	if l.stands(th, 0) {
		t.Error("a thread that is blocked in a call counts as stopped")
	}
	stopped, end := make(chan error), make(chan struct{})
	done := ptrace.OnThread(func() {
		errno := ptrace.RawSeize(other.PID)
		if errno == 0 {
			errno = ptrace.RawInterrupt(other.PID)
		}
		for who := 0; who == 0 && (errno == 0 || errno == unix.EINTR); {
			who, _, errno = ptrace.RawWait(other.PID, true)
		}
		if errno != 0 {
			stopped <- errno
			return
		}
		stopped <- nil
		<-end
		ptrace.RawDetach(other.PID, 0)
	})
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if !l.stands(th, 0) {
		t.Error("a thread that is stopped for us counts as blocked")
	}
	th.slot = -1
	if l.stands(th, 0) {
		t.Error("a thread that no clock of ours may stop counts as stopped for us")
	}
	close(end)
	<-done
}

// TestAhead: CPU time that was counted at a round's end for a thread that nobody had listed yet is not counted again.
func TestAhead(t *testing.T) {
	other := startWaiting(t)
	tasks, err := unix.Open(fmt.Sprintf("/proc/%d/task", other.PID), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	for _, ahead := range []time.Duration{0, 1, time.Hour} {
		w := bareEngine(Options{Stop: StopNever}).news
		p := &process{pid: other.PID, mem: memory{tasks: tasks, pages: -1}, cpu: charges{ahead: ahead}}
		if !w.addThread(p, other.PID, true) {
			t.Fatal("the thread is not there")
		}
		th := w.roster.threads[other.PID]
		s, err := th.schedstat(make([]byte, 256))
		if err != nil {
			t.Fatal(err)
		}
		run := th.line.Run()
		if p.cpu.ahead != ahead-run || run > s.Run || run < min(ahead, s.Run/2) {
			t.Errorf("%v are counted: %v of %v stand for the thread, %v are left", ahead, run, s.Run, p.cpu.ahead)
		}
		w.files.close(th)
	}
}

// TestRemedy: who lacks CAP_SYS_PTRACE is not told that it is not enough.
func TestRemedy(t *testing.T) {
	capable := procfs.FS{}.Permission(os.Getpid()).Capable
	if got := Remedy(os.Getpid()); strings.Contains(got, "CAP_SYS_PTRACE is not enough") != capable {
		t.Errorf("with CAP_SYS_PTRACE: %t; %q", capable, got)
	}
}
