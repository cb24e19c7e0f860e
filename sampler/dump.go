package sampler

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/unwind"
)

// ThreadDump is what a dump shows of one thread.
type ThreadDump struct {
	PID, TID      int
	Process, Name string
	State         byte   // letter of /proc/PID/stat
	Call          string // system call that it sits in, empty if in none
	NR            int64
	Args          [6]uint64
	Taken         string // "stop", "no stop", or why there is no stack
	Stack         *output.Stack
	Stopped       bool // by a stopping signal or a tracer, not by us

	fb    *Feedback
	stack *stack
}

// CannotRead is the beginning of [ThreadDump.Taken] for a thread that has gone
// or that we may not read.
const CannotRead = "cannot be read"

// stopsAtMost bounds the time that a dump waits for stops, each time.
const stopsAtMost = 60 * time.Millisecond

// Dump takes the stack of every thread of the processes of opt once. Blocked
// threads are read without a stop; one that runs is stopped, and one that is
// blocked in a call that goes on unharmed, if its stack cannot be unwound
// without its registers. It waits for no thread that does not stop.
func Dump(opt Options, pipe *Pipeline) ([]*ThreadDump, error) {
	d := &dumper{opt: opt, pipe: pipe, pages: map[int]pagemap{}}
	var err error
	<-ptrace.OnThread(func() { err = d.run() })
	if err != nil {
		return nil, err
	}
	for _, t := range d.threads {
		if t.stack != nil {
			t.Stack = pipe.cfg.Names.stack(t.stack)
		}
		if opt.Kernel && t.State != 'R' { // a running thread has left the kernel by now
			d.addKernel(t)
		}
	}
	return d.threads, nil
}

// dumper belongs to the tracing thread while that runs.
type dumper struct {
	opt     Options
	pipe    *Pipeline
	fs      procfs.FS
	threads []*ThreadDump
	pages   map[int]pagemap     // by process
	seized  map[int]*ThreadDump // interrupted or group-stopped, not yet reported
}

func (d *dumper) run() error {
	for _, pid := range d.opt.PIDs {
		ids, err := d.fs.TaskIDs(pid)
		if err != nil {
			return fmt.Errorf("dump %d: %w", pid, err)
		}
		d.pages[pid] = openPagemap(d.fs, pid)
		defer d.pages[pid].close()
		slices.Sort(ids)
		for _, tid := range ids {
			if len(d.opt.TIDs) > 0 && !slices.Contains(d.opt.TIDs, tid) {
				continue
			}
			d.look(pid, tid)
		}
	}
	d.stop(d.wantsStop)
	for range stopsAgain {
		if !d.stop((*ThreadDump).tooShort) {
			break
		}
	}
	return nil
}

// stopsAgain bounds how often a thread is stopped once more. Each time the copy
// has four times the size, and the walk knows what the last one came to.
const stopsAgain = 5

// tooShort: the thread was stopped, and goes on with a stack of which more
// should have been copied.
func (t *ThreadDump) tooShort() bool {
	return t.Taken == capture.Stopped.String() && t.stack != nil && t.stack.end == unwind.OutsideCopy.String()
}

// look reads what can be read of a thread without a stop.
func (d *dumper) look(pid, tid int) {
	st, err := d.fs.TaskStat(pid, tid)
	if err != nil {
		return // it has exited
	}
	t := &ThreadDump{PID: pid, TID: tid, Name: st.Comm, State: st.State, NR: -1, fb: new(Feedback)}
	t.Stopped = st.State == 'T' || st.State == 't'
	t.Process = d.pipe.target(pid).name
	d.threads = append(d.threads, t)
	switch {
	case st.NoUserStack():
		t.Taken = "a worker of the kernel, it has no user stack"
		return
	case st.State == 'Z' || st.State == 'X':
		t.Taken = "exited"
		return
	}
	if c := d.peek(t); c != nil {
		d.unwind(t, c)
	}
}

// peek copies the stack of a thread that does not run. nil: it runs, or cannot
// be read.
func (d *dumper) peek(t *ThreadDump) *capture.Capture {
	for range peekTries {
		before, err := d.fs.Schedstat(t.PID, t.TID)
		call, callErr := d.fs.Syscall(t.PID, t.TID)
		if err != nil || callErr != nil {
			t.Taken = CannotRead
			if callErr != nil && d.fs.Permission(t.PID).Remedy() != "" {
				t.Taken += ": " + d.fs.Permission(t.PID).Remedy()
			}
			return nil
		}
		if call.Running {
			t.Taken = "running"
			return nil
		}
		t.NR, t.Args = call.NR, call.Args
		c := d.pipe.pool.get(firstPeek, 0)
		if c == nil {
			t.Taken = "no room"
			return nil
		}
		readStack(t.TID, call.SP, c, t.fb.Extent.Load(), d.pages[t.PID])
		after, err := d.fs.Schedstat(t.PID, t.TID)
		if err == nil && after.Count == before.Count {
			c.Taken, c.Blocked, c.Count = capture.Unstopped, true, after.Count
			c.Call = capture.Call{NR: call.NR, Args: call.Args, SP: call.SP, PC: call.PC}
			c.PID, c.TID = t.PID, t.TID
			return c
		}
		d.pipe.pool.put(c)
	}
	t.Taken = "running"
	return nil
}

// unwind walks a capture and keeps the stack.
func (d *dumper) unwind(t *ThreadDump, c *capture.Capture) {
	target := d.pipe.target(t.PID)
	t.Taken = c.Taken.String()
	t.stack, _ = d.pipe.unwind(target, c, t.fb)
	if t.NR >= 0 {
		t.Call = callName(d.pipe.arch(target), t.NR)
	}
	d.pipe.pool.put(c)
}

// wantsStop tells whether a stop is needed to show the thread's stack, and does
// no harm.
func (d *dumper) wantsStop(t *ThreadDump) bool {
	partial := t.fb.NeedStop.Load() != 0
	switch d.opt.Stop {
	case StopNever:
		return false
	case StopAlways:
		return t.stack != nil || t.Taken == "running"
	}
	switch {
	case t.Taken == "running":
		return true
	case t.State == 'T':
		return partial // it is stopped already
	case partial && t.State == 'S':
		return !t.fb.Foreign.Load() && transparent(runtime.GOARCH, t.PID, t.NR, &t.Args, ptrace.Reverts && !d.opt.NoRestart)
	}
	return false
}

// stop takes the stops of the threads that want one, all at once, and lets each
// go as it was. It returns whether there were any.
func (d *dumper) stop(wants func(*ThreadDump) bool) bool {
	d.seized = map[int]*ThreadDump{}
	for _, t := range d.threads {
		if !wants(t) {
			continue
		}
		ended, err := ptrace.SeizeIn(t.PID, t.TID, 0, nil)
		if err == nil {
			ptrace.Interrupt(t.TID)
			d.seized[t.TID] = t
		}
		for _, s := range ended {
			d.handle(s)
		}
	}
	if len(d.seized) == 0 {
		return false
	}
	alarm, err := ptrace.NewAlarm()
	if err != nil {
		return false
	}
	defer alarm.Close()
	end := ptrace.Now() + int64(stopsAtMost)
	alarm.Set(end)
	for len(d.seized) > 0 && ptrace.Now() < end {
		s, ok, err := ptrace.Wait()
		if err == unix.ECHILD {
			break
		}
		if ok {
			d.handle(s)
		}
	}
	for _, t := range d.seized {
		if t.stack == nil {
			t.Taken = "running, and did not stop in time"
		}
	}
	// The end of this thread lets go of those that have not stopped.
	return true
}

func (d *dumper) handle(s ptrace.Status) {
	t := d.seized[s.TID]
	switch {
	case s.Kind == ptrace.KindSignal:
		ptrace.Cont(s.TID, s.Signal)
		ptrace.Interrupt(s.TID)
	case s.Kind == ptrace.KindGone:
		delete(d.seized, s.TID)
	case t != nil && (s.Kind == ptrace.KindInterrupt || s.Kind == ptrace.KindGroupStop):
		delete(d.seized, s.TID)
		d.sample(t, s)
	default:
		resume(s)
	}
}

func (d *dumper) sample(t *ThreadDump, s ptrace.Status) {
	c := d.pipe.pool.get(max(firstCopy, int(t.fb.Want.Load())), t.fb.beyond())
	if c == nil {
		c = &capture.Capture{Regs: make([]byte, 0, regs.PrstatusMaxBytes), Stack: make([]byte, 0, minCopy)}
	}
	note := c.Regs[:cap(c.Regs)]
	n, err := ptrace.ReadRegs(t.TID, ptrace.NotePrstatus, note)
	if err == nil {
		c.Regs = note[:n]
		if !d.opt.NoRestart && s.Kind == ptrace.KindInterrupt && ptrace.Revert(t.TID, c.Regs, false) {
			ptrace.WriteRegs(t.TID, ptrace.NotePrstatus, c.Regs)
		}
		readStack(t.TID, ptrace.StackPointer(c.Regs), c, t.fb.Extent.Load(), d.pages[t.PID])
		readBeyond(t.TID, t.fb.SavedSP.Load(), c, t.fb.BeyondExtent.Load(), d.pages[t.PID])
		readExtra(t.TID, c)
	}
	c.Taken, c.PID, c.TID = capture.Stopped, t.PID, t.TID
	if st, statErr := d.fs.Schedstat(t.PID, t.TID); statErr == nil && t.Stopped && err == nil {
		// It would not run anyway, and its memory may be read meanwhile.
		c.Count = st.Count
		d.unwind(t, c)
		ptrace.Detach(t.TID, 0)
		return
	}
	// A group-stop lasts over a detach: it leaves the process as it was.
	ptrace.Detach(t.TID, 0)
	if err != nil {
		d.pipe.pool.put(c)
		return
	}
	d.unwind(t, c)
}

// addKernel puts the kernel's part of the stack before the user's, where the
// kernel shows it.
func (d *dumper) addKernel(t *ThreadDump) {
	frames, err := d.fs.Stack(t.PID, t.TID)
	if err != nil || len(frames) == 0 {
		return
	}
	st := &output.Stack{}
	if t.Stack != nil {
		st.End = t.Stack.End
	}
	for _, f := range frames {
		st.Frames = append(st.Frames, output.Frame{Func: f.Func, Offset: f.Offset, Module: f.Module, Kernel: true})
	}
	if t.Stack != nil {
		st.Frames = append(st.Frames, t.Stack.Frames...)
	}
	t.Stack = st
}
