// Package testprog starts the test programs under testdata for tests of live
// processes.
//
// A program tells its stack on standard output and then that it is there:
//
//	stack _start main plain wide block
//	ready
//
// or, with threads, a line "thread TID main-function ... innermost" for each.
// [Start] returns when "ready" has arrived, so that no test sleeps, and kills
// the program when the test ends.
//
// Programs are of two kinds: [Committed] ones, which need compilers that a
// distribution does not have, and those which [Compile] builds with the
// machine's own gcc. What a machine cannot run or build is skipped with the
// reason.
//
// All functions may be called by several tests at once.
package testprog
