package stuck

import (
	"fmt"

	"sfsample/output"
	"sfsample/sampler/runtimes"
)

// told is what whoever makes the dump knows of processes.
type told struct {
	mem        *memory
	missing    missing
	goroutines map[int]bool            // processes whose goroutines are shown
	locks      map[int]*runtimes.Locks // of machines, by process
	first      map[int]map[int]runtimes.LockWait
}

// ShowsGoroutines says that whoever makes the dump shows the goroutines of a process, or tells why not. It is called before
// [Dump.End].
func (d *Dump) ShowsGoroutines(pid int) { d.told.goroutines[pid] = true }

// KeepsLocks says what reads the locks that a process keeps for its threads without the kernel. It is called before [Dump.End].
func (d *Dump) KeepsLocks(pid int, locks *runtimes.Locks) { d.told.locks[pid] = locks }

// missGoroutines tells that a thread of Go is not what waits.
func (o *told) missGoroutines(pid int) {
	if !o.goroutines[pid] {
		o.missing.add("what the goroutines of pid %d wait for: only threads are looked at (SIGQUIT makes a Go program print them, and ends it)", pid)
	}
}

// keepsItself are kinds of waits of which the machine that runs the program knows more.
var keepsItself = set(javaMonitor, "java wait", "java park")

// kept is what the machine of a thread says that it waits for, at the first look; nil: nothing.
func (o *told) kept(t *Thread) *runtimes.LockWait {
	all, ok := o.first[t.PID]
	if !ok {
		all = o.read(t, func(t *Thread) bool { return waitsOnWord(t.Process, t.first.call) })
		o.first[t.PID] = all
	}
	if k, ok := all[t.InnerTID]; ok {
		return &k
	}
	return nil
}

// again takes the second look at what machines say.
func (o *told) again(procs map[int]*Process) {
	had := func(t *Thread) bool { return t.first.kept != nil }
	for pid := range o.first {
		var all map[int]runtimes.LockWait
		for _, t := range procs[pid].threads {
			t.second.kept = nil
			if !had(t) {
				continue
			}
			if all == nil {
				all = o.read(t, had)
			}
			if k, ok := all[t.InnerTID]; ok {
				t.second.kept = &k
			}
		}
	}
}

// read reads what the machine of t's process says of some threads.
func (o *told) read(t *Thread, wanted func(*Thread) bool) map[int]runtimes.LockWait {
	locks := o.locks[t.PID]
	if locks == nil {
		return map[int]runtimes.LockWait{}
	}
	all, err := locks.Read(memoryOf{o.mem, t}, func(tid int) bool {
		other := t.Process.byInner[tid]
		return other != nil && wanted(other)
	})
	if err != nil {
		o.missing.add("the locks of Java's threads of pid %d: %v", t.PID, err)
	}
	return all
}

// memoryOf is what is at hand of the memory of a thread's process.
type memoryOf struct {
	mem *memory
	t   *Thread
}

// ReadAt implements io.ReaderAt.
func (m memoryOf) ReadAt(b []byte, addr int64) (int, error) {
	s := m.mem.open(m.t.PID)
	return s.ReadAtHand(s.Pagemap, m.t.TID, uint64(addr), b)
}

// lockOf puts what a machine says into the form of other locks.
func lockOf(k *runtimes.LockWait) lock {
	l := lock{base: k.Monitor, owner: k.Owner, free: k.Free, unknown: k.Unknown, loose: k.Loose}
	class := clip(output.Printable(k.Class))
	switch {
	case k.Monitor == 0:
		l.base, l.kind = k.Object, orElse(class, keepsNone["java park"].kind)
	case k.Lock:
		if l.kind = keepsNone[javaMonitor].kind; class != "" {
			l.note = "of a " + class
		}
	default:
		l.kind, l.note = keepsNone["java wait"].kind, fmt.Sprintf("on the monitor %#x of a %s", k.Monitor, orElse(class, "class that is not known"))
	}
	return l
}

// named tells whether a machine has told at which address the thing is that a thread waits for.
func (l *look) named() bool { return l.kept != nil && (l.kept.Lock || l.kept.Object != 0) }

// entersMonitor: a monitor's own waits end, where they have a limit, only to look again.
func (l *look) entersMonitor() bool { return l.kept != nil && l.kept.Lock && l.kept.Monitor != 0 }

// againAtMost bounds how often those are looked at anew that wake up now and then by themselves.
const againAtMost = 3

// lookAgain takes both looks anew at threads that have woken up between them and gone on waiting for the same monitor, as one of those that wait
// for a HotSpot's does once a second (ObjectMonitor::EnterI of 17 to 23): if it sleeps through these, they prove as much. The others'
// first look is as good as it was, and their second one is the new one.
func (d *Dump) lookAgain() {
	for range againAtMost {
		var woken []*Thread
		for _, t := range d.roster.threads {
			if t.Between.Motion == Woken && t.first.entersMonitor() {
				woken = append(woken, t)
			}
		}
		if len(woken) == 0 {
			return
		}
		d.lookAnew(woken)
		clear(d.told.first)
		for _, t := range woken {
			d.decode(t)
		}
		d.secondLook()
	}
}
