package sampler

import (
	"encoding/binary"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

// arm marks a thread for the interrupts of tick n and reserves the buffer that
// its stop will fill.
func (e *engine) arm(t *thread, n int64) {
	t.wakes()
	t.stack = false
	e.trace(t)
	if !t.seized {
		e.lose(t, n, Untraced)
		return
	}
	if t.cap = e.pool.get(t.fb.want(e.pool.first()), t.fb.beyond()); t.cap == nil {
		e.lose(t, n, NoRoom)
		return
	}
	t.interrupted, t.intTick, t.guessed = true, n, 0
	e.outstanding = append(e.outstanding, t)
}

// interruptAll sends the interrupts of the threads that were armed since the
// list of outstanding ones had first entries.
func (e *engine) interruptAll(first int) {
	if len(e.outstanding) == first {
		return
	}
	e.fresh, e.polling = true, e.place.poll(e.outstanding)
	armed := e.outstanding[first:]
	if e.polling && first == 0 && len(armed) <= maxRehearsed {
		for _, t := range armed {
			t.rehearse()
		}
	}
	for _, t := range armed {
		t.intAt = ptrace.Now()
		// ESRCH: it is exiting; the report of its exit accounts for the tick.
		if ptrace.Interrupt(t.tid) == nil {
			e.sent++
		}
	}
	e.most = max(e.most, len(e.outstanding))
}

// rehearse copies the stack of a running thread to where its stop will copy it
// again. What that reads is worth nothing, but the copy that counts then finds
// the stack, the page tables and its own buffer in this CPU's caches. It also
// settles what is copied ahead: see [thread.ahead].
func (t *thread) rehearse() {
	from := t.base &^ 4095 // for stacks that are a little shorter
	x := t.fb.Extent.Load()
	if x != nil {
		from = max(from, x.low)
	}
	n, ok := x.bytes(from, min(cap(t.cap.Stack), rehearsedBytes))
	if !ok {
		return
	}
	if n = t.proc.pages.present(from, n); n > 0 { // it may be another stack by now
		n, _ = ptrace.ReadMemory(t.tid, from, t.cap.Stack[:n])
		if t.fb.SavedSP.Load() == 0 {
			t.guess, t.guessed = from, n
		}
	}
}

const (
	// maxRehearsed is for how many threads at a tick that is done: all of them,
	// and who has something to report, wait for it.
	maxRehearsed = 2
	// rehearsedBytes is what may be read of each.
	rehearsedBytes = 64 << 10
)

// spin is how long stops are polled for before the thread sleeps in wait4. A
// stop that comes while we poll saves the wake-up of this thread, about a
// quarter of the pause.
const spin = 40 * time.Microsecond

// collect takes the stops that come at once. Those that have not come since an
// earlier tick are those of threads that wait for a CPU, perhaps for this one.
func (e *engine) collect() {
	fresh := e.fresh
	e.fresh = false
	if !fresh || !e.polling {
		return
	}
	end := ptrace.Now() + min(int64(spin), e.interval/4)
	for len(e.outstanding) > 0 {
		// The list changes as stops are handled: walk it from the end.
		for i := len(e.outstanding) - 1; i >= 0 && i < len(e.outstanding); i-- {
			s, ok, err := ptrace.Poll(e.outstanding[i].tid)
			if ok {
				e.handle(s)
			} else if err == unix.ECHILD {
				e.vanished(e.outstanding[i])
			}
		}
		if ptrace.Now() >= end {
			break
		}
	}
	for _, t := range e.outstanding {
		t.late = true
	}
}

// vanished handles a thread that the kernel does not report any more. If its
// process lives, that has called exec from another thread, and the report of it
// is to come, or it is found out at the next tick; else somebody else has waited
// for its end.
func (e *engine) vanished(t *thread) {
	if e.there(t.proc) {
		e.settle(t, Exited)
		return
	}
	t.seized = false
	e.drop(t)
}

// note tells the journal, if there is one.
func (e *engine) note(k ptrace.Kind, tid int) {
	if e.opt.journal != nil {
		e.opt.journal(k, tid, e.tick)
	}
}

// handle answers one report of a tracee.
func (e *engine) handle(s ptrace.Status) {
	t := e.threads[s.TID]
	if t != nil && t.spared { // a tracee made it, who has not told yet
		t.unspare()
		t.seized = true
	}
	switch s.Kind {
	case ptrace.KindSignal:
		// First of all: the thread waits for it.
		takeBackAtSignal(e.fs, s.TID)
		e.cont(s.TID, s.Signal)
		e.interruptAgain(t)
	case ptrace.KindInterrupt, ptrace.KindGroupStop:
		e.note(s.Kind, s.TID)
		e.onStop(t, s)
	case ptrace.KindClone, ptrace.KindFork, ptrace.KindVfork:
		e.onBirth(t, s)
	case ptrace.KindExec:
		e.note(s.Kind, s.TID)
		e.onExec(t, s)
	case ptrace.KindExit:
		e.onExit(t, s)
	case ptrace.KindGone:
		e.note(s.Kind, s.TID)
		e.onGone(t, s)
	default:
		e.cont(s.TID, 0)
		e.interruptAgain(t)
	}
}

// interruptAgain repeats an interrupt that another stop may have eaten: the
// kernel forgets a pending one when the thread stops for any reason
// (kernel/signal.c, ptrace_stop). If it had not, one stop more comes, which is
// let go.
func (e *engine) interruptAgain(t *thread) {
	if t != nil && t.interrupted {
		ptrace.Interrupt(t.tid)
	}
}

// atExit tells whether a thread that has stopped for something else is at its exit
// by now, since it was killed. That stop is reported yet, and is the one to answer.
// A thread that is killed between this question and the answer leaves no stack; the
// count of exits tells.
func (e *engine) atExit(tid int) bool { return e.opt.ExitStacks && ptrace.AtExit(tid) }

// cont lets a thread go on that has stopped for anything but its exit.
func (e *engine) cont(tid int, sig unix.Signal) {
	if !e.atExit(tid) {
		ptrace.Cont(tid, sig)
	}
}

// resume lets a stopped thread go on as it was: a group-stop lasts.
func resume(s ptrace.Status) error {
	if s.Kind == ptrace.KindGroupStop {
		return ptrace.Listen(s.TID)
	}
	return ptrace.Cont(s.TID, 0)
}

// resume is [resume] unless the thread is at its exit: then it is false.
func (e *engine) resume(s ptrace.Status) bool {
	return !e.atExit(s.TID) && resume(s) == nil
}

// onStop handles an interrupt's stop, a new thread's first one, and group-stops.
func (e *engine) onStop(t *thread, s ptrace.Status) {
	switch {
	case t == nil && e.released[s.TID]:
		delete(e.released, s.TID)
		ptrace.Detach(s.TID, 0)
	case t == nil: // born, but its parent's report has not come yet
		e.resume(s)
		e.orphan(s.TID)
	case t.interrupted:
		e.sample(t, s)
	default:
		e.resume(s)
	}
}

// sample copies what is needed of a stopped thread and lets it go. Between the
// report of the stop and the resumption three system calls are made, one or two
// more where the stack is not all where it was guessed to be, or a signal handler
// is on a stack of its own.
func (e *engine) sample(t *thread, s ptrace.Status) {
	ptrace.Pin()
	stopped := ptrace.Now()
	c, pinned, anew := t.cap, true, false
	ahead := t.ahead()
	note := c.Regs[:cap(c.Regs)]
	n, err := ptrace.ReadRegs(t.tid, ptrace.NotePrstatus, note)
	if err == nil {
		c.Regs = note[:n]
		if s.Kind == ptrace.KindInterrupt {
			anew = e.takeBack(t, c.Regs)
		}
		sp, saved := ptrace.StackPointer(c.Regs), t.fb.SavedSP.Load()
		if saved != 0 || !t.readAhead(sp, ahead) && !readPinned(t.tid, sp, c, t.fb.Extent.Load()) {
			ptrace.Unpin()
			pinned = false
			readStack(t.tid, sp, c, t.fb.Extent.Load(), t.proc.pages)
			readBeyond(t.tid, saved, c, t.fb.BeyondExtent.Load(), t.proc.pages)
		}
	}
	extraRegs(t, c)
	lives := e.resume(s)
	resumed := ptrace.Now()
	if pinned {
		ptrace.Unpin()
	}

	if err == nil {
		trimStack(c, ptrace.StackPointer(c.Regs))
	}
	e.taken++
	t.again, t.asking = t.asking, false
	if t.again && err == nil && ptrace.StackPointer(c.Regs) == t.wait.SP {
		// Not every architecture tells at a stop which call it has met.
		c.Blocked, c.Call.NR = true, t.wait.NR
	}
	t.cap, t.base = nil, c.StackAddr
	e.disarm(t)
	if err != nil || !lives || t.proc.became { // killed while stopped, or of a program that is not known yet
		e.pool.put(c)
		e.acct.Add(Exited, t.owed(e.tick))
		t.done = e.tick + 1
		return
	}
	c.Taken = capture.Stopped
	c.Delay, c.Pause = time.Duration(stopped-t.intAt), time.Duration(resumed-stopped)
	e.delay.add(c.Delay)
	e.pause.add(c.Pause)
	e.load.add(t, c.Pause)
	// The tick of the interrupt is the sample's; later ones passed in waiting.
	e.acct.Add(Sampled, t.intTick+1-t.done)
	e.acct.Add(NotStopped, e.tick-t.intTick)
	t.done = e.tick + 1
	// The run time of a thread that was just stopped is exact.
	st, err := t.schedstat(e.buf[:])
	if err != nil {
		st.Run = t.run
	}
	c.Count = st.Count
	if anew {
		t.anew = again{st}
	}
	e.emit(t, t.intTick, c, st.Run)
	if t.late || t.near == 1 {
		t.locate(e.fs)
		if len(e.outstanding) == 0 {
			e.place.avoid(t)
		}
	}
}

// takeBack is [Options.takeBack] between ptrace.Pin and ptrace.Unpin.
func (e *engine) takeBack(t *thread, note []byte) (anew bool) {
	if ptrace.Restarts(t.tid, note) {
		ptrace.Unpin() // rare, and filters are told of in a file
		defer ptrace.Pin()
	}
	waited := time.Duration(0)
	if t.asking {
		waited = time.Duration((e.tick - t.since) * e.interval)
	}
	return e.opt.takeBack(e.fs, t.tid, note, waited)
}

// orphan remembers a thread that stopped for the first time before its parent
// reported it.
func (e *engine) orphan(tid int) {
	if len(e.orphans) < 1<<16 {
		e.orphans[tid] = true
	}
	e.adopt(tid)
}

// adopt begins to sample a thread that is our tracee already.
func (e *engine) adopt(tid int) {
	if e.threads[tid] != nil {
		return
	}
	p := e.processOf(tid)
	if p == nil {
		st, err := e.fs.Status(tid)
		if err != nil {
			return // gone already; its report will be reaped
		}
		if p = e.procs[st.Tgid]; p == nil && !e.opt.Children {
			e.release(tid)
			return
		}
		if p == nil {
			p = e.addProcess(st.Tgid)
			p.cpuBase, p.brief = 0, true
			e.send(item{fork: fork{st.PPid, st.Tgid}})
		}
	}
	t := e.newThread(p, tid)
	t.seized = true
	e.keep(t)
}

// maxAsked bounds how many processes are asked for a thread.
const maxAsked = 4

// processOf is the process that a thread belongs to, nil if that is not easily
// found out: tgkill(2) with signal 0 asks that in one short call, without the files
// of /proc, and births may come by thousands a second.
func (e *engine) processOf(tid int) *process {
	asked := 0
	for pid, p := range e.procs {
		if unix.Tgkill(pid, tid, 0) == nil {
			return p
		}
		if asked++; asked == maxAsked {
			break
		}
	}
	return nil
}

// release gives up a tracee that is not to be sampled: a process that was
// cloned by one of ours.
func (e *engine) release(tid int) {
	ptrace.Interrupt(tid)
	e.released[tid] = true
}

func (e *engine) onBirth(t *thread, s ptrace.Status) {
	id, err := s.EventMsg()
	e.cont(s.TID, 0)
	e.interruptAgain(t)
	if err == nil {
		e.note(s.Kind, int(id))
		if e.orphans[int(id)] {
			// Known from its own first stop; it may even be gone again, and
			// only a zombie of its real parent's.
			delete(e.orphans, int(id))
			return
		}
		e.adopt(int(id))
	}
}

// onExec begins anew with a process that has replaced its program: all its
// other threads are gone, and the one that called goes by the leader's id.
func (e *engine) onExec(t *thread, s ptrace.Status) {
	p := e.procs[s.TID]
	if p == nil {
		e.cont(s.TID, 0)
		return
	}
	var caller *thread // under its former id
	if former, err := s.EventMsg(); err == nil && int(former) != s.TID {
		if caller = e.threads[int(former)]; caller != nil && caller.proc != p {
			caller = nil
		}
	}
	if caller != nil && t != nil && !e.launching() {
		e.exits.Threads++ // the leader's end is not reported: it has lost its id
	}
	e.execSeen = e.execSeen || p.pid == e.opt.Command
	run := time.Duration(0)
	if t != nil {
		run = t.run
	}
	if caller != nil {
		run = caller.run
	}
	e.renew(p, t)
	t = e.threads[s.TID]
	t.seized, t.run = true, run
	e.cont(s.TID, 0)
}

// renew begins anew with a process that is another program now. t is its leader's
// thread, nil if that had been dropped. Whether it is our tracee is for the caller
// to say.
func (e *engine) renew(p *process, t *thread) {
	p.program.replaced.Store(true)
	p.program = new(program)
	p.threads++ // the process lives on, whatever the count says
	for _, u := range slices.Clone(e.list) {
		if u.proc == p && u != t {
			e.drop(u)
		}
	}
	p.threads--
	e.openProcess(p)
	p.brief, p.captures, p.spares, p.became = true, 0, false, false
	if t == nil {
		e.keep(e.newThread(p, p.pid))
	} else {
		e.settle(t, Exited)
		e.openFiles(t)
		t.wakes()
		t.seized, t.stack, t.noUserStack = false, false, false
		t.fb = new(Feedback)
	}
	e.send(item{gone: p.pid})
}

// launching tells that our command is still this program, on its way to exec.
func (e *engine) launching() bool { return e.opt.Command != 0 && !e.execSeen }

// onExit takes the stack that a thread has at its exit.
func (e *engine) onExit(t *thread, s ptrace.Status) {
	if t == nil || !e.opt.ExitStacks || e.launching() {
		ptrace.Cont(s.TID, 0)
		return
	}
	c := e.pool.last(t.fb.want(e.pool.first()), t.fb.beyond())
	var n int
	err := error(unix.ENOBUFS)
	if c == nil {
		e.exits.NoRoom++
	} else {
		note := c.Regs[:cap(c.Regs)]
		if n, err = ptrace.ReadRegs(t.tid, ptrace.NotePrstatus, note); err == nil {
			c.Regs = note[:n]
			readStack(t.tid, ptrace.StackPointer(c.Regs), c, t.fb.Extent.Load(), t.proc.pages)
			readBeyond(t.tid, t.fb.SavedSP.Load(), c, t.fb.BeyondExtent.Load(), t.proc.pages)
			extraRegs(t, c)
		}
	}
	st, serr := t.schedstat(e.buf[:])
	var early *early
	if err == nil {
		early = e.readEarly(t)
	}
	ptrace.Cont(s.TID, 0)
	if err != nil {
		if c != nil {
			e.pool.put(c)
		}
		return
	}
	e.exits.Taken++
	c.Taken, c.Count = capture.Exiting, st.Count
	if serr != nil {
		st.Run = t.run
	}
	e.emitWith(t, e.tick, c, st.Run, early)
}

// onGone forgets a thread that was reaped.
func (e *engine) onGone(t *thread, s ptrace.Status) {
	if s.TID == e.opt.Command {
		e.exit = s.Raw
	}
	delete(e.released, s.TID)
	if t == nil {
		return
	}
	if !e.launching() {
		e.exits.Threads++
	}
	t.proc.readCPU()
	e.drop(t)
}

// extraRegs reads registers beyond the general ones where unwinding may ask for
// them: on s390x functions park the return address in floating-point registers,
// on arm64 it may carry an authentication code, whose mask is read once.
func extraRegs(t *thread, c *capture.Capture) {
	if runtime.GOARCH == "arm64" && t.proc.pac != 0 {
		return
	}
	readExtra(t.tid, c)
	t.proc.pac = c.PACMask
}

// readExtra is extraRegs for one look.
func readExtra(tid int, c *capture.Capture) {
	switch runtime.GOARCH {
	case "s390x":
		room := c.FPRegs[:cap(c.FPRegs)]
		if len(room) < fpRegsBytes {
			room = make([]byte, fpRegsBytes)
		}
		if n, err := ptrace.ReadRegs(tid, ptrace.NotePrfpreg, room); err == nil {
			c.FPRegs = room[:n]
		}
	case "arm64":
		var masks [16]byte // data, code
		if n, err := ptrace.ReadRegs(tid, ptrace.NoteARMPACMask, masks[:]); err == nil && n == len(masks) {
			c.PACMask = binary.LittleEndian.Uint64(masks[8:])
		}
	}
}

// fpRegsBytes is the size of s390x's NT_PRFPREG (s390_fp_regs,
// arch/s390/include/uapi/asm/ptrace.h).
const fpRegsBytes = 136
