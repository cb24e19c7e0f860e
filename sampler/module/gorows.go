package module

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"sfsample/regs"
	"sfsample/sampler/symbol"
	"sfsample/sframe"
)

// goRows are rows made of Go's own table of functions, which tells for each
// address how much of the stack the function has taken. Every Go program has it,
// stripped ones too; .debug_frame, made of the same numbers, says less.
type goRows struct {
	table *symbol.GoTable
	none  bool // there is no table that can be used
	rows  map[goRowKey]*sframe.Row
}

// goRowKey is what rows differ in.
type goRowKey struct {
	size     int32 // of what the function has taken of the stack, in bytes
	fp       goFP
	injected bool // see injected
}

// goFP says where the caller's frame pointer is.
type goFP uint8

const (
	goFPSame goFP = iota
	goFPSaved
	goFPUnknown
)

const (
	maxGoRows = 1 << 12
	// maxGoSize is the largest stack that Go's runtime allows (runtime/proc.go,
	// maxstacksize), in bytes.
	maxGoSize = 1 << 30
)

func (g *goRows) bytes() int {
	if g.table == nil {
		return 0
	}
	const rowBytes = 200
	return g.table.Bytes() + rowBytes*len(g.rows)
}

// goFunc returns the function at vaddr by Go's table.
func (o *object) goFunc(vaddr uint64) (f symbol.GoFunc, ok bool) {
	if o.openGo() {
		var err error
		if f, ok, err = o.golang.table.Func(vaddr); err != nil {
			ok = false
		}
	}
	return f, ok
}

// openGo opens Go's table of functions, if there is one, at the first need.
func (o *object) openGo() bool {
	g := &o.golang
	if g.table != nil || g.none {
		return g.table != nil
	}
	if !o.search(o.mem.via.access.opt.Log) {
		return false
	}
	a := o.mem.hdr.arch
	if o.sections.goTable.size == 0 || a != regs.AMD64 && a != regs.ARM64 && a != regs.S390X {
		g.none = true
		return false
	}
	if !due(o) {
		return false
	}
	f, err := read(o.mem.via)
	if err != nil {
		again(o, err)
		return false // another process may be able to
	}
	defer f.Close()
	if g.table, err = symbol.OpenGoTable(f, &o.mem, o.mem.cache.Until); err != nil {
		if again(o, f.err) {
			return false
		}
		g.none = true
		o.problem("pclntab", o.sections.goTable.addr, true, err)
		return false
	}
	return true
}

// Go tells whether the module has Go's table of functions: whether Go's linker has made it. With open a file that was not
// looked into yet is; without, the answer is false for it.
func (m *Module) Go(open bool) bool {
	o := m.obj
	o.lock(m)
	defer o.unlock()
	if open {
		o.search(silent)
	}
	return o.sections.goTable.size > 0
}

// goSpecial tells what is special about a function by its whole name.
func goSpecial(name string) (is special) {
	specialEnds([]byte(name), func(s special, length int) {
		if length == len(name) {
			is |= s
		}
	})
	return is
}

// errSwitch is for code of Go's runtime behind which another stack lies, of
// which its table does not know.
var errSwitch = errors.New("the function changes stacks")

// outermost is the row of a function that begins stacks, or changes stacks and
// does not return.
var outermost = sframe.Row{Outermost: true}

// lost is the row of s390x for code behind which another stack lies. Without a row
// the back chain would be tried, which Go does not have, and r14, of which it is
// not known there whether it still is the return address.
var lost = sframe.Row{CFA: sframe.Rule{Base: sframe.Undefined}}

// goSignalEntry is where the kernel enters a Go program for a signal. It is marked
// as the beginning of a stack, but returns to the signal trampoline. On x86-64
// runtime.rt0_go, which is so marked too, has what called it above.
const goSignalEntry = "runtime.sigtramp"

// injected are functions that Go's signal handler makes look as if they were called (runtime/signal_amd64.go, pushCall): where their
// frame leads is the instruction that the signal has interrupted, not one behind a call (runtime/traceback.go, injectedCall).
var injected = []string{"runtime.asyncPreempt", "runtime.sigpanic", "runtime.debugCallV1", "runtime.debugCallV2"}

// row makes the row for vaddr. The error is a *symbol.FormatError where the table is damaged.
func (g *goRows) row(mem *objectMemory, vaddr uint64) (*sframe.Row, error) {
	a := mem.hdr.arch
	f, ok, err := g.table.Func(vaddr)
	if !ok && err == nil {
		return nil, sframe.ErrNoRow
	}
	var size int32
	if err == nil {
		name := goSpecial(f.Name)
		switch is := mem.specialAt(name, f.Start, vaddr); {
		case is == unreturned, is&ends != 0, f.Top && a.Link && f.Name != goSignalEntry:
			return &outermost, nil
		case (f.SPWrite || is&switches != 0) && a == regs.S390X:
			return &lost, nil
		case is&switches != 0 && mem.calls(vaddr), (name == switches || name == visits) && a == regs.AMD64 && (mem.calls(vaddr) || framed(mem, f, vaddr)):
			return g.switchRow(mem, f, vaddr)
		case f.SPWrite || is&switches != 0:
			return nil, errSwitch
		}
		size, err = g.table.StackSize(f, vaddr)
	}
	if err != nil {
		return nil, err
	}
	if size < 0 || size > maxGoSize {
		return nil, sframe.ErrNoRow // what the assembler could not follow
	}
	fp, err := goFPAt(mem, f, vaddr, size)
	if err != nil {
		return nil, err
	}
	return g.keyed(a, goRowKey{size, fp, a == regs.AMD64 && slices.Contains(injected, f.Name)}), nil
}

// switchRow is the row for a call that a function of Go's runtime makes from
// another stack than it was called on. Its frame pointer still leads back to its
// own frame: "the original frame pointer is stored in BP, which is useful for stack
// unwinding" (runtime/asm_amd64.s, asm_arm64.s), from Go 1.21 on.
func (g *goRows) switchRow(mem *objectMemory, f symbol.GoFunc, vaddr uint64) (*sframe.Row, error) {
	a := mem.hdr.arch
	at := func(off int32) sframe.Rule { return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: off} }
	if a == regs.AMD64 {
		if keeps, err := keepsFP(mem, f); err != nil {
			return nil, err
		} else if !keeps {
			return nil, errSwitch // see GoSwitch
		}
		return &sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: a.FP, Offset: 16}, RA: at(-8), FP: at(-16), Switch: true}, nil
	}
	// The frame record: x29 points one word below where sp was, and the caller's
	// return address lies there.
	size, err := g.table.StackSize(f, vaddr)
	if err != nil || size <= 0 || size > maxGoSize {
		return nil, errSwitch
	}
	return &sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: a.FP, Offset: 8 + size}, RA: at(-size), FP: at(-size - 8), Switch: true}, nil
}

// framed tells whether rbp leads to the frame of a function of x86-64 at vaddr, if it has a frame pointer: behind its beginning, and not behind where it
// has restored its caller's.
func framed(mem *objectMemory, f symbol.GoFunc, vaddr uint64) bool {
	var b [6]byte
	if _, err := mem.ReadAt(b[:], int64(vaddr)); err != nil || vaddr < f.Start+saveFPBytes {
		return false
	}
	switch {
	case b[0] == 0xc3, b[0] == 0xff && b[1]&0xf8 == 0xe0: // ret; jmp reg
		return false
	case b[0] == 0x48 && b[1] == 0x83 && b[2] == 0xc4 && b[4] == 0xc3: // add rsp,n; ret
		return false
	}
	return true
}

// goFPAt tells where f has the caller's frame pointer at vaddr. Compiled functions
// save it when they take any of the stack (cmd/internal/obj/x86/obj6.go and
// arm64/obj7.go, preprocess), some with an instruction after that one; what is
// written in assembly may not. s390x has none.
func goFPAt(mem *objectMemory, f symbol.GoFunc, vaddr uint64, size int32) (goFP, error) {
	switch {
	case mem.hdr.arch == regs.S390X:
		return goFPUnknown, nil
	case size == 0:
		return goFPSame, nil
	case f.Asm:
		return goFPUnknown, nil
	}
	var b [4]byte
	if _, err := mem.ReadAt(b[:], int64(vaddr)); err != nil {
		return 0, err
	}
	if mem.hdr.arch == regs.ARM64 && binary.LittleEndian.Uint32(b[:]) == 0xf81f83fd || // stur x29, [sp, #-8]
		mem.hdr.arch == regs.AMD64 && (bytes.Equal(b[:], []byte{0x48, 0x89, 0x6c, 0x24}) ||
			bytes.Equal(b[:], []byte{0x48, 0x89, 0xac, 0x24})) { // mov [rsp+n], rbp
		return goFPSame, nil
	}
	return goFPSaved, nil
}

// keyed returns the row of a key. Go's functions keep no registers for their
// callers but the frame pointer.
func (g *goRows) keyed(a *regs.Arch, k goRowKey) *sframe.Row {
	if row := g.rows[k]; row != nil {
		return row
	}
	at := func(off int32) sframe.Rule { return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: off} }
	row := &sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: a.SP, Offset: k.size}}
	// fpAt is where the caller's frame pointer is, from the CFA.
	fpAt := -k.size - 8
	switch {
	case !a.Link:
		row.CFA.Offset += 8
		row.RA, fpAt = at(-8), -16
	case k.size > 0:
		row.RA = at(-k.size) // at the stack pointer
	}
	row.Signal = k.injected
	switch k.fp {
	case goFPSaved:
		row.FP = at(fpAt)
	case goFPUnknown:
		row.FP = sframe.Rule{Base: sframe.Undefined}
	}
	if a.SPOffset != 0 {
		// Go does not have the ABI's save area: the CFA is the stack pointer.
		row.Saved = []sframe.SavedRule{{Reg: a.SP, Rule: sframe.Rule{Base: sframe.FromCFA}}}
	}
	if len(g.rows) >= maxGoRows {
		clear(g.rows)
	}
	if g.rows == nil {
		g.rows = map[goRowKey]*sframe.Row{}
	}
	g.rows[k] = row
	return row
}
