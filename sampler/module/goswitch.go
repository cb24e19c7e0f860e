package module

import (
	"bytes"
	"encoding/binary"
	"strings"

	"sfsample/regs"
	"sfsample/sampler/symbol"
	"sfsample/unwind"
)

// GoSwitch knows who called those functions of Go's runtime that go over to the thread's own stack, on x86-64 (runtime/asm_amd64.s).
//
// Before Go 1.21 systemstack and asmcgocall keep no frame pointer of their own. It is still that of who called them: below it, on the
// goroutine's stack, is what that function has taken, and then the return address.
//
// systemstack is asked about, too, as its goroutine's stack may be elsewhere by now.
//
// Where C calls back (cgocallback), a frame pointer that C has saved may lead to where the goroutine's stack was before it grew. But cgocallback has its own
// frame on the goroutine's stack, too, just below where asmcgocall has left that: asmcgocall is left on the way up to there.
type GoSwitch struct {
	of    Modules
	below int
	back  uint64 // where the asmcgocall that the walk comes to next has left the goroutine's stack; 0: not known
}

// Modules tells which object covers an address, and the address in its own numbering, as [Space] does.
type Modules interface {
	Module(pc uint64) (*Module, uint64, bool)
}

// NewGoSwitch returns what knows of the Go programs among modules. A copy of a goroutine's stack begins so many bytes, a multiple of 8, below the stack
// pointer with which that was left. It leads to other stacks only: see [unwind.Walker.SetRuntime].
func NewGoSwitch(of Modules, below int) *GoSwitch {
	return &GoSwitch{of: of, below: below}
}

// maxCallerSize is how much of the stack a function that calls one of these may have taken, in bytes: 432 was the most seen in programs of Debian 12, apart
// from one that is on the scheduler's stack itself.
const maxCallerSize = 1024

// Start is called where a walk begins.
func (g *GoSwitch) Start() { g.back = 0 }

// Owns implements unwind.Runtime.
func (g *GoSwitch) Owns(pc uint64) bool {
	m, vaddr, ok := g.of.Module(pc)
	if !ok {
		return false
	}
	s := goSwitchAt(m, vaddr)
	return s.start != 0
}

// Caller implements unwind.Runtime. The return address is the word below the frame pointer that is one behind a call of this
// function, in one that has taken all between of the stack there. What was left on the stack may look so, too: there has to be one such
// word and no other, and who called that function must have called it if he names it, or the copy has to begin where that of a goroutine begins that was left.
// Of asmcgocall it is known which word it is.
func (g *GoSwitch) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	const words = maxCallerSize / 8
	a := regs.AMD64
	m, vaddr, known := g.of.Module(from.PC - 1)
	if top || !known {
		return unwind.NoRow, 0
	}
	s := goSwitchAt(m, vaddr)
	back := g.back
	g.back = 0
	fp, ok := from.Reg(a.FP)
	sp, spKnown := from.Reg(a.SP)
	switch {
	case s.kind == callback:
		if spKnown {
			g.back = sp + uint64(s.size) + 8
		}
		return unwind.NoRow, 0 // its row leads on, or none
	case s.kind == callsC && back != 0 && !s.blind && ok && fp == back:
		return unwind.NoRow, 0 // its row is right
	case s.kind == callsC && back != 0:
		return s.above(m, back, mem, to)
	case s.kind == otherSwitch && !s.keeps(m, fp, mem) && s.recorded(m, mem, g.below, to):
		return 0, 0
	case s.kind == callsC && s.depthAt >= 0 && spKnown:
		depth, err := mem.Word(a, sp+uint64(s.depthAt))
		if err != nil {
			return unwind.OutsideCopy, sp + uint64(s.depthAt)
		}
		// Where the stack has grown while C called back, the copy of the goroutine's tells.
		for i := range mem.Also {
			at := mem.Also[i].Addr + uint64(g.below)
			if depth > 0 && depth <= maxGoSize && (at+depth)%goStackAlign == 0 {
				if r, addr := s.above(m, at, mem, to); r == 0 {
					return r, addr
				}
			}
		}
		if !s.blind {
			return unwind.NoRow, 0
		}
		at := leftAt(fp, depth)
		if at == 0 || !ok {
			return unwind.NoRow, 0
		}
		r, addr := s.above(m, at, mem, to)
		if own, _ := to.Reg(a.FP); r == 0 && own != fp {
			return unwind.NoRow, 0
		}
		return r, addr
	case !s.blind, !ok, fp&7 != 0, fp < maxCallerSize:
		return unwind.NoRow, 0
	}
	start := s.start
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
	at, sure, err := findCaller(m, start, below[:n], g.below/8, outer)
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

// lockGo locks the object of a module for a look-up, and returns it; nil if it has no table of Go's that can be used.
func lockGo(m *Module) *object {
	m.obj.lock(m)
	if m.obj.openGo() {
		return m.obj
	}
	m.obj.unlock()
	return nil
}

// goSwitch is a function that goes over to another stack, and calls on from there.
type goSwitch struct {
	kind    goSwitchKind
	blind   bool   // it keeps no frame pointer
	start   uint64 // in memory
	size    int32  // of what it has taken of the stack
	depthAt int8   // from the stack pointer: how far from the goroutine's stack's end that was left; -1: not known
}

type goSwitchKind uint8

const (
	otherSwitch goSwitchKind = iota
	callsC
	callback
)

var goSwitches = map[string]goSwitchKind{
	"runtime.systemstack":     otherSwitch,
	"runtime.asmcgocall_no_g": otherSwitch,
	"runtime.asmcgocall":      callsC,
	"runtime.cgocallback":     callback,
}

// goSwitchAt is the function at vaddr, if that is such a function and vaddr the end of its call.
func goSwitchAt(m *Module, vaddr uint64) (s goSwitch) {
	if m.Arch != regs.AMD64 {
		return s
	}
	o := lockGo(m)
	if o == nil {
		return s
	}
	defer o.unlock()
	f, ok, err := o.golang.table.Func(vaddr)
	if !ok || err != nil {
		return s
	}
	kind, ok := goSwitches[strings.TrimSuffix(f.Name, string(abi0))]
	if !ok || !o.mem.calls(vaddr) {
		return s
	}
	keeps, err := keepsFP(&o.mem, f)
	if err != nil {
		return s
	}
	if kind == callback {
		size, err := o.golang.table.StackSize(f, vaddr)
		if err != nil || size < 0 || size > maxCallerSize {
			return s
		}
		return goSwitch{kind: kind, start: f.Start + m.Bias, size: size}
	}
	s = goSwitch{kind: kind, blind: !keeps, start: f.Start + m.Bias, depthAt: -1}
	if kind == callsC {
		s.depthAt = depthAt(&o.mem, f.Start, vaddr)
	}
	return s
}

// IsGo tells whether a module has code of Go's.
func IsGo(m *Module) bool {
	o := lockGo(m)
	if o != nil {
		o.unlock()
	}
	return o != nil
}

// GoLeaves tells whether the call before an address is that of a function of Go's runtime for x86-64 that has kept in a record of the runtime how it has
// left the stack that it was called on.
func GoLeaves(m *Module, vaddr uint64) bool {
	s := goSwitchAt(m, vaddr)
	return s.start != 0
}

// depthAt finds where asmcgocall keeps how far from its end it has left the goroutine's stack, for a call that ends at vaddr: sub rdi,rdx; mov [rsp+n],rdi,
// where rdx has been the stack pointer. -1: not so.
func depthAt(mem *objectMemory, start, vaddr uint64) int8 {
	var b [128]byte
	code := b[:min(vaddr-start, uint64(len(b)))]
	if _, err := mem.ReadAt(code, int64(start)); err != nil || !bytes.Contains(code, []byte{0x48, 0x89, 0xe2}) { // mov rdx,rsp
		return -1
	}
	_, kept, ok := bytes.Cut(code, []byte{0x48, 0x29, 0xd7})
	switch {
	case ok && bytes.HasPrefix(kept, []byte{0x48, 0x89, 0x3c, 0x24}):
		return 0
	case ok && bytes.HasPrefix(kept, []byte{0x48, 0x89, 0x7c, 0x24}) && len(kept) > 4 && kept[4] < 0x80 && kept[4]%8 == 0:
		return int8(kept[4])
	}
	return -1
}

// goStackAlign is what all ends of goroutines' stacks are multiples of (runtime/stack.go, fixedStack).
const goStackAlign = 2048

// leftAt is where a goroutine's stack was left, depth below its end, by who has the frame pointer fp. There is but one place, for the end is a multiple of
// more than is looked at. 0: not there.
func leftAt(fp, depth uint64) uint64 {
	below := (fp + depth) % goStackAlign
	if depth == 0 || depth > maxGoSize || below == 0 || below > maxCallerSize || below%8 != 0 {
		return 0
	}
	return fp - below
}

// keeps tells whether the frame pointer leads to where this function has kept who called it: its row is right.
func (s *goSwitch) keeps(m *Module, fp uint64, mem *unwind.Memory) bool {
	ra, err := mem.Word(regs.AMD64, fp+8)
	if err != nil || s.blind {
		return false
	}
	o := lockGo(m)
	if o == nil {
		return false
	}
	defer o.unlock()
	return called(o, m.Bias, ra) == s.start
}

// recorded leads to who called systemstack by a copy that begins where a record says that the goroutine's stack was left. The frame pointer leads to where that
// stack was before: while a goroutine helps a collection or waits there, others may give its stack another size (runtime/proc.go, casGToWaitingForSuspendG).
func (s *goSwitch) recorded(m *Module, mem *unwind.Memory, below int, to *regs.Set) bool {
	for i := range mem.Also {
		if r, _ := s.above(m, mem.Also[i].Addr+uint64(below), mem, to); r == 0 {
			return true
		}
	}
	return false
}

// above leads to who called this function, which has left the goroutine's stack with its stack pointer at that address.
func (s *goSwitch) above(m *Module, at uint64, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	a := regs.AMD64
	fp, err := mem.Word(a, at)
	if err != nil {
		return unwind.OutsideCopy, at
	}
	ra := fp
	if !s.blind { // it has pushed the frame pointer
		at += 8
		if ra, err = mem.Word(a, at); err != nil {
			return unwind.OutsideCopy, at
		}
	}
	o := lockGo(m)
	if o == nil {
		return unwind.StackSwitch, at
	}
	defer o.unlock()
	if called(o, m.Bias, ra) != s.start {
		return unwind.StackSwitch, at
	}
	if s.blind {
		f, _, err := o.golang.table.Func(ra - m.Bias - 1)
		if err != nil {
			return unwind.StackSwitch, at
		}
		size, err := o.golang.table.StackSize(f, ra-m.Bias-1)
		if err != nil || size <= 0 || size > maxGoSize {
			return unwind.StackSwitch, at
		}
		fp = at + uint64(size)
	}
	to.PC = ra
	to.SetReg(a.SP, at+8)
	to.SetReg(a.FP, fp)
	return 0, 0
}

// callBytes is the size of E8 cd (Intel SDM volume 2).
const callBytes = 5

// called is the address of the function that the call before an address calls, both in memory; 0: none that is known.
func called(o *object, bias, ra uint64) uint64 {
	var b [callBytes]byte
	if !o.golang.table.Covers(ra-bias-callBytes) || !o.golang.table.Covers(ra-bias-1) {
		return 0
	}
	if _, err := o.mem.ReadAt(b[:], int64(ra-bias-callBytes)); err != nil || b[0] != 0xe8 {
		return 0
	}
	return ra + uint64(int32(binary.LittleEndian.Uint32(b[1:])))
}

// findCaller finds the one of words that is an address behind a call of the function at start, all in memory, in a function that has taken as much
// of the stack there as lies from that word on, and that what has returned to outer calls, if that is told. -1: it is none, or not one alone. sure: below it are
// so many words, where a copy begins.
func findCaller(m *Module, start uint64, words []uint64, copied int, outer uint64) (at int, sure bool, err error) {
	o := lockGo(m)
	if o == nil {
		return -1, false, nil
	}
	defer o.unlock()
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

// saveFPBytes is how many bytes of code at most save rbp and make it the frame pointer, before Go 1.21.
const saveFPBytes = 14

// keepsFP tells whether a function of x86-64 has a frame pointer of its own: the first that it takes of the stack has its caller's, and rbp points there.
func keepsFP(mem *objectMemory, f symbol.GoFunc) (bool, error) {
	var b [saveFPBytes]byte
	if _, err := mem.ReadAt(b[:], int64(f.Start)); err != nil {
		return false, err
	}
	if bytes.HasPrefix(b[:], []byte{0x55, 0x48, 0x89, 0xe5}) { // push rbp; mov rbp,rsp
		return true, nil
	}
	// Before Go 1.21: sub rsp,n; mov [rsp+n-8],rbp; lea rbp,[rsp+n-8]
	n := b[3]
	return n >= 8 && n < 0x80 && n%8 == 0 && b == [saveFPBytes]byte{0x48, 0x83, 0xec, n, 0x48, 0x89, 0x6c, 0x24, n - 8, 0x48, 0x8d, 0x6c, 0x24, n - 8}, nil
}
