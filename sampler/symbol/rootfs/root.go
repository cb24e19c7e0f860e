package rootfs

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Root is a directory that stands for "/". It stays valid when the process by
// whose /proc/PID/root it was opened ends.
type Root struct {
	fd     int
	name   string
	id     string // of the mount that it is on
	mounts *table // of the process; nil: there is no /proc
}

// Open opens the directory name as a root: "/", or "/proc/PID/root". It is an error if the root
// of a process is on a remote mount.
func Open(name string) (r *Root, err error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open root", Path: name, Err: err}
	}
	r = &Root{fd: fd, name: name}
	dir, process := strings.CutSuffix(name, "/root")
	if process = process && strings.HasPrefix(dir, "/proc/"); !process {
		dir = "/proc/self"
	} else if err = MayAsk(fd, dir); err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "open root", Path: name, Err: err}
	}
	if r.id, err = mountID(fd); err == nil {
		r.mounts, err = openMounts(dir)
	}
	if err != nil && process {
		unix.Close(fd)
		return nil, &os.PathError{Op: "open root", Path: name, Err: err}
	}
	return r, nil
}

// mayEnter is [ErrRemote] if the mount with this id, which a path leads into, is not known to be local.
func (r *Root) mayEnter(id string) error {
	ms, err := r.mounts.now()
	if err != nil {
		return err
	}
	return remoteUnless(ms.local[id])
}

// automounts tells whether to look a path up may mount something, which openat2 may do
// before it refuses to go there (follow_automount, fs/namei.c; seen not to on Linux 6.18).
func (r *Root) automounts() bool {
	if r.mounts == nil {
		return false
	}
	ms, err := r.mounts.now()
	return err != nil || ms.autofs
}

// Name is the name that the root was opened by.
func (r *Root) Name() string { return r.name }

// ID tells directories apart.
type ID struct{ Dev, Ino uint64 }

// ID is which directory the root is.
func (r *Root) ID() (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(r.fd, &st); err != nil {
		return ID{}, &os.PathError{Op: "stat", Path: r.name, Err: err}
	}
	return ID{uint64(st.Dev), st.Ino}, nil
}

// Close releases the root. Files opened through it stay open.
func (r *Root) Close() error {
	r.mounts.Close()
	return unix.Close(r.fd)
}

// lookups stands for all that is looked up on a device: no inode has this number.
const lookups = 0

// OpenFile opens the regular file at path, resolved below r whether it begins
// with a slash or not, as [Reopen] does. Without a /proc none is opened. A directory that does not come is given up like a file.
func (r *Root) OpenFile(path string) (*File, error) {
	if strings.IndexByte(path, 0) >= 0 || len(path) >= unix.PathMax {
		return nil, &os.PathError{Op: "open", Path: r.show(path), Err: unix.EINVAL}
	}
	disk, fd, err := r.diskOf(path), -1, ErrSilent
	if !disk.Stuck() { // who waits in a look-up cannot be killed (wait_on_buffer in __ext4_find_entry, fs/ext4/namei.c)
		fd, err = disk.open(lookups, r.show(path), r.fd, func(root int) (int, error) {
			return (&Root{fd: root, name: r.name, id: r.id, mounts: r.mounts}).openPath(path)
		})
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: r.show(path), Err: err}
	}
	defer unix.Close(fd)
	return Reopen(fd, r.show(path))
}

// diskOf is what holds the directory that a path leads to, but for symbolic links: the disk of a link's own directory stands for that of what
// it leads to.
func (r *Root) diskOf(path string) *Disk {
	var dev uint64
	if r.mounts != nil {
		if ms, err := r.mounts.now(); err == nil {
			dev = ms.deviceOf("/" + path)
		}
	}
	return DiskOf(dev)
}

func (r *Root) show(path string) string {
	return strings.TrimSuffix(r.name, "/") + "/" + clean(path)
}

func clean(path string) string {
	path = strings.TrimLeft(path, "/")
	if path == "" {
		return "."
	}
	return path
}

// noOpenat2 is what the first openat2 said of the kernel: ENOSYS before 5.6,
// EPERM from filters of containers that do not know it.
var noOpenat2 = sync.OnceValue(func() bool {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(unix.AT_FDCWD, ".", &how)
	if err != nil {
		return true
	}
	unix.Close(fd)
	return false
})

// openPath returns an O_PATH descriptor of path.
func (r *Root) openPath(path string) (int, error) {
	if noOpenat2() || r.automounts() {
		return r.walk(path)
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	if r.mounts != nil {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	// openat2(2): EAGAIN when a rename or mount elsewhere kept the kernel from
	// being sure that ".." stayed inside.
	for try := 0; ; try++ {
		fd, err := unix.Openat2(r.fd, clean(path), &how)
		if err == unix.EAGAIN && try < 8 || err == unix.EINTR {
			continue
		}
		if err == unix.EXDEV { // into another mount
			return r.walk(path)
		}
		return fd, err
	}
}

// maxLinks is how many symbolic links one path may lead through
// (path_resolution(7): 40).
const maxLinks = 40

// walk resolves path one component at a time, symbolic links by hand. Where it
// has been is a stack of descriptors, so ".." is the directory that it came
// from and cannot leave the root, whatever is renamed meanwhile. A remote mount is
// not entered: to have a descriptor of its root asks nobody.
func (r *Root) walk(path string) (int, error) {
	root, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	dirs := []int{root}      // root first; the last one is where we are
	mounts := []string{r.id} // that they are on
	defer func() {
		for _, fd := range dirs {
			unix.Close(fd)
		}
	}()
	rest := strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if n := len(dirs); n > 1 {
				unix.Close(dirs[n-1])
				dirs, mounts = dirs[:n-1], mounts[:n-1]
			}
			continue
		}
		here := dirs[len(dirs)-1]
		fd, err := unix.Openat(here, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		var id, target string
		isLink := false
		if r.mounts != nil {
			if id, err = mountID(fd); err == nil && id != mounts[len(mounts)-1] {
				err = r.mayEnter(id)
			}
		}
		if err == nil {
			target, isLink, err = readlink(fd)
		}
		if err != nil || !isLink {
			dirs, mounts = append(dirs, fd), append(mounts, id)
			if err != nil {
				return -1, err
			}
			continue
		}
		unix.Close(fd)
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			for _, fd := range dirs[1:] {
				unix.Close(fd)
			}
			dirs, mounts = dirs[:1], mounts[:1]
		}
		rest = append(strings.Split(target, "/"), rest...)
		if len(rest) > unix.PathMax {
			return -1, unix.ENAMETOOLONG
		}
	}
	fd := dirs[len(dirs)-1]
	dirs = dirs[:len(dirs)-1]
	return fd, nil
}

// readlink reads the symbolic link that fd, an O_PATH descriptor, stands for.
// The links of /proc that are no paths are refused.
func readlink(fd int) (target string, isLink bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", false, nil
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", true, err
	}
	if fs.Type == unix.PROC_SUPER_MAGIC {
		return "", true, unix.ELOOP // as RESOLVE_NO_MAGICLINKS does
	}
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil {
		return "", true, err
	}
	if n == 0 {
		return "", true, unix.ENOENT
	}
	return string(b[:n]), true, nil
}
