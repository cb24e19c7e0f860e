package sampler

import (
	"time"

	"sfsample/ptrace"
	"sfsample/sampler/watch"
)

// ticks is the time of a run, in CLOCK_MONOTONIC nanoseconds: tick n is at start + n*interval.
type ticks struct {
	interval int64
	times    watch.Timing
	origin   int64 // the pipeline's start
	start    int64 // tick 0
	until    int64 // the end
	due      int64 // the next tick to be handled, as far as is planned
}

// passed is the last tick that has come at a time.
func (x *ticks) passed(now int64) int64 { return (now - x.start) / x.interval }

// answered is the last tick that clocks have had the time to answer.
func (x *ticks) answered(now int64) int64 { return x.passed(now - int64(x.times.Slack())) }

// dueAt is when tick due is handled, which the last clock has so long after it: when all clocks have had time to answer it, and
// before the next.
func (x *ticks) dueAt(last int64) int64 {
	return x.start + x.due*x.interval + last + int64(x.times.Slack())
}

// wall is how long n ticks are.
func (x *ticks) wall(n int64) time.Duration { return time.Duration(n * x.interval) }

func (x *ticks) elapsed() time.Duration { return time.Duration(ptrace.Now() - x.start) }

// at is a time as captures tell it: since the pipeline's start.
func (x *ticks) at(now int64) time.Duration { return time.Duration(now - x.origin) }

// buffers is how many samples of a clock may be under way: as many as it may take until the
// coordinator, which may have to wait for a CPU, is there again.
func (x *ticks) buffers() int {
	const patience = int64(100 * time.Millisecond)
	return int(min(max(16, patience/x.interval), 512))
}
