package code

import (
	"encoding/hex"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// flat is code at an address.
type flat struct {
	at   uint64
	code []byte
}

func (f flat) read(addr uint64, b []byte) int {
	if addr < f.at || addr >= f.at+uint64(len(f.code)) {
		return 0
	}
	return copy(b, f.code[addr-f.at:])
}

func fromReg(r uint8, off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromReg, Reg: r, Offset: off}
}

func atCFA(off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: off}
}

// TestFollowX86 narrates what is special on x86-64. All code lies at 0x1000.
func TestFollowX86(t *testing.T) {
	const sp, fp = 7, 6
	tests := []struct {
		name, code string
		from       uint64
		caller     bool
		cfa        sframe.Rule
		err        error
	}{
		// push rbx; sub rsp,0x10; add rsp,0x10; pop rbx; ret
		{"entry", "53 4883ec10 4883c410 5b c3", 0x1000, false, fromReg(sp, 8), nil},
		{"body", "53 4883ec10 4883c410 5b c3", 0x1005, false, fromReg(sp, 32), nil},
		{"at-ret", "53 4883ec10 4883c410 5b c3", 0x100a, false, fromReg(sp, 8), nil},
		// leave; ret
		{"frame-pointer", "c9 c3", 0x1000, false, fromReg(fp, 16), nil},
		// push rbp; mov rbp,rsp; and rsp,-32; leave; ret
		{"realigned", "55 4889e5 4883e4e0 c9 c3", 0x1001, false, fromReg(sp, 16), nil},
		// test eax,eax; je 1f; push rbx; pop rbx; 1: ret
		{"two-arms", "85c0 7402 53 5b c3", 0x1000, false, fromReg(sp, 8), nil},
		// pop rax; call *rcx; add rsp,8; ret: what is behind a call is followed
		{"call", "58 ffd1 4883c408 c3", 0x1000, false, fromReg(sp, 24), nil},
		// je 1f; add rsp,8; ret; 1: add rsp,16; ret
		{"disagree", "7405 4883c408 c3 4883c410 c3", 0x1000, false, sframe.Rule{}, ErrDisagree},
		// 1: jmp 1b
		{"circle", "ebfe", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// 1: push rax; jmp 1b
		{"endless-push", "50 ebfd", 0x1000, false, sframe.Rule{}, ErrDisagree},
		// jmp *rax
		{"anywhere", "ffe0", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// lea rax,[rip+1]; jmp *rax; ud2-byte; ret
		{"known-register", "488d0503000000 ffe0 cc c3", 0x1000, false, fromReg(sp, 8), nil},
		// add rsp,-8; ret: nothing that lies below the stack pointer is returned to
		{"below", "4883c4f8 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// push rax; ret: a jump
		{"push-ret", "50 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// jl 1f; add rsp,0x28; ret; 1: call, which does not return; sub rsp,0x58; add rsp,0x58; ret, of another function (Mono)
		{"throws", "7c05 4883c428 c3 e800000000 4883ec58 4883c458 c3", 0x1000, true, fromReg(sp, 48), nil},
		// Behind a call, endbr64 begins another function.
		{"noreturn", "f30f1efa c3", 0x1000, true, sframe.Rule{}, ErrNoReturn},
		// call; zeros; pop rbx; ret: what follows is another function
		{"zeros", "e800000100 00000000 5b c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// vmovdqu [rsp+r12*8+0x10],xmm0; add rsp,0x18; ret: where that is is not known
		{"an index of a high number", "c4a17a7f44e410 4883c418 c3", 0x1000, false, fromReg(sp, 32), nil},
		// mov [reg],eax for rdi, rsi, rdx, rcx, r8, r9; push rbx; pop rbx; ret: x264's loops write through as many
		{"many-stores", "8907 8906 8902 8901 418900 418901 53 5b c3", 0x1000, false, fromReg(sp, 8), nil},
		// mov [reg],eax for nine others than rsp, push rax; mov [rsp],rax; pop rax; ret: of the tenth nothing is known
		{"too-many-stores", "8907 8906 8902 8901 418900 418901 418902 418903 8903 53 890424 5b c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// vpsadbw ymm20,ymm20,ymm23; vpaddd ymm4,ymm4,ymm4; ret: no general registers
		{"sums-of-vectors", "62a15d20f6e7 c5ddfee4 c3", 0x1000, false, fromReg(sp, 8), nil},
		// andn esp,esp,eax; ret: one that is
		{"bmi", "c4e258f2e0 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// vmovq xmm4,[rdx+rcx*2]; vpextrd [rax+r10],xmm4,1; vpbroadcastq xmm4{k1},[rdx+r9]; kxnorb k1,k1,k1; vcvttps2dq xmm4,xmm0;
		// vcvttps2udq xmm4,xmm0; blsi eax,esp; ret: number 4 is the stack pointer in none of them
		{"fours", "c5fa7e244a c4a37916241001 62b2fd0959240a c5f546c9 c5fa5be0 62f17c0878e0 c4e278f3dc c3", 0x1000, false, fromReg(sp, 8), nil},
		// vmovd esp,xmm4 and so on; ret: in these it is
		{"vmovd", "c5f97ee4 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		{"vpextrd", "c4e37916cc01 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		{"blsi", "c4e258f3d8 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		{"mulx", "c4e273f6e0 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		{"vmovmskps", "c5f850e0 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		{"vcvttss2si", "c5fa2ce0 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// vmovdqa [rsp+0x10],xmm0 or ymm0; add rsp,0x20; ret: 16 bytes reach to the return address, 32 over it
		{"below-return", "c5f97f442410 4883c420 c3", 0x1000, false, fromReg(sp, 40), nil},
		{"over-return", "c5fd7f442410 4883c420 c3", 0x1000, false, sframe.Rule{}, ErrNoReturn},
		// vmovhps [rsp+0x10],xmm0; add rsp,0x18; ret: 8 bytes
		{"half", "c5f817442410 4883c418 c3", 0x1000, false, fromReg(sp, 32), nil},
		// vmovaps ymm6,[rsp+0x20]; vmovaps [rsp],ymm6; vzeroupper; add rsp,0x40; ret
		{"vectors", "c5fc28742420 c5fc293424 c5f877 4883c440 c3", 0x1000, false, fromReg(sp, 72), nil},
	}
	for _, tt := range tests {
		b, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		row, err := Follow(regs.AMD64, Place{PC: tt.from, Caller: tt.caller}, flat{0x1000, b}.read)
		if err != tt.err || err == nil && (row.CFA != tt.cfa || row.RA != atCFA(-8)) {
			t.Errorf("%s: %+v, %v; want CFA %+v, %v", tt.name, row, err, tt.cfa, tt.err)
		}
	}
}

// TestStub: behind padding begins what goes on elsewhere: mov rax,rdi; mov rdi,rsi; mov rsi,rdx; jmp [rax+0x10].
func TestStub(t *testing.T) {
	const pad, ints, stub = "0000000000000000", "cccccccccccccccc", "4889f8 4889f7 4889d6 ff6010"
	for _, tt := range []struct {
		name, code string // from 0x1008
		from       uint64
		want       bool
	}{
		{"begins", pad + stub, 0x1010, true},
		{"second", pad + stub, 0x1013, true},
		{"at the jump", pad + stub, 0x1019, true},
		{"behind int3", ints + stub, 0x1013, true},
		{"through a register", pad + "4889f7 41ffe3", 0x1013, true},
		{"it writes the frame pointer", pad + "4883c508 ff6500", 0x1010, false},
		{"in an instruction", pad + stub, 0x1014, false},
		{"no padding", "90909090 90909090" + stub, 0x1013, false},
		{"too little", "90000000 00000000" + stub, 0x1013, false},
		{"mixed", "00000000 cccccccc" + stub, 0x1013, false},
		{"it has pushed", pad + "53 4889f7 ff6010", 0x1014, false},
		{"it pushes later", pad + "4889f7 53 ff6010", 0x1010, false},
		{"it writes to the stack", pad + "48893424 ff6010", 0x1014, false},
		{"it branches", pad + "4885f6 7402 ff6010 ff6018", 0x1010, false},
		{"a table", pad + "4889f7 ff24c8", 0x1010, false},
		{"it ends by a trap", pad + "4889f7 0f0b", 0x1010, false},
		{"it calls", pad + "4889f7 ff5010 ff6010", 0x1010, false},
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(tt.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		row, err := Follow(regs.AMD64, Place{PC: tt.from}, flat{0x1008, append(b, make([]byte, 16)...)}.read)
		if got := err == nil && row.CFA == fromReg(7, 8) && row.RA == atCFA(-8) && row.Keep == regs.AMD64.CalleeSaved&^(1<<6); got != tt.want || tt.want == (err != nil) {
			t.Errorf("%s: %+v, %v; want a row: %t", tt.name, row, err, tt.want)
		}
	}
	// mov rbx,rdi; jmp [rbx]: before the first instruction rbx is the caller's, then not.
	for pc, want := range map[uint64]bool{0x1010: true, 0x1013: false} {
		row, err := Follow(regs.AMD64, Place{PC: pc}, flat{0x1008, append(make([]byte, 8), 0x48, 0x89, 0xfb, 0xff, 0x23, 0, 0, 0, 0, 0, 0)}.read)
		if err != nil || row.Keep>>3&1 != 0 != want {
			t.Errorf("%#x: %+v, %v; want rbx to be kept: %t", pc, row, err, want)
		}
	}
	if row, err := Follow(regs.AMD64, Place{PC: 0x1013, Caller: true}, flat{0x1008, append(make([]byte, 8), 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0x60, 0x10)}.read); err == nil {
		t.Errorf("behind a call: %+v", row)
	}
}

// TestStraight: push rbp; mov rbp,rsp; je +2; call; nop; ret; nop: to the instruction behind the return nothing leads by itself.
func TestStraight(t *testing.T) {
	code := flat{0x1000, []byte{0x55, 0x48, 0x89, 0xe5, 0x74, 2, 0xe8, 0, 1, 0, 0, 0x90, 0xc3, 0x90}}
	for pc, want := range map[uint64]bool{0x1000: true, 0x1002: true, 0x100a: true, 0x100b: true, 0x100c: true, 0x100d: false, 0xfff: false, 0x1000 + maxStraight + 1: false} {
		if got := Straight(regs.AMD64, 0x1000, pc, code.read); got != want {
			t.Errorf("%#x: %t, want %t", pc, got, want)
		}
	}
	if Straight(regs.AMD64, 0x1000, 0x1040, flat{0x1000, make([]byte, 0x200)}.read) || Straight(regs.ARM64, 0x1000, 0x1004, code.read) {
		t.Error("over padding, or on arm64: yes")
	}
}

// TestThroughMemory: which calls go to an address in memory: call [rax], [rax+8], [rip+8], [rax+rcx*8], [rax+rcx*8+8], [rax+0x100].
func TestThroughMemory(t *testing.T) {
	for code, want := range map[string]bool{
		"ff10": true, "ff5008": true, "ff1508000000": true, "ff14c8": true, "ff54c808": true, "ff9000010000": true, "ff94c800010000": true,
		"ffd0": false, "e800000000": false, "ff6010": false, "ff5010c3": false, "ff9000010000c3": false, "ff30": false,
	} {
		b, err := hex.DecodeString("90909090909090" + code)
		if err != nil {
			t.Fatal(err)
		}
		if got := ThroughMemory(0x1000+uint64(len(b)), flat{0x1000, b}.read); got != want {
			t.Errorf("%s: %t, want %t", code, got, want)
		}
	}
	if ThroughMemory(0x1002, flat{0x1000, []byte{0xff, 0x10}}.read) {
		t.Error("a call without enough in front of it: yes")
	}
}

// TestPadded: behind the nearest padding, at a multiple of 16, as far as it is looked for.
func TestPadded(t *testing.T) {
	code := make([]byte, 4*maxPadded)
	for i := range code {
		code[i] = 0x90
	}
	clear(code[0x18:0x20])                                  // the start 0x20
	clear(code[0x3c:0x44])                                  // not at a multiple
	copy(code[0x58:], "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc")   // the start 0x60
	copy(code[0x3008:], "\x90\x90\x90\xc3\x00\x00\x00\x00") // behind a ret
	copy(code[0x3028:], "\x90\x90\x90\x90\xc3\x00\x00\x00") // as in a constant
	copy(code[0x3048:], "\x90\x90\x90\x90\x00\x00\x00\x00") // behind none
	for pc, want := range map[uint64]uint64{0x3010: 0x3010, 0x3018: 0x3010, 0x3030: 0x3010, 0x3050: 0x3010, 0x20: 0x20, 0x21: 0x20, 0x5f: 0x20, 0x60: 0x60, 0x60 + maxPadded: 0x60, 0x60 + maxPadded + 16: 0, 0x18: 0} {
		if got, ok := Padded(0x10000+pc, flat{0x10000, code}.read); ok != (want != 0) || ok && got != 0x10000+want {
			t.Errorf("%#x: %#x, %t; want %#x", pc, got, ok, want)
		}
	}
}

// TestCalled: a function that never returns, 48 bytes below its entry: push rbx;
// push rbp; xor ebx,ebx; xor ebp,ebp; sub rsp,0x18; call; jmp to the call.
func TestCalled(t *testing.T) {
	code := flat{0x1000, []byte{0x53, 0x55, 0x31, 0xdb, 0x31, 0xed, 0x48, 0x83, 0xec, 0x18, 0xe8, 0, 1, 0, 0, 0xeb, 0xf9}}
	row, err := Called(regs.AMD64, 0x1000, Place{PC: 0x100f}, code.read)
	if err != nil || row.CFA != fromReg(7, 48) || row.RA != atCFA(-8) || row.FP != atCFA(-24) ||
		len(row.Saved) != 1 || row.Saved[0] != (sframe.SavedRule{Reg: 3, Rule: atCFA(-16)}) {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := Called(regs.AMD64, 0x1001, Place{PC: 0x2000}, code.read); err == nil {
		t.Error("a way was found to where none leads")
	}
}

// FuzzFollow: whatever bytes there are, the answer is a row or an error, after a
// bounded number of reads.
func FuzzFollow(f *testing.F) {
	f.Add(uint8(0), []byte{0x53, 0x5b, 0xc3}, uint16(0))
	f.Add(uint8(1), []byte{0xe8, 0, 0, 0, 0, 0x5b, 0xc3}, uint16(0))
	f.Add(uint8(2), []byte{0xfd, 0x7b, 0xc1, 0xa8, 0xc0, 0x03, 0x5f, 0xd6}, uint16(0))
	f.Add(uint8(3), []byte{0xeb, 0xbf, 0xf1, 0x10, 0, 0x04, 0x07, 0xfe}, uint16(0))
	list := []*regs.Arch{regs.AMD64, regs.I386, regs.ARM64, regs.S390X}
	f.Fuzz(func(t *testing.T, arch uint8, code []byte, from uint16) {
		a := list[int(arch)%len(list)]
		reads := 0
		read := func(addr uint64, b []byte) int {
			if reads++; reads > 4*maxInsns {
				t.Fatalf("%d reads", reads)
			}
			return flat{0x1000, code}.read(addr, b)
		}
		pc := 0x1000 + uint64(from)
		for _, caller := range []bool{false, true} {
			row, err := Follow(a, Place{PC: pc, Caller: caller}, read)
			if (row == nil) == (err == nil) {
				t.Fatalf("row %v and error %v", row, err)
			}
			reads = 0
		}
		if row, err := Called(a, 0x1000, Place{PC: pc}, read); (row == nil) == (err == nil) {
			t.Fatalf("row %v and error %v", row, err)
		}
		Target(a, pc, read)
		reads = -8 * maxInsns // as many tries
		if start, ok := Start(a, pc, read); ok && start > pc {
			t.Fatalf("%#x begins at %#x", pc, start)
		}
	})
}

// TestFollowI386Memcpy follows a piece of glibc 2.36's memcpy for i386, whose table does not know of its push:
// push eax; mov eax,ecx; shr ecx,2; and eax,3; rep movsd; mov ecx,eax; rep movsb; pop eax; mov edi,eax;
// mov esi,edx; mov eax,[esp+4]; ret.
func TestFollowI386Memcpy(t *testing.T) {
	code, err := hex.DecodeString("5089c8c1e90283e003f3a589c1f3a45889c789d68b442404c3")
	if err != nil {
		t.Fatal(err)
	}
	for pc, want := range map[uint64]int32{0x1000: 4, 0x1001: 8, 0x1009: 8, 0x100d: 8, 0x100f: 8, 0x1010: 4, 0x1018: 4} {
		row, err := Follow(regs.I386, Place{PC: pc}, flat{0x1000, code}.read)
		if err != nil || row.CFA != fromReg(regs.I386.SP, want) || row.RA != atCFA(-4) {
			t.Errorf("%#x: %+v, %v; want the CFA at esp+%d", pc, row, err, want)
		}
	}
}
