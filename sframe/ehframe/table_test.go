package ehframe_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// TestPointerEncodings has one function at 0x5000, 0x20 bytes long, in every
// encoding of LSB Core 5.0 table 10.6.1.
func TestPointerEncodings(t *testing.T) {
	const start, size = 0x5000, 0x20
	neg := func(v int64) uint64 { return uint64(v) }
	tests := []struct {
		name string
		enc  byte
		pc   func(b *builder)
		bad  string // text of the expected error
	}{
		{"absptr", 0x00, func(b *builder) { b.word(start, b.arch.WordBytes); b.word(size, b.arch.WordBytes) }, ""},
		{"uleb", 0x01, func(b *builder) { b.b = append(append(b.b, uleb(start)...), uleb(size)...) }, ""},
		{"udata2", 0x02, func(b *builder) { b.word(start, 2); b.word(size, 2) }, ""},
		{"udata4", 0x03, func(b *builder) { b.word(start, 4); b.word(size, 4) }, ""},
		{"udata8", 0x04, func(b *builder) { b.word(start, 8); b.word(size, 8) }, ""},
		{"signed", 0x08, func(b *builder) { b.word(start, b.arch.WordBytes); b.word(size, b.arch.WordBytes) }, ""},
		{"sleb", 0x09, func(b *builder) { b.b = append(append(b.b, slebBytes(start)...), slebBytes(size)...) }, ""},
		{"sdata2", 0x0a, func(b *builder) { b.word(start, 2); b.word(size, 2) }, ""},
		{"sdata4", 0x0b, func(b *builder) { b.word(start, 4); b.word(size, 4) }, ""},
		{"sdata8", 0x0c, func(b *builder) { b.word(start, 8); b.word(size, 8) }, ""},
		{"pcrel-sdata4", 0x1b, func(b *builder) { b.word(start-b.addr(), 4); b.word(size, 4) }, ""},
		{"pcrel-sleb", 0x19, func(b *builder) {
			b.b = append(append(b.b, slebBytes(int64(start)-int64(b.addr()))...), slebBytes(size)...)
		}, ""},
		{"textrel-udata4", 0x23, func(b *builder) { b.word(start-textAddr, 4); b.word(size, 4) }, ""},
		{"datarel-sdata4", 0x3b, func(b *builder) { b.word(neg(start-gotAddr), 4); b.word(size, 4) }, ""},
		{"aligned", 0x50, func(b *builder) {
			for len(b.b)%b.arch.WordBytes != 0 {
				b.b = append(b.b, 0xaa)
			}
			b.word(start, b.arch.WordBytes)
			b.word(size, b.arch.WordBytes)
		}, ""},
		{"indirect-udata4", 0x83, func(b *builder) { b.word(gotAddr, 4); b.word(size, 4) }, ""},
		{"indirect-nowhere", 0x83, func(b *builder) { b.word(0x77777, 4); b.word(size, 4) }, "cannot be followed"},
		{"funcrel", 0x4b, func(b *builder) { b.word(start, 4); b.word(size, 4) }, "unknown function"},
		{"form-5", 0x05, func(b *builder) { b.word(start, 4); b.word(size, 4) }, "unknown pointer encoding"},
		{"base-6", 0x6b, func(b *builder) { b.word(start, 4); b.word(size, 4) }, "unknown pointer encoding"},
		{"omit", 0xff, func(b *builder) { b.word(start, 4); b.word(size, 4) }, "unknown pointer encoding"},
	}
	for _, arch := range []*regs.Arch{regs.AMD64, regs.I386, regs.S390X} {
		for _, tt := range tests {
			t.Run(arch.Name+"/"+tt.name, func(t *testing.T) {
				b := &builder{arch: arch}
				cie := b.cie(1, "zR", []byte{tt.enc}, 0x0c, arch.SP, 16)
				b.fde(cie, func() { tt.pc(b) }, []byte{0})
				got := builder{arch: arch}
				got.word(start, arch.WordBytes)
				tab, err := ehframe.Open(image{frameAddr: b.b, gotAddr: got.b}, arch, b.sections())
				if err != nil {
					t.Fatal(err)
				}
				checkOne(t, tab, start, start+size, tt.bad)
			})
		}
	}
}

// checkOne checks that the table has one function, or that it has a defect.
func checkOne(t *testing.T, tab *ehframe.Table, start, end uint64, bad string) {
	t.Helper()
	for fn, err := range tab.Funcs() {
		if bad != "" {
			if !damaged(err) || !strings.Contains(err.Error(), bad) {
				t.Fatalf("got error %v, want one with %q", err, bad)
			}
			return
		}
		if err != nil || fn.Start != start || fn.End != end {
			t.Fatalf("got %#x-%#x, %v, want %#x-%#x", fn.Start, fn.End, err, start, end)
		}
		e, err := tab.Find(end - 1)
		if err != nil || e.FuncStart != start || e.FuncEnd != end {
			t.Fatalf("Find: got %+v, %v", e, err)
		}
		return
	}
	t.Fatal("no function")
}

// TestPointerWraps: sums of 32-bit addresses wrap around at 4 GiB, those of
// 64-bit ones at 2^64.
func TestPointerWraps(t *testing.T) {
	for _, arch := range []*regs.Arch{regs.AMD64, regs.I386} {
		t.Run(arch.Name, func(t *testing.T) {
			b := &builder{arch: arch}
			cie := b.cie(1, "zR", []byte{0x1b}, 0x0c, arch.SP, 16)
			want := uint64(0xf0000000)
			b.fde(cie, func() { b.word(want-b.addr(), 4); b.word(0x10, 4) }, []byte{0})
			if arch == regs.AMD64 {
				want = 0xfffffffff0000000 // 4 bytes, sign-extended
			}
			checkOne(t, b.open(t), want, want+0x10, "")
		})
	}
}

func TestCIEs(t *testing.T) {
	tests := []struct {
		name    string
		version uint8
		aug     string
		data    []byte
		fdeAug  []byte
		want    ehframe.Func
		bad     string
	}{
		{"version-1", 1, "", nil, nil, ehframe.Func{}, ""},
		{"version-3", 3, "", nil, nil, ehframe.Func{}, ""},
		{"version-4", 4, "", nil, nil, ehframe.Func{}, ""},
		{"version-2", 2, "", nil, nil, ehframe.Func{}, "unknown CIE version"},
		{"version-5", 5, "", nil, nil, ehframe.Func{}, "unknown CIE version"},
		{"z", 1, "z", nil, []byte{0}, ehframe.Func{}, ""},
		{"z with data in the FDE", 1, "z", nil, []byte{3, 0xff, 0xff, 0xff}, ehframe.Func{}, ""},
		{"zS", 1, "zS", nil, []byte{0}, ehframe.Func{Signal: true}, ""},
		{"zB", 1, "zB", nil, []byte{0}, ehframe.Func{KeyB: true}, ""},
		{"zG", 1, "zG", nil, []byte{0}, ehframe.Func{}, ""},
		{"zPLRS", 1, "zPLRS", []byte{0x03, 1, 2, 3, 4, 0x1b, 0x00}, []byte{4, 1, 2, 3, 4}, ehframe.Func{Signal: true}, ""},
		{"personality aligned", 1, "zPR", append([]byte{0x50, 9, 9, 9, 9, 9, 9}, 1, 2, 3, 4, 5, 6, 7, 8, 0x04), []byte{0}, ehframe.Func{}, ""},
		{"personality of no form", 1, "zP", []byte{0x05, 1, 2, 3, 4}, []byte{0}, ehframe.Func{}, "unknown pointer encoding"},
		{"personality omitted", 1, "zPR", []byte{0xff, 0x00}, []byte{0}, ehframe.Func{}, ""},
		{"data longer than announced", 1, "zR", []byte{0x00, 9, 9, 9}, []byte{0}, ehframe.Func{}, ""},
		{"personality past its data", 1, "zP", []byte{0x04, 1, 2}, []byte{0}, ehframe.Func{}, "past the end"},
		{"letters without data", 1, "zR", nil, []byte{0}, ehframe.Func{}, "past the end"},
		{"unknown letter", 1, "zX", nil, []byte{0}, ehframe.Func{}, "unknown augmentation"},
		{"S without z", 1, "S", nil, nil, ehframe.Func{Signal: true}, ""},
		{"BR without z", 1, "BR", []byte{0x04}, nil, ehframe.Func{KeyB: true}, ""},
		{"unknown letter without z", 1, "SX", nil, nil, ehframe.Func{}, "unknown augmentation"},
		{"eh of GCC 2", 1, "eh", nil, nil, ehframe.Func{}, "unknown augmentation"},
		{"augmentation past the FDE", 1, "z", nil, []byte{0x7f}, ehframe.Func{}, "past the end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &builder{arch: regs.AMD64}
			cie := b.cie(tt.version, tt.aug, tt.data, cfaSP8...)
			b.fde(cie, b.abs(0x5000, 0x20), tt.fdeAug)
			tab := b.open(t)
			checkOne(t, tab, 0x5000, 0x5020, tt.bad)
			for fn := range tab.Funcs() {
				if tt.bad == "" && (fn.Signal != tt.want.Signal || fn.KeyB != tt.want.KeyB) {
					t.Errorf("got signal %t, key B %t", fn.Signal, fn.KeyB)
				}
			}
		})
	}
}

func TestCIEOfAnotherAddressSize(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(4, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	b.b[10] = 4 // length 4, id 4, version 1, empty string 1
	checkOne(t, b.open(t), 0, 0, "address size")
	b.b[10], b.b[11] = 8, 9
	checkOne(t, b.open(t), 0, 0, "segment selector")
	for _, n := range []int{2, 8} {
		b = &builder{arch: regs.AMD64}
		cie = b.cie(4, "", nil, cfaSP8...)
		b.b[11] = byte(n)
		b.fde(cie, func() { b.word(0xaaaaaaaaaaaaaaaa, n); b.abs(0x5000, 0x20)() }, nil)
		checkOne(t, b.open(t), 0x5000, 0x5020, "")
	}
}

// TestAlignedPointer: padding goes up to the next word, wherever the pointer would begin: here behind a segment selector.
func TestAlignedPointer(t *testing.T) {
	for _, seg := range []byte{0, 1, 2, 5, 8} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(4, "zR", []byte{0x50}, cfaSP8...)
		b.b[13] = seg // behind length, id, version, string and address size
		b.fde(cie, func() {
			b.word(0, int(seg))
			for len(b.b)%8 != 0 {
				b.b = append(b.b, 0xaa)
			}
			b.abs(0x5000, 0x20)()
		}, []byte{0})
		checkOne(t, b.open(t), 0x5000, 0x5020, "")
	}
}

// TestAugmentationPastCIE: the length of augmentation data reaches beyond its entry.
func TestAugmentationPastCIE(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "zR", []byte{0}, cfaSP8...)
	b.b[15] = 0x7f // behind length, id, version, string of 3, two factors and the column
	b.fde(cie, b.abs(0x5000, 0x20), []byte{0})
	checkOne(t, b.open(t), 0, 0, "past the end")
}

// TestColumns: the return address column has one byte in version 1, and is a LEB128 number later. One that no register
// set holds is not the register with the number behind the last.
func TestColumns(t *testing.T) {
	arch := *regs.AMD64
	arch.RA = 0 // for the builder alone: the column's second byte, or an instruction that does nothing
	for _, tt := range []struct {
		version uint8
		column  byte
		insns   []byte
		want    sframe.Rule
	}{
		{3, 0x90, []byte{0x90, 2}, sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}}, // 16
		{4, 0x90, []byte{0x90, 2}, sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}},
		{1, 0x90, []byte{0x90, 2}, sframe.Rule{Base: sframe.FromReg, Reg: 255}}, // 144
		{1, 0x90, []byte{0x05, 0x90, 1, 2}, sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}},
		{1, 33, []byte{0xa1, 2}, sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}},
		{1, 33, []byte{0xa0, 2}, sframe.Rule{Base: sframe.FromReg, Reg: 255}}, // register 32
		{1, 33, []byte{0x80, 2}, sframe.Rule{Base: sframe.FromReg, Reg: 255}}, // register 0
		{1, 31, []byte{0x9f, 2}, sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}},
	} {
		b := &builder{arch: &arch, align: []byte{1, 0x78, tt.column}}
		cie := b.cie(tt.version, "", nil, 0x0c, 7, 8)
		b.fde(cie, b.abs(0x5000, 0x20), nil, tt.insns...)
		b.arch = regs.AMD64
		if row, err := b.open(t).Row(0x5000); err != nil || row.RA != tt.want {
			t.Errorf("version %d, column %d, %x: got %+v, %v, want RA %+v", tt.version, tt.column, tt.insns, row, err, tt.want)
		}
	}
}

// TestHugeFunction: rows of a function begin at 32-bit offsets; the last of them holds for what lies behind 4 GiB.
func TestHugeFunction(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 1<<34), nil, 0x1d, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x0e, 16, 0x41, 0x0e, 24, 0x41, 0x0e, 32)
	tab := b.open(t)
	for off, want := range map[uint64]int32{0: 8, 1<<32 - 3: 8, 1<<32 - 2: 16, 1<<32 - 1: 24, 1 << 32: 24, 1<<33 + 5: 24, 1<<34 - 1: 24} {
		if row, err := tab.Row(0x5000 + off); err != nil || row.CFA.Offset != want {
			t.Errorf("%#x: got %+v, %v, want CFA offset %d", off, row, err, want)
		}
	}
}

// TestLongEntries: 64-bit lengths. The id that follows has 8 bytes in
// .debug_frame; in .eh_frame 4 by LSB, 8 by what GNU tools read.
func TestLongEntries(t *testing.T) {
	for _, arch := range []*regs.Arch{regs.AMD64, regs.S390X} {
		for _, tt := range []struct {
			name  string
			debug bool
			wide  int
		}{{"eh_frame", false, 0}, {"eh_frame-id8", false, 8}, {"eh_frame-id4", false, 4}, {"debug_frame", true, 0}, {"debug_frame-id8", true, 8}} {
			t.Run(arch.Name+"/"+tt.name, func(t *testing.T) {
				b := &builder{arch: arch, debug: tt.debug, wide: tt.wide}
				cie := b.cie(1, "", nil, 0x0c, arch.SP, 16)
				b.fde(cie, b.abs(0x5000, 0x20), nil)
				b.fde(cie, b.abs(0x6000, 0x20), nil)
				b.fde(cie, b.abs(0x5000000, 0x20), nil) // with an id of 4 bytes, the eighth one is its 5
				tab := b.open(t)
				checkOne(t, tab, 0x5000, 0x5020, "")
				if e, err := tab.Find(0x5000010); err != nil || e.FuncStart != 0x5000000 {
					t.Errorf("third function: %+v, %v", e, err)
				}
				if e, err := tab.Find(0x6010); err != nil || e.FuncStart != 0x6000 {
					t.Errorf("second function: %+v, %v", e, err)
				}
			})
		}
	}
}

// TestRows has instructions and what they make of amd64's CIE (CFA rsp+8, return
// address at CFA-8), worked out by hand from DWARF 5 section 6.4.2.
func TestRows(t *testing.T) {
	const start = 0x5000
	onRSP := func(off int32) sframe.Rule {
		return sframe.Rule{Base: sframe.FromReg, Reg: 7, Offset: off}
	}
	saved := func(off int32) sframe.Rule {
		return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: off}
	}
	const keep = 1<<3 | 0xf<<12 // rbx, r12–r15
	ra := saved(-8)
	tests := []struct {
		name  string
		insns []byte
		want  map[uint64]sframe.Row
	}{
		{"none", nil, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, Keep: keep}, start + 0x1f: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"advance", []byte{0x44, 0x0e, 16, 0x02, 4, 0x0e, 24, 0x03, 4, 0, 0x0e, 32, 0x04, 4, 0, 0, 0, 0x0e, 40}, map[uint64]sframe.Row{
			start + 3:  {CFA: onRSP(8), RA: ra, Keep: keep},
			start + 4:  {CFA: onRSP(16), RA: ra, Keep: keep},
			start + 8:  {CFA: onRSP(24), RA: ra, Keep: keep},
			start + 12: {CFA: onRSP(32), RA: ra, Keep: keep},
			start + 16: {CFA: onRSP(40), RA: ra, Keep: keep}}},
		{"set_loc", append([]byte{0x01}, 0x08, 0x50, 0, 0, 0, 0, 0, 0, 0x0e, 16), map[uint64]sframe.Row{
			start + 7: {CFA: onRSP(8), RA: ra, Keep: keep},
			start + 8: {CFA: onRSP(16), RA: ra, Keep: keep}}},
		{"saved", []byte{0x83, 2, 0x86, 3}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, FP: saved(-24), Keep: keep &^ (1 << 3),
				Saved: []sframe.SavedRule{{Reg: 3, Rule: saved(-16)}}}}},
		{"undefined and same", []byte{0x07, 3, 0x07, 6, 0x08, 0, 0x08, 12}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, FP: sframe.Rule{Base: sframe.Undefined}, Keep: keep&^(1<<3) | 1}}},
		{"stack pointer undefined", []byte{0x07, 7}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"stack pointer the same", []byte{0x08, 7}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, Keep: keep, Saved: []sframe.SavedRule{{Reg: 7}}}}},
		{"outermost", []byte{0x07, 16}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), Outermost: true, Keep: keep}}},
		{"in registers", []byte{0x09, 3, 0, 0x09, 12, 17, 0x09, 16, 5}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: sframe.Rule{Base: sframe.FromReg, Reg: 5}, Keep: keep &^ (1<<3 | 1<<12),
				Saved: []sframe.SavedRule{{Reg: 3, Rule: sframe.Rule{Base: sframe.FromReg, Reg: 0}}}}}},
		{"vector registers are passed over", []byte{0x05, 17, 2, 0x0a, 0x06, 17, 0x0b}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"restore", []byte{0x83, 2, 0x44, 0xc3}, map[uint64]sframe.Row{
			start:     {CFA: onRSP(8), RA: ra, Keep: keep &^ (1 << 3), Saved: []sframe.SavedRule{{Reg: 3, Rule: saved(-16)}}},
			start + 4: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"restore of what nobody keeps", []byte{0x82, 2, 0x44, 0xc2}, map[uint64]sframe.Row{
			start:     {CFA: onRSP(8), RA: ra, Keep: keep, Saved: []sframe.SavedRule{{Reg: 2, Rule: saved(-16)}}},
			start + 4: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"restored state has the CFA", []byte{0x0a, 0x0e, 16, 0x83, 2, 0x44, 0x0b}, map[uint64]sframe.Row{
			start:     {CFA: onRSP(16), RA: ra, Keep: keep &^ (1 << 3), Saved: []sframe.SavedRule{{Reg: 3, Rule: saved(-16)}}},
			start + 4: {CFA: onRSP(8), RA: ra, Keep: keep}}},
		{"register without offset after an expression", []byte{0x0f, 2, 0x76, 0, 0x44, 0x0d, 10}, map[uint64]sframe.Row{
			start:     {CFA: sframe.Rule{Base: sframe.FromReg, Reg: 6}, RA: ra, Keep: keep},
			start + 4: {CFA: sframe.Rule{Base: sframe.FromReg, Reg: 10, Offset: 8}, RA: ra, Keep: keep}}},
		{"register that no set holds", []byte{0x0c, 32, 16}, map[uint64]sframe.Row{
			start: {CFA: sframe.Rule{Base: sframe.FromReg, Reg: 255, Offset: 16}, RA: ra, Keep: keep}}},
		{"expressions that only add", []byte{
			0x0f, 5, 0x77, 8, 0x23, 8, 0x06, // CFA = *(rsp+8+8)
			0x10, 3, 4, 0x92, 13, 0x70, 0x96, // rbx at r13-16
			0x16, 12, 4, 0x76, 8, 0x94, 8, // r12 = *(rbp+8)
			0x10, 14, 2, 0x23, 24, // r14 at CFA+24
			0x16, 15, 0}, // r15 = CFA
			map[uint64]sframe.Row{start: {CFA: sframe.Rule{Base: sframe.FromReg, Reg: 7, Deref: true, Offset: 16}, RA: ra,
				Keep: 1 << 13, Saved: []sframe.SavedRule{
					{Reg: 3, Rule: sframe.Rule{Base: sframe.FromReg, Reg: 13, Deref: true, Offset: -16}},
					{Reg: 12, Rule: sframe.Rule{Base: sframe.FromReg, Reg: 6, Deref: true, Offset: 8}},
					{Reg: 14, Rule: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: 24}},
					{Reg: 15, Rule: sframe.Rule{Base: sframe.FromCFA}}}}}},
		{"expressions that do more", []byte{
			0x0f, 3, 0x80, 0, 0x06, // CFA = *rip
			0x10, 3, 3, 0x76, 0x78, 0x06, // rbx at *(rbp-8)
			0x16, 12, 4, 0x76, 0, 0x94, 4, // r12 = 4 bytes at rbp
			0x16, 13, 3, 0x76, 0x78, 0x06 ^ 0x10}, // r13: breg6 -8; swap
			map[uint64]sframe.Row{start: {CFA: sframe.Rule{Base: sframe.FromExpr}, RA: ra,
				Keep: 1<<14 | 1<<15, Saved: []sframe.SavedRule{
					{Reg: 3, Rule: sframe.Rule{Base: sframe.FromExpr, Deref: true, Offset: 1}},
					{Reg: 12, Rule: sframe.Rule{Base: sframe.FromExpr, Offset: 2}},
					{Reg: 13, Rule: sframe.Rule{Base: sframe.FromExpr, Offset: 3}}},
				Exprs: [][]byte{{0x80, 0, 0x06}, {0x76, 0x78, 0x06}, {0x76, 0, 0x94, 4}, {0x76, 0x78, 0x16}}}}},
		{"offset that fits no rule", []byte{0x16, 3, 7, 0x76, 0x80, 0x80, 0x80, 0x80, 0x10, 0x96}, map[uint64]sframe.Row{
			start: {CFA: onRSP(8), RA: ra, Keep: keep &^ (1 << 3),
				Saved: []sframe.SavedRule{{Reg: 3, Rule: sframe.Rule{Base: sframe.FromExpr}}},
				Exprs: [][]byte{{0x76, 0x80, 0x80, 0x80, 0x80, 0x10, 0x96}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &builder{arch: regs.AMD64}
			cie := b.cie(1, "", nil, cfaSP8...)
			b.fde(cie, b.abs(start, 0x20), nil, tt.insns...)
			tab := b.open(t)
			for pc, want := range tt.want {
				got, err := tab.Row(pc)
				if err != nil {
					t.Fatalf("Row(%#x): %v", pc, err)
				}
				if !sameRow(got, &want) {
					t.Errorf("Row(%#x):\ngot  %+v\nwant %+v", pc, *got, want)
				}
			}
			for _, pc := range []uint64{start - 1, start + 0x20} {
				if r, err := tab.Row(pc); r != nil || err != sframe.ErrNoRow {
					t.Errorf("Row(%#x) = %v, %v, want ErrNoRow", pc, r, err)
				}
			}
		})
	}
}

func sameRow(a, b *sframe.Row) bool {
	return fmt.Sprintf("%+v", *a) == fmt.Sprintf("%+v", *b)
}

// TestSignedReturnAddress walks through arm64 signing: negate_ra_state toggles,
// a restored state brings its own, and the old way by register 34 sets.
func TestSignedReturnAddress(t *testing.T) {
	b := &builder{arch: regs.ARM64}
	cie := b.cie(1, "", nil, 0x0c, 31, 0)
	b.fde(cie, b.abs(0x5000, 0x40), nil,
		0x44, 0x2d, // +4 signed
		0x44, 0x0a, 0x2d, // +8 not
		0x44, 0x2c, // +12 signed
		0x44, 0x2d, // +16 not
		0x44, 0x0b, // +20 as at +4
		0x44, 0x16, 34, 1, 0x30, // +24 not: DW_OP_lit0
		0x44, 0x16, 34, 1, 0x31) // +28 signed: DW_OP_lit1
	tab := b.open(t)
	for i, want := range []bool{false, true, false, true, false, true, false, true} {
		pc := 0x5000 + uint64(4*i)
		if r, err := tab.Row(pc); err != nil || r.Signed != want {
			t.Errorf("Row(%#x): %+v, %v, want signed %t", pc, r, err, want)
		}
	}
	for _, insns := range [][]byte{{0x16, 34, 1, 0x32}, {0x16, 34, 2, 0x31, 0x96}, {0x16, 34, 0}} {
		b := &builder{arch: regs.ARM64}
		cie := b.cie(1, "", nil, 0x0c, 31, 0)
		b.fde(cie, b.abs(0x5000, 0x40), nil, insns...)
		checkOne(t, b.open(t), 0, 0, "not constant")
	}
}

// TestReturnColumn: a column of its own (s390x _mcount returns by r0) that is
// not saved is in the register of that number; the usual one is then a register
// like others.
func TestReturnColumn(t *testing.T) {
	arch := *regs.S390X
	arch.RA = 0 // for the builder alone
	b := &builder{arch: &arch}
	cie := b.cie(1, "", nil, 0x0c, 15, 0xa0, 1)
	b.fde(cie, b.abs(0x5000, 0x20), nil, 0x44, 0x8e, 6, 0x44, 0x80, 26)
	b.arch = regs.S390X
	tab := b.open(t)
	r14 := sframe.SavedRule{Reg: 14, Rule: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -48}}
	for pc, want := range map[uint64]sframe.Row{
		0x5000: {RA: sframe.Rule{Base: sframe.FromReg, Reg: 0}},
		0x5004: {RA: sframe.Rule{Base: sframe.FromReg, Reg: 0}, Saved: []sframe.SavedRule{r14}},
		0x5008: {RA: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -208}, Saved: []sframe.SavedRule{r14}},
	} {
		if got, err := tab.Row(pc); err != nil || got.RA != want.RA || !slices.Equal(got.Saved, want.Saved) {
			t.Errorf("Row(%#x) = %+v, %v, want RA %+v, saved %+v", pc, got, err, want.RA, want.Saved)
		}
	}
}

// TestBadInstructions: a defect costs its function, and says where it is.
func TestBadInstructions(t *testing.T) {
	long := slices.Repeat([]byte{0x0a}, 65)
	rows := slices.Repeat([]byte{0x41, 0x0e, 8, 0x41, 0x0e, 16}, 5000)
	tests := []struct {
		name, text string
		at         uint64 // of the defect in the instructions: behind what was read, or at a code that is none
		insns      []byte
	}{
		{"unknown", "unknown call frame instruction", 1, []byte{0, 0x3f}},
		{"window save", "another machine", 1, []byte{0, 0x2d}},
		{"cut operand", "past the end", 4, []byte{0, 0, 0, 0x02}},
		{"cut word", "past the end", 1, []byte{0x04, 1, 2}},
		{"endless LEB128", "past the end", 4, []byte{0x0e, 0x80, 0x80, 0x80}},
		{"LEB128 of 70 bits", "exceeds 64 bits", 11, []byte{0x0e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}},
		{"SLEB128 of 70 bits", "exceeds 64 bits", 11, []byte{0x13, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x3f}},
		{"offset of 2 GiB", "out of range", 6, []byte{0x0e, 0x80, 0x80, 0x80, 0x80, 0x08}},
		{"factored offset of 2 GiB", "out of range", 6, []byte{0x83, 0x81, 0x80, 0x80, 0x80, 0x01}},
		{"factor of 2 GiB", "out of range", 6, []byte{0x83, 0x80, 0x80, 0x80, 0x80, 0x08}},
		{"negated offset of 2 GiB", "out of range", 7, []byte{0x2f, 3, 0x80, 0x80, 0x80, 0x80, 0x01}},
		{"2^61 times 8 is 0", "out of range", 10, []byte{0x13, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}},
		{"state never remembered", "no state", 1, []byte{0x0b}},
		{"states too deep", "too deep", 65, long},
		{"rows too many", "too many rows", 3*4096 + 1, rows},
		{"location goes back", "goes back", 10, []byte{0x44, 0x01, 0x00, 0x50, 0, 0, 0, 0, 0, 0}},
		{"location wraps", "wraps", 10, []byte{0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x44}},
		{"advance of 8 bytes", "too far", 9, []byte{0x1d, 0, 0, 0, 0, 1, 0, 0, 0}},
		{"expression past the entry", "past the end", 2, []byte{0x0f, 100, 0x77}},
		{"expression too long", "too long", 3, append([]byte{0x0f, 0x80, 0x02}, make([]byte, 256)...)},
		{"CFA expression empty", "empty", 2, []byte{0x0f, 0}},
		{"cut operation", "past the end", 3, []byte{0x0f, 1, 0x77}},
		{"register location", "not allowed", 3, []byte{0x0f, 1, 0x57}},
		{"absolute address", "not allowed", 3, []byte{0x0f, 9, 0x03, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"branch out", "branch leaves", 5, []byte{0x0f, 3, 0x2f, 1, 0}},
		{"branch before", "branch leaves", 5, []byte{0x0f, 3, 0x2f, 0xfc, 0xff}},
		{"load of 16 bytes", "load of a size", 6, []byte{0x0f, 4, 0x77, 0, 0x94, 16}},
		{"load of 9 bytes", "load of a size", 6, []byte{0x0f, 4, 0x77, 0, 0x94, 9}},
		{"load of no bytes", "load of a size", 6, []byte{0x0f, 4, 0x77, 0, 0x94, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &builder{arch: regs.AMD64}
			cie := b.cie(1, "", nil, cfaSP8...)
			b.fde(cie, b.abs(0x4000, 0x20), nil)
			bad := b.fde(cie, b.abs(0x5000, 0x10000), nil, tt.insns...)
			b.fde(cie, b.abs(0x20000, 0x20), nil)
			tab := b.open(t)
			for range 2 { // the second time from the cache
				row, err := tab.Row(0x5010)
				var format *sframe.FormatError
				if row != nil || !errors.As(err, &format) || !strings.Contains(err.Error(), tt.text) {
					t.Fatalf("got %v, %v, want a defect with %q", row, err, tt.text)
				}
				// In front of the instructions: length, CIE pointer, start and size.
				if want := uint64(bad) + 4 + 4 + 8 + 8 + tt.at; format.SecOff != want || format.Whole {
					t.Errorf("defect at offset %#x, whole %t, want %#x", format.SecOff, format.Whole, want)
				}
			}
			for _, pc := range []uint64{0x4010, 0x20010} {
				if _, err := tab.Row(pc); err != nil {
					t.Errorf("neighbour %#x: %v", pc, err)
				}
			}
		})
	}
}

// TestLimits: what is just not too much: the CFA's offset from rsp at the end of the instructions.
func TestLimits(t *testing.T) {
	rows := slices.Repeat([]byte{0x41, 0x0e, 8, 0x41, 0x0e, 16}, 2048)
	for _, tt := range []struct {
		name  string
		insns []byte
		want  int32
	}{
		{"offset of 2 GiB less 1", []byte{0x0e, 0xff, 0xff, 0xff, 0xff, 0x07}, 1<<31 - 1},
		{"factored offset of -2 GiB", []byte{0x13, 0x80, 0x80, 0x80, 0x80, 0x01}, -1 << 31},
		{"64 states", append(slices.Repeat([]byte{0x0a}, 64), 0x0e, 24), 24},
		{"4096 rows", rows, 16},
		{"location that stays", []byte{0x44, 0x01, 0x04, 0x50, 0, 0, 0, 0, 0, 0, 0x0e, 24}, 24},
		{"advance of 4 GiB less 1", []byte{0x0e, 24, 0x1d, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0x0e, 32}, 24},
		{"expression of 255 bytes", append([]byte{0x0f, 0xff, 0x01, 0x77, 24}, slices.Repeat([]byte{0x96}, 253)...), 24},
		{"arguments of a call", []byte{0x0e, 24, 0x2e, 0x80, 0x01}, 24},
	} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, cfaSP8...)
		b.fde(cie, b.abs(0x5000, 0x10000), nil, tt.insns...)
		row, err := b.open(t).Row(0x14fff)
		if want := (sframe.Rule{Base: sframe.FromReg, Reg: 7, Offset: tt.want}); err != nil || row.CFA != want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, row, err, want)
		}
	}
	// Rows end with the function, wherever its instructions do.
	for _, insns := range [][]byte{{0x60, 0x0e, 16}, {0x61, 0x0e, 16}, {0x5f, 0x0e, 8, 0x41, 0x0e, 16, 0x41}} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, cfaSP8...)
		b.fde(cie, b.abs(0x5000, 0x20), nil, insns...)
		for fn, err := range b.open(t).Funcs() {
			if err != nil || len(fn.Entries) != 1 || fn.Entries[0].Start != 0x5000 || fn.Entries[0].End != 0x5020 {
				t.Errorf("%x: got %+v, %v", insns, fn, err)
			}
		}
	}
	// Expressions that are more than a sum, and sound: branches to their ends, loads of what a word has.
	for _, e := range [][]byte{{0x2f, 0xfd, 0xff}, {0x23, 8}, {0x28, 0, 0}, {0x77, 0, 0x94, 1}, {0x77, 0, 0x94, 7}, {0x77, 0, 0x94, 8, 0x06}} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, cfaSP8...)
		b.fde(cie, b.abs(0x5000, 0x20), nil, append([]byte{0x0f, byte(len(e))}, e...)...)
		if row, err := b.open(t).Row(0x5000); err != nil || row.CFA.Base != sframe.FromExpr || string(row.Exprs[0]) != string(e) {
			t.Errorf("%x: got %+v, %v", e, row, err)
		}
	}
}

// TestAlignment: factors of the CIE: the location moves by the one, offsets are multiples of the other.
func TestAlignment(t *testing.T) {
	for _, tt := range []struct {
		name  string
		align []byte // of code and of data
		insns []byte
		pc    uint64 // of the row with the offset
		want  int32
		bad   string
	}{
		{"4 and -8", []byte{4, 0x78}, []byte{0x42, 0x13, 0x7d}, 0x5008, 24, ""},
		{"1 and 4", []byte{1, 4}, []byte{0x42, 0x13, 6}, 0x5002, 24, ""},
		{"code by 4 GiB less 1", append(uleb(1<<32-1), 0x78), []byte{0x13, 0x7d, 0x41, 0x0e, 0}, 0x5000, 24, ""},
		{"code by 4 GiB", append(uleb(1<<32), 0x78), []byte{0x41}, 0, 0, "too far"},
		{"data by -2 GiB", append([]byte{1}, slebBytes(-1<<31)...), []byte{0x13, 1}, 0x5000, -1 << 31, ""},
		{"data by 2 GiB", append([]byte{1}, slebBytes(1<<31)...), []byte{0x13, 0x7f}, 0, 0, "out of range"},
		{"8 times 2^61 is 0", append([]byte{1}, slebBytes(1<<61)...), []byte{0x13, 8}, 0, 0, "out of range"},
	} {
		b := &builder{arch: regs.AMD64, align: tt.align}
		cie := b.cie(1, "", nil, 0x0c, 7, 8)
		b.fde(cie, b.abs(0x5000, 0x20), nil, tt.insns...)
		tab := b.open(t)
		if tt.bad != "" {
			checkOne(t, tab, 0, 0, tt.bad)
			continue
		}
		if e, err := tab.Find(tt.pc); err != nil || e.Row.CFA.Offset != tt.want || e.Start != tt.pc {
			t.Errorf("%s: got %+v, %v, want CFA offset %d from %#x on", tt.name, e, err, tt.want, tt.pc)
		}
	}
}

// TestEnds: a function may reach the last address; a range of more, or of a negative size, is a defect.
func TestEnds(t *testing.T) {
	for _, arch := range []*regs.Arch{regs.AMD64, regs.I386} {
		last := ^uint64(0)
		if arch.WordBytes == 4 {
			last >>= 32
		}
		for size, bad := range map[uint64]string{15: "", 16: "past the end of the address space"} {
			b := &builder{arch: arch}
			cie := b.cie(1, "", nil, 0x0c, arch.SP, 16)
			b.fde(cie, b.abs(last-15, size), nil)
			checkOne(t, b.open(t), last-15, last, bad)
		}
	}
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 1<<63), nil)
	checkOne(t, b.open(t), 0, 0, "negative size")
}

// TestSigns: the highest bit is a sign in signed forms only.
func TestSigns(t *testing.T) {
	for enc, want := range map[byte]uint64{0x02: 0xf000, 0x0a: 0xfffffffffffff000, 0x03: 0xf0000000, 0x0b: 0xfffffffff0000000} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "zR", []byte{enc}, cfaSP8...)
		n := 2 + int(enc&1)*2
		b.fde(cie, func() { b.word(want, n); b.word(0x20, n) }, []byte{0})
		checkOne(t, b.open(t), want, want+0x20, "")
		// A size has no sign.
		b = &builder{arch: regs.AMD64}
		cie = b.cie(1, "zR", []byte{enc}, cfaSP8...)
		size := uint64(0x90) << (8 * (n - 1))
		b.fde(cie, func() { b.word(0x1000, n); b.word(size, n) }, []byte{0})
		checkOne(t, b.open(t), 0x1000, 0x1000+size, "")
	}
}

// TestRemoved: a pointer of 0 stays 0, whatever it is relative to. It is what linkers leave of a function that they
// have removed, and no address has its rows.
func TestRemoved(t *testing.T) {
	for _, enc := range []byte{0x00, 0x1b, 0x23, 0x3b, 0x83, 0x9b} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "zR", []byte{enc}, cfaSP8...)
		at := b.addr() + 8
		n := 4
		if enc == 0 {
			n = 8
		}
		b.fde(cie, func() { b.word(0, n); b.word(0x20, n) }, []byte{0})
		tab := b.open(t)
		for fn := range tab.Funcs() {
			if fn.Start != 0 {
				t.Errorf("%#x: a function at %#x", enc, fn.Start)
			}
		}
		for _, pc := range []uint64{0, at, textAddr, gotAddr} {
			if _, err := tab.Row(pc); err != sframe.ErrNoRow {
				t.Errorf("%#x: %#x: %v", enc, pc, err)
			}
		}
	}
}

// TestBadCIE: instructions that need a function, or a CFA, in a CIE.
func TestBadCIE(t *testing.T) {
	for name, tt := range map[string]struct {
		text  string
		insns []byte
	}{
		"advance":             {"location in the instructions of a CIE", []byte{0x0c, 7, 8, 0x41}},
		"set_loc":             {"location in the instructions of a CIE", []byte{0x01, 0, 0x50, 0, 0, 0, 0, 0, 0}},
		"offset without CFA":  {"no CFA to change", []byte{0x0e, 8}},
		"factored offset":     {"no CFA to change", []byte{0x13, 8}},
		"register without it": {"no CFA to change", []byte{0x0d, 8}},
		"5,000 bytes":         {"CIE is too long", make([]byte, 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			b := &builder{arch: regs.AMD64}
			bad := b.cie(1, "", nil, tt.insns...)
			good := b.cie(1, "", nil, cfaSP8...)
			b.fde(bad, b.abs(0x5000, 0x20), nil)
			b.fde(good, b.abs(0x6000, 0x20), nil)
			tab := b.open(t)
			checkOne(t, tab, 0, 0, tt.text)
			if _, err := tab.Row(0x6000); err != nil {
				t.Errorf("function of another CIE: %v", err)
			}
			if _, err := tab.Row(0x5000); !damaged(err) {
				t.Errorf("function of this CIE: %v", err)
			}
		})
	}
}

// TestLongEntry: a CIE may have 4 KiB behind its id, an FDE 1 MiB.
func TestLongEntry(t *testing.T) {
	for n, bad := range map[int]string{1 << 20: "", 1<<20 + 4: "entry is too long"} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, cfaSP8...)
		b.fde(cie, b.abs(0x5000, 0x20), nil, make([]byte, n-16)...)
		checkOne(t, b.open(t), 0x5000, 0x5020, bad)
	}
	for n, bad := range map[int]string{4096: "", 4100: "CIE is too long"} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, append(slices.Clone(cfaSP8), make([]byte, n-5-len(cfaSP8))...)...)
		b.fde(cie, b.abs(0x5000, 0x20), nil)
		checkOne(t, b.open(t), 0x5000, 0x5020, bad)
	}
}

// TestOverlap: which of several functions answers.
func TestOverlap(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	add := func(start, size uint64, off byte) { b.fde(cie, b.abs(start, size), nil, cfaOffset(off)...) }
	add(0x5000, 0x1000, 16) // holds the next three
	add(0x5100, 0x100, 24)
	add(0x5180, 0, 32) // empty
	add(0x5100, 0x80, 40)
	add(0x6000, 0x10, 48)
	add(0, 0x100, 56) // removed by the linker
	add(0x3000, 0x100, 64)
	tab := b.open(t)
	for pc, want := range map[uint64]int32{
		0x3000: 64, 0x5000: 16, 0x50ff: 16, 0x5100: 24, 0x5180: 24, 0x51ff: 24, 0x5200: 16, 0x5fff: 16, 0x6000: 48,
	} {
		if r, err := tab.Row(pc); err != nil || r.CFA.Offset != want {
			t.Errorf("Row(%#x) = %+v, %v, want CFA offset %d", pc, r, err, want)
		}
	}
	for _, pc := range []uint64{0, 0x10, 0x4fff, 0x6010} {
		if _, err := tab.Row(pc); err != sframe.ErrNoRow {
			t.Errorf("Row(%#x): %v, want ErrNoRow", pc, err)
		}
	}
}

// TestNested: a function is found behind seven others that begin in it; that is how far a look-up goes back.
func TestNested(t *testing.T) {
	for n, want := range map[int]error{0: nil, 7: nil, 8: sframe.ErrNoRow} {
		b := &builder{arch: regs.AMD64}
		cie := b.cie(1, "", nil, cfaSP8...)
		b.fde(cie, b.abs(0x4000, 8), nil)
		b.fde(cie, b.abs(0x5000, 0x1000), nil, cfaOffset(16)...)
		for i := range n {
			b.fde(cie, b.abs(0x5100+0x10*uint64(i), 8), nil)
		}
		if row, err := b.open(t).Row(0x5800); err != want || err == nil && row.CFA.Offset != 16 {
			t.Errorf("%d inside: %+v, %v", n, row, err)
		}
	}
}

// TestIncomplete: an address without a row may have one that could not be indexed; what is told is the first such entry.
func TestIncomplete(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	b.word(4, 4) // a CIE without content, which nobody asks for
	b.word(0, 4)
	first := b.fde(-0x1000, b.abs(0x6000, 0x20), nil) // its CIE is outside of the section
	b.fde(cie, b.abs(0x7000, 0), nil)                 // empty, and none of those
	b.fde(-0x2000, b.abs(0x8000, 0x20), nil)
	b.word(2, 4) // an entry without room for its id
	b.word(0, 2)
	b.fde(cie, b.abs(0x9000, 0x20), nil)
	tab := b.open(t)
	for _, pc := range []uint64{0x5000, 0x9000} {
		if _, err := tab.Row(pc); err != nil {
			t.Error(err)
		}
	}
	for _, pc := range []uint64{0x6000, 0x8000, 0x1000} {
		if _, err := tab.Row(pc); !damaged(err) || !strings.Contains(err.Error(), "incomplete") || !strings.Contains(err.Error(), "outside the section (0xf000)") {
			t.Errorf("%#x: %v, want what is wrong with %#x", pc, err, first)
		}
	}
}

// TestCIEAtEnd: a CIE cannot begin where the section ends.
func TestCIEAtEnd(t *testing.T) {
	b := &builder{arch: regs.AMD64, debug: true}
	b.cie(1, "", nil, cfaSP8...)
	end := len(b.b) + 4 + 4 + 16
	b.fde(end, b.abs(0x5000, 0x20), nil)
	if end != len(b.b) {
		t.Fatal(end, len(b.b))
	}
	checkOne(t, b.open(t), 0, 0, "outside the section")
}

// TestTerminator: a section whose size is known goes on behind one, a section
// that is found through the header ends there.
func TestTerminator(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	b.word(0, 4)
	b.fde(cie, b.abs(0x6000, 0x20), nil)
	b.word(0, 4)
	tab := b.open(t)
	if _, err := tab.Row(0x6000); err != nil {
		t.Errorf("known size: %v", err)
	}
	if _, err := tab.Row(0x7000); err != sframe.ErrNoRow {
		t.Errorf("a terminator at the end: %v", err)
	}
	hdr := builder{arch: b.arch, b: []byte{1, 0x04, 0xff, 0xff}}
	hdr.word(frameAddr, 8)
	var err error
	tab, err = ehframe.Open(image{hdrAddr: hdr.b, frameAddr: b.b}, b.arch, ehframe.Sections{HdrAddr: hdrAddr, HdrSize: uint64(len(hdr.b))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Row(0x5000); err != nil {
		t.Errorf("unknown size: %v", err)
	}
	if _, err := tab.Row(0x6000); err != sframe.ErrNoRow {
		t.Errorf("unknown size, behind the terminator: %v", err)
	}
}

// TestBrokenLength: what lies behind a broken length cannot be found without
// the header; that is told, not passed off as a gap.
func TestBrokenLength(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	at := b.fde(cie, b.abs(0x6000, 0x20), nil)
	b.fde(cie, b.abs(0x7000, 0x20), nil)
	b.b[at+2] = 0x70
	tab := b.open(t)
	if _, err := tab.Row(0x5000); err != nil {
		t.Errorf("before: %v", err)
	}
	var bad *sframe.FormatError
	if _, err := tab.Row(0x7000); !errors.As(err, &bad) || bad.SecOff != uint64(at) {
		t.Errorf("behind: %v, want a defect at %#x", err, at)
	}
	withHdr, err := ehframe.Open(image{hdrAddr: header(b, 0x3b), frameAddr: b.b}, b.arch, headerSections(b, 0x3b))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withHdr.Row(0x7000); err != nil {
		t.Errorf("behind, by the header: %v", err)
	}
	if _, err := withHdr.Row(0x6000); !damaged(err) {
		t.Errorf("the function itself: %v", err)
	}
	// What goes through all of them ends with it, after the first; or where it is told to.
	var starts []uint64
	for fn, err := range tab.Funcs() {
		starts = append(starts, fn.Start)
		if errors.As(err, &bad) && bad.SecOff != uint64(at) || len(starts) == 2 && (err == nil || fn.End != 0 || fn.SecOff != 0) {
			t.Errorf("function %d: %+v, %v", len(starts), fn, err)
		}
	}
	if !slices.Equal(starts, []uint64{0x5000, 0}) {
		t.Errorf("functions at %#x", starts)
	}
	for _, first := range [][]byte{{0x70, 0, 0, 0}, {4, 0, 0, 0, 0, 0, 0}, {4, 0, 0}, {0xff, 0xff, 0xff, 0xff, 4, 0, 0, 0}} {
		n := 0
		for _, err := range (&builder{arch: regs.AMD64, b: first}).open(t).Funcs() {
			if n++; !damaged(err) {
				t.Errorf("%x: %v", first, err)
			}
		}
		if n != 1 {
			t.Errorf("%x: told %d times", first, n)
		}
	}
	for range tab.Funcs() {
		break
	}
}

// TestSameStart: of damaged functions that start together the first one's damage is told, as is its row if it has one.
func TestSameStart(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	first := b.fde(cie, b.abs(0x5000, 0x20), nil, 0x3f)
	b.fde(cie, b.abs(0x5000, 0x20), nil, 0x3e)
	b.fde(cie, b.abs(0x6000, 0x20), nil, cfaOffset(16)...)
	b.fde(cie, b.abs(0x6000, 0x20), nil, cfaOffset(24)...)
	b.fde(cie, b.abs(0x7000, 0x20), nil, cfaOffset(32)...)
	b.fde(cie, b.abs(0x7000, 0x20), nil, 0x3e)
	tab := b.open(t)
	var bad *sframe.FormatError
	if _, err := tab.Row(0x5000); !errors.As(err, &bad) || bad.SecOff != uint64(first)+24 || bad.Value != 0x3f {
		t.Errorf("damaged: %v", err)
	}
	for pc, want := range map[uint64]int32{0x6000: 16, 0x7000: 32} {
		if row, err := tab.Row(pc); err != nil || row.CFA.Offset != want {
			t.Errorf("%#x: %+v, %v, want CFA offset %d", pc, row, err, want)
		}
	}
}

// header makes an .eh_frame_hdr of functions 0x1000 apart from 0x5000 on, one
// for each FDE of b, its table in the given encoding.
func header(b *builder, enc byte) []byte {
	h := &builder{arch: b.arch, b: []byte{1, 0x1b, 0x03, enc}}
	value := func(v uint64) {
		switch enc & 0x70 {
		case 0x10:
			v -= hdrAddr + uint64(len(h.b))
		case 0x30:
			v -= hdrAddr
		}
		n := map[byte]int{0: 8, 2: 2, 3: 4, 4: 8, 8: 8, 0xa: 2, 0xb: 4, 0xc: 8}[enc&0xf]
		if enc&7 == 0 {
			n = b.arch.WordBytes
		}
		h.word(v, n)
	}
	h.word(frameAddr-(hdrAddr+4), 4)
	h.word(uint64(len(b.fdes)), 4)
	for i, off := range b.fdes {
		value(0x5000 + 0x1000*uint64(i))
		value(frameAddr + uint64(off))
	}
	return h.b
}

func headerSections(b *builder, enc byte) ehframe.Sections {
	return ehframe.Sections{HdrAddr: hdrAddr, HdrSize: uint64(len(header(b, enc)))}
}

func TestHeaderEncodings(t *testing.T) {
	for _, arch := range []*regs.Arch{regs.AMD64, regs.I386, regs.S390X} {
		for _, enc := range []byte{0x00, 0x03, 0x04, 0x08, 0x0b, 0x0c, 0x13, 0x1b, 0x33, 0x3b, 0x3c} {
			if arch.WordBytes == 8 && (enc == 0x13 || enc == 0x33) {
				continue // the functions are before the header, at a negative distance
			}
			t.Run(fmt.Sprintf("%s/%#02x", arch.Name, enc), func(t *testing.T) {
				b := &builder{arch: arch}
				cie := b.cie(1, "", nil, 0x0c, arch.SP, 16)
				for i := range uint64(3) {
					b.fde(cie, b.abs(0x5000+0x1000*i, 0x20), nil, cfaOffset(byte(i))...)
				}
				tab, err := ehframe.Open(image{hdrAddr: header(b, enc), frameAddr: b.b}, arch, headerSections(b, enc))
				if err != nil {
					t.Fatal(err)
				}
				for i := range uint64(3) {
					r, err := tab.Row(0x501f + 0x1000*i)
					if err != nil || r.CFA.Offset != int32(i) {
						t.Errorf("function %d: %+v, %v", i, r, err)
					}
				}
			})
		}
	}
}

// TestHeaderOfMany: a program of 200 MB of text has some 600,000 functions, and its header is searched.
func TestHeaderOfMany(t *testing.T) {
	const many, at = 900_000, 0x10000000
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	last := b.fde(cie, b.abs(0x8000000, 0x20), nil, cfaOffset(24)...)
	b.b = append(b.b, 0xff, 0, 0, 0) // all of it cannot be read instead
	h := &builder{arch: b.arch, b: []byte{1, 0x1b, 0x03, 0x3b}}
	h.word(at-(hdrAddr+4), 4)
	h.word(many, 4)
	for i := range uint64(many - 1) {
		h.word(0x5000+16*i-hdrAddr, 4)
		h.word(at+uint64(b.fdes[0])-hdrAddr, 4)
	}
	h.word(0x8000000-hdrAddr, 4)
	h.word(at+uint64(last)-hdrAddr, 4)
	tab, err := ehframe.Open(image{hdrAddr: h.b, at: b.b}, b.arch, ehframe.Sections{HdrAddr: hdrAddr, HdrSize: uint64(len(h.b))})
	if err != nil {
		t.Fatal(err)
	}
	if row, err := tab.Row(0x800001f); err != nil || row.CFA.Offset != 24 {
		t.Errorf("%+v, %v", row, err)
	}
}

// TestHeaders: what a header may lack, and what makes it useless. A table that
// cannot be searched is replaced by an index of our own.
func TestHeaders(t *testing.T) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	b.fde(cie, b.abs(0x5000, 0x20), nil)
	b.fde(cie, b.abs(0x6000, 0x20), nil)
	b.word(0, 4)
	good := header(b, 0x3b)
	with := func(at int, v ...byte) []byte {
		h := slices.Clone(good)
		copy(h[at:], v)
		return h
	}
	tests := []struct {
		name   string
		hdr    []byte
		whole  bool // cannot be opened without the section's address
		noFind bool
	}{
		{"good", good, false, false},
		{"no table", with(3, 0xff), false, false},
		{"no count", with(2, 0xff), false, false},
		{"table of ULEB128", with(3, 0x01), false, false},
		{"table indirect", with(3, 0xbb), false, false},
		{"count beyond the header", with(8, 0xff, 0xff), false, false},
		{"count of one beyond it", with(8, 3), false, false},
		{"section from the header", with(1, 0x3b, 0x03, 0x3b, 0, 0x80, 0, 0), false, false},
		{"section from a base that it has not", with(1, 0x2b), true, false},
		{"table from there", with(3, 0x2b), false, false},
		{"table of no form", with(3, 0x35), false, false},
		{"count of no form", with(2, 0x05), false, false},
		{"empty, then behind its end", good[:12], false, false},
		{"no functions", with(8, 0), false, false},
		{"another version", with(0, 2), true, false},
		{"no section", with(1, 0xff), true, false},
		{"section of no form", with(1, 0x05), true, false},
		{"cut", good[:6], true, false},
		{"start differs from the FDE's", with(12, 0x10), false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img := image{hdrAddr: tt.hdr, frameAddr: b.b}
			s := ehframe.Sections{HdrAddr: hdrAddr, HdrSize: uint64(len(tt.hdr)), Limit: frameAddr + uint64(len(b.b))}
			tab, err := ehframe.Open(img, b.arch, s)
			if tt.whole {
				var bad *sframe.FormatError
				if !errors.As(err, &bad) || !bad.Whole {
					t.Fatalf("Open: %v, want a defect of the whole table", err)
				}
				s.FrameAddr, s.FrameSize = frameAddr, uint64(len(b.b))
				tab, err = ehframe.Open(img, b.arch, s)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tab.Row(0x5018); damaged(err) != tt.noFind || err != nil && !tt.noFind {
				t.Errorf("first function: %v", err)
			}
			if _, err := tab.Row(0x6000); err != nil {
				t.Errorf("second function: %v", err)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	hdr := builder{arch: regs.AMD64, b: []byte{1, 0x04, 0xff, 0xff}}
	hdr.word(frameAddr, 8)
	img := image{hdrAddr: hdr.b}
	for name, s := range map[string]ehframe.Sections{
		"nothing known":        {},
		"only an address":      {FrameAddr: frameAddr},
		"header not there":     {HdrAddr: 0x100, HdrSize: 20},
		"limit before":         {HdrAddr: hdrAddr, HdrSize: 12, Limit: frameAddr - 1},
		"section wraps around": {FrameAddr: 1 << 63, FrameSize: 1<<63 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			var bad *sframe.FormatError
			tab, err := ehframe.Open(img, regs.AMD64, s)
			if tab != nil || err == nil || errors.As(err, &bad) && !bad.Whole {
				t.Errorf("got %v, %v, want an error", tab, err)
			}
		})
	}
}
