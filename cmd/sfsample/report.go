package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler"
	"sfsample/sampler/ledger"
	"sfsample/sampler/symbol"
	"sfsample/sampler/symbol/rootfs"
	"sfsample/unwind"
)

// progress is the one line on a terminal that says how it goes.
type progress struct {
	w    io.Writer
	show func(sampler.Progress) // nil when nobody watches
}

func (p *progress) clear() {
	if p.show != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// progress says at once, on a terminal, what is sampled and how to end it.
func (s *session) progress() *progress {
	p := &progress{w: s.stderr}
	f, ok := s.stderr.(*os.File)
	if s.config.messages.quiet || s.top != nil || !ok || !isTerminal(f) {
		return p
	}
	what := "process " + joinInts(s.config.who.pids)
	if s.config.who.searches() {
		what = s.config.who.meant()
	}
	if s.config.command != nil {
		what = printable(s.config.command[0])
	}
	fmt.Fprintf(p.w, "sfsample: sampling %s at %d Hz; Ctrl-C ends it and writes the result\n", what, s.config.pace.hz)
	p.show = func(g sampler.Progress) {
		fmt.Fprintf(p.w, "\r\x1b[K%6.1fs  %d samples  %d threads  %d lost  pause %v",
			g.Elapsed.Seconds(), g.Samples, g.Threads, g.Lost, g.Pause.Round(100*time.Nanosecond))
	}
	return p
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// printable is for what may come from a target or a file: a terminal would take some
// of it for commands, or show it backwards.
func printable(s string) string { return output.Printable(s) }

// say writes a line for people.
func (s *session) say(format string, args ...any) {
	fmt.Fprintf(s.stderr, "sfsample: %s\n", printable(fmt.Sprintf(format, args...)))
}

func joinInts(list []int) string {
	var b strings.Builder
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// closing writes the counts of a run: what became of each tick of each thread,
// the rate, how stacks ended, what it cost the target.
func (s *session) closing(recorded bool) {
	r := &s.result
	u := s.found.pipe.Stats()
	say := s.say
	lost := ""
	if n := r.Lost(); n > 0 {
		lost = fmt.Sprintf("; lost: %d", n)
	}
	say("%.1fs, %s (%d late), %s = %s%s", r.Elapsed.Seconds(), output.Plural(int64(r.Ticks), "tick"), r.Clocks.Late,
		output.Plural(int64(r.Expected), "thread tick"), r.Account.String(), lost)
	if r.Sum() != r.Expected {
		say("the counts do not add up: %d thread ticks, %d accounted for; please report this", r.Expected, r.Sum())
	}
	rate := fmt.Sprintf("rate: %.1f Hz asked, %.1f reached, %.1f stops a second", r.Rate.Asked, r.Rate.Reached, float64(r.Stops.Asked)/max(r.Elapsed.Seconds(), 1e-3))
	if r.Rate.Stride > 1 {
		why := fmt.Sprintf("samples would take more than %s of the target's time; see --max-overhead", output.Percent(s.config.pace.maxOverhead))
		if s.config.pace.maxCPU > 0 {
			why = fmt.Sprintf("samples would take more than %s of the target's time, or this program more than %s of a CPU; see --max-overhead, --max-cpu", output.Percent(s.config.pace.maxOverhead), output.Percent(s.config.pace.maxCPU))
		}
		rate += fmt.Sprintf(" (at times lowered to %.2g %% of what was asked, as %s)", 100/r.Rate.Stride, why)
	}
	say("%s", rate)
	s.found.stacks(u, s.config.unwinding.noEHFrame())
	s.found.scripts(&u.Scripts)
	if s.config.sampling.exitStacks {
		say("%s", exits(r.Exits))
	}
	if s.config.unwinding.verify {
		s.found.verified()
	}
	s.found.unread()
	say("taken %s; delay %s; pause %s", spread(r.Times.Taken), spread(r.Times.Delay), spread(r.Times.Pause))
	if r.Stops.Moved > 0 {
		say("moved: %d samples (%.1f %%) may be of a moment after the tick, or of a thread that had lost its CPU just before", r.Stops.Moved, 100*float64(r.Stops.Moved)/float64(max(1, r.Count[ledger.Sampled])))
	}
	if r.Unseen > 0 {
		say("unseen: %v of CPU time of processes that ended before they were found, or between two looks, is [never caught running]", short(r.Unseen))
	}
	if u.Short > 0 {
		say("short counts: %d stops met system calls of the target that returned with a part of their transfer, as upon a signal (not counted: reads, and stops without a sample)", u.Short)
	}
	if recorded {
		s.say("wrote %s (try: sfsample replay %[1]s)", s.config.out.record)
	}
	s.notes()
	if s.command != nil {
		s.command.tellEnd(say, r, s.config.pace.duration > 0)
	}
	if s.config.messages.verbose {
		s.details(u)
	}
	if hint := s.next(u); hint != "" {
		say("next: %s", hint)
	}
}

// next is the one thing to do next, empty if there is none.
func (s *session) next(u sampler.Unwound) string {
	r := &s.result
	switch pid, tracer := s.config.who.stopped(); {
	case tracer != 0:
		return fmt.Sprintf("process %d is stopped by process %d, which traces it (try: sfsample dump -p %[1]d, which needs no stop)", pid, tracer)
	case pid != 0:
		return fmt.Sprintf("process %d is stopped, by a signal or a shell's Ctrl-Z (try: kill -CONT %[1]d; sfsample dump -p %[1]d shows where it stands)", pid)
	case r.FewFiles:
		return "some threads were not sampled, as no more files could be opened (try: ulimit -n 4096; it takes six for each thread)"
	case r.Count[ledger.InCall] > r.Count[ledger.Sampled]:
		return fmt.Sprintf("at %d of %d thread ticks that ran there is no stack: a stop would have cut a system call short (docs/target.md says which; try: perf record -g)",
			r.Count[ledger.InCall], r.Count[ledger.InCall]+r.Count[ledger.Sampled])
	case s.config.sampling.threads == threadsRunning && 20*(r.Count[ledger.Sampled]+r.Count[ledger.Waiting]) < r.Ticks:
		live := slices.DeleteFunc(slices.Clone(s.config.who.pids), func(pid int) bool {
			stat, err := procfs.FS{}.Stat(pid)
			return err != nil || stat.State == 'Z'
		})
		or := "sfsample dump -p " + joinInts(live)
		switch {
		case r.Expected == 0 && s.command == nil:
			return "" // there was nobody, as was said
		case s.command != nil || len(s.config.who.pids) > 0 && len(live) == 0: // nobody is left
			or = "a higher -hz"
		case len(s.config.who.pids) == 0:
			or = "sfsample dump with the same choice of processes"
		}
		return fmt.Sprintf("hardly anything ran, %s in %s (try: --threads all for what is waited for, or %s)",
			output.Plural(int64(r.Count[ledger.Sampled]), "sample"), output.Plural(int64(r.Ticks), "tick"), or)
	case u.Cut[unwind.DepthLimit.String()] > 0:
		return fmt.Sprintf("%d stacks are deeper than %d frames (try: --max-depth %d)", u.Cut[unwind.DepthLimit.String()], s.config.unwinding.maxDepth, 8*s.config.unwinding.maxDepth)
	case 4*r.Lost() > r.Expected && 2*r.Count[ledger.Throttled] > r.Lost() && s.config.pace.maxCPU == 0:
		// The rate takes as much as the median and half as much again, as the longer ones count, too.
		try := "a lower -hz"
		if needs := math.Ceil(150 * float64(s.config.pace.hz) * r.Times.Taken.P50.Seconds()); needs <= 50 && needs > 100*s.config.pace.maxOverhead {
			try = fmt.Sprintf("--max-overhead %.0f%%, or a lower -hz", needs)
		}
		return fmt.Sprintf("%d of %d thread ticks were left out, as a sample takes %v of the target's time (try: %s)", r.Count[ledger.Throttled], r.Expected, short(r.Times.Taken.P50), try)
	case 4*r.Lost() > r.Expected:
		root := ", or as root"
		if os.Geteuid() == 0 {
			root = ""
		}
		return fmt.Sprintf("%d of %d thread ticks were lost (try: a lower -hz%s; docs/numbers.md explains the words)", r.Lost(), r.Expected, root)
	}
	return nameless(s.found.names.Nameless(), dpkgLists)
}

// notes says what was written, and what the outputs could not hold.
func (s *session) notes() {
	last, ok := s.outs.(*lastSink)
	if !ok {
		return // each round has told
	}
	for _, w := range last.Wrote() {
		s.say("wrote %s", w)
	}
	for _, n := range last.Notes() {
		s.say("%s", n)
	}
}

// exits tells how many threads have shown the stack that they had at their exit.
func exits(x sampler.Exits) string {
	line := fmt.Sprintf("exit stacks: %d, of %d threads that ended", x.Taken, x.Threads)
	if x.NoRoom > 0 {
		line += fmt.Sprintf("; for %d there was no room, as unwinding was behind (try: a lower -hz)", x.NoRoom)
	}
	return line
}

// replayed is the closing line of a replay.
func (s *session) replayed() {
	u := s.found.pipe.Stats()
	s.found.stacks(u, s.config.unwinding.noEHFrame())
	s.found.scripts(&u.Scripts)
	if s.config.unwinding.verify {
		s.found.verified()
	}
	s.found.unread()
	s.notes()
	if s.config.messages.verbose {
		s.found.unwound(u)
	}
}

// findings are what unwinding and naming have met, to be told at the end.
type findings struct {
	names *sampler.Names
	pipe  *sampler.Pipeline
	say   func(string, ...any)
}

// stacks tells how stacks ended, and what would help where the methods asked for
// know nothing of the code.
func (f *findings) stacks(u sampler.Unwound, noEHFrame bool) {
	f.say("stacks: %d unwound, %d complete%s", u.Stacks, u.Complete, reasons(u.Cut))
	if n := u.Cut[unwind.NoRow.String()]; n > 0 && noEHFrame {
		f.say("stacks: %d end in code of which the methods asked for know nothing (try: --unwind with eh_frame)", n)
	}
}

// scripts tells what became of the frames of scripts.
func (f *findings) scripts(u *sampler.Scripts) {
	if *u == (sampler.Scripts{}) {
		return
	}
	line := fmt.Sprintf("scripts: %d frames, %d in the place of native ones", u.Placed+u.Loose, u.Placed)
	if u.Unnamed > 0 {
		line += fmt.Sprintf("; of %d the code was gone when its name was read", u.Unnamed)
	}
	if u.Unseen > 0 {
		line += "; " + output.Plural(int64(u.Unseen), "stack") + " without, as the thread was not known to the interpreter, or not yet to us"
	}
	f.say("%s", line)
}

// unread says where there was no time or no room for names.
func (f *findings) unread() {
	for _, line := range append(unread(f.names), refused()...) {
		f.say("names: %s", line)
	}
}

// unread tells of the files for which there was no time.
func unread(names *sampler.Names) (list []string) {
	all := names.Unread()
	for _, m := range slices.Sorted(maps.Keys(all)) {
		if n := all[m].Names; n > 0 {
			list = append(list, fmt.Sprintf("%d addresses of %s are without names, as its symbols could not be read in time (try: a longer -d)", n, m))
		}
		if n := all[m].Lines; n > 0 {
			list = append(list, fmt.Sprintf("%d addresses of %s are without inlined functions and lines, as these could not be read in time (try: a longer -d)", n, m))
		}
	}
	return list
}

// refused tells of the bounds that were met on what names are read from, and of disks that do not answer.
func refused() (list []string) {
	for _, file := range rootfs.Silent() {
		list = append(list, "some names and frames are missing, as a disk does not answer: "+file)
	}
	for _, bound := range symbol.Refused() {
		list = append(list, "some names or lines are missing, as "+bound+" at a time (-v tells of which files)")
	}
	return list
}

func (s *session) details(u sampler.Unwound) {
	r, say := &s.result, s.say
	told := ""
	if r.Clocks.Told {
		told = "; the kernel told them who had the CPU"
	}
	say("stops: %d asked for, %d on their way at the end; %d CPUs had a clock, which looked in vain for %v in all%s", r.Stops.Asked, r.Stops.Waits, r.Clocks.N, short(r.Times.Looked), told)
	say("stops that met a system call: %d, from request to release %s; a SIGKILL of sfsample then would leave the call's repetition to the kernel",
		r.Times.Met.N, spread(r.Times.Met))
	if r.Clocks.Denied != nil {
		say("no real-time priority: %v (try: as root, or with CAP_SYS_NICE; pauses are longer on a busy machine)", r.Clocks.Denied)
	}
	s.found.unwound(u)
}

// verified lists the differences that --verify found.
func (f *findings) verified() {
	list := f.pipe.Differences()
	f.say("verify: %d places where methods differ", len(list))
	for _, d := range list {
		f.say("verify: %s", d)
	}
}

// unwound reports on methods, modules and names.
func (f *findings) unwound(u sampler.Unwound) {
	var methods []string
	for how, n := range u.Frames {
		methods = append(methods, fmt.Sprintf("%v %d", how, n))
	}
	slices.Sort(methods)
	f.say("frames by method: %s; %d stacks walked again with .eh_frame first", strings.Join(methods, ", "), u.Repeated)
	modules, problems := f.pipe.Modules()
	for _, m := range modules {
		f.say("module: %s", m)
	}
	for _, m := range problems {
		f.say("table: %s", m)
	}
	for _, m := range f.names.Missing() {
		f.say("names: %s", m)
	}
}

// reasons lists why stacks were cut, most frequent first.
func reasons(cut map[string]int64) string {
	if len(cut) == 0 {
		return ""
	}
	list := slices.SortedFunc(maps.Keys(cut), func(a, b string) int { return cmp.Or(cmp.Compare(cut[b], cut[a]), strings.Compare(a, b)) })
	for i, r := range list {
		list[i] = fmt.Sprintf("%d %s", cut[r], r)
	}
	return "; cut: " + strings.Join(list, ", ")
}

func spread(s sampler.Spread) string {
	if s.N == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %v, p99 %v, max %v", short(s.P50), short(s.P99), short(s.Max))
}

// short rounds to three digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
