package ledger

import (
	"fmt"
	"strings"
)

// Class is what became of one tick of one thread.
type Class uint8

const (
	Sampled     Class = iota // registers and stack were copied
	Idle                     // not on a CPU at the tick, so not asked for
	Reused                   // has not run since its last stack, which stands
	Waiting                  // waited for a CPU
	Unsure                   // blocked at the looks before and after, but it ran in between
	Unmet                    // ran, and no clock was where it did, or came too late
	Missed                   // not known: the sampler hung, and the run was given up
	Suspended                // the sampler was stopped itself, as by Ctrl-Z
	Throttled                // left out to keep what is taken under --max-overhead
	NotStopped               // asked to stop at an earlier tick, and has not stopped yet
	Exited                   // ended, or became another program, before it could be copied
	Untraced                 // running, but may not be stopped: traced by another, or --stop never
	InCall                   // in the midst of a system call that a stop would cut short
	NoRoom                   // no free buffer: unwinding is behind
	NoUserStack              // a worker of the kernel inside the process
	Unlocked                 // a stack of a thread that did not hold an interpreter's lock, left out as only those that do are asked for
	NumClasses
)

var classNames = [NumClasses]string{"samples", "idle", "reused", "waiting for a CPU", "unsure", "not met", "missed", "suspended", "throttled",
	"not stopped yet", "exited", "untraced", "in a call", "no room", "no user stack", "without the GIL"}

// String is the name that the closing line uses.
func (c Class) String() string { return classNames[c] }

// Lost tells whether the ticks of a class have found nothing although there may have
// been something to find.
func (c Class) Lost() bool {
	switch c {
	case Unsure, Unmet, Missed, Throttled, NotStopped, NoRoom:
		return true
	}
	return false
}

// Account counts what became of the ticks.
type Account struct {
	Ticks    int64 // that have passed
	Expected int64 // ticks x threads: each tick adds the threads that live
	Count    [NumClasses]int64
}

// Sum is the total over all classes. It equals Expected when every tick of
// every thread is accounted for.
func (a *Account) Sum() (n int64) {
	for _, c := range a.Count {
		n += c
	}
	return n
}

// Leave makes n ticks of a class, as far as it has them, those of stacks that are left out.
func (a *Account) Leave(c Class, n int64) {
	n = min(n, a.Count[c])
	a.Count[c] -= n
	a.Count[Unlocked] += n
}

// Lost is how many ticks are in classes that are losses.
func (a *Account) Lost() (n int64) {
	for c, k := range a.Count {
		if Class(c).Lost() {
			n += k
		}
	}
	return n
}

// String lists the classes that occurred.
func (a *Account) String() string {
	var parts []string
	for c, n := range a.Count {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Class(c)))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}
