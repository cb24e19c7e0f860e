package rootfs

import (
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sys/unix"
)

// Watch tells which devices are remote in a process's mounts as they are now. It may be used by any number of goroutines.
type Watch struct {
	dir func() string // of the process in /proc

	mu    sync.Mutex
	table *table // nil: not open
	now   *Mounts
	seen  map[string]bool
}

// NewWatch returns the watch of a process. dir tells its folder in /proc, or that of a thread that lives.
func NewWatch(dir func() string) *Watch { return &Watch{dir: dir, seen: map[string]bool{}} }

// Device tells whether a file of this device is on a file system that is or was mounted, and is remote.
func (w *Watch) Device(major, minor uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	return (&Mounts{devices: w.seen}).Device(major, minor)
}

// Disk is the disk with this number, nil if no mount is known to have one. The error is [ErrRemote] where Device is true.
func (w *Watch) Disk(major, minor uint32) (*Disk, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look()
	switch dev := fmt.Sprintf("%d:%d", major, minor); {
	case w.seen[dev]:
		return nil, ErrRemote
	case w.now == nil || !w.now.disks[dev]:
		return nil, nil
	}
	return DiskOf(unix.Mkdev(major, minor)), nil
}

// look sees which file systems are mounted now; mu is held.
func (w *Watch) look() {
	if w.table == nil {
		w.table, _ = openMounts(w.dir())
	}
	if w.table != nil {
		if now, err := w.table.now(); err == nil && now != w.now {
			w.now = now
			maps.Copy(w.seen, now.devices)
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.Close()
	w.table = nil
}
