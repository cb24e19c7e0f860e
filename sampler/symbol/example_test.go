package symbol_test

import (
	"bytes"
	"fmt"
	"os"

	"sfsample/sampler/symbol"
)

// A program would hand in the file that it opened through /proc/PID/map_files.
func Example() {
	data, err := os.ReadFile("testdata/tiny-arm64-dwarf5.so")
	if err != nil {
		fmt.Println(err)
		return
	}
	o := symbol.Open(bytes.NewReader(data), "/usr/lib/tiny.so", symbol.Options{Inlines: true, Lines: true})
	defer o.Close()
	if sym, ok := o.Lookup(0x2d4); ok {
		fmt.Printf("%s+%#x from %s\n", sym.Name, 0x2d4-sym.Start, sym.Source)
	}
	for _, f := range o.Frames(0x2d0) {
		fmt.Printf("%s %s:%d inlined=%v\n", f.Name, f.File, f.Line, f.Inlined)
	}
	// Output:
	// exported+0x4 from .symtab
	// twice /src/tiny.c:2 inlined=true
	// exported /src/tiny.c:4 inlined=false
}
