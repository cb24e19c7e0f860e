package stuck

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sfsample/output"
)

// Report is what both looks have shown.
type Report struct {
	Threads []*Thread // those asked for, by process and number, then those from outside
	Cycles  []Cycle
	Stories []Story  // what many wait for comes first
	Missing []string // what could not be told, and why
	Apart   time.Duration
	byTID   map[int]*Thread
}

// Cycle is a ring of threads each of which waits for the next, the last for the first.
type Cycle struct {
	Threads []*Thread
	Edges   []Releaser // Edges[i] is why Threads[i] waits for the next
	// Behind are the threads that wait for one of these and can go on no sooner.
	Behind []*Thread
	// Timed: a time limit ends it. Else it is a deadlock.
	Timed bool
}

// Story is a thing that threads wait for, and what keeps it.
type Story struct {
	What    string
	Waiters []*Thread
	Behind  int // threads that wait for one of the waiters, and so on
	Chain   []*Thread
	End     string // what the last one of the chain does, or why it ends
}

// rounds bounds how far owners of owners are followed.
const rounds = 16

// End tells what the threads wait for, takes the second look and puts both together.
// stack gives the stack of a thread, nil where there is none.
func (d *Dump) End(stack func(tid int) *output.Stack) *Report {
	defer d.close()
	for _, t := range d.roster.threads {
		if !t.Outside {
			t.frames = userFrames(stack(t.TID))
		}
		d.decode(t)
	}
	for range rounds {
		d.ends.search()
		for _, t := range d.roster.threads {
			d.ends.attach(t)
		}
		if !d.outside() && !d.ends.new {
			break
		}
	}
	d.readHandlers()
	d.secondLook()
	d.lookAgain()
	for _, t := range d.roster.threads {
		d.verify(t)
	}
	return d.report()
}

// verify drops what the second look does not confirm.
func (d *Dump) verify(t *Thread) {
	w := t.Wait
	switch {
	case w == nil:
	case t.Between.Motion == Gone || t.Between.Motion == Ran:
		t.Wait = nil
	case w.polls && w.futex.fam.kind == pythonGIL:
		if d.mem.gilHolder(t, w.Lock) != w.On[0].TID {
			w.On, w.polls, w.Unknown = nil, false, "it changed hands between the two looks"
		}
	case t.Between.Motion == Woken && !w.polls:
		w.On, w.Whole, w.Lost = nil, false, ""
		w.Unknown = "it wakes up now and then"
	case w.Kind == "futex":
		d.verifyLock(t, w)
	}
	if w = t.Wait; w != nil && len(w.Set.FDs) > 0 {
		text := w.Set.text(w.Kind == "set")
		w.Text += " " + text
		if w.Kind == "fd" || w.What == "" {
			w.What = text
		}
	}
}

// verifyLock: the same owner in both looks, or none.
func (d *Dump) verifyLock(t *Thread, w *Wait) {
	was, again := &w.futex.lock, d.decodeLock(t, w, &t.second)
	if t.Between.Motion == Woken {
		w.Whole, w.Lost = false, ""
	}
	if again.owner == was.owner && again.free == was.free && again.kind == was.kind && again.died == was.died {
		return
	}
	w.On, w.Whole, w.Lost = nil, false, ""
	w.Unknown = "it changed hands between the two looks"
}

// idleAtMost bounds for how many threads it is read since when they have not run.
const idleAtMost = 500

func (d *Dump) report() *Report {
	r := &Report{Threads: d.roster.threads, Apart: Apart, byTID: d.roster.byTID}
	for i, t := range d.roster.threads {
		if i < idleAtMost || t.Outside {
			d.clock.idle(t)
		}
	}
	r.Cycles = cycles(d.roster.threads, d.roster.procs)
	r.Stories = stories(r)
	for pid, p := range d.roster.procs {
		if p.denied.Load() {
			d.missing.add("what the threads of pid %d wait for (%s)", pid, orElse(d.fs.Permission(pid).Remedy(), "they may not be looked at"))
		}
		if d.mem.absent[pid] {
			d.missing.add("some memory of pid %d: it is not in memory, or is none", pid)
		}
	}
	if d.clock.now == 0 && len(d.roster.threads) > 0 {
		d.missing.add("since when threads have not run (the kernel has no /proc/PID/task/TID/sched)")
	}
	for m := range d.missing {
		r.Missing = append(r.Missing, m)
	}
	slices.Sort(r.Missing)
	return r
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Thread returns the thread of a number, nil if it was not looked at.
func (r *Report) Thread(tid int) *Thread { return r.byTID[tid] }

// Doing says in words what a thread does, and since when.
func (t *Thread) Doing() string { return t.Does() + t.since() }

// Does says in words what a thread does.
func (t *Thread) Does() string {
	took := Short(t.second.at.Sub(t.first.at))
	switch {
	case t.Wait != nil:
		return t.Wait.Line()
	case t.Between.Motion == Gone:
		return "has ended"
	case t.Between.Motion == Ran && t.Between.CPU >= Apart/4:
		return fmt.Sprintf("runs (%s of CPU time in the last %s)", Short(t.Between.CPU), took)
	case t.Between.Motion == Ran && t.Between.Runs > 0:
		return fmt.Sprintf("runs now and then (%d times in the last %s)", t.Between.Runs, took)
	case t.Between.Motion == Ran && t.State != 'R':
		return "has just gone to sleep"
	case t.Between.Motion == Ran:
		return "runs, or waits for a CPU"
	case t.first.err != nil:
		return "does not run, what it waits for may not be looked at"
	}
	return "does not run"
}

func (t *Thread) since() string { return Since([]*Thread{t}) }

// Since tells for how long threads have not run, to be put behind what they do; it is
// empty if they have.
func Since(list []*Thread) string {
	var least, most time.Duration
	known := true
	for i, t := range list {
		if t.Between.Motion != Blocked || t.State == 'Z' {
			return ""
		}
		known = known && t.Between.Idle > 0
		d := max(t.Between.Idle, t.Between.IdleAtLeast)
		if most = max(most, d); i == 0 || d < least {
			least = d
		}
	}
	switch {
	case !known:
		return ", not run for " + Short(least) + " at least"
	case Short(least) != Short(most):
		return ", not run for " + Short(least) + " to " + Short(most)
	}
	return ", not run for " + Short(most)
}

// Summary is the report in three lines.
func (r *Report) Summary() []string {
	n := map[string]int{}
	procs := map[int]string{}
	for _, t := range r.Threads {
		if t.Outside {
			continue
		}
		procs[t.PID] = t.Process.Name
		switch {
		case t.State == 'Z' || t.Between.Motion == Gone:
			n["exited"]++
		case t.State == 'T' || t.State == 't':
			n["stopped"]++
		case t.Between.Motion == Blocked:
			n["blocked"]++
		case t.Between.Motion == Woken:
			n["waking up now and then"]++
		default:
			n["running"]++
		}
	}
	var parts []string
	total := 0
	for _, what := range []string{"blocked", "running", "waking up now and then", "stopped", "exited"} {
		if total += n[what]; n[what] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[what], what))
		}
	}
	first := fmt.Sprintf("%s of %s: %s", Plural(total, "thread"), processes(procs), strings.Join(parts, ", "))
	return []string{first, r.verdict(), r.busiest()}
}

// Plural is a number of things in words: "1 thread", "2 threads".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func processes(procs map[int]string) string {
	for pid, name := range procs {
		if len(procs) == 1 {
			return fmt.Sprintf("pid %d %q", pid, clip(output.Printable(name)))
		}
	}
	return fmt.Sprintf("%d processes", len(procs))
}

// verdict is the line on deadlocks.
func (r *Report) verdict() string {
	var dead, threads, timed int
	for _, c := range r.Cycles {
		if c.Timed {
			timed++
			continue
		}
		dead++
		threads += len(c.Threads) + len(c.Behind)
	}
	lost, refused, unknown := 0, 0, 0
	for _, t := range r.Threads {
		if ownerUnknown(t) {
			unknown++
		}
		if t.Wait != nil && t.Wait.Kind == "refused lock" {
			refused++
		}
		if t.Wait != nil && t.Wait.Lost != "" {
			lost++
		}
	}
	var parts []string
	switch {
	case dead == 1:
		parts = append(parts, fmt.Sprintf("DEADLOCK: %s cannot go on", Plural(threads, "thread")))
	case dead > 1:
		parts = append(parts, fmt.Sprintf("%d DEADLOCKS: %s cannot go on", dead, Plural(threads, "thread")))
	case refused > 0:
		parts = append(parts, fmt.Sprintf("STUCK FOR EVER: the kernel has refused %s a lock, as it does in a deadlock", Plural(refused, "thread")))
	default:
		parts = append(parts, "no deadlock found")
	}
	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("%s for locks whose owner is not known", Plural(unknown, "thread")+waits(unknown)))
	}
	if refused > 0 && dead > 0 {
		parts = append(parts, Plural(refused, "thread")+" refused a lock for ever")
	}
	if timed > 0 {
		parts = append(parts, fmt.Sprintf("%s that a time limit ends", Plural(timed, "ring")))
	}
	if lost > 0 {
		parts = append(parts, fmt.Sprintf("%s for what is there already", Plural(lost, "thread")+waits(lost)))
	}
	return strings.Join(parts, "; ")
}

func waits(n int) string {
	if n == 1 {
		return " waits"
	}
	return " wait"
}

// ownerUnknown: it waits for a lock that somebody holds, and nothing tells who: it may be in a deadlock that is not found.
func ownerUnknown(t *Thread) bool {
	w := t.Wait
	return w != nil && w.Kind == "futex" && (heldBySome[w.futex.fam.kind] || t.first.kept != nil && t.first.kept.Lock) && t.Between.Motion == Blocked && !w.Timed && len(w.On) == 0 && w.Lost == ""
}

func (r *Report) busiest() string {
	switch {
	case len(r.Stories) > 0:
	case len(r.Cycles) > 0:
		return "nobody else waits for another thread that is known"
	default:
		return "no thread waits for another that is known"
	}
	return r.Stories[0].Text()
}
