// Package output holds the [Sample], what the tool knows of one look at one
// thread, and the writers that consume a stream of them. It knows nothing of
// processes, tables or system calls.
package output
