package sampler

import (
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

// Feedback is what unwinding tells the engine about a thread.
type Feedback struct {
	// Want is how many bytes of stack the next capture should hold.
	Want atomic.Int64
	// NeedStop is the run count (schedstat) of a capture without registers that
	// could not be unwound for want of them; 0: none.
	NeedStop atomic.Uint64
	// Short: the last capture was made at a stop, and the stack goes on behind it.
	Short atomic.Bool
	// Extent is where the stack of the last capture lies.
	Extent atomic.Pointer[extent]
	// Foreign: the thread's system calls have other numbers than the kernel's
	// own, as those of a 32-bit one.
	Foreign atomic.Bool
	// SavedSP is where the kernel has stored the stack pointer of the code that
	// a signal handler on an alternate stack interrupted; 0: not seen yet. It is
	// the same place for all handlers on that stack: the kernel begins at its end.
	SavedSP atomic.Uint64
	// Beyond is how many bytes to copy of the stack that it points to.
	Beyond atomic.Int64
	// BeyondExtent is where that stack lies.
	BeyondExtent atomic.Pointer[extent]
}

// beyond is how many bytes to copy of the stack beyond a signal handler's.
func (f *Feedback) beyond() int {
	if f.SavedSP.Load() == 0 {
		return 0
	}
	return int(f.Beyond.Load())
}

// want is how many bytes of stack to copy; first, if nothing is known yet.
func (f *Feedback) want(first int) int {
	if n := f.Want.Load(); n > 0 {
		return int(n)
	}
	return first
}

// process is one process that is sampled.
type process struct {
	pid     int
	tasks   int // open folder /proc/PID/task, -1 if it could not be opened
	pages   pagemap
	clock   int32 // id of its CPU clock
	asleep  asleep
	cpuBase time.Duration // at the beginning
	charged time.Duration // CPU time that was counted for samples
	loose   time.Duration // of that, what was not weighed when its thread went
	only    bool          // only some threads of it were asked for
	threads int
	program *program
	spares  bool // threads are not traced before that is needed
	spared  int  // how many are not
	became  bool // another program, which is not reported
	census  census
	// brief: it may be gone before the pipeline has looked at it. It was born
	// while we sample, has become another program since, or exits are sampled.
	brief bool
	// captures counts those of this program, up to a few.
	captures int
	pac      uint64 // arm64: NT_ARM_PAC_MASK, once it was read
}

// closeFiles closes what is open of the process itself.
func (p *process) closeFiles() {
	if p.tasks >= 0 {
		unix.Close(p.tasks)
	}
	p.pages.close()
	p.tasks, p.pages = -1, -1
}

// thread is one thread that is sampled.
type thread struct {
	tid  int
	proc *process
	fb   *Feedback

	seized      bool
	spared      bool // not seized yet: see [engine.spare]
	noUserStack bool
	// An interrupt is a lasting state: it was sent at tick intTick, and the
	// stop comes when it comes. cap is the buffer that waits for it.
	interrupted bool
	intTick     int64
	intAt       int64 // CLOCK_MONOTONIC, in nanoseconds
	cap         *capture.Capture
	late        bool // it did not stop while we polled for that
	cpu         int  // where it ran when that happened
	near        int  // stops for which that is believed

	schedFD, callFD int  // open files of /proc, -1: open at each use
	opened          bool // as far as there was one to be had

	// done is the first tick that is not accounted for yet.
	done int64
	// blocked: at the last look the thread was blocked, and count was its run
	// count then. While the count stands, nothing about the thread has changed.
	blocked bool
	count   uint64
	idleRun time.Duration // CPU time at that look
	seenAt  int64         // tick of that look
	since   int64         // tick of the first look that found this count
	next    int64         // tick of the next look
	stack   bool          // a capture was made in this wait: Reused instead of Idle
	// A wait whose stack could not be unwound without registers is stopped once,
	// or some times if more of the stack has to be copied, if its call goes on
	// unharmed: stops is how often, wait is where the thread then was, asking
	// that its stop is to come, again that it came and the thread should be
	// back there.
	wait   procfs.Syscall
	stops  int
	asking bool
	again  bool
	anew   again
	// refused is the run count of a wait that must not be stopped.
	refused uint64

	base uint64 // where its last copied stack begins
	// Between a rehearsal and the stop, guess is where the next one may begin and
	// guessed how many bytes of it to copy before that is known; strays: the last
	// one began elsewhere.
	guess   uint64
	guessed int
	strays  bool
	run     time.Duration // CPU time at the last sample
	carry   time.Duration // CPU time that was not weighed yet
	last    int64         // time of the last sample, CLOCK_MONOTONIC

	window int64 // last window of the load in which it was stopped
}

// openFiles opens the thread's files in /proc. A thread that has exited or may
// not be read is left with closed ones: reading says why.
func (t *thread) openFiles() {
	t.schedFD = t.openFile("schedstat")
	t.callFD = t.openFile("syscall")
}

func (t *thread) openFile(name string) int {
	dir := t.proc.tasks
	if dir < 0 {
		return -1
	}
	fd, err := unix.Openat(dir, strconv.Itoa(t.tid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// files is how many files of it are open.
func (t *thread) files() (n int) {
	for _, fd := range [...]int{t.schedFD, t.callFD} {
		if fd >= 0 {
			n++
		}
	}
	return n
}

func (t *thread) closeFiles() {
	for _, fd := range []*int{&t.schedFD, &t.callFD} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// readFile reads one of the thread's files into buf, by its descriptor or, if
// there was none to spare, by opening it.
func (t *thread) readFile(fd int, name string, buf []byte) ([]byte, error) {
	if fd < 0 {
		if fd = t.openFile(name); fd < 0 {
			return nil, unix.ESRCH
		}
		defer unix.Close(fd)
	}
	n, err := unix.Pread(fd, buf, 0)
	return buf[:max(n, 0)], err
}

func (t *thread) schedstat(buf []byte) (procfs.Schedstat, error) {
	b, err := t.readFile(t.schedFD, "schedstat", buf)
	if err != nil {
		return procfs.Schedstat{}, err
	}
	return procfs.ParseSchedstat(b)
}

func (t *thread) syscall(buf []byte) (procfs.Syscall, error) {
	b, err := t.readFile(t.callFD, "syscall", buf)
	if err != nil {
		return procfs.Syscall{}, err
	}
	return procfs.ParseSyscall(b)
}

// owed is how many ticks up to and including last are not accounted for.
func (t *thread) owed(last int64) int64 { return last + 1 - t.done }

// cpuClock is the id of the CPU clock of process pid, as clock_gettime takes it
// (include/linux/posix-timers.h: ~pid<<3 | CPUCLOCK_SCHED).
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }

// cpuTime reads the process's CPU clock. false: the process is gone.
func (p *process) cpuTime() (time.Duration, bool) {
	var ts unix.Timespec
	if err := unix.ClockGettime(p.clock, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// readCPU brings what is known of the clock up to date, as far as it goes.
func (p *process) readCPU() {
	if cpu, ok := p.cpuTime(); ok {
		p.asleep.cpu = cpu
	}
}
