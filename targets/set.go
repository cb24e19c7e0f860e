package targets

import (
	"context"
	"time"

	"sfsample/ptrace/procfs"
)

// Set follows what a selector means while processes come and go. One goroutine at a
// time.
type Set struct {
	Selector Selector
	FS       procfs.FS
	// Keep: who was found once belongs to the set until its end, whatever it calls itself, and with Tree
	// its descendants too, even when their parents have ended.
	Keep bool
	// Share is the part of the time that Follow may take for looking; 0: a thousandth.
	Share float64
	now   []Process
}

// Refresh looks again and returns who is there, and who has come and gone since the
// last time. A process whose number was taken by another has gone and come.
func (s *Set) Refresh() (now, came, gone []Process, err error) {
	members := map[Process]bool{}
	if s.Keep {
		members = setOf(s.now)
	}
	now, err = s.Selector.find(s.FS, members)
	if err != nil {
		return nil, nil, nil, err
	}
	came, gone = without(now, s.now), without(s.now, now)
	s.now = now
	return now, came, gone, nil
}

// How often Follow looks: so seldom that looking takes Share of the time, within these bounds.
const (
	lookShare = 0.001
	leastGap  = 250 * time.Millisecond
	mostGap   = 10 * time.Second
)

// gap is the time from a look that took so long to the next.
func (s *Set) gap(took time.Duration) time.Duration {
	share := s.Share
	if share == 0 {
		share = lookShare
	}
	return min(max(time.Duration(float64(took)/share), leastGap), mostGap)
}

// Follow looks again and again, and sends who has come since the Refresh or look before, until ctx is done or
// nobody can come any more; then it closes came. failed is told of looks that failed.
func (s *Set) Follow(ctx context.Context, came chan<- []Process, failed func(error)) {
	defer close(came)
	timer := time.NewTimer(leastGap)
	defer timer.Stop()
	for s.Selector.Open() || len(s.now) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		begun := time.Now()
		_, fresh, _, err := s.Refresh()
		timer.Reset(s.gap(time.Since(begun)))
		if err != nil {
			failed(err)
		}
		if len(fresh) == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case came <- fresh:
		}
	}
}

func setOf(list []Process) map[Process]bool {
	set := make(map[Process]bool, len(list))
	for _, p := range list {
		set[p] = true
	}
	return set
}

// without lists those of a that b has not.
func without(a, b []Process) []Process {
	have := setOf(b)
	var list []Process
	for _, p := range a {
		if !have[p] {
			list = append(list, p)
		}
	}
	return list
}
