package taking

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

// Extent is what is known of where a stack lies.
type Extent struct {
	Low, High uint64 // the mapping that it lies in; 0, 0: not known
	Below     uint64 // how far down its stack pointer may be: to Low, or below it where the mapping grows when it is touched
	Top       uint64 // end of the outermost frame; 0: not known
	// Zeros: a page of it that is not in memory is one that was never written, so that it is known without being asked
	// for: who brings it (userfaultfd(2), which may come later than this was found out) may never do. Asked: that was asked.
	Zeros, Asked bool
}

// Bytes is how much to copy from base on, at most room; ok is false if the base
// is not known to lie in this stack.
//
//go:nosplit
//go:norace
func (x *Extent) Bytes(base uint64, room int) (n int, ok bool) {
	switch {
	case base < x.Low || base >= x.High:
		return 0, false
	case base < x.Top:
		return int(min(x.Top-base, uint64(room))), true
	}
	return int(min(x.High-base, uint64(room))), true
}

// Advice is what unwinding the last captures of a thread tells of the next. It is a
// value: who changes it makes another.
type Advice struct {
	Want int // bytes of stack to have room for; 0: nothing is known yet
	// Bounds, if not 0, is where in NT_PRSTATUS the register is that mostly has the address of the bounds of the stack that the thread
	// is on, two words: it is copied up to there, as far as there is room, or, elsewhere and at home (see [Other]), Want is copied of it. Stacks that go from thread to thread are
	// each of another depth.
	Bounds int
	Stack  Extent
	// Others are the further stacks that the thread's lead to, up to the first that has no Bytes. Beyond is the sum of their Bytes.
	Others [MaxOthers]Other
	Beyond int
	// Recipe is what to copy of an interpreter's memory, nil if there is none. Beyond includes its Room.
	Recipe *Recipe
	Marks  *Marks // nil: none
}

// maxRoom is more than what there is room for in a copy, in bytes.
const maxRoom = 1 << 30

// BoundedRoom is how much room at least a copy has whose stack's bounds are known when it is made, in bytes.
const BoundedRoom = 32 << 10

// Room is how much room for the stack the next copy needs, in bytes; 0: nothing is known yet.
//
//go:nosplit
//go:norace
func (a *Advice) Room() int {
	if a.Want > 0 && a.Bounds != 0 {
		return max(a.Want, BoundedRoom)
	}
	return a.Want
}

// Bounds of what is read of marks: each takes about 0.65 µs, half of that to see whether it is in memory, whatever its size.
const (
	MaxMarks  = 16
	MarkBytes = 16 << 10 // of all
)

// Marks are where objects have what they are recognised by. It does not change once it is used.
type Marks struct {
	Areas [MaxMarks]unix.RemoteIovec
	N     int
}

// MaxOthers bounds the further stacks that one stop copies.
const MaxOthers = 12

// Other tells how a further stack is found.
type Other struct {
	// Word is where the address is stored at which to begin: in a signal frame, whose place is the same for all
	// handlers on an alternate stack, since the kernel begins at its end; or where a function has saved a
	// register. 0: it is in a register, Reg bytes into NT_PRSTATUS.
	Word uint64
	Reg  int
	// Kept: Word has this place whatever runs.
	Kept bool
	// At, if not 0: Word is that of a record that lies apart from stacks, or, with Via, where the record's address is stored. Its first two words are the bounds
	// of a stack, and At bytes into it, [RecordBytes] at most, stands the stack pointer with which that was left. Nothing is copied of one that the thread is on.
	At  int
	Via bool
	Way Way // if it has a TLS: where the record's address is stored, instead of Word
	// Homes, if the first is not empty: the record is of use only while the stack pointer lies in one of them.
	Homes [2]Range

	Bytes int // to copy from there on
	Stack Extent
}

// home tells whether a stack pointer lies in Homes.
//
//go:nosplit
//go:norace
func (o *Other) home(sp uint64) bool { return o.Homes[0].holds(sp) || o.Homes[1].holds(sp) }

// Range is memory from an address to another, which is not in it.
type Range struct{ From, To uint64 }

//go:nosplit
//go:norace
func (r *Range) holds(addr uint64) bool { return r.From <= addr && addr < r.To }

// Way leads to where the address of a record is stored, from the thread pointer, which is Reg bytes into NT_PRSTATUS: TLS bytes from there is the address of
// the record of what the thread runs, M bytes into that the address of what the runtime keeps of the thread, and G bytes into that it is. It leads there in any
// thread of a process.
type Way struct{ TLS, M, G int32 }

// Same tells whether both lead to a stack by the same words.
func (o *Other) Same(p *Other) bool {
	return o.Word == p.Word && o.Reg == p.Reg && o.At == p.At && o.Way == p.Way
}

// RecordBytes is how much is read of a record of a stack.
const RecordBytes = 64

// Buffer has room for what is copied of a thread, and tells what was copied. Whoever takes
// changes numbers alone: see [ptrace.Outside].
type Buffer struct {
	Regs, FPRegs, Stack, Beyond Copy

	StackAddr uint64
	Blocks    [MaxOthers + MaxPieces]capture.Block // of Beyond
	NBlocks   int
	Roots     [MaxRoots]uint64 // of the recipe that were the thread's
	NRoots    int
	PACMask   uint64 // arm64
	Lived     bool   // its memory was there: the pagemap told of it when it was read last
	Call      Undone
	marks     marks

	pass    pass
	scratch scratch
}

// Copy is room for a copy, and how many bytes of it are in use.
type Copy struct {
	Room []byte
	N    int
}

// Used is what was copied.
//
//go:nosplit
//go:norace
func (c *Copy) Used() []byte { return c.Room[:c.N] }

// left is the room that is not in use.
//
//go:nosplit
//go:norace
func (c *Copy) left() []byte { return c.Room[c.N:] }

// Undone is what became of the system call under way that a stop has met.
type Undone struct {
	Anew      bool // it begins anew
	Met       bool // it was taken back
	Unwritten bool // registers were to be written, and that failed: the thread was killed
}

// scratch is room for what is read on the way.
type scratch struct {
	pages [64 * 8]byte // of pagemap
	text  [4 << 10]byte
	path  [len("/proc/2147483647/status\x00")]byte // the longest one
}

// empty makes it one of which nothing was copied yet.
//
//go:nosplit
//go:norace
func (b *Buffer) empty() {
	b.Regs.N, b.FPRegs.N, b.Stack.N, b.Beyond.N, b.NBlocks, b.NRoots, b.Call, b.Lived = 0, 0, 0, 0, 0, 0, Undone{}, false
}

// Use makes the room of c the buffer's.
func (b *Buffer) Use(c *capture.Capture) {
	b.Regs.Room, b.FPRegs.Room = c.Regs.Note[:cap(c.Regs.Note)], c.Regs.FP[:cap(c.Regs.FP)]
	b.Stack.Room, b.Beyond.Room = c.Stack.Bytes[:cap(c.Stack.Bytes)], c.Beyond.Bytes[:cap(c.Beyond.Bytes)]
	if len(b.FPRegs.Room) < FPRegsBytes {
		b.FPRegs.Room = make([]byte, FPRegsBytes)
	}
}

// Fill makes what was copied the contents of c, whose it is from then on.
func (b *Buffer) Fill(c *capture.Capture) {
	c.Regs.Note, c.Regs.FP, c.Regs.PACMask = b.Regs.Used(), b.FPRegs.Used(), b.PACMask
	b.fillMemory(c)
}

// fillMemory is Fill without registers.
func (b *Buffer) fillMemory(c *capture.Capture) {
	c.Stack = capture.Stack{Addr: b.StackAddr, Bytes: b.Stack.Used()}
	c.Beyond = capture.Copies{Blocks: append(c.Beyond.Blocks[:0], b.Blocks[:b.NBlocks]...), Bytes: b.Beyond.Used()}
	c.Roots = append(c.Roots[:0], b.Roots[:b.NRoots]...)
	b.marks.fill(&c.Marks)
}

// marks are what was read of marks.
type marks struct {
	areas [MaxMarks]capture.Block // Len 0: nothing was at hand there
	n     int
	bytes [MarkBytes]byte // of them, one behind another
}

// fill makes c a copy of them.
func (m *marks) fill(c *capture.Copies) {
	c.Reset()
	for _, a := range m.areas[:m.n] {
		c.Add(a.Addr, m.bytes[len(c.Bytes):][:a.Len])
	}
}

// Take copies registers and stack of thread tid, which is stopped for us. by tells what it has stopped for, see [OwnStop].
// pages is its open pagemap, -1 if there is none. Errors are those of reading the registers: then
// nothing was copied.
//
// System calls: one for the registers (two on s390x and arm64), one for each stack and two for its bounds, two or four more for one of which a record tells, four beyond that where a [Way] leads to the record, and more where one
// is not where it was expected, or the call that the thread was in must be taken back. A recipe takes one, and
// one for each area that it did not foresee ([MaxPieces] at most). Marks take one, and one each for whether they are in memory.
//
//go:nosplit
//go:norace
func Take(k Kernel, tid int, a *Advice, b *Buffer, pages, by int, noRestart bool) unix.Errno {
	b.empty()
	n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs.Room)
	if errno != 0 {
		return errno
	}
	b.Regs.N = n
	note := b.Regs.Room[:n]
	if revert(k, tid, note, b, by, noRestart) {
		write(k, tid, note, b)
	}
	sp := ptrace.StackPointer(note)
	b.StackAddr, b.Stack.N = copyStack(k, tid, sp, b.Stack.Room[:stackBytes(k, tid, sp, a, b, pages)], &a.Stack, pages, b)
	takeOthers(k, tid, a, b, pages)
	mark(k, tid, a.Marks, b, pages)
	if a.Recipe != nil && wordsKnown(note) {
		follow(k, tid, a.Recipe, b, pages)
	}
	takeExtra(k, tid, b)
	return 0
}

// home tells whether a stack pointer lies in a Homes of a.
//
//go:nosplit
//go:norace
func (a *Advice) home(sp uint64) bool {
	for i := 0; i < MaxOthers && a.Others[i].Bytes > 0; i++ {
		if a.Others[i].home(sp) {
			return true
		}
	}
	return false
}

// stackBytes is how much to copy of the stack of a thread whose stack pointer is sp, as far as b has room for it.
//
//go:nosplit
//go:norace
func stackBytes(k Kernel, tid int, sp uint64, a *Advice, b *Buffer, pages int) int {
	if a.Want == 0 || a.Bounds == 0 {
		return len(b.Stack.Room) // up to the stack's Top, if that is known
	}
	want := uint64(a.Want)
	if a.Bounds+8 <= b.Regs.N && !a.home(sp) && apart(k, tid, binary.NativeEndian.Uint64(b.Regs.Room[a.Bounds:]), 16, b, pages) {
		if low, high := binary.NativeEndian.Uint64(b.scratch.text[:]), binary.NativeEndian.Uint64(b.scratch.text[8:]); low <= sp && sp < high {
			want = min(high-sp, maxRoom) + RedZone
		}
	}
	return int(min(want, uint64(len(b.Stack.Room))))
}

// copyStack copies the stack from the red zone below sp on into room. The red
// zone may lie in a guard page: then it is left out. If there is nothing at sp yet the stack begins where its mapping does.
// A page that is not in memory ends the copy: who brings
// it may never do, and whoever reads it waits for that in the kernel.
//
//go:nosplit
//go:norace
func copyStack(k Kernel, tid int, sp uint64, room []byte, x *Extent, pages int, b *Buffer) (addr uint64, n int) {
	last := 1
	if x.Below <= sp && sp < x.Low {
		last = 2
	}
	for try := 0; ; try++ {
		base := x.Low
		if try < 2 {
			base = (sp - uint64(1-try)*RedZone) &^ 7
		}
		n, ok := x.Bytes(base, len(room))
		if !ok {
			n = len(room)
		}
		done := 0
		for done < n {
			there := Present(k, pages, base+uint64(done), n-done, b)
			got := k.Memory(tid, base+uint64(done), room[done:done+there])
			if done += got; got < there || done == n || !ok || !x.Zeros {
				break
			}
			if there = span(k, pages, base+uint64(done), n-done, false, b); there == 0 {
				break
			}
			clear(room[done : done+there])
			done += there
		}
		if done > 0 || try == last {
			return base, done
		}
	}
}

// mark reads marks. Where a page is not in memory that is noted: one that was there at the last look at the objects is then
// not mapped any more, or anew.
//
//go:nosplit
//go:norace
func mark(k Kernel, tid int, m *Marks, b *Buffer, pages int) {
	got := &b.marks
	got.n = 0
	for at := 0; m != nil && got.n < m.N; {
		from, bytes := got.n, 0
		to := from
		for to < m.N && at+bytes+m.Areas[to].Len <= len(got.bytes) && Present(k, pages, uint64(m.Areas[to].Base), m.Areas[to].Len, b) == m.Areas[to].Len {
			bytes += m.Areas[to].Len
			to++
		}
		read := 0
		if to > from {
			read = k.Gather(tid, m.Areas[from:to], got.bytes[at:at+bytes])
		}
		for to = min(to+1, m.N); got.n < to; got.n++ { // with the one that is not there
			a := &m.Areas[got.n]
			got.areas[got.n] = capture.Block{Addr: uint64(a.Base)}
			if read >= a.Len {
				got.areas[got.n].Len = a.Len
				at += a.Len
			}
			read -= a.Len
		}
	}
}

// takeOthers copies the further stacks to which words lead that are in registers or in what was
// copied already, or of which records tell.
//
//go:nosplit
//go:norace
func takeOthers(k Kernel, tid int, a *Advice, b *Buffer, pages int) {
	done := uint32(0)
	for i := 0; i < MaxOthers && a.Others[i].Bytes > 0; i++ {
		if done>>i&1 != 0 {
			continue
		}
		taken := takeOther(k, tid, &a.Others[i], b, pages)
		if taken || a.Others[i].At != 0 {
			done |= 1 << i
		}
		if taken {
			i = -1 // others may be led to by what was copied now
		}
	}
}

// takeOther copies a further stack, unless enough of it is in what was copied already.
// Where no stack lies there now, the word may be anything,
// and so may the copy: no walk asks for it.
//
//go:nosplit
//go:norace
func takeOther(k Kernel, tid int, o *Other, b *Buffer, pages int) bool {
	size, room := ptrace.WordBytes(b.Regs.Used()), min(o.Bytes, len(b.Beyond.left()))
	if room <= 0 || b.NBlocks >= MaxOthers {
		return false
	}
	if o.Homes[0].To != 0 && !o.home(ptrace.StackPointer(b.Regs.Used())) {
		return false
	}
	sp, end := uint64(0), ^uint64(0)
	if o.At != 0 {
		sp, end = recorded(k, tid, o, b, pages)
	} else {
		word := b.copied(o.Word)
		if o.Word == 0 && o.Reg >= 0 && o.Reg+size <= b.Regs.N {
			word = b.Regs.Room[o.Reg:b.Regs.N]
		}
		switch {
		case len(word) < size:
		case size == 8:
			sp = binary.NativeEndian.Uint64(word)
		default:
			sp = uint64(binary.NativeEndian.Uint32(word))
		}
	}
	enough := min(uint64(o.Bytes-o.Bytes/4), end-sp) // advice has a quarter to spare
	if sp == 0 || uint64(len(b.copied(sp))) >= enough {
		return false
	}
	room = int(min(uint64(room), min(end-sp, maxRoom)+RedZone))
	addr, n := copyStack(k, tid, sp, b.Beyond.left()[:room], &o.Stack, pages, b)
	if n > 0 {
		b.Blocks[b.NBlocks] = capture.Block{Addr: addr, Len: n}
		b.NBlocks++
		b.Beyond.N += n
	}
	return n > 0
}

// recorded is the stack pointer that a record tells of, and where its stack ends; 0: it tells of none, or of the one that the thread is on.
//
//go:nosplit
//go:norace
func recorded(k Kernel, tid int, o *Other, b *Buffer, pages int) (sp, end uint64) {
	at, hops := o.Word, 0
	switch {
	case o.Way.TLS != 0:
		if o.Reg < 0 || o.Reg+8 > b.Regs.N {
			return 0, 0
		}
		at, hops = binary.NativeEndian.Uint64(b.Regs.Room[o.Reg:])+uint64(o.Way.TLS), 3
	case o.Via:
		hops = 1
	}
	for ; hops > 0; hops-- {
		if !apart(k, tid, at, 8, b, pages) {
			return 0, 0
		}
		switch at = binary.NativeEndian.Uint64(b.scratch.text[:]); hops {
		case 3:
			at += uint64(o.Way.M)
		case 2:
			at += uint64(o.Way.G)
		}
	}
	if o.At < 0 || o.At > RecordBytes-8 || !apart(k, tid, at, RecordBytes, b, pages) {
		return 0, 0
	}
	low, end := binary.NativeEndian.Uint64(b.scratch.text[:]), binary.NativeEndian.Uint64(b.scratch.text[8:])
	sp = binary.NativeEndian.Uint64(b.scratch.text[o.At:])
	if now := ptrace.StackPointer(b.Regs.Used()); low <= now && now < end || sp < low || sp >= end {
		return 0, 0
	}
	return sp, end
}

// apart reads n bytes of memory that is none of a stack into b.scratch.text, if all are at hand.
//
//go:nosplit
//go:norace
func apart(k Kernel, tid int, addr uint64, n int, b *Buffer, pages int) bool {
	return Present(k, pages, addr, n, b) == n && k.Memory(tid, addr, b.scratch.text[:n]) == n
}

// copied is what was copied of a stack from addr on, nil if nothing was.
//
//go:nosplit
//go:norace
func (b *Buffer) copied(addr uint64) []byte {
	if off := addr - b.StackAddr; off < uint64(b.Stack.N) {
		return b.Stack.Room[off:b.Stack.N]
	}
	at := 0
	for i := range b.NBlocks {
		n := b.Blocks[i].Len
		if off := addr - b.Blocks[i].Addr; off < uint64(n) {
			return b.Beyond.Room[at+int(off) : at+n]
		}
		at += n
	}
	return nil
}

// RedZone is how far below the stack pointer a function may keep data without
// moving it, in bytes: 128 on x86-64 (System V ABI, section 3.2.2). The other
// architectures have none.
const RedZone = 128

// Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst). What is swapped out and write-protected may be a marker
// of userfaultfd(2) on a page that is not there: see package ptrace/procfs.
const (
	pagePresent   = 1 << 63
	pageSwapped   = 1 << 62
	pageProtected = 1 << 57
)

var pageBytes = uint64(os.Getpagesize())

// Present is how many bytes from addr on, at most n, can be read without a page
// fault that somebody must answer. Without a pagemap it is all. b is room for its entries.
//
//go:nosplit
//go:norace
func Present(k Kernel, pages int, addr uint64, n int, b *Buffer) int {
	return span(k, pages, addr, n, true, b)
}

// span is how many bytes from addr on, at most n, lie in pages that are in memory or swapped out, or, unless there, in such
// as are neither; what may be a marker is in no such span. What the pagemap does not tell is taken for there.
//
//go:nosplit
//go:norace
func span(k Kernel, pages int, addr uint64, n int, there bool, b *Buffer) int {
	at := addr &^ (pageBytes - 1)
	for at < addr+uint64(n) {
		count := (addr + uint64(n) - at + pageBytes - 1) / pageBytes
		got, errno := 0, unix.EBADF
		if pages >= 0 {
			got, errno = k.Pread(pages, b.scratch.pages[:min(8*count, uint64(len(b.scratch.pages)))], int64(at/pageBytes*8))
		}
		if b.Lived = errno == 0 && got >= 8; !b.Lived {
			if there {
				return n
			}
			return int(max(at, addr) - addr)
		}
		for i := 0; i+8 <= got; i += 8 {
			e := binary.NativeEndian.Uint64(b.scratch.pages[i:])
			is := e&(pagePresent|pageSwapped) == 0
			if there {
				is = e&pagePresent != 0 || e&(pageSwapped|pageProtected) == pageSwapped
			}
			if !is {
				return int(max(at, addr) - addr)
			}
			at += pageBytes
		}
	}
	return n
}

// FPRegsBytes is the size of s390x's NT_PRFPREG (s390_fp_regs,
// arch/s390/include/uapi/asm/ptrace.h).
const FPRegsBytes = 136

// Peek copies the stack of thread tid, which is blocked with its stack pointer at sp, and what the advice's recipe says.
//
//go:nosplit
//go:norace
func (b *Buffer) Peek(k Kernel, tid int, sp uint64, a *Advice, pages int) {
	b.empty()
	b.StackAddr, b.Stack.N = copyStack(k, tid, sp, b.Stack.Room[:stackBytes(k, tid, sp, a, b, pages)], &a.Stack, pages, b)
	mark(k, tid, a.Marks, b, pages)
	if a.Recipe != nil {
		follow(k, tid, a.Recipe, b, pages)
	}
}

// Peek copies the stack of thread tid, which is blocked with its stack pointer at sp, and what the advice's recipe says, to c.
// scratch is room for the pagemap.
func Peek(k Kernel, tid int, sp uint64, a *Advice, c *capture.Capture, pages int, scratch *Buffer) {
	b := scratch
	b.Stack.Room, b.Beyond.Room = c.Stack.Bytes[:cap(c.Stack.Bytes)], c.Beyond.Bytes[:cap(c.Beyond.Bytes)]
	b.Peek(k, tid, sp, a, pages)
	b.fillMemory(c)
	b.Stack, b.Beyond = Copy{}, Copy{}
}
