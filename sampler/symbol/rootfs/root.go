package rootfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is returned for whatever is no regular file: opening a FIFO or
// a device could block or have an effect.
var ErrNotRegular = errors.New("not a regular file")

// Root is a directory that stands for "/". It stays valid when the process by
// whose /proc/PID/root it was opened ends.
type Root struct {
	fd     int
	name   string
	remote map[string]bool // paths of mounts that are never entered
}

// Open opens the directory name as a root: "/", or "/proc/PID/root".
func Open(name string) (*Root, error) {
	remote, err := remoteBelow(name)
	if err != nil {
		return nil, &os.PathError{Op: "open root", Path: name, Err: err}
	}
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open root", Path: name, Err: err}
	}
	return &Root{fd: fd, name: name, remote: remote}, nil
}

// remoteBelow finds the remote mounts in the root that has this name. It is an error
// if the root of a process is one.
func remoteBelow(name string) (map[string]bool, error) {
	dir, process := strings.CutSuffix(name, "/root")
	folder := "/"
	if process = process && strings.HasPrefix(dir, "/proc/"); !process {
		dir, folder = "/proc/self", name
	}
	m, err := MountsOf(dir)
	if err != nil && process {
		return nil, err
	}
	if process && m.points["/"] {
		return nil, ErrRemote
	}
	return m.below(folder), nil // without /proc there is nobody to ask
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
func (r *Root) Close() error { return unix.Close(r.fd) }

// Flags for the file itself. O_NONBLOCK: opening a FIFO does not wait for a
// writer. O_NOCTTY: a terminal does not become ours.
const fileFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// OpenFile opens the regular file at path, resolved below r whether it begins
// with a slash or not. Anything else gives [ErrNotRegular] and is never opened
// for reading.
func (r *Root) OpenFile(path string) (*os.File, error) {
	fd, err := r.openPath(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: r.show(path), Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: r.show(path), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: r.show(path), Err: ErrNotRegular}
	}
	// proc(5): opening the link opens the very file that the descriptor stands
	// for, whatever has happened to its name.
	file, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), fileFlags, 0)
	if err == unix.ENOENT { // no /proc here
		file, err = r.openChecked(path, &st)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: r.show(path), Err: err}
	}
	return os.NewFile(uintptr(file), r.show(path)), nil
}

// openChecked opens path by its name and makes sure that it is the file st.
func (r *Root) openChecked(path string, st *unix.Stat_t) (int, error) {
	how := unix.OpenHow{Flags: fileFlags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(r.fd, clean(path), &how)
	if err != nil {
		return -1, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Ino != st.Ino || now.Dev != st.Dev {
		unix.Close(fd)
		return -1, unix.ESTALE
	}
	return fd, nil
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
	if strings.IndexByte(path, 0) >= 0 || len(path) >= unix.PathMax {
		return -1, unix.EINVAL
	}
	if len(r.remote) > 0 || noOpenat2() {
		return r.walk(path)
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	// openat2(2): EAGAIN when a rename or mount elsewhere kept the kernel from
	// being sure that ".." stayed inside.
	for try := 0; ; try++ {
		fd, err := unix.Openat2(r.fd, clean(path), &how)
		if err == unix.EAGAIN && try < 8 || err == unix.EINTR {
			continue
		}
		return fd, err
	}
}

// maxLinks is how many symbolic links one path may lead through
// (path_resolution(7): 40).
const maxLinks = 40

// walk resolves path one component at a time, symbolic links by hand. Where it
// has been is a stack of descriptors, so ".." is the directory that it came
// from and cannot leave the root, whatever is renamed meanwhile.
func (r *Root) walk(path string) (int, error) {
	root, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	dirs := []int{root} // root first; the last one is where we are
	names := []string{""}
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
				dirs, names = dirs[:n-1], names[:n-1]
			}
			continue
		}
		full := names[len(names)-1] + "/" + name
		if r.remote[full] {
			return -1, ErrRemote
		}
		here := dirs[len(dirs)-1]
		fd, err := unix.Openat(here, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, err
		}
		target, isLink, err := readlink(fd)
		if err != nil || !isLink {
			dirs, names = append(dirs, fd), append(names, full)
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
			dirs, names = dirs[:1], names[:1]
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
