package sampler

import (
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/ledger"
	"sfsample/sampler/watch"
)

// process is one process that is sampled.
type process struct {
	pid       int
	uncounted bool // the kernel keeps no run counts
	only      bool // only some threads of it were asked for
	mem       memory
	clock     int32 // id of its CPU clock
	group     int   // of the board, -1: none
	watch     watch.Process
	now       underWay
	census    census
	cpu       charges
	threads   atomic.Int32 // also read by clocks
	program   *program
	children  children
	young     young
	pac       uint64 // arm64: NT_ARM_PAC_MASK, once it was read
}

// underWay is the reading of a process's times at hand, and what it is for.
type underWay struct {
	need    watch.Need
	reading watch.Reading
}

// memory is what is open of a process as long as it has its memory of now.
type memory struct {
	tasks  int // folder /proc/PID/task, -1 if it could not be opened
	pages  procfs.Pagemap
	held   int     // threads that are gone, and that clocks still hold: they read pages
	spare  *thread // who is not known yet, on the board; nil: there is no slot for that
	since  int64   // and from which CLOCK_MONOTONIC time on
	shares bool    // it may still be its parent's: the process was made by vfork(2)
}

// charges is the CPU time of a process.
type charges struct {
	base    time.Duration // at the beginning
	charged time.Duration // that was counted for samples
	stands  time.Duration // for which the sample under way stands besides its thread's own: that of others that were not known
	ahead   time.Duration // of that, what was counted at the last round's end for threads that were not known, dead ones or not yet listed
}

// young is what is read early of a process.
type young struct {
	// brief: it may be gone before the pipeline has looked at it. It was born
	// while we sample, has become another program since, or exits are sampled.
	brief    bool
	captures int // of this program, up to a few
}

// replaced tells whether the memory that the process had when its files were opened is gone, or is not its own any more.
func (p *process) replaced() bool {
	return p.mem.pages.Gone() || p.mem.shares && !sharesMemory(p.pid, p.children.parent)
}

// blind tells whether nobody knows of the process's memory, as its files could not be opened, and by now they can be: which
// program was there in between is not known. In an exec there are moments at which no listed thread has memory.
func (p *process) blind() bool {
	if p.mem.pages >= 0 {
		return false
	}
	pages := proc.OpenPagemap(p.pid)
	defer pages.Close()
	return pages >= 0 && !pages.Gone()
}

// kcmpVM is KCMP_VM: do two processes share their memory (kcmp(2))?
const kcmpVM = 1

// sharesMemory tells whether two processes have one memory.
func sharesMemory(pid, other int) bool {
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(pid), uintptr(other), kcmpVM, 0, 0, 0)
	return errno == 0 && r == 0
}

// cpuClock is the id of the CPU clock of process pid, as clock_gettime takes it
// (include/linux/posix-timers.h: ~pid<<3 | CPUCLOCK_SCHED).
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }

// cpuTime reads the process's CPU clock. false: the process is gone.
func (p *process) cpuTime() (time.Duration, bool) {
	t, errno := ptrace.RawClock(p.clock)
	return time.Duration(t), errno == 0
}

// readCPU brings what is known of the clock up to date, as far as it goes.
func (p *process) readCPU() {
	if cpu, ok := p.cpuTime(); ok {
		p.watch.SetClock(cpu)
	}
}

// thread is one thread that is sampled. It is blocked, as far as is known, or on the
// board, where clocks find it.
type thread struct {
	tid  int
	proc *process
	fb   *Feedback
	line ledger.Line

	noUserStack bool

	open handles
	// slot is where the thread is on the board, -1: it is not. advice is what the board knows.
	slot   int
	advice advised

	watch watch.Thread
	late  int64 // nothing is known of the ticks up to this one, since it was looked at late; 0: there are none
	stack bool  // a capture was made in this wait: Reused instead of Idle
	shown bool  // a capture of it was sent
	req   request
	queue queue

	window int64 // last window of the load in which it was sampled
}

// newThread is a thread of which nothing is known.
func newThread(p *process, tid int) *thread {
	return &thread{tid: tid, proc: p, fb: p.feedback(), open: handles{-1, -1, -1, -1, -1}, slot: -1}
}

// feedback is that of another thread of the process.
func (p *process) feedback() *Feedback {
	fb := new(Feedback)
	if p.program != nil {
		fb.marks, fb.kin = &p.program.marks, &p.program.kin
	}
	return fb
}

// handles are a thread's open files of /proc; -1: open at each use. stat, debug and stack are open as long as it is on the board.
type handles struct {
	sched, call, stat, debug, stack int
}

// request is that of a stop of a blocked thread. A wait whose stack could not be unwound without registers is stopped once,
// or some times if more of the stack has to be copied, if its call goes on
// unharmed.
type request struct {
	stops  int            // how often it was stopped
	wait   procfs.Syscall // where it then was
	asking bool           // its stop is to come
	asked  int64          // tick of the request
	again  bool           // it came, and the thread should be back there
	// untouched is the run count of a wait that must not be stopped.
	untouched uint64
}

// queue is how a thread waits for a CPU: when it was found to do so, or to run, without being met.
type queue struct {
	waited   time.Duration // its times of waiting as last seen
	runnable int64         // ticks at which it was about to run, and not on the CPU that has a clock
	due      int64         // tick of the next look at it
	carry    int64         // nanoseconds of waiting that are no tick's yet; negative: that a tick stands for already
	waits    int64         // ticks of waiting that no stack shows yet
	homeless int64         // ticks in a row at which no clock could be where it ran
	let      times         // when they were last known
	doubt    time.Duration // for which it ran, nobody knows when, and which is no tick's yet; negative: for which ticks stand that had a sample
	counted  time.Duration // its run time up to which that is known
	found    found
}

// bound keeps a doubt below some ticks: one that did not run at ticks as its run time goes does something in step with them.
func (q *queue) bound(doubt, tick time.Duration) { q.doubt = min(max(doubt, -4*tick), 4*tick) }

// found is where a thread was found to run, or to wait for a CPU. While its times stand still since they were read before that, it does the same.
type found struct {
	count    uint64
	run      time.Duration
	known    bool  // where that is
	seen     int64 // tick at which it was found to do so last, where a clock is to meet it; 0: not yet
	cpu      int
	realTime bool // no clock preempts it
}

// same tells whether it does what it did.
func (f *found) same(s procfs.Schedstat) bool {
	return f.known && f.count == s.Count && f.run == s.Run
}

// times are a thread's at a moment.
type times struct {
	at        int64         // CLOCK_MONOTONIC, 0: never
	ran, wait time.Duration // on a CPU, and for one
}

func timesOf(s procfs.Schedstat) times { return times{ptrace.Now(), s.Run, s.Wait} }

// slept is how long it did neither until later ones.
func (a times) slept(b times) time.Duration {
	return time.Duration(b.at-a.at) - (b.ran - a.ran) - (b.wait - a.wait)
}

// openFiles opens the thread's files in /proc. A thread that has exited or may
// not be read is left with closed ones: reading says why.
func (t *thread) openFiles() {
	t.open.sched, _ = t.openFile("schedstat")
	t.open.call, _ = t.openFile("syscall")
}

// openFile returns -1 with an error.
func (t *thread) openFile(name string) (int, error) {
	dir := t.proc.mem.tasks
	if dir < 0 {
		return -1, unix.ESRCH
	}
	fd, err := unix.Openat(dir, strconv.Itoa(t.tid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT {
		err = unix.ESRCH
	}
	return fd, err
}

// fds are the thread's open files; -1: it is not.
func (t *thread) fds() [5]*int {
	return [...]*int{&t.open.sched, &t.open.call, &t.open.stat, &t.open.debug, &t.open.stack}
}

// files is how many files of it are open.
func (t *thread) files() (n int) {
	for _, fd := range t.fds() {
		if *fd >= 0 {
			n++
		}
	}
	return n
}

func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// readFile reads one of the thread's files into buf, by its descriptor or, if
// there was none to spare, by opening it.
func (t *thread) readFile(fd int, name string, buf []byte) ([]byte, error) {
	if fd < 0 {
		var err error
		if fd, err = t.openFile(name); err != nil {
			return nil, err
		}
		defer unix.Close(fd)
	}
	n, err := unix.Pread(fd, buf, 0)
	return buf[:max(n, 0)], err
}

// sleeps begins a wait of thread t, which was found blocked at tick n with these times.
func (t *thread) sleeps(n int64, s procfs.Schedstat) {
	t.watch.Sleeps(&t.proc.watch, n, s.Count, s.Run)
}

// schedstat tells how the thread has run. The count stands as long as it has not.
func (t *thread) schedstat(buf []byte) (procfs.Schedstat, error) {
	if t.proc.uncounted {
		return t.switches(buf)
	}
	b, err := t.readFile(t.open.sched, "schedstat", buf)
	if err != nil {
		return procfs.Schedstat{}, err
	}
	return procfs.ParseSchedstat(b)
}

// switches stands in for the schedstat of kernels that keep none. It is first seen whether the thread is off its CPU, then how
// often it was put off one: if it was off at two such looks and the number is the same, it was so in between. The
// time is that of stat, in 1/100 s.
func (t *thread) switches(buf []byte) (s procfs.Schedstat, _ error) {
	call, err := t.syscall(buf)
	if err != nil {
		return s, err
	}
	b, err := t.readFile(-1, "status", make([]byte, 8<<10))
	if err != nil {
		return s, err
	}
	status, err := procfs.ParseStatus(b)
	if err != nil {
		return s, err
	}
	if s.Count = 2 * status.Switches; call.Running {
		s.Count++
	}
	stat, err := t.stat(buf)
	s.Run = stat.UTime + stat.STime
	return s, err
}

func (t *thread) syscall(buf []byte) (procfs.Syscall, error) {
	b, err := t.readFile(t.open.call, "syscall", buf)
	if err != nil {
		return procfs.Syscall{}, err
	}
	return procfs.ParseSyscall(b)
}

// stat reads the thread's state and CPU.
func (t *thread) stat(buf []byte) (procfs.Stat, error) {
	b, err := t.readFile(t.open.stat, "stat", buf)
	if err != nil {
		return procfs.Stat{}, err
	}
	return procfs.ParseStat(b)
}
