// Package unwind turns the registers of a frame, a row and memory into the
// caller's registers ([Step]) and walks a stack by asking the sources of rows
// in order ([Walker]).
//
// Step is pure. A walk goes on by its two halves, with the checks between that
// need to know what is mapped: find computes a caller and commit enters it. No
// other place computes one, but for the short form in which Walk takes simple
// rows; tests hold it against Step. Frame pointers, back chains and signal
// frames are rows too, made here from constants and the bytes of the code, so
// that every check stands once: the order of checks is that of the kernel's user
// unwinder (kernel/unwind/user.c and the SFrame series posted for it), with
// these differences. Outermost is tested before the CFA; every base may be
// dereferenced; registers other than SP and FP are usable in callers as long as
// rows say what became of them; an unknown register is a state of its own and
// not the value 0; callers are looked up at the return address minus one; a
// return address has to lie in executable memory; a method that fails a check
// gives way to the next one.
//
// Where no method leads on, a walk looks upwards for a return address behind a
// call whose code leads to the frame with just the stack pointer that it has:
// that is a proof, and finds the callers of functions that never return. It does so in generated code too, where the frame pointer leads over such an
// address. There a call through a register counts as well, if functions preserve that one: what the frame has kept or saved of it is where its function begins.
//
// Of generated code little is known: a return address there is taken provisionally, and where
// no method leads on, the root of the stack is looked for behind a gap ([Origins]).
//
// What has generated code may know its way through it: a [Runtime] is asked for the callers of its frames, and its answers are checked
// as those of rows are.
//
// A caller may lie on another stack where a table's row leads there, or one of a function that is known to
// change stacks ([sframe.Row.Switch]). [Walker.Stacks] lists those that a walk went over to, for whoever
// copies memory.
//
// The package hides the walk's cache of rows by address. It reads no files, makes no system call and
// knows nothing of processes: [Space] answers what is mapped, [Memory] what the
// stack holds. Names and symbols are not its business.
//
// A Walker and a Memory are used by one goroutine at a time. Rows are shared
// and never written.
//
// Sources: the ABI supplements named in package regs, "SFrame stack trace
// format" version 3, DWARF 5 section 6.4, ptrace-visible signal frames from the
// kernel's uapi sigcontext.h and ucontext.h of each architecture.
package unwind
