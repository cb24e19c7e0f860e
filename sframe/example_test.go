package sframe_test

import (
	"debug/elf"
	"fmt"
	"log"

	"sfsample/sframe"
)

// The table of a program, asked for one address: where is the caller?
func Example() {
	f, err := elf.Open("testdata/example.elf")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	sec := f.Section(".sframe")
	table, err := sframe.Open(sec, sec.Addr, sec.Size)
	if err != nil {
		log.Fatal(err)
	}
	e, err := table.Find(0x401010) // in g, behind its sub $24,%rsp
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("version %d, function %#x-%#x, row %#x-%#x\n", table.Version(), e.FuncStart, e.FuncEnd, e.Start, e.End)
	fmt.Printf("CFA = r%d%+d, return address at CFA%+d\n", e.Row.CFA.Reg, e.Row.CFA.Offset, e.Row.RA.Offset)
	// Output:
	// version 3, function 0x40100b-0x401019, row 0x40100f-0x401018
	// CFA = r7+32, return address at CFA-8
}
