package stuck

import (
	"fmt"
	"strings"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// Glances tells in a few words what single threads wait for, while they are sampled:
// "futex: mutex held by worker-3", "read: tcp 10.0.0.7:5432". Nobody is stopped, and
// there is one look: words are true of the moment of the look, not proven like those of
// a [Dump]. It belongs to one goroutine, and what Look returns to another.
type Glances struct {
	fs    procfs.FS
	d     *Dump // what was read of processes and sockets
	since time.Time
	spent time.Duration // since then

	inner map[int]*innerIDs // by process, of the other goroutine
}

// Bounds on glances.
const (
	glanceAge   = 500 * time.Millisecond // of what is kept of processes and sockets
	glanceShare = 4                      // one part in so many of that time goes into looking
)

// NewGlances makes one for live processes.
func NewGlances(fs procfs.FS) *Glances { return &Glances{fs: fs, inner: map[int]*innerIDs{}} }

// Look looks at a thread that was found blocked in a call, at stack pointer sp (0: not
// known) and with this run count (0: not known). The function that it returns puts in
// words what for, by the names of the thread's frames, innermost first. It returns nil
// if the thread has gone on since, or if looking has taken too large a share of the
// time already.
func (g *Glances) Look(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string {
	begun := time.Now()
	if g.d == nil || begun.Sub(g.since) > glanceAge {
		if g.d != nil {
			g.d.close()
		}
		g.d, g.since, g.spent = newDump(g.fs), begun, 0
	}
	if g.spent > glanceAge/glanceShare {
		return nil
	}
	tell := g.look(pid, tid, nr, sp, runs)
	g.spent += time.Since(begun)
	return tell
}

func (g *Glances) look(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string {
	d := g.d
	clear(d.fds.known) // numbers are given anew
	clear(d.owners.known)
	clear(d.ends.wanted)
	p := d.roster.process(pid, false)
	task := d.fs.Task(pid, tid)
	before, err := task.Schedstat()
	if p == nil || err != nil || runs != 0 && before.Count != runs {
		return nil
	}
	t := &Thread{PID: pid, TID: tid, InnerTID: tid, Process: p, files: d.roster.kept.Task(pid, tid)}
	defer t.files.Close()
	t.first.state = 'S'
	d.mem.readCalls([]*Thread{t}, func(t *Thread) *look { return &t.first })
	call := t.first.call
	if t.first.err != nil || call.Running || call.NR != nr || sp != 0 && call.SP != sp {
		return nil
	}
	t.Call = callOf(p, call)
	words := t.first.words.data != nil
	// The owner of a lock that processes share may be of another pid namespace.
	shared := words && call.Args[1]&futexPrivate == 0 && d.owners.sharedFile(pid, tid, call.Args[0]) != sharedFile{}
	if !words && t.Call.NR >= 0 && t.Call.Name != "restart_syscall" {
		d.decode(t)
	}
	if after, err := task.Schedstat(); err != nil || after.Count != before.Count {
		return nil
	}
	return func(frames []output.Frame) string {
		t.frames = frames
		name := t.Call.Name
		if name == "restart_syscall" {
			name = restarted(t)
		}
		switch {
		case t.Call.NR < 0:
			return "page fault"
		case words && strings.HasPrefix(name, "futex"):
			return g.lock(t, shared)
		case strings.HasSuffix(name, "nanosleep"):
			return "sleep"
		case t.Wait == nil:
			return name
		}
		return t.Wait.brief(name)
	}
}

// lock is a wait on a futex in a few words, without the owner of one that is shared. It reads names and numbers alone, and belongs to the
// goroutine that has the frames' names.
func (g *Glances) lock(t *Thread, shared bool) string {
	op := orElse(futexWait(t.Call.Args[1]), "wait")
	l := decodeLock(familyOf(t.frames), op, t.Call.Args[0], uint32(t.Call.Args[2]), t.first.words, t.wordBytes(), func(id int) bool { return g.outer(t, id) != 0 })
	s := "futex: " + l.kind
	if l.kind == "futex" {
		s = l.kind
	}
	if l.owner == 0 || shared {
		return s
	}
	tid := g.outer(t, l.owner)
	name, err := g.fs.Task(tid, tid).Comm()
	switch {
	case tid == 0 || err != nil:
		return s
	case name == t.Process.Name: // as all threads have that were given none
		name = fmt.Sprintf("tid %d", tid)
	}
	joint := " held by "
	if l.kind == endOfThread {
		joint = " "
	}
	return s + joint + clip(output.Printable(name))
}

// innerIDs translates the numbers that the threads of a process have in its own pid
// namespace.
type innerIDs struct {
	outer map[int]int
	at    time.Time
}

// outer is the number that we know a thread by which is called id in the pid namespace
// of t: one of its process or, where numbers are ours, any. 0: there is none.
func (g *Glances) outer(t *Thread, id int) int {
	if id <= 0 {
		return 0
	}
	if !t.Process.inner {
		if t.Call.Args[1]&futexPrivate != 0 {
			if _, err := g.fs.Task(t.PID, id).Comm(); err != nil {
				return 0
			}
		}
		return id
	}
	ids := g.inner[t.PID]
	if ids == nil || ids.outer[id] == 0 && time.Since(ids.at) > glanceAge {
		ids = &innerIDs{map[int]int{}, time.Now()}
		list, _ := g.fs.TaskIDs(t.PID) // none: it has ended
		for _, tid := range list[:min(len(list), maxOutsideThreads)] {
			if st, err := g.fs.Status(tid); err == nil && len(st.NSpid) > 0 {
				ids.outer[st.NSpid[len(st.NSpid)-1]] = tid
			}
		}
		if len(g.inner) >= maxOutside {
			clear(g.inner)
		}
		g.inner[t.PID] = ids
	}
	return ids.outer[id]
}

// brief is a wait in a few words, the same for waits that are alike.
func (w *Wait) brief(call string) string {
	call = strings.Trim(call, "_")
	var on []string
	switch w.Kind {
	case "fd", "set":
		const most = 2
		for i := range w.Set.FDs[:min(most, len(w.Set.FDs))] {
			on = append(on, w.Set.FDs[i].brief())
		}
		if more := len(w.Set.FDs) - len(on) + w.Set.More; more > 0 {
			on = append(on, fmt.Sprintf("%d more", more))
		}
	case "file lock":
		on = append(on, w.Set.FDs[0].brief())
		fallthrough
	case "child", "vfork":
		if len(w.On) > 0 {
			on = append(on, strings.TrimPrefix(joint(w.On[0].How), ":")+" "+releasers(w.On[:1]))
		}
		return call + ": " + strings.TrimSpace(strings.Join(on, ""))
	case "sleep":
		return "sleep"
	case "file":
		return clip(call + ": " + w.Text)
	}
	if len(on) == 0 {
		return call
	}
	return call + ": " + strings.Join(on, ", ")
}

// brief is a descriptor without its number and what changes while it is open.
func (f *FD) brief() string {
	switch f.Kind {
	case "":
		return "not open"
	case "tcp", "udp":
		return f.Kind + " " + orElse(f.Socket.Remote, f.Socket.Local)
	case "unix":
		return strings.TrimSpace("unix " + clip(output.Printable(f.Path)))
	case "file", "tty", "fifo":
		return clip(output.Printable(f.Path))
	}
	return f.Kind
}
