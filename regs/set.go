package regs

// NumRegs is how many DWARF registers a [Set] has room for. x86-64 uses 0–15,
// arm64 0–30 and 31 for SP, s390x 0–15 for r0–r15 and 16–31 for the
// floating-point registers, i386 0–7.
const NumRegs = 32

// Set is the register contents of one frame. A register whose bit in Known is
// clear is unknown, which is not the same as zero: a rule that needs it fails.
// The program counter stands apart, it is always known.
type Set struct {
	PC    uint64
	R     [NumRegs]uint64 // by DWARF number
	Known uint32          // bit n: R[n] holds a value
}

// Reg returns register n (DWARF number) and whether its value is known.
func (s *Set) Reg(n uint8) (uint64, bool) {
	if n >= NumRegs || s.Known&(1<<n) == 0 {
		return 0, false
	}
	return s.R[n], true
}

// SetReg makes register n (DWARF number) known. Numbers that a Set has no room
// for are ignored.
func (s *Set) SetReg(n uint8, v uint64) {
	if n < NumRegs {
		s.R[n] = v
		s.Known |= 1 << n
	}
}
