//go:build unix

package procfs

import "golang.org/x/sys/unix"

// Pagemap is an open /proc/PID/pagemap, -1 if there is none to be had
// (Documentation/admin-guide/mm/pagemap.rst). It is of the memory that the process had when it was opened.
type Pagemap int

// OpenPagemap opens that of a process or thread.
func (f FS) OpenPagemap(pid int) Pagemap {
	fd, err := unix.Open(f.Path(pid, "pagemap"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return Pagemap(fd)
}

// Close closes it, if it is open.
func (p Pagemap) Close() {
	if p >= 0 {
		unix.Close(int(p))
	}
}

// Gone tells whether its memory is gone: the process has called exec or has ended, and nobody else shares it.
// The pagemap of memory without users reads as empty (pagemap_read, fs/proc/task_mmu.c).
func (p Pagemap) Gone() bool {
	var entry [8]byte
	n, err := unix.Pread(int(p), entry[:], 0)
	return err == nil && n == 0
}
