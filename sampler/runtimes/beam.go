package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"path"

	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// beam is Erlang/OTP's emulator with its just-in-time compiler (BeamAsm, erts/emulator/beam/jit). The stack of an Erlang process lies at the end of
// its heap; while its code runs the stack pointer is in it, and what the code calls of the emulator runs on the scheduler's native stack. A walk
// begins on either, and ends with the process's outermost function.
type beam struct {
	version string
	beamLayout
	mem        io.ReaderAt
	origin     func(pc uint64) (generated, bare bool)
	descriptor uint64 // address of __jit_debug_descriptor
	schedulers uint64 // of the pointer to what is kept of normal schedulers
	count      uint64 // of how many there are
	stride     uint64 // from one to the next, in bytes; 0: not known yet
	begun      bool
	modules    *beamModules
}

// beamLayout is what differs between releases, in bytes: where a Process (erl_process.h) has hend, where its stack begins, and how far below what code in
// registers rbx has (x_reg_array of ErtsSchedulerRegisters, which is on the scheduler's native stack) the emulator's code is called.
type beamLayout struct{ end, below int }

// beamLayouts are those of the releases that are known.
var beamLayouts = map[string]beamLayout{"25": {0x88, 0x80}, "27": {0xc8, 0x40}}

// Offsets in bytes, of all of them.
const (
	// ErtsSchedulerData (erl_process.h): tid, current_process, no. It is aligned to cache lines.
	beamTID       = 32
	beamCurrent   = 0xa8
	beamNumber    = 0xb8
	beamCacheLine = 64
	// Process: stop, the stack pointer while other code runs.
	beamStop         = 0x58
	beamFramePointer = 0x60 // beside stop: the frame pointer, if there are such
	// jit_descriptor (beam_jit_metadata.cpp, as GDB documents it): first_entry.
	beamFirst           = 16
	beamDescriptorBytes = 24
	// What the emulator's code is called with lies within so many bytes of the scheduler's stack.
	beamCalling = 0x80
)

// Bounds.
const (
	maxBeamSchedulers = 1024
	maxBeamScheduler  = 256 << 10 // bytes of ErtsSchedulerData
	maxPthread        = 1 << 10   // bytes in which a thread's number is, in glibc's struct pthread
)

// beamAlways is a symbol that every Erlang/OTP exports, to native functions.
const beamAlways = "enif_alloc_resource"

// beamSymbols are those that newBeam needs.
var beamSymbols = []string{"etp_otp_release", "etp_beamasm", "erts_frame_layout", "__jit_debug_descriptor", "erts_aligned_scheduler_data", "erts_no_schedulers"}

// newBeam reads what must be known of the emulator with these symbols.
func newBeam(o Object, machine elf.Machine, syms map[string]uint64, mem io.ReaderAt) (Runtime, error) {
	unknown := func(why string) (Runtime, error) {
		return nil, fmt.Errorf("%s: Erlang/OTP %s, its functions are not shown", path.Base(o.Path), why)
	}
	var release string
	if b := read(mem, syms["etp_otp_release"], 3); b != nil && b[2] == 0 {
		release = string(b[:2])
	}
	layout, ok := beamLayouts[release]
	switch {
	case syms["etp_otp_release"] == 0:
		return unknown("does not export etp_otp_release")
	case !ok:
		return unknown(fmt.Sprintf("%q is not known (known: 25 and 27)", release))
	case machine != elf.EM_X86_64:
		return unknown("is known on x86-64 only")
	}
	for _, s := range beamSymbols {
		if syms[s] == 0 {
			return unknown("does not export " + s)
		}
	}
	if b := read(mem, syms["etp_beamasm"], 4); b == nil || word32(b, 0) == 0 {
		return unknown("without its just-in-time compiler is not known")
	}
	if b := read(mem, syms["erts_frame_layout"], 4); b == nil || word32(b, 0) > 1 {
		return unknown("with frames of another layout is not known")
	}
	d := syms["__jit_debug_descriptor"]
	return &beam{version: release, beamLayout: layout, mem: mem, origin: o.Origin, descriptor: d, schedulers: syms["erts_aligned_scheduler_data"],
		count: syms["erts_no_schedulers"], modules: newBeamModules(mem, d+beamFirst)}, nil
}

// Name implements Runtime.
func (b *beam) Name() string { return "erlang" }

// Version implements Runtime.
func (b *beam) Version() string { return b.version }

// Roots implements Runtime: what is kept of the scheduler that runs on the thread.
func (b *beam) Roots(mem io.ReaderAt, th Thread) []taking.Root {
	count, list := read(mem, b.count, 8), read(mem, b.schedulers, 8)
	if count == nil || list == nil {
		return nil
	}
	n, addr := min(word(count, 0), maxBeamSchedulers), word(list, 0)
	for i := uint64(1); i <= n; i++ {
		tid, ok := scheduler(mem, addr, i)
		switch {
		case !ok:
			return nil
		case tid == th.Pointer, th.Pointer == 0 && ofThread(mem, tid, th.TID):
			return []taking.Root{{Addr: addr, Is: tid}}
		}
		// They are of one size, which the second one tells.
		for found := b.stride > 0; i < n && !found; {
			if b.stride += beamCacheLine; b.stride > maxBeamScheduler {
				b.stride = 0
				return nil
			}
			_, found = scheduler(mem, addr+b.stride, 2)
		}
		addr += b.stride
	}
	return nil
}

// scheduler is the pthread_t of the scheduler with a number, of which is kept what is at addr. ok is false if it is none. A struct pthread begins with its address.
func scheduler(mem io.ReaderAt, addr, number uint64) (tid uint64, ok bool) {
	b := read(mem, addr, beamNumber+8)
	if b == nil || word(b, beamNumber) != number {
		return 0, false
	}
	tid = word(b, beamTID)
	self := read(mem, tid, 8)
	return tid, self != nil && word(self, 0) == tid
}

// ofThread tells whether the thread whose pthread_t this is has a number: struct pthread of glibc has it, and other numbers that are small.
func ofThread(mem io.ReaderAt, pthread uint64, tid int) bool {
	b := read(mem, pthread, maxPthread)
	for i := 0; i+4 <= len(b) && tid > 0; i += 4 {
		if word32(b, i) == uint32(tid) {
			return true
		}
	}
	return false
}

// beamDeeper is how much further down than the stack pointer that is stored a process's stack may be, in bytes: code stores it only for calls that need it.
const beamDeeper = 4 << 10

// leastBeamRoom is how much is copied of a thread at least, in bytes.
const leastBeamRoom = 16 << 10

// Recipe implements Runtime: the process that runs, its stack, and which code is the newest. To that nothing of a scheduler leads, but from the address in Check.
func (b *beam) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: beamCurrent + 8, Check: beamTID, Room: leastBeamRoom}
	copy(r.Roots[:], roots)
	r.Steps[0] = taking.Step{Bytes: b.end + 8, Head: beamCurrent, Most: 1, Areas: [2]taking.Area{{From: beamStop, To: b.end, Before: beamDeeper}}}
	head := b.modules.head
	spans := []Span{{b.descriptor, beamDescriptorBytes}, {head.entry, beamEntryBytes}, {head.told, beamInfoBytes}}
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, beamCurrent + 8})
		r.Steps[1] = taking.Step{Bytes: beamEntryBytes, Head: beamTID, Via: true, At: b.descriptor + beamFirst - root.Is, Most: 1, Part: taking.Part{At: 16, Bytes: beamInfoBytes}}
	}
	foresee(r, spans)
	for _, s := range last.Spans {
		r.Room = min(max(r.Room, 2*s.Len), taking.MostRoom)
	}
	return r
}

// Begin implements Managed.
func (b *beam) Begin() (changed bool) {
	changed, b.begun = !b.begun, true
	b.modules.budget = min(b.modules.budget+maxBeamNewer, maxBeamEntries)
	b.modules.flows.work = min(b.modules.flows.work+maxBeamMore, maxBeamWork)
	return changed
}

// Confirm implements Managed: what is kept of code is what its emulator has said of it.
func (b *beam) Confirm() bool { return true }

// Owns implements unwind.Runtime.
func (b *beam) Owns(pc uint64) bool {
	generated, _ := b.origin(pc)
	return generated
}

// Beforehand implements [Beforehand].
func (b *beam) Beforehand() {}

// Caller implements unwind.Runtime.
func (b *beam) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	a := regs.AMD64
	load := func(addr uint64) (uint64, unwind.Reason) {
		v, err := mem.Word(a, addr)
		if err == nil {
			return v, 0
		}
		r, _ := err.(unwind.Reason)
		return 0, r
	}
	pc := from.PC
	if !top {
		pc--
	}
	when, ok := b.when(func(addr uint64) (uint64, bool) { v, r := load(addr); return v, r == 0 })
	if !ok {
		return unwind.Unreadable, b.descriptor
	}
	f := b.modules.find(pc, when)
	switch {
	case f == nil || b.modules.root == 0:
		return unwind.UnknownRegister, pc
	case f.name == beamMain:
		return unwind.Outermost, 0
	}
	registers, known := from.Reg(regRBX)
	process, also := from.Reg(regR13)
	if !known || !also {
		return unwind.UnknownRegister, pc
	}
	flow := b.modules.flow(f)
	if flow == nil {
		return unwind.UnknownRegister, pc
	}
	w := beamFrame{sp: from.R[regRSP], process: process, load: load}
	w.fp, w.known = from.Reg(regRBP)
	native := registers-uint64(b.below)-w.sp < beamCalling
	at := int(from.PC - f.entry)
	s, ok := flow.at(at, !top, native)
	if !ok {
		return unwind.UnknownRegister, pc
	}
	if native {
		reg, framed, ok := flow.restores(at)
		if !ok {
			return unwind.UnknownRegister, pc
		}
		if r, addr := w.back(reg, framed); r != 0 {
			return r, addr
		}
	}
	ra, addr, r := w.caller(s, flow.framed)
	switch {
	case r == unwind.UnknownRegister:
		return r, pc
	case r != 0 && native:
		return unwind.Unreadable, addr
	case r != 0:
		return r, addr
	case ra == b.modules.root && ra != 0:
		return unwind.Outermost, 0
	}
	up := b.modules.find(ra-1, when)
	if up == nil || !b.modules.called(up, ra) {
		return unwind.NotAfterCall, ra
	}
	*to = regs.Set{PC: ra}
	to.SetReg(a.SP, addr+8)
	to.SetReg(regRBX, registers)
	to.SetReg(regR13, process)
	if flow.framed && w.known {
		to.SetReg(regRBP, w.fp)
	}
	return 0, 0
}

// when is the number of the module that was the newest, by what was copied.
func (b *beam) when(word func(addr uint64) (uint64, bool)) (n int, ok bool) {
	first, ok := word(b.descriptor + beamFirst)
	if !ok {
		return 0, false
	}
	head, ok := beamIsAt(first, word)
	if !ok {
		return 0, false
	}
	return b.modules.at(head)
}

// beamFrame is a frame on a process's stack, of which the caller is looked for.
type beamFrame struct {
	sp, fp  uint64 // the registers
	known   bool   // fp is
	process uint64
	load    func(addr uint64) (uint64, unwind.Reason)
}

// back is where native code has been called: the process's stack pointer is in a register, or in the process, as is, framed, its frame pointer.
func (w *beamFrame) back(reg uint8, framed bool) (r unwind.Reason, addr uint64) {
	if reg == regRBP {
		if w.sp = w.fp; !w.known {
			return unwind.UnknownRegister, 0
		}
		return 0, 0
	}
	if w.sp, r = w.load(w.process + beamStop); r != 0 {
		return unwind.Unreadable, w.process + beamStop
	}
	if framed {
		if w.fp, r = w.load(w.process + beamFramePointer); r != 0 {
			return unwind.Unreadable, w.process + beamFramePointer
		}
		w.known = true
	}
	return 0, 0
}

// caller is the return address, by what holds at the instruction, and where it is. fp becomes the caller's. Where stack pointer and frame pointer lead to different
// places the frame is as it will not stay, and r says UnknownRegister.
func (w *beamFrame) caller(s beamState, framed bool) (ra, addr uint64, r unwind.Reason) {
	addr = w.sp + 8*uint64(s.words)
	if s.link == beamLinked {
		up := w.fp + 8 - w.sp
		switch {
		case s.words != beamAnyWords && (!w.known || w.fp+8 == addr):
		case s.words == beamAnyWords && w.known && up%8 == 0 && up >= 8 && up <= 8*maxBeamFrame:
			addr = w.fp + 8
		default:
			return 0, 0, unwind.UnknownRegister
		}
	}
	if ra, r = w.load(addr); r != 0 || !framed || s.link == beamUnlinked {
		return ra, addr, r
	}
	w.fp, r = w.load(addr - 8)
	w.known = true
	return ra, addr, r
}

// Identify implements Managed. A frame's code is the number of its module, and At what is in that: its place, from the module's beginning on.
func (b *beam) Identify(owned []unwind.Owned, mem Memory, st *Stack) {
	st.Reset()
	b.foresee(mem, st)
	when, ok := b.when(mem.Word)
	for i := 0; ok && i < len(owned); i++ {
		o := &owned[i]
		pc := o.Set.PC
		if !o.Top {
			pc--
		}
		if f := b.modules.find(pc, when); f != nil {
			st.Frames = append(st.Frames, Frame{Addr: o.Set.R[regRSP], Code: uint64(f.of.number), At: pc - f.of.base})
			st.Segments = append(st.Segments, Segment{N: 1, Native: o.Frame})
		}
	}
}

// foresee notes how large the stack of the process is that was copied, or was to be.
func (b *beam) foresee(mem Memory, st *Stack) {
	for i := range mem {
		if len(mem[i].Bytes) != b.end+8 {
			continue
		}
		if n := word(mem[i].Bytes, b.end) - word(mem[i].Bytes, beamStop); n < taking.MostRoom/2 {
			st.Spans = append(st.Spans, Span{word(mem[i].Bytes, beamStop), int(n)})
		}
	}
}

// Key implements Runtime. What the emulator has told of a module it never changes.
func (b *beam) Key(_ Memory, _ io.ReaderAt, f *Frame) (Key, bool) {
	m := b.modules.told(int(f.Code))
	if m == nil {
		return Key{}, false
	}
	x := m.rangeAt(f.At)
	if x == nil {
		return Key{}, false
	}
	return Key{Code: f.Code, First: x.start}, true
}

// Function implements Runtime.
func (b *beam) Function(_ io.ReaderAt, f *Frame, _ Key) (*Function, bool) {
	m := b.modules.told(int(f.Code))
	if m == nil {
		return nil, false
	}
	x := m.rangeAt(f.At)
	if x == nil {
		return nil, false
	}
	fn := &Function{Name: x.name, Stub: x.shared()}
	if len(x.lines) > 0 {
		fn.File, fn.First, fn.lines = x.lines[0].file, int(x.lines[0].line), beamLines(x.lines)
	}
	return fn, true
}

// beamLines are those of a function.
type beamLines []beamLine

// line implements lineTable. at is a place, from the module's beginning on.
func (l beamLines) line(at uint64, _ int) int {
	line := 0
	for _, x := range l {
		if int64(x.start) > int64(at) {
			break
		}
		if line = int(x.line); x.file != l[0].file {
			line = 0
		}
	}
	return line
}

// beamText is text that a NUL ends.
func beamText(b []byte) (string, bool) {
	if len(b) == 0 || b[len(b)-1] != 0 {
		return "", false
	}
	return string(b[:len(b)-1]), true
}

func half(b []byte, off int) int { return int(binary.NativeEndian.Uint16(b[off:])) }
