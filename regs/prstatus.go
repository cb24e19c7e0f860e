package regs

import (
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
)

// PrstatusMaxBytes is the size of the largest NT_PRSTATUS note of the
// supported kernels: arm64's 272 bytes.
const PrstatusMaxBytes = 272

// User is the user-mode state of a thread as a register note gives it.
type User struct {
	Arch *Arch
	Set  Set
	// Syscall is the number of the system call that the thread is in, -1 if it
	// is in none or the note does not tell (arm64: NT_ARM_SYSTEM_CALL does).
	Syscall int64
	// Ret is the return register: at a stop inside a system call the kernel's
	// restart code or the call's result.
	Ret int64
	// Limit says why no caller can be computed from this state ("segmented
	// code", "31-bit mode", …); empty if nothing stands against it.
	Limit string
}

// Code segment selectors of x86-64 user mode (arch/x86/include/asm/segment.h,
// __USER_CS and __USER32_CS), and the virtual-8086 bit of EFLAGS.
const (
	x86UserCS   = 0x33
	x86User32CS = 0x23
	x86FlagVM   = 1 << 17
)

// prstatusAMD64 gives the DWARF number of each 8-byte word of struct
// user_regs_struct (arch/x86/include/asm/user_64.h); -1: no register of ours.
var prstatusAMD64 = [15]int8{
	regnum.AMD64_R15, regnum.AMD64_R14, regnum.AMD64_R13, regnum.AMD64_R12,
	regnum.AMD64_Rbp, regnum.AMD64_Rbx,
	regnum.AMD64_R11, regnum.AMD64_R10, regnum.AMD64_R9, regnum.AMD64_R8,
	regnum.AMD64_Rax, regnum.AMD64_Rcx, regnum.AMD64_Rdx, regnum.AMD64_Rsi, regnum.AMD64_Rdi,
}

// prstatusI386 is the same for the first 7 words of struct
// user_regs_struct32 (arch/x86/include/asm/user32.h).
var prstatusI386 = [7]int8{
	regnum.I386_Ebx, regnum.I386_Ecx, regnum.I386_Edx, regnum.I386_Esi,
	regnum.I386_Edi, regnum.I386_Ebp, regnum.I386_Eax,
}

// Lengths of the NT_PRSTATUS note. The kernel chooses the layout by the mode
// that the thread is in, so the length tells the mode at this very stop.
const (
	amd64PrstatusBytes = 216
	i386PrstatusBytes  = 68
	arm64PrstatusBytes = 272
	armPrstatusBytes   = 72
	s390xPrstatusBytes = 216
	s390PrstatusBytes  = 144 // 31-bit
)

// Prstatus decodes the NT_PRSTATUS note of a thread on a kernel whose GOARCH
// is host. The error says what host and length do not fit.
func Prstatus(host string, note []byte) (User, error) {
	switch {
	case host == "amd64" && len(note) == amd64PrstatusBytes:
		return prstatusX8664(note), nil
	case host == "amd64" && len(note) == i386PrstatusBytes:
		return prstatusX8632(note), nil
	case host == "arm64" && len(note) == arm64PrstatusBytes:
		return prstatusARM64(note), nil
	case host == "arm64" && len(note) == armPrstatusBytes:
		u := User{Arch: ARM64, Syscall: -1, Limit: CompatLimit(host)}
		// struct pt_regs of arm: r15 is the 16th word.
		u.Set.PC = uint64(binary.LittleEndian.Uint32(note[15*4:]))
		u.Set.SetReg(ARM64.SP, uint64(binary.LittleEndian.Uint32(note[13*4:])))
		return u, nil
	case host == "s390x" && len(note) == s390PrstatusBytes:
		// s390_compat_regs (arch/s390/include/asm/compat.h): a PSW of two words,
		// whose address has the addressing mode in its first bit, and r0–r15.
		be := binary.BigEndian
		u := User{Arch: S390X, Syscall: -1, Limit: CompatLimit(host)}
		u.Set.PC = uint64(be.Uint32(note[4:])) & (1<<31 - 1)
		u.Set.SetReg(S390X.SP, uint64(be.Uint32(note[8+15*4:]))&(1<<31-1))
		return u, nil
	case host == "s390x" && len(note) == s390xPrstatusBytes:
		return prstatusS390X(note), nil
	}
	return User{}, fmt.Errorf("register note of %d bytes does not fit %s", len(note), host)
}

// CompatLimit is the [User] Limit of code of 32-bit programs on a kernel whose
// GOARCH is host; empty where such code can be unwound.
func CompatLimit(host string) string {
	switch host {
	case "arm64":
		return "32-bit arm code"
	case "s390x":
		return "31-bit mode"
	}
	return ""
}

func prstatusX8664(b []byte) User {
	le := binary.LittleEndian
	u := User{Arch: AMD64, Syscall: int64(le.Uint64(b[120:])), Ret: int64(le.Uint64(b[80:]))}
	for i, n := range prstatusAMD64 {
		u.Set.SetReg(uint8(n), le.Uint64(b[i*8:]))
	}
	u.Set.PC = le.Uint64(b[128:])
	u.Set.SetReg(AMD64.SP, le.Uint64(b[152:]))
	if cs := le.Uint64(b[136:]); cs != x86UserCS {
		u.Limit = fmt.Sprintf("segmented code (cs %#x)", cs)
	}
	return u
}

func prstatusX8632(b []byte) User {
	le := binary.LittleEndian
	u := User{Arch: I386, Syscall: int64(int32(le.Uint32(b[44:]))), Ret: int64(int32(le.Uint32(b[24:])))}
	for i, n := range prstatusI386 {
		u.Set.SetReg(uint8(n), uint64(le.Uint32(b[i*4:])))
	}
	u.Set.PC = uint64(le.Uint32(b[48:]))
	u.Set.SetReg(I386.SP, uint64(le.Uint32(b[60:])))
	switch cs := le.Uint32(b[52:]) & 0xffff; {
	case le.Uint32(b[56:])&x86FlagVM != 0:
		u.Limit = "virtual-8086 mode"
	case cs != x86User32CS:
		u.Limit = fmt.Sprintf("segmented code (cs %#x)", cs)
	}
	return u
}

// struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h): x0–x30, sp, pc,
// pstate.
func prstatusARM64(b []byte) User {
	le := binary.LittleEndian
	u := User{Arch: ARM64, Syscall: -1, Ret: int64(le.Uint64(b))}
	for n := range uint8(32) {
		u.Set.SetReg(n, le.Uint64(b[int(n)*8:]))
	}
	u.Set.PC = le.Uint64(b[256:])
	return u
}

// s390x PSW mask bits 31 and 32 (IBM numbering, from the left): extended and
// basic addressing mode; both set is 64-bit mode.
const s390xPSW64 = 3 << 31

// s390_regs (arch/s390/include/uapi/asm/ptrace.h): psw mask, psw address,
// r0–r15, access registers, orig_gpr2.
func prstatusS390X(b []byte) User {
	be := binary.BigEndian
	u := User{Arch: S390X, Syscall: -1, Ret: int64(be.Uint64(b[16+2*8:]))}
	for n := range uint8(16) {
		u.Set.SetReg(n, be.Uint64(b[16+int(n)*8:]))
	}
	u.Set.PC = be.Uint64(b[8:])
	if be.Uint64(b)&s390xPSW64 != s390xPSW64 {
		u.Set.PC &= 1<<31 - 1
		u.Limit = CompatLimit("s390x")
	}
	return u
}

// S390XFPRegs makes the floating-point registers of an s390x thread known in
// set, from its NT_PRFPREG note (s390_fp_regs: fpc, padding, f0–f15). A note
// that is too short changes nothing.
func S390XFPRegs(set *Set, note []byte) {
	if len(note) < 8+16*8 {
		return
	}
	for i, f := range s390xFPR {
		set.SetReg(uint8(16+i), binary.BigEndian.Uint64(note[8+int(f)*8:]))
	}
}
