package sampler

import "time"

const (
	// lookEvery is how often a receiver looks for what has come while something
	// comes at all, and idleLooks how many looks in vain end that.
	lookEvery = 10 * time.Millisecond
	idleLooks = 100
	// lookSeldom is how often it looks after steadyLooks looks that each found
	// a few items and nothing that somebody waits for.
	lookSeldom  = 40 * time.Millisecond
	steadyLooks = 100
	fewItems    = 256

	// mostLook bounds both. Where ticks are rarer than that, or the sender says so, each item wakes the receiver: all of a tick, or of several, come at once.
	mostLook = 250 * time.Millisecond
)

// inbox receives from a channel without being woken for each item. To wake
// somebody costs the tracing thread more than the rest of a tick, and who wakes
// may take the CPU from the target.
type inbox[T any] struct {
	c             <-chan T
	nudge         <-chan struct{} // something has come that cannot wait; may be nil
	often, seldom time.Duration   // from look to look
	timer         *time.Timer
	rare          bool // each item wakes the receiver
	idle          int  // looks in vain, in a row
	found         int  // items since the last pause
	steady        int  // looks since anybody was in a hurry
}

// newInbox is an inbox of what comes each tick.
func newInbox[T any](c <-chan T, nudge <-chan struct{}, tick time.Duration) *inbox[T] {
	b := &inbox[T]{
		c: c, nudge: nudge, timer: time.NewTimer(lookEvery),
		rare: tick > mostLook, often: max(lookEvery, min(tick, mostLook)), seldom: max(lookSeldom, min(lookSeldom/lookEvery*tick, mostLook)),
	}
	b.timer.Stop()
	return b
}

// hurry makes looks frequent for a while: the sender acts on what the receiver
// makes of an item.
func (b *inbox[T]) hurry() { b.steady = 0 }

// next returns the next item; false means that the channel is closed.
func (b *inbox[T]) next() (item T, ok bool) {
	for {
		select {
		case item, ok = <-b.c:
			b.found++
			return item, ok
		default:
		}
		if !b.pause() {
			item, ok = <-b.c
			b.found++
			return item, ok
		}
	}
}

// pause waits until it is time to look again. false: nothing has come for so
// long that the next item may wake the receiver.
func (b *inbox[T]) pause() bool {
	switch {
	case b.rare:
		return false
	case b.found == 0:
		b.idle++
	case b.found > fewItems:
		b.idle, b.steady = 0, 0
	default:
		b.idle = 0
		b.steady++
	}
	b.found = 0
	if b.idle > idleLooks {
		b.idle = 0
		return false
	}
	every := b.often
	if b.steady >= steadyLooks {
		every = b.seldom
	}
	b.timer.Reset(every)
	select {
	case <-b.nudge:
		b.timer.Stop()
	case <-b.timer.C:
	}
	return true
}
