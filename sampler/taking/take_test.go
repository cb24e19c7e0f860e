package taking

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
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
				if got := Present(new(Live), int(f.Fd()), uint64(tt.addr), tt.n, new(Buffer)); got != tt.want {
					t.Errorf("from %#x on %d bytes of %d are there, want %d", tt.addr, got, tt.n, tt.want)
				}
			}
		})
	}
}
