package stuck

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
)

// call is a system call that a thread sits in.
type call struct {
	d    *Dump
	t    *Thread
	name string
	args [6]uint64
}

// calls decodes each call that may wait. What stands here is the same on all
// architectures (syscalls(2)), but for the words of 32-bit programs.
var calls = map[string]func(*call) *Wait{
	"futex": (*call).futex, "futex_time64": (*call).futex,

	"read": fdCall("reads from", reading), "pread64": fdCall("reads from", reading), "readv": fdCall("reads from", reading),
	"preadv": fdCall("reads from", reading), "preadv2": fdCall("reads from", reading), "getdents64": fdCall("lists", 0),
	"write": fdCall("writes to", writing), "pwrite64": fdCall("writes to", writing), "writev": fdCall("writes to", writing),
	"pwritev": fdCall("writes to", writing), "pwritev2": fdCall("writes to", writing), "vmsplice": fdCall("writes to", writing),
	"recvfrom": fdCall("receives from", reading), "recvmsg": fdCall("receives from", reading), "recv": fdCall("receives from", reading),
	"recvmmsg": fdCall("receives from", reading), "recvmmsg_time64": fdCall("receives from", reading),
	"sendto": fdCall("sends to", writing), "sendmsg": fdCall("sends to", writing), "send": fdCall("sends to", writing),
	"sendmmsg": fdCall("sends to", writing), "sendfile": fdCall("sends to", writing),
	"accept": fdCall("waits for a connection on", 0), "accept4": fdCall("waits for a connection on", 0),
	"connect": (*call).connect, "splice": fdCall("splices from", reading), "tee": fdCall("copies from", reading),
	"fsync": fdCall("writes out", 0), "fdatasync": fdCall("writes out", 0), "syncfs": fdCall("writes out the file system of", 0),
	"sync_file_range": fdCall("writes out", 0), "ftruncate": fdCall("cuts", 0), "fallocate": fdCall("allocates", 0),
	"close": fdCall("closes", 0), "fstat": fdCall("asks about", 0), "ioctl": fdCall("is in ioctl on", 0),
	"copy_file_range": fdCall("copies from", 0), "lseek": fdCall("seeks in", 0), "io_uring_enter": (*call).uring,

	"poll": (*call).poll, "ppoll": (*call).poll, "ppoll_time64": (*call).poll,
	"select": (*call).selects, "_newselect": (*call).selects, "pselect6": (*call).selects, "pselect6_time64": (*call).selects,
	"epoll_wait": (*call).epoll, "epoll_pwait": (*call).epoll, "epoll_pwait2": (*call).epoll,

	"wait4": (*call).wait4, "waitpid": (*call).wait4, "waitid": (*call).waitid,
	"vfork": (*call).vfork, "clone": (*call).vfork, "clone3": (*call).vfork,
	"flock": (*call).flock, "fcntl": (*call).fcntl, "fcntl64": (*call).fcntl,
	"semop": (*call).semop, "semtimedop": (*call).semop, "semtimedop_time64": (*call).semop,
	"msgrcv": (*call).msgrcv, "msgsnd": (*call).msgsnd,
	"nanosleep": (*call).nanosleep, "clock_nanosleep": (*call).nanosleep, "clock_nanosleep_time64": (*call).nanosleep,
	"rt_sigtimedwait": (*call).sigwait, "rt_sigtimedwait_time64": (*call).sigwait,
	"pause": anySignal, "rt_sigsuspend": anySignal, "sigsuspend": anySignal,

	"open": pathCall("opens", 0), "openat": pathCall("opens", 1), "openat2": pathCall("opens", 1), "creat": pathCall("opens", 0),
	"stat": pathCall("asks about", 0), "lstat": pathCall("asks about", 0), "newfstatat": pathCall("asks about", 1), "statx": pathCall("asks about", 1),
	"access": pathCall("asks about", 0), "faccessat": pathCall("asks about", 1), "faccessat2": pathCall("asks about", 1),
	"execve": pathCall("executes", 0), "unlink": pathCall("removes", 0), "unlinkat": pathCall("removes", 1),
	"mkdir": pathCall("makes", 0), "mkdirat": pathCall("makes", 1), "rename": pathCall("renames", 0), "renameat2": pathCall("renames", 1),
	"readlink": pathCall("reads", 0), "readlinkat": pathCall("reads", 1), "statfs": pathCall("asks about", 0), "umount2": pathCall("unmounts", 0),
}

// side is the end of a pipe or connection that the thread itself uses.
type side uint8

const (
	reading side = 1 + iota
	writing
)

func fdCall(verb string, s side) func(*call) *Wait {
	return func(c *call) *Wait { return c.onFD(verb, c.args[0], s) }
}

// onFD is a wait on one descriptor.
func (c *call) onFD(verb string, fd uint64, s side) *Wait {
	f := c.d.fds.of(c.t, fd)
	w := &Wait{Kind: "fd", Text: verb, Set: Set{FDs: []FD{f}}}
	if s != 0 {
		c.d.ends.need(w, 0, s)
	}
	if s == reading && f.Ready != "" {
		w.Lost = "though " + f.Ready
	}
	return w
}

func (c *call) connect() *Wait {
	w := c.onFD("connects", c.args[0], 0)
	b := c.d.mem.read(c.t, c.args[1], int(min(c.args[2], 128)))
	if name := sockaddr(b); name != "" {
		w.Set.FDs[0].Note = "to " + name
	}
	return w
}

// sockaddr is an address of the families that connections have (ip(7), unix(7)).
func sockaddr(b []byte) string {
	if len(b) < 8 {
		return ""
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case unix.AF_INET:
		return fmt.Sprintf("%d.%d.%d.%d:%d", b[4], b[5], b[6], b[7], port)
	case unix.AF_INET6:
		if len(b) >= 24 {
			return fmt.Sprintf("[%x:…]:%d", b[8:12], port)
		}
	case unix.AF_UNIX:
		return clip(output.Printable(socketName(b[2:])))
	}
	return ""
}

func (c *call) uring() *Wait {
	w := c.onFD("waits for completions on", c.args[0], 0)
	w.Set.FDs[0].Note = fmt.Sprintf("io_uring, %d wanted", uint32(c.args[2]))
	return w
}

func pathCall(verb string, arg int) func(*call) *Wait {
	return func(c *call) *Wait {
		name, ok := c.d.mem.text(c.t, c.args[arg])
		if !ok {
			name = "a path that cannot be read"
		}
		w := &Wait{Kind: "file", Text: verb + " " + clip(output.Printable(name))}
		if pipeWait(wchan(c.d.fs, c.t)) {
			w.Text += ", a named pipe that nobody has open at the other end"
		}
		return w
	}
}

// futex is a wait on a lock word.
func (c *call) futex() *Wait {
	op := futexWait(c.args[1])
	if op == "" {
		return &Wait{Kind: "other", Text: "is in futex"}
	}
	w := &Wait{Kind: "futex", Lock: c.args[0], futex: futex{fam: familyOf(c.t.frames)}}
	if refused := c.refused(w.futex.fam); refused != nil && op != "lock_pi" {
		return refused
	}
	w.Function = w.futex.fam.fn
	if c.args[3] != 0 {
		w.Timed, w.Left = true, c.futexLeft()
	}
	if len(c.t.first.words.data) == 0 {
		c.t.first.words = c.d.mem.around(c.t, c.args[0])
	}
	if keepsItself[w.futex.fam.kind] {
		c.t.first.kept = c.d.told.kept(c.t)
	}
	w.futex.lock = c.d.decodeLock(c.t, w, &c.t.first)
	gil := w.futex.fam.kind == pythonGIL
	if gil && !w.futex.fam.musl && c.t.wordBytes() == 8 {
		w.futex.lock.base = c.args[0]&^7 - 40 // as of any condition variable, see decodeCond
	}
	w.Lock = w.futex.lock.base
	w.Object = fmt.Sprintf("futex %d:%#x", c.t.PID, w.Lock)
	c.d.futexWords(c.t, w)
	if gil {
		c.d.holdsGIL(c.t, w)
	}
	return w
}

// decodeLock reads a look's words by what is known of the kind of the lock.
func (d *Dump) decodeLock(t *Thread, w *Wait, l *look) lock {
	if l.kept != nil {
		return lockOf(l.kept)
	}
	addr := t.Call.Args[0]
	live := func(id int) bool {
		if t.Process.byInner[id] != nil {
			return true
		}
		if l.words.at(addr)&futexWaiters == 0 {
			return false // no word of a robust lock, which another process's thread may hold: that would be searched for in vain
		}
		k := d.owners.key(t, addr, id)
		return k.of != sharedFile{} && d.owners.search(t, k).tid != 0
	}
	return decodeLock(w.futex.fam, futexWait(t.Call.Args[1]), addr, uint32(t.Call.Args[2]), l.words, t.wordBytes(), live)
}

// futexLeft is how long a wait on a futex goes on at most; negative: not known. With
// wait the limit is from its beginning on, else a point in time (futex(2)).
func (c *call) futexLeft() time.Duration {
	limit, ok := c.d.mem.span(c.t, c.args[3], 1)
	if !ok {
		return -1
	}
	op := c.args[1] &^ futexPrivate
	switch {
	case op&^futexClockRT == 0:
		return c.d.clock.left(c.t, limit)
	case op&futexClockRT != 0 || op == 6:
		return until(unix.CLOCK_REALTIME, limit)
	}
	return until(unix.CLOCK_MONOTONIC, limit)
}

// millis is a time limit in milliseconds: none if negative.
func (c *call) millis(w *Wait, arg uint64) {
	if ms := int32(arg); ms >= 0 {
		w.Timed, w.Left = true, c.d.clock.left(c.t, time.Duration(ms)*time.Millisecond)
	}
}

// limit is a time limit at an address: none if that is 0. The kernel writes what is
// left to it only at the end of the wait.
func (c *call) limit(w *Wait, addr uint64, unit time.Duration) {
	if addr == 0 {
		return
	}
	w.Timed, w.Left = true, -1
	if span, ok := c.d.mem.span(c.t, addr, unit); ok {
		w.Left = c.d.clock.left(c.t, span)
	}
}

// shownFDs bounds the set of a poll that is looked at.
const shownFDs = 64

// poll reads the array of struct pollfd: fd, events.
func (c *call) poll() *Wait {
	w := &Wait{Kind: "set", Text: "polls"}
	n := c.args[1]
	b := c.d.mem.read(c.t, c.args[0], int(min(n, shownFDs))*8)
	for ; len(b) >= 8; b = b[8:] {
		fd := int32(binary.NativeEndian.Uint32(b))
		if fd >= 0 {
			c.watch(w, uint64(fd), uint32(binary.NativeEndian.Uint16(b[4:])))
		} else {
			n--
		}
	}
	w.Set.More = int(min(n-min(n, uint64(len(w.Set.FDs))), maxFDs))
	if c.name == "poll" {
		c.millis(w, c.args[2])
	} else {
		c.limit(w, c.args[2], 1)
	}
	return c.watched(w)
}

// watch adds a descriptor of a set.
func (c *call) watch(w *Wait, fd uint64, events uint32) {
	f := c.d.fds.of(c.t, fd)
	f.Events = events
	if events&unix.POLLIN == 0 {
		f.Ready = ""
	}
	w.Set.FDs = append(w.Set.FDs, f)
	s := reading
	if events&unix.POLLIN == 0 && events&unix.POLLOUT != 0 {
		s = writing
	}
	c.d.ends.need(w, len(w.Set.FDs)-1, s)
}

// watched finishes the text of a set.
func (c *call) watched(w *Wait) *Wait {
	if len(w.Set.FDs)+w.Set.More == 0 {
		if w.Kind, w.Text = "sleep", "sleeps"; !w.Timed {
			w.Text = "waits for a signal"
		}
		return w
	}
	var ready []string
	for i := range w.Set.FDs {
		if f := &w.Set.FDs[i]; f.Ready != "" {
			ready = append(ready, fmt.Sprintf("fd %d: %s", f.Number, f.Ready))
		}
	}
	if len(ready) > 0 {
		w.Lost = "though " + strings.Join(ready[:min(3, len(ready))], ", ")
		if strings.HasPrefix(c.name, "epoll") {
			w.Lost += " (with EPOLLET and EPOLLONESHOT it is told once)"
		}
	}
	return w
}

// selects reads the sets of select: one bit a descriptor.
func (c *call) selects() *Wait {
	w := &Wait{Kind: "set", Text: "selects"}
	n := min(c.args[0], 1024)
	sets := [3][]byte{}
	for i := range sets {
		if addr := c.args[1+i]; addr != 0 {
			sets[i] = c.d.mem.read(c.t, addr, int((n+63)/64*8))
		}
	}
	for fd := range n {
		var events uint32
		for i, event := range []uint32{unix.POLLIN, unix.POLLOUT, unix.POLLPRI} {
			if bit(sets[i], fd, c.t.wordBytes()) {
				events |= event
			}
		}
		switch {
		case events == 0:
		case len(w.Set.FDs) == shownFDs:
			w.Set.More++
		default:
			c.watch(w, fd, events)
		}
	}
	unit := time.Nanosecond
	if !strings.HasPrefix(c.name, "pselect6") {
		unit = time.Microsecond
	}
	c.limit(w, c.args[4], unit)
	return c.watched(w)
}

// bit is one of an fd_set, an array of longs.
func bit(set []byte, fd uint64, wordBytes int) bool {
	at := fd / 8
	if nativeOrder.Uint16([]byte{0, 1}) == 1 { // big-endian: the last byte of a word has the low bits
		at ^= uint64(wordBytes - 1)
	}
	return at < uint64(len(set)) && set[at]>>(fd%8)&1 == 1
}

// epoll reads the set from fdinfo.
func (c *call) epoll() *Wait {
	w := &Wait{Kind: "set", Text: "waits on"}
	set := c.d.fds.of(c.t, c.args[0])
	w.What = fmt.Sprintf("epoll fd %d", set.Number)
	for i, e := range set.info.Watched {
		if i == shownFDs {
			w.Set.More = len(set.info.Watched) - i
			break
		}
		c.watch(w, uint64(e.FD), e.Events)
	}
	w.Set.More += set.info.More
	if slices.ContainsFunc(c.t.frames, func(f output.Frame) bool { return f.Func == "runtime.netpoll" }) {
		c.d.told.missGoroutines(c.t.PID)
		w.Text = "idles: Go has no goroutine for it to run; it waits for what goroutines wait for, on"
	}
	if c.name == "epoll_pwait2" {
		c.limit(w, c.args[3], 1)
	} else {
		c.millis(w, c.args[3])
	}
	if len(w.Set.FDs)+w.Set.More == 0 {
		w.Text += " " + w.What + ", a set of nothing: no event can come"
		return w
	}
	return c.watched(w)
}

func (c *call) nanosleep() *Wait {
	w := &Wait{Kind: "sleep", Text: "sleeps", Timed: true, Left: -1}
	addr, absolute, clock := c.args[0], false, int32(unix.CLOCK_MONOTONIC)
	if c.name != "nanosleep" {
		addr, absolute, clock = c.args[2], c.args[1]&1 != 0, int32(c.args[0]) // TIMER_ABSTIME
	}
	if span, ok := c.d.mem.span(c.t, addr, 1); ok && absolute {
		w.Left = until(clock, span)
	} else if ok {
		w.Left = c.d.clock.left(c.t, span)
	}
	return w
}

func (c *call) sigwait() *Wait {
	w := &Wait{Kind: "signal", Text: "waits for a signal"}
	if b := c.d.mem.read(c.t, c.args[0], 8); len(b) == 8 {
		w.Text = "waits for " + signals(binary.NativeEndian.Uint64(b))
	}
	c.limit(w, c.args[2], 1)
	return w
}

func anySignal(*call) *Wait { return &Wait{Kind: "signal", Text: "waits for a signal"} }

// text is the list of the descriptors in a line. several: any of them ends the wait.
func (s *Set) text(several bool) string {
	var parts []string
	list := s.FDs
	if several { // what differs comes first
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b FD) int { return len(b.Ready) - len(a.Ready) })
	}
	const most = 4
	left := len(list) + s.More
	for i := range list {
		if len(parts) == most {
			break
		}
		left--
		if !slices.ContainsFunc(list[:i], func(f FD) bool { return f.Number == list[i].Number }) { // some ask for reading and for writing apart
			parts = append(parts, list[i].Text())
		}
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d more", left))
	}
	return strings.Join(parts, "; ")
}
