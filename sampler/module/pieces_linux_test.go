package module

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestReadPieces reads pieces of memory of which any may be away, as their pages were never written, and one may not be mapped: whichever
// they are, and however long, each comes in its place, up to the first that is not mapped.
func TestReadPieces(t *testing.T) {
	const n = 13
	page, rnd := os.Getpagesize(), rand.New(rand.NewPCG(1, 2))
	l := NewLive(os.Getpid(), new(Lists))
	defer l.Close()
	for try := range 300 {
		mem, err := unix.Mmap(-1, 0, 2*n*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil && err != unix.EINVAL { // a kernel without huge pages
			t.Fatal(err)
		}
		addr := uint64(uintptr(unsafe.Pointer(&mem[0])))
		var list []Range
		var want []byte
		missing, away := -1, rnd.IntN(4)
		if try%3 == 0 {
			missing = rnd.IntN(n)
		}
		for i := range n {
			at, size := 2*i*page+rnd.IntN(page), rnd.IntN(200)
			if rnd.IntN(4) >= away {
				for j := range size {
					mem[at+j] = byte(1 + rnd.IntN(255))
				}
			}
			list = append(list, Range{Addr: addr + uint64(at), Size: size})
			if i == missing {
				size = 0
				list[i].Addr = 0x1000 // below all that may be mapped (vm.mmap_min_addr)
				list[i].Size = 8
			}
			if missing < 0 || i < missing {
				want = append(want, make([]byte, size)...)
			}
		}
		whole := 0
		for i, done := 0, 0; i < n; i++ {
			if missing < 0 || i < missing { // read by the test only where it was written, or pages would be made
				at := int(list[i].Addr - addr)
				if inMemory(l.pages, list[i].Addr, list[i].Addr+uint64(list[i].Size)) {
					copy(want[done:], mem[at:at+list[i].Size])
				}
				done += list[i].Size
			}
			whole += list[i].Size
		}
		buf := make([]byte, whole)
		got, err := l.ReadRanges(buf, list)
		if len(want) == 0 && missing >= 0 {
			if got != 0 || err != unix.EFAULT {
				t.Errorf("try %d: the first piece is not mapped: %d bytes, %v", try, got, err)
			}
		} else if got != len(want) || err != nil || !bytes.Equal(buf[:got], want) {
			t.Fatalf("try %d, piece %d is not mapped: %d bytes, %v; want %d; equal: %t", try, missing, got, err, len(want), bytes.Equal(buf[:min(got, len(want))], want[:min(got, len(want))]))
		}
		unix.Munmap(mem)
	}
}
