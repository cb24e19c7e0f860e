package rootfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// ErrSilent is returned for a file that cannot be found, opened or read unless somebody answers that does not: the disk that it is on, which
// may be a file on a hung server (loop devices, iSCSI), or a listener that is to permit it (fanotify(7), FAN_OPEN_PERM and FAN_ACCESS_PERM).
var ErrSilent = fmt.Errorf("the disk that it is on, or a program that is to permit opening or reading it, does not answer: %w", os.ErrDeadlineExceeded)

// Disk is what is read of a device with: by inode, or any other number that stands for what is read.
type Disk struct {
	ptrace.Patient
	dev   uint64
	first atomic.Pointer[string] // what could not be read first
}

// mostSilent is how many reads of a device hang before no others are made: one may be a listener's.
const mostSilent = 2

// disks are those that were ever read of, by number. The kernel gives numbers out again.
var disks sync.Map

// DiskOf is the disk with this number.
func DiskOf(dev uint64) *Disk {
	d, known := disks.Load(dev)
	if !known {
		d, _ = disks.LoadOrStore(dev, &Disk{Patient: ptrace.Patient{Most: mostSilent}, dev: dev})
	}
	return d.(*Disk)
}

// silent is the error for what was given up.
func (d *Disk) silent(name string) error {
	d.first.CompareAndSwap(nil, &name)
	return ErrSilent
}

// Silent tells of each disk of which something was given up, and what that was first.
func Silent() (list []string) {
	for _, d := range disks.Range {
		if d := d.(*Disk); d.first.Load() != nil {
			list = append(list, fmt.Sprintf("%s (device %d:%d)", *d.first.Load(), unix.Major(d.dev), unix.Minor(d.dev)))
		}
	}
	slices.Sort(list)
	return list
}

// File is an open file whose reads can be given up. It may be used by any number of goroutines.
type File struct {
	file *os.File
	disk *Disk
	st   unix.Stat_t // as it was when it was opened
}

// pieceBytes is what is read at once: what is given up has to have a buffer of its own.
const pieceBytes = 256 << 10

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, off int64) (int, error) { return f.ReadUntil(nil, b, off) }

// ReadUntil is ReadAt that no longer waits for what does not come when done is closed. The error is [ErrSilent] if it does not come.
func (f *File) ReadUntil(done <-chan struct{}, b []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, &os.PathError{Op: "read", Path: f.Name(), Err: unix.EINVAL}
	}
	for n < len(b) && err == nil {
		at, got := off+int64(n), 0
		got, err = f.disk.Do(done, f.st.Ino, b[n:min(len(b), n+pieceBytes)], func(piece []byte) (int, error) {
			return f.file.ReadAt(piece, at)
		})
		n += got
	}
	if errors.Is(err, ptrace.ErrStuck) {
		err = &os.PathError{Op: "read", Path: f.Name(), Err: f.disk.silent(f.Name())}
	}
	return n, err
}

// Size is how large the file was when it was opened.
func (f *File) Size() int64 { return f.st.Size }

// Name is the name that the file was opened by.
func (f *File) Name() string { return f.file.Name() }

// Stat is what fstat(2) told of the file when it was opened.
func (f *File) Stat() (os.FileInfo, error) { return f.file.Stat() }

// Is tells whether it is the file with this device and inode, as files of /proc show them.
func (f *File) Is(major, minor uint32, inode uint64) bool {
	return sameFile(int(f.file.Fd()), &f.st, major, minor, inode)
}

// Duplicate returns the file as one of its own, which outlives f.
func (f *File) Duplicate() (*File, error) {
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "duplicate", Path: f.Name(), Err: err}
	}
	return &File{os.NewFile(uintptr(fd), f.Name()), f.disk, f.st}, nil
}

// Close closes the file. A read that hangs keeps it open until that ends.
func (f *File) Close() error { return f.file.Close() }
