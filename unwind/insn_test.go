package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// around is a window with these bytes before an address and from it on.
func around(before, ahead []byte) *window {
	w := &window{before: windowBefore, after: len(ahead)}
	copy(w.buf[windowBefore-len(before):], before)
	copy(w.buf[windowBefore:], ahead)
	return w
}

func le(insn ...uint32) (b []byte) {
	for _, i := range insn {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b
}

// TestPasses: the length of an instruction that goes on to the next, 0 of one that does not. Encodings: "Arm Architecture
// Reference Manual for A-profile", C6.2; "z/Architecture Principles of Operation", chapter 7.
func TestPasses(t *testing.T) {
	for _, tt := range []struct {
		name string
		code []byte
		want int
	}{
		{"arm64/b", le(0x14000000), 0}, {"arm64/b backwards", le(0x17ffffff), 0}, {"arm64/bl", le(0x94000001), 4}, {"arm64/b.eq", le(0x54000040), 4},
		{"arm64/br x0", le(0xd61f0000), 0}, {"arm64/br x30", le(0xd61f03c0), 0}, {"arm64/blr x0", le(0xd63f0000), 0}, {"arm64/ret", le(0xd65f03c0), 0},
		{"arm64/braa x0,sp", le(0xd71f081f), 0}, {"arm64/brabz x0", le(0xd61f0c1f), 0}, {"arm64/retaa", le(0xd65f0bff), 0}, {"arm64/retab", le(0xd65f0fff), 0},
		{"arm64/blraa x0,x1", le(0xd73f0801), 0}, {"arm64/eret", le(0xd69f03e0), 4}, {"arm64/udf", le(0), 0}, {"arm64/udf 65535", le(0xffff), 0}, {"arm64/unallocated", le(0x10000), 4},
		{"arm64/brk", le(0xd4200000), 0}, {"arm64/brk 65535", le(0xd43fffe0), 0}, {"arm64/svc", le(0xd4000001), 4}, {"arm64/hlt", le(0xd4400000), 4},
		{"arm64/nop", le(0xd503201f), 4}, {"arm64/cut", le(0xd503201f)[:3], 0},
		{"s390x/br %r1", []byte{0x07, 0xf1}, 0}, {"s390x/br %r14", []byte{0x07, 0xfe}, 0}, {"s390x/bcr 15,0", []byte{0x07, 0xf0}, 2}, {"s390x/nopr %r7", []byte{0x07, 0x07}, 2},
		{"s390x/ber %r14", []byte{0x07, 0x8e}, 2}, {"s390x/j", []byte{0xa7, 0xf4, 0, 2}, 0}, {"s390x/je", []byte{0xa7, 0x84, 0, 2}, 4}, {"s390x/bras", []byte{0xa7, 0xf5, 0, 2}, 4},
		{"s390x/jg", []byte{0xc0, 0xf4, 0, 0, 0, 2}, 0}, {"s390x/jge", []byte{0xc0, 0x84, 0, 0, 0, 2}, 6}, {"s390x/brasl", []byte{0xc0, 0xf5, 0, 0, 0, 2}, 6},
		{"s390x/larl", []byte{0xc0, 0xf0, 0, 0, 0, 2}, 6}, {"s390x/nothing", []byte{0, 1, 7, 7}, 0}, {"s390x/trap at the end", []byte{0, 1}, 2}, {"s390x/cut", []byte{0x18}, 0},
		{"s390x/lr", []byte{0x18, 1}, 2}, {"s390x/l", []byte{0x58, 1, 2, 3}, 4}, {"s390x/st", []byte{0x90, 1, 2, 3}, 4}, {"s390x/stg", []byte{0xe3, 1, 2, 3, 4, 5}, 6},
	} {
		arch, _, _ := bytes.Cut([]byte(tt.name), []byte("/"))
		if got := conventions[string(arch)].passes(tt.code); got != tt.want {
			t.Errorf("%s, % x: %d, want %d", tt.name, tt.code, got, tt.want)
		}
	}
}

// TestCallTargets: where the call before a return address went.
func TestCallTargets(t *testing.T) {
	const ra = 0x400000
	for _, tt := range []struct {
		name string
		of   func(uint64, []byte) (uint64, bool)
		code []byte
		want uint64 // 0: none
	}{
		{"bl, the next one", arm64CallTarget, le(0x94000001), ra}, {"bl, itself", arm64CallTarget, le(0x94000000), ra - 4}, {"bl, backwards", arm64CallTarget, le(0x97ffffff), ra - 8},
		{"bl, as far as may be", arm64CallTarget, le(0x95ffffff), ra - 4 + 128<<20 - 4}, {"behind another", arm64CallTarget, le(0xd503201f, 0x94000001), ra},
		{"b", arm64CallTarget, le(0x14000001), 0}, {"blr", arm64CallTarget, le(0xd63f0000), 0}, {"cut", arm64CallTarget, []byte{0, 0, 0x94}, 0},
		{"brasl, the next one", s390xCallTarget, []byte{0xc0, 0xe5, 0, 0, 0, 3}, ra}, {"brasl, backwards", s390xCallTarget, []byte{0xc0, 0xe5, 0xff, 0xff, 0xff, 0xff}, ra - 8},
		{"brasl %r13", s390xCallTarget, []byte{0xc0, 0xd5, 0, 0, 0, 3}, 0}, {"brcl", s390xCallTarget, []byte{0xc0, 0xe4, 0, 0, 0, 3}, 0}, {"cut", s390xCallTarget, []byte{0xe5, 0, 0, 0, 3}, 0},
		{"behind another", s390xCallTarget, []byte{0x07, 0x07, 0xc0, 0xe5, 0, 0, 0, 3}, ra},
	} {
		if got, ok := tt.of(ra, tt.code); ok != (tt.want != 0) || got != tt.want {
			t.Errorf("%s, % x: %#x, %v, want %#x", tt.name, tt.code, got, ok, tt.want)
		}
	}
}

// TestReturned: add $size,%rsp; ret behind a call tells where the caller's frame ends. Intel SDM volume 2: 83 /0 ib with
// ModRM c4, ret c3 and c2 iw.
func TestReturned(t *testing.T) {
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		code []byte
		cfa  int32 // 0: no row
	}{
		{"amd64", regs.AMD64, []byte{0x48, 0x83, 0xc4, 0x18, 0xc3}, 0x20}, {"386", regs.I386, []byte{0x83, 0xc4, 0x1c, 0xc3}, 0x20},
		{"nothing added", regs.AMD64, []byte{0x48, 0x83, 0xc4, 0, 0xc3}, 8}, {"as much as may be", regs.AMD64, []byte{0x48, 0x83, 0xc4, 0x7f, 0xc3}, 0x87},
		{"taken away", regs.AMD64, []byte{0x48, 0x83, 0xc4, 0x80, 0xc3}, 0}, {"ret 8", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8, 0xc2, 8, 0}, 16},
		{"repz ret", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8, 0xf3, 0xc3}, 16}, {"bnd ret", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8, 0xf2, 0xc3}, 16}, {"repz", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8, 0xf3}, 0},
		{"no ret", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8, 0x90}, 0}, {"sub", regs.AMD64, []byte{0x48, 0x83, 0xec, 8, 0xc3}, 0}, {"add to %ebx", regs.AMD64, []byte{0x48, 0x83, 0xc3, 8, 0xc3}, 0},
		{"of 32 bits", regs.AMD64, []byte{0x83, 0xc4, 8, 0xc3}, 0}, {"of 32 bits, cut", regs.AMD64, []byte{0x48, 0x83, 0xc4, 8}, 0}, {"nothing", regs.AMD64, nil, 0}, {"of 64 bits", regs.I386, []byte{0x48, 0x83, 0xc4, 8, 0xc3}, 0},
		{"add of a large number", regs.AMD64, []byte{0x48, 0x81, 0xc4, 8, 0xc3}, 0},
	} {
		row := x86Returned(around(nil, tt.code), tt.arch)
		if (row == nil) != (tt.cfa == 0) {
			t.Errorf("%s: %v", tt.name, row)
			continue
		}
		if row == nil {
			continue
		}
		ws := int32(tt.arch.WordBytes)
		want := sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: tt.arch.SP, Offset: tt.cfa}, RA: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -ws}}
		if row.CFA != want.CFA || row.RA != want.RA {
			t.Errorf("%s: %+v, want %+v", tt.name, row, want)
		}
		if row.Keep&(1<<tt.arch.FP) != 0 || row.Keep|1<<tt.arch.FP != tt.arch.CalleeSaved|1<<tt.arch.FP {
			t.Errorf("%s: keeps %#x of %#x", tt.name, row.Keep, tt.arch.CalleeSaved)
		}
	}
}

// TestRestorers: the trampolines behind signal handlers, at their beginning and between their instructions, and there only.
func TestRestorers(t *testing.T) {
	rt := []byte{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80}           // mov $173,%eax; int $0x80
	old := []byte{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}    // pop %eax; mov $119,%eax; int $0x80
	long := []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0xf, 5} // mov $15,%rax; syscall
	short := []byte{0xb8, 0x0f, 0, 0, 0, 0xf, 5}
	type find func(*window, bool) *sframe.Row
	for _, tt := range []struct {
		name string
		of   find
		code []byte
		at   map[int]*sframe.Row // rows where the address is so far in
	}{
		{"rt_sigreturn", i386Signal, rt, map[int]*sframe.Row{0: i386RTSignalRow, 5: i386RTSignalRow}},
		{"sigreturn", i386Signal, old, map[int]*sframe.Row{0: i386SignalRow, 1: i386PoppedRow, 6: i386PoppedRow}},
		{"long", amd64Signal, long, map[int]*sframe.Row{0: amd64SignalRow, 7: amd64SignalRow}},
		{"short", amd64Signal, short, map[int]*sframe.Row{0: amd64SignalRow, 5: amd64SignalRow}},
	} {
		for i := range len(tt.code) + 1 {
			for _, mid := range []bool{false, true} {
				want := tt.at[i]
				if i > 0 && !mid {
					want = nil
				}
				if got := tt.of(around(tt.code[:i], tt.code[i:]), mid); got != want {
					t.Errorf("%s, %d bytes in, mid %v: %v, want %v", tt.name, i, mid, got, want)
				}
			}
			for j := range tt.code { // one byte is another
				bad := bytes.Clone(tt.code)
				bad[j] ^= 0x40
				if got := tt.of(around(bad[:i], bad[i:]), true); got != nil && tt.at[i] != nil {
					t.Errorf("%s with byte %d changed, %d bytes in: %v", tt.name, j, i, got)
				}
			}
		}
	}
	if s390xLost(around(nil, []byte{0x0a, 0x77})) || !s390xLost(around(nil, []byte{0x0a, 0x07})) {
		t.Error("svc 7 alone is restart_syscall")
	}
}

// reads is memory that counts what it is asked for.
type reads struct {
	low, high uint64 // readable
	asked     [][2]uint64
}

func (r *reads) ReadAt(b []byte, addr int64) (int, error) {
	r.asked = append(r.asked, [2]uint64{uint64(addr), uint64(len(b))})
	a := uint64(addr)
	if a < r.low || a >= r.high {
		return 0, errors.New("not there")
	}
	n := min(uint64(len(b)), r.high-a)
	for i := range n {
		b[i] = byte(a + i)
	}
	return int(n), nil
}

// TestFar: words beyond the copy: in the further copies, then read in blocks, then alone.
func TestFar(t *testing.T) {
	words := func(from uint64) uint64 {
		var b [8]byte
		for i := range b {
			b[i] = byte(from + uint64(i))
		}
		return binary.LittleEndian.Uint64(b[:])
	}
	var m Memory
	m.Reset(0x1000, make([]byte, 16), nil)
	if _, err := m.Word(regs.AMD64, 0x1010); err == nil || m.UsedMore {
		t.Error("read behind the copy")
	}
	if _, err := m.Word(regs.AMD64, 0x1009); err == nil {
		t.Error("read over its end")
	}
	if _, err := m.Word(regs.AMD64, 0x1008); err != nil {
		t.Error(err)
	}
	m.Also = []Region{{Addr: 0x5000, Bytes: make([]byte, 8)}, {Addr: 0x5004, Bytes: []byte{1, 0, 0, 0, 0, 0, 0, 0, 0}}}
	if v, err := m.Word(regs.AMD64, 0x5004); err != nil || v != 1 {
		t.Errorf("in the second of two copies: %#x, %v", v, err)
	}
	r := &reads{low: 0x10000, high: 0x20000}
	m.Reset(0x1000, nil, r)
	for _, addr := range []uint64{0x10108, 0x10100, 0x10200, 0x1ffc0, 0x1fff8} {
		if v, err := m.Word(regs.AMD64, addr); err != nil || v != words(addr) || !m.UsedMore {
			t.Errorf("%#x: %#x, %v, want %#x", addr, v, err, words(addr))
		}
	}
	if len(r.asked) != 2 || r.asked[0] != [2]uint64{0x10100, blockBytes} || r.asked[1] != [2]uint64{0x1ff00, blockBytes} {
		t.Errorf("asked for %#x, want two blocks that begin at multiples of 256", r.asked)
	}
	r.asked = nil
	// A block that begins where nothing can be read: the word alone.
	r.low = 0x10108
	m.Reset(0x1000, nil, r)
	if v, err := m.Word(regs.AMD64, 0x10108); err != nil || v != words(0x10108) || len(r.asked) != 2 || r.asked[1] != [2]uint64{0x10108, 8} {
		t.Errorf("%#x, %v, asked for %#x", v, err, r.asked)
	}
	for _, addr := range []uint64{0x1fffc, 0x20000, 1<<63 - 8, 1<<63 - 7, 1 << 63, 1<<64 - 8, 1<<64 - 4} {
		n := len(r.asked)
		if v, err := m.Word(regs.AMD64, addr); err == nil {
			t.Errorf("%#x: %#x", addr, v)
		}
		// A ReaderAt takes offsets below 1<<63.
		if asks := len(r.asked) > n; asks != (addr+8 <= 1<<63-1 && addr+8 > addr) {
			t.Errorf("%#x: asked %v", addr, asks)
		}
	}
}
