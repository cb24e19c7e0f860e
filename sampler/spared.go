package sampler

import (
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// A thread that never runs need not be traced: it is read without a stop. Of a
// process with many threads those that wait are therefore seized when that is
// needed: to stop one, or as it was found to have run and may make threads. For the
// kernel looks at each tracee at each wait, twice: 500 cost a hundredth of a CPU at
// 99 Hz, and 10,000 a third of one.
//
// What tracing would tell of the spared ones is found out otherwise: births and ends
// by counting the process's threads at each tick, exec by asking whether the leader,
// which is always traced, still is.

// fewTracees is up to how many tracees of a process cost nothing to speak of.
const fewTracees = 64

// mayspare tells whether threads need not be traced from the beginning on.
func (e *engine) mayspare() bool {
	return e.opt.Stop == StopAuto && !e.opt.ExitStacks && !e.opt.Children && e.opt.Command == 0 && len(e.wanted) == 0
}

// few is up to how many threads of a process are traced without need.
func (e *engine) few() int {
	if e.opt.few > 0 {
		return e.opt.few
	}
	return fewTracees
}

// spare tells whether the thread tid of p, which was found by listing, is left
// untraced for now.
func (e *engine) spare(p *process, tid int) bool {
	leader := e.threads[p.pid]
	return p.spares && tid != p.pid && leader != nil && leader.seized
}

// unspare is told that a thread is traced by now, or gone.
func (t *thread) unspare() {
	if t.spared {
		t.spared = false
		t.proc.spared--
	}
}

// stirred seizes a thread that has run since it was last looked at, as long as there
// are few tracees.
func (e *engine) stirred(t *thread) {
	if t.spared && t.proc.threads-t.proc.spared < e.few() {
		e.trace(t)
	}
}

// trace seizes a thread that was spared so far.
func (e *engine) trace(t *thread) {
	if t.spared {
		t.unspare()
		e.seizeLate(t)
	}
}

// seizeLate seizes a thread while sampling goes on, and tells if that is not
// permitted any more. If the thread has exited, the next look tells.
func (e *engine) seizeLate(t *thread) {
	if e.seize(t) == unix.EPERM {
		if s, err := e.fs.TaskStat(t.proc.pid, t.tid); err == nil && s.State != 'Z' && s.State != 'X' {
			e.warn("threads of process %d may not be traced any more: running ones are not sampled (%s)", t.proc.pid, Remedy(t.proc.pid))
		}
	}
}

// dropSpared drops the spared threads of a process that has ended: nobody reports
// them.
func (e *engine) dropSpared(p *process) {
	for i := len(e.list) - 1; i >= 0 && p.spared > 0; i-- {
		if t := e.list[i]; t.proc == p && t.spared {
			e.drop(t)
		}
	}
}

// census finds out about births and ends that nobody reports.
type census struct {
	others int64 // threads that the kernel counts and that are not sampled
	next   int64 // earliest tick of the next listing
	again  int64 // tick at which one is due in any case
}

const (
	// censusShare is the part of the time that listings may take.
	censusShare = 0.02
	// censusTicks is after how many ticks a listing is due whatever the count says:
	// one thread may have been born for another that has ended.
	censusTicks = 128
)

// untoldNews finds out, before tick n is handled, what nobody reports of processes.
func (e *engine) untoldNews(n int64) {
	for _, p := range e.procs {
		switch {
		case e.untold(p):
			e.onUntoldExec(p)
		case p.spares:
			e.count(p, n)
		}
	}
}

// untold tells whether a thread of p has called exec that was no tracee then, so that
// nobody reports it. Such a thread may also have been seized just when it did.
func (e *engine) untold(p *process) bool {
	leader := e.threads[p.pid]
	return p.became || leader != nil && leader.seized && !ptrace.Traced(p.pid)
}

// count lists the threads of a process if there are others than those that are
// known.
func (e *engine) count(p *process, n int64) {
	c := &p.census
	var st unix.Stat_t
	if n < c.next || unix.Fstat(p.tasks, &st) != nil {
		return
	}
	// A folder has two links, and this one another for each thread
	// (proc_task_getattr, fs/proc/base.c).
	alive := int64(st.Nlink) - 2
	if n < c.again && alive-int64(p.threads) == c.others {
		return
	}
	begun := ptrace.Now()
	e.relist(p)
	c.next = n + 1 + int64(float64(ptrace.Now()-begun)/censusShare)/e.interval
	c.others, c.again = alive-int64(p.threads), n+censusTicks
}

// relist finds births and ends of threads that nobody has reported. more tells
// whether there were births: threads that were not traced may have made others
// meanwhile.
func (e *engine) relist(p *process) (more bool) {
	ids, err := e.fs.TaskIDs(p.pid)
	if err != nil {
		return false
	}
	there := idSet(ids)
	for i := len(e.list) - 1; i >= 0; i-- {
		if t := e.list[i]; t.proc == p && t.spared && !there[t.tid] {
			e.note(ptrace.KindGone, t.tid)
			e.drop(t)
		}
	}
	for _, tid := range ids {
		if e.threads[tid] != nil || e.unwanted(tid) {
			continue
		}
		added, err := e.addThread(p, tid)
		if added {
			e.note(ptrace.KindClone, tid)
			e.threads[tid].run = 0 // it has lived since the last look only
		}
		more = more || added || err == errBecame
	}
	return more
}

func idSet(ids []int) map[int]bool {
	s := make(map[int]bool, len(ids))
	for _, id := range ids {
		s[id] = true
	}
	return s
}

// there tells whether some thread of p lives. It asks for the process that was
// attached to, not for one that has got its id since.
func (e *engine) there(p *process) bool {
	if p.tasks >= 0 && unix.Faccessat(p.tasks, strconv.Itoa(p.pid), unix.F_OK, 0) != nil {
		return false
	}
	ids, err := e.fs.TaskIDs(p.pid)
	return err == nil && len(ids) > 0 && !e.ended(p, ids)
}

// onUntoldExec begins anew with a process of which a thread has called exec that nobody
// reports: that has the leader's id now, and is not our tracee if it was not seized
// meanwhile. Nobody reports the end of such a process either.
func (e *engine) onUntoldExec(p *process) {
	if !e.there(p) {
		for _, t := range slices.Clone(e.list) {
			if t.proc == p {
				e.note(ptrace.KindGone, t.tid)
				e.drop(t)
			}
		}
		return
	}
	e.note(ptrace.KindExec, p.pid)
	e.renew(p, e.threads[p.pid])
	t := e.threads[p.pid]
	e.seizeLate(t)
	if s, err := t.schedstat(e.buf[:]); err == nil {
		t.run = s.Run // nobody knows which thread it was
	}
	for range listings {
		if !e.relist(p) { // it may have made threads by now
			break
		}
	}
}
