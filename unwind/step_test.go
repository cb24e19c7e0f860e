package unwind

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sfsample/regs"
	"sfsample/sframe"
)

const sp = 0x7ffd_0000_1000

// same and friends are rules as decoders give them.
var (
	same    = sframe.Rule{}
	inRDI   = fromReg(5, 0)
	regRule = func(reg uint8, r sframe.Rule) sframe.SavedRule { return sframe.SavedRule{Reg: reg, Rule: r} }
)

func TestStep(t *testing.T) {
	amd, a64, s390, i386 := regs.AMD64, regs.ARM64, regs.S390X, regs.I386
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		set  *regs.Set
		row  sframe.Row
		call bool // the frame is a caller, not topmost
		mem  *Memory
		want *regs.Set
		err  error
		at   uint64 // what the error is about; 0: the PC
	}{
		{
			name: "amd64/sp-based",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row:  sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8)},
			mem:  words(amd, sp, 1, 0x402000, 3),
			want: set(0x402000, 7, sp+16, 6, 0xb),
		},
		{
			name: "amd64/fp-based",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+8),
			row:  sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8), FP: atCFA(-16)},
			call: true,
			mem:  words(amd, sp, 1, sp+0x40, 0x402000),
			want: set(0x402000, 7, sp+24, 6, sp+0x40),
		},
		{
			// The frame pointer of a dead frame, or no frame pointer at all.
			name: "amd64/fp-below-sp",
			arch: amd, set: set(0x401000, 7, sp, 6, sp-8),
			row: sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8)},
			mem: words(amd, sp-16, 1, 2, 3, 4), err: NoProgress, at: sp - 8,
		},
		{
			name: "amd64/fp-unknown",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8)},
			mem: words(amd, sp, 1, 2, 3), err: UnknownRegister,
		},
		{
			// gcc's realigned frame: lea 8(%rsp),%r10; and $-32,%rsp; pushq -8(%r10);
			// push %rbp; mov %rsp,%rbp; push %r10: from then on the CFA is *(rbp-8).
			name: "amd64/drap-cfa-loaded-through-rbp",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+16),
			row:  sframe.Row{CFA: atReg(6, -8), RA: atCFA(-8), FP: atReg(6, 0)},
			call: true,
			mem:  words(amd, sp, 1, sp+40, 0xb, 0x999, 0x402000),
			want: set(0x402000, 7, sp+40, 6, 0xb),
		},
		{
			// The same function before push %r10: the CFA is r10 itself.
			name: "amd64/drap-cfa-in-r10",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 10, sp+40),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8)},
			mem:  words(amd, sp, 1, 2, 3, 4, 0x402000),
			want: set(0x402000, 7, sp+40, 6, 0xb),
		},
		{
			// Its end: pop %rbx; pop %r10; pop %rbp; here lea -8(%r10),%rsp; ret. The
			// table still has rbp at (%rbp) and rbx at -16(%rbp).
			name: "amd64/drap-rbp-restored-already",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+64, 10, sp+16, 3, 0x33),
			row: sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0),
				Saved: []sframe.SavedRule{regRule(3, atReg(6, -16))}},
			mem:  words(amd, sp, 1, 0x402000, 2, 3, 4, 5, 6, 7, 0xdead),
			want: set(0x402000, 7, sp+16, 6, sp+64, 3, 0x33),
		},
		{
			// And where the caller has no frame pointer, but some number in rbp.
			name: "amd64/drap-rbp-restored-to-a-number",
			arch: amd, set: set(0x401000, 7, sp, 6, 42, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0)},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 42),
		},
		{
			// In the body rbp is the frame's own, and tells.
			name: "amd64/drap-rbp-in-its-frame",
			arch: amd, set: set(0x401000, 7, sp, 6, sp, 10, sp+32),
			row: sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0),
				Saved: []sframe.SavedRule{regRule(3, atReg(6, 8))}},
			mem:  words(amd, sp, 0xbb, 0x33, 2, 0x402000),
			want: set(0x402000, 7, sp+32, 6, 0xbb, 3, 0x33),
		},
		{
			name: "386/drap-ebp-restored-already",
			arch: i386, set: set(0x8048000, 4, 0xffff_d000, 5, 42, 1, 0xffff_d008),
			row:  sframe.Row{CFA: fromReg(1, 0), RA: atCFA(-4), FP: atReg(5, 0)},
			mem:  words(i386, 0xffff_d000, 1, 0x8048100),
			want: set(0x8048100, 4, 0xffff_d008, 5, 42),
		},
		{
			name: "amd64/drap-rbp-restored-at-the-cfa",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+16, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0)},
			mem:  words(amd, sp, 1, 0x402000, 0xbb),
			want: set(0x402000, 7, sp+16, 6, sp+16),
		},
		{
			name: "amd64/drap-rbp-unknown",
			arch: amd, set: set(0x401000, 7, sp, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0)},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16),
		},
		{
			// Where the CFA follows from rbp, or rbp is not loaded, rbp is not taken for the caller's.
			name: "amd64/cfa-below-rbp",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+16),
			row:  sframe.Row{CFA: fromReg(6, 0), RA: atCFA(-8), FP: atReg(6, 0)},
			mem:  words(amd, sp, 1, 0x402000, 0xbb),
			want: set(0x402000, 7, sp+16, 6, 0xbb),
		},
		{
			name: "amd64/rbp-is-rbp-plus-8",
			arch: amd, set: set(0x401000, 7, sp, 6, 42, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: fromReg(6, 8)},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 50),
		},
		{
			name: "amd64/cfa-by-expression-and-rbp-below",
			arch: amd, set: set(0x401000, 7, sp, 6, sp-8),
			row:  sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8), FP: atReg(6, 0), Exprs: [][]byte{{0x77, 16}}}, // rsp+16
			mem:  words(amd, sp-8, 0xbb, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xbb),
		},
		{
			name: "amd64/signal-frame-with-rbp-below",
			arch: amd, set: set(0x401000, 7, sp, 6, sp-8, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(6, 0), Signal: true},
			mem:  words(amd, sp-8, 0xbb, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xbb),
		},
		{
			// Of a row that takes rbp from the stack, rules relative to rbp mean the frame's.
			name: "amd64/saved-relative-to-rbp",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+8),
			row: sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8), FP: atCFA(-16),
				Saved: []sframe.SavedRule{regRule(3, atReg(6, -8))}},
			mem:  words(amd, sp, 0x33, 0xbb, 0x402000),
			want: set(0x402000, 7, sp+24, 6, 0xbb, 3, 0x33),
		},
		{
			// glibc's longjmp describes the frame that it will jump to: all is in
			// registers or in the jmp_buf (rdi), the stack is another one.
			name: "amd64/longjmp-to-another-stack",
			arch: amd, set: set(0x401000, 7, sp, 6, 1, 5, sp+8, 8, 0x6000_0000, 9, 0xb, 1, 0x402000),
			row: sframe.Row{CFA: fromReg(5, 0), RA: fromReg(1, 0), FP: fromReg(9, 0),
				Saved: []sframe.SavedRule{regRule(7, fromReg(8, 0)), regRule(3, atCFA(0))}},
			mem:  words(amd, sp, 1, 0x33),
			want: set(0x402000, 7, 0x6000_0000, 6, 0xb, 3, 0x33),
		},
		{
			// In a caller such a row makes no sense.
			name: "amd64/longjmp-row-in-a-caller",
			arch: amd, set: set(0x401000, 7, sp, 8, sp-64, 1, 0x402000, 5, sp),
			row: sframe.Row{CFA: fromReg(5, 0), RA: fromReg(1, 0),
				Saved: []sframe.SavedRule{regRule(7, fromReg(8, 0))}},
			call: true,
			mem:  words(amd, sp, 1), err: NoProgress, at: sp - 64,
		},
		{
			// In a caller r10 is lost: no row keeps it.
			name: "amd64/drap-r10-lost-in-caller",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8)}, call: true,
			mem: words(amd, sp, 1, 2), err: UnknownRegister,
		},
		{
			// A callee's .eh_frame row brought rbx back, so a caller may use it.
			name: "amd64/cfa-on-tracked-rbx-in-caller",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, sp+16),
			row:  sframe.Row{CFA: fromReg(3, 8), RA: atCFA(-8), Keep: amd.CalleeSaved},
			call: true,
			mem:  words(amd, sp, 1, 2, 0x402000),
			want: set(0x402000, 7, sp+24, 6, 0xb, 3, sp+16),
		},
		{
			name: "amd64/callee-saved-restored-kept-and-lost",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, 0x3, 12, 0xc, 13, 0xd, 0, 0xa),
			row: sframe.Row{CFA: fromReg(7, 32), RA: atCFA(-8), FP: atCFA(-16),
				Saved: []sframe.SavedRule{regRule(3, atCFA(-24))}, Keep: 1 << 12},
			mem:  words(amd, sp, 1, 0x33, 0xbb, 0x402000),
			want: set(0x402000, 7, sp+32, 6, 0xbb, 3, 0x33, 12, 0xc),
		},
		{
			// Rules mean the registers of the frame, in whatever order they stand.
			name: "amd64/registers-exchanged",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, 0x3, 12, 0xc),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: fromReg(3, 0),
				Saved: []sframe.SavedRule{regRule(3, fromReg(12, 0)), regRule(12, fromReg(3, 1)), regRule(13, fromReg(6, 2))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0x3, 3, 0xc, 12, 0x4, 13, 0xd),
		},
		{
			name: "amd64/registers-by-expressions-of-each-other",
			arch: amd, set: set(0x401000, 7, sp, 3, 0x3, 12, 0xc),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
				Saved: []sframe.SavedRule{regRule(3, sframe.Rule{Base: sframe.FromExpr}), regRule(12, sframe.Rule{Base: sframe.FromExpr, Offset: 1})},
				Exprs: [][]byte{{0x7c, 0}, {0x73, 0}}}, // r12, rbx
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 3, 0xc, 12, 0x3),
		},
		{
			// The column of the return address is the PC itself.
			name: "amd64/register-from-the-pc",
			arch: amd, set: set(0x401000, 7, sp),
			row:  sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Saved: []sframe.SavedRule{regRule(3, fromReg(16, 4))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 3, 0x401004),
		},
		{
			// Rules of SP and FP among the others, and a register that there is not.
			name: "amd64/further-rules-of-sp-and-fp",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
				Saved: []sframe.SavedRule{regRule(7, cfaRule), regRule(6, atCFA(-16)), regRule(32, atCFA(-16)), regRule(3, atCFA(-16))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb, 3, 1),
		},
		{
			name: "amd64/fp-still-unknown",
			arch: amd, set: set(0x401000, 7, sp),
			row:  sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8)},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16),
		},
		{
			name: "amd64/fp-in-a-further-copy",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: atCFA(16)},
			mem: &Memory{Region: Region{sp, put(amd, nil, 1, 0x402000)},
				Also: []Region{{sp + 32, put(amd, nil, 0xbb)}}},
			want: set(0x402000, 7, sp+16, 6, 0xbb),
		},
		{
			name: "amd64/fp-outside-the-copy",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: atCFA(16)},
			mem: words(amd, sp, 1, 0x402000), err: OutsideCopy, at: sp + 32,
		},
		{
			name: "amd64/return-address-in-a-further-copy",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row:  sframe.Row{CFA: fromReg(7, 64), RA: atCFA(-8)},
			mem:  &Memory{Region: Region{sp, nil}, Also: []Region{{sp + 56, put(amd, nil, 0x402000)}}},
			want: set(0x402000, 7, sp+64, 6, 0xb),
		},
		{
			name: "amd64/sp-in-an-unknown-register",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Saved: []sframe.SavedRule{regRule(7, fromReg(3, 0))}},
			mem: words(amd, sp, 1, 2), err: UnknownRegister,
		},
		{
			name: "amd64/sp-outside-the-copy",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Saved: []sframe.SavedRule{regRule(7, atCFA(64))}},
			mem: words(amd, sp, 1, 2), err: OutsideCopy, at: sp + 80,
		},
		{
			name: "amd64/cfa-outside-the-copy",
			arch: amd, set: set(0x401000, 7, sp, 6, sp+64),
			row: sframe.Row{CFA: atReg(6, -8), RA: atCFA(-8)},
			mem: words(amd, sp, 1, 2), err: OutsideCopy, at: sp + 56,
		},
		{
			name: "amd64/cfa-by-expression-outside-the-copy",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8), Exprs: [][]byte{{0x77, 0xc0, 0, 0x06}}}, // rsp+64; deref
			mem: words(amd, sp, 1, 2), err: OutsideCopy, at: sp + 64,
		},
		{
			name: "amd64/cfa-stored-where-an-expression-says",
			arch: amd, set: set(0x401000, 7, sp),
			row:  sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr, Deref: true}, RA: atCFA(-8), Exprs: [][]byte{{0x77, 8}}}, // rsp+8
			mem:  words(amd, sp, 1, sp+24, 0x402000),
			want: set(0x402000, 7, sp+24),
		},
		{
			name: "amd64/expression-of-a-negative-number",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr, Offset: -1}, RA: atCFA(-8), Exprs: [][]byte{{0x77, 8}}},
			mem: words(amd, sp, 1), err: BadRule,
		},
		{
			name: "amd64/return-address-undefined",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: undefinedRule},
			mem: words(amd, sp, 1, 2), err: BadRule,
		},
		{
			name: "amd64/innermost-stays-with-its-return-address-below",
			arch: amd, set: set(0x401000, 7, sp),
			row:  sframe.Row{CFA: fromReg(7, 0), RA: atCFA(-8)},
			mem:  words(amd, sp-8, 0x402000, 2),
			want: set(0x402000, 7, sp),
		},
		{
			// A saved register that cannot be read is unknown; the frame stands.
			name: "amd64/saved-register-outside",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
				Saved: []sframe.SavedRule{regRule(3, atCFA(-64))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb),
		},
		{
			name: "amd64/saved-register-outside-that-was-known",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, 0x3, 12, 0xc),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Keep: 1<<3 | 1<<12,
				Saved: []sframe.SavedRule{regRule(3, atCFA(-64))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb, 12, 0xc),
		},
		{
			// The same by a row without a short form.
			name: "amd64/saved-register-outside-where-a-register-points",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, 0x3, 12, 0xc),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Keep: 1<<3 | 1<<12,
				Saved: []sframe.SavedRule{regRule(3, atReg(6, 0))}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb, 12, 0xc),
		},
		{
			name: "amd64/rbp-where-rbx-points",
			arch: amd, set: set(0x401000, 7, sp, 6, 42, 3, sp, 10, sp+16),
			row:  sframe.Row{CFA: fromReg(10, 0), RA: atCFA(-8), FP: atReg(3, 0)},
			mem:  words(amd, sp, 0xbb, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xbb),
		},
		{
			name: "amd64/registers-by-expressions-of-an-unknown-one",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb, 3, 0x3),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: sframe.Rule{Base: sframe.FromExpr},
				Saved: []sframe.SavedRule{regRule(3, sframe.Rule{Base: sframe.FromExpr})}, Exprs: [][]byte{{0x7c, 0}}}, // r12
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16),
		},
		{
			name: "amd64/fp-lost-whatever-is-kept",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row:  sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: undefinedRule, Keep: ^uint32(0)},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16),
		},
		{
			name: "amd64/fp-at-the-stack-pointer",
			arch: amd, set: set(0x401000, 7, sp, 6, sp),
			row:  sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8), FP: atCFA(-16)},
			mem:  words(amd, sp, 0xb, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb),
		},
		{
			name: "amd64/fp-unknown-though-it-was-right",
			arch: amd, set: func() *regs.Set {
				s := set(0x401000, 7, sp)
				s.R[6] = sp
				return s
			}(),
			row: sframe.Row{CFA: fromReg(6, 16), RA: atCFA(-8)},
			mem: words(amd, sp, 0xb, 0x402000), err: UnknownRegister,
		},
		{
			name: "amd64/misaligned-by-one",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 17), RA: atCFA(-9)},
			mem: words(amd, sp, 1, 2), err: Misaligned, at: sp + 17,
		},
		{
			name: "amd64/fp-is-the-cfa",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row:  sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: cfaRule},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, sp+16),
		},
		{
			name: "amd64/cfa-by-expression-of-an-unknown-register",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8), Exprs: [][]byte{{0x73, 0}}}, // rbx
			mem: words(amd, sp, 1, 2), err: UnknownRegister,
		},
		{
			// For the CFA the expression's stack is empty at first.
			name: "amd64/cfa-by-expression-of-nothing",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8), Exprs: [][]byte{{0x23, 16}}}, // plus_uconst 16
			mem: words(amd, sp, 1, 2), err: BadRule,
		},
		{
			// A return address in a register alone is no reason for a stack that shrinks, and so is a stack pointer that is not in one.
			name: "amd64/return-address-in-a-register-stack-shrinks",
			arch: amd, set: set(0x401000, 7, sp, 5, 0x402000),
			row: sframe.Row{CFA: fromReg(7, -8), RA: inRDI},
			mem: words(amd, sp, 1), err: NoProgress, at: sp - 8,
		},
		{
			name: "amd64/return-address-in-a-register-stack-shrinks-to-the-cfa",
			arch: amd, set: set(0x401000, 7, sp, 5, 0x402000),
			row: sframe.Row{CFA: fromReg(7, -8), RA: inRDI, Saved: []sframe.SavedRule{regRule(7, cfaRule)}},
			mem: words(amd, sp, 1), err: NoProgress, at: sp - 8,
		},
		{
			name: "amd64/return-address-in-a-register-stack-pointer-loaded",
			arch: amd, set: set(0x401000, 7, sp, 5, 0x402000, 3, sp),
			row: sframe.Row{CFA: fromReg(7, 8), RA: inRDI, Saved: []sframe.SavedRule{regRule(7, atReg(3, 0))}},
			mem: words(amd, sp, sp-64), err: NoProgress, at: sp - 64,
		},
		{
			name: "amd64/value-is-cfa-plus-offset",
			arch: amd, set: set(0x401000, 7, sp, 6, 0xb),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
				Saved: []sframe.SavedRule{regRule(3, sframe.Rule{Base: sframe.FromCFA, Offset: -4})}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb, 3, sp+12),
		},
		{
			// glibc's vfork pops the return address into rdi before the call and
			// pushes it back after: pop %rdi; mov $58,%eax; syscall; push %rdi.
			// Its CFI says DW_CFA_register rip, rdi, and the CFA is rsp.
			name: "amd64/vfork-return-address-in-rdi",
			arch: amd, set: set(0x401000, 7, sp, 5, 0x402000),
			row:  sframe.Row{CFA: fromReg(7, 0), RA: inRDI},
			mem:  words(amd, sp, 1),
			want: set(0x402000, 7, sp),
		},
		{
			name: "amd64/return-address-in-unknown-register",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 0), RA: inRDI},
			mem: words(amd, sp, 1), err: UnknownRegister,
		},
		{
			name: "amd64/outermost-before-cfa",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{Outermost: true, CFA: sframe.Rule{Base: sframe.Undefined}},
			mem: words(amd, sp), err: Outermost,
		},
		{
			name: "amd64/no-link-register",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: same},
			mem: words(amd, sp, 1, 2), err: BadRule,
		},
		{
			name: "amd64/return-address-is-a-stack-address",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: sframe.Rule{Base: sframe.FromCFA, Offset: -8}},
			mem: words(amd, sp, 1, 2), err: BadRule,
		},
		{
			name: "amd64/cfa-undefined",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.Undefined}, RA: atCFA(-8)},
			mem: words(amd, sp, 1, 2), err: BadRule,
		},
		{
			name: "amd64/stack-shrinks",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, -8), RA: atCFA(-8)},
			mem: words(amd, sp-16, 1, 2, 3), err: NoProgress, at: sp - 8,
		},
		{
			name: "amd64/caller-stays",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 0), RA: atCFA(-8)}, call: true,
			mem: words(amd, sp-8, 1, 2), err: NoProgress, at: sp,
		},
		{
			name: "amd64/sum-wraps",
			arch: amd, set: set(0x401000, 7, ^uint64(7)),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8)},
			mem: words(amd, sp, 1), err: NoProgress, at: 8,
		},
		{
			name: "amd64/misaligned",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 12), RA: atCFA(-8)},
			mem: words(amd, sp, 1, 2), err: Misaligned, at: sp + 12,
		},
		{
			name: "amd64/outside-the-copy",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 24), RA: atCFA(-8)},
			mem: words(amd, sp, 1, 2), err: OutsideCopy, at: sp + 16,
		},
		{
			name: "amd64/last-word-half-in-the-copy",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8)},
			mem: &Memory{Region: Region{sp, make([]byte, 15)}}, err: OutsideCopy, at: sp + 8,
		},
		{
			// x86-64 PLT: the CFA depends on how far into its 16 bytes the entry
			// is: DW_OP_breg7 8; breg16 0; lit15; and; lit11; ge; lit3; shl; plus.
			name: "amd64/plt-expression-before-push",
			arch: amd, set: set(0x401025, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8),
				Exprs: [][]byte{{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}}},
			mem:  words(amd, sp, 0x402000, 2),
			want: set(0x402000, 7, sp+8),
		},
		{
			name: "amd64/plt-expression-behind-push",
			arch: amd, set: set(0x40102b, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr}, RA: atCFA(-8),
				Exprs: [][]byte{{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}}},
			mem:  words(amd, sp, 1, 0x402000),
			want: set(0x402000, 7, sp+16),
		},
		{
			// For a register the CFA is on the expression's stack at first.
			name: "amd64/register-by-expression",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
				FP:    sframe.Rule{Base: sframe.FromExpr, Offset: 0, Deref: true},
				Exprs: [][]byte{{0x40, 0x1c}}}, // lit16; minus
			mem:  words(amd, sp, 0xb, 0x402000),
			want: set(0x402000, 7, sp+16, 6, 0xb),
		},
		{
			name: "amd64/expression-number-out-of-range",
			arch: amd, set: set(0x401000, 7, sp),
			row: sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr, Offset: 1}, RA: atCFA(-8), Exprs: [][]byte{{0x30}}},
			mem: words(amd, sp, 1), err: BadRule,
		},
		{
			name: "386/fp-based-and-narrow",
			arch: i386, set: set(0x8048000, 4, 0xffff_d000, 5, 0xffff_d004),
			row:  sframe.Row{CFA: fromReg(5, 8), RA: atCFA(-4), FP: atCFA(-8)},
			mem:  words(i386, 0xffff_d000, 1, 0xffff_d010, 0x8048100),
			want: set(0x8048100, 4, 0xffff_d00c, 5, 0xffff_d010),
		},
		{
			name: "386/addresses-wrap-at-32-bits",
			arch: i386, set: set(0x8048000, 4, 0xffff_fffc),
			row: sframe.Row{CFA: fromReg(4, 8), RA: atCFA(-4)},
			mem: words(i386, 0, 1, 2), err: NoProgress, at: 4,
		},
		{
			// A leaf that pushed nothing: CFA = SP, the return address in x30.
			name: "arm64/leaf-keeps-lr",
			arch: a64, set: set(0x401000, 31, sp, 29, 0xf, 30, 0x402000, 19, 0x13),
			row:  sframe.Row{CFA: fromReg(31, 0), RA: same, Keep: a64.CalleeSaved},
			mem:  words(a64, sp),
			want: set(0x402000, 31, sp, 29, 0xf, 19, 0x13),
		},
		{
			// Below the innermost frame x30 has been overwritten by the call.
			name: "arm64/caller-cannot-keep-lr",
			arch: a64, set: set(0x401000, 31, sp, 30, 0x402000),
			row: sframe.Row{CFA: fromReg(31, 16), RA: same}, call: true,
			mem: words(a64, sp), err: BadRule,
		},
		{
			// Stacks read without a stop lack x30.
			name: "arm64/leaf-with-lr-unknown",
			arch: a64, set: set(0x401000, 31, sp),
			row: sframe.Row{CFA: fromReg(31, 0), RA: same},
			mem: words(a64, sp), err: UnknownRegister,
		},
		{
			name: "arm64/return-address-in-a-register",
			arch: a64, set: set(0x401000, 31, sp, 30, 0x402000, 1, 0x403000),
			row:  sframe.Row{CFA: fromReg(31, 0), RA: fromReg(30, 0), Saved: []sframe.SavedRule{regRule(19, fromReg(30, 4))}},
			mem:  words(a64, sp),
			want: set(0x402000, 31, sp, 19, 0x402004),
		},
		{
			name: "arm64/pac-stripped-from-stack",
			arch: a64.WithPAC(0x7f_0000_0000_0000), set: set(0x401000, 31, sp, 29, sp),
			row:  sframe.Row{CFA: fromReg(31, 16), RA: atCFA(-8), FP: atCFA(-16), Signed: true},
			mem:  words(a64, sp, 0xf, 0x2a_0000_0040_2000),
			want: set(0x402000, 31, sp+16, 29, 0xf),
		},
		{
			name: "arm64/pac-stripped-from-lr",
			arch: a64.WithPAC(0x7f_0000_0000_0000), set: set(0x401000, 31, sp, 30, 0x2a_0000_0040_2000),
			row:  sframe.Row{CFA: fromReg(31, 0), RA: same, Signed: true},
			mem:  words(a64, sp),
			want: set(0x402000, 31, sp),
		},
		{
			// stp x29, x30, [sp, #-48]!; mov x29, sp: the record is at the bottom
			// of the frame, the caller's SP above it by an unknown distance.
			name: "arm64/frame-record-leaves-sp-unknown",
			arch: a64, set: set(0x401000, 31, sp, 29, sp),
			row: *arm64Convention.frame,
			mem: words(a64, sp, sp+48, 0x402000),
			want: func() *regs.Set {
				s := set(0x402000, 29, sp+48)
				s.R[31] = sp + 16 // a bound, not known
				return s
			}(),
		},
		{
			name: "s390x/leaf-keeps-r14-and-sp",
			arch: s390, set: set(0x1001000, 15, sp, 14, 0x1002000, 11, 0xb),
			row:  sframe.Row{CFA: fromReg(15, 160), RA: same},
			mem:  words(s390, sp),
			want: set(0x1002000, 15, sp, 11, 0xb),
		},
		{
			// stmg %r11,%r15,88(%r15); aghi %r15,-160: CFA = r15+320, r14 at CFA-48.
			name: "s390x/saved-in-callers-area",
			arch: s390, set: set(0x1001000, 15, sp, 11, 0xb),
			row:  sframe.Row{CFA: fromReg(15, 320), RA: atCFA(-48), FP: atCFA(-72)},
			call: true,
			mem:  words(s390, sp+160+80, 0, 0xbb, 0, 0, 0x1002000, 0),
			want: set(0x1002000, 15, sp+160, 11, 0xbb),
		},
		{
			// ldgr %f0,%r14: a leaf parks the return address in f0 (DWARF 16).
			name: "s390x/return-address-in-f0",
			arch: s390, set: set(0x1001000, 15, sp, 16, 0x1002000, 11, 0xb, 18, 0xbb),
			row:  sframe.Row{CFA: fromReg(15, 160), RA: fromReg(16, 0), FP: fromReg(18, 0)},
			mem:  words(s390, sp),
			want: set(0x1002000, 15, sp, 11, 0xbb),
		},
		{
			name: "s390x/return-address-in-f0-not-fetched",
			arch: s390, set: set(0x1001000, 15, sp),
			row: sframe.Row{CFA: fromReg(15, 160), RA: fromReg(16, 0)},
			mem: words(s390, sp), err: UnknownRegister,
		},
		{
			name: "s390x/back-chain",
			arch: s390, set: set(0x1001000, 15, sp, 11, 0xb),
			row:  *s390xChain,
			call: true,
			mem:  words(s390, sp, append(append([]uint64{sp + 16}, make([]uint64, 15)...), 0x1002000)...),
			want: func() *regs.Set { return set(0x1002000, 15, sp+16) }(),
		},
		{
			// The chain must lead upwards, or it could be followed for ever.
			name: "s390x/back-chain-leads-down",
			arch: s390, set: set(0x1001000, 15, sp),
			row: *s390xChain, call: true,
			mem: words(s390, sp, sp-160), err: NoProgress, at: sp - 160,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := *tt.set
			err := Step(tt.arch, &got, &tt.row, !tt.call, tt.mem)
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
				t.Fatalf("Step: error %v, want %v", err, tt.err)
			}
			want := tt.want
			if err != nil && err != Outermost {
				n, at := next{limit: ^uint64(0)}, tt.at
				if at == 0 {
					at = tt.set.PC
				}
				if n.find(tt.arch, tt.set, &tt.row, !tt.call, tt.mem); n.fault != at {
					t.Errorf("the error is about %#x, want %#x", n.fault, at)
				}
			}
			if err != nil {
				want = tt.set // unchanged
			}
			for n := range got.R {
				if got.Known&(1<<n) == 0 && n != int(tt.arch.SP) {
					got.R[n] = 0 // what an unknown register holds means nothing
				}
				if want.Known&(1<<n) == 0 && n != int(tt.arch.SP) {
					want.R[n] = 0
				}
			}
			if d := cmp.Diff(want, &got); d != "" {
				t.Errorf("registers after the step (-want +got):\n%s", d)
			}
			sameShort(t, tt.arch, *tt.set, &tt.row, !tt.call, tt.mem)
		})
	}
}

// TestCompile: which rows have a short form, and what is in it.
func TestCompile(t *testing.T) {
	row := func() sframe.Row {
		return sframe.Row{CFA: fromReg(7, 48), RA: atCFA(-8), FP: atCFA(-16), Saved: []sframe.SavedRule{regRule(3, atCFA(-24)), regRule(12, atCFA(-32))}}
	}
	for _, tt := range []struct {
		name   string
		change func(*sframe.Row)
		want   plain // zero: none
	}{
		{"as it is", func(r *sframe.Row) {}, plain{48, -8, -16, 7, true}},
		{"of the frame pointer", func(r *sframe.Row) { r.CFA.Reg = 6 }, plain{48, -8, -16, 6, true}},
		{"frame pointer unchanged", func(r *sframe.Row) { r.FP = same }, plain{48, -8, 0, 7, false}},
		{"nothing saved", func(r *sframe.Row) { r.Saved = nil }, plain{48, -8, -16, 7, true}},
		{"far", func(r *sframe.Row) { r.RA.Offset, r.FP.Offset = -0x8000, 0x7fff }, plain{48, -0x8000, 0x7fff, 7, true}},
		{"return address too far", func(r *sframe.Row) { r.RA.Offset = 0x8000 }, plain{}},
		{"frame pointer too far", func(r *sframe.Row) { r.FP.Offset = -0x8001 }, plain{}},
		{"outermost", func(r *sframe.Row) { r.Outermost = true }, plain{}},
		{"signal", func(r *sframe.Row) { r.Signal = true }, plain{}},
		{"switch", func(r *sframe.Row) { r.Switch = true }, plain{}},
		{"by expression", func(r *sframe.Row) { r.CFA.Base = sframe.FromExpr }, plain{}},
		{"loaded", func(r *sframe.Row) { r.CFA.Deref = true }, plain{}},
		{"of another register", func(r *sframe.Row) { r.CFA.Reg = 3 }, plain{}},
		{"return address in its register", func(r *sframe.Row) { r.RA = same }, plain{}},
		{"return address not loaded", func(r *sframe.Row) { r.RA.Deref = false }, plain{}},
		{"frame pointer not loaded", func(r *sframe.Row) { r.FP.Deref = false }, plain{}},
		{"frame pointer in a register", func(r *sframe.Row) { r.FP = fromReg(3, 0) }, plain{}},
		{"stack pointer saved", func(r *sframe.Row) { r.Saved[1].Reg = 7 }, plain{}},
		{"frame pointer saved", func(r *sframe.Row) { r.Saved[1].Reg = 6 }, plain{}},
		{"no such register", func(r *sframe.Row) { r.Saved[1].Reg = regs.NumRegs }, plain{}},
		{"last register", func(r *sframe.Row) { r.Saved[1].Reg = regs.NumRegs - 1 }, plain{48, -8, -16, 7, true}},
		{"saved in a register", func(r *sframe.Row) { r.Saved[0].Rule = fromReg(12, 0) }, plain{}},
		{"saved where a register points", func(r *sframe.Row) { r.Saved[0].Rule = atReg(12, 0) }, plain{}},
	} {
		r := row()
		tt.change(&r)
		if got, ok := compile(regs.AMD64, &r); got != tt.want || ok != (tt.want != plain{}) {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, ok, tt.want)
		}
	}
	if _, ok := compile(regs.I386, &sframe.Row{CFA: fromReg(4, 4), RA: atCFA(-4)}); ok {
		t.Error("of 32 bits")
	}
}

// sameShort: the short form of a row, if it has one, leads where Step does.
func sameShort(t *testing.T, a *regs.Arch, set regs.Set, row *sframe.Row, top bool, mem *Memory) {
	t.Helper()
	p, ok := compile(a, row)
	if !ok {
		return
	}
	want, got := set, set
	err := Step(a, &want, row, top, mem)
	n := next{limit: ^uint64(0)}
	found := n.findPlain(a, &got, &p, top, mem)
	if found {
		n.enter(a, &got, restorePlain(a, &got, row, n.cfa, mem))
	}
	if found != (err == nil) || got != want {
		t.Errorf("short form: %v, %+v; Step: %v, %+v", found, got, err, want)
	}
	for beyond := range uint64(2) { // the mapping ends at the caller's stack pointer, or before
		n = next{limit: want.R[a.SP] - beyond}
		if found && n.findPlain(a, &set, &p, top, mem) != (beyond == 0) {
			t.Errorf("short form with the stack pointer %d beyond the stack: found %v", beyond, beyond != 0)
		}
	}
}

// failing is a process whose memory cannot be read at some addresses.
type failing struct {
	Region
	bad   map[uint64]bool
	asked map[uint64]bool
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	addr := uint64(off)
	for i := range p {
		a := addr + uint64(i)
		if f.bad[a] {
			f.asked[a] = true
			return i, io.ErrUnexpectedEOF
		}
		o := a - f.Addr
		if o >= uint64(len(f.Bytes)) {
			return i, io.EOF
		}
		p[i] = f.Bytes[o]
	}
	return len(p), nil
}

func TestMemory(t *testing.T) {
	a := regs.AMD64
	text := make([]byte, 4096)
	for i := range text {
		text[i] = byte(i / 8)
	}
	more := &failing{Region: Region{0x10000, text}, bad: map[uint64]bool{0x10804: true}, asked: map[uint64]bool{}}
	m := new(Memory)
	m.Reset(0x10100, []byte{1, 0, 0, 0, 0, 0, 0, 0, 2}, more)
	m.Also = []Region{{0x20000, []byte{3, 0, 0, 0, 0, 0, 0, 0}}}
	for _, tt := range []struct {
		name     string
		addr     uint64
		want     uint64
		err      error
		usedMore bool
	}{
		{"copy", 0x10100, 1, nil, false},
		{"further copy", 0x20000, 3, nil, false},
		{"beyond the copy", 0x10110, 0x2222222222222222, nil, true},
		{"before the copy", 0x10000, 0, nil, true},
		{"across the copy's end", 0x10104, 0x2121212120202020, nil, true},
		{"block ends at a bad byte", 0x107f8, 0xffffffffffffffff, nil, true},
		{"bad byte inside", 0x10800, 0, Unreadable, false},
		{"behind the bad byte", 0x10808, 0x0101010101010101, nil, true},
		{"end of memory", 0x10ff8, 0xffffffffffffffff, nil, true},
		{"past the end of memory", 0x10ffc, 0, Unreadable, false},
		{"no such offset", 1<<63 + 8, 0, Unreadable, false},
		{"wraps", ^uint64(3), 0, Unreadable, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.UsedMore = false
			got, err := m.Word(a, tt.addr)
			if got != tt.want || err != tt.err || m.UsedMore != tt.usedMore {
				t.Errorf("Word(%#x) = %#x, %v, used more %v; want %#x, %v, %v",
					tt.addr, got, err, m.UsedMore, tt.want, tt.err, tt.usedMore)
			}
		})
	}
	if v, ok := m.word8(a, 0x10100); v != 1 || !ok {
		t.Errorf("word8 in the copy: %#x, %v", v, ok)
	}
	if _, ok := m.word8(a, 0x10101); !ok {
		t.Error("word8 does not read the last word of the copy")
	}
	if v, ok := m.word8(a, 0x10102); ok {
		t.Errorf("word8 over the copy's end: %#x", v)
	}
	if !more.asked[0x10804] {
		t.Error("the unreadable byte was never asked for")
	}
	m.Reset(0x10100, []byte{9}, nil)
	if _, err := m.Word(a, 0x10100); err != OutsideCopy {
		t.Errorf("Word without memory beyond the copy: %v, want %v", err, OutsideCopy)
	}
}

func TestMemoryReadsInBlocks(t *testing.T) {
	reads := 0
	m := new(Memory)
	m.Reset(0, nil, readerFunc(func(p []byte, off int64) (int, error) {
		reads++
		return len(p), nil
	}))
	for addr := uint64(0x1000); addr < 0x1400; addr += 8 {
		if _, err := m.Word(regs.AMD64, addr); err != nil {
			t.Fatal(err)
		}
	}
	if reads > 2 {
		t.Errorf("%d reads for one KiB of words, want at most 2", reads)
	}
}

type readerFunc func(p []byte, off int64) (int, error)

func (f readerFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// TestReasons: texts are there, differ, and Reasons are comparable errors.
func TestReasons(t *testing.T) {
	seen := map[string]Reason{}
	for r := Reason(0); r < numReasons; r++ {
		text := r.Error()
		if text == "" || text == "unknown reason" {
			t.Errorf("reason %d has no text", r)
		}
		if other, ok := seen[text]; ok {
			t.Errorf("reasons %d and %d are both %q", other, r, text)
		}
		seen[text] = r
	}
	if numReasons.Error() != "unknown reason" {
		t.Errorf("reason %d: %q", numReasons, numReasons.Error())
	}
}
