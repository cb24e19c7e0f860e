package runtimes

import (
	"bytes"

	"sfsample/regs"
	"sfsample/unwind"
)

// DWARF numbers of registers of x86-64.
const (
	regRAX = 0
	regRDX = 1
	regRCX = 2
	regRBX = 3
	regRBP = 6
	regRSP = 7
	regR13 = 13
)

// Slots of an interpreter's frame, from its frame pointer on (cpu/x86/frame_x86.hpp).
const (
	slotSender = -8 // the caller's stack pointer, which adapters may have extended
	slotMethod = -24
	slotBCP    = -64
)

// maxFrameBytes bounds a frame with a frame pointer.
const maxFrameBytes = 1 << 20

// hotspotStep computes one caller.
type hotspotStep struct {
	h    *hotspot
	from *regs.Set
	mem  *unwind.Memory
	to   *regs.Set
	top  bool
	addr uint64 // what a failure is about
}

// Caller implements unwind.Runtime.
func (h *hotspot) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	s := hotspotStep{h: h, from: from, mem: mem, to: to, top: top, addr: from.PC}
	h.found.dropped.take(mem)
	r := s.caller()
	return r, s.addr
}

func (s *hotspotStep) caller() unwind.Reason {
	pc := s.from.PC
	if !s.top {
		pc--
	}
	b := s.h.find(pc)
	switch {
	case b == nil:
		return unwind.NoRow
	case !s.h.found.dropped.was(b.since):
		return unwind.NotCode
	case !s.top && s.from.PC == s.h.found.callStub:
		return s.record()
	case b.kind == interpreterBlob:
		return s.interpreted(b)
	case b.kind == adapterBlob:
		return s.adapter()
	case b.kind == framelessBlob:
		return s.leaf(0, false)
	case b.kind == compiledBlob || b.kind == nativeBlob:
		return s.compiled(b, pc)
	case b.frame > 0 && !s.top:
		return s.full(b)
	case b.kind == continuationBlob:
		return s.continuing(b, pc)
	}
	return s.stub(b, pc)
}

// reg is a register of the frame.
func (s *hotspotStep) reg(n uint8) (uint64, bool) { return s.from.Reg(n) }

// sp is its stack pointer.
func (s *hotspotStep) sp() uint64 { return s.from.R[regRSP] }

func (s *hotspotStep) load(addr uint64) (v uint64, r unwind.Reason) {
	v, err := s.mem.Word(regs.AMD64, addr)
	if err == nil {
		return v, 0
	}
	s.addr = addr
	if r, ok := err.(unwind.Reason); ok {
		return 0, r
	}
	return 0, unwind.Unreadable
}

// enter makes the caller known, if ra is the address behind a call.
func (s *hotspotStep) enter(ra, sp, fp uint64, fpKnown bool) unwind.Reason {
	if s.addr = ra; !s.returns(ra) {
		return unwind.NotCode
	}
	*s.to = regs.Set{PC: ra}
	s.to.R[regRSP], s.to.Known = sp, 1<<regRSP
	if fpKnown {
		s.to.R[regRBP], s.to.Known = fp, s.to.Known|1<<regRBP
	}
	return 0
}

// same is enter with the frame pointer as it is.
func (s *hotspotStep) same(ra, sp uint64) unwind.Reason {
	fp, ok := s.reg(regRBP)
	return s.enter(ra, sp, fp, ok)
}

// returns tells whether ra is an address to return to: outside the code cache others check that.
func (s *hotspotStep) returns(ra uint64) bool {
	if s.h.heapAt(ra-1) == nil {
		return true
	}
	b := s.h.find(ra - 1)
	switch {
	case b == nil || !s.h.found.dropped.was(b.since):
		return false
	case b.kind == interpreterBlob:
		c := s.h.codelet(b, ra)
		return c.end != 0 && !c.entry()
	case ra == b.m.deopt:
		return true
	case b.kind == compiledBlob || b.kind == nativeBlob || b.kind == otherBlob && b.frame >= 16:
		code := b.bytes(s.h)
		return code != nil && ra-b.begin <= uint64(len(code)) && behindCall(code[:ra-b.begin])
	}
	return b.kind != adapterBlob && b.kind != framelessBlob
}

// behindCall: code ends in a call: e8 rel32, or ff /2 of a register or memory.
func behindCall(code []byte) bool {
	n := len(code)
	if n >= 5 && code[n-5] == 0xe8 {
		return true
	}
	for size := 2; size <= 7 && size <= n; size++ {
		if c := code[n-size:]; c[0] == 0xff && c[1]>>3&7 == 2 {
			mod, rm, want := c[1]>>6, c[1]&7, 2
			if mod != 3 && rm == 4 {
				want++
			}
			switch mod {
			case 0:
				if rm == 5 || rm == 4 && size > 2 && c[2]&7 == 5 {
					want += 4
				}
			case 1:
				want++
			case 2:
				want += 4
			}
			if want == size {
				return true
			}
		}
	}
	return false
}

// leaf: the return address is depth bytes above the stack pointer; pushed: the caller's frame pointer lies below it.
func (s *hotspotStep) leaf(depth uint64, pushed bool) unwind.Reason {
	ra, r := s.load(s.sp() + depth)
	if r != 0 {
		return r
	}
	if !pushed {
		return s.same(ra, s.sp()+depth+8)
	}
	fp, r := s.load(s.sp() + depth - 8)
	if r != 0 {
		return r
	}
	return s.enter(ra, s.sp()+depth+8, fp, true)
}

// at is leaf where the stack pointer is at that depth.
func (s *hotspotStep) at(d depth) unwind.Reason {
	switch {
	case d.popped == 0 && d.linked && !d.saved: // rbp is not the caller's
		ra, r := s.load(s.sp() + d.bytes)
		if r != 0 {
			return r
		}
		return s.enter(ra, s.sp()+d.bytes+8, 0, false)
	case d.popped == 0:
		return s.leaf(d.bytes, d.saved)
	}
	ra, ok := s.reg(d.popped)
	if !ok {
		return unwind.UnknownRegister
	}
	return s.same(ra, s.sp())
}

// full: the whole frame stands. Its size is known, and the caller's frame pointer is always saved.
func (s *hotspotStep) full(b *blob) unwind.Reason {
	if b.frame < 16 {
		return s.leaf(0, false)
	}
	return s.leaf(b.frame-8, true)
}

// frameAt is the frame pointer, if it may be of this frame.
func (s *hotspotStep) frameAt() (uint64, bool) {
	fp, ok := s.reg(regRBP)
	s.addr = s.from.PC
	return fp, ok && fp >= s.sp() && fp-s.sp() < maxFrameBytes && fp&7 == 0
}

// record: the frame pointer leads on.
func (s *hotspotStep) record() unwind.Reason {
	fp, ok := s.frameAt()
	if !ok {
		return unwind.UnknownRegister
	}
	ra, r := s.load(fp + 8)
	if r != 0 {
		return r
	}
	up, r := s.load(fp)
	if r != 0 {
		return r
	}
	return s.enter(ra, fp+16, up, true)
}

// compiled is a method's frame, whose size is known wherever its code is: pc lies in it, or in the call.
func (s *hotspotStep) compiled(b *blob, pc uint64) unwind.Reason {
	if s.from.PC == b.m.deopt {
		return s.full(b)
	}
	if b.depths == nil {
		code := b.bytes(s.h)
		if code == nil || !s.h.used.take(4*len(code)) {
			return unwind.Unreadable
		}
		b.depths = newDepths(code, int(b.m.entry-b.begin), int(max(b.frame, 8)-8), entered(s.h, b, code))
	}
	switch d := b.depths.at(pc - b.begin); {
	case d.known:
		return s.at(d.depth)
	case s.top:
		return unwind.UnknownRegister
	}
	return s.full(b) // a call with an aligned stack
}

// interpreted is a frame of the interpreter, or code of it between frames.
func (s *hotspotStep) interpreted(b *blob) unwind.Reason {
	if s.top {
		code, off := b.bytes(s.h), int(s.from.PC-b.begin)
		if code == nil {
			return unwind.Unreadable
		}
		c := s.h.codelet(b, s.from.PC)
		if c.end == 0 || c.start < b.begin || c.end > b.end {
			return unwind.NoRow
		}
		if c.entry() {
			if r, done := s.entering(code[c.start-b.begin:c.end-b.begin], int(s.from.PC-c.start)); done {
				return r
			}
		} else if r, done := s.leaving(code, off); done {
			return r
		}
	}
	fp, ok := s.frameAt()
	if !ok {
		return unwind.UnknownRegister
	}
	var v [3]uint64
	for i, at := range [...]int{8, 0, slotSender} {
		var r unwind.Reason
		if v[i], r = s.load(fp + uint64(at)); r != 0 {
			return r
		}
	}
	if v[2] <= fp || v[2]-fp > maxFrameBytes {
		s.addr = v[2]
		return unwind.NoProgress
	}
	return s.enter(v[0], v[2], v[1], true)
}

// frameBuilt is push rbp; mov rbp,rsp.
var frameBuilt = []byte{0x55, 0x48, 0x8b, 0xec}

// entering: the frame of a method is being built. The caller's stack pointer is in r13, and the return address on the stack, or
// in rax from where that is popped until it is pushed again.
func (s *hotspotStep) entering(code []byte, off int) (r unwind.Reason, done bool) {
	build := bytes.Index(code, frameBuilt)
	sender, known := s.reg(regR13)
	if !known || sender <= s.sp() || sender-s.sp() > maxFrameBytes || sender&7 != 0 {
		sender = 0
	}
	up := func(ra uint64, r unwind.Reason, sp uint64) (unwind.Reason, bool) {
		switch {
		case r != 0:
			return r, true
		case sender != 0:
			sp = sender
		}
		return s.same(ra, sp), true
	}
	if build >= 0 && off > build+4 {
		return 0, false
	}
	if build >= 0 && off > build {
		if off == build+1 {
			ra, r := s.load(s.sp() + 8)
			fp, r2 := s.load(s.sp())
			if r = max(r, r2); r == 0 && sender == 0 {
				sender = s.sp() + 16
			}
			if r != 0 {
				return r, true
			}
			return s.enter(ra, sender, fp, true), true
		}
		fp, _ := s.reg(regRBP)
		ra, r := s.load(fp + 8)
		up, r2 := s.load(fp)
		if r = max(r, r2); r != 0 {
			return r, true
		}
		if sender == 0 {
			sender = fp + 16
		}
		return s.enter(ra, sender, up, true), true
	}
	pop := -1
	if build >= 0 {
		pop = bytes.LastIndexByte(code[:build], 0x58) // pop rax
	}
	if pop >= 0 && off > pop && off < build {
		if ra, ok := s.reg(regRAX); ok {
			return up(ra, 0, s.sp())
		}
		return unwind.UnknownRegister, true
	}
	ra, r := s.load(s.sp())
	return up(ra, r, s.sp()+8)
}

// left is how far the interpreter is with leaving a method's frame: leave; pop r13; mov rsp,rbx; jmp r13, or leave; ret.
type left uint8

const (
	notLeft    left = iota
	leftAtPop       // at pop r13
	leftAtMove      // at mov rsp,rbx
	leftAtJump      // at jmp r13
	leftAtRet       // at ret
)

func leftAt(code []byte, off int) left {
	behind := func(c ...byte) bool { return bytes.HasSuffix(code[:off], c) }
	ahead := func(c ...byte) bool { return bytes.HasPrefix(code[off:], c) }
	switch {
	case behind(0xc9) && ahead(0x41, 0x5d):
		return leftAtPop
	case behind(0xc9, 0x41, 0x5d) && ahead(0x48, 0x8b, 0xe3):
		return leftAtMove
	case behind(0x41, 0x5d, 0x48, 0x8b, 0xe3) && ahead(0x41, 0xff, 0xe5):
		return leftAtJump
	case behind(0xc9) && ahead(0xc3):
		return leftAtRet
	}
	return notLeft
}

// leaving: the frame of a method has been left.
func (s *hotspotStep) leaving(code []byte, off int) (r unwind.Reason, done bool) {
	at := leftAt(code, off)
	sender, ok := s.reg(regRBX)
	switch {
	case at == notLeft:
		return 0, false
	case at == leftAtRet:
		return s.leaf(0, false), true
	case at == leftAtJump:
		sender, ok = s.sp(), true
	}
	ra, known := s.reg(regR13)
	if at == leftAtPop {
		known = true
		if ra, r = s.load(s.sp()); r != 0 {
			return r, true
		}
	}
	if !ok || !known {
		return unwind.UnknownRegister, true
	}
	return s.same(ra, sender), true
}

// adapter is between compiled and interpreted code, with no frame: the return address is on the stack, or in rax while the arguments are moved. Before
// compiled code was called the stack pointer was that in r13, where the interpreter has called, or has been.
func (s *hotspotStep) adapter() unwind.Reason {
	ra, r := s.load(s.sp())
	if r != 0 {
		return r
	}
	sp := s.sp() + 8
	if v, ok := s.reg(regR13); ok && v > s.sp() && v-s.sp() < 4<<10 && v&7 == 0 {
		sp = v
	}
	if s.h.heapAt(ra-1) != nil && s.returns(ra) {
		return s.same(ra, sp)
	}
	v, ok := s.reg(regRAX)
	if !ok || s.h.heapAt(v-1) == nil {
		s.addr = ra
		return unwind.NotCode
	}
	return s.same(v, sp)
}

// starts are where the stack pointer may be at the first instruction of code of the runtime.
func (b *blob) starts(code []byte) []depth {
	switch {
	case b.label == "ExceptionBlob":
		return []depth{{popped: regRDX}}
	case b.frame < 16:
		return []depth{{}}
	case code[0] == 0x53: // push rbx makes room for a return address that is stored later (generate_handler_blob, cpu/x86/sharedRuntime_x86_64.cpp)
		return nil
	}
	return []depth{{}, {bytes: b.frame - 8, saved: true, linked: true}} // or the frame of another stub stands, which has jumped here (forward_exception, cpu/x86/c1_Runtime1_x86.cpp)
}

// stub is code of the runtime; pc lies in it, or in the call. Where the code does not tell where its stack pointer is, it may keep a frame pointer; so
// may, as its nearest prologue before tells, code without a frame of its own that nothing is known to lead to.
func (s *hotspotStep) stub(b *blob, pc uint64) unwind.Reason {
	code, off := b.bytes(s.h), int(s.from.PC-b.begin)
	if code == nil {
		return unwind.Unreadable
	}
	if b.depths == nil {
		if !s.h.used.take(4 * len(code)) {
			return unwind.Unreadable
		}
		b.depths = newStubDepths(code, b.starts(code)...)
	}
	switch d := b.depths.at(pc - b.begin); {
	case d.known:
		return s.at(d.depth)
	case d.linked:
		return s.record()
	case d.led, b.frame > 0:
		return unwind.UnknownRegister
	case !s.top:
		return s.record()
	}
	begun := bytes.LastIndex(code[:off], frameBuilt)
	if begun < 0 || bytes.HasPrefix(code[off:], []byte{0xc3}) || bytes.Contains(code[begun:off], []byte{0xc9, 0xc3}) { // it has ended, and another without a frame has begun
		return s.leaf(0, false)
	}
	return s.record()
}
