package ptrace

import (
	"bytes"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// TestReadAtHand reads pieces of this process: they come one behind another, however many, and however many are of one page; where one page was
// never written that is told, in each place of the list, and what comes before in other reads is there.
func TestReadAtHand(t *testing.T) {
	pages := procfs.FS{}.OpenPagemap(os.Getpid())
	if pages < 0 {
		t.Skip("no pagemap on this kernel")
	}
	defer pages.Close()
	const n = 11
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, (n+1)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // a kernel without huge pages
		t.Fatal(err)
	}
	addr := uintptr(unsafe.Pointer(&mem[0]))
	piece := func(at, n int) unix.RemoteIovec { return unix.RemoteIovec{Base: addr + uintptr(at), Len: n} }
	for i := range n * page {
		mem[i] = byte(i/page + i%251)
	}
	var pieces []unix.RemoteIovec
	var want []byte
	add := func(at, n int) {
		pieces, want = append(pieces, piece(at, n)), append(want, mem[at:at+n]...)
	}
	for i := range n - 1 {
		add(i*page+100, 32)
		add(i*page+8, 16)      // before it, in the same page
		add(i*page+page-4, 20) // it reaches into the next one
		add(i*page, 0)
	}
	add(0, n*page)
	buf := make([]byte, len(want))
	got, err := ReadAtHand(pages, os.Getpid(), pieces, buf)
	if err != nil || got != len(want) || !bytes.Equal(buf, want) {
		t.Fatalf("%d of %d bytes, %v, equal: %v", got, len(want), err, bytes.Equal(buf, want))
	}
	for i := range 9 {
		list := make([]unix.RemoteIovec, 9)
		for j := range list {
			list[j] = piece(j*page, 8)
		}
		list[i] = piece(n*page, 8) // never written
		if got, err := ReadAtHand(pages, os.Getpid(), list, buf); got != i/lookedAt*lookedAt*8 || err != ErrAway {
			t.Errorf("piece %d is not at hand: %d bytes, %v", i, got, err)
		}
		list[i] = piece(n*page-8, 16) // its end is
		if got, err := ReadAtHand(pages, os.Getpid(), list, buf); got != i/lookedAt*lookedAt*8 || err != ErrAway {
			t.Errorf("the end of piece %d is not at hand: %d bytes, %v", i, got, err)
		}
	}
	if err := unix.Mprotect(mem[2*page:3*page], unix.PROT_NONE); err != nil { // it is at hand all the same
		t.Fatal(err)
	}
	if got, err := ReadAtHand(pages, os.Getpid(), []unix.RemoteIovec{piece(0, 8), piece(page, 8), piece(2*page, 8), piece(3*page, 8)}, buf); got != 16 || err != nil {
		t.Errorf("the third of four must not be read: %d bytes, %v, want the two before", got, err)
	}
	if got, err := ReadAtHand(pages, os.Getpid(), []unix.RemoteIovec{piece(2*page, 8)}, buf); got != 0 || err != unix.EFAULT {
		t.Errorf("it must not be read: %d bytes, %v", got, err)
	}
	if got, err := ReadAtHand(pages, 1<<30, pieces[:1], buf); got != 0 || err != unix.ESRCH {
		t.Errorf("of no process: %d bytes, %v", got, err)
	}
	for _, last := range []unix.RemoteIovec{{Base: ^uintptr(0) - 3, Len: 8}, {Base: ^uintptr(0) - 15, Len: 8}} {
		if got, err := ReadAtHand(pages, os.Getpid(), []unix.RemoteIovec{piece(0, 8), last}, buf); got != 0 || err != ErrAway {
			t.Errorf("at the end of all addresses: %d bytes, %v", got, err)
		}
	}
	if got, err := ReadAtHand(-1, os.Getpid(), pieces, buf); got != 0 || err != ErrAway {
		t.Errorf("without a pagemap: %d bytes, %v", got, err)
	}
}
