package stuck

import (
	"slices"

	"sfsample/ptrace/procfs"
)

// roster are the processes and threads that are looked at.
type roster struct {
	fs      procfs.FS
	missing missing
	kept    *procfs.Kept
	threads []*Thread // in order of process and number, those from outside last
	procs   map[int]*Process
	byTID   map[int]*Thread
	nOut    int // threads from outside
}

// list makes the threads of a process.
func (r *roster) list(pid int, outside bool, wanted func(int) bool) []*Thread {
	p := r.process(pid, outside)
	if p == nil {
		return nil
	}
	ids, err := r.fs.TaskIDs(pid)
	if err != nil {
		return nil
	}
	slices.Sort(ids)
	var list []*Thread
	for _, tid := range ids {
		switch {
		case r.byTID[tid] != nil || !wanted(tid):
			continue
		case len(r.threads)+len(list) >= maxThreads, outside && r.nOut >= maxOutsideThreads:
			r.missing.add("threads beyond %d are not looked at", len(r.threads)+len(list))
			return list
		}
		t := &Thread{PID: pid, TID: tid, InnerTID: tid, Process: p, Outside: outside, files: r.kept.Task(pid, tid)}
		if outside {
			r.nOut++
		}
		r.byTID[tid] = t
		p.threads = append(p.threads, t)
		list = append(list, t)
	}
	return list
}

// process finds or makes a process, nil if it is gone.
func (r *roster) process(pid int, outside bool) *Process {
	if p := r.procs[pid]; p != nil {
		return p
	}
	leader, err := r.fs.Stat(pid)
	if err != nil {
		return nil
	}
	p := &Process{pid: pid, leader: leader, Name: leader.Comm, outside: outside, arch: archOf(r.fs, pid), byInner: map[int]*Thread{}}
	if st, err := r.fs.Status(pid); err == nil {
		p.inner = len(st.NSpid) > 1
	}
	r.procs[pid] = p
	return p
}

func (r *roster) forgetGone(t *Thread, err error) bool {
	if err == nil {
		return false
	}
	t.files.Close()
	delete(r.byTID, t.TID)
	t.Process.threads = slices.DeleteFunc(t.Process.threads, func(o *Thread) bool { return o == t })
	return true
}

// sameThreads: nobody was born since the process was listed. (One who was born between
// the list and the first look would not be known to wait.)
func (r *roster) sameThreads(p *Process) bool {
	ids, err := r.fs.TaskIDs(p.pid)
	return err == nil && !slices.ContainsFunc(ids, func(tid int) bool { return r.byTID[tid] == nil })
}

// innerID is the number that a thread has in its own pid namespace.
func innerID(fs procfs.FS, t *Thread) int {
	if !t.Process.inner {
		return t.TID
	}
	st, err := fs.Status(t.TID)
	if err != nil || len(st.NSpid) == 0 {
		return t.TID
	}
	return st.NSpid[len(st.NSpid)-1]
}

func (r *roster) countOutside() (n int) {
	for _, p := range r.procs {
		if p.outside {
			n++
		}
	}
	return n
}
