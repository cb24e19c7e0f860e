package stuck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// Wait is what a thread waits for.
type Wait struct {
	// Kind is a word for programs: "futex", "fd", "set", "child", "file lock", "sleep",
	// "signal", "semaphore set", "message queue", "page", "vfork", "stopped", "traced",
	// "exited", "file", "other".
	Kind string
	// Text is one line of plain words, without who could end the wait.
	Text string
	// What is the object alone: `mutex 0x55…`, "pipe:[12]".
	What string
	// Object is the same for all that wait for the same; empty if there is none.
	Object string
	Lock   uint64 // address of a lock, 0 if there is none
	// Function is the one that waits, if it told of which kind the wait is.
	Function string
	Set      Set
	// Timed: it ends by itself, after Left if that is known (else negative).
	Timed bool
	Left  time.Duration
	// On are those who can end the wait. Whole: nobody else can, as far as is known.
	On      []Releaser
	Whole   bool
	Unknown string // why nobody is named
	// Lost is set where what is waited for is there already.
	Lost string

	// polls: it wakes up now and then, and goes on waiting for the same.
	polls bool

	futex futex
}

// Set are descriptors that a thread waits on.
type Set struct {
	FDs  []FD
	More int   // further ones
	need []int // indices of FDs with another end to find; the complement for writing
}

// futex is what is known of a wait on a lock word.
type futex struct {
	lock lock
	fam  family
}

// Releaser is who can end a wait.
type Releaser struct {
	PID, TID int    // TID 0: any thread of the process
	How      string // see [Holds]
	Gone     bool   // it has ended
	Name     string
	evidence string
}

// Values of [Releaser.How].
const (
	Holds  = "holds"  // a lock
	HasEnd = "end"    // of a pipe or a connection
	Ends   = "ends"   // a thread that is joined, a child
	Traces = "traces" // and has stopped it
	Reaps  = "reaps"  // the parent of what has exited
)

// Text is the releaser in plain words: `tid 12 "worker"`.
func (r *Releaser) Text() string {
	who := fmt.Sprintf("pid %d", r.PID)
	if r.TID != 0 {
		who = fmt.Sprintf("tid %d", r.TID)
	}
	if r.Name != "" {
		who += fmt.Sprintf(" %q", clip(output.Printable(r.Name)))
	}
	if r.Gone {
		who += ", which has ended"
	}
	return who
}

// Line is the wait in one line: what for, who can end it, how long still.
func (w *Wait) Line() string {
	var b strings.Builder
	b.WriteString(w.Text)
	switch {
	case w.Lost != "":
		b.WriteString(", " + w.Lost)
	case len(w.On) > 0 && w.On[0].How != HasEnd: // the descriptors tell those
		b.WriteString(joint(w.On[0].How) + " " + releasers(w.On))
	case w.Unknown != "" && w.Kind == "futex":
		b.WriteString(", owner unknown: " + w.Unknown)
	case w.Unknown != "":
		b.WriteString(" (" + w.Unknown + ")")
	}
	switch {
	case w.Timed && w.Left >= 0:
		b.WriteString(", for " + Short(w.Left) + " more at most")
	case w.Timed:
		b.WriteString(", with a time limit")
	}
	return b.String()
}

// releasers lists some.
func releasers(list []Releaser) string {
	const most = 3
	var parts []string
	for i := range list {
		if i == most {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		parts = append(parts, list[i].Text())
	}
	return strings.Join(parts, " or ")
}

// decode says what a thread waits for, from its first look.
func (d *Dump) decode(t *Thread) {
	switch {
	case t.first.state == 'Z' || t.first.state == 'X':
		t.Wait = exited(d.fs, t)
	case t.first.state == 't':
		t.Wait = traced(d.fs, t)
	case t.first.state == 'T':
		t.Wait = &Wait{Kind: "stopped", Text: "is stopped by a signal until SIGCONT comes", Unknown: "the kernel does not tell who sent it"}
	case t.first.err != nil || t.first.call.Running:
		return
	case t.Call.NR < 0:
		t.Wait = fault(d.fs, t)
	default:
		c := call{d: d, t: t, name: t.Call.Name, args: t.Call.Args}
		if t.Call.Name == "restart_syscall" {
			c.name = restarted(t)
		}
		if wait, ok := calls[c.name]; ok {
			t.Wait = wait(&c)
		} else {
			t.Wait = &Wait{Kind: "other", Text: "is in " + strings.Trim(c.name, "_")}
		}
	}
	if w := t.Wait; w != nil && w.What == "" {
		w.What = w.Text
	}
}

// restarted names the call that restart_syscall goes on with: by the function that
// made it (restart_syscall(2) has its arguments still). They are those that have a
// time limit.
func restarted(t *Thread) string {
	for _, f := range t.frames[:min(4, len(t.frames))] {
		name := bare(f.Func)
		if name == "clock_nanosleep" || name == "nanosleep" || name == "poll" {
			return name
		}
	}
	if len(t.first.words.data) > 0 {
		return "futex"
	}
	return "restart_syscall"
}

// exited is a thread or process that has ended and is not reaped.
func exited(fs procfs.FS, t *Thread) *Wait {
	if t.TID != t.PID {
		return &Wait{Kind: "exited", Text: "has exited"}
	}
	if _, err := fs.LiveTask(t.PID); err == nil {
		return &Wait{Kind: "exited", Text: "has exited, other threads of the process live"}
	}
	w := &Wait{Kind: "exited", Text: "has exited and is not reaped by its parent", What: "being reaped"}
	w.on(Releaser{PID: t.Process.leader.PPID, How: Reaps}, fs)
	return w
}

// traced is a stop for a tracer.
func traced(fs procfs.FS, t *Thread) *Wait {
	w := &Wait{Kind: "traced", Text: "is stopped by its tracer"}
	st, err := fs.Status(t.TID)
	if err != nil || st.TracerPid == 0 {
		w.Unknown = "who that is cannot be told"
		return w
	}
	w.on(Releaser{PID: st.TracerPid, How: Traces}, fs)
	return w
}

// on adds who can end the wait, with its name.
func (w *Wait) on(r Releaser, fs procfs.FS) {
	if r.Name == "" && r.PID > 0 {
		tid := r.TID
		if tid == 0 {
			tid = r.PID
		}
		r.Name, _ = fs.Task(r.PID, tid).Comm() // without it the number alone is shown
	}
	w.On = append(w.On, r)
}

// fault is a wait outside of any call: for a page.
func fault(fs procfs.FS, t *Thread) *Wait {
	if t.first.call.SP == 0 {
		return nil
	}
	w := &Wait{Kind: "page", Text: "waits for a page of its memory"}
	frames, _ := fs.Task(t.PID, t.TID).Stack() // without it less is said
	for _, f := range frames {
		switch {
		case strings.Contains(f.Func, "userfault"):
			w.Text = "waits for a page that a userfaultfd handler is to fill"
			return w
		case strings.HasPrefix(f.Func, "fuse_"):
			w.Text = "waits for a page of a file on a FUSE file system"
		case strings.HasPrefix(f.Func, "nfs_"):
			w.Text = "waits for a page of a file on NFS"
		}
	}
	if list := remoteFiles(fs, t); list != "" {
		w.Text += "; mapped from servers: " + list
	} else {
		w.Unknown = "the kernel does not tell which"
	}
	return w
}

// remoteFiles lists mapped files on file systems that have a server.
func remoteFiles(fs procfs.FS, t *Thread) string {
	types := mounts(fs, t)
	var list []string
	seen := map[string]bool{}
	for _, m := range maps(fs, t.TID) {
		kind := types[m.Dev]
		if kind == "" || seen[m.Path] {
			continue
		}
		seen[m.Path] = true
		if len(list) == 3 {
			return strings.Join(list, ", ") + ", and more"
		}
		list = append(list, clip(output.Printable(m.Path))+" ("+kind+")")
	}
	return strings.Join(list, ", ")
}

// mounts are the types of the file systems with a server that the thread sees.
func mounts(fs procfs.FS, t *Thread) map[procfs.Dev]string {
	types := map[procfs.Dev]string{}
	for dev, kind := range fs.Mounts(t.TID) {
		if kind == "fuse" || strings.HasPrefix(kind, "fuse.") || strings.HasPrefix(kind, "nfs") ||
			slices.Contains([]string{"cifs", "smb3", "9p", "ceph", "afs", "virtiofs"}, kind) {
			types[dev] = kind
		}
	}
	return types
}
