package sampler

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

// maxStride bounds how far the rate is lowered.
const maxStride = 1024

// load holds what is taken of threads below the share of their time that it
// may be, by having only each stride-th tick answered.
type load struct {
	max     float64 // share; 0: no bound
	stride  int64   // 1: every tick; 0 means 1
	both    int64   // the stride that holds: this one or the budget's
	most    int64   // largest stride so far
	begun   int64   // CLOCK_MONOTONIC: start of the window
	taken   time.Duration
	threads int   // sampled in this window
	window  int64 // number of the window, marks threads

	own budget
}

// budget holds what this program itself takes of a CPU below a share, in the same way.
type budget struct {
	stride int64 // as in load
	begun  int64 // CLOCK_MONOTONIC: start of the window
	used   int64 // CPU time of this program then
}

// budgetWindow is for how long its CPU time is added up before it is judged: rounds and looks for processes are in it.
const budgetWindow = int64(5 * time.Second)

// slowest is the stride that leaves one look a second: rounds end, and processes are found, by looking.
func slowest(interval int64) int64 { return min(max(int64(time.Second)/interval, 1), maxStride) }

// update judges the last window. used is the CPU time of this program; the stride is not more than most.
func (b *budget) update(max float64, most, now, used int64) (lowered bool, share float64) {
	if b.begun == 0 {
		b.begun, b.used = now, used
	}
	if now-b.begun < budgetWindow {
		return false, 0
	}
	if b.stride == 0 { // the first window: what is read at the beginning is read once
		b.begun, b.used, b.stride = now, used, 1
		return false, 0
	}
	share = float64(used-b.used) / float64(now-b.begun)
	switch {
	case share > max && b.stride < most:
		b.stride = min(2*b.stride, most)
		lowered = true
	case b.stride > 1 && share < max/3:
		b.stride /= 2
	}
	b.begun, b.used = now, used
	return lowered, share
}

func (l *load) add(t *thread, taken time.Duration) {
	l.taken += taken
	if t.window != l.window {
		t.window = l.window
		l.threads++
	}
}

// update judges the last window of half a second.
func (l *load) update(e *engine, now int64) {
	if e.opt.MaxCPU > 0 {
		used, _ := ptrace.RawClock(unix.CLOCK_PROCESS_CPUTIME_ID)
		if lowered, share := l.own.update(e.opt.MaxCPU, slowest(e.ticks.interval), now, used); lowered {
			e.said.log.Warn(fmt.Sprintf("this program took %.2g %% of a CPU, of %.2g %% that it may: only one tick in %d is answered", 100*share, 100*e.opt.MaxCPU, l.own.stride))
		}
	}
	defer func() { l.both = max(l.stride, l.own.stride, 1); l.most = max(l.most, l.both) }()
	const window = int64(500 * time.Millisecond)
	if l.begun == 0 {
		l.begun, l.window = now, 1
	}
	if now-l.begun < window {
		return
	}
	busy := float64(max(1, min(l.threads, e.bank.Clocks())))
	share := float64(l.taken) / float64(now-l.begun) / busy
	stride := max(l.stride, 1)
	switch {
	case l.max > 0 && share > l.max && stride < maxStride:
		stride *= 2
	case stride > 1 && share < l.max/3:
		stride /= 2
	}
	l.stride = stride
	l.begun, l.taken, l.threads = now, 0, 0
	l.window++
}

// chargeRest reports the CPU time of a process that no sample stands for: that
// of threads that were never caught running, of each one since its last
// sample, and of children that nobody has seen.
func (e *engine) chargeRest(p *process) {
	if e.opt.WallWeight {
		return
	}
	var rest time.Duration
	if p.only {
		for _, t := range e.list {
			if t.proc != p {
				continue
			}
			if s, err := e.files.schedstat(t); err == nil {
				rest += s.Run - t.line.Run()
			}
		}
	} else {
		rest = p.watch.Clock() - p.cpuBase - p.charged
	}
	if e.opt.Children && !p.only {
		e.readChildren(p)
		unseen := p.unseen()
		p.children.told += unseen
		e.unseen += unseen
		rest = max(rest, 0) + unseen
	}
	if rest > 0 {
		e.out.send(item{spent: &capture.Spent{PID: p.pid, Weight: capture.Weight{CPU: rest}}})
	}
}
