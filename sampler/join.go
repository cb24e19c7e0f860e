package sampler

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// joinFound begins to sample the processes of Follow.Found. It is an error if there were some, and none may
// be sampled, unless those are waited for that come.
func (w *news) joinFound() error {
	var errs []error
	for _, pid := range w.opt.Follow.Found {
		if err := w.join(pid); err != nil {
			errs = append(errs, err)
			w.opt.Follow.failed(pid)
		}
	}
	if len(errs) > 0 && len(errs) == len(w.opt.Follow.Found) && !w.opt.Follow.Patient {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		w.said.warn("%v", err)
	}
	return nil
}

func (f *Follow) failed(pid int) {
	if f.Again != nil {
		f.Again(pid)
	}
}

// joinAll begins to sample processes of Follow.Joins, which is open still or not.
func (w *news) joinAll(pids []int, open bool) {
	if !open {
		w.opt.Follow.Joins = nil
	}
	w.book.Advance(w.ticks.passed(ptrace.Now())) // those who come owe no tick that has passed
	for _, pid := range pids {
		if err := w.join(pid); err != nil {
			w.said.warn("%v", err)
			w.opt.Follow.failed(pid)
		}
	}
}

// join begins to sample a process that was found by a search, if it still lives and is not sampled already. What
// has its number by now, and was another process before, begins anew.
func (w *news) join(pid int) error {
	if p := w.roster.procs[pid]; p != nil {
		if !w.ended(p) {
			return nil
		}
		w.dropAll(p)
	}
	if s, err := proc.Stat(pid); err != nil || s.State == 'Z' || s.State == 'X' {
		return nil
	}
	err := w.attach(pid)
	p := w.roster.procs[pid]
	if p == nil {
		return nil // it has ended meanwhile
	}
	if err != nil || p.threads.Load() == 0 {
		w.dropProcess(p)
		if err == nil || procfs.Gone(err) || errors.Is(err, unix.ESRCH) {
			return nil
		}
		return explain(pid, err)
	}
	p.young.brief = true
	w.out.send(item{opened: pid})
	return nil
}

// awaitJoin waits while there is no process to sample. false: the run ends.
func (e *engine) awaitJoin(timer *time.Timer) bool {
	for len(e.roster.procs) == 0 && e.opt.Follow.Joins != nil {
		now := ptrace.Now()
		if now >= e.ticks.until {
			return false
		}
		wake := e.ticks.until
		if e.opt.Every > 0 {
			wake = min(wake, e.rounds.now.until)
		}
		timer.Reset(time.Duration(wake - now))
		e.pulse.rests()
		select {
		case <-timer.C:
			if now := ptrace.Now(); e.rounds.due(now) {
				e.acct.book.Advance(e.ticks.passed(now))
				e.rounds.end(now, false)
			}
		case f := <-e.opt.Hooks.Suspend:
			f()
		case pids, open := <-e.opt.Follow.Joins:
			e.pulse.works()
			e.news.joinAll(pids, open)
		case <-e.pulse.stop:
			e.ticks.until = min(e.ticks.until, ptrace.Now())
			return false
		}
	}
	return len(e.roster.procs) > 0
}
