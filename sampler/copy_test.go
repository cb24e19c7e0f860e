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
	pages := procfs.FS{}.OpenPagemap(os.Getpid())
	if pages < 0 {
		t.Skip("/proc/self/pagemap cannot be opened here")
	}
	pages.Close()
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

// TestZeros: missing pages of memory of a process's own are zeros, unless somebody has asked to be told of them.
func TestZeros(t *testing.T) {
	size := 16 * os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	if !zeros(procfs.FS{}, os.Getpid(), at+8) {
		t.Error("memory of our own: no")
	}
	if zeros(procfs.FS{}, os.Getpid(), 8) {
		t.Error("what is not mapped: yes")
	}
	if err := withhold(at, uint64(size)); err != nil {
		t.Skipf("no userfaultfd here: %v", err)
	}
	if zeros(procfs.FS{}, os.Getpid(), at+8) {
		t.Error("memory with a userfaultfd: yes")
	}
}

// withhold has the missing pages from addr on held back, for as long as this process lives
// (include/uapi/linux/userfaultfd.h).
func withhold(addr, n uint64) error {
	const (
		userModeOnly     = 1
		api, apiCall     = 0xaa, 0xc018aa3f
		missing, regCall = 1, 0xc020aa00
	)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return errno
	}
	hello := [3]uint64{api}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, apiCall, uintptr(unsafe.Pointer(&hello))); errno != 0 {
		return errno
	}
	r := [4]uint64{addr, n, missing}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, regCall, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return errno
	}
	return nil
}
