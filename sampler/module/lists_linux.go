package module

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sfsample/internal/late"
	"sfsample/ptrace/procfs"
)

// Lists bounds what the lists of mappings of live processes take, and how long they are read: to have many mappings of files with long names
// costs a process nothing. The nil Lists has no bounds.
type Lists struct {
	until *late.Time
	log   *slog.Logger
	used  atomic.Int64 // bytes
	told  atomic.Bool
}

// NewLists makes the bounds of a run, whose mappings are read within until. log is told once if there is more.
func NewLists(until *late.Time, log *slog.Logger) *Lists { return &Lists{until: until, log: log} }

// Most that lists of mappings may take, in bytes. A mapping takes some 80, and each path what it has: programs of thousands of mappings
// have some hundred KB.
const (
	maxList  = 16 << 20 // of one process
	maxLists = 32 << 20 // of all
)

var errNoRoom = fmt.Errorf("the mappings of all processes take more than %d MB", maxLists>>20)

// Refused tells whether an error of Maps is that a list is not read although it is there.
func Refused(err error) bool {
	return errors.Is(err, procfs.ErrTooLong) || errors.Is(err, errNoRoom) || errors.Is(err, late.ErrNoTime)
}

// listing is the list of one process within Lists.
type listing struct {
	of *Lists

	mu      sync.Mutex
	bytes   int   // that the last list takes
	refused error // why there is none
	again   time.Time
	rest    time.Duration
}

// A list that was refused is not asked for again for firstRest, twice as long each time up to lastRest, and refusedTimes what it took.
const (
	firstRest    = time.Second
	lastRest     = time.Minute
	refusedTimes = 20
)

// read has the list read, if it may be.
func (l *listing) read(read func(more func(text, list int) error) ([]procfs.Mapping, error)) ([]procfs.Mapping, error) {
	if l.of == nil {
		return read(func(int, int) error { return nil })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := time.Now()
	if begun.Before(l.again) {
		return nil, l.refused
	}
	bytes := 0
	maps, err := read(func(_, list int) error {
		bytes = list
		switch {
		case l.of.until.Over():
			return late.ErrNoTime
		case list > maxList:
			return procfs.ErrTooLong
		case l.of.used.Load()-int64(l.bytes)+int64(list) > maxLists:
			return errNoRoom
		}
		return nil
	})
	switch {
	case err == nil:
		l.keeps(bytes)
		l.rest = 0
	case Refused(err) && !errors.Is(err, late.ErrNoTime):
		l.rest = min(max(firstRest, 2*l.rest, refusedTimes*time.Since(begun)), lastRest)
		l.refused, l.again = err, time.Now().Add(l.rest)
		l.of.tell(err)
	}
	return maps, err
}

// keeps notes what the list takes from now on.
func (l *listing) keeps(bytes int) {
	l.of.used.Add(int64(bytes - l.bytes))
	l.bytes = bytes
}

// close gives back what the list takes.
func (l *listing) close() {
	if l.of != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keeps(0)
	}
}

// tell tells of a list that is not read, once.
func (ls *Lists) tell(err error) {
	if !ls.told.Swap(true) {
		ls.log.Warn("mappings of a process are not read: its stacks have no callers", "err", err)
	}
}
