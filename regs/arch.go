package regs

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
)

// Arch is what unwinding needs to know of one architecture. The values that
// this package exports are shared: copy one before changing it (see
// [Arch.WithPAC]).
type Arch struct {
	Name      string           // GOARCH name
	Order     binary.ByteOrder // of memory
	WordBytes int              // size of a stack word: 8, or 4
	BigEndian bool             // Order is big-endian; spares an interface comparison per word

	SP uint8 // DWARF number of the stack pointer
	FP uint8 // DWARF number of the frame pointer (s390x: only by preference of the ABI)
	RA uint8 // DWARF number of the return address column

	// Link: a call leaves the return address in register RA (arm64 x30,
	// s390x r14). Without it RA is a column of the tables and no register.
	Link bool

	// SPOffset is what is added to the CFA to get the caller's stack pointer:
	// 0, and -160 on s390x, whose CFA lies above the register save area
	// (s390x ELF ABI, stack frame layout).
	SPOffset int64

	// CalleeSaved has bit n set when a called function must leave DWARF
	// register n as it was. SP is not among them: the CFA restores it.
	CalleeSaved uint32

	// CallArgs are the DWARF numbers of the registers in which a system call
	// takes its six arguments, in order (syscall(2), "Architecture calling
	// conventions").
	CallArgs [6]uint8

	// PACMask holds the bits that are cleared from every return address: the
	// pointer authentication code of arm64 (NT_ARM_PAC_MASK, instruction
	// half). 0 where there is none.
	PACMask uint64
}

// DWARF numbers of s390x registers that have a role, from the s390x ELF ABI
// supplement; Delve has none for this architecture.
const (
	s390xR6  = 6
	s390xR11 = 11 // frame pointer by preference
	s390xR13 = 13
	s390xR14 = 14 // return address
	s390xR15 = 15 // stack pointer
	s390xF8  = 24 // f8, f10, f12, f14, f9, f11, f13, f15 = 24–31 are callee-saved
)

func bits(numbers ...int) (m uint32) {
	for _, n := range numbers {
		m |= 1 << n
	}
	return m
}

// bitRange has the bits first to last set, both included.
func bitRange(first, last int) uint32 {
	return uint32((uint64(1)<<(last+1) - 1) &^ (uint64(1)<<first - 1))
}

// The supported architectures.
var (
	// AMD64: callee-saved registers are rbx, rbp, r12–r15 (System V ABI AMD64
	// supplement, figure 3.4).
	AMD64 = &Arch{
		Name: "amd64", Order: binary.LittleEndian, WordBytes: 8,
		SP: regnum.AMD64_Rsp, FP: regnum.AMD64_Rbp, RA: regnum.AMD64_Rip,
		CalleeSaved: bits(regnum.AMD64_Rbx, regnum.AMD64_Rbp, regnum.AMD64_R12,
			regnum.AMD64_R13, regnum.AMD64_R14, regnum.AMD64_R15),
		CallArgs: [6]uint8{regnum.AMD64_Rdi, regnum.AMD64_Rsi, regnum.AMD64_Rdx,
			regnum.AMD64_R10, regnum.AMD64_R8, regnum.AMD64_R9},
	}
	// I386: 32-bit tracees of an x86-64 kernel. Callee-saved: ebx, esi, edi,
	// ebp (i386 psABI, table 2.3).
	I386 = &Arch{
		Name: "386", Order: binary.LittleEndian, WordBytes: 4,
		SP: regnum.I386_Esp, FP: regnum.I386_Ebp, RA: regnum.I386_Eip,
		CalleeSaved: bits(regnum.I386_Ebx, regnum.I386_Ebp, regnum.I386_Esi, regnum.I386_Edi),
		CallArgs: [6]uint8{regnum.I386_Ebx, regnum.I386_Ecx, regnum.I386_Edx,
			regnum.I386_Esi, regnum.I386_Edi, regnum.I386_Ebp},
	}
	// ARM64: callee-saved are x19–x29 (Procedure Call Standard for the Arm
	// 64-bit Architecture, section 6.1.1). x30 is not: a call overwrites it.
	ARM64 = &Arch{
		Name: "arm64", Order: binary.LittleEndian, WordBytes: 8,
		SP: regnum.ARM64_SP, FP: regnum.ARM64_BP, RA: regnum.ARM64_LR, Link: true,
		CalleeSaved: bitRange(19, 29),
		CallArgs:    [6]uint8{0, 1, 2, 3, 4, 5},
	}
	// S390X: callee-saved are r6–r13 and f8–f15 (s390x ELF ABI supplement,
	// register usage). r15 follows from the CFA, r14 is overwritten by a call.
	S390X = &Arch{
		Name: "s390x", Order: binary.BigEndian, BigEndian: true, WordBytes: 8,
		SP: s390xR15, FP: s390xR11, RA: s390xR14, Link: true, SPOffset: -160,
		CalleeSaved: bitRange(s390xR6, s390xR13) | bitRange(s390xF8, 31),
		CallArgs:    [6]uint8{2, 3, 4, 5, 6, 7},
	}
	// ARM64BE is big-endian arm64: no kernel that we support runs it, but
	// tables of it can be read.
	ARM64BE = &Arch{
		Name: "arm64be", Order: binary.BigEndian, BigEndian: true, WordBytes: 8,
		SP: regnum.ARM64_SP, FP: regnum.ARM64_BP, RA: regnum.ARM64_LR, Link: true,
		CalleeSaved: bitRange(19, 29),
		CallArgs:    [6]uint8{0, 1, 2, 3, 4, 5},
	}
)

// ByELF returns the architecture of an ELF file's header fields. The error
// names the machine when it is not one of the supported ones.
func ByELF(machine elf.Machine, class elf.Class, data elf.Data) (*Arch, error) {
	switch {
	case machine == elf.EM_X86_64 && class == elf.ELFCLASS64 && data == elf.ELFDATA2LSB:
		return AMD64, nil
	case machine == elf.EM_386 && class == elf.ELFCLASS32 && data == elf.ELFDATA2LSB:
		return I386, nil
	case machine == elf.EM_AARCH64 && class == elf.ELFCLASS64 && data == elf.ELFDATA2LSB:
		return ARM64, nil
	case machine == elf.EM_AARCH64 && class == elf.ELFCLASS64 && data == elf.ELFDATA2MSB:
		return ARM64BE, nil
	case machine == elf.EM_S390 && class == elf.ELFCLASS64 && data == elf.ELFDATA2MSB:
		return S390X, nil
	}
	return nil, fmt.Errorf("unsupported machine %v %v %v", machine, class, data)
}

// ByName returns the architecture with this GOARCH name, nil if there is none.
func ByName(goarch string) *Arch {
	for _, a := range []*Arch{AMD64, I386, ARM64, S390X} {
		if a.Name == goarch {
			return a
		}
	}
	return nil
}

// WithPAC returns a copy of a that strips mask from return addresses.
func (a *Arch) WithPAC(mask uint64) *Arch {
	c := *a
	c.PACMask = mask
	return &c
}

// Word decodes one stack word from the first WordBytes bytes of b,
// zero-extended.
func (a *Arch) Word(b []byte) uint64 {
	if a.WordBytes == 4 {
		return uint64(binary.LittleEndian.Uint32(b))
	}
	if a.BigEndian {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// RegName returns the usual name of DWARF register n in lower case ("rbp",
// "x29", "r14"), or "rN" where there is none.
func (a *Arch) RegName(n uint8) string {
	switch a.Name {
	case "amd64":
		if n < 16 {
			return amd64Names[n]
		}
	case "386":
		if n < 8 {
			return i386Names[n]
		}
	case "arm64", "arm64be":
		if n < 31 {
			return fmt.Sprintf("x%d", n)
		}
		if n == 31 {
			return "sp"
		}
	case "s390x":
		if n >= 16 && n < 32 {
			return fmt.Sprintf("f%d", s390xFPR[n-16])
		}
	}
	return fmt.Sprintf("r%d", n)
}

// Names by DWARF number; a test holds them against Delve's regnum.
var (
	amd64Names = [16]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}
	i386Names = [8]string{"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"}
)

// s390xFPR[n] is the floating-point register with DWARF number 16+n (s390x
// ELF ABI supplement, DWARF register number mapping: the pairs are permuted).
var s390xFPR = [16]uint8{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}
