package ehframe_test

import (
	"debug/elf"
	"fmt"

	"sfsample/sframe/ehframe"
)

// The row of an address: where the caller's frame is, and where it keeps the
// return address and what else the function has saved.
func Example() {
	f, err := elf.Open("testdata/cfi/amd64.elf")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	table, err := ehframe.OpenELF(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := table.Find(0x196) // behind "push %rbx"
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%#x-%#x of %#x-%#x\n", e.Start, e.End, e.FuncStart, e.FuncEnd)
	fmt.Printf("CFA: register %d%+d\n", e.Row.CFA.Reg, e.Row.CFA.Offset)
	fmt.Printf("return address at CFA%+d, rbp at CFA%+d\n", e.Row.RA.Offset, e.Row.FP.Offset)
	for _, s := range e.Row.Saved {
		fmt.Printf("register %d at CFA%+d\n", s.Reg, s.Rule.Offset)
	}
	// Output:
	// 0x196-0x1fa of 0x191-0x329
	// CFA: register 6+16
	// return address at CFA-8, rbp at CFA-16
	// register 3 at CFA-24
}
