package output

import (
	"cmp"
	"slices"
	"time"
)

// Bounds of what a timeline holds beside its call tree.
const (
	maxTimed   = 1 << 20 // samples that keep their time, 32 bytes each
	maxThreads = 1 << 14
)

// timeline holds samples with their times, by thread, in bounded number: what [Firefox] and [Speedscope] are made of.
type timeline struct {
	opts     Options
	shared   sharedTables
	threads  []*timedThread
	byThread map[threadKey]*timedThread
	samples  int           // in all threads
	limit    int           // of samples
	span     time.Duration // within which samples have been joined; 0: none were
	start    time.Time
}

type threadKey struct {
	pid, tid int
	process  string
}

type timedThread struct {
	key     threadKey
	name    string
	samples []timed
}

// main tells the thread that a process began with (gettid(2)).
func (t *timedThread) main() bool { return t.key.tid == t.key.pid }

// timed is a sample in a thread's table.
type timed struct {
	at     time.Duration // since the first sample of the run
	cpu    time.Duration
	weight time.Duration
	stack  uint32 // node
}

func newTimeline(o Options, limit int) timeline {
	return timeline{opts: o, shared: newSharedTables(), byThread: make(map[threadKey]*timedThread), limit: limit}
}

// add keeps one sample, and returns its thread and time; nil if it weighs nothing.
func (l *timeline) add(s *Sample) (t *timedThread, at time.Duration) {
	if l.start.IsZero() {
		l.start = s.Time
	}
	weight := l.opts.weight(s)
	if weight <= 0 {
		return nil, 0
	}
	t, at = l.thread(s), max(s.Time.Sub(l.start), 0)
	n := l.shared.node(stackState{s.Stack, s.State != "running"})
	if l.samples >= l.limit {
		l.join()
	}
	if l.samples >= l.limit && len(t.samples) > 0 { // no room: what is known is only that there was more
		last := &t.samples[len(t.samples)-1]
		if last.stack != n {
			last.stack = l.shared.tree.more(0)
		}
		last.weight += weight
		last.cpu += s.CPU
		return t, at
	}
	t.samples = append(t.samples, timed{at, s.CPU, weight, n})
	l.samples++
	return t, at
}

func (l *timeline) thread(s *Sample) *timedThread {
	k := threadKey{s.PID, s.TID, s.Process}
	t := l.byThread[k]
	if t == nil {
		if len(l.threads) >= maxThreads {
			k = threadKey{0, 0, "[more threads]"}
			if t = l.byThread[k]; t != nil {
				return t
			}
		}
		t = &timedThread{key: k, name: s.Thread}
		l.byThread[k] = t
		l.threads = append(l.threads, t)
	}
	return t
}

// join halves the samples, at least, if that can be done by joining equal
// stacks: first within a second, then within ever longer spans.
func (l *timeline) join() {
	for l.samples > l.limit/2 && l.span < 1<<20*time.Second {
		l.span = max(2*l.span, time.Second)
		l.samples = 0
		for _, t := range l.threads {
			t.samples = joinSpans(t.samples, l.span)
			l.samples += len(t.samples)
		}
	}
}

// joinSpans joins the samples of equal stacks within each span. A joined sample
// has the time of the first.
func joinSpans(samples []timed, span time.Duration) []timed {
	slices.SortStableFunc(samples, func(a, b timed) int {
		return cmp.Or(cmp.Compare(a.at/span, b.at/span), cmp.Compare(a.stack, b.stack))
	})
	n := 0
	for _, s := range samples {
		if n > 0 && samples[n-1].stack == s.stack && samples[n-1].at/span == s.at/span {
			samples[n-1].weight += s.weight
			samples[n-1].cpu += s.cpu
			continue
		}
		samples[n] = s
		n++
	}
	samples = samples[:n]
	slices.SortStableFunc(samples, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	return samples
}
