package sampler

import (
	"errors"
	"time"

	"sfsample/output"
	"sfsample/sampler/capture"
)

// sender takes samples to the goroutine that names and writes them, in their order: those of a thread never go back in time, and what is
// told of a process or a round comes behind all that was sent before.
type sender struct {
	cfg    *PipelineConfig
	failed *failure
	queue  chan named
	latest time.Duration // of the samples that were sent, for what has no time of its own
}

// queued bounds the samples that wait to be named. Each may bring a stack of its
// own.
const queued = 1 << 11

// begin starts the goroutine that names and writes; the function it returns
// waits for its end.
func (o *sender) begin(tick time.Duration) (end func()) {
	done, nudge := make(chan error), make(chan struct{})
	go func() { done <- o.write(newInbox(o.queue, nudge, tick)) }()
	return func() {
		close(o.queue)
		close(nudge)
		if err := <-done; err != nil {
			o.failed.add(err)
		}
	}
}

// write names and hands on what comes, until the queue ends. An error of one
// output is no reason to keep samples from the others: the sink knows which.
func (o *sender) write(queue *inbox[named]) (err error) {
	for {
		n, ok := queue.next()
		if !ok {
			return err
		}
		if n.gone != nil {
			o.cfg.Names.forget(n.gone)
			continue
		}
		if n.batches != 0 {
			queue.rare = n.batches > 0
			continue
		}
		if n.round != nil {
			if s, ok := o.cfg.Sink.(RoundSink); ok {
				err = errors.Join(err, s.EndRound(n.round))
			}
			continue
		}
		n.sample.Stack = o.cfg.Names.stack(n.stack)
		n.sample.Wait = n.stack.wait
		if e := o.cfg.Sink.Add(&n.sample); e != nil {
			err = errors.Join(err, e)
		}
	}
}

func (o *sender) send(t *target, tid int, s *seen, at time.Duration, taken string, w *capture.Weight) {
	name := s.name
	if name == "" {
		name = t.name
	}
	// Credits have the coordinator's time, captures that of their clock: a thread's samples go out in order.
	at = max(at, t.thread(tid).sent)
	t.thread(tid).sent = at
	o.latest = max(o.latest, at)
	o.queue <- named{stack: s.last, sample: output.Sample{
		Time: o.cfg.Start.Add(at), PID: t.pid, TID: tid, Process: t.name, Thread: name,
		State: s.state, GIL: s.gil, Taken: taken, CPU: w.CPU, Wall: w.Wall, Delay: w.Delay, Pause: w.Pause, Late: w.Late,
	}}
}

// batches has what comes wake the goroutine that writes, or no longer.
func (o *sender) batches(on int8) { o.queue <- named{batches: on} }

// forget tells that no more stacks of a process come, round that a round ends.
func (o *sender) forget(p *processNames) { o.queue <- named{gone: p} }
func (o *sender) round(r *Round)         { o.queue <- named{round: r} }

// failure is what went wrong with the outputs and the recording, for the end.
type failure struct{ err error }

func (f *failure) add(err error) { f.err = errors.Join(f.err, err) }
