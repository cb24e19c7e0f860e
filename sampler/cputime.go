package sampler

import (
	"time"

	"sfsample/sampler/watch"
)

// readClocks makes the readings that tell who may have run: at each tick once before threads were
// looked at, and once more.
func (l *lookout) readClocks(n int64, prepare func(*watch.Process, int64, int) watch.Need) {
	sums := false
	for _, p := range l.roster.procs {
		p.now.reading = watch.Reading{}
		p.now.need = prepare(&p.watch, n, int(p.threads.Load()))
		sums = sums || p.now.need == watch.Times
	}
	if sums {
		l.sumRunning(n, func(r *watch.Reading) *time.Duration { return &r.Before })
	}
	for _, p := range l.roster.procs {
		if p.now.need == watch.Nothing {
			continue
		}
		var ok bool
		if p.now.reading.Clock, ok = p.cpuTime(); !ok {
			l.unread(p, n)
		}
	}
	if sums {
		l.sumRunning(n, func(r *watch.Reading) *time.Duration { return &r.After })
	}
	for _, p := range l.roster.procs {
		p.watch.Read(n, p.now.reading)
	}
}

// unread is a reading that could not be made.
func (l *lookout) unread(p *process, n int64) {
	p.watch.Failed(n)
	p.now.need = watch.Nothing
}

// sumRunning adds up the run times of the threads that are not blocked where sum
// says, of the processes that are to have that done.
func (l *lookout) sumRunning(n int64, sum func(*watch.Reading) *time.Duration) {
	for _, t := range l.roster.list {
		p := t.proc
		if p.now.need != watch.Times || t.watch.Asleep() {
			continue
		}
		s, err := l.files.schedstat(t)
		if err != nil { // it has exited
			l.unread(p, n)
			continue
		}
		*sum(&p.now.reading) += s.Run
	}
}
