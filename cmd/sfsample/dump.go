package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"sfsample/output"
	"sfsample/sampler"
)

// dump writes every thread's stack once, for people.
func dump(c config, stdout, stderr io.Writer) error {
	log := logger(c, stderr)
	if err := checkPIDs(c.pids); err != nil {
		return err
	}
	if err := checkTIDs(&c); err != nil {
		return err
	}
	pipe := c.livePipeline(c.newNames(context.Background(), log, stderr, false), log, nil, nil, nil)
	s := session{config: c}
	opt := s.options()
	opt.Kernel = true // where the kernel shows it
	threads, err := sampler.Dump(opt, pipe)
	if err != nil {
		return err
	}
	if len(threads) == 0 {
		return fmt.Errorf("dump %s: no such process", joinInts(c.pids))
	}
	w := bufio.NewWriter(stdout)
	if c.group {
		writeGroups(w, threads)
	} else {
		for _, t := range threads {
			fmt.Fprintln(w, threadLine(t))
			writeStack(w, t)
			fmt.Fprintln(w)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return unreadable(threads)
}

// unreadable is an error if nothing could be read of any thread.
func unreadable(threads []*sampler.ThreadDump) error {
	for _, t := range threads {
		if !strings.HasPrefix(t.Taken, sampler.CannotRead) {
			return nil
		}
	}
	pid := threads[0].PID
	return fmt.Errorf("dump %d: no thread can be read (%s)", pid, sampler.Remedy(pid))
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

// writeGroups writes each distinct stack once, with the threads that have it,
// the most frequent first and then in order of the threads.
func writeGroups(w io.Writer, threads []*sampler.ThreadDump) {
	var order []string
	groups := map[string][]*sampler.ThreadDump{}
	for _, t := range threads {
		var b strings.Builder
		writeStack(&b, t)
		k := b.String()
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], t)
	}
	sortByCount(order, groups)
	for _, k := range order {
		for _, t := range groups[k] {
			fmt.Fprintln(w, threadLine(t))
		}
		fmt.Fprintf(w, "%s\n", k)
	}
}

func sortByCount(keys []string, groups map[string][]*sampler.ThreadDump) {
	slices.SortStableFunc(keys, func(a, b string) int { return len(groups[b]) - len(groups[a]) })
}
