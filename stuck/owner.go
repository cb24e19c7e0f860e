package stuck

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// futexWords puts a wait on a lock in words and finds its owner.
func (d *Dump) futexWords(t *Thread, w *Wait) {
	l := &w.lock
	w.What = fmt.Sprintf("%s %#x", l.kind, w.Lock)
	if ownWord[w.fam.kind] {
		w.What, w.Object, w.Lock = l.kind, "", 0
	}
	w.Text = "waits for " + w.What
	if l.kind == endOfThread {
		w.What, w.Text = l.kind, "waits for the "+l.kind
	}
	if w.fam.kind == javaMonitor { // it looks again now and then (ObjectMonitor::EnterI)
		w.Timed = false
	}
	if l.note != "" {
		w.Text += " (" + l.note + ")"
	}
	w.Unknown = l.unknown
	if text, ok := instead[w.fam.kind]; ok {
		w.Text, w.Unknown = text, ""
	}
	if strings.HasPrefix(w.fam.kind, "go") {
		d.missGoroutines(t.PID)
	}
	switch {
	case l.free && l.kind == "semaphore":
		w.Lost = "though it may go on: a wake-up was lost, or its sender has not run since"
	case l.free:
		w.Lost = "which is free: a wake-up was lost, or its sender has not run since"
	case l.owner != 0:
		d.lockOwner(t, w)
	}
}

// ShowsGoroutines says that whoever makes the dump shows the goroutines of a process, or tells why not. It is called before
// [Dump.End].
func (d *Dump) ShowsGoroutines(pid int) {
	if d.shown == nil {
		d.shown = map[int]bool{}
	}
	d.shown[pid] = true
}

// missGoroutines tells that a thread of Go is not what waits.
func (d *Dump) missGoroutines(pid int) {
	if d.shown[pid] {
		return
	}
	d.miss("what the goroutines of pid %d wait for: only threads are looked at (SIGQUIT makes a Go program print them, and ends it)", pid)
}

const endOfThread = "end of a thread"

// lockOwner names the thread whose number stands in a lock. A number of another pid
// namespace is that of the thread's own.
func (d *Dump) lockOwner(t *Thread, w *Wait) {
	r := Releaser{How: Holds, evidence: fmt.Sprintf("the lock at %#x holds the thread id %d", w.Lock, w.lock.owner)}
	if w.lock.kind == endOfThread {
		r.How = Ends
	}
	private := t.Args[1]&futexPrivate != 0
	switch o := t.process.byInner[w.lock.owner]; {
	case o != nil:
		r.PID, r.TID, r.Name = o.PID, o.TID, o.Name
	case private || t.process.inner:
		k := innerKey{t.PID, w.lock.owner, private}
		o, ok := d.inner[k]
		if !ok { // thousands may wait for the same, and each search takes its time
			o.pid, o.tid = d.inNamespace(t, w.lock.owner, private)
			d.inner[k] = o
		}
		r.PID, r.TID = o.pid, o.tid
	default:
		if st, err := d.fs.Status(w.lock.owner); err == nil {
			r.PID, r.TID, r.Name = st.Tgid, st.Pid, st.Name
		}
	}
	w.Whole = true
	if r.TID == 0 {
		w.Whole = false
		w.Unknown = fmt.Sprintf("the word has %d, which is no thread that can be seen: it has ended, or the memory is overwritten", w.lock.owner)
		return
	}
	w.Unknown = ""
	w.on(r, d)
}

// innerKey is a thread's number as a process has it, and where it was looked for.
type innerKey struct {
	pid, id int
	private bool
}

type outerID struct{ pid, tid int }

// namespaceSearch bounds the search for a number of another pid namespace.
const namespaceSearch = 20 * time.Millisecond

// inNamespace finds the thread that is called id in the pid namespace of t: in its own
// process (whose other threads may not have been asked for) or, for a lock that
// processes share, in any of the same namespace.
func (d *Dump) inNamespace(t *Thread, id int, private bool) (pid, tid int) {
	ns, err := d.fs.Namespace(t.TID, "pid")
	pids := []int{t.PID}
	if !private && err == nil {
		if all, err := d.fs.PIDs(); err == nil {
			pids = append(pids, all...)
		}
	}
	deadline := time.Now().Add(namespaceSearch)
	for _, pid := range pids {
		if other, err := d.fs.Namespace(pid, "pid"); pid != t.PID && (err != nil || other != ns) || time.Now().After(deadline) {
			continue
		}
		ids, _ := d.fs.TaskIDs(pid) // none: it has ended
		for _, tid := range ids {
			st, err := d.fs.Status(tid)
			if err == nil && len(st.NSpid) > 0 && st.NSpid[len(st.NSpid)-1] == id {
				return pid, tid
			}
		}
	}
	return 0, 0
}

// attach gives waits on descriptors those who hold the other ends.
func (d *Dump) attach(t *Thread) {
	w := t.Wait
	if w == nil || len(w.need) == 0 {
		return
	}
	w.On = slices.DeleteFunc(w.On, func(r Releaser) bool { return r.How == HasEnd })
	covered := 0
	for _, i := range w.need {
		s := reading
		if i < 0 {
			i, s = ^i, writing
		}
		if d.attachOne(w, &w.FDs[i], s) {
			covered++
		}
	}
	w.Whole = covered == len(w.FDs) && w.MoreFDs == 0 && len(w.On) > 0
}

// attachOne returns whether all holders of the other end are known.
func (d *Dump) attachOne(w *Wait, f *FD, s side) bool {
	link := fmt.Sprintf("%s:[%d]", f.Kind, f.Inode)
	switch f.Kind {
	case "fifo":
		link = f.Path
	case "unix", "tcp":
		link = fmt.Sprintf("socket:[%d]", f.Peer)
	}
	f.Ends = nil
	for _, h := range d.ends.wanted[link] {
		if f.Peer == 0 && (s == reading && !h.writes || s == writing && !h.reads) {
			continue
		}
		f.Ends = append(f.Ends, h.End)
		if !slices.ContainsFunc(w.On, func(r Releaser) bool { return r.PID == h.PID }) {
			w.On = append(w.On, Releaser{PID: h.PID, How: HasEnd, Name: h.Name, evidence: fmt.Sprintf("%s, fd %d there", link, h.FD)})
		}
	}
	f.Whole = d.ends.whole(link) && len(f.Ends) > 0 && f.Kind != "fifo"
	return f.Whole
}

// outside looks at the threads that others wait for and that were not asked for, and
// returns whether there are any new ones.
func (d *Dump) outside() bool {
	var new []*Thread
	seen := map[int]bool{}
	for _, t := range d.threads {
		if t.Wait == nil || len(t.Wait.On) > maxEnds {
			continue
		}
		for _, r := range t.Wait.On {
			p := d.procs[r.PID]
			if r.PID == 0 || r.PID == d.self || seen[r.PID] || p != nil && p.complete {
				continue
			}
			seen[r.PID] = true
			if p == nil && d.countOutside() >= maxOutside {
				d.miss("processes beyond %d that others wait for are not looked at", maxOutside)
				continue
			}
			new = append(new, d.list(r.PID, true, func(int) bool { return true })...)
			if p = d.procs[r.PID]; p != nil {
				p.complete = true
			}
		}
	}
	new = d.firstLook(new)
	for _, t := range new {
		d.decode(t)
	}
	return len(new) > 0
}

func (d *Dump) countOutside() (n int) {
	for _, p := range d.procs {
		if p.outside {
			n++
		}
	}
	return n
}

// refused tells a thread that sleeps for ever because the kernel has refused it a
// priority-inheriting lock, with EDEADLK or ESRCH: glibc waits on a word of 0 on its own
// stack then (nptl/pthread_mutex_lock.c, PTHREAD_MUTEX_PI_NORMAL_NP). Which lock that
// was is in its registers alone.
func (c *call) refused(f family) *Wait {
	const onStack = 4096 // that word is in one of the innermost frames
	if sp := c.t.first.call.SP; f.kind != "mutex" || c.args[2] != 0 || c.args[3] != 0 || c.args[0]-sp > onStack {
		return nil
	}
	return &Wait{Kind: "refused lock", What: "a mutex that the kernel has refused", Function: f.fn,
		Text: "sleeps for ever, since the kernel has refused it a priority-inheriting mutex " +
			"(EDEADLK: its owner waits for this thread; or ESRCH: its owner has ended)"}
}
