package sampler

import (
	"runtime"
	"testing"
	"time"

	"sfsample/output"
	"sfsample/sampler/ledger"
)

// roundTally counts by round.
type roundTally struct {
	tally   // of the round under way
	all     tally
	t       *testing.T
	rounds  []Round
	stopped bool // each sample was of a stop
}

// EndRound implements RoundSink.
func (c *roundTally) EndRound(r *Round) error {
	if r.Carried+r.Expected != r.Sum()+r.Owed {
		c.t.Errorf("round %d: %d carried + %d thread ticks != %v + %d owed", len(c.rounds), r.Carried, r.Expected, &r.Account, r.Owed)
	}
	if got := r.Count[ledger.Sampled]; got != c.tally.samples {
		c.t.Errorf("round %d: %d samples were counted, the output got %d", len(c.rounds), got, c.tally.samples)
	}
	if got := r.Count[ledger.Reused]; got != c.tally.reused {
		c.t.Errorf("round %d: %d reused ticks were counted, the output got %d", len(c.rounds), got, c.tally.reused)
	}
	if r.Pause.N > r.Count[ledger.Sampled] || r.Pause.N == 0 && r.Count[ledger.Sampled] > 10 && c.stopped {
		c.t.Errorf("round %d: %d pauses, %d samples", len(c.rounds), r.Pause.N, r.Count[ledger.Sampled])
	}
	c.all.samples += c.tally.samples
	c.all.reused += c.tally.reused
	c.all.cpu += c.tally.cpu
	c.tally = tally{interval: c.interval}
	c.rounds = append(c.rounds, *r)
	return nil
}

// TestRounds: no tick is lost or told twice where one round ends and the next begins; rounds follow each other without a
// gap, and what they tell adds up to the run.
func TestRounds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		target []string
		opt    Options
	}{
		{"running", []string{"storm"}, Options{Hz: 999, Every: 50 * time.Millisecond}},
		{"all", []string{"storm"}, Options{Hz: 999, All: true, WallWeight: true, Every: 50 * time.Millisecond}},
		{"all by CPU time", []string{"storm"}, Options{Hz: 499, All: true, Every: 20 * time.Millisecond}},
		{"shorter than a tick", []string{"storm"}, Options{Hz: 199, Every: time.Millisecond}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sink := &roundTally{t: t, stopped: !tt.opt.All, tally: tally{interval: tt.opt.interval()}}
			var _ output.Sink = sink
			r, used := accounted(t, tt.opt, sink, tt.target)
			if err := checkAccount(&r, &sink.all); err != nil {
				t.Error(err)
			}
			if sink.tally.samples+sink.tally.reused > 0 {
				t.Error("there are samples after the last round")
			}
			var sum ledger.Account
			for i, x := range sink.rounds {
				sum.Ticks += x.Ticks
				sum.Expected += x.Expected
				for c := range x.Count {
					sum.Count[c] += x.Count[c]
				}
				last := i == len(sink.rounds)-1
				switch {
				case x.Last != last:
					t.Errorf("round %d of %d: last is %v", i, len(sink.rounds), x.Last)
				case last && x.Owed != 0:
					t.Errorf("%d ticks are owed at the end", x.Owed)
				case !last && (x.Owed != sink.rounds[i+1].Carried || !x.End.Equal(sink.rounds[i+1].Start)):
					t.Errorf("round %d ends at %v and owes %d, the next begins at %v with %d", i, x.End, x.Owed, sink.rounds[i+1].Start, sink.rounds[i+1].Carried)
				}
			}
			if sum != r.Account {
				t.Errorf("rounds tell of %d ticks, %d thread ticks = %v; the run of %d, %d = %v", sum.Ticks, sum.Expected, &sum, r.Ticks, r.Expected, &r.Account)
			}
			if len(sink.rounds) < 3 {
				t.Errorf("there were %d rounds", len(sink.rounds))
			}
			t.Logf("%d rounds, %v of CPU time of %v", len(sink.rounds), sink.all.cpu, used)
			part := time.Duration(20)
			if runtime.GOARCH == "s390x" {
				part = 2 // as in TestAccount
			}
			if d := sink.all.cpu - used; used > 0 && !tt.opt.WallWeight && (d > used/part+tt.opt.interval() || d < -used/part-20*time.Millisecond) {
				t.Errorf("the samples stand for %v of CPU time, the kernel says %v", sink.all.cpu, used)
			}
		})
	}
}

// TestRoundEnds: rounds follow each other by what has passed, and go on from the machine's time where that was stepped, or stood.
func TestRoundEnds(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for now, want := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second, 10*time.Second + stepped: 10 * time.Second, 9 * time.Second: 10 * time.Second,
		8 * time.Hour: 8 * time.Hour, -time.Hour: -time.Hour,
	} {
		if got := ends(start, 10*time.Second, start.Add(now)).Sub(start); got != want {
			t.Errorf("at %v a round of 10 s ends at %v, want %v", now, got, want)
		}
	}
}
