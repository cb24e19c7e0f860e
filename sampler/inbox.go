package sampler

import "time"

// lookEvery is how often a receiver looks for what has come while something
// comes at all, and idleLooks how many looks in vain end that.
const (
	lookEvery = 10 * time.Millisecond
	idleLooks = 100
)

// inbox receives from a channel without being woken for each item. To wake
// somebody costs the tracing thread more than the rest of a tick, and who wakes
// may take the CPU from the target.
type inbox[T any] struct {
	c     <-chan T
	nudge <-chan struct{} // something has come that cannot wait; may be nil
	timer *time.Timer
	idle  int
}

func newInbox[T any](c <-chan T, nudge <-chan struct{}) *inbox[T] {
	b := &inbox[T]{c: c, nudge: nudge, timer: time.NewTimer(lookEvery)}
	b.timer.Stop()
	return b
}

// next returns the next item; false means that the channel is closed.
func (b *inbox[T]) next() (item T, ok bool) {
	for {
		select {
		case item, ok = <-b.c:
			b.idle = 0
			return item, ok
		default:
		}
		if b.idle++; b.idle > idleLooks {
			item, ok = <-b.c
			b.idle = 0
			return item, ok
		}
		b.timer.Reset(lookEvery)
		select {
		case <-b.nudge:
			b.timer.Stop()
		case <-b.timer.C:
		}
	}
}
