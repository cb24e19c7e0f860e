package sframe

import (
	"debug/elf"
	"testing"

	"sfsample/internal/sframetest"
)

// TestABIs: the numbers are those of the format's text, "SFrame ABI/arch identifiers"; the registers those of the psABIs'
// DWARF numbering (AMD64 figure 3.36: rsp 7, rbp 6; AArch64: sp 31, x29; s390x: r15, r11).
func TestABIs(t *testing.T) {
	if FlagSorted != sframetest.Sorted || FlagFramePointer != sframetest.FramePointer || FlagPCRel != sframetest.PCRel {
		t.Error("flags are not the format's")
	}
	type target struct {
		machine elf.Machine
		data    elf.Data
	}
	targets := []target{
		{elf.EM_AARCH64, elf.ELFDATA2MSB}, {elf.EM_AARCH64, elf.ELFDATA2LSB}, {elf.EM_X86_64, elf.ELFDATA2LSB}, {elf.EM_S390, elf.ELFDATA2MSB},
		{elf.EM_X86_64, elf.ELFDATA2MSB}, {elf.EM_S390, elf.ELFDATA2LSB}, {elf.EM_NONE, elf.ELFDATA2LSB}, {elf.EM_386, elf.ELFDATA2LSB},
	}
	for _, tt := range []struct {
		abi    ABI
		name   string
		sp, fp uint8
		target int // of targets
	}{
		{0, "unknown", 31, 29, -1},
		{1, "AArch64 big-endian", 31, 29, 0},
		{2, "AArch64 little-endian", 31, 29, 1},
		{3, "AMD64", 7, 6, 2},
		{4, "s390x", 15, 11, 3},
		{5, "unknown", 31, 29, -1},
		{255, "unknown", 31, 29, -1},
	} {
		if sp, fp := tt.abi.Registers(); tt.abi.String() != tt.name || sp != tt.sp || fp != tt.fp {
			t.Errorf("ABI %d: %s, SP %d, FP %d, want %s, %d, %d", tt.abi, tt.abi, sp, fp, tt.name, tt.sp, tt.fp)
		}
		for i, to := range targets {
			if got := tt.abi.Matches(to.machine, to.data); got != (i == tt.target) {
				t.Errorf("%s in a file of %s, %s: %v", tt.abi, to.machine, to.data, got)
			}
		}
	}
}
