package sampler

import (
	"testing"

	"sfsample/regs"
)

// TestShortened: a transfer that has moved less than asked for is one, told by the registers alone or by the
// instruction before; what has moved all, has failed or is no transfer is none.
func TestShortened(t *testing.T) {
	// The numbers are those of the kernel's tables (arch/*/syscall*.tbl, include/uapi/asm-generic/unistd.h).
	svcARM64, svcS390X, svcWrite, other := "\x01\x00\x00\xd4", "\x0a\x00", "\x0a\x04", "\x07\xfe\x07\xfe"
	for _, tt := range []struct {
		name  string
		arch  *regs.Arch
		call  uint64 // write's or another's
		code  string
		ret   int64
		asked uint64
		want  bool
	}{
		{"x86-64, part", regs.AMD64, 1, "", 65536, 200_000, true},
		{"x86-64, all", regs.AMD64, 1, "", 200_000, 200_000, false},
		{"x86-64, failed", regs.AMD64, 1, "", -4, 200_000, false},
		{"x86-64, nothing", regs.AMD64, 1, "", 0, 200_000, false},
		{"x86-64, read", regs.AMD64, 0, "", 65536, 200_000, false},
		{"x86-64, no call", regs.AMD64, ^uint64(0), "", 65536, 200_000, false},
		{"386, part", regs.I386, 4, "", 65536, 200_000, true},
		{"arm64, part", regs.ARM64, 64, svcARM64, 65536, 200_000, true},
		{"arm64, read", regs.ARM64, 63, svcARM64, 65536, 200_000, false},
		{"arm64, no call", regs.ARM64, 64, other, 65536, 200_000, false},
		{"s390x, part", regs.S390X, 4, svcS390X, 65536, 200_000, true},
		{"s390x, number in the instruction", regs.S390X, 77, svcWrite, 65536, 200_000, true},
		{"s390x, no call", regs.S390X, 4, other, 65536, 200_000, false},
	} {
		u := regs.User{Arch: tt.arch, Syscall: -1, Ret: tt.ret}
		u.Set.PC = 0x1000
		switch tt.arch {
		case regs.ARM64:
			u.Set.SetReg(8, tt.call)
		case regs.S390X:
			u.Set.SetReg(1, tt.call)
		default:
			u.Syscall = int64(tt.call)
		}
		u.Set.SetReg(tt.arch.CallArgs[2], tt.asked)
		code := func(pc uint64, b []byte) int {
			if pc+uint64(len(b)) != 0x1000 {
				t.Errorf("%s: code at %#x is read", tt.name, pc)
			}
			return copy(b, tt.code)
		}
		if got := shortened(&u, code); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
