package module

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// span is a piece of memory.
type span struct{ start, end uint64 }

// fileSpan is one that a file is mapped to.
type fileSpan struct {
	span
	dev procfs.Dev
}

// fileSpans are those of a process as its mappings were when they were last read: when that began, and how long it took.
type fileSpans struct {
	list   []fileSpan
	listed time.Time
	took   time.Duration
}

func spansOf(maps []procfs.Mapping) (spans []fileSpan) {
	for i := range maps {
		if m := &maps[i]; m.File() {
			spans = append(spans, fileSpan{span{m.Start, m.End}, m.Dev})
		}
	}
	return spans
}

// ask tells whether the kernel answers about single mappings.
func (l *Live) ask() error {
	_, err := procfs.MappingFrom(l.maps, 0)
	return err
}

// cannotAsk: an error of MappingFrom is that the kernel cannot be asked about single mappings.
func cannotAsk(err error) bool { return err == unix.ENOTTY || err == unix.EBADF }

// filesAtHand is pieceAtHand for one that is not in memory, by the mappings and mounts as they are now.
func (l *Live) filesAtHand(from, to uint64) (p *ptrace.Patient, err error) {
	for p = &l.Patient; from < to; {
		m, err := procfs.MappingFrom(l.maps, from)
		if err == unix.ENOENT || err == nil && m.Start >= to {
			return p, nil
		} else if err != nil {
			return nil, err
		}
		if m.File() {
			if p, err = l.bring(p, max(from, m.Start), min(to, m.End), m.Dev); err != nil {
				return nil, err
			}
		}
		from = m.End
	}
	return p, nil
}

// bring returns what a piece of a file of this device is to be read with, p if it is in memory. It is an error if its server may not answer: a
// read that waits for that cannot be ended, not even with the reader.
func (l *Live) bring(p *ptrace.Patient, from, to uint64, dev procfs.Dev) (*ptrace.Patient, error) {
	if inMemory(l.pages, from, to) {
		return p, nil
	}
	disk, err := l.mounts.Disk(dev.Major, dev.Minor)
	if err != nil {
		return nil, fmt.Errorf("read memory at %#x: %w", from, err)
	}
	if disk != nil {
		p = &disk.Patient
	}
	return p, nil
}

// Without asking, a list of mapped files is taken to be that of now for freshSpans, by a read of pages that are not in memory, or for
// freshTimes as long as it took to make, if that is more: programs may have ten thousand mappings.
const (
	freshSpans = 20 * time.Millisecond
	freshTimes = 20
)

// bringAll reads pieces of memory of which some are not at hand: a disk may have to bring them. The read begins when it is known, on its own thread,
// that no server has to that may not answer.
func (l *Live) bringAll(pieces []unix.RemoteIovec, buf []byte) (int, error) {
	look := func() (by *ptrace.Patient, err error) { // by: what tells of the disk whether it answers
		by = &l.Patient
		for from, to := range apart(pieces) {
			p, err := l.pieceAtHand(from, to)
			if err != nil {
				return nil, err
			}
			if p != &l.Patient {
				by = p
			}
		}
		return by, nil
	}
	by, err := look()
	if err != nil {
		return 0, err
	}
	if by == &l.Patient && by.Stuck() { // each further one could take as long
		return 0, ptrace.ErrStuck
	}
	return by.Do(nil, uint64(pieces[0].Base), buf, func(b []byte) (int, error) {
		if now, err := look(); err != nil || now != by && now != &l.Patient {
			return 0, cmp.Or(err, ptrace.ErrAway)
		}
		return ptrace.ReadPieces(l.TID(), pieces, b)
	})
}

// apart are pieces of memory, but for those that lie in the pages of the one before: many do.
func apart(pieces []unix.RemoteIovec) iter.Seq2[uint64, uint64] {
	return func(yield func(from, to uint64) bool) {
		var last span
		for _, r := range pieces {
			from, to := uint64(r.Base), uint64(r.Base)+uint64(r.Len)
			if from >= last.start && from < to && to <= last.end {
				continue
			}
			last = span{from &^ (pageBytes - 1), (to + pageBytes - 1) &^ (pageBytes - 1)}
			if !yield(from, to) {
				return
			}
		}
	}
}

// pieceAtHand returns what a piece of memory is to be read with: what tells of its disk whether that answers, where it is not in memory and a
// file's. It is an error if a read would have to wait for a server that may not answer.
func (l *Live) pieceAtHand(addr, to uint64) (*ptrace.Patient, error) {
	p := &l.Patient
	if inMemory(l.pages, addr, to) {
		return p, nil
	}
	if p, err := l.filesAtHand(addr, to); !cannotAsk(err) {
		return p, err
	}
	spans := l.files.Load()
	if spans == nil || time.Since(spans.listed) > max(freshSpans, freshTimes*spans.took) {
		_, _ = l.Maps() // the read fails if this does: the process is gone
		spans = l.files.Load()
	}
	if spans == nil {
		return p, nil
	}
	for _, s := range spans.list {
		if s.start < to && s.end > addr {
			var err error
			if p, err = l.bring(p, max(addr, s.start), min(to, s.end), s.dev); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// inMemory tells whether a piece of memory can be read without a wait for anybody but the kernel.
func inMemory(pages *os.File, from, to uint64) bool {
	n := int(to - from)
	return pagemap(pages).AtHand(from, n) == n
}

// pagemap is an open one, -1 for none.
func pagemap(pages *os.File) procfs.Pagemap {
	if pages == nil {
		return -1
	}
	return procfs.Pagemap(pages.Fd())
}
