package sampler

import "slices"

// outlet is the coordinator's way to the pipeline. It never waits as long as the run goes on, and what is sent
// comes out in its order: what the queue has no room for goes before all that is sent later.
type outlet struct {
	queue   chan<- item
	nudge   chan<- struct{} // with room for one
	backlog []item          // could not be sent yet
	over    func()          // has the pipeline end soon, as sampling is over; any goroutine may call it, and more than once
}

// maxBacklog bounds what waits for the pipeline besides its queue.
const maxBacklog = 1 << 15

// send hands something to the pipeline.
func (o *outlet) send(it item) {
	o.flush()
	urgent := it.urgent() // it is the pipeline's once it is sent
	if len(o.backlog) > 0 || !o.offer(it) {
		o.backlog = append(o.backlog, it)
	}
	if urgent {
		o.hasten()
	}
}

// hasten has the pipeline look at once.
func (o *outlet) hasten() {
	select {
	case o.nudge <- struct{}{}:
	default:
	}
}

// offer sends if there is room.
func (o *outlet) offer(it item) bool {
	select {
	case o.queue <- it:
		return true
	default:
		return false
	}
}

// flush sends what has waited, as far as there is room, but nothing while there is little: what is left is moved each time.
func (o *outlet) flush() {
	if len(o.queue) > cap(o.queue)/2 {
		return
	}
	n := 0
	for n < len(o.backlog) && o.offer(o.backlog[n]) {
		n++
	}
	o.backlog = slices.Delete(o.backlog, 0, n)
}

// empty tells that nothing waits to be sent; behind, that the pipeline does not keep up.
func (o *outlet) empty() bool  { return len(o.backlog) == 0 }
func (o *outlet) behind() bool { return len(o.backlog) > maxBacklog }

// rest hands over all that has waited, when the run is over, and waits for room.
func (o *outlet) rest() {
	for _, it := range o.backlog {
		o.queue <- it
	}
}

// end tells the pipeline that nothing more comes, and waits for room. Any goroutine may call it.
func (o *outlet) end() {
	o.queue <- item{end: true}
	o.hasten()
}
