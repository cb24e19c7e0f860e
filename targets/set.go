package targets

import (
	"context"
	"slices"
	"sync"
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

	mu    sync.Mutex
	again map[int]bool // to be found once more, by id
	tries map[int]int  // how often that was so
}

// maxTries bounds how often a process is found anew.
const maxTries = 3

// Again has a process be found once more by the next look, a few times at most: what was to be done with it has failed, as where it was in the
// midst of an execve(2). Any goroutine may ask.
func (s *Set) Again(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.again == nil {
		s.again, s.tries = map[int]bool{}, map[int]int{}
	}
	if s.tries[pid]++; s.tries[pid] <= maxTries {
		s.again[pid] = true
	}
}

// settle forgets those that are to be found once more.
func (s *Set) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = slices.DeleteFunc(s.now, func(p Process) bool { return s.again[p.PID] })
	clear(s.again)
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
	s.settle()
	came, gone = without(now, s.now), without(s.now, now)
	s.now = now
	if s.Keep && (s.Selector.Open() || s.Selector.Tree) {
		s.Selector.PIDs = nil // who was given is kept; the number may be another's one day
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range gone {
		delete(s.tries, p.PID)
	}
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
