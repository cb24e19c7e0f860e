package sampler

import (
	"encoding/binary"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

// A copy that goes past the end of a stack reads what happens to lie behind. If
// that is a page which a server fails to bring (userfaultfd(2), a file on FUSE),
// the reader sleeps until it is killed, and what it has stopped stays stopped.
// So a copy ends where the stack does, as far as that is known; else where the
// pages end that are in memory.

// extent is what unwinding has found out about the stack that a thread was on.
type extent struct {
	low, high uint64 // the mapping that it lies in
	top       uint64 // end of the outermost frame; 0: not known
}

// bytes is how much to copy from base on, at most room; ok is false if the base
// is not known to lie in this stack.
func (x *extent) bytes(base uint64, room int) (n int, ok bool) {
	switch {
	case x == nil || base < x.low || base >= x.high:
		return 0, false
	case base < x.top:
		return int(min(x.top-base, uint64(room))), true
	}
	return int(min(x.high-base, uint64(room))), true
}

// stackExtent finds the mapping that sp lies in, nil if it is not memory of the
// process's own.
func stackExtent(maps []procfs.Mapping, sp uint64) *extent {
	m := mappingAt(maps, sp)
	if m == nil || m.File() || m.Perms&procfs.Shared != 0 {
		return nil
	}
	return &extent{low: m.Start, high: m.End}
}

// mappingAt returns the one of maps, which are in ascending order, that holds
// addr, nil if there is none.
func mappingAt(maps []procfs.Mapping, addr uint64) *procfs.Mapping {
	i, found := slices.BinarySearchFunc(maps, addr, func(m procfs.Mapping, addr uint64) int {
		switch {
		case m.End <= addr:
			return -1
		case m.Start > addr:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &maps[i]
}

// pagemap is an open /proc/PID/pagemap, -1 if there is none to be had
// (Documentation/admin-guide/mm/pagemap.rst).
type pagemap int

func openPagemap(fs procfs.FS, pid int) pagemap {
	fd, err := unix.Open(fs.Path(pid, "pagemap"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return pagemap(fd)
}

func (p pagemap) close() {
	if p >= 0 {
		unix.Close(int(p))
	}
}

// Bits of an entry of pagemap.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
)

var pageBytes = uint64(os.Getpagesize())

// present is how many bytes from addr on, at most n, can be read without a page
// fault that somebody must answer. Without a pagemap it is all.
func (p pagemap) present(addr uint64, n int) int {
	if p < 0 {
		return n
	}
	var buf [64 * 8]byte
	for at := addr &^ (pageBytes - 1); at < addr+uint64(n); {
		pages := (addr + uint64(n) - at + pageBytes - 1) / pageBytes
		got, err := unix.Pread(int(p), buf[:min(8*pages, uint64(len(buf)))], int64(at/pageBytes*8))
		if err != nil || got < 8 {
			break
		}
		for b := buf[:got&^7]; len(b) > 0; b = b[8:] {
			if binary.NativeEndian.Uint64(b)&(pagePresent|pageSwapped) == 0 {
				return int(max(at, addr) - addr)
			}
			at += pageBytes
		}
	}
	return n
}

// readStack copies the stack from the red zone below sp on into c.Stack, as
// much as fits and as is safe.
func readStack(tid int, sp uint64, c *capture.Capture, x *extent, p pagemap) {
	c.StackAddr, c.Stack = copyStack(tid, sp, c.Stack[:cap(c.Stack)], x, p)
}

// readPinned is readStack between ptrace.Pin and ptrace.Unpin, for a stack of which
// it is known where it lies; false: it is not this one.
func readPinned(tid int, sp uint64, c *capture.Capture, x *extent) bool {
	room := c.Stack[:cap(c.Stack)]
	for _, below := range [...]uint64{redZone, 0} {
		base := (sp - below) &^ 7
		n, ok := x.bytes(base, len(room))
		if !ok {
			return false
		}
		if n, _ = ptrace.ReadMemoryPinned(tid, base, room[:n]); n > 0 {
			c.StackAddr, c.Stack = base, room[:n]
			return true
		}
	}
	return false
}

// ahead copies the stack of a thread that has reported a stop before it is known
// where that begins: what the rehearsal has read. The report comes a little before
// the thread has left its CPU, and the kernel shows nobody the registers until
// then (wait_task_inactive, kernel/sched/core.c), for some microseconds; its
// memory stands already. It returns how many bytes it has copied, 0 where nothing
// was rehearsed, the stop has taken long, or the stack was not where it was guessed
// to be the last time. Call it between ptrace.Pin and
// ptrace.Unpin.
func (t *thread) ahead() (n int) {
	if t.guessed > 0 && !t.late && !t.strays {
		n, _ = ptrace.ReadMemoryPinned(t.tid, t.guess, t.cap.Stack[:t.guessed])
	}
	return n
}

// readAhead makes the first have bytes of the room for the stack, which were
// copied ahead, the copy of the stack at sp, together with what of it lies behind
// them; [trimStack] takes away what lies before it. false: they are no part of it.
// Call it between ptrace.Pin and
// ptrace.Unpin.
func (t *thread) readAhead(sp uint64, have int) bool {
	base := (sp - redZone) &^ 7
	t.strays = t.guessed > 0 && base-t.guess >= uint64(t.guessed)
	t.guessed = 0
	if base-t.guess >= uint64(have) { // or before it
		return false
	}
	c := t.cap
	room := c.Stack[:cap(c.Stack)]
	n, ok := t.fb.Extent.Load().bytes(base, len(room))
	if !ok {
		return false
	}
	n = min(n+int(base-t.guess), len(room))
	if n > have {
		got, _ := ptrace.ReadMemoryPinned(t.tid, t.guess+uint64(have), room[have:n])
		n = have + got
	}
	c.StackAddr, c.Stack = t.guess, room[:n]
	return true
}

// trimStack takes away what a copy holds of the memory before the red zone of sp.
func trimStack(c *capture.Capture, sp uint64) {
	base := (sp - redZone) &^ 7
	if n := base - c.StackAddr; c.StackAddr < base && n < uint64(len(c.Stack)) {
		c.StackAddr, c.Stack = base, c.Stack[:copy(c.Stack, c.Stack[n:])]
	}
}

// copyStack copies the stack from the red zone below sp on into room. The red
// zone may lie in a guard page: then it is left out.
func copyStack(tid int, sp uint64, room []byte, x *extent, p pagemap) (addr uint64, stack []byte) {
	for _, below := range [...]uint64{redZone, 0} {
		base := (sp - below) &^ 7
		n, ok := x.bytes(base, len(room))
		if !ok {
			n = p.present(base, len(room))
		}
		if n, _ = ptrace.ReadMemory(tid, base, room[:n]); n > 0 {
			return base, room[:n]
		}
	}
	return sp, room[:0]
}

// readBeyond copies the stack that a signal handler has interrupted, if the
// handler is on another one: then the stack pointer that the kernel stored at
// savedSP lies in the copy of the handler's stack. Where there is no handler
// any more, that word may be anything, and so may the copy: no walk asks for it.
func readBeyond(tid int, savedSP uint64, c *capture.Capture, x *extent, p pagemap) {
	off, size := savedSP-c.StackAddr, ptrace.WordBytes(c.Regs)
	if n := uint64(len(c.Stack)); savedSP == 0 || off >= n || n-off < uint64(size) {
		return
	}
	sp := uint64(binary.NativeEndian.Uint32(c.Stack[off:]))
	if size == 8 {
		sp = binary.NativeEndian.Uint64(c.Stack[off:])
	}
	c.BeyondAddr, c.Beyond = copyStack(tid, sp, c.Beyond[:cap(c.Beyond)], x, p)
}

// redZone is how far below the stack pointer a function may keep data without
// moving it: 128 bytes on x86-64 (System V ABI, section 3.2.2). The other
// architectures have none.
const redZone = 128
