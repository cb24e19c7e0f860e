// Package stuck tells what each thread of a process waits for and who could end the
// wait: owners of locks, other ends of pipes and sockets, holders of file locks,
// children, tracers; and which of these wait for each other.
//
// What it holds to:
//   - Nothing is stopped, traced or written. Memory is read with process_vm_readv(2)
//     only, and no read may hold it up: a page that does not come ends the reading of
//     that process's memory.
//   - What is said of a thread was seen unchanged in two looks, [Apart] at least from
//     each other. The first look reads all run counts before any call or lock word,
//     the second all calls and words before any run count: so between the looks there
//     is an instant at which all that was seen held at once.
//   - A deadlock is told only of threads that can be let go by nobody else than
//     threads that are in it. Whatever may end a wait from outside (a time limit, an
//     end that somebody unknown may hold, a process that may not be looked at) keeps
//     the thread out of it. Signals are not counted, as they end most waits, but for those that are sure
//     to come or are waited for: that a child ends, where the process handles it, and any that it handles where
//     the other end of what it reads from is its own.
//   - All counts are bounded, also the time for searching other processes; what was
//     left out is named in [Report.Missing].
//
// The order is Begin, then the caller takes the stacks, then Again for those that it
// has stopped for that, then End. The names of the functions say of which kind a futex
// is; without them the data around the word do, as far as they can. A [Dump] belongs to
// one goroutine.
//
// What it does not do: unwind, name functions, find goroutines, know where a virtual
// machine keeps its locks (package runtimes reads those, see [Dump.KeepsLocks]; but for Python's global lock: python.go), look
// into sockets of other machines.
//
// Sources: futex(2), the kernel's fs/proc and fs/locks.c, sock_diag(7), glibc's
// nptl and sysdeps/nptl/bits (struct layouts of 2.25 to 2.40), musl's src/thread.
package stuck
