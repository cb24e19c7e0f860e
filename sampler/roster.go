package sampler

import "slices"

// roster is the processes and threads that are sampled. A thread is on its list once, under its id as long as no other has got that, and
// counts for its process; others read the roster, and none of them changes it.
type roster struct {
	procs   map[int]*process
	threads map[int]*thread
	list    []*thread    // the same threads, in order of discovery
	wanted  map[int]bool // --tid; none: all. It does not change
}

func newRoster(tids []int) *roster {
	r := &roster{procs: map[int]*process{}, threads: map[int]*thread{}, wanted: map[int]bool{}}
	for _, tid := range tids {
		r.wanted[tid] = true
	}
	return r
}

// enlist puts a thread on the list.
func (r *roster) enlist(t *thread) {
	r.threads[t.tid] = t
	r.list = append(r.list, t)
	t.proc.threads.Add(1)
}

// has tells whether a thread is on the list, whoever has its id by now.
func (r *roster) has(t *thread) bool { return slices.Contains(r.list, t) }

// strike takes a thread that is there off the list.
func (r *roster) strike(t *thread) {
	if r.threads[t.tid] == t {
		delete(r.threads, t.tid)
	}
	i := slices.Index(r.list, t)
	r.list = slices.Delete(r.list, i, i+1)
	t.proc.threads.Add(-1)
}

// of are the threads of a process, on a list that stays as it is.
func (r *roster) of(p *process) (list []*thread) {
	for _, t := range r.list {
		if t.proc == p {
			list = append(list, t)
		}
	}
	return list
}

// still is the last tick at which some process may have run.
func (r *roster) still() (n int64) {
	for _, p := range r.procs {
		n = max(n, p.watch.Ran())
	}
	return n
}

// live tells whether a thread is still among those that are sampled.
func (r *roster) live(t *thread) bool { return r.threads[t.tid] == t }

// stirs tells whether a thread of some process may have run that was left out so
// far. quiet stays set if none has run at all.
func (r *roster) stirs(n int64, quiet *bool) (moved bool) {
	for _, p := range r.procs {
		moved = moved || p.watch.Moved()
		*quiet = *quiet && p.watch.Ran() < n
	}
	return moved
}

// unwanted tells whether others than this thread were asked for.
func (r *roster) unwanted(tid int) bool { return len(r.wanted) > 0 && !r.wanted[tid] }
