package unwind

import (
	"errors"

	"sfsample/sframe"
)

// How says which method found a frame.
type How uint8

const (
	Regs         How = iota // the thread's own registers: frame 0
	SFrame                  // a row of .sframe
	EHFrame                 // a row compiled from .eh_frame, Go's pclntab or .debug_frame
	FramePointer            // the frame pointer convention
	BackChain               // the s390x back chain
	Code                    // the code, followed to its return
	Signal                  // the frame that a signal interrupted
	ByRuntime               // what generated the code tells its callers
	Gap                     // searched for: the frame with PC 0 stands for all that is missing, the one behind it was found by a proof
	numHow
)

var howNames = [numHow]string{"regs", "sframe", "eh_frame", "fp", "backchain", "code", "signal", "runtime", "gap"}

// String is the method's name as --unwind and every output spell it.
func (h How) String() string {
	if h < numHow {
		return howNames[h]
	}
	return "unknown"
}

// Frame is one frame of a walked stack.
type Frame struct {
	PC uint64
	// SP is the stack pointer in this frame.
	SP uint64
	// Caller: PC is a return address. Clear where PC is exact: for frame 0, for
	// a frame that a signal interrupted, and for the trampoline to which the
	// handler returns.
	Caller bool
	How    How
	// Fallback: a method before How in the order had a row for the callee, and
	// the row failed a check.
	Fallback bool
}

// LookupPC is the address by which rows and names are looked up: PC, or PC-1
// when it is a return address, so that a call that ends its function stays in it.
func (f Frame) LookupPC() uint64 {
	if f.Caller {
		return f.PC - 1
	}
	return f.PC
}

// ErrUnread is of a table that could not be read just now: nobody knows whether it has a row, and what is guessed in its place, as by a frame pointer,
// may pass over a frame.
var ErrUnread = errors.New("unwind table could not be read")

// Space answers what a walk asks about the code of one process. It is asked by
// one goroutine at a time.
type Space interface {
	// Row returns the row that method m (SFrame or EHFrame) has for the
	// address pc. The row stays valid and unchanged for ever.
	// sframe.ErrNoRow: nothing here, ask the next method. ErrUnread: ask the other
	// table, and no method that guesses. Any other error says why the table is of
	// no use here; the walk goes on with the next method.
	Row(pc uint64, m How) (*sframe.Row, error)
	// Executable: pc lies in an executable mapping (or the vDSO).
	Executable(pc uint64) bool
	// Code copies up to len(b) bytes of code at pc to b and returns how many
	// there were: for signal trampolines and prologues that tables lack.
	Code(pc uint64, b []byte) int
	// Entry: pc lies in a function that starts a stack (_start, clone, a
	// runtime's thread start). A stack that ends in one and has nothing
	// plausible above it is complete.
	Entry(pc uint64) bool
	// Generation changes whenever an answer given earlier may have changed
	// (mappings were refreshed). Callers drop what they cached then.
	Generation() uint64
}

// Follower is what a Space may do besides: the method Code works where the Space
// has it.
type Follower interface {
	// Follow returns the row that the code from pc on tells, up to the return of
	// the function. caller: pc is a return address. An error says that it tells
	// nothing.
	Follow(pc uint64, caller bool) (*sframe.Row, error)
	// Called returns the row of the code at pc, if what the call in front of ra
	// calls directly leads there, or, if start is not 0, what begins at that: pc's function
	// may never return.
	Called(ra, start, pc uint64) (*sframe.Row, error)
}

// Layout is what a Space may know of the address space besides. A walk uses it
// when the Space has it.
type Layout interface {
	// Mapping returns the bounds of the mapping that holds addr, end excluded;
	// neighbouring ones with equal rights may be joined. ok is false when it is
	// not known: the walk then makes no check by it.
	Mapping(addr uint64) (start, end uint64, ok bool)
	// VDSO: pc lies in the vDSO. The s390x back chain has frames of its own kind there.
	VDSO(pc uint64) bool
}
