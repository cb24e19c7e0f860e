package procfs

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestAtHand: what was never touched is not at hand, nor what lies behind it.
func TestAtHand(t *testing.T) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 128*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // EINVAL: the kernel has none
		t.Fatal(err)
	}
	for at := page; at < 101*page; at += page {
		mem[at] = 1
	}
	pages := FS{}.OpenPagemap(os.Getpid())
	defer pages.Close()
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	for _, tt := range []struct{ from, n, want int }{
		{0, 8, 0},
		{page - 8, 16, 0},
		{page, 8, 8},
		{2*page - 4, 8, 8},
		{page + 8, 99 * page, 99 * page},
		{page + 8, 100 * page, 100*page - 8},
		{page + 9, 100 * page, 100*page - 9},
		{101*page - 4, 8, 4},
		{101 * page, 8, 0},
	} {
		if got := pages.AtHand(base+uint64(tt.from), tt.n); got != tt.want {
			t.Errorf("%d bytes from %#x on: %d are at hand, want %d", tt.n, tt.from, got, tt.want)
		}
	}
	if got := Pagemap(-1).AtHand(base+uint64(page), 8); got != 0 {
		t.Errorf("without a pagemap %d bytes are at hand", got)
	}
}

// TestPagemapBits: bit 63 is of a page that is present, 62 of one that is swapped out, or of a marker if 57 is set too
// (Documentation/admin-guide/mm/pagemap.rst).
func TestPagemapBits(t *testing.T) {
	for _, tt := range []struct {
		last uint64
		want int
	}{{1<<62 - 1, 2}, {1<<62 | 1<<57, 2}, {1<<63 | 1<<57, 3}, {1<<62 | 1<<58, 3}} {
		var b []byte
		for _, entry := range []uint64{1 << 63, 1 << 62, tt.last} {
			b = binary.NativeEndian.AppendUint64(b, entry)
		}
		p := folder(t, map[string]string{"1/pagemap": string(b)}).OpenPagemap(1)
		if got, page := p.AtHand(0, 3*os.Getpagesize()), os.Getpagesize(); got != tt.want*page {
			t.Errorf("entry %#x behind two pages: %d bytes are at hand, want %d", tt.last, got, tt.want*page)
		}
		p.Close()
	}
}

// TestMarker: a page that was never there and is write-protected by userfaultfd(2) is not at hand.
func TestMarker(t *testing.T) {
	const (
		userModeOnly        = 1
		uffdAPI, unpopulate = 0xaa, 1 << 13 // UFFD_FEATURE_WP_UNPOPULATED, Linux 6.4
		missing, protect    = 1, 2
		apiCall, register   = 0xc018aa3f, 0xc020aa00
		writeProtect        = 0xc018aa06
	)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		t.Skipf("no userfaultfd to be had: %v", errno)
	}
	defer unix.Close(int(fd))
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	ioctl := func(request uintptr, arg unsafe.Pointer) unix.Errno {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
		return errno
	}
	if errno := ioctl(apiCall, unsafe.Pointer(&[3]uint64{uffdAPI, unpopulate})); errno != 0 {
		t.Skipf("no userfaultfd that write-protects pages that are not there: %v", errno)
	}
	if errno := ioctl(register, unsafe.Pointer(&[4]uint64{at, uint64(page), missing | protect})); errno != 0 {
		t.Fatal(errno)
	}
	if errno := ioctl(writeProtect, unsafe.Pointer(&[3]uint64{at, uint64(page), 1})); errno != 0 {
		t.Fatal(errno)
	}
	pages := FS{}.OpenPagemap(os.Getpid())
	defer pages.Close()
	if got := pages.AtHand(at, page); got != 0 {
		t.Errorf("%d bytes of a marker are at hand", got)
	}
}

// TestGuard: to read a guard region, which shows as swapped out, waits for nobody.
func TestGuard(t *testing.T) {
	const guardInstall = 102 // MADV_GUARD_INSTALL (include/uapi/asm-generic/mman-common.h), Linux 6.13
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, guardInstall); err != nil {
		t.Skipf("no guard regions to be had: %v", err)
	}
	var b [8]byte
	at := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(unsafe.SliceData(mem))), Len: len(b)}
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	if n, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{local}, []unix.RemoteIovec{at}, 0); err != unix.EFAULT {
		t.Errorf("reading a guard region gives %d bytes, %v; want %v", n, err, unix.EFAULT)
	}
}
