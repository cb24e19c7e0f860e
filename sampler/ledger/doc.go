// Package ledger keeps the account of a run: what became of each tick of each
// thread, and how much CPU time the samples of each stand for.
//
// A [Book] is the only writer of its [Account]. (A run that is given up counts as [Missed], in a copy, what was not accounted for.) Every thread has a [Line] in it, which
// owes its ticks until they are given to a [Class]: the sum over the classes and what all
// lines owe is the number of thread ticks that have passed, after every call. What
// [Line.Charge] returns adds up to the CPU time that the thread has had since its line was opened.
//
// It knows no threads, no time and no kernel. One goroutine at a time.
package ledger
