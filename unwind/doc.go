// Package unwind turns the registers of a frame, a row and memory into the
// caller's registers ([Step]) and walks a stack by asking the sources of rows
// in order ([Walker]).
package unwind
