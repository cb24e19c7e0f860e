package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sfsample/output"
	"sfsample/sampler"
	"sfsample/stuck"
)

// goKey is the same for goroutines that are written together: of one process, with the same stack, in the same wait,
// started by the same statement.
type goKey struct {
	state *sampler.GoState
	mark  string
	alone uint64 // without groups: the goroutine's number
}

// goGroups groups the goroutines of a process, the largest group first and then by number.
func (v *view) goGroups(p *sampler.GoProcess, group bool) [][]*sampler.Goroutine {
	index := map[goKey]int{}
	var list [][]*sampler.Goroutine
	before := v.goBefore(p.PID)
	for _, g := range p.Goroutines {
		k := goKey{state: g.GoState, mark: goMark(before, g)}
		if !group {
			k.alone = g.ID
		}
		i, ok := index[k]
		if !ok {
			i = len(list)
			index[k], list = i, append(list, nil)
		}
		list[i] = append(list[i], g)
	}
	slices.SortStableFunc(list, func(a, b []*sampler.Goroutine) int { return len(b) - len(a) })
	return list
}

// writeGoroutines writes each distinct stack of the goroutines that no thread runs, with those that have it. The runtime's
// own are left out where there are others.
func (v *view) writeGoroutines(w io.Writer, group bool) {
	for _, p := range v.goroutines {
		before := v.goBefore(p.PID)
		users := slices.ContainsFunc(p.Goroutines, func(g *sampler.Goroutine) bool { return !g.Runtime })
		for _, list := range v.goGroups(p, group) {
			if list[0].Runtime && users {
				continue
			}
			fmt.Fprintln(w, goLine(p, list)+goMark(before, list[0]))
			v.writeGoDetails(w, p, list)
			if st := list[0].Stack; st != nil {
				w.Write(output.AppendStack(nil, st))
			} else {
				fmt.Fprintln(w, "end: no stack: there are too many different ones")
			}
			fmt.Fprintln(w)
		}
	}
}

// goLine begins goroutines: it contains "goroutine N".
func goLine(p *sampler.GoProcess, list []*sampler.Goroutine) string {
	does := goDoes(list[0]) + goSince(list)
	if len(list) == 1 {
		return fmt.Sprintf("goroutine %d of pid %d %q: %s", list[0].ID, p.PID, printable(p.Process), does)
	}
	ids := make([]int, 0, len(list))
	for _, g := range list {
		ids = append(ids, int(g.ID))
	}
	return fmt.Sprintf("%d goroutines of pid %d %q: %s: goroutine %s", len(list), p.PID, printable(p.Process), does, stuck.Ranges(ids))
}

// goDoes is what a goroutine does, in the words of Go's runtime.
func goDoes(g *sampler.Goroutine) string {
	if g.Reason == "" {
		return g.Status
	}
	return printable(g.Reason)
}

// goSince tells for how long goroutines have waited, as far as that is known.
func goSince(list []*sampler.Goroutine) string {
	var least, most time.Duration
	known := 0
	for _, g := range list {
		if g.Waits == 0 {
			continue
		}
		if known++; known == 1 {
			least = g.Waits
		}
		least, most = min(least, g.Waits), max(most, g.Waits)
	}
	switch a, b := stuck.Short(least), stuck.Short(most); {
	case known == 0:
		return ""
	case known < len(list):
		return fmt.Sprintf(", %d of them not run for %s at least", known, a)
	case a != b:
		return fmt.Sprintf(", not run for %s to %s at least", a, b)
	default:
		return ", not run for " + a + " at least"
	}
}

// writeGoDetails writes what goroutines with one stack wait on, who has started them, and threads that they are locked to.
func (v *view) writeGoDetails(w io.Writer, p *sampler.GoProcess, list []*sampler.Goroutine) {
	if text := goObjects(list); text != "" {
		fmt.Fprintf(w, "  on %s\n", text)
	}
	if f := list[0].Creator; f != nil {
		text := "started by " + printable(f.Func)
		if f.File != "" {
			text += fmt.Sprintf(" at %s:%d", printable(f.File), f.Line)
		}
		if parent := list[0].Parent; parent != 0 && !slices.ContainsFunc(list, func(g *sampler.Goroutine) bool { return g.Parent != parent }) {
			text += fmt.Sprintf(" in goroutine %d", parent)
		}
		fmt.Fprintf(w, "  %s\n", text)
	}
	var locked []int
	for _, g := range list {
		if tid := v.goThread(p.PID, g); tid != 0 {
			locked = append(locked, tid)
		}
	}
	if len(locked) > 0 {
		fmt.Fprintf(w, "  locked to tid %s\n", stuck.Ranges(locked))
	}
}

// goThread is the thread that a goroutine is locked to, 0 if to none that was looked at.
func (v *view) goThread(pid int, g *sampler.Goroutine) int {
	if g.Thread == 0 {
		return 0
	}
	for _, t := range v.report.Threads {
		if t.PID == pid && t.InnerTID == int(g.Thread) {
			return t.TID
		}
	}
	return 0
}

// goObjects names what goroutines wait on, what most wait on first.
func goObjects(list []*sampler.Goroutine) string {
	count := map[string]int{}
	var order []string
	for _, g := range list {
		for _, o := range g.Objects {
			text := goObject(o)
			if count[text]++; count[text] == 1 {
				order = append(order, text)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return count[b] - count[a] })
	var parts []string
	for i, text := range order {
		if i == shownWaits {
			parts = append(parts, fmt.Sprintf("and %d more", len(order)-i))
			break
		}
		if count[text] > 1 {
			text += fmt.Sprintf(" (%d of them)", count[text])
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

func goObject(o sampler.GoObject) string {
	text := fmt.Sprintf("%s %#x", o.Kind, o.Addr)
	switch {
	case o.Cap == 0:
		text += " without buffer"
	case o.Cap > 0:
		text += fmt.Sprintf(" with %d of %d", o.Len, o.Cap)
	}
	return text
}

// goBefore is what the dump before had of a process, by number of goroutine; nil: there was none.
func (v *view) goBefore(pid int) map[uint64]*sampler.Goroutine {
	if v.last == nil {
		return nil
	}
	before := map[uint64]*sampler.Goroutine{}
	for _, p := range v.last.goroutines {
		if p.PID == pid {
			for _, g := range p.Goroutines {
				before[g.ID] = g
			}
		}
	}
	return before
}

// goMark says with --watch that a goroutine has run since the dump before, or was run by a thread then, or was not there.
func goMark(before map[uint64]*sampler.Goroutine, g *sampler.Goroutine) string {
	if before == nil {
		return ""
	}
	if old := before[g.ID]; old != nil && old.Runs == g.Runs && old.SP == g.SP && old.Reason == g.Reason {
		return ""
	}
	return " [changed]"
}

// goMissing is what could not be told of the goroutines of a process, and why.
func goMissing(p *sampler.GoProcess) (list []string) {
	if p.Err != nil {
		return []string{fmt.Sprintf("what the goroutines of pid %d wait for: %s (SIGQUIT makes a Go program print them, and ends it)", p.PID, p.Err)}
	}
	c := &p.Counts
	for _, m := range []struct {
		n    int
		what string
	}{
		{c.Changed, "they ran while they were read"},
		{c.Unread, "their memory cannot be read"},
		{c.Odd, "what the program keeps of them makes no sense"},
		{c.Beyond, "there are too many to read them all"},
	} {
		if m.n > 0 {
			list = append(list, fmt.Sprintf("what %d of the goroutines of pid %d wait for: %s", m.n, p.PID, m.what))
		}
	}
	if p.Stackless > 0 {
		list = append(list, fmt.Sprintf("the stacks of %d of the goroutines of pid %d: there are too many different ones", p.Stackless, p.PID))
	}
	return list
}

// summary is the lines on top of a dump: those of the report, and one for each Go program of which goroutines are shown.
func (v *view) summary() []string {
	lines := v.report.Summary()
	for i, p := range v.goroutines {
		if i == shownStories {
			return append(lines, fmt.Sprintf("goroutines of %d more processes are shown", len(v.goroutines)-i))
		}
		if p.Err == nil {
			lines = append(lines, goSummary(p))
		}
	}
	return lines
}

// goSummary counts the goroutines of a process, and tells what most wait for.
func goSummary(p *sampler.GoProcess) string {
	counts := map[string]int{}
	places := map[string]int{}
	own, total := 0, p.Counts.Running+p.Counts.InCall
	var busiest string
	where := map[*output.Stack]string{}
	for _, g := range p.Goroutines {
		if g.Runtime {
			own++
			continue
		}
		total++
		counts[g.Status]++
		if g.Reason == "" {
			continue
		}
		in, ok := where[g.Stack]
		if !ok {
			in = goPlace(g.Stack)
			where[g.Stack] = in
		}
		text := goDoes(g) + in
		if places[text]++; places[text] > places[busiest] {
			busiest = text
		}
	}
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, status := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) }) {
		add(counts[status], status)
	}
	add(p.Counts.InCall, "in a system call")
	add(p.Counts.Running, "running")
	line := fmt.Sprintf("%s of pid %d %q: %s", stuck.Plural(total, "goroutine"), p.PID, printable(p.Process), strings.Join(parts, ", "))
	if own > 0 {
		line += fmt.Sprintf(", and %d of the runtime", own)
	}
	switch n := places[busiest]; {
	case n == 1:
		line += "; 1 waits: " + busiest
	case n > 1:
		line += fmt.Sprintf("; %d wait: %s", n, busiest)
	}
	return line
}

// goPlace is the innermost function of a stack that is not of the packages that wait.
func goPlace(st *output.Stack) string {
	if st == nil {
		return ""
	}
	for i := range st.Frames {
		fn := st.Frames[i].Func
		dir, name := fn[:strings.LastIndexByte(fn, '/')+1], fn[strings.LastIndexByte(fn, '/')+1:]
		pkg, _, _ := strings.Cut(name, ".")
		if fn == "" || strings.HasPrefix(dir, "internal/") || strings.HasPrefix(dir, "runtime/") || dir == "" && slices.Contains(waitingPackages, pkg) {
			continue
		}
		return " in " + printable(fn)
	}
	return ""
}

// waitingPackages have the functions that goroutines wait in.
var waitingPackages = []string{"runtime", "sync", "time", "syscall"}
