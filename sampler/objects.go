package sampler

import (
	"container/list"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"syscall"
	"time"

	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
	"sfsample/sampler/symbol/rootfs"
)

// view is the files as one or more processes see them: debug files and perf
// maps are looked for there, in the root of the processes first and in ours
// after it.
type view struct {
	key   viewKey
	roots []*rootfs.Root
	refs  int // processes and objects that use it
}

// viewKey tells views apart: the same root in another mount namespace can have
// other files.
type viewKey struct {
	root      rootfs.ID
	namespace string
}

// ownView is the one with our own root alone.
func ownView() *view {
	v := &view{refs: 1} // kept to the end
	if r, err := rootfs.Open("/"); err == nil {
		v.roots = append(v.roots, r)
		v.key, _ = keyOf(r, "/proc/self")
	}
	return v
}

// viewOf returns the view of a process that lives, nil if it does not; mu is
// held.
func (n *Names) viewOf(pid int) *view {
	dir := fmt.Sprintf("/proc/%d", pid)
	root, err := rootfs.Open(dir + "/root")
	if err != nil {
		return nil
	}
	key, err := keyOf(root, dir)
	if err != nil {
		root.Close()
		return nil
	}
	v := n.views[key]
	if key == n.own.key {
		v = n.own
	}
	if v != nil {
		root.Close()
		return v
	}
	v = &view{key: key, roots: append([]*rootfs.Root{root}, n.own.roots...)}
	n.views[key] = v
	return v
}

func keyOf(root *rootfs.Root, dir string) (viewKey, error) {
	id, err := root.ID()
	if err != nil {
		return viewKey{}, err
	}
	namespace, err := os.Readlink(dir + "/ns/mnt")
	return viewKey{id, namespace}, err
}

// leave takes back one use of a view; mu is held.
func (n *Names) leave(v *view) {
	if v.refs--; v.refs == 0 {
		v.roots[0].Close()
		delete(n.views, v.key)
	}
}

// object is a file with symbols. All of it but syms belongs to the mutex of
// Names.
type object struct {
	key    objectKey
	view   *view
	path   string
	id     string         // build-id
	syms   *symbol.Object // nil: the file could not be opened
	file   module.File
	frames map[uint64][]symbol.Frame // names by address, as far as known

	refs   int // modules of processes that use it
	pins   int // look-ups under way
	asked  bool
	closed bool
	again  time.Time // when it may be opened again, if it is closed
	bytes  int       // that it takes
	place  *list.Element
}

// objectKey tells objects apart. A build-id is no identity: whoever writes a
// program can give it the build-id of another one, and would so name the frames
// of other processes. It is the file that counts, and by whose eyes its debug
// files are found.
type objectKey struct {
	view    *view
	path    string // debug files may lie beside it
	buildID string
	file    fileIdentity
}

// fileIdentity is a file as fstat(2) tells it, or the contents of an image.
type fileIdentity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
	sum          [sha256.Size]byte
	known        bool
}

// maxImage bounds the images that are compared by their contents.
const maxImage = 1 << 20

// identify tells which file f is. Those that cannot be told are nobody else's.
func identify(f module.File) fileIdentity {
	var id fileIdentity
	if s, ok := f.(interface{ Stat() (os.FileInfo, error) }); ok {
		info, err := s.Stat()
		if err != nil {
			return id
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return id
		}
		return fileIdentity{
			dev: uint64(st.Dev), ino: st.Ino, size: f.Size(), mtime: st.Mtim, ctime: st.Ctim, known: true,
		}
	}
	if f.Size() > maxImage {
		return id
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, f.Size())); err != nil {
		return id
	}
	id.size, id.known = f.Size(), true
	h.Sum(id.sum[:0])
	return id
}

// find opens the file of a module, or returns the object of the same file if it
// is open already; mu is held.
func (n *Names) find(v *view, m *module.Module) *object {
	f, err := m.OpenFile()
	if err != nil {
		n.opt.Log.Debug("no names for a module", "module", m.Path, "err", err)
		n.reports.add(fmt.Sprintf("%s (build-id %s): %v", m.Path, m.BuildID, err))
		o := new(object)
		if errors.Is(err, rootfs.ErrSilent) {
			o.rest()
		}
		return o
	}
	key := objectKey{v, m.Path, m.BuildID, identify(f)}
	if o := n.objects[key]; o != nil {
		f.Close()
		n.used.touch(o)
		return o
	}
	o := &object{key: key, view: v, path: m.Path, id: m.BuildID, file: f, frames: map[uint64][]symbol.Frame{}}
	o.syms = symbol.Open(f, m.Path, symbol.Options{
		Demangle: n.opt.Demangle, Inlines: n.opt.Inlines, Lines: n.opt.Lines, Until: n.opt.Until, Progress: n.opt.Progress,
		Roots: v.roots, Debuginfod: n.opt.Debuginfod, Log: n.opt.Log,
	})
	v.refs++
	if key.file.known {
		n.objects[key] = o
	}
	n.used.add(o)
	return o
}

// silentRest is how long a file that did not come is not opened again: it may take a second to find that it does not come.
const silentRest = 10 * time.Second

// rest makes o a file that names nothing, until it is opened again.
func (o *object) rest() { o.syms, o.closed, o.again = nil, true, time.Now().Add(silentRest) }

// Bounds of what is held open. Files that processes map are opened again when
// they are asked for; those of processes that have ended are lost then, and
// their frames stay as module and offset.
const (
	maxObjects     = 512
	maxObjectBytes = 256 << 20
	// The same for those that no process maps any more: the next one to start
	// may map them again.
	maxIdleObjects = 64
	maxIdleBytes   = 32 << 20
)

// objectList is the objects that are open, the last one used first.
type objectList struct {
	order list.List // of *object
	bytes int
}

func (l *objectList) add(o *object) { o.place = l.order.PushFront(o) }

func (l *objectList) touch(o *object) {
	if o.place != nil { // else it could not be opened
		l.order.MoveToFront(o.place)
	}
}

func (l *objectList) remove(o *object) {
	l.order.Remove(o.place)
	l.bytes -= o.bytes
}

// resize takes note of how much o holds by now.
func (l *objectList) resize(o *object, bytes int) {
	l.bytes += bytes - o.bytes
	o.bytes = bytes
}

// all yields the objects, the last one used first. The loop may remove what it
// gets.
func (l *objectList) all() iter.Seq[*object] {
	return func(yield func(*object) bool) {
		for e := l.order.Front(); e != nil; {
			o := e.Value.(*object)
			e = e.Next()
			if !yield(o) {
				return
			}
		}
	}
}

// evict closes what was not used for longest, until the bounds are kept; mu is
// held.
func (n *Names) evict() {
	for e := n.used.order.Back(); e != nil && (n.used.order.Len() > maxObjects || n.used.bytes > maxObjectBytes); {
		o := e.Value.(*object)
		e = e.Prev()
		if o.pins == 0 {
			n.close(o)
		}
	}
}

// evictIdle does the same to those that no process maps any more; mu is held.
func (n *Names) evictIdle() {
	count, bytes := 0, 0
	for o := range n.used.all() {
		if o.refs > 0 || o.pins > 0 {
			continue
		}
		count, bytes = count+1, bytes+o.bytes
		if count > maxIdleObjects || bytes > maxIdleBytes {
			n.close(o)
		}
	}
}

// close closes the files of an object; mu is held.
func (n *Names) close(o *object) {
	n.reportObject(o)
	if len(n.unread) < maxReports {
		o.countUnread(n.unread)
	}
	n.used.remove(o)
	if n.objects[o.key] == o {
		delete(n.objects, o.key)
	}
	n.cached -= len(o.frames)
	o.syms.Close()
	o.file.Close()
	o.frames, o.closed = nil, true
	n.leave(o.view)
}

// countUnread adds the look-ups of o that there was no time for.
func (o *object) countUnread(by map[string]Missed) {
	if names, lines := o.syms.Unread(); names+lines > 0 {
		by[o.path] = Missed{by[o.path].Names + names, by[o.path].Lines + lines}
	}
}

// reportObject notes for Missing what an object lacks, if its names were asked
// for; mu is held.
func (n *Names) reportObject(o *object) {
	if !o.asked {
		return
	}
	for _, why := range []string{o.syms.Missing(), o.syms.NoLines()} {
		if why != "" {
			n.reports.add(fmt.Sprintf("%s (build-id %s): %s", o.path, o.id, why))
		}
	}
}
