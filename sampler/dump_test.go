package sampler

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// TestDumpLetsGo: who is copied for a dump is nobody's tracee any more when its stack is unwound, and is stopped then if it was so before.
func TestDumpLetsGo(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		cmd := targetCmd("nothing") // waits for its input
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		p := testprog.StartCmd(t, cmd)
		if stopped {
			p.Signal(t, syscall.SIGSTOP)
			if err := unix.Waitid(unix.P_PID, p.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
		}
		th := &ThreadDump{PID: p.PID, TID: p.PID, NR: -1, fb: new(Feedback)}
		pages := proc.OpenPagemap(p.PID)
		defer pages.Close()
		d := &dumper{opt: Options{PIDs: []int{p.PID}}, pipe: testPipeline(new(byFunction)), threads: []*ThreadDump{th},
			pages: map[int]procfs.Pagemap{p.PID: pages}, kernels: map[int]*wary{p.PID: {pages: pages}}, bufs: make([]taking.Buffer, 1)}
		if !d.stopSome(p.PID, d.threads) || len(d.taken) != 1 || th.stack != nil {
			t.Errorf("stopped %t: %d captures wait to be unwound, want 1; unwound: %t", stopped, len(d.taken), th.stack != nil)
		}
		if s, serr := proc.Status(p.PID); serr != nil || s.TracerPid != 0 {
			t.Errorf("stopped %t: traced by %d (%v) when its stack is to be unwound", stopped, s.TracerPid, serr)
		}
		d.unwind(d.taken)
		if th.Taken != capture.Stopped.String() || th.stack == nil || len(th.stack.frames) == 0 {
			t.Errorf("stopped %t: no stack (%s)", stopped, th.Taken)
		}
		state := byte(0)
		for end := time.Now().Add(testprog.Patience); (state == 'T') != stopped && time.Now().Before(end); { // it goes back to its stop
			st, err := proc.Task(p.PID, p.PID).Stat()
			if err != nil {
				t.Fatal(err)
			}
			state = st.State
		}
		if (state == 'T') != stopped {
			t.Errorf("stopped %t: left in state %c", stopped, state)
		}
		d.pages[p.PID].Close()
		d.pipe.targets.closeAll()
		p.Kill()
	}
}

// TestDumpStarved: a thread of real-time priority that does not leave its CPU holds up neither a dump nor the other threads.
func TestDumpStarved(t *testing.T) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
	var denied error
	<-ptrace.OnThread(func() { denied = unix.SchedSetAttr(0, &fifo, 0) })
	switch {
	case denied != nil:
		t.Skip("no real-time priority is allowed: ", denied)
	case cpus.Count() < 2:
		t.Skip("one CPU on this machine")
	}
	const most, still = 2 * time.Second, time.Second
	p := testprog.Start(t, testprog.Compile(t, []string{"-O1", "-pthread"}, "dumped.c"), "starve")
	// Without priority a thread of ours that wakes up on that CPU may wait for a second (sched_rt_runtime_us, sched(7)), again and again.
	all := cpus
	cpus.Clear(slices.Max(allowed(&cpus)))
	bindAll(t, &cpus)
	defer bindAll(t, &all)
	begun := time.Now()
	if _, err := Dump(Options{PIDs: []int{p.PID}}, testPipeline(new(byFunction))); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > most {
		t.Errorf("the dump took %v, want %v at most", took, most)
	}
	line := p.Line(t)
	if ms, err := strconv.Atoi(line); err != nil || time.Duration(ms)*time.Millisecond > still {
		t.Errorf("a thread on another CPU stood still for %q ms, want %v at most", line, still)
	}
	ids, err := proc.TaskIDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range ids {
		var theirs unix.CPUSet
		if unix.SchedGetaffinity(tid, &theirs) == nil && theirs != cpus {
			t.Errorf("thread %d is bound to %d CPUs", tid, theirs.Count())
		}
		if attr, err := unix.SchedGetAttr(tid, 0); err == nil && attr.Policy != unix.SCHED_NORMAL && attr.Policy != unix.SCHED_BATCH { // that of who unwinds
			t.Errorf("thread %d has policy %d", tid, attr.Policy)
		}
	}
}

// allowed lists the CPUs of a set.
func allowed(cpus *unix.CPUSet) (list []int) {
	for cpu := range 64 * len(cpus) {
		if cpus.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// bindAll binds all threads of the test, and so those that they make.
func bindAll(t *testing.T, cpus *unix.CPUSet) {
	t.Helper()
	ids, err := proc.TaskIDs(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range ids {
		unix.SchedSetaffinity(tid, cpus) // it may have ended
	}
}

// TestDumpIgnoredSignals: signals that a program ignores end no call while it is dumped, whether its threads are stopped or not.
func TestDumpIgnoredSignals(t *testing.T) {
	if !ptrace.Reverts {
		t.Skip("no EINTR is taken back here")
	}
	p := testprog.Start(t, testprog.Compile(t, []string{"-O1", "-pthread"}, "dumped.c"), "ignored")
	taken := map[string]int{}
	for range 20 {
		got, err := Dump(Options{PIDs: []int{p.PID}}, testPipeline(new(byFunction)))
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range got.Threads {
			taken[th.Taken]++
		}
	}
	var eintr, cut, waits int
	line := p.Finish(t)[0]
	if _, err := fmt.Sscan(line, &eintr, &cut, &waits); err != nil || eintr > 0 || cut > 0 && showsStacks() || waits == 0 {
		t.Errorf("%d of %d waits have returned EINTR, and %d draws less than they were to (%q, %v)", eintr, waits, cut, line, err)
	}
	t.Log(line, taken)
}

// TestWaryMemory: what is not at hand when it is read is not waited for.
func TestWaryMemory(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	pages := procfs.FS{}.OpenPagemap(os.Getpid())
	defer pages.Close()
	if pages < 0 {
		t.Skip("no pagemap")
	}
	m[0] = 1
	var b [16]byte
	there := uint64(uintptr(unsafe.Pointer(&m[0])))
	for _, tt := range []struct {
		pages procfs.Pagemap
		addr  uint64
		want  int
	}{{pages, there, 16}, {pages, there + uint64(os.Getpagesize()) - 8, 0}, {pages, there + uint64(os.Getpagesize()), 0}, {-1, there, 16}, {-1, there + uint64(os.Getpagesize()), 16}} {
		k := wary{pages: tt.pages}
		if n := k.Memory(os.Getpid(), tt.addr, b[:]); n != tt.want || k.mem.Stuck() {
			t.Errorf("pagemap %d: %d bytes at +%d, hung %t; want %d", tt.pages, n, tt.addr-there, k.mem.Stuck(), tt.want)
		}
	}
}

// TestWaryPread: while a thread may be stopped, entries of pagemap are read like memory, and not once a page has not come.
func TestWaryPread(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("12345678entries!"); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	for _, k := range []*wary{{}, {holds: true}} {
		if n, errno := k.Pread(int(f.Fd()), b[:], 8); errno != 0 || string(b[:n]) != "entries!" {
			t.Errorf("holds %t: %q, %v", k.holds, b[:n], errno)
		}
		if n, errno := k.Pread(-1, b[:], 8); errno == 0 || n != 0 {
			t.Errorf("holds %t: %d bytes of no file, %v", k.holds, n, errno)
		}
	}
}
