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
	Top       uint64 // end of the outermost frame; 0: not known
	// Zeros: a page of it that is not in memory is one that was never written. Nobody can hold it back, as
	// with userfaultfd(2), so that it may be asked for. Asked: that was asked.
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
	Want  int // bytes of stack to copy; 0: nothing is known yet
	Stack Extent
	// SavedSP is where the kernel has stored the stack pointer of the code that
	// a signal handler on an alternate stack interrupted; 0: not seen yet. It is
	// the same place for all handlers on that stack: the kernel begins at its end.
	SavedSP uint64
	// Beyond is how many bytes to copy of the stack that it points to, and
	// BeyondStack where that stack lies.
	Beyond      int
	BeyondStack Extent
}

// Buffer has room for what is copied of a thread, and tells what was copied. Whoever takes
// changes numbers alone: see [ptrace.Outside].
type Buffer struct {
	Regs, FPRegs, Stack, Beyond []byte // room

	NRegs, NFPRegs, NStack, NBeyond int // bytes of it in use
	StackAddr, BeyondAddr           uint64
	PACMask                         uint64 // arm64
	Anew                            bool   // the system call that the stop has met begins anew
	Unwritten                       bool   // registers were to be written, and that failed

	pages [64 * 8]byte
	text  [4 << 10]byte
	path  [32]byte
}

// Fill makes what was copied the contents of c, whose it is from then on.
func (b *Buffer) Fill(c *capture.Capture) {
	c.Regs, c.FPRegs = b.Regs[:b.NRegs], b.FPRegs[:b.NFPRegs]
	c.StackAddr, c.Stack = b.StackAddr, b.Stack[:b.NStack]
	c.BeyondAddr, c.Beyond = b.BeyondAddr, b.Beyond[:b.NBeyond]
	c.PACMask = b.PACMask
}

// Take copies registers and stack of thread tid, which is stopped for us. own: by our own
// interrupt, not for a signal. pages is its open pagemap, -1 if there is none. Errors are those of reading the registers: then
// nothing was copied.
//
// System calls: one for the registers (two on s390x and arm64), one for the stack, more where it
// is not where it was expected, or the call that the thread was in must be taken back.
//
//go:nosplit
//go:norace
func Take(k Kernel, tid int, a *Advice, b *Buffer, pages int, own, noRestart bool) unix.Errno {
	b.NRegs, b.NFPRegs, b.NStack, b.NBeyond, b.Anew, b.Unwritten = 0, 0, 0, 0, false, false
	n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs)
	if errno != 0 {
		return errno
	}
	b.NRegs = n
	note := b.Regs[:n]
	takeBack(k, tid, note, b, own, noRestart)
	sp := ptrace.StackPointer(note)
	b.StackAddr, b.NStack = copyStack(k, tid, sp, b.Stack, &a.Stack, pages, b)
	if a.SavedSP != 0 {
		takeBeyond(k, tid, a, b, pages)
	}
	takeExtra(k, tid, b)
	return 0
}

// copyStack copies the stack from the red zone below sp on into room. The red
// zone may lie in a guard page: then it is left out. A page that is not in memory ends the copy: who brings
// it may never do, and whoever reads it waits for that in the kernel.
//
//go:nosplit
//go:norace
func copyStack(k Kernel, tid int, sp uint64, room []byte, x *Extent, pages int, b *Buffer) (addr uint64, n int) {
	for below := uint64(RedZone); ; below = 0 {
		base := (sp - below) &^ 7
		n, ok := x.Bytes(base, len(room))
		if !ok {
			n = len(room)
		}
		if !ok || !x.Zeros {
			n = Present(k, pages, base, n, b)
		}
		if n = k.Memory(tid, base, room[:n]); n > 0 || below == 0 {
			return base, n
		}
	}
}

// takeBeyond copies the stack that a signal handler has interrupted, if the
// handler is on another one: then the stack pointer that the kernel stored
// lies in the copy of the handler's stack. Where there is no handler
// any more, that word may be anything, and so may the copy: no walk asks for it.
//
//go:nosplit
//go:norace
func takeBeyond(k Kernel, tid int, a *Advice, b *Buffer, pages int) {
	off, size := a.SavedSP-b.StackAddr, uint64(ptrace.WordBytes(b.Regs[:b.NRegs]))
	if n := uint64(b.NStack); off >= n || n-off < size {
		return
	}
	sp := uint64(binary.NativeEndian.Uint32(b.Stack[off:]))
	if size == 8 {
		sp = binary.NativeEndian.Uint64(b.Stack[off:])
	}
	b.BeyondAddr, b.NBeyond = copyStack(k, tid, sp, b.Beyond, &a.BeyondStack, pages, b)
}

// RedZone is how far below the stack pointer a function may keep data without
// moving it, in bytes: 128 on x86-64 (System V ABI, section 3.2.2). The other
// architectures have none.
const RedZone = 128

// Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst).
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
)

var pageBytes = uint64(os.Getpagesize())

// Present is how many bytes from addr on, at most n, can be read without a page
// fault that somebody must answer. Without a pagemap it is all. b is room for its entries.
//
//go:nosplit
//go:norace
func Present(k Kernel, pages int, addr uint64, n int, b *Buffer) int {
	if pages < 0 {
		return n
	}
	for at := addr &^ (pageBytes - 1); at < addr+uint64(n); {
		count := (addr + uint64(n) - at + pageBytes - 1) / pageBytes
		got, errno := k.Pread(pages, b.pages[:min(8*count, uint64(len(b.pages)))], int64(at/pageBytes*8))
		if errno != 0 || got < 8 {
			break
		}
		for i := 0; i+8 <= got; i += 8 {
			if binary.NativeEndian.Uint64(b.pages[i:])&(pagePresent|pageSwapped) == 0 {
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

// Peek copies the stack of thread tid, which is blocked with its stack pointer at sp, to c. scratch is
// room for the pagemap.
func Peek(k Kernel, tid int, sp uint64, a *Advice, c *capture.Capture, pages int, scratch *Buffer) {
	room := c.Stack[:cap(c.Stack)]
	addr, n := copyStack(k, tid, sp, room, &a.Stack, pages, scratch)
	c.StackAddr, c.Stack = addr, room[:n]
}
