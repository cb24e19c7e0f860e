package sampler

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

// TestPagemapPageSizes: a pagemap has an entry for each page of the size that the
// kernel has, which arm64 kernels choose (Documentation/arch/arm64/memory.rst).
// Pages 0x10 to 0x12 are in memory here.
func TestPagemapPageSizes(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entries [0x20 * 8]byte
	for page, bits := range map[int]uint64{0x10: pagePresent, 0x11: pageSwapped, 0x12: pagePresent} {
		binary.NativeEndian.PutUint64(entries[8*page:], bits)
	}
	if _, err := f.Write(entries[:]); err != nil {
		t.Fatal(err)
	}
	before := pageBytes
	defer func() { pageBytes = before }()
	for _, size := range []int{4 << 10, 16 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			pageBytes = uint64(size)
			for _, tt := range []struct{ addr, n, want int }{
				{0x10 * size, 2 * size, 2 * size},
				{0x10*size + 8, 4 * size, 3*size - 8},
				{0x13*size - 8, 16, 8},
				{0x12 * size, size, size},
				{0x13 * size, size, 0},
			} {
				if got := pagemap(f.Fd()).present(uint64(tt.addr), tt.n); got != tt.want {
					t.Errorf("from %#x on %d bytes of %d are there, want %d", tt.addr, got, tt.n, tt.want)
				}
			}
		})
	}
}

// TestResident: what lies behind a stack belongs to its copies as far as it is in
// memory.
func TestResident(t *testing.T) {
	pages := openPagemap(procfs.FS{}, os.Getpid())
	if pages < 0 {
		t.Skip("/proc/self/pagemap cannot be opened here")
	}
	pages.close()
	page := int(pageBytes)
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

// TestCopyAhead: a stack that was copied before it was known where it begins is the
// same as one that was copied after.
func TestCopyAhead(t *testing.T) {
	const size = 64 << 10
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem {
		mem[i] = byte(rand.Uint32())
	}
	low := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	for _, tt := range []struct {
		name           string
		guess, guessed int // from low
		sp             int
		room           int
		top            int // 0: not known
		ahead          bool
	}{
		{"where it was", 0x4000, 0x2000, 0x4080, 0x4000, 0x6000, true},
		{"up in the page", 0x4000, 0x2000, 0x4f88, 0x4000, 0x6000, true},
		{"much shorter", 0x4000, 0x2000, 0x5e00, 0x4000, 0x6000, true},
		{"all of it behind", 0x4000, 0x1000, 0x5100, 0x4000, 0x6000, false},
		{"deeper", 0x4000, 0x2000, 0x3f00, 0x4000, 0x6000, false},
		{"red zone below", 0x4000, 0x2000, 0x4040, 0x4000, 0x6000, false},
		{"more than was rehearsed", 0x4000, 0x1000, 0x4100, 0x4000, 0x6000, true},
		{"no end known", 0x8000, 0x1000, 0x8080, 0x8000, 0, true},
		{"room cut by what lies before", 0x8000, 0x1000, 0x8100, 0x7000, 0, true},
		{"another stack", 0x4000, 0x2000, size + 0x4000, 0x4000, 0x6000, false},
		{"nothing rehearsed", 0x4000, 0, 0x4080, 0x4000, 0x6000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := &extent{low: low, high: low + size}
			if tt.top > 0 {
				x.top = low + uint64(tt.top)
			}
			room := func() *capture.Capture { return &capture.Capture{Stack: make([]byte, 0, tt.room)} }
			th := &thread{tid: os.Getpid(), fb: new(Feedback), cap: room(), guess: low + uint64(tt.guess), guessed: tt.guessed}
			th.fb.Extent.Store(x)
			sp, want := low+uint64(tt.sp), room()
			ptrace.Pin()
			have := th.ahead()
			ahead := th.readAhead(sp, have)
			known := readPinned(th.tid, sp, want, x)
			ptrace.Unpin()
			if ahead != tt.ahead {
				t.Fatalf("used what was copied ahead: %t, want %t", ahead, tt.ahead)
			}
			if !ahead {
				return
			}
			trimStack(th.cap, sp)
			if !known || th.cap.StackAddr != want.StackAddr {
				t.Fatalf("copy from %#x, want %#x", th.cap.StackAddr, want.StackAddr)
			}
			have, whole := len(th.cap.Stack), len(want.Stack)
			if have > whole || have < min(whole, tt.room-0x1000) {
				t.Fatalf("%d bytes, want %d, less what lies before it where room is short", have, whole)
			}
			if d := cmp.Diff(want.Stack[:have], th.cap.Stack); d != "" {
				t.Error(d)
			}
		})
	}
}
