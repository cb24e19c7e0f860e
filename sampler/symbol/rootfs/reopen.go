package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// ErrNotRegular is returned for whatever is no regular file: opening a FIFO or
// a device could block or have an effect.
var ErrNotRegular = errors.New("not a regular file")

// ErrLeased is returned for a file that a program holds a write lease on: opening it would break the lease, and the
// signal that tells the holder so kills one that does not expect it.
var ErrLeased = errors.New("a program holds a lease on it, which opening it would break")

// Flags for the file itself. O_NONBLOCK: opening a FIFO does not wait for a
// writer, and no file for the end of a lease. O_NOCTTY: a terminal does not become ours.
const fileFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// Reopen opens for reading the file that path, an O_PATH descriptor, stands for, if [MayAsk] lets it be asked for. The error
// is [ErrNotRegular], [ErrLeased], [ErrSilent] or the kernel's; name is for errors and for the file's name.
// It takes half a second at most, and holds nothing meanwhile.
func Reopen(path int, name string) (*File, error) {
	f := new(File)
	file, err := f.reopen(path, name)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	f.file = os.NewFile(uintptr(file), name)
	return f, nil
}

// reopen opens by the link in /proc; proc(5): that is the very file that the descriptor stands for, whatever has happened
// to its name.
func (f *File) reopen(path int, name string) (int, error) {
	if err := unix.Fstat(path, &f.st); err != nil {
		return -1, err
	}
	if f.st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, ErrNotRegular
	}
	if err := leased(path, &f.st); err != nil {
		return -1, err
	}
	f.disk = DiskOf(f.st.Dev)
	return f.disk.open(f.st.Ino, name, path, func(own int) (int, error) {
		file, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", own), fileFlags, 0)
		if err == nil {
			_, _ = unix.Pread(file, make([]byte, 1), 0) // whether it ends; an error comes again
		}
		return file, err
	})
}

// opening is one descriptor on its way, which may come when nobody waits for it any more.
type opening struct {
	mu    sync.Mutex
	begun bool
	late  bool // what it opens is to be closed
	file  int
}

// open returns the descriptor that open returns, which is given a copy of from. If it is given up, it is known by the number what.
func (d *Disk) open(what uint64, name string, from int, open func(own int) (int, error)) (int, error) {
	own, err := unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	o := opening{file: -1}
	_, err = d.Do(nil, what, nil, func([]byte) (int, error) { return 0, o.open(own, open) })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late = err != nil
	if !o.begun {
		unix.Close(own)
	}
	if !errors.Is(err, ptrace.ErrStuck) {
		return o.file, err
	}
	if o.file >= 0 {
		unix.Close(o.file)
	}
	return -1, d.silent(name)
}

// open opens what is to be opened by own, and closes own.
func (o *opening) open(own int, open func(own int) (int, error)) error {
	o.mu.Lock()
	o.begun = true
	o.mu.Unlock()
	file, err := open(own)
	unix.Close(own)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.late && err == nil {
		unix.Close(file)
		return nil
	}
	o.file = file
	return err
}

// leased is [ErrLeased] if a program holds a write lease or delegation on a file, and so a lease that reading breaks (leases_conflict,
// fs/locks.c). /proc/locks leaves out those of programs outside of its pid namespace (locks_show): nobody there is sampled.
func leased(path int, st *unix.Stat_t) error {
	leases, whole, err := known.read()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ptrace.ErrStuck) { // no leases in this kernel, no /proc, or no answer
		return nil
	}
	if err == nil && !whole {
		err = fmt.Errorf("too many locks in /proc/locks to know: %w", ErrLeased)
	}
	if err != nil {
		return err
	}
	for _, l := range leases {
		if l.Mode == "WRITE" && sameFile(path, st, l.Major, l.Minor, l.Inode) {
			return ErrLeased
		}
	}
	return nil
}

// leaseList is the leases of all files, as they were read last. Whoever reads /proc/locks holds up all who lock files meanwhile, and
// waits for them and for a grace period of RCU (locks_start, fs/locks.c): 30 us as a rule, seconds where many do so on busy CPUs. So the
// list is good for twenty times as long as reading it took, and is done without where it does not come.
type leaseList struct {
	mu     sync.Mutex
	until  time.Time
	leases []procfs.FileLock
	whole  bool
	err    error
	asking ptrace.Patient
}

var known = new(leaseList)

func (l *leaseList) read() (leases []procfs.FileLock, whole bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := time.Now()
	if start.Before(l.until) {
		return l.leases, l.whole, l.err
	}
	type answer struct {
		leases []procfs.FileLock
		whole  bool
	}
	got := make(chan answer, 1)
	_, l.err = l.asking.Do(nil, 0, nil, func([]byte) (int, error) {
		leases, whole, err := procfs.FS{}.Leases()
		got <- answer{leases, whole}
		return 0, err
	})
	l.leases, l.whole = nil, false
	if !errors.Is(l.err, ptrace.ErrStuck) {
		a := <-got
		l.leases, l.whole = a.leases, a.whole
	}
	end := time.Now()
	l.until = end.Add(20 * end.Sub(start))
	return l.leases, l.whole, l.err
}

// ownDevices are the file systems that show other devices in /proc than in stat(2):
// there the inode has to do.
var ownDevices = map[uint32]bool{
	unix.BTRFS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true, unix.BCACHEFS_SUPER_MAGIC: true, unix.ECRYPTFS_SUPER_MAGIC: true,
}

// SameFile tells whether f, a file that was opened without patience, is the file with this device and inode, as files of /proc show them.
func SameFile(f *os.File, major, minor uint32, inode uint64) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && sameFile(int(f.Fd()), &st, major, minor, inode)
}

// sameFile tells whether a descriptor is of the file with this device and inode, as files of /proc show them.
func sameFile(fd int, st *unix.Stat_t, major, minor uint32, inode uint64) bool {
	if st.Ino != inode {
		return false
	}
	if unix.Major(uint64(st.Dev)) == major && unix.Minor(uint64(st.Dev)) == minor {
		return true
	}
	var vol unix.Statfs_t
	return unix.Fstatfs(fd, &vol) == nil && ownDevices[uint32(vol.Type)]
}
