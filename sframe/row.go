package sframe

import "errors"

// Base says what a [Rule] starts from.
type Base uint8

const (
	// Same: the register keeps its value. As the rule of the return address:
	// it is still in the link register (arm64 x30, s390x r14).
	Same Base = iota
	// FromCFA: the canonical frame address plus Offset.
	FromCFA
	// FromReg: register Reg of this frame plus Offset.
	FromReg
	// FromExpr: DWARF expression number Offset in Row.Exprs (.eh_frame only).
	FromExpr
	// Undefined: the value cannot be recovered. As the rule of the return
	// address it does not occur: Row.Outermost stands for it.
	Undefined
)

// Rule is how one value of the caller (or the CFA) is computed: base plus
// Offset and, if Deref is set, the word loaded from there.
type Rule struct {
	Base   Base
	Reg    uint8 // DWARF number, when Base is FromReg
	Deref  bool
	Offset int32
}

// SavedRule is the rule of one further register, Reg by DWARF number.
type SavedRule struct {
	Reg  uint8
	Rule Rule
}

// Row says, for a range of addresses, how the caller's registers follow from
// those of the frame. SFrame rows, compiled .eh_frame rows, frame pointers,
// signal frames and back chains all take this form.
//
// Rows are shared: nobody changes one after it was handed out.
type Row struct {
	CFA Rule
	RA  Rule // return address
	FP  Rule // frame pointer of the architecture
	// Saved holds the rules of other registers. Tables of SFrame have none;
	// .eh_frame has callee-saved registers and, where it names it, SP (which
	// otherwise is CFA + Arch.SPOffset).
	Saved []SavedRule
	// Exprs are DWARF expressions that rules refer to.
	Exprs [][]byte
	// Keep has bit n set when DWARF register n has the same value in the
	// caller unless a rule says otherwise. 0 in SFrame rows: they say nothing
	// about it. FP is not in it, it has a rule of its own.
	Keep uint32
	// Outermost: the return address is undefined, there is no caller. No other
	// rule means anything then.
	Outermost bool
	// Signal: this frame is a signal trampoline. The caller's PC is the
	// interrupted instruction itself, not a return address.
	Signal bool
	// Switch: the caller may lie on another stack, wherever that is. Rows of known
	// functions have it, no table does.
	Switch bool
	// Signed: arm64 pointer authentication has signed the return address here.
	Signed bool
}

// Entry is a row with its place in the table.
type Entry struct {
	Start, End         uint64 // addresses that the row covers, End excluded
	FuncStart, FuncEnd uint64 // the function that the row belongs to
	Row                Row
}

// ErrNoRow is returned when a table, intact as far as it was read, says nothing
// about an address. The caller asks the next source.
var ErrNoRow = errors.New("no row covers the address")

// FormatError is a defect of a table. What it costs depends on Whole: the table,
// or only the function or row that was asked for.
type FormatError struct {
	SecOff uint64 // offset of the defect in the section, in bytes
	Text   string // what is wrong
	Value  uint64 // the offending value
	Whole  bool   // nothing in this table can be used
}
