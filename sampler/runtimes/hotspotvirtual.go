package runtimes

import (
	"bytes"
	"io"

	"sfsample/unwind"
)

// A virtual thread (21 and later) runs on the native stack of the thread that carries it, from the frame of jdk.internal.vm.Continuation.enterSpecial on.
// While it waits its frames are in a StackChunk, in the heap. Then the innermost ones are put back, and the return address of the
// outermost of these is that of a stub, which puts back the next ones: cont_returnBarrier (share/runtime/continuationFreezeThaw.cpp,
// cpu/x86/stubGenerator_x86_64.cpp). Its stack pointer is that of the frame of enterSpecial then, which lies there as a ContinuationEntry.

// continuationName is in the names of the blob of such stubs, "continuation stubs" or "continuationstubs".
const continuationName = "StubRoutines (continuation"

// inHeap stands for frames that were not read.
const inHeap = "[more frames in the heap]"

// loadEntry is mov rsp,[r15+N], which makes the stack pointer that of enterSpecial's frame: nothing else in generated code loads it from
// the thread.
var loadEntry = []byte{0x49, 0x8b, 0xa7}

// specialPause is for how many walks enterSpecial is not looked for again.
const specialPause = 1 << 10

// special is the code of jdk.internal.vm.Continuation.enterSpecial, nil if there is none yet. What leads to it is not told by all versions.
func special(h *hotspot) *blob {
	if h.found.entry.pc == 0 && h.epoch >= h.found.entry.next {
		h.found.entry.pc, h.found.entry.next = seekSpecial(h), h.epoch+specialPause
	}
	if h.found.entry.pc == 0 {
		return nil
	}
	b := h.find(h.found.entry.pc)
	if b == nil || b.kind != nativeBlob || b.frame < 32 {
		h.found.entry.pc = 0
		return nil
	}
	return b
}

// Bounds of one look through the code cache: of blocks, and of methods of native code, of which there are some hundreds.
const (
	seekBlocks  = 1 << 17
	seekMethods = 1 << 12
)

// seekSpecial looks through the code cache.
func seekSpecial(h *hotspot) uint64 {
	l, blocks, methods := &h.lay, 0, 0
	for i := range h.heaps {
		c := &h.heaps[i]
		for at, to := range read(h.mem, c.segmap, int(c.committed(h.mem))) {
			if to != 0 {
				continue // no block begins there
			}
			if blocks++; blocks > seekBlocks || methods > seekMethods {
				return 0
			}
			b, ok := l.head(h.mem, c.low+uint64(at)<<c.log2+uint64(l.cache.blockBytes))
			if !ok || kindOf(h.text(b.name)) != nativeBlob {
				continue
			}
			methods++
			x := l.readMethod(h.mem, b.m.method)
			if x != nil && len(x.parts) == methodParts && l.symbol(h.mem, x.parts[partName].Addr) == "enterSpecial" &&
				l.symbol(h.mem, x.parts[partClass].Addr) == "jdk/internal/vm/Continuation" {
				return b.begin
			}
		}
	}
	return 0
}

// committed is how many bytes of the map of its segments there are.
func (c *codeHeap) committed(mem io.ReaderAt) uint64 {
	b := read(mem, c.segmapEnd, 8)
	if b == nil {
		return 0
	}
	return min(word(b, 0)-c.segmap, maxSegments)
}

// Code of the stubs: sub rsp,rbx; and rsp,-16 makes room for frames, and mov rsp,rbx; sub rsp,16 goes to the innermost of them, of which the caller's
// frame pointer and the return address are popped then.
var (
	makeRoom  = []byte{0x48, 0x2b, 0xe3, 0x48, 0x83, 0xe4, 0xf0}
	goToFrame = []byte{0x48, 0x8b, 0xe3, 0x48, 0x83, 0xec, 0x10}
)

// newContinuationDepths follows the code of continuations' stubs. special is the size of enterSpecial's frame, which all begin in.
func newContinuationDepths(code []byte, special uint64) depths {
	f := newFollow(code)
	f.special = special
	f.enterAs(0, depth{bytes: special, saved: true}) // it was called
	for at := range code {
		switch {
		case bytes.HasPrefix(code[at:], loadEntry):
			f.enterAs(at+7, depth{bytes: special - 8, saved: true})
		case bytes.HasPrefix(code[at:], goToFrame):
			f.enterAs(at+7, depth{bytes: 8, saved: true})
		}
	}
	for at := 0; at < len(code); at += int(f.sizes[at]) {
		if f.sizes[at] == 0 {
			f.sizes[at], f.state[at] = 1, conflicting
		}
	}
	return f.depths()
}

// maxContinuation bounds the code of continuations' stubs, in bytes.
const maxContinuation = 64 << 10

// continuing is a stub of continuations.
func (s *hotspotStep) continuing(b *blob, pc uint64) unwind.Reason {
	special := special(s.h)
	code := b.bytes(s.h)
	if special == nil || code == nil || len(code) > maxContinuation {
		return unwind.UnknownRegister
	}
	off := int(s.from.PC - b.begin)
	if !s.top && bytes.HasPrefix(code[off:], loadEntry) {
		return s.overArguments(special)
	}
	if b.depths == nil {
		if !s.h.used.take(4 * len(code)) {
			return unwind.UnknownRegister
		}
		b.depths = newContinuationDepths(code, special.frame)
	}
	if d := b.depths.at(pc - b.begin); d.known {
		return s.at(d.depth)
	}
	// Room was made for as many bytes as there are in rbx.
	room, ok := s.reg(regRBX)
	at := bytes.LastIndex(code[:off], makeRoom)
	if !ok || at < 0 || room > maxFrameBytes {
		return unwind.UnknownRegister
	}
	pushed := depth{}.pack()
	for at += len(makeRoom); at < int(pc-b.begin); {
		x := decodeX86(code[at:])
		if x.size == 0 || bytes.HasPrefix(code[at:], goToFrame[:3]) {
			return unwind.UnknownRegister
		}
		if at += x.size; at <= int(pc-b.begin) {
			_, pushed, _ = x.moves(pushed, false)
		}
	}
	if pushed < 0 {
		return unwind.UnknownRegister
	}
	entry := (s.sp() + unpack(pushed).bytes + room + 15) &^ 15
	return s.leaf(entry-s.sp()+special.frame-8, true)
}

// Fields of a ContinuationEntry (share/runtime/continuationEntry.hpp, as enterSpecial's code writes them).
const (
	entryParent  = 8
	entryArgsize = 36
	maxArguments = 2 << 10 // bytes
)

// overArguments: the frames that were put back end at a ContinuationEntry, or at arguments before it, of which that tells the words.
func (s *hotspotStep) overArguments(special *blob) unwind.Reason {
	for entry := (s.sp() + 15) &^ 15; entry-s.sp() <= maxArguments; entry += 16 {
		words, r := s.load(entry + entryArgsize&^7)
		parent, r2 := s.load(entry + entryParent)
		ra, r3 := s.load(entry + special.frame - 8)
		if r = max(r, r2, r3); r != 0 {
			return r
		}
		words >>= 8 * (entryArgsize & 7)
		if words <= maxArguments/8 && (s.sp()+8*words+15)&^15 == entry && (parent == 0 || parent > entry && parent&15 == 0) && s.h.heapAt(ra-1) != nil && s.returns(ra) {
			return s.leaf(entry-s.sp()+special.frame-8, true)
		}
	}
	s.addr = s.sp()
	return unwind.UnknownRegister
}

// entered is the size of enterSpecial's frame, if code of b goes to that: doYield's does.
func entered(h *hotspot, b *blob, code []byte) uint64 {
	if b.kind == nativeBlob && bytes.Contains(code, loadEntry) {
		if special := special(h); special != nil {
			return special.frame
		}
	}
	return 0
}
