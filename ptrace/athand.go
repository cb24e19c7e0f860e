package ptrace

import (
	"encoding/binary"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

const (
	// lookedAt is how many pieces of memory are looked at before they are read: what was looked at longer ago may be another's by then.
	lookedAt = 4
	// lookedFor is how long that may take, in nanoseconds, or they are looked at again, lookTries times at most: others may have had the CPU meanwhile.
	lookedFor = 50_000
	lookTries = 3
)

var pageBytes = uint64(os.Getpagesize())

// atHand is a read of memory that begins just when that was seen to be at hand. Between a look and a read of it another page may come to lie
// there, of a server that does not answer: whoever reads that can wait for ever, and not even be killed. So nobody gets the thread between
// them, but by the kernel's scheduler.
type atHand struct {
	pages, tid int
	pieces     []unix.RemoteIovec
	buf        []byte
	n          int        // bytes that were read
	errno      unix.Errno // EFAULT: a piece is not at hand
	entries    [64 * procfs.PageEntry]byte
}

// Outside reads.
//
//go:nosplit
//go:norace
func (r *atHand) Outside() {
	for i := 0; i < len(r.pieces); i += lookedAt {
		some := r.pieces[i:min(i+lookedAt, len(r.pieces))]
		for try := 1; ; try++ {
			begun := RawNow()
			if !r.lookAt(some) {
				r.n, r.errno = 0, unix.EFAULT
				return
			}
			if RawNow()-begun < lookedFor || try == lookTries {
				break
			}
		}
		size := 0
		for j := range some {
			size += some[j].Len
		}
		n, errno := RawGather(r.tid, some, r.buf[r.n:r.n+size])
		r.n += n
		if errno == unix.ESRCH || r.n == 0 {
			r.n, r.errno = 0, errno
		}
		if n < size {
			return
		}
	}
}

// lookAt tells whether pieces are at hand.
//
//go:nosplit
//go:norace
func (r *atHand) lookAt(pieces []unix.RemoteIovec) bool {
	from, to := uint64(0), uint64(0) // pages that were looked at last: others often lie there, too
	for i := range pieces {
		addr, end := uint64(pieces[i].Base), uint64(pieces[i].Base)+uint64(pieces[i].Len)
		if addr < end && (addr < from || end > to) {
			if from, to = addr&^(pageBytes-1), (end+pageBytes-1)&^(pageBytes-1); !r.look(from, to) {
				return false
			}
		}
	}
	return true
}

// look tells whether pages are at hand.
//
//go:nosplit
//go:norace
func (r *atHand) look(at, to uint64) bool {
	for at < to {
		count := min((to-at)/pageBytes, uint64(len(r.entries)/procfs.PageEntry))
		got, errno := RawPread(r.pages, r.entries[:count*procfs.PageEntry], int64(at/pageBytes*procfs.PageEntry))
		if errno != 0 || got < procfs.PageEntry {
			return false
		}
		for i := 0; i+procfs.PageEntry <= got; i += procfs.PageEntry {
			if !procfs.PageAtHand(binary.NativeEndian.Uint64(r.entries[i:])) {
				return false
			}
			at += pageBytes
		}
	}
	return true
}

// ReadAtHand reads pieces of memory of the process that thread tid belongs to, to buf one behind another, if they are at hand by its pagemap
// when the read begins. EFAULT is the error where one is not. Fewer bytes are read than asked for where memory has been unmapped.
func ReadAtHand(pages procfs.Pagemap, tid int, pieces []unix.RemoteIovec, buf []byte) (int, error) {
	if pages < 0 {
		return 0, unix.EFAULT
	}
	r := &atHand{pages: int(pages), tid: tid, pieces: pieces, buf: buf}
	Outside(r)
	runtime.KeepAlive(r)
	if r.errno != 0 {
		return 0, r.errno
	}
	return r.n, nil
}
