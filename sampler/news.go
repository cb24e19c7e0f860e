package sampler

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/ledger"
)

// Nobody tells of births, ends and execs: they are found out at ticks.

// census finds out about births and ends.
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

// news finds out, before threads are looked at at tick n, what has become of processes.
func (e *engine) news(n int64) {
	for _, p := range e.procs {
		switch {
		case e.keeper != nil && p.program.replaced.Load(): // the keeper has told
			next, _ := e.programs.Load(p.pid)
			e.onExec(p, next.(*program))
		case e.keeper == nil && p.replaced():
			e.onExec(p, new(program))
		default:
			e.count(p, n)
		}
		if e.opt.Children {
			e.findChildren(p)
		}
	}
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
	if n < c.again && alive-int64(p.threads.Load()) == c.others {
		return
	}
	begun := ptrace.Now()
	e.relist(p, true)
	c.next = n + 1 + int64(float64(ptrace.Now()-begun)/censusShare)/e.ticks.interval
	c.others, c.again = alive-int64(p.threads.Load()), n+censusTicks
}

// relist finds births and ends of threads. born: those that are new have lived since the last
// tick only. fresh tells whether there were births: threads may have made others meanwhile.
func (e *engine) relist(p *process, born bool) (fresh bool, err error) {
	ids, err := e.fs.TaskIDs(p.pid)
	if err != nil {
		if procfs.Gone(err) && e.keeper == nil {
			e.dropAll(p)
		}
		return false, err
	}
	there := idSet(ids)
	for i := len(e.list) - 1; i >= 0 && e.keeper == nil; i-- {
		if t := e.list[i]; t.proc == p && !there[t.tid] {
			e.drop(t)
		}
	}
	if e.procs[p.pid] != p {
		return false, nil
	}
	for _, tid := range ids {
		if e.threads[tid] == nil && !e.unwanted(tid) {
			fresh = e.addThread(p, tid, born) || fresh
		}
	}
	if p.threads.Load() == 0 && e.keeper == nil && e.ended(p) {
		e.dropProcess(p)
	}
	return fresh, nil
}

func idSet(ids []int) map[int]bool {
	s := make(map[int]bool, len(ids))
	for _, id := range ids {
		s[id] = true
	}
	return s
}

// dropAll drops the threads of a process that is gone, and it.
func (e *engine) dropAll(p *process) {
	for _, t := range slices.Clone(e.list) {
		if t.proc == p {
			e.drop(t)
		}
	}
	e.dropProcess(p)
}

// ended tells whether no thread of p lives any more. It asks for the process that was
// attached to, not for one that has got its id since. Its leader stays as a zombie until its parent has taken
// notice.
func (e *engine) ended(p *process) bool {
	if p.tasks >= 0 && unix.Faccessat(p.tasks, strconv.Itoa(p.pid), unix.F_OK, 0) != nil {
		return true
	}
	ids, err := e.fs.TaskIDs(p.pid)
	if err != nil || len(ids) == 0 {
		return true
	}
	if len(ids) > 1 || ids[0] != p.pid {
		return false
	}
	s, err := e.fs.TaskStat(p.pid, p.pid)
	return err != nil || s.State == 'Z' || s.State == 'X'
}

// onExec begins anew with a process whose memory is another now: of its threads the one is left
// that has called exec, and goes by the leader's id.
func (e *engine) onExec(p *process, next *program) {
	if e.ended(p) && e.keeper == nil {
		e.dropAll(p)
		return
	}
	p.program.replaced.Store(true)
	e.programs.CompareAndSwap(p.pid, p.program, next)
	p.program = next
	p.threads.Add(1) // the process lives on, whatever the count says
	leader := e.threads[p.pid]
	for _, t := range slices.Clone(e.list) {
		if t.proc == p && t != leader {
			e.drop(t)
		}
	}
	p.threads.Add(-1)
	e.openProcess(p)
	p.brief, p.captures = true, 0
	p.census = census{}
	if leader != nil {
		e.settle(leader, e.book.Tick(), leader.waited, ledger.Exited)
		leader.watch.Wakes(&p.watch)
		e.drop(leader)
	}
	p.watch.Forget()
	e.out.send(item{gone: p.pid})
	for range listings {
		if fresh, err := e.relist(p, false); !fresh || err != nil {
			break
		}
	}
}

// fewParents is up to how many threads of a process are asked for their children at every tick, whether
// they have run lately or not.
const fewParents = 16

// findChildren begins to sample the processes that threads of p have made.
func (e *engine) findChildren(p *process) {
	e.readChildren(p)
	for _, t := range slices.Clone(e.list) {
		if t.proc != p || p.threads.Load() > fewParents && t.watch.Asleep() && t.slot < 0 {
			continue
		}
		pids, _ := e.fs.Children(p.pid, t.tid)
		for _, pid := range pids {
			if e.procs[pid] == nil {
				e.adopt(p, pid)
			}
		}
	}
}

// adopt begins to sample a process that one of ours has made.
func (e *engine) adopt(parent *process, pid int) {
	if s, err := e.fs.Stat(pid); err != nil || s.State == 'Z' || s.State == 'X' {
		return
	}
	if s, err := e.fs.Status(pid); e.keeper != nil && (err != nil || !e.ours(s.TracerPid)) {
		return // the keeper does not hold it, and will not tell of its end
	}
	shared := sharesMemory(pid, parent.pid)
	p := e.addProcess(pid)
	p.cpuBase, p.brief, p.parent, p.children = 0, true, parent.pid, children{}
	if p.shares = sharesMemory(pid, parent.pid); shared && !p.shares {
		e.openProcess(p) // it has called exec meanwhile, maybe behind that
	}
	own, err1 := os.Readlink(e.fs.Path(pid, "exe"))
	other, err2 := os.Readlink(e.fs.Path(parent.pid, "exe"))
	if err1 == nil && err2 == nil && own == other {
		e.out.send(item{fork: fork{parent.pid, pid}})
	}
	e.relist(p, true)
	if p.threads.Load() == 0 {
		e.dropProcess(p)
	}
}
