package sampler

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// engine is what runs on the tracing thread. All its fields belong to that
// thread, but for those that say otherwise.
type engine struct {
	opt      Options
	log      *slog.Logger
	fs       procfs.FS
	pool     *pool
	out      chan<- item
	nudge    chan<- struct{} // with room for one
	alarm    *ptrace.Alarm
	interval int64 // nanoseconds

	procs    map[int]*process
	threads  map[int]*thread
	list     []*thread       // the same threads, in order of discovery
	orphans  map[int]bool    // stopped for the first time before their parent reported them
	early    []ptrace.Status // ends that were reported out of turn
	released map[int]bool    // not ours to sample: to be detached at the next stop
	wanted   map[int]bool    // --tid

	origin             int64 // CLOCK_MONOTONIC of the pipeline's start
	start              int64 // CLOCK_MONOTONIC of tick 0
	until              int64 // CLOCK_MONOTONIC of the end
	tick               int64 // the last tick that was handled
	acct               Account
	delay, pause, late histogram
	outstanding        []*thread // interrupted, not yet stopped
	fresh              bool      // some of them since the last collect
	polling            bool      // ask for the stops of these, rather than sleep
	exits              Exits
	sent, taken        int64 // interrupts, and stops that answered them
	most               int   // most interrupts outstanding at once
	load               load
	pace               pace
	prio               priority
	place              place
	missed             int64  // deadlines that were not answered in time
	due                int64  // the tick after the last: usually the next, later in a rest
	published          int64  // when status was set
	open, files        int    // files of threads that are open, and may be; 0: not known
	listAt             int64  // tick of the next listing of untraced processes
	backlog            []item // could not be sent yet
	warned             map[string]bool

	held     chan error  // why the tracing thread cannot go on, nor return
	stop     atomic.Bool // set by others, with alarm.Ring
	status   atomic.Pointer[Progress]
	exit     uint32 // wait status of Options.Command
	execSeen bool   // Options.Command has called exec
	buf      [512]byte
	kernel   []byte // room for the kernel's part of a stack; nil: not needed yet
}

// Progress is a look at a running engine.
type Progress struct {
	Elapsed time.Duration
	Threads int
	Samples int64
	Lost    int64
	Pause   time.Duration // median so far
}

// listings bounds how often the threads of a process are listed until nothing is new.
const listings = 100

// attach begins to sample every thread of the process. Threads that appear meanwhile are
// found by listing again until nothing is new (two rounds were enough on a
// process that made thousands of threads a second).
func (e *engine) attach(pid int) error {
	p := e.addProcess(pid)
	p.spares = e.mayspare()
	var ids []int
	for round, fresh := 0, true; fresh && round < listings; round++ {
		var err error
		if ids, err = e.fs.TaskIDs(pid); err != nil {
			return fmt.Errorf("list the threads of %d: %w", pid, err)
		}
		fresh = false
		p.spares = p.spares && len(ids) > e.few()
		for _, tid := range ids {
			if e.threads[tid] != nil || e.unwanted(tid) {
				continue
			}
			added, err := e.addThread(p, tid)
			if err != nil && err != unix.ESRCH && err != errBecame {
				return err
			}
			fresh = fresh || added || err == errBecame
		}
		// While a thread calls exec there may be nobody that could be seized.
		fresh = fresh || p.threads == 0 && len(ids) > 0 && !e.ended(p, ids)
	}
	return nil
}

func (e *engine) unwanted(tid int) bool { return len(e.wanted) > 0 && !e.wanted[tid] }

func (e *engine) addProcess(pid int) *process {
	if p := e.procs[pid]; p != nil {
		return p
	}
	p := &process{pid: pid, clock: cpuClock(pid), only: len(e.wanted) > 0, tasks: -1, pages: -1, program: new(program), brief: e.opt.ExitStacks}
	e.openProcess(p)
	p.cpuBase, _ = p.cpuTime()
	p.asleep = asleep{cpu: p.cpuBase, stood: -1, stirred: e.tick - finest - 1}
	e.procs[pid] = p
	return p
}

// openProcess opens what is read of a process again and again, and reads what
// an exec may change.
func (e *engine) openProcess(p *process) {
	p.closeFiles() // the memory before an exec is another
	fd, err := unix.Open(e.fs.Path(p.pid, "task"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	p.tasks = fd
	p.pages = openPagemap(e.fs, p.pid)
}

// addThread seizes a thread that was found by listing. added is false when it
// cannot be sampled at all.
func (e *engine) addThread(p *process, tid int) (added bool, err error) {
	t := e.newThread(p, tid)
	e.begin(t)
	if s, err := e.fs.TaskStat(p.pid, tid); err == nil {
		if s.State == 'Z' || s.State == 'X' {
			e.closeFiles(t)
			return false, nil // a leader that has exited while its process lives
		}
		t.noUserStack = s.NoUserStack()
	}
	switch {
	case e.opt.Stop == StopNever || t.noUserStack:
	case e.spare(p, tid):
		t.spared = true
		p.spared++
	default:
		if err := e.seize(t); err != nil {
			e.closeFiles(t)
			return false, err
		}
	}
	e.keep(t)
	return true, nil
}

// errBecame: the thread has called exec while it was seized. It is our tracee, but
// goes by the leader's id.
var errBecame = errors.New("the thread has replaced its program")

// seizeTries is how often a seize is made that is not permitted: the leader that was
// meant may be gone, as another thread has called exec, and that has its id.
const seizeTries = 3

// seize makes a thread our tracee. One that is another's stays without, and that
// is told; any other error is returned: ESRCH and errBecame tell of threads that
// are gone.
func (e *engine) seize(t *thread) error {
	for try := range seizeTries {
		pid := t.proc.pid
		ended, err := ptrace.SeizeIn(pid, t.tid, e.seizeOptions(), func() {
			select {
			case e.held <- fmt.Errorf("attach %d: it is calling exec, and waits for the very thread that waits for this (try: once more)", pid):
			default: // told already
			}
		})
		e.early = append(e.early, ended...)
		switch {
		case err == nil && ptrace.Traced(t.tid):
			t.seized = true
			t.proc.became = t.proc.became || try > 0 && t.tid == t.proc.pid
		case err == nil && slices.ContainsFunc(ended, func(s ptrace.Status) bool { return s.TID == t.tid }):
			err = unix.ESRCH
		case err == nil:
			err, t.proc.became = errBecame, true
		}
		if err != unix.EPERM {
			return err
		}
		s, serr := e.fs.Status(t.tid)
		switch {
		case serr == nil && (s.TracerPid == unix.Gettid() || s.TracerPid == unix.Getpid()):
			t.seized = true // ours by inheritance: born while we listed
			return nil
		case serr == nil && s.TracerPid != 0:
			e.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", t.tid, s.TracerPid)
			return nil
		}
	}
	return unix.EPERM
}

func (e *engine) seizeOptions() int {
	o := ptrace.OptClone | ptrace.OptExec
	if len(e.wanted) > 0 {
		o = ptrace.OptExec
	}
	if e.opt.Children {
		o |= ptrace.OptFork | ptrace.OptVfork
	}
	if e.opt.ExitStacks {
		o |= ptrace.OptExit
	}
	return o
}

// newThread makes a thread whose files are opened at its first look: many live for
// less than a tick.
func (e *engine) newThread(p *process, tid int) *thread {
	return &thread{tid: tid, proc: p, fb: new(Feedback), schedFD: -1, callFD: -1, done: e.tick + 1}
}

// begin opens the files of a thread that has lived before: what it has run for until
// now is not ours to weigh.
func (e *engine) begin(t *thread) {
	e.openFiles(t)
	if s, err := t.schedstat(e.buf[:]); err == nil {
		t.run = s.Run
	}
}

// spareFiles is how many files are left to all others that open some.
const spareFiles = 1024

// openFiles opens the thread's files in /proc for good, if there are enough to be
// had: reading it then costs a fifth.
func (e *engine) openFiles(t *thread) {
	e.closeFiles(t)
	t.opened = true
	if e.files == 0 {
		e.files = 1 // none
		var lim unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
			e.files = int(max(1, min(int64(lim.Cur), 1<<24)-spareFiles))
		}
	}
	if e.open+2 > e.files {
		return
	}
	t.openFiles()
	e.open += t.files()
}

func (e *engine) closeFiles(t *thread) {
	e.open -= t.files()
	t.closeFiles()
}

// keep adds a thread to those that are sampled from the next tick on.
func (e *engine) keep(t *thread) {
	e.threads[t.tid] = t
	e.list = append(e.list, t)
	t.proc.threads++
}

// drop takes a thread out that has exited, if that was not done before. Its ticks so
// far are accounted for.
func (e *engine) drop(t *thread) {
	i := slices.Index(e.list, t)
	if i < 0 {
		return
	}
	e.settle(t, Exited)
	e.closeFiles(t)
	t.unspare()
	t.proc.loose += t.carry
	t.wakes()
	t.proc.asleep.forget() // nobody knows how long it ran
	if e.threads[t.tid] == t {
		delete(e.threads, t.tid)
	}
	e.list = slices.Delete(e.list, i, i+1)
	t.proc.threads--
	if t.tid == t.proc.pid {
		e.dropSpared(t.proc)
	}
	if t.proc.threads == 0 {
		e.dropProcess(t.proc)
	}
}

// settle accounts for the ticks that a thread owes when it can no longer be
// looked at: an interrupt that was not answered counts as c; ticks of a blocked
// thread are unsure, as nobody can say when it woke.
func (e *engine) settle(t *thread, c Class) {
	if !t.interrupted && t.blocked {
		e.unsure(t, e.tick, counterLag)
		return
	}
	owed := t.owed(e.tick)
	if t.interrupted && owed > 1 {
		e.acct.Add(NotStopped, owed-1)
		owed = 1
	}
	e.acct.Add(c, owed)
	t.done = e.tick + 1
	e.disarm(t)
}

// disarm forgets an interrupt that will not be answered any more.
func (e *engine) disarm(t *thread) {
	if !t.interrupted {
		return
	}
	t.interrupted = false
	for i, u := range e.outstanding {
		if u == t {
			e.outstanding = append(e.outstanding[:i], e.outstanding[i+1:]...)
			break
		}
	}
	if t.cap != nil {
		e.pool.put(t.cap)
		t.cap = nil
	}
}

func (e *engine) dropProcess(p *process) {
	if e.procs[p.pid] != p {
		return
	}
	delete(e.procs, p.pid)
	e.chargeRest(p)
	p.closeFiles()
	e.send(item{gone: p.pid})
}

// send hands something to the pipeline without ever waiting for it: threads may
// be stopped, or have signals to be passed on.
func (e *engine) send(it item) {
	e.flush()
	urgent := it.urgent() // it is the pipeline's once it is sent
	if len(e.backlog) > 0 || !e.offer(it) {
		e.backlog = append(e.backlog, it)
	}
	if urgent {
		select {
		case e.nudge <- struct{}{}:
		default:
		}
	}
}

// offer sends if there is room.
func (e *engine) offer(it item) bool {
	select {
	case e.out <- it:
		return true
	default:
		return false
	}
}

// flush sends what has waited, as far as there is room.
func (e *engine) flush() {
	for i, it := range e.backlog {
		if !e.offer(it) {
			e.backlog = append(e.backlog[:0], e.backlog[i:]...)
			return
		}
	}
	e.backlog = e.backlog[:0]
}

// behind tells that the pipeline does not keep up.
func (e *engine) behind() bool { return len(e.backlog) > maxBacklog }

// maxBacklog bounds what waits for the pipeline besides its queue.
const maxBacklog = 1 << 15

// warn says something once.
func (e *engine) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(e.warned) < 1000 && !e.warned[text] {
		e.warned[text] = true
		e.log.Warn(text)
	}
}

// loop samples until the time is over, nobody is left, or stop is set.
func (e *engine) loop() {
	if e.opt.Stop != StopNever {
		e.prio.raise(ptrace.Now())
	}
	e.start = ptrace.Now()
	e.alarm.Set(e.start)
	next := e.start
	for len(e.procs) > 0 {
		now := ptrace.Now()
		if now >= e.until || e.stop.Load() {
			e.missRest(min(now, e.until-1))
			return
		}
		for len(e.early) > 0 {
			s := e.early[0]
			e.early = e.early[1:]
			e.handle(s)
		}
		if now >= next {
			e.prio.check(now)
			next = e.onTick(now)
			e.collect()
			if ptrace.Now() >= next {
				// Behind already: reports must not wait until we catch up.
				e.drain()
			}
			continue
		}
		s, ok, err := ptrace.Wait()
		switch {
		case err == unix.ECHILD: // nobody to wait for: sleep to the alarm
			e.dropVanished()
			sleepUntil(min(next, e.until))
		case ok:
			e.catchUp()
			e.handle(s)
			next = e.wake()
		}
	}
}

// missRest accounts for the deadlines that passed unseen before a run's end.
func (e *engine) missRest(end int64) {
	e.skipTo((end - e.start) / e.interval)
}

// takeLast takes the stops that are still to come: a thread that waits for a CPU
// stops when it gets one. One that is let go before its stop has its call cut short
// all the same, and nobody takes that back.
func (e *engine) takeLast() {
	begun := ptrace.Now()
	for {
		now := ptrace.Now()
		since := time.Duration(now - begun)
		if since >= lastStops && !slices.ContainsFunc(e.outstanding, func(t *thread) bool {
			return awaited(e.fs, t.proc.pid, t.tid, since)
		}) {
			return
		}
		e.alarm.Set(now + int64(askEvery))
		for len(e.outstanding) > 0 && ptrace.Now() < now+int64(askEvery) {
			s, ok, err := ptrace.Wait()
			if err != nil {
				return
			}
			if ok {
				e.handle(s)
			}
		}
		if len(e.outstanding) == 0 {
			return
		}
	}
}

// dropVanished drops the threads that the kernel reports no more, when it has
// said that this thread has no tracee: the report of an exit goes to another
// thread of this process if one waits for the same child.
func (e *engine) dropVanished() {
	for _, t := range slices.Clone(e.list) {
		if t.seized {
			e.vanished(t)
		}
	}
}

// maxDrain bounds the reports that are answered in a row while a tick is due.
const maxDrain = 1000

// drain answers the reports that are there.
func (e *engine) drain() {
	for range maxDrain {
		s, ok, err := ptrace.Poll(-1)
		if !ok || err != nil {
			break
		}
		e.handle(s)
	}
}

// sleepUntil sleeps to a CLOCK_MONOTONIC time, or until the alarm rings.
func sleepUntil(at int64) {
	ts := unix.NsecToTimespec(at)
	const abstime = 1 // TIMER_ABSTIME
	unix.ClockNanosleep(unix.CLOCK_MONOTONIC, abstime, &ts, nil)
}

// finish accounts for what is still owed when a run ends while its targets
// live.
func (e *engine) finish() {
	for _, t := range e.list {
		if t.interrupted {
			e.settle(t, NotStopped)
			continue
		}
		if t.blocked {
			if s, err := t.schedstat(e.buf[:]); err == nil && s.Count == t.count {
				e.creditIdle(t, e.tick)
				continue
			}
		}
		e.settle(t, Unsure)
	}
	for _, p := range e.procs {
		p.readCPU()
		e.chargeRest(p)
	}
}

// closeAll closes the files of all threads and processes that are left.
func (e *engine) closeAll() {
	for _, t := range e.list {
		e.closeFiles(t)
	}
	for _, p := range e.procs {
		p.closeFiles()
	}
}
