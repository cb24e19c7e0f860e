package procfs

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// Link reads the target of descriptor fd of process id: a path, "socket:[123]",
// "pipe:[123]" or "anon_inode:[eventfd]". A path is the process's own, and any
// byte but NUL may be in it.
func (f FS) Link(id, fd int) (string, error) {
	return os.Readlink(f.Path(id, "fd", strconv.Itoa(fd)))
}

// ParseInode takes "kind:[123]" apart. It is false for a path.
func ParseInode(link string) (kind string, inode uint64, ok bool) {
	kind, rest, ok := strings.Cut(link, ":[")
	if !ok || kind == "" || strings.Contains(kind, "/") {
		return "", 0, false
	}
	n, tail, ok := decimal([]byte(rest))
	return kind, n, ok && len(tail) == 1 && tail[0] == ']'
}

// Watched is one descriptor of an epoll set.
type Watched struct {
	FD     int
	Events uint32
}

// FDInfo is what /proc/PID/fdinfo/FD says.
type FDInfo struct {
	Pos     int64
	Watched []Watched
	More    int           // further descriptors of the set, not kept
	Count   uint64        // of an eventfd
	Ticks   uint64        // of a timerfd: expiries not yet read
	Left    time.Duration // of a timerfd: until the next expiry; 0: it is not set
	Mask    uint64        // of a signalfd, bit n = signal n+1
	PID     int           // of a pidfd; -1: it has been reaped
}

// maxWatched bounds what is kept of an epoll set.
const maxWatched = 4096

// FDInfo reads the fdinfo file of a descriptor. Of a set of a hundred thousand only
// the beginning is read.
func (f FS) FDInfo(id, fd int) (FDInfo, error) {
	b, err := readFile(f.Path(id, "fdinfo", strconv.Itoa(fd)), 1<<20)
	if err != nil {
		return FDInfo{}, err
	}
	return ParseFDInfo(b), nil
}

// ParseFDInfo parses the content of an fdinfo file (seq_show, fs/proc/fd.c, and the
// show_fdinfo of each kind). Lines that it does not know, or that are cut, are
// skipped: each kind of file has its own.
func ParseFDInfo(b []byte) FDInfo {
	var i FDInfo
	for line := range bytes.Lines(b) {
		if key, value, ok := bytes.Cut(line, []byte{':'}); ok {
			i.set(string(bytes.TrimSpace(key)), spaces(value))
		}
	}
	return i
}

func (i *FDInfo) set(key string, v []byte) {
	switch key {
	case "pos":
		i.Pos, _, _ = signed(v)
	case "eventfd-count":
		i.Count, _, _ = hex(v)
	case "ticks":
		i.Ticks, _, _ = decimal(v)
	case "it_value":
		i.Left = pair(v)
	case "sigmask":
		i.Mask, _, _ = hex(v)
	case "Pid":
		n, _, ok := signed(v)
		if ok && n >= -1 && n <= 1<<31-1 {
			i.PID = int(n)
		}
	case "tfd":
		i.watch(v)
	}
}

// watch takes "       5 events:       19 data: …" (ep_show_fdinfo, fs/eventpoll.c).
func (i *FDInfo) watch(v []byte) {
	fd, rest, ok := decimal(spaces(v))
	_, events, found := bytes.Cut(rest, []byte("events:"))
	mask, _, isHex := hex(spaces(events))
	if !ok || !found || !isHex || fd > 1<<31-1 {
		return
	}
	if len(i.Watched) == maxWatched {
		i.More++
		return
	}
	i.Watched = append(i.Watched, Watched{int(fd), uint32(mask)})
}

// pair reads "(seconds, nanoseconds)".
func pair(v []byte) time.Duration {
	v = bytes.TrimPrefix(spaces(v), []byte("("))
	s, rest, ok1 := decimal(v)
	ns, _, ok2 := decimal(spaces(bytes.TrimPrefix(rest, []byte(","))))
	if !ok1 || !ok2 || s > 1<<33 || ns >= 1e9 {
		return 0
	}
	return time.Duration(s)*time.Second + time.Duration(ns)
}
