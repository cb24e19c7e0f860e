package stuck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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
	kept    *procfs.Kept
	mem     memory
	now     time.Time // of the first look's end
	threads []*Thread // in order of process and number, those from outside last
	procs   map[int]*process
	byTID   map[int]*Thread
	nOut    int // threads from outside
	missing map[string]bool
	told    told
	ends    endSearch
	locks   *fileLocks
	nets    map[string]*tables // by network namespace
	fds     map[[2]int]FD      // by process and number
	owners  owners
	// clock is the scheduler's clock, as our own thread shows it, at the time of
	// clockAt; 0: the kernel does not show it.
	clock   time.Duration
	clockAt time.Time
}

// Begin takes the first look at processes; with tids only at these of their threads
// (the others are looked at if these wait for them). Threads and processes that are
// gone are left out.
func Begin(fs procfs.FS, pids, tids []int) *Dump {
	d := newDump(fs)
	d.ends.listOwn(fs)
	var new []*Thread
	for _, pid := range pids {
		new = append(new, d.list(pid, false, func(tid int) bool { return len(tids) == 0 || slices.Contains(tids, tid) })...)
		if p := d.procs[pid]; p != nil {
			p.complete = len(tids) == 0
		}
	}
	d.firstLook(new)
	return d
}

func newDump(fs procfs.FS) *Dump {
	return &Dump{fs: fs, kept: fs.Keep(maxKept), procs: map[int]*process{}, byTID: map[int]*Thread{}, missing: map[string]bool{}, nets: map[string]*tables{}, fds: map[[2]int]FD{}, owners: newOwners(fs),
		told: told{map[int]bool{}, map[int]*runtimes.Locks{}, map[int]map[int]runtimes.LockWait{}},
		mem:  memory{fs: fs, spaces: map[int]*space{}, absent: map[int]bool{}}}
}

// close closes what is open.
func (d *Dump) close() {
	d.mem.close()
	d.kept.Close()
}

// list makes the threads of a process.
func (d *Dump) list(pid int, outside bool, wanted func(int) bool) []*Thread {
	p := d.process(pid, outside)
	if p == nil {
		return nil
	}
	ids, err := d.fs.TaskIDs(pid)
	if err != nil {
		return nil
	}
	slices.Sort(ids)
	var list []*Thread
	for _, tid := range ids {
		switch {
		case d.byTID[tid] != nil || !wanted(tid):
			continue
		case len(d.threads)+len(list) >= maxThreads, outside && d.nOut >= maxOutsideThreads:
			d.miss("threads beyond %d are not looked at", len(d.threads)+len(list))
			return list
		}
		t := &Thread{PID: pid, TID: tid, InnerTID: tid, Process: p.name, Outside: outside, process: p, files: d.kept.Task(pid, tid)}
		if outside {
			d.nOut++
		}
		d.byTID[tid] = t
		p.threads = append(p.threads, t)
		list = append(list, t)
	}
	return list
}

// process finds or makes a process, nil if it is gone.
func (d *Dump) process(pid int, outside bool) *process {
	if p := d.procs[pid]; p != nil {
		return p
	}
	leader, err := d.fs.Stat(pid)
	if err != nil {
		return nil
	}
	p := &process{pid: pid, leader: leader, name: leader.Comm, outside: outside, arch: archOf(d.fs, pid), byInner: map[int]*Thread{}}
	if st, err := d.fs.Status(pid); err == nil {
		p.inner = len(st.NSpid) > 1
	}
	d.procs[pid] = p
	return p
}

// miss notes something that the report lacks.
func (d *Dump) miss(format string, args ...any) { d.missing[fmt.Sprintf(format, args...)] = true }

// firstLook reads the run counts of all, then calls and lock words. It returns those that
// have not gone meanwhile, in the same array.
func (d *Dump) firstLook(list []*Thread) []*Thread {
	errs := make(map[*Thread]error, len(list))
	var mu sync.Mutex
	each(list, func(t *Thread) {
		if err := d.readRuns(t); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs[t] = err
		}
	})
	list = slices.DeleteFunc(list, func(t *Thread) bool { return d.forgetGone(t, errs[t]) })
	d.readCalls(list, func(t *Thread) *look { return &t.first })
	for _, t := range list {
		t.InnerTID = d.innerID(t)
		t.process.byInner[t.InnerTID] = t
		t.NR, t.Args, t.Call = t.first.call.NR, t.first.call.Args, callName(t.process, t.first.call)
	}
	d.threads = append(d.threads, list...)
	if d.clock == 0 {
		d.readClock()
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
func (d *Dump) readRuns(t *Thread) error {
	t.first = look{at: time.Now()}
	st, err := t.files.Stat()
	if err == nil {
		t.first.state, t.Name, t.worker = st.State, st.Comm, st.NoUserStack()
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
	for _, t := range d.threads {
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
		if err := d.readRuns(t); err != nil { // it has ended, as the second look will find
			t.first.err = err
		}
	}
	d.readCalls(list, func(t *Thread) *look { return &t.first })
	for _, t := range list {
		t.NR, t.Args, t.Call = t.first.call.NR, t.first.call.Args, callName(t.process, t.first.call)
	}
	if len(list) > 0 {
		d.now = time.Now()
	}
}

func (d *Dump) forgetGone(t *Thread, err error) bool {
	if err == nil {
		return false
	}
	t.files.Close()
	delete(d.byTID, t.TID)
	t.process.threads = slices.DeleteFunc(t.process.threads, func(o *Thread) bool { return o == t })
	return true
}

// readCalls reads the calls that threads sit in and then, of those that wait on a futex, the words around it: each once for all
// that wait on the same.
func (d *Dump) readCalls(list []*Thread, of func(*Thread) *look) {
	each(list, func(t *Thread) { d.readCall(t, of(t)) })
	var readers []*Thread
	same := map[wordOf]*Thread{}
	for _, t := range list {
		l := of(t)
		if !waitsOnWord(t.process, l.call) {
			continue
		}
		if k := (wordOf{t.PID, l.call.Args[0]}); same[k] == nil {
			same[k] = t
			readers = append(readers, t)
		}
	}
	each(readers, func(t *Thread) { of(t).words = d.around(t, of(t).call.Args[0]) })
	for _, t := range list {
		if l := of(t); waitsOnWord(t.process, l.call) {
			l.words = of(same[wordOf{t.PID, l.call.Args[0]}]).words
		}
	}
}

// wordOf is a futex word of a process.
type wordOf struct {
	pid  int
	addr uint64
}

func waitsOnWord(p *process, call procfs.Syscall) bool {
	name := callName(p, call)
	return name == "futex" || name == "futex_time64" || name == "restart_syscall" && futexWait(call.Args[1]) != ""
}

// readCall reads the call that a thread sits in.
func (d *Dump) readCall(t *Thread, l *look) {
	call, err := t.files.Syscall()
	if err != nil {
		l.err, l.gone = err, procfs.Gone(err)
		l.call = procfs.Syscall{NR: -1, Running: true}
		if errors.Is(err, fs.ErrPermission) {
			t.process.denied.Store(true)
		}
		return
	}
	l.call = call
}

// Looked gives what the first look read of a thread that was blocked then, for whoever takes its stack: one that has the same run
// count afterwards was blocked all the time. nil: it was not blocked, or is not known.
func (d *Dump) Looked(tid int) *procfs.TaskLook {
	t := d.byTID[tid]
	if t == nil || t.worker || t.first.state != 'S' && t.first.state != 'D' || t.first.err != nil || t.first.call.Running || t.first.sched.Count == 0 {
		return nil
	}
	return &procfs.TaskLook{Name: t.Name, State: t.first.state, Sched: t.first.sched, Call: t.first.call, Files: &t.files}
}

// innerID is the number that a thread has in its own pid namespace.
func (d *Dump) innerID(t *Thread) int {
	if !t.process.inner {
		return t.TID
	}
	st, err := d.fs.Status(t.TID)
	if err != nil || len(st.NSpid) == 0 {
		return t.TID
	}
	return st.NSpid[len(st.NSpid)-1]
}

// readClock reads the scheduler's clock off our own thread, which runs: giving up the
// CPU brings its time up to date (yield_task_fair, kernel/sched/fair.c).
func (d *Dump) readClock() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if now, ok := d.fs.LastRan(os.Getpid(), unix.Gettid()); ok {
		d.clock, d.clockAt = now, time.Now()
	}
}

// secondLook reads calls and lock words of all, then the run counts.
func (d *Dump) secondLook() {
	if rest := Apart - time.Since(d.now); rest > 0 {
		time.Sleep(rest)
	}
	d.readCalls(d.threads, func(t *Thread) *look { return &t.second })
	keptLocksAgain(d)
	for _, p := range d.procs {
		p.complete = p.complete && d.sameThreads(p)
	}
	each(d.threads, func(t *Thread) {
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
		t.Motion = t.motion()
		t.IdleAtLeast = 0
		if t.Motion == Blocked {
			t.IdleAtLeast = t.second.at.Sub(t.first.at)
		}
		t.CPU = max(0, t.second.sched.Run-t.first.sched.Run)
		t.Runs = t.second.sched.Count - min(t.first.sched.Count, t.second.sched.Count)
	})
}

// sameThreads: nobody was born since the process was listed. (One who was born between
// the list and the first look would not be known to wait.)
func (d *Dump) sameThreads(p *process) bool {
	ids, err := d.fs.TaskIDs(p.pid)
	return err == nil && !slices.ContainsFunc(ids, func(tid int) bool { return d.byTID[tid] == nil })
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

// idle fills in since when a thread has not run.
func (d *Dump) idle(t *Thread) {
	if t.Motion != Blocked || t.stopped || d.clock == 0 {
		return
	}
	last, ok := d.fs.LastRan(t.PID, t.TID)
	now := d.clock + t.second.at.Sub(d.clockAt)
	if ok && last > 0 && now > last {
		t.Idle = max(now-last, t.IdleAtLeast)
	}
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
