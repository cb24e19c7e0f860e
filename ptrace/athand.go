package ptrace

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// ErrAway is the error of a read of memory that is not at hand: neither in memory nor swapped out, or maybe so.
var ErrAway = errors.New("the memory is not at hand")

const (
	// lookedAt is how many pieces of memory are looked at before they are read: what was looked at longer ago may be another's by then.
	lookedAt = 4
	// lookedFor is how long that may take, or they are looked at again, lookTries times at most: others may have had the CPU meanwhile.
	lookedFor = 50 * time.Microsecond
	lookTries = 3
)

var pageBytes = uint64(os.Getpagesize())

// ReadAtHand reads pieces of memory of the process that thread tid belongs to, to buf one behind another, some at a time, as long as they are
// at hand by its pagemap just before: another page may come to lie there, of a server that does not answer, and whoever reads that can wait for
// ever and not even be killed. With ErrAway what is returned are the bytes of the times before. Fewer bytes than asked for and no error:
// memory has been unmapped.
func ReadAtHand(pages procfs.Pagemap, tid int, pieces []unix.RemoteIovec, buf []byte) (done int, err error) {
	for len(pieces) > 0 {
		some := pieces[:min(lookedAt, len(pieces))]
		for try := 1; ; try++ {
			begun := time.Now()
			if !atHand(pages, some) {
				return done, ErrAway
			}
			if time.Since(begun) < lookedFor || try == lookTries {
				break
			}
		}
		n, err := ReadPieces(tid, some, buf[done:])
		if done += n; err != nil || n < PiecesBytes(some) {
			return done, err
		}
		pieces = pieces[len(some):]
	}
	return done, nil
}

// atHand tells whether pieces of memory are.
func atHand(pages procfs.Pagemap, pieces []unix.RemoteIovec) bool {
	type looked struct{ from, to uint64 }
	var seen [8]looked // pages that were looked at last: others often lie there, too
	next := 0
	for _, r := range pieces {
		addr := uint64(r.Base)
		end := addr + uint64(r.Len)
		if end < addr {
			return false
		}
		if slices.ContainsFunc(seen[:], func(s looked) bool { return addr >= s.from && end <= s.to }) {
			continue
		}
		if pages.AtHand(addr, r.Len) < r.Len {
			return false
		}
		s := &seen[next%len(seen)]
		s.from, s.to = addr&^(pageBytes-1), max(end, addr|(pageBytes-1)) // up to the end of its first page, at least
		next++
	}
	return true
}

// ReadPieces reads pieces of memory with one system call, of which there may be 1024 (UIO_MAXIOV). It returns how many bytes could be read: fewer
// than PiecesBytes, without an error, where one is not mapped and others before it are. It can block, as [ReadMemory].
func ReadPieces(tid int, pieces []unix.RemoteIovec, buf []byte) (int, error) {
	size := PiecesBytes(pieces)
	if size <= 0 || size > len(buf) {
		return 0, nil
	}
	local := []unix.Iovec{{Base: &buf[0]}}
	local[0].SetLen(size)
	n, err := unix.ProcessVMReadv(tid, local, pieces, 0)
	return max(n, 0), err
}

// PiecesBytes is how many bytes pieces of memory have.
func PiecesBytes(pieces []unix.RemoteIovec) (n int) {
	for _, r := range pieces {
		n += r.Len
	}
	return n
}
