package unwind

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sfsample/regs"
	"sfsample/sframe"
)

// around is a window with these bytes before an address and from it on.
func around(before, ahead []byte) *window {
	w := &window{before: len(before), after: len(ahead)}
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

// TestS390XInsns: what the instructions of prologues are, each given to the function as a disassembler has it. Encodings:
// "z/Architecture Principles of Operation", chapter 7; displacements are 12 bits, or 20 with the high 8 last.
func TestS390XInsns(t *testing.T) {
	for _, tt := range []struct {
		name    string
		is      func([]byte) bool
		yes, no []string
	}{
		{"store of the link", s390xIsStore,
			[]string{"eb6ff0300024", "ebbff0580024", "ebeff0700024"}, // stmg %r6,%r15,48(%r15); %r11, 88; %r14, 112
			[]string{
				"ebfff0780024", "eb6ef0300024", "eb6fe0300024", "eb6ff0380024", "eb6ff1300024", "eb6ff0300124", // r15 alone; up to r14; at r14; other distances
				"eb6ff0300004", "e36ff0300024", "906ff030", // lmg; stg; stm
			}},
		{"lower r15", s390xLowersSP,
			[]string{"a7fbff60", "c2f8ffffff60", "c2f4000000a0", "e3f0ff60ff71"}, // aghi, agfi, slgfi, lay
			[]string{
				"a7fb00a0", "a7fb0100", "a7ebff60", "a7fafff0", "a6fbff60", "5810f0a0", // raised; r14; ahi; another; l
				"c2f8000000a0", "c2f801000000", "c2e8ffffff60", "c2f9ffffff60", "c0f8ffffff60", "a7f8ff60", // raised; r14; afi; iihf; lhi
				"c2e4000000a0", "c0f4000000a0", "c2f5000000a0", // slgfi %r14; jg; slfi
				"e3f0f0a00071", "e3f0f0000171", "e3f0ef60ff71", "e3e0ff60ff71", "e3f1ff60ff71", "e3f0ff60ff04", "ebf0ff60ff71", // raised; of r14; to r14; with r1; lg; another
			}},
		{"branch", s390xBranches,
			[]string{
				"05e1", "0610", "078e", "0c10", "0de1", // balr, bctr, bcr, bassm, basr
				"45e01000", "46101000", "47801000", "4de01000", "84120002", "85120002", "86121000", "87121000", // bal, bct, bc, bas, brxh, brxle, bxh, bxle
				"a7840002", "a7e50002", "a7160002", "a7170002", "c08400000002", "c0e500000002", // brc, bras, brct, brctg, brcl, brasl
				"ec1200020044", "ec1200020045", "ec1200028064", "ec1200028065", "ec1200028076", "ec1200028077", // brxhg, brxlg, cgrj, clgrj, crj, clrj
				"ec180002057c", "ec180002057d", "ec180002057e", "ec180002057f", // cgij, clgij, cij, clij
				"ec12100080e4", "ec12100080e5", "ec12100080f6", "ec12100080f7", // cgrb, clgrb, crb, clrb
				"ec18100005fc", "ec18100005fd", "ec18100005fe", "ec18100005ff", // cgib, clgib, cib, clib
			},
			[]string{
				"0410", "1801", "44101000", "4e101000", "83121000", "88101000", "5810f0a0", // spm, lr, ex, cvd, diag, srl, l
				"a7130001", "a7180001", "a71b0001", "c01000000002", "c01600000002", "c0f700000002", "c21400000002", // tmhl, lhi, aghi, larl, xihf, xilf, slgfi
				"ec1200008054", "ec12000100d8", "ec1200008055", // rnsbg, ahik, risbg
			}},
	} {
		for i, codes := range [][]string{tt.no, tt.yes} {
			for _, code := range codes {
				b, err := hex.DecodeString(code)
				if err != nil || len(b) != s390xInsnBytes(b[0]) {
					t.Fatalf("%s: %s is no instruction", tt.name, code)
				}
				if got := tt.is(b); got != (i == 1) {
					t.Errorf("%s: %s: %v", tt.name, code, got)
				}
			}
		}
	}
}

// TestS390XInnermost: a store of the link and a lowering of r15 behind it make a prologue, and what stands between them is no branch.
func TestS390XInnermost(t *testing.T) {
	const (
		store, lower, raise = "eb6ff0300024", "a7fbff60", "a7fb00a0"
		lr, lgr, br, ber    = "1801", "b904001f", "07fe", "078e"
	)
	for _, tt := range []struct {
		name          string
		before, ahead string
		want          *sframe.Row
	}{
		{"return", "", br, s390xEntry},
		{"return elsewhere", "", "07f1", nil},
		{"at the store", "", store + lower, s390xEntry},
		{"behind the store", store, lower, s390xEntry},
		{"behind the chain", store + lgr, lower, s390xEntry},
		{"behind another", store + lr + lr, lower, nil},
		{"with agfi", store, "c2f8ffffff60", s390xEntry},
		{"with lay", store, "e3f0ff60ff71", s390xEntry},
		{"with slgfi", store, "c2f4000000a0", s390xEntry},
		{"eighth", store, strings.Repeat(lr, 7) + lower, s390xEntry},
		{"ninth", store, strings.Repeat(lr, 8) + lower, nil},
		{"raised first", store, raise + lower, s390xEntry},
		{"branch between", store, ber + lower, nil},
		{"no store", "", lower, nil},
		{"no store, later", "", lower + store + lower, nil},
		{"no lowering", "", store + lr, nil},
		{"cut", store, lr + "c2f8ffffff", nil},
		{"one byte", store, "c2", nil},
		{"nothing", store, "", nil},
	} {
		before, _ := hex.DecodeString(tt.before)
		ahead, _ := hex.DecodeString(tt.ahead)
		if got := s390xInnermost(around(before, ahead)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestArm64Rows: the row of an innermost frame by the instructions before it and from it on. Encodings: "Arm Architecture Reference
// Manual for A-profile", C6.2; Go's: cmd/internal/obj/arm64/obj7.go.
func TestArm64Rows(t *testing.T) {
	const (
		push, up, zero, pop = 0xa9bd7bfd, 0xa9837bfd, 0xa9807bfd, 0xa8c37bfd // stp x29, x30, [sp, #-48]!; #48; #0; ldp x29, x30, [sp], #48
		str, strUp, stur    = 0xf81d0ffe, 0xf8030ffe, 0xf81d03fe             // str x30, [sp, #-48]!; #48; stur x30, [sp, #-48]
		nop                 = 0xd503201f
	)
	none, entry := sframe.Row{}, sframe.Row{CFA: fromReg(31, 0)}
	size48 := sframe.Row{CFA: fromReg(31, 48), RA: atCFA(-48)}
	for _, tt := range []struct {
		name          string
		before, ahead []byte
		want          sframe.Row
	}{
		{"nothing", nil, nil, none},
		{"half an instruction", nil, le(arm64Ret)[:3], none},
		{"ret", nil, le(0xd65f03c0), entry},
		{"bti jc before ret", nil, le(0xd50324df, 0xd65f03c0), entry},
		{"bti c before ret", nil, le(0xd503245f, 0xd65f03c0), entry},
		{"bti j before ret", nil, le(0xd503249f, 0xd65f03c0), none}, // a label that is no function's
		{"paciasp before stp", nil, le(0xd503233f, push), entry},
		{"pacibsp before stp", nil, le(0xd503237f, push), entry},
		{"paciaz before stp", nil, le(0xd503231f, push), none},
		{"autiasp before ret", nil, le(0xd50323bf, 0xd65f03c0), entry},
		{"autibsp before ret", nil, le(0xd50323ff, 0xd65f03c0), entry},
		{"retaa", nil, le(0xd65f0bff), entry},
		{"retab", nil, le(0xd65f0fff), entry},
		{"ret x1", nil, le(0xd65f0020), none},
		{"br x17", nil, le(0xd61f0220), entry},
		{"br x16", nil, le(0xd61f0200), none},
		{"mov x29, sp", le(push), le(0x910003fd), sframe.Row{CFA: fromReg(31, 48), RA: atCFA(-40), FP: atCFA(-48)}},
		{"mov x28, sp", le(push), le(0x910003fc), none},
		{"Go's stur x29, [sp, #-8]", le(str), le(0xf81f83fd), size48},
		{"Go's end behind ldp x29, x30, [sp, #-8]", le(0xa97ffbfd), le(0x9100c3ff), sframe.Row{CFA: fromReg(31, 48)}},
		{"Go's sub x29, sp, #8", le(str, 0xf81f83fd), le(0xd10023fd), size48},
		{"nop before ret", nil, le(nop, arm64Ret), none},
		{"bti before ret", nil, le(arm64BTI, arm64Ret), entry},
		{"stp", nil, le(push), entry},
		{"stp by 512", nil, le(0xa9a07bfd), entry},
		{"stp upwards", nil, le(up), none},
		{"stp by nothing", nil, le(zero), none},
		{"ldp", nil, le(pop), none},
		{"mov behind stp", le(push), le(arm64MovFP), sframe.Row{CFA: fromReg(31, 48), RA: atCFA(-40), FP: atCFA(-48)}},
		{"mov behind stp upwards", le(up), le(arm64MovFP), none},
		{"mov behind stp by nothing", le(zero), le(arm64MovFP), none},
		{"mov behind nop", le(nop), le(arm64MovFP), none},
		{"mov behind nothing", nil, le(arm64MovFP), none},
		{"mov behind bti", le(push), le(arm64BTI, arm64MovFP), none},
		{"PLT entry", nil, le(0x90000010, 0xf9400211, 0x91000210, arm64BrX17), entry},
		{"PLT entry, far", nil, le(0xf0ffffF0, 0xf97ffe11, 0x913ffe10, arm64BrX17), entry},
		{"adrp x17", nil, le(0x90000011, arm64BrX17), none},
		{"ldr x16", nil, le(0xf9400210, arm64BrX17), none},
		{"ldr x17, [x17]", nil, le(0xf9400231, arm64BrX17), none},
		{"add x17", nil, le(0x91000211, arm64BrX17), none},
		{"adr x16", nil, le(0x10000010, arm64BrX17), none},
		{"Go's str", nil, le(str), entry},
		{"Go's str upwards", nil, le(strUp), none},
		{"stur", nil, le(stur), none},
		{"Go's stur behind str", le(str), le(arm64GoSaveFP), size48},
		{"Go's stur behind str upwards", le(strUp), le(arm64GoSaveFP), none},
		{"Go's stur behind nop", le(nop), le(arm64GoSaveFP), none},
		{"Go's stur behind nothing", nil, le(arm64GoSaveFP), none},
		{"Go's sub", le(str, arm64GoSaveFP), le(arm64GoSetFP), size48},
		{"Go's sub behind str", le(str), le(arm64GoSetFP), none},
		{"Go's sub behind nop", le(str, nop), le(arm64GoSetFP), none},
		{"nop behind Go's stur", le(str, arm64GoSaveFP), le(nop), none},
		{"Go's end", le(arm64GoRestore), le(0x9100c3ff), sframe.Row{CFA: fromReg(31, 48)}},
		{"Go's end, as much as may be", le(arm64GoRestore), le(0x913fffff), sframe.Row{CFA: fromReg(31, 4095)}},
		{"add behind nop", le(nop), le(0x9100c3ff), none},
		{"nop behind Go's ldp", le(arm64GoRestore), le(nop), none},
	} {
		var got sframe.Row
		if row := arm64Innermost(around(tt.before, tt.ahead)); row != nil {
			got = *row
		}
		if tt.want.Keep = arm64Entry.Keep; tt.want.CFA == none.CFA {
			tt.want = none
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// TestX86Rows: the row of an innermost frame by the bytes before it and from it on. Encodings: Intel SDM volume 2.
func TestX86Rows(t *testing.T) {
	for _, tt := range []struct {
		name          string
		arch          *regs.Arch
		before, ahead string // in hexadecimal
		words         int32  // between the stack pointer and the CFA; 0: no row
	}{
		{"nothing", regs.AMD64, "", "", 0}, {"endbr64 alone", regs.AMD64, "", "f30f1efa", 0}, {"endbr64, nop", regs.AMD64, "", "f30f1efa90", 0},
		{"endbr64, ret", regs.AMD64, "", "f30f1efac3", 0}, {"endbr32, push", regs.I386, "", "f30f1efb55", 1}, {"push", regs.AMD64, "", "55", 1},
		{"ret", regs.AMD64, "", "c3", 1}, {"ret 8", regs.AMD64, "", "c20800", 1}, {"repz ret", regs.AMD64, "", "f3c3", 1}, {"bnd ret", regs.AMD64, "", "f2c3", 1},
		{"repz", regs.AMD64, "", "f3", 0}, {"repz nop", regs.AMD64, "", "f390", 0}, {"lock ret", regs.AMD64, "", "f0c3", 0},
		{"pop, ret", regs.AMD64, "", "5dc3", 2}, {"pop", regs.AMD64, "", "5d", 0}, {"pop, nop", regs.AMD64, "", "5d90", 0},
		{"mov", regs.AMD64, "55", "4889e5", 2}, {"mov, the other way", regs.AMD64, "55", "488bec", 2}, {"mov behind nop", regs.AMD64, "90", "4889e5", 0},
		{"mov behind nothing", regs.AMD64, "", "4889e5", 0}, {"mov %ecx,%ebp", regs.AMD64, "55", "4889cd", 0}, {"mov %rbp,%rsp", regs.AMD64, "55", "4889ec", 0},
		{"mov (%rbp),%rsp", regs.AMD64, "55", "488be5", 0}, {"mov, cut", regs.AMD64, "55", "4889", 0}, {"mov of 32 bits", regs.AMD64, "55", "89e5", 0},
		{"mov", regs.I386, "55", "89e5", 2}, {"mov, the other way", regs.I386, "55", "8bec", 2}, {"mov of 64 bits", regs.I386, "55", "4889e5", 0},
		{"add %esp,%ebp", regs.I386, "55", "01e5", 0}, {"xor", regs.I386, "55", "33ec", 0},
		{"jmp *slot", regs.AMD64, "", "ff2501020304", 1}, {"bnd jmp *slot", regs.AMD64, "", "f2ff2501020304", 1}, {"jmp *slot, cut", regs.AMD64, "", "ff25010203", 0},
		{"call *slot", regs.AMD64, "", "ff1501020304", 0}, {"test %ah", regs.AMD64, "", "f62501020304", 0},
	} {
		before, _ := hex.DecodeString(tt.before)
		ahead, _ := hex.DecodeString(tt.ahead)
		row := conventions[tt.arch.Name].innermost(around(before, ahead))
		var got int32
		ws := int32(tt.arch.WordBytes)
		if row != nil {
			if got = row.CFA.Offset / ws; row.CFA != fromReg(tt.arch.SP, got*ws) || row.RA != atCFA(-ws) || (row.FP == atCFA(-2*ws)) != (got == 2) {
				t.Errorf("%s, %s: %+v", tt.arch.Name, tt.name, row)
			}
			// At its first and last instruction a function has changed no register.
			if kept := tt.arch.CalleeSaved &^ (1 << tt.arch.FP); got == 1 && row.Keep != kept || got == 2 && row.Keep != 0 {
				t.Errorf("%s, %s: keeps %#x of %#x", tt.arch.Name, tt.name, row.Keep, kept)
			}
		}
		if got != tt.words {
			t.Errorf("%s, %s: the CFA is %d words up, want %d", tt.arch.Name, tt.name, got, tt.words)
		}
	}
}

// TestX86Registers: the register that a call goes through, of those that calls preserve, and that of a jump. Intel SDM volume 2: ff /2 and
// ff /4 with a ModRM byte of mod 3, REX.B 41; numbers: System V ABI, AMD64 supplement, figure 3.36.
func TestX86Registers(t *testing.T) {
	const none = 0xff
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		code string
		jump bool
		want uint8
	}{
		{"call *%rbx", regs.AMD64, "90ffd3", false, 3}, {"call *%r11", regs.AMD64, "41ffd3", false, none}, {"call *%r12", regs.AMD64, "41ffd4", false, 12},
		{"call *%r13", regs.AMD64, "41ffd5", false, 13}, {"call *%r14", regs.AMD64, "41ffd6", false, 14}, {"call *%r15", regs.AMD64, "41ffd7", false, 15},
		{"call *%rdx", regs.AMD64, "90ffd2", false, none}, {"call *%rsp", regs.AMD64, "90ffd4", false, none}, {"lcall *(%r8)", regs.AMD64, "41ffd8", false, none},
		{"adc %ebx,%edx", regs.AMD64, "9011d3", false, none}, {"adc %r12d,%edx", regs.AMD64, "4111d4", false, none}, {"call *%ebx", regs.I386, "90ffd3", false, none},
		{"jmp *%rax", regs.AMD64, "ffe0", true, 0}, {"jmp *%rcx", regs.AMD64, "ffe1", true, 2}, {"jmp *%rdx", regs.AMD64, "ffe2", true, 1}, {"jmp *%rbx", regs.AMD64, "ffe3", true, 3},
		{"jmp *%rsp", regs.AMD64, "ffe4", true, 7}, {"jmp *%rbp", regs.AMD64, "ffe5", true, 6}, {"jmp *%rsi", regs.AMD64, "ffe6", true, 4}, {"jmp *%rdi", regs.AMD64, "ffe7", true, 5},
		{"jmp *%r8", regs.AMD64, "41ffe0", true, 8}, {"jmp *%r15", regs.AMD64, "41ffe7", true, 15}, {"notrack jmp *%r9", regs.AMD64, "3e41ffe1", true, 9},
		{"jmp *%eax", regs.I386, "ffe0", true, 0}, {"jmp *%ecx", regs.I386, "ffe1", true, 1}, {"jmp *%edi", regs.I386, "ffe7", true, 7}, {"notrack jmp *%edx", regs.I386, "3effe2", true, 2},
		{"inc %ecx; jmp *%eax", regs.I386, "41ffe0", true, none}, {"jmp *%rax, cut", regs.AMD64, "ff", true, none}, {"jmp *%r8, cut", regs.AMD64, "41ff", true, none},
		{"ljmp *(%rax)", regs.AMD64, "ff28", true, none}, {"call *%rax", regs.AMD64, "ffd0", true, none}, {"jmp *0x40(%rax)", regs.AMD64, "ff6040", true, none},
		{"loopne", regs.AMD64, "90e0", true, none}, {"nothing", regs.AMD64, "", true, none},
	} {
		code, _ := hex.DecodeString(tt.code)
		c := conventions[tt.arch.Name]
		got, ok := c.jumps(around(nil, code))
		if !tt.jump {
			got, ok = c.calls([3]byte(code))
		}
		if ok != (tt.want != none) || ok && got != tt.want {
			t.Errorf("%s, %s: register %d, %v; want %d", tt.arch.Name, tt.name, got, ok, tt.want)
		}
	}
}

// TestEntryKeeps: at its first instruction a function has changed none of the registers that calls preserve; the frame pointer has a
// rule of its own ([sframe.Row]).
func TestEntryKeeps(t *testing.T) {
	for _, a := range []*regs.Arch{regs.AMD64, regs.I386, regs.ARM64, regs.S390X} {
		row := conventions[a.Name].entry
		for n := range uint8(regs.NumRegs) {
			kept, want := row.Keep>>n&1 != 0, a.CalleeSaved>>n&1 != 0 && n != a.FP
			if kept != want || n == a.FP && row.FP.Base != sframe.Same {
				t.Errorf("%s: %s kept: %v, want %v; the frame pointer is %+v", a.Name, a.RegName(n), kept, want, row.FP)
			}
		}
	}
}

// TestWindow: the code around an address, at the ends of what is mapped too.
func TestWindow(t *testing.T) {
	code := make([]byte, 0x100)
	for i := range code {
		code[i] = byte(i)
	}
	s := &space{mapped: [][2]uint64{{0x1000, 0x1100}}, code: map[uint64][]byte{0x1000: code}}
	var w window
	for _, tt := range []struct{ pc, before, after int }{
		{0x80, windowBefore, windowAfter}, {0x108, 0, 0}, {0x10, windowBefore, windowAfter}, {0, 0, windowAfter}, {8, 0, windowAfter}, {0xf0, windowBefore, 16}, {0x100, windowBefore, 0}, {0x108, 0, 0},
	} {
		w.read(s, 0x1000+uint64(tt.pc))
		if !bytes.Equal(w.behind(), code[min(tt.pc, 0x100)-tt.before:min(tt.pc, 0x100)]) || !bytes.Equal(w.ahead(), code[min(tt.pc, 0x100):min(tt.pc, 0x100)+tt.after]) {
			t.Errorf("%#x: % x before, % x ahead; want %d and %d bytes", tt.pc, w.behind(), w.ahead(), tt.before, tt.after)
		}
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
	for _, addr := range []uint64{0x10108, 0x10100, 0x10200, 0x1fff8, 0x1ffc0} {
		if v, err := m.Word(regs.AMD64, addr); err != nil || v != words(addr) || !m.UsedMore {
			t.Errorf("%#x: %#x, %v, want %#x", addr, v, err, words(addr))
		}
	}
	if len(r.asked) != 2 || r.asked[0] != [2]uint64{0x10100, blockBytes} || r.asked[1] != [2]uint64{0x1ff00, blockBytes} {
		t.Errorf("asked for %#x, want two blocks that begin at multiples of 256", r.asked)
	}
	zeros := readerFunc(func(p []byte, _ int64) (int, error) { clear(p); return len(p), nil })
	if m.Reset(0x1000, nil, zeros); m.UsedMore {
		t.Error("memory was read before anything was asked for")
	}
	if v, err := m.Word(regs.AMD64, 0x1ffc0); v != 0 || err != nil {
		t.Errorf("a word of the process before: %#x, %v", v, err)
	}
	r.asked = nil
	// A block that begins where nothing can be read: the word alone.
	r.low = 0x10108
	m.Reset(0x1000, nil, r)
	if v, err := m.Word(regs.AMD64, 0x10108); err != nil || v != words(0x10108) || len(r.asked) != 2 || r.asked[1] != [2]uint64{0x10108, 8} {
		t.Errorf("%#x, %v, asked for %#x", v, err, r.asked)
	}
	for _, addr := range []uint64{0x1fffc, 0x20000, 1<<63 - 9, 1<<63 - 8, 1<<63 - 7, 1 << 63, 1<<64 - 8, 1<<64 - 4} {
		n := len(r.asked)
		if addr == 0x20000 {
			if b, r := m.bytes(addr, 1); r == 0 {
				t.Errorf("%#x: % x", addr, b)
			}
			n = len(r.asked)
		}
		if v, err := m.Word(regs.AMD64, addr); err == nil {
			t.Errorf("%#x: %#x", addr, v)
		}
		// A ReaderAt takes offsets below 1<<63.
		if asks := len(r.asked) > n; asks != (addr+8 <= 1<<63-1 && addr+8 > addr) {
			t.Errorf("%#x: asked %v", addr, asks)
		}
	}
}
