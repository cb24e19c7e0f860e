package unwind_test

import (
	"encoding/binary"
	"fmt"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/unwind"
)

// A row says where a frame's caller is to be found; Step applies it. Here a
// function has called another in the middle of its body: it keeps the frame
// pointer of its caller at CFA-16, and its return address lies at CFA-8.
func ExampleStep() {
	const rbp, rsp = 6, 7 // System V ABI AMD64, DWARF register number mapping
	row := &sframe.Row{
		CFA: sframe.Rule{Base: sframe.FromReg, Reg: rbp, Offset: 16},
		RA:  sframe.Rule{Base: sframe.FromCFA, Offset: -8, Deref: true},
		FP:  sframe.Rule{Base: sframe.FromCFA, Offset: -16, Deref: true},
	}
	var stack []byte // from 0x7ffd0000 on
	for _, word := range []uint64{42, 0x7ffd0040, 0x401136} {
		stack = binary.LittleEndian.AppendUint64(stack, word)
	}
	var mem unwind.Memory
	mem.Reset(0x7ffd0000, stack, nil)
	var set regs.Set
	set.PC = 0x401190
	set.SetReg(rsp, 0x7ffd0000)
	set.SetReg(rbp, 0x7ffd0008)

	if err := unwind.Step(regs.AMD64, &set, row, true, &mem); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("pc %#x sp %#x fp %#x\n", set.PC, set.R[rsp], set.R[rbp])

	// The caller's frame is not in the copy.
	fmt.Println(unwind.Step(regs.AMD64, &set, row, false, &mem))
	// Output:
	// pc 0x401136 sp 0x7ffd0018 fp 0x7ffd0040
	// stack copy too small
}
