package stuck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sfsample/output"
)

// cycles finds the rings of threads that wait for each other.
func cycles(threads []*Thread, procs map[int]*Process) []Cycle {
	dead := hopeless(threads, procs, false)
	list := rings(threads, procs, dead)
	timed := hopeless(threads, procs, true)
	for t := range dead {
		delete(timed, t)
	}
	for _, c := range rings(threads, procs, timed) {
		c.Timed = true
		list = append(list, c)
	}
	return list
}

// hopeless are the threads that only threads can let go which are hopeless too: the
// greatest such set, by taking out, again and again, whoever may be let go by another.
// (For locks, which have one owner, those in a ring and those that wait for one.)
// timed: a time limit does not keep a thread out.
func hopeless(threads []*Thread, procs map[int]*Process, timed bool) map[*Thread]bool {
	in := map[*Thread]bool{}
	waiters := map[*Thread][]*Thread{} // who is taken out with it
	byPID := map[int][]*Thread{}       // who waits for any thread of a process
	var out []*Thread
	for _, t := range threads {
		w := t.Wait
		if t.Between.Motion == Blocked && w != nil && w.Whole && len(w.On) > 0 && w.Lost == "" && (timed || !w.Timed) {
			in[t] = true
		} else if t.lives() {
			out = append(out, t)
		}
	}
	for t := range in {
		for _, r := range slices.Concat(t.Wait.On, wakers(t)) {
			p := procs[r.PID]
			o := threadOf(p, r.TID)
			switch {
			case r.TID != 0 && o != nil && o.lives():
				waiters[o] = append(waiters[o], t)
			case r.TID == 0 && p != nil && p.complete && slices.ContainsFunc(p.threads, (*Thread).lives):
				byPID[r.PID] = append(byPID[r.PID], t)
			default:
				out = append(out, t)
			}
		}
	}
	for len(out) > 0 {
		t := out[len(out)-1]
		out = out[:len(out)-1]
		delete(in, t)
		for _, o := range slices.Concat(waiters[t], byPID[t.PID]) {
			if in[o] {
				delete(in, o)
				out = append(out, o)
			}
		}
		delete(waiters, t)
		delete(byPID, t.PID)
	}
	return in
}

// lives: it may run again.
func (t *Thread) lives() bool { return t.State != 'Z' && t.State != 'X' && t.Between.Motion != Gone }

func threadOf(p *Process, tid int) *Thread {
	if p == nil {
		return nil
	}
	for _, t := range p.threads {
		if t.TID == tid {
			return t
		}
	}
	return nil
}

// next is a hopeless thread that t waits for, and why: the first of them.
func next(t *Thread, procs map[int]*Process, in map[*Thread]bool) (*Thread, Releaser) {
	for _, r := range t.Wait.On {
		p := procs[r.PID]
		if p == nil {
			continue
		}
		for _, o := range p.threads {
			if in[o] && (r.TID == o.TID || r.TID == 0) {
				return o, r
			}
		}
	}
	return nil, Releaser{}
}

// rings walks from each hopeless thread to one that was met before: each component has
// one ring, where everybody follows one other.
func rings(threads []*Thread, procs map[int]*Process, in map[*Thread]bool) []Cycle {
	const walking, walked = 1, 2
	state := map[*Thread]int{}
	ringOf := map[*Thread]int{} // index of the ring that a thread ends in, from 1
	var list []Cycle
	for _, start := range threads {
		var path []*Thread
		t := start
		for t != nil && in[t] && state[t] == 0 {
			state[t] = walking
			path = append(path, t)
			t, _ = next(t, procs, in)
		}
		ring := 0
		switch {
		case t != nil && state[t] == walking:
			list = append(list, makeCycle(path[slices.Index(path, t):], procs, in))
			ring = len(list)
		case t != nil:
			ring = ringOf[t]
		}
		for _, p := range path {
			state[p], ringOf[p] = walked, ring
			if ring > 0 && !slices.Contains(list[ring-1].Threads, p) {
				list[ring-1].Behind = append(list[ring-1].Behind, p)
			}
		}
	}
	return list
}

func makeCycle(path []*Thread, procs map[int]*Process, in map[*Thread]bool) Cycle {
	c := Cycle{Threads: slices.Clone(path)}
	for _, t := range path {
		_, r := next(t, procs, in)
		c.Edges = append(c.Edges, r)
	}
	return c
}

// Proof is the lines that show a cycle: for each thread what it waits for, whom the
// word or the kernel's list names, and where it is.
func (c *Cycle) Proof() []string {
	lines := []string{"DEADLOCK, unless a signal ends it: each of these waits for the next, the last for the first"}
	if c.Timed {
		lines[0] = "RING, until a time limit ends it: each of these waits for the next, the last for the first"
	}
	for i, t := range c.Threads {
		to := c.Threads[(i+1)%len(c.Threads)]
		line := fmt.Sprintf("  %s (pid %d %q) %s", t.label(), t.PID, clip(output.Printable(t.Process.Name)), t.Wait.Text)
		switch c.Edges[i].How {
		case Holds:
			line += ", held by " + to.label()
		case Ends, Traces:
			line += ": " + to.label()
		}
		lines = append(lines, line)
		detail := "    in " + orElse(place(t.frames), orElse(t.Call.Name, "no call"))
		if e := c.Edges[i].evidence; e != "" {
			detail += "; " + e
		}
		lines = append(lines, detail+t.since())
	}
	if len(c.Behind) > 0 {
		lines = append(lines, fmt.Sprintf("  behind these wait %s: %s", Plural(len(c.Behind), "thread"), Numbers(c.Behind)))
	}
	return lines
}

// waitingModules are the libraries that wait, by how their names begin.
var waitingModules = []string{"libc", "libpthread", "ld-", "libstdc++", "libjvm"}

// waitingPackages are Java's that wait: what they are called for stands further out.
var waitingPackages = []string{"java.util.concurrent.", "jdk.internal.", "java.lang.Object.wait"}

// place is the innermost function that is not of the libraries that wait, with its line
// if that is known.
func place(frames []output.Frame) string {
	for _, f := range frames {
		begins := func(s string) func(string) bool { return func(p string) bool { return strings.HasPrefix(s, p) } }
		if f.Func == "" || slices.ContainsFunc(waitingModules, begins(f.Module)) || f.Module == "java" && (!strings.Contains(f.Func, ".") || slices.ContainsFunc(waitingPackages, begins(f.Func))) || waitsItself(f.Func) {
			continue
		}
		s := clip(output.Printable(f.Func))
		if f.File != "" {
			s += fmt.Sprintf(" at %s:%d", clip(output.Printable(f.File)), f.Line)
		}
		return s
	}
	return ""
}

func waitsItself(fn string) bool {
	return slices.ContainsFunc(waiters, func(w struct{ word, kind string }) bool { return fits(fn, w.word) }) || strings.HasPrefix(bare(fn), "futex")
}

// Numbers lists threads in few words: "12-17, 20".
func Numbers(list []*Thread) string {
	ids := make([]int, 0, len(list))
	for _, t := range list {
		ids = append(ids, t.TID)
	}
	return Ranges(ids)
}

// Ranges lists numbers in few words: "12-17, 20". It sorts them.
func Ranges(ids []int) string {
	slices.Sort(ids)
	const most = 12
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] <= ids[j]+1 {
			j++
		}
		switch {
		case len(parts) == most:
			return strings.Join(parts, ", ") + fmt.Sprintf(" and %d more", len(ids)-i)
		case i == j:
			parts = append(parts, fmt.Sprint(ids[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// stories groups the threads that wait for the same thing, and follows each to its end.
// What most threads wait for comes first.
func stories(r *Report) []Story {
	byObject := map[string]*Story{}
	var order []string
	for _, t := range r.Threads {
		w := t.Wait
		if w == nil || len(w.On) == 0 || !t.stays() || t.Outside || w.Kind == "exited" && w.On[0].PID == 0 || w.Kind == "set" && !oneEnd(w) {
			continue
		}
		key := w.Object + "\x00" + w.On[0].Text()
		if w.Object == "" {
			key = w.Text + key
		}
		if byObject[key] == nil {
			byObject[key] = &Story{What: w.What}
			order = append(order, key)
		}
		byObject[key].Waiters = append(byObject[key].Waiters, t)
	}
	ring := map[*Thread]bool{} // what they wait for is told already
	for _, c := range r.Cycles {
		for _, t := range c.Threads {
			ring[t] = true
		}
	}
	waits := map[*Thread][]*Thread{} // who waits for a thread
	for _, t := range r.Threads {
		if o := r.follow(t); o != nil {
			waits[o] = append(waits[o], t)
		}
	}
	var list []Story
	for _, key := range order {
		s := byObject[key]
		if !slices.ContainsFunc(s.Waiters, func(t *Thread) bool { return !ring[t] }) {
			continue
		}
		s.Behind = behind(s.Waiters, waits)
		r.chain(s)
		list = append(list, *s)
	}
	slices.SortStableFunc(list, func(a, b Story) int { return cmp.Or(len(b.Waiters)-len(a.Waiters), b.Behind-a.Behind) })
	return list
}

// oneEnd: whatever of its set comes, it comes from one process. (Servers also watch a pipe of their parent's, or one of their own.)
func oneEnd(w *Wait) bool {
	for _, f := range w.Set.FDs {
		if len(f.Ends) == 0 || slices.ContainsFunc(f.Ends, func(e End) bool { return e.PID != w.On[0].PID }) {
			return false
		}
	}
	return w.Set.More == 0
}

// follow is the thread that another waits for, if that is one and there is nothing else that it waits for.
func (r *Report) follow(t *Thread) *Thread {
	if t.Wait == nil || len(t.Wait.On) == 0 || !t.stays() || t.Wait.Kind == "set" && !oneEnd(t.Wait) {
		return nil
	}
	to := t.Wait.On[0]
	if to.TID != 0 {
		return r.byTID[to.TID]
	}
	if p := r.byTID[to.PID]; p != nil && len(p.Process.threads) == 1 {
		return p
	}
	return nil
}

// stays: nothing but who holds it can end its wait, though it may wake up on the way.
func (t *Thread) stays() bool {
	return t.Between.Motion == Blocked || t.Between.Motion == Woken && t.Wait.polls
}

// behind counts who waits for one of list, and so on.
func behind(list []*Thread, waits map[*Thread][]*Thread) int {
	seen := map[*Thread]bool{}
	for _, t := range list {
		seen[t] = true
	}
	next := slices.Clone(list)
	for len(next) > 0 {
		t := next[len(next)-1]
		next = next[:len(next)-1]
		for _, o := range waits[t] {
			if !seen[o] {
				seen[o] = true
				next = append(next, o)
			}
		}
	}
	return len(seen) - len(list)
}

// chain follows the first of the waiters to whoever waits for nobody, or for several.
func (r *Report) chain(s *Story) {
	seen := map[*Thread]bool{}
	t := s.Waiters[0]
	for t != nil && !seen[t] {
		seen[t] = true
		s.Chain = append(s.Chain, t)
		t = r.follow(t)
	}
	if t != nil {
		s.End = "which waits for " + t.label() + " again"
	} else if len(s.Chain) > 1 {
		s.End = "which " + s.Chain[len(s.Chain)-1].Doing()
	}
}

// shownChain bounds the links of a chain in a line.
const shownChain = 8

// Text is the story in one line.
func (s *Story) Text() string {
	var b strings.Builder
	first := s.Chain[0].Wait
	switch {
	case len(s.Waiters) == 1:
		fmt.Fprintf(&b, "thread %s %s", s.Waiters[0].label(), first.Text)
	case first.Kind == "futex":
		fmt.Fprintf(&b, "%d threads wait for %s", len(s.Waiters), s.What)
	default:
		fmt.Fprintf(&b, "%d threads: %s", len(s.Waiters), first.Text)
	}
	if s.Behind > 0 {
		fmt.Fprintf(&b, " (and %s behind)", Plural(s.Behind, "thread"))
	}
	if len(s.Chain) == 1 && first.On[0].How != HasEnd {
		fmt.Fprintf(&b, "%s %s", joint(first.On[0].How), releasers(first.On))
	}
	for i, t := range s.Chain[1:] {
		if i == shownChain {
			fmt.Fprintf(&b, ", and so on over %d more", len(s.Chain)-1-i)
			break
		}
		fmt.Fprintf(&b, "%s %s", joint(s.Chain[i].Wait.On[0].How), t.label())
		if i+2 < len(s.Chain) {
			fmt.Fprintf(&b, ", which %s", t.Wait.Text)
		}
	}
	if s.End != "" {
		fmt.Fprintf(&b, ", %s", s.End)
	} else {
		b.WriteString(s.Chain[0].since())
	}
	return b.String()
}

// joint stands between a wait and who can end it.
func joint(how string) string {
	switch how {
	case Holds:
		return ", held by"
	case HasEnd:
		return ";"
	}
	return ":"
}
