package stuck

import (
	"fmt"
	"strings"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// FD is a descriptor that a thread waits on.
type FD struct {
	Number int
	Kind   string // "file", "pipe", "unix", "tcp", "udp", "socket", "eventfd", "timerfd", "signalfd", "pidfd", "epoll", "inotify", "tty", …
	Path   string // of a file or a named socket, as the process has it
	Inode  uint64 // of a pipe or socket
	Peer   uint64 // inode of the socket at the other end, if it is on this machine
	Pos    int64
	Socket Socket
	Ready  string // why a wait for it should have ended: what can be read now; empty if nothing is known to
	Events uint32 // asked for, in poll and epoll
	Note   string // what else is known
	Ends   []End  // who holds the other end

	info procfs.FDInfo
}

// Socket is what is known of a socket.
type Socket struct {
	Local, Remote string // addresses
	State         string // of a TCP socket
	RecvQ, SendQ  uint64 // bytes
	Queues        bool   // both are known
}

// End is a process that holds the other end of something.
type End struct {
	PID  int
	Name string
	FD   int
}

// Text is the descriptor in plain words: "fd 5: tcp 10.0.0.1:4242 -> 10.0.0.7:5432 ESTABLISHED".
func (f *FD) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "fd %d: ", f.Number)
	switch f.Kind {
	case "":
		b.WriteString("not open")
	case "file", "tty":
		b.WriteString(clip(output.Printable(f.Path)))
		if f.Kind == "file" && f.Pos > 0 {
			fmt.Fprintf(&b, " at offset %d", f.Pos)
		}
	case "pipe", "unix", "socket":
		fmt.Fprintf(&b, "%s:[%d]", f.Kind, f.Inode)
	case "tcp", "udp":
		fmt.Fprintf(&b, "%s %s", f.Kind, f.Socket.Local)
		if f.Socket.Remote != "" {
			fmt.Fprintf(&b, " -> %s", f.Socket.Remote)
		}
	default:
		b.WriteString(f.Kind)
	}
	for _, s := range []string{f.Socket.State, f.Note} {
		if s != "" {
			fmt.Fprintf(&b, " %s", s)
		}
	}
	if f.Path != "" && f.Kind == "unix" {
		fmt.Fprintf(&b, " %s", clip(output.Printable(f.Path)))
	}
	if f.Socket.Queues {
		fmt.Fprintf(&b, ", %d bytes to read, %d not yet sent", f.Socket.RecvQ, f.Socket.SendQ)
	}
	if len(f.Ends) > 0 {
		b.WriteString(", other end: " + ends(f.Ends))
	}
	return b.String()
}

// shownEnds bounds a list of ends in a line.
const shownEnds = 4

func ends(list []End) string {
	var parts []string
	for i, e := range list {
		if i == shownEnds {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("pid %d %q fd %d", e.PID, clip(output.Printable(e.Name)), e.FD))
	}
	return strings.Join(parts, ", ")
}

// maxDescribed bounds how many descriptors are described.
const maxDescribed = 8192

// descriptors are those that were described, by process and number, and the sockets among them.
type descriptors struct {
	fs      procfs.FS
	missing missing
	known   map[[2]int]FD
	nets    map[string]*tables // by network namespace
}

// of describes one descriptor of a thread's process.
func (d *descriptors) of(t *Thread, number uint64) FD {
	n := int(int32(number)) // the kernel takes the low half
	key := [2]int{t.PID, n}
	f, ok := d.known[key]
	switch {
	case ok || n < 0:
	case len(d.known) >= maxDescribed:
		d.missing.add("descriptors beyond the first %d", maxDescribed)
		return FD{Number: n, Kind: "not looked at"}
	default:
		f = d.describe(t, n)
		d.known[key] = f
	}
	f.Number = n
	return f
}

func (d *descriptors) describe(t *Thread, n int) FD {
	f := FD{Number: n}
	link, err := d.fs.Link(t.TID, n)
	if err != nil {
		if !procfs.Gone(err) {
			f.Kind = "a descriptor that we may not look at"
			t.Process.denied.Store(true)
		}
		return f
	}
	f.info, _ = d.fs.FDInfo(t.TID, n) // without it less is said
	f.Pos = f.info.Pos
	kind, inode, ok := procfs.ParseInode(link)
	switch {
	case ok && kind == "pipe":
		f.Kind, f.Inode = kind, inode
	case ok && kind == "socket":
		f.Kind, f.Inode = kind, inode
		d.socket(t, &f)
	case strings.HasPrefix(link, "anon_inode:"):
		f.anonymous(strings.Trim(strings.TrimPrefix(link, "anon_inode:"), "[]"))
	case strings.HasPrefix(link, "/dev/pts/") || strings.HasPrefix(link, "/dev/tty"):
		f.Kind, f.Path = "tty", link
	default:
		f.Kind, f.Path = "file", link
		// Not the file is looked at, whose server may hang, but how it is read: then its other end is looked for like a pipe's.
		if pipeWait(wchan(d.fs, t)) {
			f.Note, f.Kind = "named pipe", "fifo"
		}
	}
	return f
}

// anonymous takes the files that have no name but their kind's.
func (f *FD) anonymous(kind string) {
	f.Kind = clip(output.Printable(kind))
	switch kind {
	case "eventpoll":
		f.Kind = "epoll"
	case "eventfd":
		f.Note = fmt.Sprintf("count %d", f.info.Count)
		if f.info.Count > 0 {
			f.Ready = "its count is not 0"
		}
	case "timerfd":
		f.Note = "not set"
		if f.info.Left > 0 {
			f.Note = "expires in " + Short(f.info.Left)
		}
		if f.info.Ticks > 0 {
			f.Ready = "it has expired"
		}
	case "signalfd":
		f.Note = "for " + signals(f.info.Mask)
	case "pidfd":
		f.Note = fmt.Sprintf("of pid %d", f.info.PID)
	}
}

// pipeWait: the kernel's functions in which a thread waits on a pipe (fs/pipe.c).
func pipeWait(wchan string) bool {
	switch wchan {
	case "pipe_read", "anon_pipe_read", "fifo_pipe_read", "pipe_write", "anon_pipe_write", "fifo_pipe_write", "wait_for_partner", "fifo_open":
		return true
	}
	return false
}

func wchan(fs procfs.FS, t *Thread) string {
	s, _ := fs.Task(t.PID, t.TID).Wchan() // without it less is known
	return s
}

// Short is a time with the digits that matter to people.
func Short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.String()
}

// signalNames by number (x86, arm64 and s390x have the same; signal(7)).
var signalNames = strings.Fields("HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP " +
	"TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS")

// signals names the signals of a set, bit n = signal n+1.
func signals(mask uint64) string {
	var list []string
	for i := range 64 {
		switch {
		case mask>>i&1 == 0:
		case i < len(signalNames):
			list = append(list, "SIG"+signalNames[i])
		default:
			list = append(list, fmt.Sprintf("signal %d", i+1))
		}
	}
	switch {
	case len(list) == 0:
		return "no signal"
	case len(list) > 8:
		return fmt.Sprintf("%d signals", len(list))
	}
	return strings.Join(list, ", ")
}
