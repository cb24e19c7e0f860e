//go:build unix

package procfs

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Pagemap is an open /proc/PID/pagemap, -1 if there is none to be had
// (Documentation/admin-guide/mm/pagemap.rst). It is of the memory that the process had when it was opened.
type Pagemap int

// OpenPagemap opens that of a process or thread.
func (f FS) OpenPagemap(pid int) Pagemap {
	fd, err := unix.Open(f.Path(pid, "pagemap"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return Pagemap(fd)
}

// Close closes it, if it is open.
func (p Pagemap) Close() {
	if p >= 0 {
		unix.Close(int(p))
	}
}

// Duplicate returns another descriptor of it, -1 if there is none to be had.
func (p Pagemap) Duplicate() Pagemap {
	if p < 0 {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(p), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return Pagemap(fd)
}

// Gone tells whether its memory is gone: the process has called exec or has ended, and nobody else shares it.
// The pagemap of memory without users reads as empty (pagemap_read, fs/proc/task_mmu.c).
func (p Pagemap) Gone() bool {
	var entry [8]byte
	n, err := unix.Pread(int(p), entry[:], 0)
	return err == nil && n == 0
}

// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst). A marker of userfaultfd(2) on a page that is not there shows as
// swapped out and write-protected (pte_to_pagemap_entry, fs/proc/task_mmu.c): who reads it waits for the server. A page that is
// truly swapped out, and write-protected, looks the same. The other markers, of guard regions and poisoned pages, end a read at
// once (handle_pte_marker, mm/memory.c).
const (
	pagePresent   = 1 << 63
	pageSwapped   = 1 << 62
	pageProtected = 1 << 57
)

// AtHand is how many bytes from addr on, at most n, are in memory or swapped out: to read them waits for nobody
// but the kernel. Without a pagemap it is none.
func (p Pagemap) AtHand(addr uint64, n int) int {
	page := uint64(os.Getpagesize())
	var b [64 * 8]byte
	for at := addr &^ (page - 1); at < addr+uint64(n); {
		count := min((addr+uint64(n)-at+page-1)/page, uint64(len(b)/8))
		got, err := unix.Pread(int(p), b[:8*count], int64(at/page*8))
		if err == unix.EINTR {
			continue
		}
		if err != nil || got < 8 {
			return int(max(at, addr) - addr)
		}
		for i := 0; i+8 <= got; i += 8 {
			if e := binary.NativeEndian.Uint64(b[i:]); e&pagePresent == 0 && e&(pageSwapped|pageProtected) != pageSwapped {
				return int(max(at, addr) - addr)
			}
			at += page
		}
	}
	return n
}
