package sampler

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// maxStride bounds how far the rate is lowered.
const maxStride = 1024

// load holds what is taken of threads below the share of their time that it
// may be, by having only each stride-th tick answered.
type load struct {
	said    *notices
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
	max    float64 // share of a CPU; 0: no bound
	most   int64   // the largest stride
	stride int64   // as in load
	begun  int64   // CLOCK_MONOTONIC: start of the window
	used   int64   // CPU time of this program then
}

// budgetWindow is for how long its CPU time is added up before it is judged: rounds and looks for processes are in it.
const budgetWindow = int64(5 * time.Second)

// slowest is the stride that leaves one look a second: rounds end, and processes are found, by looking.
func slowest(interval int64) int64 { return min(max(int64(time.Second)/interval, 1), maxStride) }

// update judges the last window. used is the CPU time of this program.
func (b *budget) update(now, used int64) (lowered bool, share float64) {
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
	case share > b.max && b.stride < b.most:
		b.stride = min(2*b.stride, b.most)
		lowered = true
	case b.stride > 1 && share < b.max/3:
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

// update judges the last window of half a second, in which so many CPUs had a clock.
func (l *load) update(clocks int, now int64) {
	if l.own.max > 0 {
		used, _ := ptrace.RawClock(unix.CLOCK_PROCESS_CPUTIME_ID)
		if lowered, share := l.own.update(now, used); lowered {
			l.said.log.Warn(fmt.Sprintf("this program took %.2g %% of a CPU, of %.2g %% that it may: only one tick in %d is answered", 100*share, 100*l.own.max, l.own.stride))
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
	busy := float64(max(1, min(l.threads, clocks)))
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
