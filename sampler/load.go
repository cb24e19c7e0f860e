package sampler

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/sampler/clocks"
)

// maxStride bounds how far the rate is lowered, in ticks.
const maxStride = 1024

// load holds what is taken of threads below the share of their time that it
// may be, by having only some ticks answered.
type load struct {
	said    *notices
	max     float64       // share; 0: no bound
	stride  clocks.Stride // [clocks.Every] at least
	both    clocks.Stride // the stride that holds: this one or the budget's
	most    clocks.Stride // largest stride so far
	begun   int64         // CLOCK_MONOTONIC: start of the window
	taken   time.Duration
	threads int     // sampled in this window
	window  int64   // number of the window, marks threads
	last    int64   // the last update, CLOCK_MONOTONIC
	passed  int64   // nanoseconds of the run
	asked   float64 // and those at the rate that was asked for which as many ticks were answered

	own budget
}

// budget holds what this program itself takes of a CPU below a share, in the same way.
type budget struct {
	max    float64 // share of a CPU; 0: no bound
	most   int64   // the largest stride
	stride int64   // as in load
	short  bool    // even the largest was too little, as was told
	begun  int64   // CLOCK_MONOTONIC: start of the window
	used   int64   // CPU time of this program then
}

// budgetWindow is for how long its CPU time is added up before it is judged: rounds and looks for processes are in it.
const budgetWindow = int64(5 * time.Second)

// slowest is the stride that leaves one look a second: rounds end, and processes are found, by looking.
func slowest(interval int64) int64 { return min(max(int64(time.Second)/interval, 1), maxStride) }

// update judges the last window, and returns what is to be told, if something is. used is the CPU time of this program.
func (b *budget) update(now, used int64) (told string) {
	if b.begun == 0 {
		b.begun, b.used = now, used
	}
	if now-b.begun < budgetWindow {
		return ""
	}
	if b.stride == 0 { // the first window: what is read at the beginning is read once
		b.begun, b.used, b.stride = now, used, 1
		return ""
	}
	share := float64(used-b.used) / float64(now-b.begun)
	took := fmt.Sprintf("this program took %s of a CPU, of %s that it may", output.Percent(share), output.Percent(b.max))
	switch {
	case share > b.max && b.stride < b.most:
		b.stride = min(2*b.stride, b.most)
		told = fmt.Sprintf("%s: only one tick in %d is answered", took, b.stride)
	case share > b.max && !b.short:
		b.short = true
		told = fmt.Sprintf("%s, though only one tick in %d is answered, which is the least (try: fewer processes, a longer --every)", took, b.stride)
	case b.stride > 1 && share < b.max/3:
		if b.stride, b.short = b.stride/2, false; b.stride == 1 {
			told = took + ": each tick is answered again"
		}
	}
	b.begun, b.used = now, used
	return told
}

func (l *load) add(t *thread, taken time.Duration) {
	l.taken += taken
	if t.window != l.window {
		t.window = l.window
		l.threads++
	}
}

// update judges the last window of half a second, in which so many CPUs had a clock, or as much of it as has taken what all of it may.
func (l *load) update(clockCPUs int, now int64) {
	if l.last != 0 {
		l.passed += now - l.last
		l.asked += float64(now-l.last) / l.both.Ticks()
	}
	l.last = now
	if l.own.max > 0 {
		used, _ := ptrace.RawClock(unix.CLOCK_PROCESS_CPUTIME_ID)
		if told := l.own.update(now, used); told != "" {
			l.said.log.Warn(told)
		}
	}
	defer func() {
		l.both = max(l.stride, clocks.Stride(l.own.stride)*clocks.Every)
		l.most = max(l.most, l.both)
	}()
	const window = int64(500 * time.Millisecond)
	if l.begun == 0 {
		l.begun, l.window = now, 1
	}
	busy := float64(max(1, min(l.threads, clockCPUs)))
	if spent := l.max > 0 && float64(l.taken) > l.max*busy*float64(window); now-l.begun < window && (!spent || now-l.begun < window/8) {
		return
	}
	if l.max > 0 {
		l.stride = l.next(float64(l.taken) / float64(now-l.begun) / busy / l.max)
	}
	l.begun, l.taken, l.threads = now, 0, 0
	l.window++
}

// enough is the part of what may be taken below which the rate comes back, to about aim of it.
const enough, aim = 0.8, 0.9

// next is the stride for the next window, if in the last one so many times as much was taken as may be: at most twice that which held, and at
// least half of the last one.
func (l *load) next(part float64) clocks.Stride {
	want := clocks.Stride(math.Ceil(min(float64(l.both)*part, float64(2*l.both))))
	switch {
	case part > 1:
		return min(max(want, l.both+1), maxStride*clocks.Every)
	case part < enough:
		return min(l.stride, max(clocks.Stride(math.Ceil(float64(want)/aim)), l.stride/2, clocks.Every))
	}
	return l.stride
}

// answered is the part of the ticks that was to be answered.
func (l *load) answered() float64 {
	if l.passed == 0 {
		return 1
	}
	return l.asked / float64(l.passed)
}
