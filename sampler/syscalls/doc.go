// Package syscalls names Linux system calls by number, for each architecture
// that a thread may be running: a 32-bit thread of an amd64 kernel counts by the
// i386 table.
//
// The tables are generated from golang.org/x/sys/unix, which has them from the
// kernel's own unistd headers. The package keeps no state.
package syscalls

//go:generate go run gen.go
