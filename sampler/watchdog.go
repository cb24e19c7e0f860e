package sampler

import (
	"context"
	"errors"
	"time"

	"sfsample/ptrace"
)

// hung is for how long a thread of ours may get nowhere until it counts as hanging: a page that no server
// brings, or a lock of the kernel, can keep it for ever.
const hung = time.Second

// errHung is the end of a run whose coordinator hangs: there is nothing more to come.
var errHung = errors.New("sample: the target's files in /proc cannot be read for a second, reading them hangs (try: cat /proc/PID/stack, with the target's number); what was sampled until then is written")

// watch is the watchdog of a run. It holds nothing and reads nothing of the target, so that it cannot hang itself.
// It waits for the engine's end, asks for it when ctx is done or a clock holds a stopped thread and gets
// nowhere, and reports progress. An error is that the coordinator hangs: it will not end.
func (e *engine) watch(ctx context.Context, done <-chan struct{}, progress func(Progress)) error {
	every := hung / 2
	if progress != nil {
		every = hung / 4
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	cancelled := ctx.Done()
	ending := false
	end := func() {
		if !ending {
			ending = true
			close(e.stop)
		}
	}
	for {
		select {
		case <-done:
			return nil
		case <-cancelled:
			cancelled = nil
			end()
		case <-tick.C:
			now := ptrace.Now()
			if since := e.busy.Load(); since != 0 && now-since > int64(hung) {
				return errHung
			}
			if b := e.shared.Load(); b != nil && !ending {
				if tid, since := b.Held(); since != 0 && now-since > int64(hung) {
					e.log.Warn("the copy of a stack hangs, and the thread stands still: the run ends here", "tid", tid)
					end()
				}
			}
			if p := e.status.Load(); p != nil && progress != nil {
				progress(*p)
			}
		}
	}
}

// works notes that the coordinator goes on with what may hang.
func (e *engine) works() { e.busy.Store(ptrace.Now()) }

// rests notes that the coordinator waits for nothing of the target.
func (e *engine) rests() { e.busy.Store(0) }
