package sampler

import (
	"cmp"
	"sync"

	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
)

// keeping is what the coordinator and the keeper of all threads, for --exit-stacks, share: the keeper asks from a thread of its own for the
// program of a process and the feedback of a thread, and both stand there as long as the process or thread is sampled.
type keeping struct {
	opt      *Options
	pulse    *pulse
	board    *clocks.Board
	pool     *pool
	keeper   *clocks.Keeper // nil: nobody holds them
	feedback sync.Map       // *Feedback by thread id
	programs sync.Map       // *program by process id
	counts   Exits
	news     chan struct{} // the keeper has some; room for one
}

// on tells whether a keeper holds the threads: it is the one who tells of ends and execs then.
func (k *keeping) on() bool { return k.keeper != nil }

func (k *keeping) close() {
	if k.on() {
		k.keeper.Close()
	}
}

// keep has all threads held, for their stacks at exit; unwanted tells of which nobody has asked for it, and is called on a thread of its own.
func (k *keeping) keep(ready func(), unwanted func(tid int) bool) error {
	o := clocks.KeeperOptions{PIDs: k.opt.PIDs, Children: k.opt.Follow.Children, Nice: k.opt.Budget.Nice, Unwanted: unwanted, Room: k.room, Back: k.back, Replaced: k.replaced, Early: k.early(), News: func() {
		select {
		case k.news <- struct{}{}:
		default:
		}
	}}
	if k.opt.Follow.Command != 0 {
		o.Launch = func() {
			if ready != nil {
				ready()
			}
		}
	}
	keeper, err := clocks.Keep(new(waiting), k.board, o)
	if err != nil {
		return err
	}
	k.keeper = keeper
	select {
	case <-keeper.Begun():
	case <-k.pulse.stop:
	}
	return nil
}

// room gives room for the stack of a thread at its exit.
func (k *keeping) room(tid int) (*taking.Buffer, taking.Advice) {
	var a Advice
	if fb, ok := k.feedback.Load(tid); ok {
		a = fb.(*Feedback).Get()
	}
	c := k.pool.last(cmp.Or(a.Room(), k.pool.first()), a.Beyond)
	if c == nil {
		return nil, a.Advice
	}
	b := new(taking.Buffer)
	b.Use(c)
	return b, a.Advice
}

// back gives back the room for a stack that is none.
func (k *keeping) back(b *taking.Buffer) {
	c := new(capture.Capture)
	b.Fill(c)
	k.pool.put(c)
}

// exitNote is what is noted of a process at the exit of one of its threads.
type exitNote struct {
	program *program
	early   *early
}

// early returns what takes an exitNote. Mappings and name are read at the
// first few exits of a program, since new ones load their libraries first, so that each may bring news.
func (k *keeping) early() func(pid, tid int) any {
	exits := map[*program]int{}
	return func(pid, tid int) any {
		v, _ := k.programs.LoadOrStore(pid, new(program))
		p := v.(*program)
		exits[p]++
		if n := exits[p]; n > 8 || n&(n-1) != 0 { // at 1, 2, 4 and 8
			return exitNote{p, nil}
		}
		return exitNote{p, earlyOf(pid, tid)}
	}
}

// replaced tells the pipeline at once that a process is another program: what it reads of it is not
// of the captures that are under way.
func (k *keeping) replaced(pid int) {
	if p, ok := k.programs.Swap(pid, new(program)); ok {
		p.(*program).replaced.Store(true)
	}
}

// takeExits takes what the keeper has to tell.
func (w *news) takeExits() {
	if !w.keeping.on() {
		return
	}
	var over []*process // all that is to be told of them is told by now
	for _, p := range w.roster.procs {
		if w.keeping.keeper.End(p.pid) {
			over = append(over, p)
		}
	}
	exits, gone, full := w.keeping.keeper.Ends()
	w.keeping.counts.NoRoom = full
	for i := range exits {
		w.takeExit(&exits[i])
	}
	for _, tid := range gone {
		if w.roster.unwanted(tid) {
			continue
		}
		w.keeping.counts.Threads++
		if t := w.roster.threads[tid]; t != nil {
			w.drop(t)
		}
	}
	for _, p := range over {
		w.dropAll(p)
	}
}

// takeExit passes on the stack that a thread had at its exit, which nobody may have known.
func (w *news) takeExit(x *clocks.Exit) {
	note := x.Early.(exitNote)
	p := w.roster.procs[x.PID]
	if p != nil && p.program != note.program && p.program.replaced.Load() {
		w.onExec(p, note.program)
	}
	t := w.roster.threads[x.TID]
	if t == nil {
		if p == nil {
			w.keeping.back(x.Buffer)
			return
		}
		t = &thread{tid: x.TID, proc: p, fb: p.feedback()}
		w.book.Open(&t.line, 0)
		defer w.book.Close(&t.line, ledger.Exited)
	}
	w.keeping.counts.Taken++
	c := new(capture.Capture)
	x.Buffer.Fill(c)
	c.Taken = capture.Exiting
	w.acct.emitWith(t, w.book.Tick(), c, max(x.Run, t.line.Run()), x.At, note.early)
	if w.roster.threads[t.tid] != t {
		w.out.send(item{left: left{t.proc.pid, t.tid}})
	}
}
