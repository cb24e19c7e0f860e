package stuck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/runtimes"
)

// Apart is the time between the two looks, at least.
const Apart = 20 * time.Millisecond

// Bounds on what is looked at beside the processes asked for, and on all threads.
const (
	maxThreads        = 1 << 17
	maxOutside        = 64   // processes
	maxOutsideThreads = 4096 // threads of all these
	// Each open file of /proc has a page of the kernel's memory (seq_buf_alloc, fs/seq_file.c).
	maxKept = 12 << 10
)

var nativeOrder = binary.NativeEndian

// Dump is one view of some processes, while it is made.
type Dump struct {
	fs      procfs.FS
	mem     *memory
	roster  roster
	now     time.Time // of the first look's end
	missing missing
	told    told
	ends    endSearch
	locks   fileLocks
	fds     descriptors
	owners  owners
	clock   clock
}

// missing is what the report lacks.
type missing map[string]bool

func (m missing) add(format string, args ...any) { m[fmt.Sprintf(format, args...)] = true }

// Begin takes the first look at processes; with tids only at these of their threads
// (the others are looked at if these wait for them). Threads and processes that are
// gone are left out.
func Begin(fs procfs.FS, pids, tids []int) *Dump {
	d := newDump(fs)
	d.ends.listOwn()
	var new []*Thread
	for _, pid := range pids {
		new = append(new, d.roster.list(pid, false, func(tid int) bool { return len(tids) == 0 || slices.Contains(tids, tid) })...)
		if p := d.roster.procs[pid]; p != nil {
			p.complete = len(tids) == 0
		}
	}
	d.firstLook(new)
	return d
}

func newDump(fs procfs.FS) *Dump {
	m := missing{}
	mem := &memory{fs: fs, spaces: map[int]*space{}, absent: map[int]bool{}}
	procs := map[int]*Process{}
	return &Dump{fs: fs, mem: mem, missing: m, clock: clock{fs: fs}, owners: newOwners(fs, m), locks: fileLocks{fs: fs, missing: m},
		roster: roster{fs: fs, missing: m, kept: fs.Keep(maxKept), procs: procs, byTID: map[int]*Thread{}},
		fds:    descriptors{fs, m, map[[2]int]FD{}, map[string]*tables{}},
		ends:   endSearch{fs: fs, missing: m, procs: procs, wanted: map[string][]holder{}, more: map[string]bool{}, own: map[string]bool{}},
		told:   told{mem, m, map[int]bool{}, map[int]*runtimes.Locks{}, map[int]map[int]runtimes.LockWait{}}}
}

// close closes what is open.
func (d *Dump) close() {
	d.mem.close()
	d.roster.kept.Close()
}

// firstLook reads the run counts of all, then calls and lock words. It returns those that
// have not gone meanwhile, in the same array.
func (d *Dump) firstLook(list []*Thread) []*Thread {
	errs := make(map[*Thread]error, len(list))
	var mu sync.Mutex
	each(list, func(t *Thread) {
		if err := t.readRuns(); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs[t] = err
		}
	})
	list = slices.DeleteFunc(list, func(t *Thread) bool { return d.roster.forgetGone(t, errs[t]) })
	d.mem.readCalls(list, func(t *Thread) *look { return &t.first })
	for _, t := range list {
		t.InnerTID = innerID(d.fs, t)
		t.Process.byInner[t.InnerTID] = t
		t.Call = callOf(t.Process, t.first.call)
	}
	d.roster.threads = append(d.roster.threads, list...)
	if d.clock.now == 0 {
		d.clock.read()
	}
	d.now = time.Now()
	return list
}

// each calls f for each thread, on as many CPUs as there are.
func each(list []*Thread, f func(*Thread)) {
	procfs.Split(len(list), func(_, from, to int) {
		for _, t := range list[from:to] {
			f(t)
		}
	})
}

// readRuns begins the first look at a thread.
func (t *Thread) readRuns() error {
	t.first = look{at: time.Now()}
	st, err := t.files.Stat()
	if err == nil {
		t.first.state, t.first.worker, t.Name = st.State, st.NoUserStack(), st.Comm
		t.first.sched, err = t.files.Schedstat()
	}
	return err
}

// backAtMost bounds the time in which threads that were stopped go back to sleep.
const backAtMost = 10 * time.Millisecond

// Again takes the first look anew at the threads that the caller has stopped meanwhile, for their stacks: that they ran
// then is not their doing. Call it before End.
func (d *Dump) Again(stopped func(tid int) bool) {
	var list []*Thread
	for _, t := range d.roster.threads {
		if stopped(t.TID) {
			list = append(list, t)
		}
	}
	awake := func(t *Thread) bool {
		call, err := t.files.Syscall()
		return err == nil && call.Running
	}
	for end := time.Now().Add(backAtMost); slices.ContainsFunc(list, awake) && time.Now().Before(end); {
		time.Sleep(backAtMost / 10)
	}
	for _, t := range list {
		t.stopped = true
	}
	d.lookAnew(list)
}

// lookAnew takes the first look anew at threads.
func (d *Dump) lookAnew(list []*Thread) {
	for _, t := range list {
		if err := t.readRuns(); err != nil { // it has ended, as the second look will find
			t.first.err = err
		}
	}
	d.mem.readCalls(list, func(t *Thread) *look { return &t.first })
	for _, t := range list {
		t.Call = callOf(t.Process, t.first.call)
	}
	if len(list) > 0 {
		d.now = time.Now()
	}
}

// readCalls reads the calls that threads sit in and then, of those that wait on a futex, the words around it: each once for all
// that wait on the same.
func (m *memory) readCalls(list []*Thread, of func(*Thread) *look) {
	each(list, func(t *Thread) { t.readCall(of(t)) })
	var readers []*Thread
	same := map[wordOf]*Thread{}
	for _, t := range list {
		l := of(t)
		if !waitsOnWord(t.Process, l.call) {
			continue
		}
		if k := (wordOf{t.PID, l.call.Args[0]}); same[k] == nil {
			same[k] = t
			readers = append(readers, t)
		}
	}
	each(readers, func(t *Thread) { of(t).words = m.around(t, of(t).call.Args[0]) })
	for _, t := range list {
		if l := of(t); waitsOnWord(t.Process, l.call) {
			l.words = of(same[wordOf{t.PID, l.call.Args[0]}]).words
		}
	}
}

// wordOf is a futex word of a process.
type wordOf struct {
	pid  int
	addr uint64
}

func waitsOnWord(p *Process, call procfs.Syscall) bool {
	name := callName(p, call)
	return name == "futex" || name == "futex_time64" || name == "restart_syscall" && futexWait(call.Args[1]) != ""
}

// readCall reads the call that a thread sits in.
func (t *Thread) readCall(l *look) {
	call, err := t.files.Syscall()
	if err != nil {
		l.err, l.gone = err, procfs.Gone(err)
		l.call = procfs.Syscall{NR: -1, Running: true}
		if errors.Is(err, fs.ErrPermission) {
			t.Process.denied.Store(true)
		}
		return
	}
	l.call = call
}

// Looked gives what the first look read of a thread that was blocked then, for whoever takes its stack: one that has the same run
// count afterwards was blocked all the time. nil: it was not blocked, or is not known.
func (d *Dump) Looked(tid int) *procfs.TaskLook {
	t := d.roster.byTID[tid]
	if t == nil || t.first.worker || t.first.state != 'S' && t.first.state != 'D' || t.first.err != nil || t.first.call.Running || t.first.sched.Count == 0 {
		return nil
	}
	return &procfs.TaskLook{Name: t.Name, State: t.first.state, Sched: t.first.sched, Call: t.first.call, Files: &t.files}
}

// secondLook reads calls and lock words of all, then the run counts.
func (d *Dump) secondLook() {
	if rest := Apart - time.Since(d.now); rest > 0 {
		time.Sleep(rest)
	}
	d.mem.readCalls(d.roster.threads, func(t *Thread) *look { return &t.second })
	d.told.again(d.roster.procs)
	for _, p := range d.roster.procs {
		p.complete = p.complete && d.roster.sameThreads(p)
	}
	each(d.roster.threads, func(t *Thread) {
		t.second.at = time.Now()
		var err error
		t.second.sched, err = t.files.Schedstat()
		// Who has not run is in the state that it was in.
		if t.second.state = t.first.state; err == nil && (t.second.sched.Count != t.first.sched.Count || t.second.call.Running) {
			var st procfs.Stat
			st, err = t.files.Stat()
			t.second.state = st.State
		}
		t.files.Close()
		t.second.gone = t.second.gone || err != nil
		t.State = t.second.state
		t.Between = Activity{Motion: t.motion(), CPU: max(0, t.second.sched.Run-t.first.sched.Run),
			Runs: t.second.sched.Count - min(t.first.sched.Count, t.second.sched.Count)}
		if t.Between.Motion == Blocked {
			t.Between.IdleAtLeast = t.second.at.Sub(t.first.at)
		}
	})
}

// motion compares the looks. Without run counts (kernels without CONFIG_SCHED_INFO)
// nothing is known to have stood still.
func (t *Thread) motion() Motion {
	a, b := &t.first, &t.second
	asleep := func(l *look) bool { return l.state != 'R' && l.state != 0 && (l.err != nil || !l.call.Running) }
	switch {
	case b.gone:
		return Gone
	case !asleep(a) || !asleep(b) || a.sched.Count == 0:
		return Ran
	case a.call != b.call:
		return Ran
	case a.sched.Count != b.sched.Count:
		return Woken
	}
	return Blocked
}

// frameLimit bounds how many frames are searched for the function that waits.
const frameLimit = 24

// userFrames are the user's frames of a stack, innermost first.
func userFrames(st *output.Stack) []output.Frame {
	if st == nil {
		return nil
	}
	var list []output.Frame
	for _, f := range st.Frames {
		if !f.Kernel && len(list) < frameLimit {
			list = append(list, f)
		}
	}
	return list
}
