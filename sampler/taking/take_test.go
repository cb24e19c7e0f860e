package taking

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
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
				if got := Present(new(Live), int(f.Fd()), uint64(tt.addr), tt.n, new(Buffer)); got != tt.want {
					t.Errorf("from %#x on %d bytes of %d are there, want %d", tt.addr, got, tt.n, tt.want)
				}
			}
		})
	}
}

// stacks is a kernel with some memory and the registers of a stopped thread.
type stacks struct {
	Live
	regs  []byte
	words map[uint64]uint64
}

func (k *stacks) Regs(_, _ int, b []byte) (int, unix.Errno)        { return copy(b, k.regs), 0 }
func (k *stacks) SetRegs(_, _ int, _ []byte) unix.Errno            { return 0 }
func (k *stacks) Pread(_ int, _ []byte, _ int64) (int, unix.Errno) { return 0, unix.EIO }
func (k *stacks) ReadFile(path, buf []byte) (int, unix.Errno)      { return 0, unix.ENOENT }

// Memory implements Kernel. There is the lower half of the address space, and some words in it that are not 0.
func (k *stacks) Memory(_ int, addr uint64, b []byte) int {
	if addr >= 1<<47 {
		return 0
	}
	clear(b)
	for a, v := range k.words {
		if off := a - addr; off < uint64(len(b)) && len(b)-int(off) >= 8 {
			binary.NativeEndian.PutUint64(b[off:], v)
		}
	}
	return len(b)
}

// TestTakeOthers copies stacks that words lead to: in any order of advice, each once, and no more
// than there is room for.
func TestTakeOthers(t *testing.T) {
	const sp, a, b, c, g = 0x7000_0000_1000, 0x10_0000, 0x20_0000, 0x30_0000, 0x5000_0000
	k := &stacks{regs: make([]byte, regs.PrstatusMaxBytes), words: map[uint64]uint64{
		sp + 0x100: a, sp + 0x108: a + 0x80, sp + 0x110: 0, sp + 0x118: 1 << 60, a + 0x200: b, b + 0x40: c,
		g: b - 0x100, g + 8: b + 0x200, g + 56: b, g + 48: b + 0x200, g + 64: 0x6000_0000, 0x6000_0000: c, 0x6000_0008: c + 0x8000, 0x6000_0000 + 48: c,
		c + 0x1000 - 40: 0x6100_0000, 0x6100_0030: 0x6200_0000, 0x6200_00c0: g, 0x6200_00c8: 0x6000_0000, c + 0x1000 - 32: 1 << 60, c + 0x1000 - 24: 0x6100_0000 - 0x10, 0x6100_0020: 1 << 60,
		0x5000_0200: sp - 8, 0x5000_0208: sp + 0x1000, 0x5000_0200 + 56: sp,
	}}
	for i := 0; i+8 <= len(k.regs); i += 8 {
		binary.NativeEndian.PutUint64(k.regs[i:], sp)
	}
	for ptrace.StackPointer(k.regs) == 0 { // the note has another size here
		k.regs = k.regs[:len(k.regs)-8]
	}
	const reg = 16
	binary.NativeEndian.PutUint64(k.regs[reg:], c+0x1000)
	tests := []struct {
		name   string
		others []Other
		room   int
		want   []capture.Block
	}{
		{"one", []Other{{Word: sp + 0x100, Bytes: 4096}}, 8192, []capture.Block{{Addr: a - RedZone, Len: 4096}}},
		{"backwards", []Other{{Word: b + 0x40, Bytes: 64}, {Word: a + 0x200, Bytes: 512}, {Word: sp + 0x100, Bytes: 1024}}, 8192,
			[]capture.Block{{Addr: a - RedZone, Len: 1024}, {Addr: b - RedZone, Len: 512}, {Addr: c - RedZone, Len: 64}}},
		{"twice", []Other{{Word: sp + 0x100, Bytes: 1024}, {Word: sp + 0x108, Bytes: 1024}}, 8192, []capture.Block{{Addr: a - RedZone, Len: 1024}}},
		{"register", []Other{{Reg: reg, Bytes: 256}}, 8192, []capture.Block{{Addr: c + 0x1000 - RedZone, Len: 256}}},
		{"records", []Other{{Word: g, At: 56, Bytes: 256}, {Word: g + 64, Via: true, At: 48, Bytes: 512}}, 8192,
			[]capture.Block{{Addr: b - RedZone, Len: 256}, {Addr: c - RedZone, Len: 512}}},
		{"of use here", []Other{{Word: g, At: 56, Bytes: 256, Homes: [2]Range{{sp, sp + 8}}}}, 8192, []capture.Block{{Addr: b - RedZone, Len: 256}}},
		{"of use there, too", []Other{{Word: g, At: 56, Bytes: 256, Homes: [2]Range{{8, 16}, {sp, sp + 8}}}}, 8192, []capture.Block{{Addr: b - RedZone, Len: 256}}},
		{"of no use here", []Other{{Word: g, At: 56, Bytes: 256, Homes: [2]Range{{sp + 8, sp + 16}, {sp - 8, sp}}}, {Word: g, At: 56, Bytes: 256, Homes: [2]Range{{sp - 8, sp}}}}, 8192, nil},
		{"of use nowhere", []Other{{Word: g, At: 56, Bytes: 256, Homes: [2]Range{{0, 1}}}}, 8192, nil},
		{"to its end", []Other{{Word: g, At: 56, Bytes: 2048}}, 8192, []capture.Block{{Addr: b - RedZone, Len: 0x200 + RedZone}}},
		{"to its end, of which most is there", []Other{{Word: a + 0x200, Bytes: 0x200 + RedZone - 32}, {Word: sp + 0x100, Bytes: 1024}, {Word: g, At: 56, Bytes: 4096}}, 8192,
			[]capture.Block{{Addr: a - RedZone, Len: 1024}, {Addr: b - RedZone, Len: 0x200 + RedZone - 32}, {Addr: b - RedZone, Len: 0x200 + RedZone}}},
		{"to its end, which is there", []Other{{Word: a + 0x200, Bytes: 0x200 + RedZone}, {Word: sp + 0x100, Bytes: 1024}, {Word: g, At: 56, Bytes: 4096}}, 8192,
			[]capture.Block{{Addr: a - RedZone, Len: 1024}, {Addr: b - RedZone, Len: 0x200 + RedZone}}},
		{"no records", []Other{{Word: g + 8, At: 56, Bytes: 256}, {Word: g + 72, Via: true, At: 56, Bytes: 256}, {Word: 1 << 60, At: 56, Bytes: 256}, {Word: 1 << 60, Via: true, At: 56, Bytes: 256},
			{Word: g, At: 57, Bytes: 256}, {Word: g, At: -8, Bytes: 256}, {Word: g, At: 48, Bytes: 256}}, 8192, nil},
		{"the way to records", []Other{{Reg: reg, At: 56, Via: true, Way: Way{TLS: -40, M: 48, G: 0xc0}, Bytes: 256}, {Reg: reg, At: 48, Via: true, Way: Way{TLS: -40, M: 48, G: 0xc8}, Bytes: 512}}, 8192,
			[]capture.Block{{Addr: b - RedZone, Len: 256}, {Addr: c - RedZone, Len: 512}}},
		{"no way", []Other{{Reg: reg, At: 56, Via: true, Way: Way{TLS: -48, M: 48, G: 0xc0}, Bytes: 256}, {Reg: reg, At: 56, Via: true, Way: Way{TLS: -40, M: 56, G: 0xc0}, Bytes: 256},
			{Reg: reg, At: 56, Via: true, Way: Way{TLS: -40, M: 48, G: 0xd0}, Bytes: 256}, {Reg: reg, At: 56, Via: true, Way: Way{TLS: -32, M: 48, G: 0xc0}, Bytes: 256},
			{Reg: reg, At: 56, Via: true, Way: Way{TLS: -24, M: 48, G: 0xc0}, Bytes: 256},
			{Reg: 1 << 20, At: 56, Via: true, Way: Way{TLS: -40, M: 48, G: 0xc0}, Bytes: 256}, {Reg: -8, At: 56, Via: true, Way: Way{TLS: -40, M: 48, G: 0xc0}, Bytes: 256}}, 8192, nil},
		{"the stack that it is on", []Other{{Word: 0x5000_0200, At: 56, Bytes: 256}}, 8192, nil},
		{"no such word", []Other{{Word: 0x5000, Bytes: 256}, {Reg: 1 << 20, Bytes: 256}, {Reg: -8, Bytes: 256}, {Word: sp + 0x110, Bytes: 256}}, 8192, nil},
		{"no such memory", []Other{{Word: sp + 0x118, Bytes: 256}, {Word: sp + 0x100, Bytes: 256}}, 8192, []capture.Block{{Addr: a - RedZone, Len: 256}}},
		{"little room", []Other{{Word: sp + 0x100, Bytes: 1024}, {Word: a + 0x200, Bytes: 1024}, {Reg: reg, Bytes: 1024}}, 1100,
			[]capture.Block{{Addr: a - RedZone, Len: 1024}, {Addr: b - RedZone, Len: 76}}},
	}
	for _, tt := range tests {
		advice := &Advice{Want: 4096}
		copy(advice.Others[:], tt.others)
		buf := &Buffer{Regs: Copy{Room: make([]byte, len(k.regs))}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Stack: Copy{Room: make([]byte, 4096)}, Beyond: Copy{Room: make([]byte, tt.room)}}
		if errno := Take(k, 1, advice, buf, -1, OtherStop, true); errno != 0 {
			t.Fatal(errno)
		}
		got := &capture.Capture{}
		buf.Fill(got)
		sum := 0
		for _, b := range tt.want {
			sum += b.Len
		}
		if !slices.Equal(got.Beyond.Blocks, tt.want) || len(got.Beyond.Bytes) != sum {
			t.Errorf("%s: blocks %#x of %d bytes, want %#x of %d", tt.name, got.Beyond.Blocks, len(got.Beyond.Bytes), tt.want, sum)
		}
		if len(got.Beyond.Blocks) == 3 {
			if v := binary.NativeEndian.Uint64(got.Beyond.Bytes[1024+RedZone+0x40:]); v != c {
				t.Errorf("%s: the second block has %#x where its memory has %#x", tt.name, v, c)
			}
		}
	}
}
