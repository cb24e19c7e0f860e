package sampler

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// TestResident: what lies behind a stack belongs to its copies as far as it is in
// memory.
func TestResident(t *testing.T) {
	pages := openPagemap(procfs.FS{}, os.Getpid())
	if pages < 0 {
		t.Skip("/proc/self/pagemap cannot be opened here")
	}
	pages.close()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // EINVAL: the kernel has none
		t.Fatal(err)
	}
	low, p := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), new(Pipeline)
	for _, tt := range []struct{ touched, from, top, want int }{ // pages; from low; each after those before
		{0, 8, page, page},
		{1, 8, 2*page + 8, 2 * page},
		{3, 8, 4 * page, 2 * page},
		{2, 8, 4*page - 8, 4*page - 8},
		{2, page, page, page},
	} {
		mem[tt.touched*page] = 1
		if got := p.resident(os.Getpid(), low+uint64(tt.from), low+uint64(tt.top)); got != low+uint64(tt.want) {
			t.Errorf("page %d was touched: from %#x to %#x it is all there to %#x, want %#x", tt.touched, tt.from, tt.top, got-low, tt.want)
		}
	}
}
