package unwind

// arm64. A call leaves the return address in x30. A function that calls others
// stores {x29, x30} as a frame record somewhere in its frame and points x29 at
// it (Procedure Call Standard for the Arm 64-bit Architecture, section 6.4.6),
// so that the record tells the return address and the next record, but not where
// the frame ends.
//
// Signal frames: struct rt_sigframe of arch/arm64/kernel/signal.c and
// uapi/asm/sigcontext.h.

import (
	"encoding/binary"

	"sfsample/regs"
	"sfsample/sframe"
)

var arm64Convention = convention{
	// CFA here is the end of the record: a lower bound of the caller's SP.
	frame: &sframe.Row{
		CFA: fromReg(regs.ARM64.FP, 16), RA: atCFA(-8), FP: atCFA(-16),
		Saved: []sframe.SavedRule{{Reg: regs.ARM64.SP, Rule: undefinedRule}},
	},
	entry:     arm64Entry,
	innermost: arm64Innermost,
	signal:    arm64Signal,
	afterCall: arm64AfterCall,
	target:    arm64CallTarget,
	passes:    arm64Passes,
}

// arm64Entry: nothing was saved yet, or all was restored.
var arm64Entry = &sframe.Row{
	CFA:  fromReg(regs.ARM64.SP, 0),
	Keep: regs.ARM64.CalleeSaved &^ (1 << 29),
}

// Instructions (Arm Architecture Reference Manual, chapter C6).
const (
	arm64BTI     = 0xd503245f // bti c
	arm64BTIJC   = 0xd50324df // bti jc
	arm64PACIASP = 0xd503233f
	arm64PACIBSP = 0xd503237f
	arm64AUTIASP = 0xd50323bf
	arm64AUTIBSP = 0xd50323ff
	arm64Ret     = 0xd65f03c0
	arm64RetAA   = 0xd65f0bff
	arm64RetAB   = 0xd65f0fff
	arm64MovFP   = 0x910003fd // mov x29, sp
	arm64BrX17   = 0xd61f0220 // the end of a PLT entry

	// Go keeps the record right below its frame (cmd/internal/obj/arm64/obj7.go,
	// preprocess).
	arm64GoSaveFP  = 0xf81f83fd // stur x29, [sp, #-8]
	arm64GoSetFP   = 0xd10023fd // sub x29, sp, #8
	arm64GoRestore = 0xa97ffbfd // ldp x29, x30, [sp, #-8]
	// str x30, [sp, #imm9]!, imm9 negative
	arm64GoPush     = 0xf8100ffe
	arm64GoPushMask = 0xfff00fff
	// add sp, sp, #imm12
	arm64AddSP     = 0x910003ff
	arm64AddSPMask = 0xffc003ff

	// stp x29, x30, [sp, #imm7*8]!, imm7 negative
	arm64PushPair     = 0xa9a07bfd
	arm64PushPairMask = 0xffe07fff
)

// arm64Insn is the instruction with index i in b; where there is none, 0, which is none: udf.
func arm64Insn(b []byte, i int) uint32 {
	if i < 0 || i*4+4 > len(b) {
		return 0
	}
	return binary.LittleEndian.Uint32(b[i*4:])
}

// arm64Innermost knows: the entry, up to the store of the record that begins a
// frame; the moment between that store and the setting of x29; and the return,
// with or without authentication.
func arm64Innermost(w *window) *sframe.Row {
	at := w.ahead()
	if row := arm64GoInnermost(at, w.behind()); row != nil {
		return row
	}
	for i := 0; ; i++ {
		insn := arm64Insn(at, i)
		switch insn {
		case arm64BTI, arm64BTIJC, arm64PACIASP, arm64PACIBSP, arm64AUTIASP, arm64AUTIBSP:
			continue
		case arm64BrX17:
			return arm64Entry
		case arm64Ret, arm64RetAA, arm64RetAB:
			return arm64Entry
		case arm64MovFP:
			if i == 0 {
				return arm64Pushed(w.behind())
			}
			return nil
		}
		if insn&0x9f00001f == 0x90000010 || insn&0xffc003ff == 0xf9400211 || insn&0xffc003ff == 0x91000210 {
			continue // adrp x16; ldr x17, [x16, #n]; add x16, x16, #n: a PLT entry
		}
		if insn&arm64PushPairMask == arm64PushPair {
			return arm64Entry
		}
		return nil
	}
}

// arm64Pushed is the row behind stp x29, x30, [sp, #-n]!: the record is at SP.
func arm64Pushed(behind []byte) *sframe.Row {
	insn := arm64Insn(behind, len(behind)/4-1)
	if insn&arm64PushPairMask != arm64PushPair {
		return nil
	}
	size := -(int32(insn<<10) >> 25) * 8
	return &sframe.Row{
		CFA: fromReg(regs.ARM64.SP, size), RA: atCFA(8 - size), FP: atCFA(-size),
		Keep: arm64Entry.Keep,
	}
}

// arm64GoInnermost knows what Go's compiler and assembler put at a function's
// beginning and end, up to where x29 is set and from where it is the caller's.
func arm64GoInnermost(at, behind []byte) *sframe.Row {
	insn := arm64Insn(at, 0)
	before := arm64Insn(behind, len(behind)/4-1)
	switch {
	case insn == arm64GoSetFP && before == arm64GoSaveFP:
		before = arm64Insn(behind, len(behind)/4-2)
	case insn == arm64GoSaveFP:
	case insn&arm64GoPushMask == arm64GoPush:
		return arm64Entry
	case insn&arm64AddSPMask == arm64AddSP && before == arm64GoRestore:
		return &sframe.Row{CFA: fromReg(regs.ARM64.SP, int32(insn>>10&0xfff)), Keep: arm64Entry.Keep}
	default:
		return nil
	}
	if before&arm64GoPushMask != arm64GoPush {
		return nil
	}
	size := -(int32(before<<11) >> 23)
	return &sframe.Row{CFA: fromReg(regs.ARM64.SP, size), RA: atCFA(-size), Keep: arm64Entry.Keep}
}

// leafReach is how far a leaf function may reach from its start.
const leafReach = 4096

// inLeaf: the innermost function has no frame record, its return address is in
// x30 and x29 is its caller's. Once a function has stored x30 it still holds
// what the record says, or, behind a call, an address in the function itself. So
// x30 must differ from the record that x29 points at and lie behind a call
// from another mapping (the vDSO is called so), or behind a bl to right before
// pc that is not near itself.
func (c *knownCode) inLeaf(s *regs.Set, mem *Memory) bool {
	a := c.proc.arch
	lr, ok := s.Reg(a.RA)
	if !ok {
		return false
	}
	lr &^= a.PACMask
	fp, ok := s.Reg(a.FP)
	if ra, r := mem.word(a, fp+8); !ok || r != 0 || ra&^a.PACMask == lr {
		return false
	}
	return c.calledHere(s.PC, lr)
}

// calledHere: lr lies behind a call from another mapping, or behind a direct
// call to the function that pc is in. Code that pc's own function has called
// stands before it as well, so the target must be far from lr, or nothing between it and pc
// may end a function.
func (c *knownCode) calledHere(pc, lr uint64) bool {
	if c.lookup(lr, true).flags&afterCall == 0 {
		return false
	}
	if c.proc.layout != nil {
		_, here, ok1 := c.proc.layout.Mapping(pc)
		_, there, ok2 := c.proc.layout.Mapping(lr - 1)
		if ok1 && ok2 && here != there {
			return true
		}
	}
	c.window.read(c.proc.space, lr)
	target, ok := c.proc.conv.target(lr, c.window.behind())
	if !ok || pc-target >= leafReach {
		return false
	}
	return lr-target >= leafReach || c.oneFunction(target, pc)
}

// maxLeaf is how much code is looked at for the end of a function.
const maxLeaf = 512

// oneFunction: the code from start to end ends no function.
func (c *knownCode) oneFunction(start, end uint64) bool {
	var buf [maxLeaf]byte
	n := end - start
	if n > maxLeaf || uint64(c.proc.space.Code(start, buf[:n])) != n {
		return false
	}
	for b := buf[:n]; len(b) > 0; {
		size := c.proc.conv.passes(b)
		if size == 0 || size > len(b) {
			return false
		}
		b = b[size:]
	}
	return true
}

// arm64Passes is the length of the instruction that b begins with, 0 if it
// never goes on to the next one: b, br, ret and their authenticating forms,
// udf, brk. Calls through registers (blr) are taken for such: they have the encoding of br but for one bit.
func arm64Passes(b []byte) int {
	insn := arm64Insn(b, 0)
	switch {
	case insn>>26 == 0x05: // b
		return 0
	case insn&0xfe9ff000 == 0xd61f0000: // br, blr, ret
		return 0
	case insn&0xffff0000 == 0 || insn&0xffe0001f == 0xd4200000: // udf, brk
		return 0
	}
	return 4
}

// arm64CallTarget is where the bl that ends b goes.
func arm64CallTarget(ra uint64, b []byte) (uint64, bool) {
	insn := arm64Insn(b, len(b)/4-1)
	if insn&0xfc000000 != 0x94000000 {
		return 0, false
	}
	return ra - 4 + uint64(int64(int32(insn<<6)>>6)*4), true
}

// arm64AfterCall: bl, blr, or one of the authenticating forms of blr.
func arm64AfterCall(w *window) bool {
	insn := arm64Insn(w.behind(), w.before/4-1)
	switch {
	case insn&0xfc000000 == 0x94000000: // bl
		return true
	case insn&0xfffffc1f == 0xd63f0000: // blr
		return true
	case insn&0xfefff800 == 0xd63f0800: // blraa, blrab, blraaz, blrabz
		return true
	}
	return false
}

// arm64SigreturnCode: mov x8, #139; svc 0 (arch/arm64/kernel/vdso/sigreturn.S).
var arm64SigreturnCode = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}

// arm64SignalRow: at the restorer SP points at the siginfo (128 bytes), behind
// it the ucontext, whose x0 is 184 bytes in; sp and pc follow x30.
var arm64SignalRow = func() *sframe.Row {
	order := make([]uint8, 32)
	for n := range order {
		order[n] = uint8(n)
	}
	row := signalRow(regs.ARM64, order, 128+184, 8)
	row.RA = atReg(regs.ARM64.SP, 128+184+32*8)
	return row
}()

func arm64Signal(w *window, mid bool) *sframe.Row {
	if matchCode(w, arm64SigreturnCode, 4, mid) {
		return arm64SignalRow
	}
	return nil
}

// arm64SigframeBytes is the size of struct rt_sigframe without what does not fit
// in its 4096 reserved bytes, the vector registers of some processors.
const arm64SigframeBytes = 128 + 176 + 288 + 4096

// maxSigframe bounds the search for a signal frame that is larger.
const maxSigframe = 64 << 10

// findSignalSP finds the stack pointer of a signal trampoline that was reached
// by frame records, which do not tell it. Above the signal frame the kernel
// pushes a record of the interrupted x29 and x30, at which the handler's x29
// points (arch/arm64/kernel/signal.c, get_sigframe and setup_return): the frame
// is the one below in which these two registers were saved.
// The reason is not 0 if the record, at fault, lies outside the copy.
func findSignalSP(a *regs.Arch, s *regs.Set, mem *Memory) (fault uint64, _ Reason) {
	fp, ok := s.Reg(a.FP)
	if _, known := s.Reg(a.SP); known || !ok {
		return 0, 0
	}
	x29, _ := mem.word(a, fp)
	x30, r := mem.word(a, fp+8)
	if r != 0 {
		return fp, r
	}
	const x29At = 128 + 184 + 29*8
	for sp := (fp - arm64SigframeBytes) &^ 15; fp-sp <= maxSigframe; sp -= 16 {
		lo, r := mem.word(a, sp+x29At)
		hi, r2 := mem.word(a, sp+x29At+8)
		if r != 0 || r2 != 0 {
			break
		}
		if lo == x29 && hi == x30 {
			s.SetReg(a.SP, sp)
			break
		}
	}
	return 0, 0
}
