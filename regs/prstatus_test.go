package regs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// The notes as the kernel's headers lay them out, field by field.

// userRegs is struct user_regs_struct (arch/x86/include/asm/user_64.h).
type userRegs struct {
	R15, R14, R13, R12, RBP, RBX, R11, R10, R9, R8, RAX, RCX, RDX, RSI, RDI uint64
	OrigRAX, RIP, CS, Flags, RSP, SS, FSBase, GSBase, DS, ES, FS, GS        uint64
}

// userRegs32 is struct user_regs_struct32 (arch/x86/include/asm/user32.h).
type userRegs32 struct {
	EBX, ECX, EDX, ESI, EDI, EBP, EAX  uint32
	DS, DS2, ES, ES2, FS, FS2, GS, GS2 uint16
	OrigEAX, EIP                       uint32
	CS, CS2                            uint16
	EFlags, ESP                        uint32
	SS, SS2                            uint16
}

// userPtRegs is struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h).
type userPtRegs struct {
	Regs           [31]uint64
	SP, PC, PState uint64
}

// armRegs is struct pt_regs of arm (arch/arm/include/uapi/asm/ptrace.h): r0–r15,
// cpsr, and r0 at the entry of a system call.
type armRegs struct {
	R      [16]uint32
	CPSR   uint32
	OrigR0 uint32
}

// s390Regs is s390_regs (arch/s390/include/uapi/asm/ptrace.h).
type s390Regs struct {
	Mask, Addr uint64
	GPRs       [16]uint64
	ACRs       [16]uint32
	OrigGPR2   uint64
}

// s390CompatRegs is s390_compat_regs (arch/s390/include/asm/compat.h), which is
// padded because its PSW is aligned to 8 bytes.
type s390CompatRegs struct {
	Mask, Addr uint32
	GPRs       [16]uint32
	ACRs       [16]uint32
	OrigGPR2   uint32
	Pad        uint32
}

func note(t *testing.T, order binary.ByteOrder, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := binary.Write(&b, order, v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// named lists the registers of a set by name, and the PC.
func named(a *Arch, s *Set) map[string]uint64 {
	m := map[string]uint64{"pc": s.PC}
	for n := range uint8(NumRegs) {
		if v, ok := s.Reg(n); ok {
			m[a.RegName(n)] = v
		}
	}
	return m
}

func TestPrstatus(t *testing.T) {
	amd := userRegs{15, 14, 13, 12, 106, 103, 11, 10, 9, 8, 1<<64 - 512, 102, 104, 105, 107, 232, 0x401000, 0x33, 0x246, 0x7ffc, 0x2b, 1, 2, 3, 4, 5, 6}
	amdRegs := map[string]uint64{"pc": 0x401000, "rsp": 0x7ffc, "rax": 1<<64 - 512, "rbx": 103, "rcx": 102, "rdx": 104,
		"rsi": 105, "rdi": 107, "rbp": 106, "r8": 8, "r9": 9, "r10": 10, "r11": 11, "r12": 12, "r13": 13, "r14": 14, "r15": 15}
	long := amd
	long.CS = 0x23

	i386 := userRegs32{EBX: 1, ECX: 2, EDX: 3, ESI: 4, EDI: 5, EBP: 6, EAX: 0xffff_fe00, DS: 90, DS2: 91, ES: 92, ES2: 93, FS: 94, FS2: 95, GS: 96, GS2: 97,
		OrigEAX: 162, EIP: 0x8048000, CS: 0x23, CS2: 0xffff, EFlags: 0x246, ESP: 0xffffd000, SS: 0x2b, SS2: 98}
	i386Regs := map[string]uint64{"pc": 0x8048000, "esp": 0xffffd000, "eax": 0xffff_fe00, "ebx": 1, "ecx": 2, "edx": 3, "esi": 4, "edi": 5, "ebp": 6}
	none, v86, far := i386, i386, i386
	none.OrigEAX = 0xffffffff
	v86.EFlags |= 1 << 17
	far.CS = 0x73

	var arm userPtRegs
	armNames := map[string]uint64{"pc": 0x400800, "sp": 0xffff0000}
	arm.SP, arm.PC, arm.PState = 0xffff0000, 0x400800, 77
	for n := range arm.Regs {
		arm.Regs[n] = uint64(1000 + n)
		armNames[fmt.Sprintf("x%d", n)] = uint64(1000 + n)
	}
	arm.Regs[0] = 1<<64 - 4
	armNames["x0"] = 1<<64 - 4
	var arm32 armRegs
	for n := range arm32.R {
		arm32.R[n] = uint32(2000 + n)
	}

	var s390 s390Regs
	var s31 s390CompatRegs
	sNames := map[string]uint64{"pc": 0x2aa00001000}
	s390.Mask, s390.Addr, s390.OrigGPR2 = 0x0705_0001_8000_0000, 0x2aa00001000, 3
	for n := range s390.GPRs {
		s390.GPRs[n] = uint64(3000 + n)
		sNames[fmt.Sprintf("r%d", n)] = uint64(3000 + n)
		s31.GPRs[n] = uint32(4000 + n)
	}
	s390.GPRs[2] = 1<<64 - 512
	sNames["r2"] = 1<<64 - 512
	s31.Addr, s31.GPRs[15] = 0xc040_1001, 0xff00_0001
	// A 64-bit note of a thread in 31-bit mode: only the basic bit is set.
	mode31 := s390
	mode31.Mask, mode31.Addr = 0x0705_0000_8000_0000, 0xc040_1001
	mode31Names := map[string]uint64{}
	for k, v := range sNames {
		mode31Names[k] = v
	}
	mode31Names["pc"] = 0x4040_1001
	mode24 := mode31
	mode24.Mask = 0x0705_0000_0000_0000

	le, be := binary.LittleEndian, binary.BigEndian
	for _, tt := range []struct {
		name  string
		host  string
		note  []byte
		arch  *Arch
		regs  map[string]uint64
		call  int64
		ret   int64
		limit string
	}{
		{"amd64", "amd64", note(t, le, amd), AMD64, amdRegs, 232, -512, ""},
		{"amd64/other code segment", "amd64", note(t, le, long), AMD64, amdRegs, 232, -512, "segmented code (cs 0x23)"},
		{"386", "amd64", note(t, le, i386), I386, i386Regs, 162, -512, ""},
		{"386/in no system call", "amd64", note(t, le, none), I386, i386Regs, -1, -512, ""},
		{"386/virtual-8086 mode", "amd64", note(t, le, v86), I386, i386Regs, 162, -512, "virtual-8086 mode"},
		{"386/other code segment", "amd64", note(t, le, far), I386, i386Regs, 162, -512, "segmented code (cs 0x73)"},
		{"arm64", "arm64", note(t, le, arm), ARM64, armNames, -1, -4, ""},
		{"arm64/32-bit program", "arm64", note(t, le, arm32), ARM64, map[string]uint64{"pc": 2015, "sp": 2013}, -1, 0, "32-bit arm code"},
		{"s390x", "s390x", note(t, be, s390), S390X, sNames, -1, -512, ""},
		{"s390x/31-bit mode", "s390x", note(t, be, mode31), S390X, mode31Names, -1, -512, "31-bit mode"},
		{"s390x/24-bit mode", "s390x", note(t, be, mode24), S390X, mode31Names, -1, -512, "31-bit mode"},
		{"s390x/31-bit program", "s390x", note(t, be, s31), S390X, map[string]uint64{"pc": 0x4040_1001, "r15": 0x7f00_0001}, -1, 0, "31-bit mode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := Prstatus(tt.host, tt.note)
			if err != nil {
				t.Fatal(err)
			}
			if u.Arch != tt.arch || u.Syscall != tt.call || u.Ret != tt.ret || u.Limit != tt.limit {
				t.Errorf("%s, system call %d, returns %d, limit %q; want %s, %d, %d, %q",
					u.Arch.Name, u.Syscall, u.Ret, u.Limit, tt.arch.Name, tt.call, tt.ret, tt.limit)
			}
			got := named(u.Arch, &u.Set)
			for name, want := range tt.regs {
				if v, ok := got[name]; !ok || v != want {
					t.Errorf("%s is %#x, %v; want %#x", name, v, ok, want)
				}
				delete(got, name)
			}
			if len(got) > 0 {
				t.Errorf("registers that the note has not: %v", got)
			}
			if len(tt.note) > PrstatusMaxBytes {
				t.Errorf("%d bytes are more than PrstatusMaxBytes", len(tt.note))
			}
		})
	}
	if n := binary.Size(arm); n != PrstatusMaxBytes {
		t.Errorf("PrstatusMaxBytes is %d, the largest note has %d", PrstatusMaxBytes, n)
	}
}

// TestPrstatusRefuses: notes of no kernel's length, and those of another host.
func TestPrstatusRefuses(t *testing.T) {
	for host, sizes := range map[string][]int{
		"amd64": {0, 67, 69, 72, 144, 215, 217, 272},
		"arm64": {0, 68, 71, 73, 144, 216, 271, 273},
		"s390x": {0, 68, 72, 143, 145, 215, 217, 272},
		"riscv": {68, 72, 144, 216, 272},
	} {
		for _, n := range sizes {
			if u, err := Prstatus(host, make([]byte, n)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(n)) || u.Arch != nil {
				t.Errorf("%s, %d bytes: %v, %v", host, n, u, err)
			}
		}
	}
}

func TestCompatLimit(t *testing.T) {
	for host, want := range map[string]string{"amd64": "", "arm64": "32-bit arm code", "s390x": "31-bit mode"} {
		if got := CompatLimit(host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// TestS390XFPRegs: s390_fp_regs is the control word, padding, and f0–f15 in
// their own order, which is not that of DWARF.
func TestS390XFPRegs(t *testing.T) {
	regs := struct {
		FPC, Pad uint32
		F        [16]uint64
	}{FPC: 1, Pad: 2}
	for n := range regs.F {
		regs.F[n] = uint64(100 + n)
	}
	b := note(t, binary.BigEndian, regs)
	var s Set
	S390XFPRegs(&s, b[:len(b)-1])
	if s.Known != 0 {
		t.Errorf("a note that is cut made %#x known", s.Known)
	}
	S390XFPRegs(&s, b)
	if s.Known != 0xffff_0000 {
		t.Errorf("known %#x, want 16 to 31", s.Known)
	}
	for name, v := range named(S390X, &s) {
		if want := "f" + fmt.Sprint(v-100); name != "pc" && name != want {
			t.Errorf("%s holds what %s does", name, want)
		}
	}
}
