package sampler

import (
	"slices"

	"sfsample/ptrace"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
)

// listing is the coordinator's side of the board: which thread is in which slot. A slot is a thread's until the board has
// taken it back, which it refuses while a clock holds the thread, and no file that clocks read there is closed before.
type listing struct {
	opt   *Options
	book  *ledger.Book
	files *files
	board board
	bank  *clocks.Bank
	slots []*thread     // by slot; one of id 0 stands for who is not known yet
	n     int           // threads that are on the board, but for those that are gone
	later []func() bool // what is to be tried again at the next tick until it is true
	heard uint32        // how often clocks had called when all slots to spare were ready
	// restless is the last tick at which there was something that clocks do not do alone: a thread that they do not know, or could not sample.
	restless int64
}

// board is what a listing wants of a [clocks.Board].
type board interface {
	Put(clocks.Thread) int
	Remove(slot int) bool
	Advise(slot int, a taking.Advice) bool
	Met(slot int, n int64) clocks.Meeting
	Asked(slot int) int64
	Holds(slot int, n int64) bool
	Group(clock int32) int
	Ungroup(group int)
	Renew(slot int) bool
	Bell() uint32
}

// retry does what could not be done yet, as far as clocks have let go; pending tells that there is some of it.
func (l *listing) retry() {
	l.later = slices.DeleteFunc(l.later, func(try func() bool) bool { return try() })
}
func (l *listing) pending() bool { return len(l.later) > 0 }

// thread is the one in a slot, nil if there is none.
func (l *listing) thread(slot int) *thread {
	if slot >= len(l.slots) {
		return nil
	}
	return l.slots[slot]
}

// advise tells the board what unwinding has found out about a thread.
func (l *listing) advise(t *thread) {
	if now := t.fb.state(); t.slot >= 0 && now != t.advice {
		a := t.fb.Get()
		if !l.board.Advise(t.slot, a.Advice) {
			return
		}
		t.advice = now
		l.bank.Fit(a.Room(), clocks.RoundUp(a.Beyond))
	}
}

// ask asks for a stop of a thread wherever it is. false: that cannot be done.
func (l *listing) ask(t *thread) bool {
	if t.slot < 0 || !l.bank.Ask(t.slot) {
		return false
	}
	t.req.asking, t.req.asked = true, l.book.Tick()
	return true
}

// awake puts a thread on the board, where clocks find it, and sees to it that its CPU has one.
func (l *listing) awake(t *thread, cpu int) {
	if t.slot >= 0 || l.opt.Stop == StopNever || t.noUserStack || !l.files.list(t) {
		return
	}
	if !l.put(t) {
		l.leave(t)
		return
	}
	t.advice = t.fb.state()
	l.n++
	if cpu >= 0 {
		l.bank.Need(cpu, l.book.Tick())
	}
}

// put gives a thread a slot. false: there is none.
func (l *listing) put(t *thread) bool {
	a := t.fb.Get()
	t.slot = l.board.Put(clocks.Thread{TID: t.tid, PID: t.proc.pid, Sched: t.open.sched, Stat: t.open.stat, Debug: t.open.debug,
		Call: t.open.call, Stack: t.open.stack, Clock: t.proc.clock, Group: t.proc.group, Crowd: &t.proc.threads, Pages: int(t.proc.mem.pages), Advice: a.Advice, Run: int64(t.line.Run())})
	if t.slot < 0 {
		return false
	}
	for len(l.slots) <= t.slot {
		l.slots = append(l.slots, nil)
	}
	l.slots[t.slot] = t
	return true
}

// spare has clocks sample a thread of a process whom they meet before it is known.
func (l *listing) spare(p *process) {
	if l.opt.Stop == StopNever || l.opt.ExitStacks || p.only || p.uncounted || p.group < 0 {
		return
	}
	p.mem.since = ptrace.Now()
	if t := newThread(p, 0); l.put(t) {
		p.mem.spare = t
	}
}

// unspare takes that back.
func (l *listing) unspare(p *process) {
	t := p.mem.spare
	if p.mem.spare = nil; t == nil || l.leave(t) {
		return
	}
	l.gone(t)
}

// renew makes slots to spare ready again which clocks have used.
func (l *listing) renew(procs map[int]*process) {
	bell := l.board.Bell()
	if bell == l.heard {
		return
	}
	for _, p := range procs {
		t := p.mem.spare
		if t == nil {
			continue
		}
		if l.advise(t); !l.board.Renew(t.slot) {
			bell = l.heard // once more at the next tick
		}
	}
	l.heard = bell
}

// leave takes a thread off the board. false: a clock holds it just now.
func (l *listing) leave(t *thread) bool {
	if t.slot >= 0 {
		if !l.board.Remove(t.slot) {
			return false
		}
		l.slots[t.slot] = nil
		if t.slot = -1; t.tid != 0 {
			l.n--
		}
	}
	l.files.unlist(t)
	return true
}

// gone closes the files of a thread that a clock still holds, when that has let go of it.
func (l *listing) gone(t *thread) {
	slot := t.slot
	if t.tid != 0 {
		l.n--
	}
	t.proc.mem.held++
	closeFiles := l.files.part(t)
	l.later = append(l.later, func() bool {
		if !l.board.Remove(slot) {
			return false
		}
		l.slots[slot] = nil
		t.proc.mem.held--
		closeFiles()
		return true
	})
}

// closePages closes the pagemap of a process, when no clock holds a thread any more that reads it.
func (l *listing) closePages(p *process) {
	pages := p.mem.pages
	p.mem.pages = -1
	if p.mem.held == 0 {
		pages.Close()
		return
	}
	l.later = append(l.later, func() bool {
		if p.mem.held > 0 {
			return false
		}
		pages.Close()
		return true
	})
}

// asked tells whether a clock has asked a thread to stop at a tick that it owes: its sample is to come.
func (l *listing) asked(t *thread, n int64) bool {
	return t.slot >= 0 && l.board.Asked(t.slot) > n-l.book.Owed(&t.line, n)
}
