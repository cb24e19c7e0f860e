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

// TestPagemapBits: bit 63 is of a page that is present, 62 of one that is swapped out (Documentation/admin-guide/mm/pagemap.rst).
func TestPagemapBits(t *testing.T) {
	var b []byte
	for _, entry := range []uint64{1 << 63, 1 << 62, 1<<62 - 1} {
		b = binary.NativeEndian.AppendUint64(b, entry)
	}
	p := folder(t, map[string]string{"1/pagemap": string(b)}).OpenPagemap(1)
	defer p.Close()
	if got, page := p.AtHand(0, 3*os.Getpagesize()), os.Getpagesize(); got != 2*page {
		t.Errorf("%d bytes are at hand, want %d", got, 2*page)
	}
}
