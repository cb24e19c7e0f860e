// Cgo has C call back into Go, over and over: `cgo N` for so many calls of C, each of which calls Go four times.
package main

/*
#include <stdint.h>
uint64_t down(uint64_t x);
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
)

//export back
func back(x C.uint64_t) C.uint64_t {
	for range 100 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

func main() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	x := C.uint64_t(1)
	for range n {
		x = C.down(x)
	}
	if x == 0 {
		fmt.Println(x)
	}
}
