package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sfsample/output"
	"sfsample/sampler"
)

// roundMark stands for a round's time in the name of its file.
const roundMark = "%T"

// roundTime is a round's start as names of files tell it, in UTC: no colon, and sorted as the rounds are.
const roundTime = "20060102T150405.000Z"

// rounds writes the samples of each round to files of its own. A round that cannot be written is told of, and the
// next one is tried.
type rounds struct {
	specs []output.Spec
	opt   output.Options
	outs  *output.Outputs // of the round under way; nil: they could not be opened
	say   func(string, ...any)
	stamp string                               // the round's time, as names of files tell it
	about func(*sampler.Round) output.Run      // what a round's results are titled with
	told  func(stamp string, x *sampler.Round) // of each round that has ended, when its files are written
	sends []*sender
	grace func() time.Duration // how long the last messages are sent for
	lost  int                  // times that one could not be written, or put where it waits to be sent
	bad   bool                 // the one under way is among these
	wrote bool                 // something of it was written, or put where it waits to be sent, or was to be
	since map[string]bool      // why they are, since one was whole
}

// openRounds opens the files of the first round, and what is sent to, with its spool in the folder temporary if none was named.
func (c *config) openRounds(temporary string, say func(string, ...any)) (*rounds, error) {
	r := &rounds{specs: c.out.specs, opt: c.outputOptions(), say: say, grace: func() time.Duration { return lastSend }}
	var err error
	if r.sends, err = c.sending.open(r.opt, temporary, say); err != nil {
		return nil, err
	}
	if err := r.open(time.Now()); err != nil {
		r.Discard()
		return nil, err
	}
	return r, nil
}

// open opens the files of the round that begins at this time.
func (r *rounds) open(start time.Time) error {
	r.stamp = start.UTC().Format(roundTime)
	if len(r.specs) == 0 {
		return nil
	}
	list := make([]output.Spec, len(r.specs))
	for i, s := range r.specs {
		list[i] = output.Spec{Format: s.Format, File: strings.ReplaceAll(s.File, roundMark, r.stamp)}
	}
	outs, err := output.Open(list, r.opt)
	if err != nil {
		return err
	}
	outs.Strict()
	r.outs = outs
	return nil
}

// Add implements output.Sink.
func (r *rounds) Add(s *output.Sample) error {
	for _, x := range r.sends {
		x.add(s)
	}
	if r.outs == nil {
		return nil
	}
	if err := r.outs.Add(s); err != nil {
		r.failed(err)
	}
	return nil
}

// EndRound implements sampler.RoundSink.
func (r *rounds) EndRound(x *sampler.Round) error {
	r.close(x)
	if !r.bad && r.wrote && len(r.since) > 0 {
		r.say("rounds are written whole again")
		r.since = nil
	}
	r.bad, r.wrote = false, false
	r.told(r.stamp, x)
	if x.Last {
		return nil
	}
	if err := r.open(x.End); err != nil {
		r.failed(err)
	}
	return nil
}

// close ends the files and messages of the round under way; nil: the run has ended without telling.
func (r *rounds) close(x *sampler.Round) {
	for _, s := range r.sends {
		wrote, err := s.end(x)
		if r.wrote = r.wrote || wrote; err != nil {
			r.failed(fmt.Errorf("%s=%s: a round is lost: %w", s.kind, s.to, err))
		}
	}
	if r.outs == nil {
		return
	}
	if x != nil {
		r.outs.Describe(r.about(x))
	}
	r.wrote = true
	if err := r.outs.Close(); err != nil {
		r.failed(err)
	}
	r.outs = nil
}

// failed tells why a round is not whole, of rounds in a row once, whatever their times and sizes.
func (r *rounds) failed(err error) {
	r.lost++
	r.bad = true
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSuffix(line, "\n")
		why := strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return -1
			}
			return c
		}, line)
		if !r.since[why] {
			r.say("%s", line)
			if r.since == nil {
				r.since = map[string]bool{}
			}
			r.since[why] = true
		}
	}
}

// Close implements output.Sink: a run that has hung has told of no last round.
func (r *rounds) Close() error {
	r.close(nil)
	var all sync.WaitGroup
	for _, s := range r.sends {
		all.Go(func() { s.close(r.grace()) })
	}
	all.Wait()
	if r.lost > 0 {
		return fmt.Errorf("write rounds: %d times one could not be written (the lines above say why)", r.lost)
	}
	return nil
}

// Discard implements sinks of a run that has no result.
func (r *rounds) Discard() {
	if r.outs != nil {
		r.outs.Discard()
		r.outs = nil
	}
	for _, s := range r.sends {
		s.close(0)
	}
}

// account is the closing line of a round.
func account(stamp string, x *sampler.Round) string {
	line := fmt.Sprintf("round %s: %.1fs, %d ticks, ", stamp, x.End.Sub(x.Start).Seconds(), x.Ticks)
	if x.Carried > 0 {
		line += fmt.Sprintf("%d carried over + ", x.Carried)
	}
	line += fmt.Sprintf("%d thread ticks = %s", x.Expected, x.Account.String())
	if x.Owed > 0 {
		line += fmt.Sprintf(" + %d told by the next", x.Owed)
	}
	return line + fmt.Sprintf("; %d processes, pause p50 %v, p99 %v", x.Processes, short(x.Pause.P50), short(x.Pause.P99))
}

// checkRounds says what does not go together with --every.
func (c *config) checkRounds() error {
	for _, o := range c.out.specs {
		marked := strings.Contains(o.File, roundMark)
		switch {
		case c.pace.every == 0 && marked:
			return fmt.Errorf("-o %s: %s is a round's time, and there is but one (try: --every 10s)", o.File, roundMark)
		case c.pace.every > 0 && !marked && o.File != "-":
			return fmt.Errorf("-o %s: each round would write over the one before (put %s into the name, which is the round's time)", o.File, roundMark)
		}
	}
	if c.pace.every > 0 && c.pace.every < leastRound {
		return fmt.Errorf("--every %v: a round takes at least %v (try: --every %[2]v)", c.pace.every, leastRound)
	}
	if c.pace.every > 0 && c.out.record != "" {
		return errors.New("--record is one file (leave out --every)")
	}
	return nil
}

// leastRound is the shortest round.
const leastRound = time.Second
