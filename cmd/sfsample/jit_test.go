package main

import "unsafe"

// codeAddr is where code lies.
func codeAddr(code []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(code))) }

// runCode calls the code at addr, on the goroutine's own thread.
func runCode(addr uintptr) {
	// A function value points at a word with the address of its code
	// (cmd/compile/abi-internal.md, "Closures").
	fn := &addr
	(*(*func())(unsafe.Pointer(&fn)))()
}
