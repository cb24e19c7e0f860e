// Package code finds the caller's frame by reading the program's instructions:
// it follows them from an address to the return of the function, as a processor
// could, and keeps account of where the stack pointer and the registers of the
// caller are on the way ([Follow]). The result is a row like those of unwind
// tables, most often one that needs the stack pointer alone. It is for code
// that has no table, for rows of tables that have proved wrong, and for threads
// of which only the stack pointer is known.
//
// What it relies on: a function returns to its caller with the stack pointer
// that the call left, wherever in it one looks; functions keep the registers
// that the ABI has them keep, and return behind the calls to them. Both arms of
// a branch are taken, jumps to other functions too (they return in the place of
// the one that jumped). All returns that are reached have to agree; one that is
// reached without passing a call is sure, since every instruction on the way
// can be executed. A call may never return, and what stands behind it be another
// function: the bytes that compilers put between functions, the end that
// a table knows, and returns that do not agree show it.
//
// It does not know: where jumps through registers and tables lead, what an
// alloca has taken where no frame pointer keeps the way back, functions that do
// not return. It gives no row then. Instructions that are followed are bounded.
//
// [Start] tells where the function begins that an address lies in, for names: what it finds is a place that the code leads on from to the
// address as it would from a call, and passes no place on the way where another function might begin.
//
// It reads code through a function and keeps nothing; rows are never changed
// after they were returned. Everything may be called concurrently.
//
// Sources: Intel SDM volume 2, "Arm Architecture Reference Manual for A-profile",
// "z/Architecture Principles of Operation" and the ABI supplements named in
// package regs.
package code
