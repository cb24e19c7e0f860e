// Package taking copies registers and stack of a stopped thread: the one place for samples, exits
// and dumps.
//
// Between stop and release [Take] makes the system calls that its text lists, and no others; it allocates
// nothing and decodes no more than the stack pointer, the addresses and bounds of stacks that advice leads to, and whether the stop has cut a system call short.
// Such a call is taken back where that was tried and is safe, by writing a register. [Advice] is all that is known beforehand, as one value.
//
// Further stacks are copied where a word leads to them that is in a register or a copy, or a record of the runtime does, as the advice says: a bounded
// number, and no more bytes than there is room for. Marks are read with them: they tell which objects were mapped at that moment.
//
// [Kernel] is the seam for tests: [Live] is the real one. Everything on the way is go:nosplit,
// since clocks run outside of Go's scheduler (see [ptrace.Outside]).
package taking
