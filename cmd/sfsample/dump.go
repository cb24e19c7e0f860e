package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler"
	"sfsample/stuck"
	"sfsample/targets"
)

// dump writes every thread's stack and what it waits for, for people or as JSON; with
// --watch again and again.
func dump(c config, stdout, stderr io.Writer) error {
	log := c.messages.logger(stderr)
	if err := c.who.check(); err != nil {
		return err
	}
	checkKernel(&c, log)
	set := targets.Set{Selector: c.who.selector()}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200) // a dump is over before most of its memory is garbage; the limit of memory stands
	}
	if c.dumping.watch == 0 {
		v, err := c.view(&set, log, stderr)
		if err != nil {
			return err
		}
		return c.dumping.show(v, stdout)
	}
	return c.watching(&set, stdout, stderr, log)
}

// watching dumps until Ctrl-C, or until no process lives.
func (c *config) watching(set *targets.Set, stdout, stderr io.Writer, log *slog.Logger) error {
	ctx, stop := interruptible()
	defer stop()
	var last *view
	for {
		v, err := c.view(set, log, stderr)
		switch {
		case err != nil && last != nil && errors.Is(err, errNoProcess):
			return nil
		case err != nil:
			return err
		}
		v.last = last
		if err := c.dumping.show(v, stdout); err != nil {
			return err
		}
		if !slices.ContainsFunc(v.threads, func(t *sampler.ThreadDump) bool { return t.State != 'Z' && t.State != 'X' }) {
			return nil
		}
		last = v
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.dumping.watch):
		}
	}
}

// view is one dump.
type view struct {
	at      time.Time
	threads []*sampler.ThreadDump
	// goroutines are those of the processes that are Go programs.
	goroutines []*sampler.GoProcess
	report     *stuck.Report
	withheld   []int // processes of which a page did not come
	last       *view // the dump before, with --watch
}

var errNoProcess = errors.New("no such process")

// view looks at the processes: what they wait for, their stacks in between, and what
// they wait for again.
func (c *config) view(set *targets.Set, log *slog.Logger, stderr io.Writer) (*view, error) {
	now, _, _, err := set.Refresh()
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	var pids []int
	for _, p := range now {
		pids = append(pids, p.PID)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("dump %s: %w (try: ps -e)", c.who.meant(), errNoProcess)
	}
	c.goAhead() // again, with --watch
	v := &view{at: time.Now()}
	begun := stuck.Begin(procfs.FS{}, pids, c.who.tids)
	ctx, cancel := context.WithTimeout(context.Background(), max(dumpFor, c.naming.patience()))
	defer cancel()
	until := late.New(ctx)
	names := c.newNames(until, log, stderr, false)
	pipe := c.livePipeline(names, until, log, nil, nil, nil)
	opt := c.options(nil)
	opt.PIDs = pids
	opt.Kernel = true // where the kernel shows it
	opt.Hooks.Looked = begun.Looked
	dumped, err := sampler.Dump(opt, pipe)
	if err != nil {
		return nil, err
	}
	v.threads, v.goroutines, v.withheld = dumped.Threads, dumped.Go, dumped.Withheld
	if len(v.threads) == 0 {
		return nil, fmt.Errorf("dump %s: %w (try: ps -e)", c.who.meant(), errNoProcess)
	}
	stopped := map[int]bool{}
	for _, t := range v.threads {
		stopped[t.TID] = t.Taken == "stop"
	}
	begun.Again(func(tid int) bool { return stopped[tid] })
	stacks := make(map[int]*output.Stack, len(v.threads))
	for _, t := range v.threads {
		stacks[t.TID] = t.Stack
	}
	for _, p := range v.goroutines {
		begun.ShowsGoroutines(p.PID)
	}
	for pid, locks := range dumped.Locks {
		begun.KeepsLocks(pid, locks)
	}
	v.report = begun.End(func(tid int) *output.Stack { return stacks[tid] })
	for _, p := range v.goroutines {
		v.report.Missing = append(v.report.Missing, goMissing(p)...)
	}
	v.report.Missing = append(v.report.Missing, refused()...)
	v.report.Missing = append(v.report.Missing, unread(names)...)
	return v, nil
}

// dumpFor is how long a dump reads files, if it is not asked for what may take longer.
const dumpFor = 5 * time.Second

// show writes a dump. It is an error if nothing could be read of any thread, or not all of a process.
func (d *dumping) show(v *view, stdout io.Writer) error {
	w := bufio.NewWriter(stdout)
	switch {
	case d.json:
		if err := writeJSON(w, v); err != nil {
			return err
		}
	default:
		writeReport(w, v)
		v.writeThreads(w, d.group)
		v.writeGoroutines(w, d.group)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(v.withheld) > 0 {
		return fmt.Errorf("dump %s: the copy of a stack hung, as a page of it was not brought (by userfaultfd(2), or by the server of a file); it was given up after half a second, and stacks of that process are cut or missing (try: again, or --stop never)", joinInts(v.withheld))
	}
	return unreadable(v.threads)
}

// unreadable is an error if nothing could be read of any thread.
func unreadable(threads []*sampler.ThreadDump) error {
	if !sampler.Unread(threads) {
		return nil
	}
	pid := threads[0].PID
	return fmt.Errorf("dump %d: no thread can be read (%s)", pid, sampler.Remedy(pid))
}

// shownStories bounds what is told before the stacks.
const shownStories = 10

// writeReport writes the summary, the proofs of deadlocks, and who waits for whom.
func writeReport(w io.Writer, v *view) {
	if v.last != nil {
		fmt.Fprintf(w, "---- %s\n", v.at.Format(time.TimeOnly))
	}
	for _, line := range v.summary() {
		fmt.Fprintln(w, line)
	}
	for _, m := range v.report.Missing {
		fmt.Fprintf(w, "not known: %s\n", printable(m))
	}
	fmt.Fprintln(w)
	for _, c := range v.report.Cycles[:min(len(v.report.Cycles), shownStories)] {
		fmt.Fprintf(w, "%s\n\n", strings.Join(c.Proof(), "\n"))
	}
	if more := len(v.report.Cycles) - shownStories; more > 0 {
		fmt.Fprintf(w, "%d more such rings (try: --json)\n\n", more)
	}
	if list := v.report.Stories; len(list) > 1 { // the first is in the summary
		for _, s := range list[1:min(len(list), shownStories)] {
			fmt.Fprintln(w, s.Text())
		}
		if more := len(list) - shownStories; more > 0 {
			fmt.Fprintf(w, "%d more (try: --json)\n", more)
		}
		fmt.Fprintln(w)
	}
	writeOutside(w, v.report)
}

// writeOutside tells what those do that were not asked for and that others wait for.
func writeOutside(w io.Writer, r *stuck.Report) {
	n := 0
	for _, t := range r.Threads {
		if !t.Outside {
			continue
		}
		if n++; n <= shownStories {
			fmt.Fprintf(w, "outside: tid %d %q (pid %d %q) %s\n", t.TID, printable(t.Name), t.PID, printable(t.Process.Name), t.Doing())
		}
	}
	if n > shownStories {
		fmt.Fprintf(w, "outside: %d more threads of processes that others wait for (try: --tree, --json)\n", n-shownStories)
	}
	if n > 0 {
		fmt.Fprintln(w)
	}
}

// writeThreads writes each distinct stack once, with the threads that have it, the most
// frequent first and then in order of the threads; without group each thread by itself.
func (v *view) writeThreads(w io.Writer, group bool) {
	var order []string
	groups := map[string][]*sampler.ThreadDump{}
	keys := map[alike]string{}
	for i, t := range v.threads {
		k := fmt.Sprint(i)
		if group {
			a := alike{t.PID, t.State, v.mark(t), t.Stack, t.Taken}
			if keys[a] == "" {
				keys[a] = a.key(t)
			}
			k = keys[a]
		}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], t)
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(groups[b]) - len(groups[a]) })
	for _, k := range order {
		v.writeGroup(w, groups[k])
	}
	if v.last != nil {
		v.writeGone(w)
	}
}

// alike is the same for threads that are written together. Most of them have one [output.Stack], others equal ones.
type alike struct {
	pid   int
	state byte
	mark  string
	stack *output.Stack
	taken string
}

// key is the same for threads of one process, with the same stack, in the same state.
func (a alike) key(t *sampler.ThreadDump) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %c %s\n", a.pid, a.state, a.mark)
	writeStack(&b, t)
	return b.String()
}

// shownWaits bounds the waits that are written of threads with one stack.
const shownWaits = 4

func (v *view) writeGroup(w io.Writer, group []*sampler.ThreadDump) {
	t := group[0]
	if len(group) == 1 {
		fmt.Fprintln(w, threadLine(t)+v.mark(t))
	} else {
		ids := make([]int, 0, len(group))
		for _, t := range group {
			ids = append(ids, t.TID)
		}
		fmt.Fprintf(w, "%d threads of pid %d %q: %s%s: tid %s\n", len(group), t.PID, printable(t.Process), stateText(t), v.mark(t), stuck.Ranges(ids))
	}
	v.writeWaits(w, group)
	writeStack(w, t)
	fmt.Fprintln(w)
}

// writeWaits writes what threads with one stack do, each once.
func (v *view) writeWaits(w io.Writer, group []*sampler.ThreadDump) {
	does := map[string][]*stuck.Thread{}
	var order []string
	for _, t := range group {
		s := v.report.Thread(t.TID)
		if s == nil {
			continue
		}
		k := s.Does()
		if does[k] == nil {
			order = append(order, k)
		}
		does[k] = append(does[k], s)
	}
	for i, k := range order {
		if i == shownWaits {
			fmt.Fprintf(w, "  and %d more such waits (try: --group=false)\n", len(order)-i)
			break
		}
		fmt.Fprintf(w, "  %s%s\n", k, stuck.Since(does[k]))
	}
}

// mark says with --watch what has changed of a thread since the dump before.
func (v *view) mark(t *sampler.ThreadDump) string {
	now := v.report.Thread(t.TID)
	if v.last == nil || now == nil {
		return ""
	}
	switch before := v.last.report.Thread(t.TID); {
	case before == nil:
		return " [new]"
	case before.Ran(now):
		return " [changed]"
	}
	return ""
}

// writeGone names the threads that have ended since the dump before.
func (v *view) writeGone(w io.Writer) {
	var gone []*stuck.Thread
	for _, t := range v.last.report.Threads {
		if v.report.Thread(t.TID) == nil {
			gone = append(gone, t)
		}
	}
	if len(gone) > 0 {
		fmt.Fprintf(w, "ended since the last look: tid %s\n\n", stuck.Numbers(gone))
	}
}

// threadLine begins a thread: it contains "tid N".
func threadLine(t *sampler.ThreadDump) string {
	return fmt.Sprintf("tid %d %q (pid %d %q): %s", t.TID, t.Name, t.PID, t.Process, stateText(t))
}

// states gives words for the letters of proc_pid_stat(5).
var states = map[byte]string{
	'R': "running", 'S': "sleeping", 'D': "uninterruptible sleep", 'T': "stopped",
	't': "stopped by a tracer", 'Z': "zombie", 'X': "dead", 'I': "idle", 'P': "parked",
}

func stateText(t *sampler.ThreadDump) string {
	s := states[t.State]
	if s == "" {
		s = fmt.Sprintf("state %q", t.State)
	}
	if t.Call != "" && t.Taken != "running" {
		s += " in " + t.Call
	}
	return fmt.Sprintf("%s (%c)", s, t.State)
}

func writeStack(w io.Writer, t *sampler.ThreadDump) {
	if t.Stack == nil {
		fmt.Fprintf(w, "end: no stack: %s\n", strings.ReplaceAll(t.Taken, "0x", ""))
		return
	}
	w.Write(output.AppendStack(nil, t.Stack))
}
