package sampler

import (
	"sync"
	"sync/atomic"

	"sfsample/regs"
	"sfsample/sampler/capture"
)

// Sizes of stack copies, in bytes.
const (
	// newCopy is what a stop copies, if there is as much, of a thread of which
	// nothing has been unwound yet. That may be several stops: tables are read
	// for the first time then.
	newCopy = 256 << 10
	// firstCopy is what it copies when captures under way hold much memory.
	firstCopy = 32 << 10
	// firstPeek is what the first look without a stop copies: more can be read
	// later, while the thread does not run.
	firstPeek = 8 << 10
	// minCopy costs hardly more than a single word does.
	minCopy = 4 << 10
	// usualCopy is where the copies of a thread that needs less shrink from, each by a part in slowly: a deeper call may come. That
	// many bytes take 1 us more than minCopy.
	usualCopy  = 16 << 10
	slowly     = 256
	lessSlowly = 64 // for further stacks
	// maxCopy bounds what one stop copies; deeper stacks are cut.
	maxCopy = 8 << 20
	// maxOut bounds the captures under way.
	maxOut = 4096
	// poolBytes bounds the stack bytes of all captures under way.
	poolBytes = 24 << 20
	// What may be under way beyond that if it is of threads at their exit: they have
	// no other tick.
	moreOut   = 1024
	moreBytes = 8 << 20
	// keptBytes bounds those of the captures that wait to be used again.
	keptBytes = 2 << 20
)

// pool hands out captures with room for registers and stack, so that nothing
// is allocated while a thread is stopped. It is safe for concurrent use.
type pool struct {
	mu    sync.Mutex
	free  []*capture.Capture // by no order
	kept  int                // stack bytes of those
	large []byte             // the last large stack that came back
	used  int                // stack bytes handed out
	out   int                // captures handed out

	// asks: of some thread it has been found out since this was last cleared that
	// a blocked one is to be stopped (see Feedback).
	asks atomic.Bool
}

// get returns a capture with room for stackBytes of stack and beyondBytes of
// the stack beyond a signal handler's, nil when the bound on captures under way
// is reached.
func (p *pool) get(stackBytes, beyondBytes int) *capture.Capture {
	return p.take(stackBytes, beyondBytes, poolBytes, maxOut)
}

// last is get for a thread at its exit. There may be less room than was asked for.
func (p *pool) last(stackBytes, beyondBytes int) *capture.Capture {
	if c := p.get(stackBytes, beyondBytes); c != nil {
		return c
	}
	return p.take(min(stackBytes, firstCopy), min(beyondBytes, firstCopy), poolBytes+moreBytes, maxOut+moreOut)
}

// take is get with these bounds.
func (p *pool) take(stackBytes, beyondBytes, mostBytes, mostOut int) *capture.Capture {
	p.mu.Lock()
	defer p.mu.Unlock()
	var c *capture.Capture
	if n := len(p.free); n > 0 {
		c, p.free = p.free[n-1], p.free[:n-1]
		p.kept -= held(c)
	} else {
		c = &capture.Capture{Regs: capture.Registers{Note: make([]byte, 0, regs.PrstatusMaxBytes)}}
	}
	// One capture may always be under way, however large.
	need := max(cap(c.Stack.Bytes), stackBytes) + max(cap(c.Beyond.Bytes), beyondBytes)
	if p.used > 0 && p.used+need > mostBytes || p.out >= mostOut {
		p.keep(c)
		return nil
	}
	if cap(c.Stack.Bytes) < stackBytes && cap(p.large) >= stackBytes {
		c.Stack.Bytes, p.large = p.large, nil
	}
	if cap(c.Stack.Bytes) < stackBytes {
		c.Stack.Bytes = make([]byte, 0, stackBytes)
	}
	if cap(c.Beyond.Bytes) < beyondBytes {
		c.Beyond.Bytes = make([]byte, 0, beyondBytes)
	}
	p.used += held(c)
	p.out++
	return c
}

// first is how many bytes of stack to copy of a thread of which nothing is known.
func (p *pool) first() int {
	if p.scarce() {
		return firstCopy
	}
	return newCopy
}

// scarce tells whether captures under way hold much of what they may.
func (p *pool) scarce() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used > poolBytes/4 || p.out > maxOut/4
}

// held is how many stack bytes a capture takes.
func held(c *capture.Capture) int { return cap(c.Stack.Bytes) + cap(c.Beyond.Bytes) }

// grown takes note of a capture that was given more room by others.
func (p *pool) grown(by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used += by
}

// put takes back a capture that nobody uses any more.
func (p *pool) put(c *capture.Capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= held(c)
	p.out--
	stack := c.Stack.Bytes[:0]
	if cap(stack) > keptBytes/16 { // one such need not cost many others
		p.large, stack = stack, nil
	}
	c.Beyond.Reset()
	c.Marks.Reset()
	*c = capture.Capture{Regs: capture.Registers{Note: c.Regs.Note[:0], FP: c.Regs.FP[:0]}, Stack: capture.Stack{Bytes: stack}, Beyond: c.Beyond,
		Roots: c.Roots[:0], Marks: c.Marks, Kernel: c.Kernel[:0]}
	p.keep(c)
}

// keep lets a capture wait to be used again, with its stacks if there is room.
func (p *pool) keep(c *capture.Capture) {
	if p.kept+held(c) > keptBytes {
		c.Stack.Bytes, c.Beyond.Bytes = nil, nil
	}
	if len(p.free) < 1024 {
		p.kept += held(c)
		p.free = append(p.free, c)
	}
}
