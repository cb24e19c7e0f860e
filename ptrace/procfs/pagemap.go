//go:build unix

package procfs

import "golang.org/x/sys/unix"

// MemoryGone tells whether the memory is gone of which fd is the open pagemap: its
// process has called exec or has ended, and nobody else shares it. The pagemap of memory
// without users reads as empty (pagemap_read, fs/proc/task_mmu.c).
func MemoryGone(fd int) bool {
	var entry [8]byte
	n, err := unix.Pread(fd, entry[:], 0)
	return err == nil && n == 0
}
