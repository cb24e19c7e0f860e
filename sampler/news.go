package sampler

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/ledger"
	"sfsample/sampler/watch"
)

// Nobody tells of births, ends and execs: they are found out at ticks.

// news finds out about births, ends and execs. Who is on the roster has what belongs to it: its process, a line in the book, files; who
// is taken off has given all of that back, and its ticks are accounted for.
type news struct {
	opt     *Options
	said    *notices
	ticks   *ticks
	pulse   *pulse
	files   *files
	listing *listing
	roster  *roster
	acct    *accounts
	book    *ledger.Book
	out     *outlet
	keeping *keeping
}

// listings bounds how often the threads of a process are listed until nothing is new.
const listings = 100

// census finds out about births and ends.
type census struct {
	others int64 // threads that the kernel counts and that are not sampled
	next   int64 // earliest tick of the next listing
	again  int64 // tick at which one is due in any case
}

const (
	// censusShare is the part of the time that listings may take.
	censusShare = 0.02
	// seldomCensus is that where looks are seldom: one thread for each request would have the coordinator look at each tick.
	seldomCensus = 0.001
	// censusTicks is after how many ticks a listing is due whatever the count says:
	// one thread may have been born for another that has ended.
	censusTicks = 128
)

func idSet(ids []int) map[int]bool {
	s := make(map[int]bool, len(ids))
	for _, id := range ids {
		s[id] = true
	}
	return s
}

// fewParents is up to how many threads of a process are asked for their children at every tick, whether
// they have run lately or not.
const fewParents = 16

// find finds out, before threads are looked at at tick n, what has become of processes.
func (w *news) find(n int64) {
	for _, p := range w.roster.procs {
		switch {
		case w.keeping.on() && p.program.replaced.Load(): // the keeper has told
			next, _ := w.keeping.programs.Load(p.pid)
			w.onExec(p, next.(*program))
		case !w.keeping.on() && (p.replaced() || p.blind()):
			w.onExec(p, new(program))
		default:
			w.count(p, n)
		}
		if w.opt.Follow.Children {
			w.findChildren(p)
		}
	}
}

// count lists the threads of a process if there are others than those that are
// known.
func (w *news) count(p *process, n int64) {
	c := &p.census
	var st unix.Stat_t
	if n < c.next || unix.Fstat(p.mem.tasks, &st) != nil {
		return
	}
	// A folder has two links, and this one another for each thread
	// (proc_task_getattr, fs/proc/base.c).
	alive := int64(st.Nlink) - 2
	if n < c.again && alive-int64(p.threads.Load()) == c.others {
		return
	}
	begun := ptrace.Now()
	w.relist(p, true)
	share := censusShare
	if w.opt.Budget.Seldom {
		share = seldomCensus
	}
	c.next = n + 1 + int64(float64(ptrace.Now()-begun)/share)/w.ticks.interval
	c.others, c.again = alive-int64(p.threads.Load()), n+censusTicks
}

// relist finds births and ends of threads. born: those that are new have lived since the last
// tick only. fresh tells whether there were births: threads may have made others meanwhile.
func (w *news) relist(p *process, born bool) (fresh bool, err error) {
	ids, err := proc.TaskIDs(p.pid)
	if err != nil {
		if procfs.Gone(err) && !w.keeping.on() {
			w.dropAll(p)
		}
		return false, err
	}
	there := idSet(ids)
	for i := len(w.roster.list) - 1; i >= 0 && !w.keeping.on(); i-- {
		if t := w.roster.list[i]; t.proc == p && !there[t.tid] {
			w.drop(t)
		}
	}
	if w.roster.procs[p.pid] != p {
		return false, nil
	}
	for _, tid := range ids {
		if w.roster.threads[tid] == nil && !w.roster.unwanted(tid) {
			fresh = w.addThread(p, tid, born) || fresh
		}
	}
	if p.threads.Load() == 0 && !w.keeping.on() && w.ended(p) {
		w.dropProcess(p)
	}
	return fresh, nil
}

// dropAll drops the threads of a process that is gone, and it.
func (w *news) dropAll(p *process) {
	for _, t := range w.roster.of(p) {
		w.drop(t)
	}
	w.dropProcess(p)
}

// ended tells whether no thread of p lives any more. It asks for the process that was
// attached to, not for one that has got its id since. Its leader stays as a zombie until its parent has taken
// notice.
func (w *news) ended(p *process) bool {
	if p.mem.tasks >= 0 && unix.Faccessat(p.mem.tasks, strconv.Itoa(p.pid), unix.F_OK, 0) != nil {
		return true
	}
	for i, zombies := 0, 0; i < listings && zombies < 2; i++ {
		ids, err := proc.TaskIDs(p.pid)
		if err != nil || len(ids) == 0 {
			return true
		}
		if len(ids) > 1 || ids[0] != p.pid {
			return false
		}
		s, err := proc.Task(p.pid, p.pid).Stat()
		switch {
		case err != nil || s.State == 'X': // the next list tells whether it has been reaped, or another thread has become the leader (de_thread, fs/exec.c)
		case s.State == 'Z': // or it was when another thread was calling exec, and has gone into the list since
			zombies++
		default:
			return false
		}
	}
	return true
}

// onExec begins anew with a process whose memory is another now: of its threads the one is left
// that has called exec, and goes by the leader's id.
func (w *news) onExec(p *process, next *program) {
	if w.ended(p) && !w.keeping.on() {
		w.dropAll(p)
		return
	}
	p.program.replaced.Store(true)
	w.keeping.programs.CompareAndSwap(p.pid, p.program, next)
	p.program = next
	p.threads.Add(1) // the process lives on, whatever the count says
	leader := w.roster.threads[p.pid]
	for _, t := range w.roster.of(p) {
		if t != leader {
			w.drop(t)
		}
	}
	p.threads.Add(-1)
	w.openProcess(p)
	p.young.brief, p.young.captures = true, 0
	p.census = census{}
	if leader != nil {
		w.acct.settle(leader, w.book.Tick(), leader.queue.waited, ledger.Exited)
		leader.watch.Wakes(&p.watch)
		w.drop(leader)
	}
	p.watch.Forget()
	w.out.send(item{gone: p.pid})
	for range listings {
		if fresh, err := w.relist(p, false); !fresh || err != nil {
			break
		}
	}
	if t := w.roster.threads[p.pid]; t != nil {
		w.listing.awake(t, -1) // it has run just now
	}
}

// became begins a program that a clock has met at thread t, and of which nothing else is known: it is over when the next look finds out what there is by then.
func (w *news) became(t *thread) {
	p, next := t.proc, new(program)
	p.program.replaced.Store(true)
	next.replaced.Store(true)
	w.keeping.programs.CompareAndSwap(p.pid, p.program, next)
	p.program = next
	t.fb = p.feedback()
	w.out.send(item{gone: p.pid})
}

// findChildren begins to sample the processes that threads of p have made.
func (w *news) findChildren(p *process) {
	w.acct.readChildren(p)
	for _, t := range w.roster.of(p) {
		if p.threads.Load() > fewParents && t.watch.Asleep() && t.slot < 0 {
			continue
		}
		pids, _ := proc.Task(p.pid, t.tid).Children()
		for _, pid := range pids {
			if w.roster.procs[pid] == nil {
				w.adopt(p, pid)
			}
		}
	}
}

// adopt begins to sample a process that one of ours has made.
func (w *news) adopt(parent *process, pid int) {
	if s, err := proc.Stat(pid); err != nil || s.State == 'Z' || s.State == 'X' {
		return
	}
	if s, err := proc.Status(pid); w.keeping.on() && (err != nil || !ours(s.TracerPid)) {
		return // the keeper does not hold it, and will not tell of its end
	}
	shared := sharesMemory(pid, parent.pid)
	p := w.addProcess(pid)
	p.cpu.base, p.young.brief, p.children = 0, true, children{parent: parent.pid}
	if p.mem.shares = sharesMemory(pid, parent.pid); shared && !p.mem.shares {
		w.openProcess(p) // it has called exec meanwhile, maybe behind that
	}
	own, err1 := os.Readlink(proc.Path(pid, "exe"))
	other, err2 := os.Readlink(proc.Path(parent.pid, "exe"))
	if err1 == nil && err2 == nil && own == other {
		w.out.send(item{fork: fork{parent.pid, pid}})
	}
	w.relist(p, true)
	if p.threads.Load() == 0 {
		w.dropProcess(p)
	}
}

// attach begins to sample every thread of the process. Threads that appear meanwhile are
// found by listing again until nothing is new (two rounds were enough on a
// process that made thousands of threads a second).
func (w *news) attach(pid int) error {
	p := w.addProcess(pid)
	if err := w.permitted(p); err != nil {
		return err
	}
	for range listings {
		fresh, err := w.relist(p, false)
		if err != nil {
			return fmt.Errorf("list the threads of %d: %w", pid, err)
		}
		// In the midst of an exec by another thread than the leader, all that is listed may have ended.
		if !fresh && (p.threads.Load() > 0 || len(w.roster.wanted) > 0 || w.roster.procs[pid] != p) {
			break
		}
	}
	return nil
}

// permitted tells whether the process may be traced. Files that ask for the same right (mm_access
// and lock_trace with PTRACE_MODE_ATTACH, fs/proc/base.c) tell that without a trace.
func (w *news) permitted(p *process) error {
	if w.opt.Stop == StopNever {
		return nil
	}
	for {
		tid, err := proc.LiveTask(p.pid)
		if err != nil {
			return unix.ESRCH
		}
		if s, err := proc.Status(tid); err == nil && s.TracerPid != 0 && !w.keeping.on() {
			w.said.warn("thread %d is traced by process %d: it is read without stops, running it is not sampled", tid, s.TracerPid)
		}
		_, err = proc.Task(p.pid, tid).Syscall()
		var errno unix.Errno
		if !errors.As(err, &errno) || errno != unix.EACCES && errno != unix.EPERM {
			return nil
		}
		// The files of a thread that exits are root's: another one tells.
		if s, err := proc.Stat(tid); err == nil && s.Flags&procfs.FlagExiting == 0 {
			return unix.EPERM
		}
	}
}

func (w *news) addProcess(pid int) *process {
	if p := w.roster.procs[pid]; p != nil {
		return p
	}
	p := &process{pid: pid, clock: cpuClock(pid), group: -1, only: len(w.roster.wanted) > 0, uncounted: w.opt.test.uncounted, mem: memory{tasks: -1, pages: -1}, program: new(program), young: young{brief: w.opt.ExitStacks}}
	if w.roster.procs[pid] = p; w.opt.Budget.Seldom || !p.only {
		p.group = w.listing.board.Group(p.clock)
	}
	w.openProcess(p)
	p.cpu.base, _ = p.cpuTime()
	if s, err := proc.Stat(pid); err == nil && w.opt.Follow.Children {
		p.children.parent, p.children.base = s.PPID, s.Reaped
	}
	p.watch = watch.NewProcess(w.book.Tick(), w.ticks.times, p.cpu.base)
	v, _ := w.keeping.programs.LoadOrStore(pid, p.program)
	p.program = v.(*program)
	return p
}

// openProcess opens what is read of a process again and again, and belongs to its program of now.
func (w *news) openProcess(p *process) {
	w.closeProcess(p) // the memory before an exec is another
	p.mem.shares = false
	fd, err := unix.Open(proc.Path(p.pid, "task"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	p.mem.tasks = fd
	p.mem.pages = proc.OpenPagemap(p.pid)
	if p.mem.pages < 0 || p.replaced() {
		p.mem.pages.Close()
		if tid, err := proc.LiveTask(p.pid); err == nil { // the leader has exited
			p.mem.pages = proc.OpenPagemap(tid)
		}
		if p.replaced() { // it has ended, or is in an exec again
			p.mem.pages.Close()
			p.mem.pages = -1
		}
	}
	w.listing.spare(p)
}

// addThread begins a thread that was found by listing. born: it has lived since the last
// listing only. false: it has exited.
func (w *news) addThread(p *process, tid int, born bool) bool {
	w.pulse.works()
	t := newThread(p, tid)
	st, err := proc.Task(p.pid, tid).Stat()
	if w.files.failed(err) || err != nil || st.State == 'Z' || st.State == 'X' {
		return false // or a leader that has exited while its process lives
	}
	t.noUserStack = st.NoUserStack()
	w.files.keep(t)
	s, err := w.files.schedstat(t)
	if err != nil {
		w.files.close(t)
		return false
	}
	t.queue.waited, t.queue.let = s.Wait, timesOf(s)
	t.queue.let.ran += untold
	run := s.Run
	if born {
		run = min(s.Run, p.cpu.ahead)
		p.cpu.ahead -= run
	}
	w.book.Open(&t.line, run)
	w.roster.enlist(t)
	if w.keeping.on() {
		w.keeping.feedback.Store(tid, t.fb)
	}
	if st.State == 'R' {
		w.listing.awake(t, st.Processor)
	} else {
		t.watch.Found(s.Count, s.Run)
	}
	return true
}

// met begins to sample a thread of p that a clock has met at tick n, before it was listed. It has run for so long. Its sample stands for a tick, as far as there is CPU time
// of its process that nobody's does: others have ended before they were met. nil: it is not to be sampled.
func (w *news) met(p *process, tid int, n int64, run time.Duration) *thread {
	t := w.roster.threads[tid]
	switch {
	case t != nil && t.proc == p:
		w.listing.awake(t, -1) // it had left the board
		return t
	case t != nil || w.roster.procs[p.pid] != p:
		return nil
	}
	t = newThread(p, tid)
	w.files.keep(t)
	known := min(run, p.cpu.ahead)
	p.cpu.ahead -= known
	if left, ok := w.left(p, t, run); ok {
		known = min(run, max(known, run-left))
		p.cpu.stands = max(min(left, time.Duration(w.ticks.interval))-(run-known), 0)
	}
	w.book.OpenAt(&t.line, n, known)
	w.roster.enlist(t)
	w.listing.awake(t, -1)
	return t
}

// readsAtMost is how many threads are read a second at most to know what a stranger's sample stands for.
const readsAtMost = 6400

// left is how much CPU time of a process no sample stands for, or will: that of threads that have ended, and of t, which is not on the roster, up to run. false: of one
// of many threads, which would have to be read at each tick, that is not found out.
func (w *news) left(p *process, t *thread, run time.Duration) (cpu time.Duration, ok bool) {
	if int64(p.threads.Load()) > readsAtMost*w.ticks.interval/int64(time.Second) {
		return 0, false
	}
	if cpu, ok = p.cpuTime(); !ok {
		return 0, false
	}
	cpu -= p.cpu.base + p.cpu.charged
	if s, err := w.files.schedstat(t); err == nil {
		cpu -= max(s.Run-run, 0)
	}
	for _, o := range w.roster.of(p) {
		if s, err := w.files.schedstat(o); err == nil {
			cpu -= max(s.Run-o.line.Run(), 0)
		}
	}
	return max(cpu, 0), true
}

// drop takes a thread out that has exited, if that was not done before. Its ticks so
// far are accounted for.
func (w *news) drop(t *thread) {
	if !w.roster.has(t) {
		return
	}
	w.acct.settle(t, w.book.Tick(), t.queue.waited, ledger.Exited)
	t.watch.Wakes(&t.proc.watch)
	if w.listing.leave(t) {
		w.files.close(t)
	} else {
		w.listing.gone(t)
	}
	w.acct.creditWaits(t)
	w.book.Close(&t.line, ledger.Exited)
	t.proc.watch.Forget() // nobody knows how long it ran
	w.roster.strike(t)
	w.keeping.feedback.Delete(t.tid)
	if t.shown {
		w.out.send(item{left: left{t.proc.pid, t.tid}})
	}
	if w.opt.test.ended != nil {
		w.opt.test.ended(t.tid)
	}
	if !w.keeping.on() && t.proc.threads.Load() == 0 && w.ended(t.proc) {
		w.dropProcess(t.proc)
	}
}

func (w *news) dropProcess(p *process) {
	if w.roster.procs[p.pid] != p {
		return
	}
	delete(w.roster.procs, p.pid)
	w.listing.board.Ungroup(p.group)
	w.keeping.programs.Delete(p.pid)
	p.readCPU()
	w.acct.chargeRest(p)
	w.acct.endChild(p)
	w.closeProcess(p)
	w.out.send(item{gone: p.pid})
	if p.pid == w.opt.Follow.Command && !w.keeping.on() {
		ptrace.ReapEnd(p.pid)
	}
}

// closeAll closes the files of all threads and processes that are left.
func (w *news) closeAll() {
	for _, t := range w.roster.list {
		w.files.close(t)
	}
	for _, p := range w.roster.procs {
		w.closeProcess(p)
	}
}

// closeProcess closes what is open of a process itself: what clocks read, when none does any more.
func (w *news) closeProcess(p *process) {
	closeFD(&p.mem.tasks)
	w.listing.unspare(p)
	w.listing.closePages(p)
}
