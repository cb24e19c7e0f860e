package sampler

import (
	"cmp"

	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// reader copies the stacks of threads that are not stopped. It says nothing of whether they have run meanwhile.
type reader struct {
	pool   *pool
	calm   taking.Kernel
	room   taking.Buffer // of the copy at hand
	kernel []byte        // room for the kernel's part of a stack; nil: not needed yet
}

// get is a capture with room for what is advised, nil if there is none.
func (r *reader) get(a *Advice) *capture.Capture {
	beyond := 0
	if a.Recipe != nil {
		beyond = a.Recipe.Room
	}
	return r.pool.get(cmp.Or(a.Want, firstPeek), beyond)
}

// read copies the stack of a thread from sp on, with the kernel's part of it if that is wanted.
func (r *reader) read(t *thread, sp uint64, a *taking.Advice, c *capture.Capture, kernel bool) {
	taking.Peek(r.calm, t.tid, sp, a, c, int(t.proc.mem.pages), &r.room)
	if kernel {
		r.readKernel(t, c)
	}
}

// maxKernelStack is more than the kernel prints: 64 lines of a symbol each
// (MAX_STACK_TRACE_DEPTH, fs/proc/base.c).
const maxKernelStack = 16 << 10

// readKernel copies the kernel's part of the stack of a blocked thread, where we
// may.
func (r *reader) readKernel(t *thread, c *capture.Capture) {
	if r.kernel == nil {
		r.kernel = make([]byte, maxKernelStack)
	}
	b, err := t.readFile(-1, "stack", r.kernel)
	if err != nil {
		b = nil
	}
	c.Kernel = append(c.Kernel[:0], b...)
}
