package stuck

import (
	"slices"

	"golang.org/x/sys/unix"
)

// handlers are a process's handlers of signals, as far as they end waits that look as if nobody could.
type handlers struct {
	others   bool  // some, for signals that come from outside
	children []int // who live: their end comes as a signal too, if that is handled. 0: not all are known
}

// ownSignals come of what a thread does itself, or are the C library's (bit n = signal n+1).
const ownSignals = 1<<(unix.SIGILL-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGABRT-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) | 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGPIPE-1) |
	1<<(unix.SIGSYS-1) | 1<<(32-1) | 1<<(33-1)

// readHandlers looks for the handlers of processes whose waits may become part of a proof. It is called between the looks: a child that has ended since then
// has woken its parent.
func (d *Dump) readHandlers() {
	for _, t := range d.roster.threads {
		if p := t.Process; signalled(t) && p.handlers == nil {
			p.handlers = d.handlersOf(t)
		}
	}
}

// signalled: a signal may end the wait, or a handler do something about it. No handler may let go a lock (signal-safety(7)).
func signalled(t *Thread) bool { return t.Wait != nil && t.Wait.Whole && t.Wait.Kind != "futex" }

func (d *Dump) handlersOf(t *Thread) *handlers {
	st, err := d.fs.Status(t.PID)
	if err != nil {
		return &handlers{others: true, children: []int{0}}
	}
	h := &handlers{others: st.Caught&^ownSignals != 0}
	if st.Caught>>(unix.SIGCHLD-1)&1 == 0 {
		return h
	}
	list, known := d.children(t, false)
	for _, c := range list {
		if c.State != 'Z' && c.State != 'X' {
			h.children = append(h.children, c.PID)
		}
	}
	if !known {
		h.children = append(h.children, 0)
	}
	return h
}

// wakers are who may wake a thread by a signal that its process has a handler for: children by their end, and anybody where the other end of what it
// reads from is its own, since that is what handlers write to.
func wakers(t *Thread) (list []Releaser) {
	if !signalled(t) || t.Process.handlers == nil {
		return nil
	}
	h := t.Process.handlers
	for _, pid := range h.children {
		list = append(list, Releaser{PID: pid, How: Ends})
	}
	if h.others && slices.ContainsFunc(t.Wait.On, func(r Releaser) bool { return r.How == HasEnd && r.PID == t.PID }) {
		list = append(list, Releaser{})
	}
	return list
}
