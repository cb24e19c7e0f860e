package sampler

import (
	"fmt"
	"strings"
)

// Class is what became of one tick of one thread. Each tick of each thread falls
// into exactly one class, and each class has a counter of its own.
type Class uint8

const (
	Sampled     Class = iota // registers and stack were copied
	Idle                     // not running, so not asked for
	Reused                   // has not run since its last stack, which stands
	Unsure                   // blocked at the looks before and after, but it ran in between
	Missed                   // the sampler was too late for the tick
	Throttled                // left out to keep the pauses under --max-overhead
	NotStopped               // interrupted at an earlier tick, and has not stopped yet
	Exited                   // exited before it could be copied
	Untraced                 // running, but may not be stopped: traced by another, or --stop never
	NoRoom                   // no free buffer: unwinding is behind
	Unreadable               // registers or stack could not be read
	NoUserStack              // a worker of the kernel inside the process
	numClasses
)

var classNames = [numClasses]string{"samples", "idle", "reused", "unsure", "missed", "throttled",
	"not stopped yet", "exited", "untraced", "no room", "unreadable", "no user stack"}

// String is the name that the closing line uses.
func (c Class) String() string { return classNames[c] }

// Account counts what became of the ticks.
type Account struct {
	Ticks    int64 // deadlines that have passed
	Late     int64 // of these, answered more than half an interval late
	Expected int64 // ticks x threads: each tick adds the threads that live
	Count    [numClasses]int64
}

// Add counts n ticks of a thread.
func (a *Account) Add(c Class, n int64) { a.Count[c] += n }

// Sum is the total over all classes. It equals Expected when every tick of
// every thread is accounted for.
func (a *Account) Sum() (n int64) {
	for _, c := range a.Count {
		n += c
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
