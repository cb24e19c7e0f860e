package stuck

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// maxChildren bounds a list of children.
const maxChildren = 256

// children are the children of a thread's process, those of the thread alone with own.
func (d *Dump) children(t *Thread, own bool) (list []procfs.Stat, known bool) {
	tids := []int{t.TID}
	if !own {
		tids, _ = d.fs.TaskIDs(t.PID) // none: the process is gone
	}
	known = true
	for _, tid := range tids {
		ids, err := d.fs.Task(t.PID, tid).Children()
		if err != nil && !procfs.Gone(err) {
			known = false
			d.missing.add("children of processes: %v", err)
			break
		}
		for _, id := range ids {
			if len(list) == maxChildren {
				return list, false
			}
			if st, err := d.fs.Stat(id); err == nil {
				list = append(list, st)
			}
		}
	}
	return list, known
}

// wait4 waits for children: for one, for those of a process group, or for any.
func (c *call) wait4() *Wait {
	switch id := int32(c.args[0]); {
	case id > 0:
		return c.awaitChild("waits for child", func(s procfs.Stat) bool { return named(c.d.fs, c.t, s.PID, int(id)) })
	case id == -1:
		return c.awaitChild("waits for any child", func(procfs.Stat) bool { return true })
	}
	return c.awaitChild("waits for a child of a process group", nil)
}

// named tells whether a process is the one that the thread calls id.
func named(fs procfs.FS, t *Thread, pid, id int) bool {
	if !t.Process.inner {
		return pid == id
	}
	st, err := fs.Status(pid)
	return err == nil && slices.Contains(st.NSpid, id)
}

func (c *call) waitid() *Wait {
	switch c.args[0] {
	case unix.P_PID:
		return c.awaitChild("waits for child", func(s procfs.Stat) bool { return named(c.d.fs, c.t, s.PID, int(int32(c.args[1]))) })
	case unix.P_ALL:
		return c.awaitChild("waits for any child", func(procfs.Stat) bool { return true })
	}
	return c.awaitChild("waits for a child", nil)
}

// awaitChild: nil is a choice of children that is not known here.
func (c *call) awaitChild(text string, wanted func(procfs.Stat) bool) *Wait {
	w := &Wait{Kind: "child", Text: text}
	all, known := c.d.children(c.t, false)
	if !known {
		w.Unknown = "the children cannot be listed"
	}
	var zombies, others int
	for _, s := range all {
		switch {
		case wanted == nil || wanted(s):
			if s.State != 'Z' {
				w.on(Releaser{PID: s.PID, How: Ends}, c.d.fs)
			}
		case s.State == 'Z':
			zombies++
		default:
			others++
		}
	}
	if zombies > 0 {
		w.Text += fmt.Sprintf(" (%d other children have ended and are not reaped)", zombies)
	}
	if len(w.On) == 0 && w.Unknown == "" {
		w.Unknown = "there is no such child that lives"
	}
	w.Whole = known && wanted != nil && len(w.On) > 0
	return w
}

// vfork waits until the child has called exec or ended. clone does so with CLONE_VFORK.
func (c *call) vfork() *Wait {
	flags := c.args[0]
	if c.name == "clone3" {
		flags, _ = c.d.mem.word(c.t, c.args[0]) // the first field of struct clone_args
	}
	if c.name == "clone" && runtime.GOARCH == "s390x" {
		flags = c.args[1] // clone(2): the arguments have another order there
	}
	if c.name != "vfork" && flags&unix.CLONE_VFORK == 0 {
		return &Wait{Kind: "other", Text: "makes a thread or process"}
	}
	w := &Wait{Kind: "vfork", Text: "waits for the child of its vfork to call exec or to end"}
	list, _ := c.d.children(c.t, true)
	for i := len(list) - 1; i >= 0; i-- {
		if sharesMemory(c.d.fs, list[i].PID, c.t) {
			w.on(Releaser{PID: list[i].PID, How: Ends}, c.d.fs)
			return w
		}
	}
	w.Unknown = "the child cannot be found"
	return w
}

// sharesMemory: a child of vfork has the stack of its parent, whose start stat tells.
func sharesMemory(fs procfs.FS, pid int, t *Thread) bool {
	st, err := fs.Stat(pid)
	return err == nil && st.StartStack == t.Process.leader.StartStack
}

// semop waits for semaphores of System V; struct sembuf is number, operation, flags.
func (c *call) semop() *Wait {
	w := &Wait{Kind: "semaphore set"}
	id := int(int32(c.args[0]))
	w.What = fmt.Sprintf("semaphore set %d", id)
	w.Text, w.Object = "waits for "+w.What, w.What
	w.Unknown = "anybody may change it"
	b := c.d.mem.read(c.t, c.args[1], int(min(c.args[2], 8))*6)
	for ; len(b) >= 6; b = b[6:] {
		n, op := binary.NativeEndian.Uint16(b), int16(binary.NativeEndian.Uint16(b[2:]))
		value, err := semctl(id, int(n), semGetVal)
		if err != nil {
			w.Unknown = fmt.Sprintf("its value cannot be read: %v", err)
			break
		}
		if op < 0 && value >= -int(op) || op == 0 && value == 0 || op > 0 {
			continue
		}
		w.Text = fmt.Sprintf("%s: semaphore %d has the value %d, %d is wanted", w.Text, n, value, max(0, -int(op)))
		if pid, err := semctl(id, int(n), semGetPID); err == nil && pid > 0 {
			w.Unknown = fmt.Sprintf("anybody may change it; pid %d did last", pid)
		}
		break
	}
	if c.name != "semop" {
		c.limit(w, c.args[3], 1)
	}
	return w
}

// Commands of semctl(2), include/uapi/linux/sem.h.
const semGetPID, semGetVal = 11, 12

func semctl(id, n, cmd int) (int, error) {
	v, _, errno := unix.Syscall6(unix.SYS_SEMCTL, uintptr(id), uintptr(n), uintptr(cmd), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

func (c *call) msgrcv() *Wait { return c.queue("waits for a message in queue %d") }
func (c *call) msgsnd() *Wait { return c.queue("waits for room in message queue %d") }

func (c *call) queue(format string) *Wait {
	id := int32(c.args[0])
	return &Wait{Kind: "message queue", Text: fmt.Sprintf(format, id), What: fmt.Sprintf("message queue %d", id),
		Object: fmt.Sprintf("message queue %d", id), Unknown: "anybody may use it"}
}

// fileLocks is /proc/locks, read once.
type fileLocks struct {
	fs      procfs.FS
	missing missing
	read    bool
	list    []procfs.FileLock
	whole   bool
}

func (c *call) flock() *Wait {
	w := c.onFD("waits for flock on", c.args[0], 0)
	c.d.locks.find(c.t, w, "FLOCK")
	return w
}

// Commands of fcntl(2) that wait; 32-bit programs have a third.
const fSetLkw, fSetLkw64, fOFDSetLkw = 7, 14, 38

func (c *call) fcntl() *Wait {
	switch c.args[1] {
	case fSetLkw, fSetLkw64, fOFDSetLkw:
		w := c.onFD("waits for an fcntl lock on", c.args[0], 0)
		c.d.locks.find(c.t, w, "POSIX")
		return w
	}
	return c.onFD("is in fcntl on", c.args[0], 0)
}

// find finds the holder of the lock that a thread waits for: the line of the same
// number in /proc/locks, where waiters stand behind what they wait for.
func (l *fileLocks) find(t *Thread, w *Wait, kind string) {
	w.Kind = "file lock"
	if !l.read {
		l.read = true
		var err error
		if l.list, l.whole, err = l.fs.Locks(); err != nil {
			l.missing.add("owners of file locks: %v", err)
		} else if !l.whole {
			l.missing.add("file locks beyond the first %d", len(l.list))
		}
	}
	w.Unknown = "/proc/locks does not show it"
	for _, mine := range l.list {
		if !mine.Waits || mine.PID != t.PID || mine.Kind != kind && mine.Kind != "OFDLCK" {
			continue
		}
		w.Object = fmt.Sprintf("%s %x:%x:%d", mine.Kind, mine.Major, mine.Minor, mine.Inode)
		for _, held := range l.list {
			if held.ID == mine.ID && !held.Waits {
				l.owner(w, held)
				return
			}
		}
	}
	if l.whole {
		l.missing.add("owners of file locks: /proc/locks does not show all (it is masked here, or the owner is in another pid namespace)")
	}
}

func (l *fileLocks) owner(w *Wait, held procfs.FileLock) {
	if held.PID < 0 {
		w.Unknown = "/proc/locks does not tell it: the lock belongs to an open file description, or to another pid namespace"
		return
	}
	r := Releaser{PID: held.PID, How: Holds, evidence: fmt.Sprintf("%s %s on device %x:%x inode %d, bytes %s", held.Kind, held.Mode, held.Major, held.Minor, held.Inode, held.Range)}
	if _, err := l.fs.Stat(held.PID); err != nil {
		r.Gone = true // a child has the open file still, or another that it was given to
	}
	w.Unknown = ""
	w.on(r, l.fs)
	// A lock of flock belongs to an open file, which others may have too.
	w.Whole = held.Kind == "POSIX"
}
