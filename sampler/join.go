package sampler

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// joinFound begins to sample the processes of Options.Found. It is an error if there were some, and none may
// be sampled.
func (e *engine) joinFound() error {
	var errs []error
	for _, pid := range e.opt.Found {
		if err := e.join(pid); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 && len(errs) == len(e.opt.Found) {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		e.said.warn("%v", err)
	}
	return nil
}

// joinAll begins to sample processes of Options.Joins, which is open still or not.
func (e *engine) joinAll(pids []int, open bool) {
	if !open {
		e.opt.Joins = nil
	}
	e.book.Advance(e.ticks.passed(ptrace.Now())) // those who come owe no tick that has passed
	for _, pid := range pids {
		if err := e.join(pid); err != nil {
			e.said.warn("%v", err)
		}
	}
}

// join begins to sample a process that was found by a search, if it still lives and is not sampled already. What
// has its number by now, and was another process before, begins anew.
func (e *engine) join(pid int) error {
	if p := e.procs[pid]; p != nil {
		if !e.ended(p) {
			return nil
		}
		e.dropAll(p)
	}
	if s, err := e.fs.Stat(pid); err != nil || s.State == 'Z' || s.State == 'X' {
		return nil
	}
	err := e.attach(pid)
	p := e.procs[pid]
	if p == nil {
		return nil // it has ended meanwhile
	}
	if err != nil || p.threads.Load() == 0 {
		e.dropProcess(p)
		if err == nil || procfs.Gone(err) || errors.Is(err, unix.ESRCH) {
			return nil
		}
		return e.explain(pid, err)
	}
	p.brief = true
	e.out.send(item{opened: pid})
	return nil
}

// awaitJoin waits while there is no process to sample. false: the run ends.
func (e *engine) awaitJoin(timer *time.Timer) bool {
	for len(e.procs) == 0 && e.opt.Joins != nil {
		now := ptrace.Now()
		if now >= e.ticks.until {
			return false
		}
		wake := e.ticks.until
		if e.opt.Every > 0 {
			wake = min(wake, e.round.until)
		}
		timer.Reset(time.Duration(wake - now))
		e.pulse.rests()
		select {
		case <-timer.C:
			if now := ptrace.Now(); e.roundDue(now) {
				e.book.Advance(e.ticks.passed(now))
				e.endRound(now, false)
			}
		case f := <-e.opt.Suspend:
			f()
		case pids, open := <-e.opt.Joins:
			e.pulse.works()
			e.joinAll(pids, open)
		case <-e.pulse.stop:
			e.ticks.until = min(e.ticks.until, ptrace.Now())
			return false
		}
	}
	return len(e.procs) > 0
}
