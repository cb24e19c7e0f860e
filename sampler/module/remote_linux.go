package module

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/symbol/rootfs"
)

// span is a piece of memory.
type span struct{ start, end uint64 }

// remoteSpans finds the mapped files whose pages a server brings that may not answer.
// A read that waits for one cannot be ended, not even with the reader.
func (l *Live) remoteSpans(maps []procfs.Mapping) (spans []span) {
	mounts, err := rootfs.MountsOf(l.FS.Path(l.TID()))
	if err != nil {
		return nil
	}
	for i := range maps {
		if m := &maps[i]; m.File() && mounts.Device(m.Dev.Major, m.Dev.Minor) {
			spans = append(spans, span{m.Start, m.End})
		}
	}
	return spans
}

// ask tells whether the kernel answers about single mappings.
func (l *Live) ask() error {
	_, err := procfs.FileFrom(l.maps, 0)
	return err
}

// cannotAsk: an error of FileFrom is that the kernel cannot be asked about single mappings.
func cannotAsk(err error) bool { return err == unix.ENOTTY || err == unix.EBADF }

// filesAtHand is atHand for pieces that are not in memory, by the mappings and mounts as they are now.
func (l *Live) filesAtHand(from, to uint64) error {
	for from < to {
		m, err := procfs.FileFrom(l.maps, from)
		if err == unix.ENOENT || err == nil && m.Start >= to {
			return nil // there is no file
		} else if err != nil {
			return err
		}
		from = max(from, m.Start)
		if end := min(to, m.End); l.mounts.Device(m.Dev.Major, m.Dev.Minor) && !l.present(from, end) {
			return fmt.Errorf("read memory at %#x: %w", from, rootfs.ErrRemote)
		}
		from = m.End
	}
	return nil
}

// Without asking, a list of such files is taken to be that of now for freshSpans, by a read of pages that are not in memory, or for
// freshTimes as long as it took to make, if that is more: programs may have ten thousand mappings.
const (
	freshSpans = 20 * time.Millisecond
	freshTimes = 20
)

// atHand is an error if a read of n bytes at addr would have to wait for such a
// server: some page is not in memory.
func (l *Live) atHand(addr uint64, n int) error {
	if l.present(addr, addr+uint64(n)) {
		return nil
	}
	if err := l.filesAtHand(addr, addr+uint64(n)); !cannotAsk(err) {
		return err
	}
	if time.Since(time.Unix(0, l.listed.Load())) > max(freshSpans, freshTimes*time.Duration(l.took.Load())) {
		_, _ = l.Maps() // the read fails if this does: the process is gone
	}
	spans := l.remote.Load()
	if spans == nil {
		return nil
	}
	for _, s := range *spans {
		if from, to := max(addr, s.start), min(addr+uint64(n), s.end); from < to && !l.present(from, to) {
			return fmt.Errorf("read memory at %#x: %w", from, rootfs.ErrRemote)
		}
	}
	return nil
}

// present tells whether a piece of memory can be read without a wait for a server.
func (l *Live) present(from, to uint64) bool {
	n := int(to - from)
	return l.pages != nil && procfs.Pagemap(l.pages.Fd()).AtHand(from, n) == n
}
