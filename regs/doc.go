// Package regs describes the registers of the supported architectures in
// DWARF numbering: which number is the stack pointer, the frame pointer and
// the return address, what a caller finds unchanged, and how the kernel's
// register notes (NT_PRSTATUS and friends) decode to a [Set].
//
// It makes no system call and keeps no state; everything in it may be used by
// any number of goroutines at once.
//
// Sources: System V ABI AMD64 supplement 1.0 figure 3.36; i386 psABI table
// 2.14; "DWARF for the Arm 64-bit Architecture" section 4.1; s390x ELF ABI
// supplement 1.6 "DWARF register number mapping"; the kernel's uapi ptrace.h of
// each architecture. Numbers and names that Delve's pkg/dwarf/regnum has are
// taken from there.
package regs
