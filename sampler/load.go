package sampler

import (
	"time"

	"sfsample/sampler/capture"
)

// maxStride bounds how far the rate is lowered.
const maxStride = 1024

// load holds what is taken of threads below the share of their time that it
// may be, by having only each stride-th tick answered.
type load struct {
	max     float64 // share; 0: no bound
	stride  int64   // 1: every tick; 0 means 1
	most    int64   // largest stride so far
	begun   int64   // CLOCK_MONOTONIC: start of the window
	taken   time.Duration
	threads int   // sampled in this window
	window  int64 // number of the window, marks threads
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
	l.stride, l.most = stride, max(l.most, stride)
	l.begun, l.taken, l.threads = now, 0, 0
	l.window++
}

// chargeRest reports the CPU time of a process that no sample stands for: that
// of threads that were never caught running, and of each one since its last
// sample.
func (e *engine) chargeRest(p *process) {
	if e.opt.WallWeight {
		return
	}
	rest := p.loose
	if !p.only {
		rest += p.watch.Clock() - p.cpuBase - p.charged
	}
	for _, t := range e.list {
		if t.proc != p {
			continue
		}
		rest += t.line.Carry()
		if s, err := t.schedstat(e.buf[:]); err == nil && p.only {
			rest += s.Run - t.line.Run()
		}
	}
	if rest <= 0 {
		return
	}
	s := &capture.Spent{PID: p.pid}
	s.CPU = rest
	s.Ticks = (int64(rest) + e.interval/2) / e.interval
	e.send(item{spent: s})
}
