package unwind

import (
	"fmt"

	"sfsample/regs"
	"sfsample/sframe"
)

// convention is what an architecture's calling convention, kernel and
// instruction encoding tell about frames that have no table.
type convention struct {
	// frame is the row of a frame kept by the frame pointer convention; nil
	// where there is none.
	frame *sframe.Row
	// entry is the row of a function's first instruction.
	entry *sframe.Row
	// innermost returns the row of an innermost frame whose frame pointer is
	// not set up yet or any more, by the bytes around its pc; nil: it is.
	innermost func(w *window) *sframe.Row
	// returned returns the row of a caller that does nothing but return behind
	// its call, by the bytes at its pc; nil: it does more.
	returned func(w *window) *sframe.Row
	// signal returns the row of a signal trampoline, by the bytes around pc
	// alone. mid: pc may stand behind the trampoline's first instruction.
	signal func(w *window, mid bool) *sframe.Row
	// afterCall: a call instruction may end right before pc.
	afterCall func(w *window) bool
	// target is where the direct call goes that ends with the code b, behind
	// which ra points; ok is false if none does. Only where a call leaves the
	// return address in a register.
	target func(ra uint64, b []byte) (addr uint64, ok bool)
	// passes is the length of the instruction that b begins with, 0 if it never
	// goes on to the next one. Where there is target.
	passes func(b []byte) int
	// jumps: the instruction at pc goes to the address in reg. nil: not looked at.
	jumps func(w *window) (reg uint8, ok bool)

	// calls returns the register through which the call at the end of b goes. nil: it is not known.
	calls func(b [3]byte) (reg uint8, ok bool)
	// lost: the code at pc, which the kernel has put there, has no caller, and
	// where it goes on cannot be seen. nil: there is no such code.
	lost func(w *window) bool
}

var conventions = map[string]*convention{
	regs.AMD64.Name:   &amd64Convention,
	regs.I386.Name:    &i386Convention,
	regs.ARM64.Name:   &arm64Convention,
	regs.ARM64BE.Name: &arm64Convention, // instructions are little-endian there too
	regs.S390X.Name:   &s390xConvention,
}

// CheckOrder says whether a walk on a can use the methods of order at all: the
// error names the one that the architecture lacks when it is the only one.
func CheckOrder(a *regs.Arch, order []How) error {
	useful := false
	for _, h := range order {
		switch h {
		case SFrame, EHFrame, Code:
			useful = true
		case FramePointer:
			useful = useful || conventions[a.Name] != nil && conventions[a.Name].frame != nil
		case BackChain:
			useful = useful || a.Name == regs.S390X.Name
		default:
			return fmt.Errorf("%q is no unwind method (try: sframe, eh_frame, code, fp, backchain)", h.String())
		}
	}
	switch {
	case useful:
		return nil
	case len(order) == 0:
		return fmt.Errorf("no unwind method given (try: sframe,eh_frame,code,fp,backchain)")
	case a.Name == regs.S390X.Name:
		// s390x ELF ABI: r11 is a frame pointer by preference only; compilers
		// set it after the frame was allocated, so the CFA does not follow from it.
		return fmt.Errorf("there is no frame pointer convention on s390x (try: backchain)")
	}
	return fmt.Errorf("back chains exist on s390x only, not on %s (try: fp)", a.Name)
}

// window is the code around an address.
type window struct {
	buf    [windowBefore + windowAfter]byte
	before int // bytes known before the address
	after  int // bytes known from the address on
}

const (
	windowBefore = 16
	windowAfter  = 48
)

// read fills the window around pc.
func (w *window) read(space Space, pc uint64) {
	w.before = 0
	if n := space.Code(pc-windowBefore, w.buf[:]); n >= windowBefore {
		w.before, w.after = windowBefore, min(n, len(w.buf))-windowBefore
		return
	}
	// The bytes before may lie in another mapping.
	w.after = max(0, min(space.Code(pc, w.buf[windowBefore:]), windowAfter))
}

// ahead returns the bytes from the address on.
func (w *window) ahead() []byte { return w.buf[windowBefore : windowBefore+w.after] }

// behind returns the bytes before the address.
func (w *window) behind() []byte { return w.buf[windowBefore-w.before : windowBefore] }

// Rules, for rows written by hand.
func fromReg(reg uint8, off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromReg, Reg: reg, Offset: off}
}

func atReg(reg uint8, off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromReg, Reg: reg, Offset: off, Deref: true}
}

func atCFA(off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromCFA, Offset: off, Deref: true}
}

var (
	cfaRule       = sframe.Rule{Base: sframe.FromCFA}
	undefinedRule = sframe.Rule{Base: sframe.Undefined}
)
