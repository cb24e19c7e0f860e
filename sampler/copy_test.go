package sampler

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/taking"
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
	low, p, self := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), new(walks), &target{pid: os.Getpid()}
	defer func() { self.pages.Close() }()
	for _, tt := range []struct{ touched, from, top, want int }{ // pages; from low; each after those before
		{0, 8, page, page},
		{1, 8, 2*page + 8, 2 * page},
		{3, 8, 4 * page, 2 * page},
		{2, 8, 4*page - 8, 4*page - 8},
		{2, page, page, page},
	} {
		mem[tt.touched*page] = 1
		if got := p.resident(self, low+uint64(tt.from), low+uint64(tt.top)); got != low+uint64(tt.want) {
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
	tells := func(low uint64) bool {
		a := asked{zeros: zeros(procfs.FS{}, os.Getpid())}
		return a.tells(&taking.Extent{Low: low, High: low + uint64(os.Getpagesize())})
	}
	if !tells(at) || !tells(at+uint64(size-os.Getpagesize())) {
		t.Error("memory of our own: no")
	}
	if tells(0) || tells(1<<63) {
		t.Error("what is not mapped: yes")
	}
	if err := withhold(at, uint64(size)); err != nil {
		t.Skipf("no userfaultfd here: %v", err)
	}
	if tells(at) {
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

// TestStackExtent: a main stack may go on below its mapping, as far as there is nothing else.
func TestStackExtent(t *testing.T) {
	const top = 0x7fff_0000_0000
	mapping := func(start, end uint64, path string, perms procfs.Perms) procfs.Mapping {
		return procfs.Mapping{Start: start, End: end, Path: path, Perms: perms}
	}
	file := mapping(top-0x3000, top-0x2000, "/lib/x", procfs.Read)
	file.Inode = 5
	near := []procfs.Mapping{mapping(top-0x50_0000, top-0x4f_0000, "", procfs.Read|procfs.Write), mapping(top, top+0x2000, "[stack]", procfs.Read|procfs.Write)}
	far := []procfs.Mapping{mapping(0x1000, 0x2000, "", procfs.Read|procfs.Write), near[1]}
	for _, tt := range []struct {
		name string
		maps []procfs.Mapping
		sp   uint64
		want taking.Extent
	}{
		{"within", near, top + 0x10, taking.Extent{Low: top, High: top + 0x2000, Below: top - 0x4f_0000}},
		{"below", near, top - 0x1000, taking.Extent{Low: top, High: top + 0x2000, Below: top - 0x4f_0000}},
		{"in what is below", near, top - 0x4f_0008, taking.Extent{Low: top - 0x50_0000, High: top - 0x4f_0000, Below: top - 0x50_0000}},
		{"as far below as a stack may be large", far, top - maxBelow, taking.Extent{Low: top, High: top + 0x2000, Below: top - maxBelow}},
		{"farther", far, top - maxBelow - 1, taking.Extent{}},
		{"below another mapping", []procfs.Mapping{mapping(top, top+0x2000, "", procfs.Read)}, top - 8, taking.Extent{}},
		{"behind all", near, top + 0x2000, taking.Extent{}},
		{"a file", []procfs.Mapping{file, near[1]}, top - 0x3000, taking.Extent{}},
		{"shared", []procfs.Mapping{mapping(top, top+0x2000, "", procfs.Read|procfs.Shared)}, top, taking.Extent{}},
	} {
		if got := stackExtent(tt.maps, tt.sp); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestLeave: what is known of a thread goes with it, and with no other.
func TestLeave(t *testing.T) {
	p := testPipeline(new(byFunction))
	p.targets.all[1] = &target{threads: map[int]*seen{5: {}, 6: {}}}
	p.targets.leave(left{1, 5})
	p.targets.leave(left{2, 6})
	if list := p.targets.all[1].threads; len(list) != 1 || list[6] == nil {
		t.Errorf("%v is left, want thread 6", list)
	}
	delete(p.targets.all, 1)
}

// TestCopySize: copies shrink to what a thread needs, slowly, and are what it has needed until then.
func TestCopySize(t *testing.T) {
	for _, from := range []int{usualCopy, 64 << 10, 1 << 20, 8 << 20} {
		want, half := from, 0
		for i := 1; i < 5000; i++ {
			if want = copySize(want, 2048, false, 4096, slowly); half == 0 && want <= from/2 {
				half = i
			}
		}
		if got := wholeCopy(want); got != 8<<10 || half < 150 || half > 200 {
			t.Errorf("from %d: %d bytes in the end, half of it after %d copies", from, got, half)
		}
	}
	if got := copySize(16<<10, 20<<10, true, 16<<10, slowly); got != 64<<10 {
		t.Errorf("where 16 KB were too small: %d bytes", got)
	}
	if got := wholeCopy(maxCopy + 1); got != maxCopy || wholeCopy(1) != minCopy || wholeCopy(minCopy+1) != 2*minCopy {
		t.Errorf("whole copies: %d, %d, %d", got, wholeCopy(1), wholeCopy(minCopy+1))
	}
}
