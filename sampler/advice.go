package sampler

import (
	"sync/atomic"

	"sfsample/sampler/taking"
)

// Advice is what unwinding tells of a thread, for its next captures.
type Advice struct {
	taking.Advice
	// NeedStop is the run count (schedstat) of a capture without registers that
	// could not be unwound for want of them; 0: none.
	NeedStop uint64
	// Short: the last capture was made at a stop, and the stack goes on behind it, or it has nothing of the thread's script.
	Short bool
	// Foreign: the thread's system calls have other numbers than the kernel's
	// own, as those of a 32-bit one.
	Foreign bool
}

// Feedback is the way of advice from unwinding to the engine: one value, which is
// replaced and never changed.
type Feedback struct {
	p atomic.Pointer[Advice]
	// marks are the last ones of any thread of the process: what one has met others may meet. nil: nobody has them.
	marks *atomic.Pointer[taking.Marks]
	kin   *atomic.Pointer[Kin] // nil: nobody has it
}

// Kin is what the threads of a process have told of where further stacks are, for one of which nothing is known. It never changes.
type Kin struct {
	Others [2]taking.Other
	Beyond int
	Words  [4]KinWord // for one whose own structures are known
}

// KinWord is where on a thread's stacks a word leads to another: so far below the stack pointer with which the thread's own was left last, or below the end of the
// stack whose record's address is stored Field bytes into what the runtime keeps of the thread.
type KinWord struct {
	Field int32
	Below uint64
	Bytes int // to copy; 0: there is none
}

// known is what is known of the thread's kin, nil if nothing is.
func (f *Feedback) known() *Kin {
	if f.kin == nil {
		return nil
	}
	return f.kin.Load()
}

// learn makes that k.
func (f *Feedback) learn(k *Kin) {
	if f.kin != nil && f.kin.Load() != k {
		f.kin.Store(k)
	}
}

// Get is the advice as it stands.
func (f *Feedback) Get() (a Advice) {
	if p := f.p.Load(); p != nil {
		a = *p
	} else if k := f.known(); k != nil {
		copy(a.Others[:], k.Others[:])
		a.Beyond = k.Beyond
	}
	if f.marks != nil {
		a.Marks = f.marks.Load()
	}
	return a
}

// advised is a state of a Feedback.
type advised struct {
	p     *Advice
	marks *taking.Marks
	kin   *Kin
}

// state is the one of now: another one is news, of this thread or of what any of its process has met.
func (f *Feedback) state() advised {
	a := advised{p: f.p.Load()}
	if f.marks != nil {
		a.marks = f.marks.Load()
	}
	if a.p == nil {
		a.kin = f.known()
	}
	return a
}

// Set replaces it.
func (f *Feedback) Set(a Advice) {
	if old := f.p.Load(); old == nil || *old != a {
		fresh := a // not a itself, which would be made anew on the heap at each call
		f.p.Store(&fresh)
	}
	if f.marks != nil {
		f.marks.Store(a.Marks)
	}
}
