package module

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/symbol/rootfs"
)

// Live is the Source of a live process. It may be used by any number of
// goroutines.
type Live struct {
	PID int
	FS  procfs.FS
	tid atomic.Int64 // of a thread that lived when last asked
	// replaced: the process is another program now, or has ended.
	replaced atomic.Bool
	files    atomic.Pointer[fileSpans]
	pages    *os.File // pagemap, nil: not to be had
	maps     *os.File // nil: not to be had
	mounts   *rootfs.Watch
	listing  listing
	// Patient keeps reads of memory from hanging: tables lie in mapped files,
	// which a server may have to bring.
	Patient ptrace.Patient
}

// NewLive returns the source of process pid, whose mappings are read within the bounds of lists.
func NewLive(pid int, lists *Lists) *Live {
	l := &Live{PID: pid, listing: listing{of: lists}}
	l.mounts = rootfs.NewWatch(func() string { return l.FS.Path(l.TID()) })
	l.tid.Store(int64(pid))
	for range 2 {
		l.pages, _ = os.Open(l.FS.Path(l.TID(), "pagemap"))
		l.maps, _ = os.Open(l.FS.Path(l.TID(), "maps"))
		if l.ask() == unix.ESRCH { // of a leader that has exited
			l.maps.Close()
		}
		if !l.gone() {
			return l
		}
		l.Close()
		l.pages, l.maps = nil, nil
		l.replaced.Store(false)
		if !l.another() { // a leader that has exited has no memory
			break
		}
	}
	return l
}

// Close closes what reading the process takes.
func (l *Live) Close() {
	l.pages.Close() // of a nil one that is an error
	l.maps.Close()
	l.mounts.Close()
	l.listing.close()
}

// gone tells whether the memory that the process had in the beginning is no more: what was read is of
// another program.
func (l *Live) gone() bool {
	if l.pages != nil && !l.replaced.Load() {
		var entry [8]byte
		if _, err := l.pages.ReadAt(entry[:], 0); err == io.EOF { // see procfs.Pagemap
			l.replaced.Store(true)
		}
	}
	return l.replaced.Load()
}

// Of says by an open pagemap which memory is meant, before anything is read: the process may be another program already than the one that was
// found in it. The file is the source's from then on.
func (l *Live) Of(pages procfs.Pagemap) {
	l.pages.Close() // of a nil one that is an error
	l.pages = os.NewFile(uintptr(pages), "pagemap")
	l.gone()
}

// Replace says that the process has called exec: its memory is another program's,
// and nothing more is read of it.
func (l *Live) Replace() { l.replaced.Store(true) }

// Owner returns whose process it is, for Options: its user. One that changed its
// user, whose memory its starter may not write, is nobody else's.
func (l *Live) Owner() uint32 {
	s, err := l.FS.Status(l.PID)
	if err != nil || s.UID[0] != s.UID[1] || s.UID[0] != s.UID[2] {
		return ^uint32(l.PID) // no user has such a number
	}
	return uint32(s.UID[0])
}

// TID returns a thread of the process that lives, as far as is known.
func (l *Live) TID() int { return int(l.tid.Load()) }

// another looks for a thread that lives, in place of one that does not. It
// returns false if there is none but that.
func (l *Live) another() bool {
	tid, err := l.FS.LiveTask(l.PID)
	return err == nil && l.tid.Swap(int64(tid)) != int64(tid)
}

// Maps implements Source.
func (l *Live) Maps() ([]procfs.Mapping, error) {
	if l.replaced.Load() {
		return nil, unix.ESRCH
	}
	begun := time.Now()
	maps, err := l.listing.read(func(more func(text, list int) error) ([]procfs.Mapping, error) {
		maps, err := l.FS.Maps(l.TID(), more)
		if (procfs.Gone(err) || err == nil && len(maps) == 0) && l.another() {
			maps, err = l.FS.Maps(l.TID(), more)
		}
		return maps, err
	})
	if l.gone() {
		return nil, unix.ESRCH
	}
	if err == nil && cannotAsk(l.ask()) {
		l.files.Store(&fileSpans{spansOf(maps), begun, time.Since(begun)})
	}
	return maps, err
}

// ReadAt implements Source.
func (l *Live) ReadAt(p []byte, addr int64) (int, error) {
	piece := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(p)}}
	n, err := l.read(p, piece)
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// remotes keeps the argument lists of ReadRanges.
var remotes = sync.Pool{New: func() any { return new([]unix.RemoteIovec) }}

// ReadRanges reads several pieces of memory, with few system calls.
func (l *Live) ReadRanges(buf []byte, ranges []Range) (done int, err error) {
	list := remotes.Get().(*[]unix.RemoteIovec)
	defer func() {
		if err == nil { // else a read that hangs may have it
			remotes.Put(list)
		}
	}()
	*list = (*list)[:0]
	size := 0
	for _, r := range ranges {
		if r.Size < 0 || r.Size > len(buf)-size {
			return 0, io.ErrShortBuffer
		}
		*list = append(*list, unix.RemoteIovec{Base: uintptr(r.Addr), Len: r.Size})
		size += r.Size
	}
	if size == 0 {
		return 0, nil
	}
	return l.read(buf[:size], *list)
}

// maxAtOnce is how many the kernel takes in one call (UIO_MAXIOV).
const maxAtOnce = 1024

// read reads pieces of memory, up to the first that cannot be read: such as are at hand as [ptrace.ReadAtHand] does, the others by themselves. Once
// more if a thread was asked that does not live any more.
func (l *Live) read(buf []byte, pieces []unix.RemoteIovec) (done int, err error) {
	if l.replaced.Load() {
		return 0, unix.ESRCH
	}
	once := func(left []unix.RemoteIovec) (err error) {
		for done = 0; len(left) > 0; {
			away := left[:min(len(left), maxAtOnce)]
			if l.pages != nil {
				now := left // who hangs may have it for ever
				n, err := l.Patient.Do(nil, uint64(now[0].Base), buf[done:], func(b []byte) (int, error) {
					return ptrace.ReadAtHand(pagemap(l.pages), l.TID(), now, b)
				})
				if done += n; err != ptrace.ErrAway {
					return err
				}
				for ; n > 0; left = left[1:] {
					n -= left[0].Len
				}
				away = left[:1] // or one soon behind it
			}
			size := ptrace.PiecesBytes(away)
			n, err := l.bringAll(away, buf[done:done+size])
			if done += n; err != nil || n < size {
				return err
			}
			left = left[len(away):]
		}
		return nil
	}
	if err = once(pieces); errors.Is(err, unix.ESRCH) && l.another() {
		err = once(pieces)
	}
	switch {
	case l.gone():
		return 0, unix.ESRCH
	case err == unix.EFAULT && done > 0: // where memory is not mapped a read ends
		return done, nil
	}
	return done, err
}

// OpenFile implements Source: by map_files, which needs a capability but finds
// deleted and replaced files; by exe, which needs none; by name below the
// process's root.
func (l *Live) OpenFile(m procfs.Mapping) (File, error) {
	if !m.File() {
		return nil, &fs.PathError{Op: "open", Path: m.Path, Err: fs.ErrNotExist}
	}
	dir := l.FS.Path(l.TID())
	if l.mounts.Device(m.Dev.Major, m.Dev.Minor) {
		return nil, &fs.PathError{Op: "open", Path: m.Path, Err: rootfs.ErrRemote}
	}
	links := []string{
		fmt.Sprintf("%s/map_files/%x-%x", dir, m.Start, m.End),
		dir + "/exe",
	}
	for _, link := range links {
		f, err := openLink(link, dir, m)
		if err == nil || errors.Is(err, rootfs.ErrSilent) {
			return f, err
		}
	}
	root, err := rootfs.Open(dir + "/root")
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(m.Path)
	if err != nil {
		return nil, err
	}
	return checked(f, m)
}

// errOtherInode is for a path that leads to another file than the mapping's.
var errOtherInode = errors.New("the path now names another file")

// checked returns f if it is the file of m.
func checked(f *rootfs.File, m procfs.Mapping) (File, error) {
	if !f.Is(m.Dev.Major, m.Dev.Minor, m.Inode) {
		f.Close()
		return nil, &fs.PathError{Op: "open", Path: m.Path, Err: errOtherInode}
	}
	return f, nil
}

// openLink opens the file that a link of /proc stands for, if it is that of m. The link may lead to a server that does not answer, as that of the
// program does for a library: until the mount is known (dir: the process's folder), only the link's text is read.
func openLink(link, dir string, m procfs.Mapping) (File, error) {
	if path, err := os.Readlink(link); err != nil || strings.TrimSuffix(path, " (deleted)") != m.Path {
		return nil, &fs.PathError{Op: "open", Path: link, Err: errors.Join(err, errOtherInode)}
	}
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: link, Err: err}
	}
	defer unix.Close(fd)
	if err := rootfs.MayAsk(fd, dir); err != nil {
		return nil, &fs.PathError{Op: "open", Path: link, Err: err}
	}
	f, err := rootfs.Reopen(fd, m.Path)
	if err != nil {
		return nil, err
	}
	return checked(f, m)
}
