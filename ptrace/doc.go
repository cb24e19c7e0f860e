// Package ptrace stops the threads of other processes for as long as it takes
// to copy what is needed, and reads their memory.
//
// The requests (Seize, Interrupt, Cont, …) are thin: one system call each, no
// allocation. ptrace relations belong to one OS thread, so every request and
// every [Wait] of a tracee must be made by the thread that seized it: run them
// inside [OnThread]. [ReadMemory] needs no stop and no such thread.
//
// The package keeps no list of tracees and decides nothing about sampling; it
// knows no tables. It knows which system calls can be taken back after a stop, and where their time limits are. When the thread of OnThread ends, the kernel lets every
// tracee go: running ones run on, group-stopped ones stay stopped.
//
// Documents: ptrace(2), process_vm_readv(2), wait4(2), timer_create(2); the
// kernel's kernel/ptrace.c and kernel/signal.c.
package ptrace
