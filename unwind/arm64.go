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

	// stp x29, x30, [sp, #imm7*8]!
	arm64PushPair     = 0xa9807bfd
	arm64PushPairMask = 0xffc07fff
)

func arm64Insn(b []byte, i int) (uint32, bool) {
	if i < 0 || i*4+4 > len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(b[i*4:]), true
}

// arm64Innermost knows: the entry, up to the store of the record that begins a
// frame; the moment between that store and the setting of x29; and the return,
// with or without authentication.
func arm64Innermost(w *window) *sframe.Row {
	at := w.ahead()
	for i := 0; ; i++ {
		insn, ok := arm64Insn(at, i)
		if !ok {
			return nil
		}
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
		if insn&arm64PushPairMask == arm64PushPair && int32(insn<<10)>>25 < 0 {
			return arm64Entry
		}
		return nil
	}
}

// arm64Pushed is the row behind stp x29, x30, [sp, #-n]!: the record is at SP.
func arm64Pushed(behind []byte) *sframe.Row {
	if len(behind) < 4 {
		return nil
	}
	insn := binary.LittleEndian.Uint32(behind[len(behind)-4:])
	size := -(int32(insn<<10) >> 25) * 8
	if insn&arm64PushPairMask != arm64PushPair || size <= 0 {
		return nil
	}
	return &sframe.Row{
		CFA: fromReg(regs.ARM64.SP, size), RA: atCFA(8 - size), FP: atCFA(-size),
		Keep: arm64Entry.Keep,
	}
}

// leafReach is how far a leaf function may reach from its start.
const leafReach = 4096

// inLeaf: the innermost function has no frame record, its return address is in
// x30 and x29 is its caller's. Once a function has stored x30 it still holds
// what the record says, or, behind a call, an address in the function itself. So
// x30 must differ from the record that x29 points at and lie behind a call
// from another mapping (the vDSO is called so), or behind a bl to right before
// pc that is not near itself.
func (w *Walker) inLeaf(mem *Memory) bool {
	s := &w.set
	lr, ok := s.Reg(w.arch.RA)
	if !ok {
		return false
	}
	lr &^= w.arch.PACMask
	fp, ok := s.Reg(w.arch.FP)
	if ra, r := mem.word(w.arch, fp+8); !ok || r != 0 || ra&^w.arch.PACMask == lr {
		return false
	}
	return w.calledHere(lr)
}

// calledHere: lr lies behind a call from another mapping, or behind a direct
// call to right before pc that is not near itself.
func (w *Walker) calledHere(lr uint64) bool {
	pc := w.set.PC
	if w.lookup(lr, true).flags&afterCall == 0 {
		return false
	}
	if w.layout != nil {
		_, here, ok1 := w.layout.Mapping(pc)
		_, there, ok2 := w.layout.Mapping(lr - 1)
		if ok1 && ok2 && here != there {
			return true
		}
	}
	w.window.read(w.space, lr)
	target, ok := w.conv.target(lr, w.window.behind())
	return ok && pc-target < leafReach && lr-target >= leafReach
}

// arm64CallTarget is where the bl that ends b goes.
func arm64CallTarget(ra uint64, b []byte) (uint64, bool) {
	if len(b) < 4 {
		return 0, false
	}
	insn := binary.LittleEndian.Uint32(b[len(b)-4:])
	if insn&0xfc000000 != 0x94000000 {
		return 0, false
	}
	return ra - 4 + uint64(int64(int32(insn<<6)>>6)*4), true
}

// arm64AfterCall: bl, blr, or one of the authenticating forms of blr.
func arm64AfterCall(w *window) bool {
	b := w.behind()
	if len(b) < 4 {
		return false
	}
	insn := binary.LittleEndian.Uint32(b[len(b)-4:])
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
