package taking

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

// Bounds of what one stop copies of an interpreter.
const (
	// MaxRoots is how many states of interpreters one thread may have.
	MaxRoots = 8
	// MaxSteps is how many chains lead from a root.
	MaxSteps = 4
	// MaxGuess is how many areas one gathered read may have: each takes about 0.13 µs.
	MaxGuess = 48
	// maxSingle is how many reads there may be besides of what was not foreseen. Each takes 0.5 µs.
	maxSingle = 48
	// maxLinks is how far chains are followed, all together.
	maxLinks = 1024
	// MostRoom is how many bytes are copied at most.
	MostRoom = 512 << 10
	// MaxPieces is how many areas are copied at most.
	MaxPieces = MaxRoots + MaxGuess + maxSingle
)

// Recipe says what to copy of an interpreter's memory while its thread is stopped: the states that it has of the
// thread, and what chains of pointers lead to from there. It does not change once it is used: who knows better makes another.
type Recipe struct {
	Roots     [MaxRoots]Root
	RootBytes int // to copy of each
	Check     int // offset of a word in it that says whose it is
	// OnStack, if not 0, is the offset in a root of a word that must be an address in the copy of the thread's stack, or it runs elsewhere.
	OnStack int
	Hop     Hop
	Steps   [MaxSteps]Step
	// Guess is what the last copy came to, in ascending order: it is copied by one read, and single
	// reads follow only where that was wrong.
	Guess   [MaxGuess]unix.RemoteIovec
	Guesses int
	Room    int // bytes for all of it
	Scan    Scan
}

// Sub is what a part of an element leads to: it has a pointer at offset At to Bytes that are copied too.
type Sub struct {
	At, Bytes int
	// If, if not 0, are bits of which the part's first byte must have one; Tag, if not 0, is what its byte at TagAt must be.
	If    byte
	TagAt int
	Tag   byte
	// Unless are bits of which the part's byte at UnlessAt must have none.
	UnlessAt int
	Unless   byte
	Trail    [2]Link // leads on from there
	Twig     Link    // leads from what the first of Trail leads to, too
}

// Link is a pointer at offset At in what was copied last, to Bytes that are copied too.
type Link struct{ At, Bytes int }

// Hop leads from a state to another one that it has handed control to, as to a coroutine. The element that Head of the root points at,
// which is of so many Bytes, begins with a pointer to values of 16 bytes, whose tag is at 8. If the second one has the tag State it is that
// state; if the first one has the tag Closure, it is the value at Kept there, if that has the tag State.
type Hop struct {
	Head, Bytes    int // Bytes 0: there is none
	Slots          int // bytes of values that are copied
	State, Closure byte
	Kept           int
}

// Scan looks through the copied stack for what may be frames of a runtime that keeps an object's pointer in each, and has those objects copied
// that were not foreseen. A pointer to an object has the lowest two bits 01.
type Scan struct {
	// Bytes of each object; 0: there is nothing to look for. A frame is where a word is the address of one further up the stack, and the words
	// at Function and Context from there are pointers to objects.
	Bytes             int
	Function, Context int
	Also, AlsoBytes   int     // another such word, copied if it is a pointer
	Chain             [2]Link // what the object leads to
}

// maxScanned is how many frames are looked at.
const maxScanned = 64

// Root is a state that an interpreter has of a thread.
type Root struct {
	Addr uint64 // 0: there is no more
	Is   uint64 // the word at Recipe.Check, or it is another thread's by now
}

// Step follows a chain of elements.
type Step struct {
	Bytes int  // of each element; 0: there is no more
	Head  int  // offset in the root of the pointer to the first
	Via   bool // that pointer leads to another one, at offset At there, which leads to the first
	At    uint64
	Mask  uint64 // bits of pointers that are none of the address
	Next  int    // offset in an element of the pointer to the next, or Behind
	Most  int    // elements
	// Fill, if not 0, is the offset in an element of a count of words by which it is longer; with Ends its first word is the address
	// of its end. In the first one the pointer at End of the root tells where it ends instead.
	Fill, End int
	Ends      bool
	Part      Part
	Sub       Sub    // what the part leads to
	Also      [2]Sub // and what else
	Kin       Kin
	// Areas are copied too that the words of an element lead to.
	Areas [2]Area
}

// Kin says that elements have a pointer to another chain at offset At, if Has is set and their word at If is 0. The next step, whose Kin
// has Is set, follows those chains, and has no Head.
type Kin struct {
	At, If  int
	Has, Is bool
}

// Behind is the Next of elements that lie one behind another, in what was copied.
const Behind = -1

// Part is what each element leads to: Bytes at the address whose offset in the element is At, from Before in front of it on. They are copied too. Mask is as Step.Mask.
type Part struct {
	At, Bytes    int
	Before, Mask uint64
	Late         bool // it can be read later too, and takes no single read that elements further on may need
}

// latePart is after how many single reads no more are made of parts that can be read later.
const latePart = maxSingle / 3

// Area is memory between addresses that an element has. One of which From and To are 0 is none.
type Area struct {
	From, To int // offsets of them
	// Via: the one at To leads to another one, at offset At there, which is the end. Words, if not 0, is the offset of a count of words
	// by which the end is further up.
	Via   bool
	At    uint64
	Words int
	// Each, if not 0, is the bytes of elements from the one at From on, and Index the offset of the number of the last, of 32 bits, -1 if there
	// is none; there is no To.
	Index, Each int
	Leaves      [2]Leaf // what the last elements lead to, each the first before any the second; of a step's first area alone
	// Last: of more than maxElement bytes the last are copied, else the first.
	Last bool
	// Before is how many bytes in front of From are copied too, if they can be.
	Before uint64
}

// Leaf is what an element of an area leads to: it has a pointer at offset At to Bytes that are copied too, and Then leads on from there.
type Leaf struct {
	Link
	Tags uint16 // by the lowest four bits of the first byte of elements: bits that are set of those which have it
	Then Link
}

// maxLeafed is of how many elements the leaves are copied.
const maxLeafed = 12

// maxKin is how many further chains are followed from one.
const maxKin = 8

// kin are chains that the next step follows.
type kin struct {
	list [maxKin]uint64
	n    int
}

// leafed are areas of a step whose elements lead on.
type leafed struct {
	list [maxKin]capture.Block
	n    int
}

// pass is how far one following of a recipe has come.
type pass struct {
	pages          int                     // open pagemap
	near           struct{ block, at int } // the block that was used last, and where it begins in Beyond
	part           uint64                  // that was copied last
	singles, links int                     // single reads, and elements of chains
	kin            kin
	leafed         leafed
}

// maxElement bounds an element of a chain, in bytes.
const maxElement = 256 << 10

// Follow copies what r says of thread tid, which does not run, to b. It reads no more than MaxPieces areas, and no more bytes
// than there is room for. pages is the open pagemap, -1 if there is none: what the last copy did not come to is read only if it is in
// memory, since who brings a page may never do.
//
//go:nosplit
//go:norace
func Follow(k Kernel, tid int, r *Recipe, b *Buffer, pages int) {
	b.pass.pages, b.pass.near.block = pages, len(b.Blocks)
	b.pass.singles, b.pass.links, b.pass.part = 0, 0, 0
	b.guess(k, tid, r)
	if r.Scan.Bytes > 0 {
		scan(b, k, tid, &r.Scan)
	}
	for i := 0; i < MaxRoots && r.Roots[i].Addr != 0 && max(r.Check, r.OnStack)+8 <= r.RootBytes; i++ {
		for addr := r.Roots[i].Addr; addr != 0 && b.NRoots < MaxRoots && !rooted(b, addr); {
			root := b.have(k, tid, addr, r.RootBytes)
			if root == nil || binary.NativeEndian.Uint64(root[r.Check:]) != r.Roots[i].Is ||
				r.OnStack > 0 && binary.NativeEndian.Uint64(root[r.OnStack:])-b.StackAddr >= uint64(b.Stack.N) {
				break // the thread has ended, or not begun
			}
			b.Roots[b.NRoots] = addr
			b.NRoots++
			b.pass.kin.n = 0
			for j := 0; j < MaxSteps && r.Steps[j].Bytes > 0; j++ {
				s := &r.Steps[j]
				if !s.Kin.Is {
					b.chain(k, tid, s, root, b.head(k, tid, s, root))
				}
				for i := 0; s.Kin.Is && i < b.pass.kin.n; i++ {
					b.chain(k, tid, s, root, b.pass.kin.list[i])
				}
				for i := range 2 * b.pass.leafed.n {
					at := b.pass.leafed.list[i%b.pass.leafed.n]
					leaves(b, k, tid, &s.Areas[0], &s.Areas[0].Leaves[i/b.pass.leafed.n], b.found(at.Addr, at.Len))
				}
				b.pass.leafed.n = 0
			}
			addr = hop(b, k, tid, &r.Hop, root)
		}
	}
}

// rooted tells whether the state at addr was copied already.
//
//go:nosplit
//go:norace
func rooted(b *Buffer, addr uint64) bool {
	for i := range b.NRoots {
		if b.Roots[i] == addr {
			return true
		}
	}
	return false
}

// hop is the state that the one at root has handed control to, 0 if it has to none.
//
//go:nosplit
//go:norace
func hop(b *Buffer, k Kernel, tid int, h *Hop, root []byte) uint64 {
	if h.Bytes == 0 {
		return 0
	}
	e := b.have(k, tid, binary.NativeEndian.Uint64(root[h.Head:]), h.Bytes)
	if e == nil {
		return 0
	}
	v := b.have(k, tid, binary.NativeEndian.Uint64(e), h.Slots)
	if v == nil {
		return 0
	}
	if v[24] == h.State {
		return binary.NativeEndian.Uint64(v[16:])
	}
	if v[8] != h.Closure {
		return 0
	}
	if v = b.have(k, tid, binary.NativeEndian.Uint64(v), h.Kept+16); v == nil || v[h.Kept+8] != h.State {
		return 0
	}
	return binary.NativeEndian.Uint64(v[h.Kept:])
}

// scan copies the objects of frames on the stack.
//
//go:nosplit
//go:norace
func scan(b *Buffer, k Kernel, tid int, s *Scan) {
	end := b.StackAddr + uint64(b.Stack.N)
	for i, n := 64, 0; i+16 <= b.Stack.N && n < maxScanned; i += 8 {
		at := b.StackAddr + uint64(i)
		up := binary.NativeEndian.Uint64(b.Stack.Room[i:])
		if up <= at || up >= end || up&7 != 0 {
			continue
		}
		object := binary.NativeEndian.Uint64(b.Stack.Room[i+s.Function:])
		if binary.NativeEndian.Uint64(b.Stack.Room[i+s.Context:])&3 != 1 || object&3 != 1 {
			continue
		}
		n++
		e := b.have(k, tid, object-1, s.Bytes)
		for j := 0; j < len(s.Chain) && e != nil; j++ {
			if object = binary.NativeEndian.Uint64(e[s.Chain[j].At:]); object&3 != 1 {
				break
			}
			e = b.have(k, tid, object-1, s.Chain[j].Bytes)
		}
		if also := binary.NativeEndian.Uint64(b.Stack.Room[i+s.Also:]); also&3 == 1 {
			b.have(k, tid, also-1, s.AlsoBytes)
		}
	}
}

// guess copies what the recipe foresees.
//
//go:nosplit
//go:norace
func (b *Buffer) guess(k Kernel, tid int, r *Recipe) {
	n, bytes := 0, 0
	for n < r.Guesses && b.NBlocks+n < len(b.Blocks) && bytes+r.Guess[n].Len <= len(b.Beyond.left()) {
		bytes += r.Guess[n].Len
		n++
	}
	if n == 0 {
		return
	}
	got := k.Gather(tid, r.Guess[:n], b.Beyond.left()[:bytes])
	for i := 0; i < n && got >= r.Guess[i].Len; i++ { // it ends where an area is not there any more
		b.add(uint64(r.Guess[i].Base), r.Guess[i].Len)
		got -= r.Guess[i].Len
	}
}

//go:nosplit
//go:norace
func (b *Buffer) add(addr uint64, n int) {
	b.Blocks[b.NBlocks] = capture.Block{Addr: addr, Len: n}
	b.NBlocks++
	b.Beyond.N += n
}

// head is where a chain begins, 0 if that cannot be read.
//
//go:nosplit
//go:norace
func (b *Buffer) head(k Kernel, tid int, s *Step, root []byte) uint64 {
	addr := binary.NativeEndian.Uint64(root[s.Head:]) &^ s.Mask
	if s.Via {
		via := b.have(k, tid, addr+s.At, 8)
		if via == nil {
			return 0
		}
		addr = binary.NativeEndian.Uint64(via) &^ s.Mask
	}
	return addr
}

// chain follows one chain from the element at addr.
//
//go:nosplit
//go:norace
func (b *Buffer) chain(k Kernel, tid int, s *Step, root []byte, addr uint64) {
	for i := 0; addr != 0 && i < s.Most && b.pass.links < maxLinks; i++ {
		b.pass.links++
		n := s.Bytes
		if s.Fill > 0 || s.Ends {
			end := binary.NativeEndian.Uint64(root[s.End:])
			if i > 0 {
				head := b.have(k, tid, addr, s.Bytes)
				if head == nil {
					return
				}
				if end = binary.NativeEndian.Uint64(head); !s.Ends {
					end = addr + uint64(s.Bytes) + 8*(binary.NativeEndian.Uint64(head[s.Fill:])&(maxElement-1))
				}
			}
			if end-addr > maxElement {
				return
			}
			n = max(int(end-addr), n)
		}
		e := b.found(addr, n)
		if e == nil && s.Next != Behind {
			e = b.have(k, tid, addr, n)
		}
		if e == nil {
			return
		}
		if s.Part.Bytes > 0 {
			part := binary.NativeEndian.Uint64(e[s.Part.At:]) &^ s.Part.Mask
			if part != 0 && part-s.Part.Before != b.pass.part && (!s.Part.Late || b.pass.singles < latePart || b.found(part-s.Part.Before, s.Part.Bytes) != nil) {
				b.pass.part = part - s.Part.Before
				if b.have(k, tid, b.pass.part, s.Part.Bytes) != nil {
					b.sub(k, tid, &s.Sub, s.Part.Bytes)
					b.sub(k, tid, &s.Also[0], s.Part.Bytes)
					b.sub(k, tid, &s.Also[1], s.Part.Bytes)
				}
			}
		}
		if s.Kin.Has && b.pass.kin.n < maxKin && binary.NativeEndian.Uint64(e[s.Kin.If:]) == 0 {
			b.pass.kin.list[b.pass.kin.n] = binary.NativeEndian.Uint64(e[s.Kin.At:])
			b.pass.kin.n++
		}
		for j := range s.Areas {
			if a := &s.Areas[j]; a.From|a.To != 0 {
				area(b, k, tid, a, e)
			}
		}
		if s.Next == Behind {
			addr += uint64(s.Bytes)
		} else {
			addr = binary.NativeEndian.Uint64(e[s.Next:]) &^ s.Mask
		}
	}
}

// area copies what lies between two addresses that element e has.
//
//go:nosplit
//go:norace
func area(b *Buffer, k Kernel, tid int, a *Area, e []byte) {
	from, to := binary.NativeEndian.Uint64(e[a.From:]), binary.NativeEndian.Uint64(e[a.To:])
	if a.Each > 0 {
		to = from + uint64(a.Each)*uint64(int64(int32(binary.NativeEndian.Uint32(e[a.Index:])))+1)
	}
	if a.Words > 0 {
		to += 8 * binary.NativeEndian.Uint64(e[a.Words:])
	}
	if a.Via {
		via := b.have(k, tid, to+a.At, 8)
		if via == nil {
			return
		}
		to = binary.NativeEndian.Uint64(via)
	}
	switch {
	case to <= from || to-from > 1<<40:
		return
	case to-from > maxElement && a.Last:
		from = to - maxElement
	}
	n := int(min(to-from, maxElement))
	if a.Before == 0 || b.have(k, tid, from-a.Before, n+int(a.Before)) == nil {
		b.have(k, tid, from, n)
	}
	if a.Each > 0 && b.pass.leafed.n < maxKin {
		b.pass.leafed.list[b.pass.leafed.n] = capture.Block{Addr: from, Len: n}
		b.pass.leafed.n++
	}
}

// leaves copies what the last elements of an area lead to.
//
//go:nosplit
//go:norace
func leaves(b *Buffer, k Kernel, tid int, a *Area, l *Leaf, e []byte) {
	for i := 0; i < maxLeafed && len(e) >= a.Each; i++ {
		last := e[len(e)-a.Each:]
		e = e[:len(e)-a.Each]
		if l.Tags>>(last[0]&15)&1 == 0 {
			continue
		}
		addr := binary.NativeEndian.Uint64(last[l.At:])
		if addr == 0 {
			continue
		}
		if to := b.have(k, tid, addr, l.Bytes); to != nil && l.Then.Bytes > 0 {
			b.have(k, tid, binary.NativeEndian.Uint64(to[l.Then.At:]), l.Then.Bytes)
		}
	}
}

// sub copies the part of this pass, which is of so many bytes, and what it leads to.
//
//go:nosplit
//go:norace
func (b *Buffer) sub(k Kernel, tid int, x *Sub, bytes int) {
	part := b.have(k, tid, b.pass.part, bytes)
	if part == nil || x.If != 0 && part[0]&x.If == 0 || x.Tag != 0 && part[x.TagAt] != x.Tag || part[x.UnlessAt]&x.Unless != 0 {
		return
	}
	e := part
	for at, n, i := x.At, x.Bytes, 0; n > 0; at, n, i = x.Trail[i].At, x.Trail[i].Bytes, i+1 {
		addr := binary.NativeEndian.Uint64(e[at:])
		if addr == 0 {
			return
		}
		if e = b.have(k, tid, addr, n); e == nil || i == len(x.Trail) {
			return
		}
		if i == 1 && x.Twig.Bytes > 0 {
			if addr = binary.NativeEndian.Uint64(e[x.Twig.At:]); addr != 0 {
				b.have(k, tid, addr, x.Twig.Bytes)
			}
		}
	}
}

// have is n bytes of memory at addr: of what was copied already, or else copied now. nil: they cannot be had.
//
//go:nosplit
//go:norace
func (b *Buffer) have(k Kernel, tid int, addr uint64, n int) []byte {
	if e := b.found(addr, n); e != nil {
		return e
	}
	if b.pass.singles == maxSingle || b.NBlocks == len(b.Blocks) || n > len(b.Beyond.left()) {
		return nil
	}
	b.pass.singles++
	room := b.Beyond.left()[:n]
	if Present(k, b.pass.pages, addr, n, b) != n || k.Memory(tid, addr, room) != n {
		return nil
	}
	b.pass.near.block, b.pass.near.at = b.NBlocks, b.Beyond.N
	b.add(addr, n)
	return room
}

// found is n bytes at addr of what was copied. Usually they are where the last ones were.
//
//go:nosplit
//go:norace
func (b *Buffer) found(addr uint64, n int) []byte {
	if b.pass.near.block < b.NBlocks {
		if off := addr - b.Blocks[b.pass.near.block].Addr; off < uint64(b.Blocks[b.pass.near.block].Len) && b.Blocks[b.pass.near.block].Len-int(off) >= n {
			return b.Beyond.Room[b.pass.near.at+int(off) : b.pass.near.at+int(off)+n]
		}
	}
	if off := addr - b.StackAddr; off < uint64(b.Stack.N) && b.Stack.N-int(off) >= n {
		return b.Stack.Room[off : int(off)+n]
	}
	at := 0
	for i := range b.NBlocks {
		m := &b.Blocks[i]
		if off := addr - m.Addr; off < uint64(m.Len) && m.Len-int(off) >= n {
			b.pass.near.block, b.pass.near.at = i, at
			return b.Beyond.Room[at+int(off) : at+int(off)+n]
		}
		at += m.Len
	}
	return nil
}

// follow is called by value, as Take is by its callers: the linker counts the stack of calls by name.
var follow = Follow

// wordsKnown tells whether the thread's words are those that recipes count in.
//
//go:nosplit
//go:norace
func wordsKnown(note []byte) bool { return ptrace.WordBytes(note) == 8 }
