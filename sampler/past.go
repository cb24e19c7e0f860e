package sampler

import (
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/unwind"
)

// A capture is unwound some time after it was taken, with what is mapped then. That
// is what was mapped at its own moment if the objects were looked at before and
// after that moment and were the same, and were not something else in between:
//
//   - An object that the program needs stays (module.Code.Fixed).
//   - Of others that were met on stacks, captures hold what they are recognised by (marks.go), read at the same moment. That
//     decides, whatever became of the object before and after. Where nobody has asked for that yet, as in the first sample with
//     an object, nothing does: what mremap moves takes its pages along, and neither page faults nor any number of /proc tell.
//   - A thread that has not run since has its stack at the time of a later look, too, which decides.
//   - Code that is no object's, where one was before: code that is mapped anew has to be faulted in before it can run, which is
//     counted also where mmap or madvise does so beforehand (mm_account_fault, mm/memory.c). If the process
//     had no page fault between two looks, no other object has come and gone again.
//   - Generated code has come and gone if the program has told otherwise of it. If it ever has, looks must be close together; if
//     it often does (module.Code.Retold), even closer.
//
// Where that does not hold, the stack is cut before the frame.

const (
	// closeLooks is little more than the time between two looks of a pipeline at its
	// inbox (lookEvery).
	closeLooks = 18 * time.Millisecond
	// quickLooks is little more than the time between two looks at a thread that has not run: nothing that often
	// changes is known to have come and gone again.
	quickLooks = time.Millisecond
	// apartForEver stands for a look that is missing.
	apartForEver = time.Duration(math.MaxInt64)
	// newCode is for how long after code was new looks are frequent, and page faults counted.
	newCode = time.Second
	// stampSlack: a capture bears the time at which it was sent, after its thread
	// was let go.
	stampSlack = time.Millisecond
)

// past is what is known of when which code was mapped in a process. Times are since
// the start of the run.
type past struct {
	looks    []look   // the last ones, in their order
	changes  []change // the last ones, in their order
	lost     time.Duration
	moved    bool          // objects came and went
	calm     time.Duration // when code was last new
	marked   marked        // what captures are to hold of that
	unlisted bool          // its mappings are there and are not read
	over     bool          // the process has ended or is another program
	once     bool          // there are no later captures: how often code is told otherwise is not waited for
}

// look is one comparison of the objects of a process with its memory.
type look struct {
	began, ended time.Duration
	faults       uint64 // of the process before it
	counted      bool   // faults is known
}

// change is code that was other code, or none, at the look that began at since, and
// was seen at noted to have changed.
type change struct {
	module.Change
	since, noted time.Duration
}

// Bounds of what is kept. What falls out makes stacks doubtful, not wrong.
const (
	maxLooks = 16
	maxPast  = 256
)

// attest looks at the objects of a process, if that was not done since the time at.
func (ws *walks) attest(t *target, at time.Duration) {
	if !ws.cfg.Live || t.space == nil || t.past.over || ws.cfg.Until.Over() || t.past.last().began >= at && len(t.past.looks) > 0 {
		return
	}
	h := &t.past
	l := look{began: time.Since(ws.cfg.Start)}
	// Else nobody will ask for the faults, whose number the kernel adds up over all threads.
	if h.moved || len(h.looks) == 0 || l.began-h.calm < 2*newCode {
		s, err := proc.Stat(t.pid)
		if err != nil || ended(&s) {
			h.over = true
			return
		}
		l.faults, l.counted = s.Faults, true
	}
	known, err := lookAt(t.space)
	h.unlisted = module.Refused(err) && len(t.space.Mappings()) == 0
	if err != nil {
		h.over = errors.Is(err, unix.ESRCH)
		ws.cfg.Log.Debug("verify the modules", "pid", t.pid, "err", err)
		return
	}
	l.ended = known.Sub(ws.cfg.Start)
	ws.hurry = h.note(t.space, time.Since(ws.cfg.Start)) || h.moved || l.began-h.calm < newCode || ws.hurry
	h.add(l)
}

// ended tells whether a process has no memory any more, or is about to lose it.
func ended(s *procfs.Stat) bool {
	return s.Threads <= 1 && (s.State == 'Z' || s.State == 'X' || s.Flags&procfs.FlagExiting != 0)
}

// lookAt compares the objects with memory. What it finds anew was read after the list
// of mappings, and may be of another object: it stands when a second list is the same.
// known is from when on that was so.
func lookAt(s Target) (known time.Time, err error) {
	if len(s.Mappings()) > 0 {
		if changed, err := s.Verify(); err != nil || !changed {
			return time.Now(), err
		}
		known = s.Listed()
	}
	for range maxWalks {
		gen := s.Generation()
		if err := s.Refresh(); err != nil {
			return known, err
		}
		if s.Generation() == gen {
			return known, nil
		}
		known = s.Listed()
	}
	return known, errUnsteady
}

var errUnsteady = errors.New("the mappings change all the time")

func (h *past) last() look {
	if len(h.looks) == 0 {
		return look{}
	}
	return h.looks[len(h.looks)-1]
}

func (h *past) add(l look) {
	if len(h.looks) == maxLooks {
		h.looks = slices.Delete(h.looks, 0, 1)
	}
	h.looks = append(h.looks, l)
}

// known takes a look at all mappings that was made right after the capture at.
func (h *past) known(at time.Duration, s History) {
	h.note(s, at-stampSlack)
	h.add(look{began: at, ended: at - stampSlack})
}

// note takes over the changes that were noted at a time.
func (h *past) note(s History, at time.Duration) (any bool) {
	if len(h.looks) == 0 {
		h.calm = at
	}
	for _, c := range s.Changes() {
		h.calm, any = at, true
		if len(h.changes) == maxPast {
			h.lost = h.changes[0].noted
			h.changes = slices.Delete(h.changes, 0, 1)
		}
		h.changes = append(h.changes, change{c, h.last().began, at})
		h.moved = h.moved || c.Replaced
	}
	return any
}

// moment is a time that a capture is known to be of, since the start of the run, and what it tells of the code then.
type moment struct {
	first, last time.Duration
	marks       *capture.Copies
	looked      bool // the last look was at a time of which it is, too
}

// momentOf is when a capture was taken.
func momentOf(c *capture.Capture) moment {
	return moment{first: c.At - c.Weight.Pause - stampSlack, last: c.At, marks: &c.Marks}
}

// surely walks the stack of a capture, and returns how many of its frames are of code
// that was mapped at its moment for certain. It notes in the capture where that ends.
func (ws *walks) surely(t *target, c *capture.Capture, u *regs.User) (frames []unwind.Frame, end unwind.End, sure int) {
	gen := t.space.Generation()
	frames, end = ws.walk(t, c, u)
	if ws.cfg.Live && t.space.Generation() != gen {
		// Found on the way, and not confirmed yet.
		if _, err := lookAt(t.space); err != nil {
			ws.cfg.Log.Debug("verify the modules", "pid", t.pid, "err", err)
		}
		frames, end = ws.walk(t, c, u)
	}
	if !ws.cfg.Live {
		return frames, end, ws.sure(t, c, frames, moment{})
	}
	c.Doubt = capture.Range{}
	if sure = ws.sure(t, c, frames, momentOf(c)); sure == len(frames) || c.Taken != capture.Unstopped || ws.cfg.Until.Over() {
		return frames, end, sure
	}
	// A thread that has not run since still has this stack: a later moment will do.
	asked := time.Since(ws.cfg.Start)
	ws.attest(t, asked)
	looked := t.past.last().began >= asked
	now := time.Since(ws.cfg.Start)
	if s, err := proc.Task(c.PID, c.TID).Schedstat(); err != nil || s.Count != c.Count {
		return frames, end, sure
	}
	ws.attest(t, now)
	c.Doubt = capture.Range{}
	frames, end = ws.walk(t, c, u)
	return frames, end, ws.sure(t, c, frames, moment{first: now, last: now, marks: new(capture.Copies), looked: looked})
}

// sure returns how many of the frames of a capture are of code that was mapped at its
// moment for certain.
func (ws *walks) sure(t *target, c *capture.Capture, frames []unwind.Frame, at moment) int {
	if ws.cfg.Live {
		t.past.note(t.space, time.Since(ws.cfg.Start))
	}
	var alike capture.Range // code whose frames are all as sure as one: nothing has changed there
	for i := range frames {
		pc := frames[i].LookupPC()
		if alike.Start <= pc && pc < alike.End {
			continue
		}
		if ws.cfg.Live && t.past.doubtful(t.space, at, pc, ws.cfg.Start) {
			c.Doubt = capture.Range{Start: pc, End: pc + 1}
			if code, ok := t.space.CodeAt(pc); ok {
				c.Doubt = capture.Range{Start: code.Start, End: code.End}
			}
		}
		if c.Doubt.Start <= pc && pc < c.Doubt.End {
			return i
		}
		if ws.cfg.Live && len(t.past.changes) == 0 {
			code, _ := t.space.CodeAt(pc)
			alike = capture.Range{Start: code.Start, End: code.End}
		}
	}
	return len(frames)
}

// doubtful tells whether other code than now may have been at pc at a time.
func (h *past) doubtful(s Place, at moment, pc uint64, start time.Time) bool {
	code, ok := s.CodeAt(pc)
	if ok && !code.Fixed {
		if asked, same := borne(at.marks, code.Marks); asked {
			return !same
		}
	}
	if h.lost > 0 && at.first < h.lost {
		return true
	}
	moved := code.Moved
	for i := range h.changes {
		x := &h.changes[i]
		switch {
		case pc < x.Start || pc >= x.End || x.noted <= at.first:
		case x.Replaced || moved || x.since > at.first || x.noted-x.since > closeLooks:
			return true
		}
	}
	quiet, apart := h.around(at)
	switch {
	case apart > h.needed(code.Retold):
		return true
	case !ok || code.Module == nil || code.Fixed:
		return moved && !quiet
	}
	return !at.looked || !code.Proven || !code.Since.Before(start.Add(at.first))
}

// needed is how far apart looks at generated code may be.
func (h *past) needed(r module.Retold) time.Duration {
	switch {
	case r == module.Often, r == module.New && !h.once:
		return quickLooks
	case r == module.Seldom:
		return closeLooks
	}
	return apartForEver
}

// around tells what is known of the time between the looks before and after
// another: quiet, that the process had no page fault; apart, how long it was.
func (h *past) around(at moment) (quiet bool, apart time.Duration) {
	var before *look
	for i := range h.looks {
		l := &h.looks[i]
		if l.ended <= at.first {
			before = l
		}
		if l.began < at.last {
			continue
		}
		if before == nil {
			return false, apartForEver
		}
		return before == l || before.counted && l.counted && before.faults == l.faults, l.began - before.ended
	}
	if h.over {
		return false, closeLooks // nothing more can be known
	}
	return false, apartForEver
}
