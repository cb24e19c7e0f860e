package sampler

import (
	"time"

	"sfsample/output"
	"sfsample/sampler/capture"
	"sfsample/sampler/ledger"
)

// Round is what a part of a run has to say about itself.
type Round struct {
	Start, End time.Time
	// Account counts what became of ticks in the round: Carried + Expected = Sum + Owed.
	ledger.Account
	Carried   int64 // thread ticks that were not accounted for when it began
	Owed      int64 // and when it ended: the next round tells what became of them
	Processes int   // sampled at its end
	Threads   int   // of these
	Pause     Spread
	Stride    int64 // only each such tick was answered at the end; 1: each
	Last      bool  // the run ends with it
}

// RoundSink is a sink that is told of the end of each round, after its last sample and before the first of the next.
type RoundSink interface {
	output.Sink
	EndRound(r *Round) error
}

// round is the one under way.
type round struct {
	begun, until int64 // CLOCK_MONOTONIC
	start        time.Time
	before       ledger.Account // when it began
	pause        histogram
}

func (e *engine) beginRound(now int64) {
	e.round = round{begun: now, until: now + int64(e.opt.Every), start: time.Now(), before: e.book.Account()}
}

// roundDue tells whether it is time for the next round.
func (e *engine) roundDue(now int64) bool { return e.opt.Every > 0 && now >= e.round.until }

// endRound ends a round and begins the next. No tick is let go for that: what is under way is of the next.
func (e *engine) endRound(now int64, last bool) {
	if !last {
		e.balance()
	}
	a, b := e.book.Account(), &e.round.before
	r := &Round{
		Start: e.round.start, End: e.round.start.Add(time.Duration(now - e.round.begun)),
		Carried: b.Expected - b.Sum(), Owed: a.Expected - a.Sum(),
		Processes: len(e.procs), Threads: len(e.list), Pause: e.round.pause.spread(), Stride: max(e.load.both, 1), Last: last,
	}
	r.Ticks, r.Expected = a.Ticks-b.Ticks, a.Expected-b.Expected
	for c := range a.Count {
		r.Count[c] = a.Count[c] - b.Count[c]
	}
	e.out.send(item{round: r})
	start, until := r.End, e.round.until
	e.beginRound(now)
	e.round.start = start
	if e.round.until = until + int64(e.opt.Every); e.round.until <= now { // it was away for longer than a round
		e.round.until = now + int64(e.opt.Every)
	}
}

// balance accounts for blocked threads that have not run up to now, and for the CPU time that no sample will stand
// for: that of threads that have ended, or were never met.
func (e *engine) balance() {
	n := e.book.Tick()
	pending := map[*process]time.Duration{} // CPU time for which samples of living threads will stand
	for _, t := range e.list {
		s, err := e.files.schedstat(t)
		if err != nil {
			continue // its end is found out at the next look
		}
		if t.watch.Same(s.Count) {
			e.creditIdle(t, e.settled(t, n))
		}
		pending[t.proc] += s.Run - t.line.Run()
	}
	if e.opt.WallWeight {
		return
	}
	for _, p := range e.procs {
		p.ahead = 0
		cpu, ok := p.cpuTime()
		spent := cpu - p.cpuBase - p.charged - pending[p]
		if !ok || p.only || spent < time.Duration(e.ticks.interval) {
			continue
		}
		s := &capture.Spent{PID: p.pid}
		s.CPU = spent
		p.charged += s.CPU
		p.ahead = s.CPU
		e.out.send(item{spent: s})
	}
}
