package module

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"strings"

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
	log   *slog.Logger
}

// Modules tells which object covers an address, and the address in its own numbering, as [Space] does.
type Modules interface {
	Module(pc uint64) (*Module, uint64, bool)
}

// NewGoSwitch returns what knows of the Go programs among modules. A copy of a goroutine's stack begins so many bytes, a multiple of 8, below the stack
// pointer with which that was left. It leads to other stacks only: see [unwind.Walker.SetRuntime].
func NewGoSwitch(of Modules, below int, log *slog.Logger) *GoSwitch {
	return &GoSwitch{of, below, log}
}

// maxCallerSize is how much of the stack a function that calls one of these may have taken, in bytes: 432 was the most seen in programs of Debian 12, apart
// from one that is on the scheduler's stack itself.
const maxCallerSize = 1024

// Owns implements unwind.Runtime.
func (g *GoSwitch) Owns(pc uint64) bool {
	m, vaddr, ok := g.of.Module(pc)
	return ok && blindSwitch(m, vaddr, g.log) != 0
}

// Caller implements unwind.Runtime. The return address is the word below the frame pointer that is one behind a call of this
// function, in one that has taken all between of the stack there. What was left on the stack may look so, too: there has to be one such
// word and no other, and who called that function must have called it if he names it, or the copy has to begin where that of a goroutine begins that was left.
func (g *GoSwitch) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	const words = maxCallerSize / 8
	a := regs.AMD64
	fp, ok := from.Reg(a.FP)
	m, vaddr, known := g.of.Module(from.PC - 1)
	if top || !ok || !known {
		return unwind.NoRow, 0
	}
	start := blindSwitch(m, vaddr, g.log)
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
	outer, err := mem.Word(a, fp+8)
	if err != nil {
		outer = 0
	}
	at, sure, err := findCaller(m, start, below[:n], g.below/8, outer, g.log)
	switch {
	case err != nil, at < 0 && n == words:
		return unwind.NoRow, 0
	case at < 0, n < words && !sure:
		return unwind.OutsideCopy, fp - maxCallerSize
	}
	to.PC = below[at]
	to.SetReg(a.SP, fp-8*uint64(at))
	to.SetReg(a.FP, fp)
	return 0, 0
}

// goOf is the object of a module, nil if it has no table of Go's that can be used. It is locked until unlock.
func goOf(m *Module, log *slog.Logger) (o *object, unlock func()) {
	m.obj.mu.Lock()
	m.obj.via = m
	unlock = func() {
		m.obj.via = nil
		m.obj.mu.Unlock()
	}
	if m.obj.openGo(log) {
		o = m.obj
	}
	return o, unlock
}

// blind are those functions.
var blind = []string{"runtime.systemstack", "runtime.asmcgocall", "runtime.asmcgocall_no_g"}

// blindSwitch is the address in memory of the function at vaddr, if that is such a function and vaddr the end of its call; else 0.
func blindSwitch(m *Module, vaddr uint64, log *slog.Logger) uint64 {
	if m.Arch != regs.AMD64 {
		return 0
	}
	o, unlock := goOf(m, log)
	defer unlock()
	if o == nil {
		return 0
	}
	f, ok, err := o.golang.table.Func(vaddr)
	if !ok || err != nil || !slices.Contains(blind, strings.TrimSuffix(f.Name, string(abi0))) || !o.calls(vaddr) {
		return 0
	}
	if keeps, err := keepsFP(o, f); keeps || err != nil {
		return 0
	}
	return f.Start + m.Bias
}

// callBytes is the size of E8 cd (Intel SDM volume 2).
const callBytes = 5

// called is the address of the function that the call before an address calls, both in memory; 0: none that is known.
func called(o *object, bias, ra uint64) uint64 {
	var b [callBytes]byte
	if !o.golang.table.Covers(ra-bias-callBytes) || !o.golang.table.Covers(ra-bias-1) {
		return 0
	}
	if _, err := o.ReadAt(b[:], int64(ra-bias-callBytes)); err != nil || b[0] != 0xe8 {
		return 0
	}
	return ra + uint64(int32(binary.LittleEndian.Uint32(b[1:])))
}

// findCaller finds the one of words that is an address behind a call of the function at start, all in memory, in a function that has taken as much
// of the stack there as lies from that word on, and that what has returned to outer calls, if that is told. -1: it is none, or not one alone. sure: below it are
// so many words, where a copy begins.
func findCaller(m *Module, start uint64, words []uint64, copied int, outer uint64, log *slog.Logger) (at int, sure bool, err error) {
	o, unlock := goOf(m, log)
	defer unlock()
	if o == nil {
		return -1, false, nil
	}
	function := called(o, m.Bias, outer)
	found, at := 0, -1
	for i, w := range words {
		if called(o, m.Bias, w) != start {
			continue
		}
		f, _, err := o.golang.table.Func(w - m.Bias - 1)
		size := int32(0)
		if err == nil {
			size, err = o.golang.table.StackSize(f, w-m.Bias-1)
		}
		switch {
		case err != nil:
			return -1, false, err
		case int(size) != 8*(i+1):
			continue
		}
		if len(words) < maxCallerSize/8 && len(words) == i+1+copied {
			return i, true, nil
		}
		if function == 0 || function == f.Start+m.Bias {
			found, at = found+1, i
		}
	}
	if found > 1 {
		at = -1
	}
	return at, false, nil
}

// keepsFP tells whether a function of x86-64 has a frame pointer of its own.
func keepsFP(o *object, f symbol.GoFunc) (bool, error) {
	var b [4]byte
	_, err := o.ReadAt(b[:], int64(f.Start))
	return b == [4]byte{0x55, 0x48, 0x89, 0xe5}, err // push rbp; mov rbp,rsp
}
