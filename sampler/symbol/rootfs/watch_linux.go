package rootfs

import (
	"maps"
	"sync"

	"golang.org/x/sys/unix"
)

// Watch tells which devices are remote in a process's mounts as they are now. It may be used by any number of goroutines.
type Watch struct {
	dir func() string // of the process in /proc

	mu   sync.Mutex
	fd   int // its mountinfo, -1: not open
	seen map[string]bool
}

// NewWatch returns the watch of a process. dir tells its folder in /proc, or that of a thread that lives.
func NewWatch(dir func() string) *Watch { return &Watch{dir: dir, fd: -1, seen: map[string]bool{}} }

// Device tells whether a file of this device is on a file system that is or was mounted, and is remote. Mounts are read
// again when the kernel tells of a change (mounts_poll, fs/proc_namespace.c).
func (w *Watch) Device(major, minor uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd < 0 || w.changed() {
		dir := w.dir()
		if w.fd < 0 { // before what is read: changes from now on count
			w.fd, _ = unix.Open(dir+"/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		now, err := MountsOf(dir)
		if err != nil {
			w.forget() // or the change that was told would not be told again
		}
		maps.Copy(w.seen, now.devices)
	}
	return Mounts{devices: w.seen}.Device(major, minor)
}

func (w *Watch) changed() bool {
	fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLPRI}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget()
}

func (w *Watch) forget() {
	if w.fd >= 0 {
		unix.Close(w.fd)
		w.fd = -1
	}
}
