package sampler

import (
	"time"

	"sfsample/output"
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
	Stride    float64 // ticks for each that was answered at the end
	Last      bool    // the run ends with it
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

// rounds cuts a run into rounds: one ends where the next begins, and what is under way there is of the next.
type rounds struct {
	opt    *Options
	out    *outlet
	acct   *accounts
	book   *ledger.Book
	roster *roster
	load   *load
	now    round
}

func (rs *rounds) begin(now int64) {
	rs.now = round{begun: now, until: now + int64(rs.opt.Every), start: wall(), before: rs.book.Account()}
}

// wall is the time by the machine's clock alone.
func wall() time.Time { return time.Now().Round(0) }

// stepped is by how much the machine's clock may be off what has passed since the last round's end: more is a step of it, or a
// suspension, in which CLOCK_MONOTONIC stands.
const stepped = time.Second

// ends is when a round ends that began at start and took so long, by which the rounds follow each other, or now if the clock was stepped.
func ends(start time.Time, took time.Duration, now time.Time) time.Time {
	if end := start.Add(took); now.Sub(end).Abs() <= stepped {
		return end
	}
	return now
}

// due tells whether it is time for the next round.
func (rs *rounds) due(now int64) bool { return rs.opt.Every > 0 && now >= rs.now.until }

// end ends a round and begins the next. No tick is let go for that: what is under way is of the next.
func (rs *rounds) end(now int64, last bool) {
	if !last {
		rs.acct.balance()
	}
	a, b := rs.book.Account(), &rs.now.before
	took := time.Duration(now - rs.now.begun)
	end := ends(rs.now.start, took, wall())
	r := &Round{
		Start: end.Add(-took), End: end,
		Carried: b.Expected - b.Sum(), Owed: a.Expected - a.Sum(),
		Processes: len(rs.roster.procs), Threads: len(rs.roster.list), Pause: rs.now.pause.spread(), Stride: rs.load.both.Ticks(), Last: last,
	}
	r.Ticks, r.Expected = a.Ticks-b.Ticks, a.Expected-b.Expected
	for c := range a.Count {
		r.Count[c] = a.Count[c] - b.Count[c]
	}
	rs.out.send(item{round: r})
	start, until := r.End, rs.now.until
	rs.begin(now)
	rs.now.start = start
	if rs.now.until = until + int64(rs.opt.Every); rs.now.until <= now { // it was away for longer than a round
		rs.now.until = now + int64(rs.opt.Every)
	}
}
