package unwind

// s390x. A call leaves the return address in r14. The caller provides a save
// area of 160 bytes at its stack pointer, into which the function called stores the
// registers that it will change: r6–r15 from byte 48 on, so r14 at 112. With
// -mbackchain the word at the stack pointer is the caller's stack pointer
// (s390x ELF ABI supplement, stack frame). There is no frame pointer
// convention: r11 is set, if at all, after the frame was allocated.
//
// Signal frames: struct rt_sigframe and struct sigframe of
// arch/s390/kernel/signal.c. vDSO wrapper: arch/s390/kernel/vdso64/vdso_user_wrapper.S.

import (
	"bytes"
	"encoding/binary"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
)

const (
	s390xSP   = 15
	s390xLink = 14
)

var s390xConvention = convention{
	entry:     s390xEntry,
	innermost: s390xInnermost,
	signal:    s390xSignal,
	afterCall: s390xAfterCall,
	target:    s390xCallTarget,
	passes:    s390xPasses,
	lost:      s390xLost,
}

// s390xEntry: r14 holds the return address and r15 is the caller's.
var s390xEntry = &sframe.Row{
	CFA:  fromReg(s390xSP, 160),
	Keep: regs.S390X.CalleeSaved &^ (1 << 11),
}

// The rows of a back chain take the caller's stack pointer itself as the CFA.
// They say nothing of the other registers: what the chain skips may have
// changed them.
var (
	s390xSPIsCFA = []sframe.SavedRule{{Reg: s390xSP, Rule: cfaRule}}

	s390xChain = &sframe.Row{
		CFA: atReg(s390xSP, 0), RA: atCFA(112), FP: undefinedRule, Saved: s390xSPIsCFA,
	}
	// -mpacked-stack keeps the chain in the last word of the save area and
	// the registers right below it.
	s390xPackedChain = &sframe.Row{
		CFA: atReg(s390xSP, 152), RA: atCFA(136), FP: undefinedRule, Saved: s390xSPIsCFA,
	}
	// The vDSO's wrapper pushes a save area and the return address, and puts
	// 0 in the chain.
	s390xVDSO = &sframe.Row{
		CFA: fromReg(s390xSP, 168), RA: atCFA(-8), FP: undefinedRule, Saved: s390xSPIsCFA,
	}
	s390xChainEnd = &sframe.Row{Outermost: true}
)

// s390xChains are the layouts of a chain, in the order in which they are tried.
// Nothing tells which one a program has but that following it leads to a call.
var s390xChains = [...]*sframe.Row{s390xChain, s390xPackedChain}

// chain follows the back chain from the frame of e. After success, and where
// the chain ends, it returns the row that says so, and w.next holds the caller.
//
// A function without a frame of its own stands on its caller's chain, which
// would leave the caller out. Where r14 is known it tells (calledHere);
// a function without a frame that has also moved r14 elsewhere cannot be told
// from one with a frame: there the chain does leave its caller out.
func (w *walk) chain(e *entry, top bool, mem *Memory) (*sframe.Row, Reason) {
	if !top {
		return w.anyChain(e, mem)
	}
	lr, ok := w.set.Reg(s390xLink)
	if !ok {
		w.next.fault = w.set.PC
		return nil, UnknownRegister
	}
	row, r := w.anyChain(e, mem)
	if r == 0 && w.next.pc == lr || !w.code.calledHere(w.set.PC, lr) {
		return row, r
	}
	return s390xEntry, w.try(s390xEntry, BackChain, e, true, mem)
}

// anyChain follows the chain in the layout that led to the frame of e or, if
// none did, in the first that leads on. The reason is the first one's. A link leads upwards from an
// innermost frame too.
func (w *walk) anyChain(e *entry, mem *Memory) (*sframe.Row, Reason) {
	var first next
	var reason Reason
	for _, layout := range s390xChains {
		if w.linked != nil && w.linked != layout && slices.Contains(s390xChains[:], w.linked) {
			continue
		}
		row, r := w.follow(layout, e, mem)
		if r == 0 || r == Outermost || r == OutsideCopy {
			return row, r
		}
		if reason == 0 {
			first, reason = w.next, r
		}
	}
	w.next = first
	return nil, reason
}

// follow follows the chain in one layout.
func (w *walk) follow(layout *sframe.Row, e *entry, mem *Memory) (*sframe.Row, Reason) {
	sp, ok := w.set.Reg(s390xSP)
	if !ok {
		return nil, UnknownRegister
	}
	at := sp + uint64(int64(layout.CFA.Offset))
	w.next.fault = at
	link, r := mem.word(regs.S390X, at)
	switch {
	case r != 0:
		return nil, r
	case link != 0:
		return layout, w.try(layout, BackChain, e, false, mem)
	case layout == s390xChain && w.proc.layout != nil && w.proc.layout.VDSO(w.set.PC):
		return s390xVDSO, w.try(s390xVDSO, BackChain, e, false, mem)
	case w.linked == layout:
		return s390xChainEnd, Outermost
	}
	// Code without -mbackchain leaves the word as it was, and most of a stack
	// is 0: only behind a link is 0 the end of a chain.
	w.next.fault = w.set.PC
	return nil, NoRow
}

// s390xCallTarget is where the brasl that ends b goes.
func s390xCallTarget(ra uint64, b []byte) (uint64, bool) {
	n := len(b)
	if n < 6 || b[n-6] != 0xc0 || b[n-5] != 0xe5 {
		return 0, false
	}
	halfwords := int64(int32(binary.BigEndian.Uint32(b[n-4:])))
	return ra - 6 + uint64(halfwords*2), true
}

// s390xLost: svc 7 is the vDSO's restart_syscall, to which the kernel sends a
// thread whose call it continues. Where the thread came from only the kernel knows
// until the call has begun (arch/s390/kernel/signal.c and syscall.c,
// restart_block.arch_data).
func s390xLost(w *window) bool { return bytes.HasPrefix(w.ahead(), []byte{0x0a, 0x07}) }

// s390xPasses is the length of the instruction that b begins with, 0 if it never
// goes on to the next one: bcr 15, brc 15, brcl 15, and what is no instruction.
func s390xPasses(b []byte) int {
	switch {
	case len(b) < 2 || b[0] == 0 && len(b) > 2:
		return 0 // as the last one it is the trap behind which pc stands
	case b[0] == 0x07 && b[1]>>4 == 15 && b[1]&15 != 0:
		return 0
	case b[0] == 0xa7 && b[1] == 0xf4 || b[0] == 0xc0 && b[1] == 0xf4:
		return 0
	}
	return s390xInsnBytes(b[0])
}

// s390xInsnBytes is the length of the instruction that begins with b: the two
// leftmost bits tell (z/Architecture Principles of Operation, instruction formats).
func s390xInsnBytes(b byte) int {
	switch b >> 6 {
	case 0:
		return 2
	case 3:
		return 6
	}
	return 4
}

// s390xInnermost knows the prologue up to the instruction that lowers r15, when
// the store of r14 and r15 that begins it is in sight, and the return. A store
// with no lowering behind it, or a lowering with no store before it (alloca),
// proves nothing.
func s390xInnermost(w *window) *sframe.Row {
	at := w.ahead()
	if bytes.HasPrefix(at, []byte{0x07, 0xfe}) { // br %r14
		return s390xEntry
	}
	saved := s390xStoresLink(w.behind())
	for range 8 {
		if len(at) == 0 {
			return nil
		}
		n := s390xInsnBytes(at[0])
		if len(at) < n {
			return nil
		}
		insn := at[:n]
		at = at[n:]
		switch {
		case s390xIsStore(insn):
			saved = true
		case s390xLowersSP(insn):
			if saved {
				return s390xEntry
			}
			return nil
		case s390xBranches(insn):
			return nil
		}
	}
	return nil
}

// s390xIsStore: stmg %rN,%r15,d(%r15) with the displacement of the save area's
// slot for rN, which is at 8*N.
func s390xIsStore(insn []byte) bool {
	if len(insn) != 6 || insn[0] != 0xeb || insn[5] != 0x24 || insn[1]&15 != 15 || insn[4] != 0 {
		return false
	}
	first := int(insn[1] >> 4)
	return insn[2] == s390xSP<<4 && int(insn[3]) == 8*first && first <= s390xLink
}

// s390xStoresLink: the store ends right before pc, or one further instruction
// (lgr %r1,%r15 with -mbackchain) stands between.
func s390xStoresLink(b []byte) bool {
	n := len(b)
	if n >= 6 && s390xIsStore(b[n-6:]) {
		return true
	}
	return n >= 10 && s390xIsStore(b[n-10:n-4]) && bytes.Equal(b[n-4:], []byte{0xb9, 0x04, 0x00, 0x1f})
}

// s390xLowersSP: aghi, agfi, lay or slgfi on r15 that make it smaller.
func s390xLowersSP(insn []byte) bool {
	switch {
	case len(insn) == 4 && insn[0] == 0xa7 && insn[1] == 0xfb: // aghi %r15,n
		return insn[2]&0x80 != 0
	case len(insn) == 6 && insn[0] == 0xc2 && insn[1] == 0xf8: // agfi %r15,n
		return insn[2]&0x80 != 0
	case len(insn) == 6 && insn[0] == 0xc2 && insn[1] == 0xf4: // slgfi %r15,n
		return true
	case len(insn) == 6 && insn[0] == 0xe3 && insn[5] == 0x71: // lay %r15,d(%r15)
		return insn[1] == 0xf0 && insn[2]>>4 == s390xSP && insn[4]&0x80 != 0
	}
	return false
}

// s390xBranches: the instruction may go elsewhere: bcr, basr, bc, brc, bras, brct,
// brcl, brasl, and the compare-and-branch groups.
func s390xBranches(insn []byte) bool {
	switch insn[0] {
	case 0x05, 0x06, 0x07, 0x0c, 0x0d, 0x45, 0x46, 0x47, 0x4d, 0x84, 0x85, 0x86, 0x87:
		return true
	case 0xa7:
		return insn[1]&12 == 4 // brc, bras, brct, brctg
	case 0xc0:
		return insn[1]&14 == 4 // brcl, brasl
	case 0xec:
		switch insn[5] {
		case 0x44, 0x45, 0x64, 0x65, 0x76, 0x77, 0x7c, 0x7d, 0x7e, 0x7f, 0xe4, 0xe5, 0xf6, 0xf7, 0xfc, 0xfd, 0xfe, 0xff:
			return true
		}
	}
	return false
}

// s390xAfterCall: brasl %r14, bras %r14, basr %r14,rN or the like.
func s390xAfterCall(w *window) bool {
	b := w.behind()
	n := len(b)
	switch {
	case n >= 6 && b[n-6] == 0xc0 && b[n-5] == 0xe5: // brasl %r14
		return true
	case n >= 4 && b[n-4] == 0xa7 && b[n-3] == 0xe5: // bras %r14
		return true
	case n >= 4 && b[n-4] == 0x4d && b[n-3]>>4 == 14: // bas %r14
		return true
	case n >= 2 && b[n-2] == 0x0d && b[n-1]>>4 == 14: // basr %r14
		return true
	}
	return false
}

// The restorers are an svc with the number of rt_sigreturn (173) or sigreturn
// (119); SP is r15 at the handler's entry, which provides the handler's save area.
var (
	s390xRTSigreturnCode = []byte{0x0a, 0xad}
	s390xSigreturnCode   = []byte{0x0a, 0x77}

	// struct rt_sigframe: save area 160, svc 2 and padding 6, siginfo 128,
	// ucontext 40, then PSW mask and address, r0–r15.
	s390xRTSignalRow = s390xSignalRow(160 + 8 + 128 + 40)
	// struct sigframe: save area 160, old mask 8, pointer 8, then the same.
	s390xSignalRowOld = s390xSignalRow(160 + 8 + 8)
)

// s390xSignalRow: off is the PSW's distance from SP. r0–r15 follow it, access
// registers take 64 bytes, the floating-point control word 8, and f0–f15 follow.
func s390xSignalRow(off int32) *sframe.Row {
	order := make([]uint8, 16)
	for n := range order {
		order[n] = uint8(n)
	}
	row := signalRow(regs.S390X, order, off+16, 8)
	row.RA = atReg(s390xSP, off+8)
	for n := range uint8(16) {
		row.Saved = append(row.Saved, sframe.SavedRule{
			Reg:  16 + n,
			Rule: atReg(s390xSP, off+16+16*8+64+8+8*s390xFPROrder[n]),
		})
	}
	return row
}

// s390xFPROrder[n] is the floating-point register with DWARF number 16+n
// (s390x ELF ABI supplement, DWARF register number mapping).
var s390xFPROrder = [16]int32{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}

func s390xSignal(w *window, _ bool) *sframe.Row {
	at := w.ahead()
	switch {
	case bytes.HasPrefix(at, s390xRTSigreturnCode):
		return s390xRTSignalRow
	case bytes.HasPrefix(at, s390xSigreturnCode):
		return s390xSignalRowOld
	}
	return nil
}
