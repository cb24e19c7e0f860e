package module

import (
	"encoding/binary"
	"log/slog"

	"sfsample/regs"
	"sfsample/sampler/symbol"
	"sfsample/unwind"
)

// GoSwitch knows who called those functions of Go's runtime that go over to the thread's own stack and keep no frame pointer of their own:
// before Go 1.21, on x86-64 (systemstack and asmcgocall in runtime/asm_amd64.s). The frame pointer is still that of who called them: below it, on the
// goroutine's stack, is what that function has taken, and then the return address.
type GoSwitch struct {
	of    Modules
	below int
}

// Modules tells which object covers an address, and the address in its own numbering, as [Space] does.
type Modules interface {
	Module(pc uint64) (*Module, uint64, bool)
}

// NewGoSwitch returns what knows of the Go programs among modules. A copy of a goroutine's stack begins so many bytes, a multiple of 8, below the stack
// pointer with which that was left. It leads to other stacks only: see [unwind.Walker.SetRuntime].
func NewGoSwitch(of Modules, below int) *GoSwitch { return &GoSwitch{of, below} }

// discard is for what is told elsewhere.
var discard = slog.New(slog.DiscardHandler)

// maxCallerSize is how much of the stack a function that calls one of these may have taken, in bytes.
const maxCallerSize = 1024

// Owns implements unwind.Runtime.
func (g *GoSwitch) Owns(pc uint64) bool {
	m, vaddr, ok := g.of.Module(pc)
	return ok && blindSwitch(m, vaddr) != 0
}

// Caller implements unwind.Runtime. The return address is the word below the frame pointer that is one behind a call of this
// function, in one that has taken all between of the stack there. What was left on the stack may look so, too: there has to be one such
// word and no other, or the copy has to begin where that of a goroutine begins that was left.
func (g *GoSwitch) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	const words = maxCallerSize / 8
	a := regs.AMD64
	fp, ok := from.Reg(a.FP)
	m, vaddr, known := g.of.Module(from.PC - 1)
	if top || !ok || !known {
		return unwind.NoRow, 0
	}
	start := blindSwitch(m, vaddr)
	if start == 0 || fp&7 != 0 || fp < maxCallerSize {
		return unwind.NoRow, 0
	}
	var below [words]uint64 // from the frame pointer downwards
	n := 0
	for ; n < words; n++ {
		w, err := mem.Word(a, fp-8*uint64(n+1))
		if err != nil {
			break
		}
		below[n] = w
	}
	found, at := 0, 0
	for i, w := range below[:n] {
		if !callsBlindly(m, w-m.Bias, start, 8*int32(i+1)) {
			continue
		}
		if found, at = found+1, i; n == i+1+g.below/8 {
			found = 1
			break
		}
	}
	switch {
	case found > 1, found == 0 && n == words:
		return unwind.NoRow, 0
	case found == 0, n < words && n != at+1+g.below/8:
		return unwind.OutsideCopy, fp - maxCallerSize
	}
	to.PC = below[at]
	to.SetReg(a.SP, fp-8*uint64(at))
	to.SetReg(a.FP, fp)
	return 0, 0
}

// blindSwitch is the link-time address of the function at vaddr, if that is such a function; else 0.
func blindSwitch(m *Module, vaddr uint64) uint64 {
	o := m.obj
	o.mu.Lock()
	defer o.mu.Unlock()
	o.via = m
	defer func() { o.via = nil }()
	if !o.openGo(discard) || o.hdr.arch != regs.AMD64 {
		return 0
	}
	f, ok, err := o.golang.table.Func(vaddr)
	if !ok || err != nil || goSpecial(f.Name) != switches || keepsFP(o, f) || !o.calls(vaddr) {
		return 0
	}
	return f.Start
}

// callsBlindly tells whether vaddr is behind a call of the function at start, in one that has taken size bytes of the stack there.
func callsBlindly(m *Module, vaddr, start uint64, size int32) bool {
	const call = 5 // E8 cd (Intel SDM volume 2)
	o := m.obj
	o.mu.Lock()
	defer o.mu.Unlock()
	o.via = m
	defer func() { o.via = nil }()
	if !o.openGo(discard) {
		return false
	}
	f, ok, err := o.golang.table.Func(vaddr - 1)
	if !ok || err != nil || vaddr-call < f.Start {
		return false
	}
	var b [call]byte
	if _, err := o.ReadAt(b[:], int64(vaddr-call)); err != nil || b[0] != 0xe8 || vaddr+uint64(int32(binary.LittleEndian.Uint32(b[1:]))) != start {
		return false
	}
	taken, err := o.golang.table.StackSize(f, vaddr-1)
	return err == nil && taken == size
}

// keepsFP tells whether a function of x86-64 has a frame pointer of its own.
func keepsFP(o *object, f symbol.GoFunc) bool {
	var b [4]byte
	_, err := o.ReadAt(b[:], int64(f.Start))
	return err != nil || b == [4]byte{0x55, 0x48, 0x89, 0xe5} // push rbp; mov rbp,rsp
}
