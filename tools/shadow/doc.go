// Command shadow holds the unwinder against the machine itself. It single-steps
// a process, keeps the true stack of return addresses from the calls, returns
// and signal deliveries that it executes, and at every instruction compares the
// whole chain that a walk gives, for each order of methods asked for.
//
//	shadow [flags] -- COMMAND [ARGS...]
//
// A stretch begins at the program's first instruction or at a random later
// moment. The frames below its first instruction are not known then: the first
// walk stands for them, they must stay the same as long as they are not
// returned to, and each return into one of them proves or refutes it.
//
// A chain is right when it is the true one to its end; cut when it is the
// beginning of the true one and says why it stops; else wrong. Each distinct
// place that is cut or wrong is printed with its module, function and reason.
//
// x86-64 and arm64 are followed. On s390x it works as far as the machine's single
// step does, which QEMU's does not: the run ends with that error.
//
// Only the first thread is followed. The stack pointer decides which frames a
// longjmp or an exception leaves behind; a return address that the program
// itself changed on the stack counts as the true one from then on, and is
// counted apart.
package main
