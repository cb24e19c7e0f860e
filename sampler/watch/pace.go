package watch

import "time"

// Pace decides how often to look at threads that do not run. Where a look finds
// that a thread has run meanwhile, the ticks since the one before are unsure, so
// the time between two looks is a small part of the time that the thread has
// not run for: then few ticks are unsure whatever the rhythm of its waits. Where
// so many threads wait that this costs too much, the part is larger.
type Pace struct {
	part   int64 // of how many ticks without a run one more may be left out
	idle   int   // looks at this tick that found nothing new
	spared int   // ticks in a row that could have done with more looks
}

const (
	// maxGap is the longest time between two looks, in ticks; crowdedGap, where
	// there are too many threads even for that.
	maxGap     = 16
	crowdedGap = 64
	// finest leaves at most 1 tick of 128 unsure, less than one in a hundred.
	finest = 128
	// coarsest goes to maxGap within a second at 99 Hz.
	coarsest = 4

	// lookCost is what reading a thread's run count takes: 1.6 us on the machine
	// that the figures of the design are from.
	lookCost = 1600 * time.Nanosecond
	// lookShare is how much of a CPU may go to such looks: one part in so many.
	lookShare = 12
	// leastLooks are done at every tick however short it is.
	leastLooks = 16
	// spareTicks is how long looks must have been few before there are more.
	spareTicks = 16
)

const (
	// tickCost is what a tick costs for each thread that did nothing: the kernel
	// adds up the process's clock and goes through the tracees of a waiter. 0.26 us
	// on the machine that the figures of the design are from.
	tickCost = 260 * time.Nanosecond
	// tickShare is how much of a CPU may go to that: one part in so many.
	tickShare = 50
	// stillPart is of how many ticks in which nothing ran one more may be left out.
	stillPart = 8
)

// Rest is after how many ticks to tick again when no thread of threads has run
// for still ticks.
func Rest(threads int, still, interval int64) int64 {
	most := 1 + int64(threads)*int64(tickCost)/(interval/tickShare)
	return min(1+still/stillPart, most, maxGap)
}

// Begin begins a tick. The interval to the next is in nanoseconds.
func (p *Pace) Begin(interval int64) {
	if p.part == 0 {
		p.part = finest
	}
	room := max(int(interval/lookShare/int64(lookCost)), leastLooks)
	switch {
	case p.idle > room:
		p.part, p.spared = max(p.part/2, coarsest), 0
	case p.idle > room/2:
		p.spared = 0
	default:
		if p.spared++; p.spared >= spareTicks {
			p.part, p.spared = min(2*p.part, finest), 0
		}
	}
	p.idle = 0
}

// Gap is after how many ticks to look again at a thread that has not been seen
// to run for some ticks. Threads that began to wait together drift apart.
func (p *Pace) Gap(tid int, ticks int64) int64 {
	p.idle++
	most := int64(maxGap)
	if p.part == coarsest {
		most = crowdedGap
	}
	gap := min(1+ticks/p.part, most)
	return gap - int64(tid)%((gap+1)/2)
}
