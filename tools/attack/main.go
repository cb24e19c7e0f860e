package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	tool := flag.String("tool", "", "the `program` to try (default: ./cmd/sfsample, built now)")
	only := flag.String("only", "", "attacks and modes whose names contain this `text`, as in 'seccomp kill/dump'")
	brief := flag.Bool("short", false, "the short form: each attack in one mode or two, none that takes seconds")
	runs := flag.Int("runs", 20, "runs of each attack in each mode")
	hz := flag.Int("hz", 999, "ticks a second")
	length := flag.Duration("d", 200*time.Millisecond, "length of a run")
	jobs := flag.Int("jobs", 1, "lines of the table that are worked on at once, but for those that compare times")
	beside := flag.Int("beside", 1, "targets of one run, but for attacks that compare times or that may have no target")
	flag.Parse()
	// What a shell starts in the background ignores these, and so would sfsample: it is given what it has by default.
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	broke, err := all(*tool, *only, *brief, *runs, *hz, *length, max(*jobs, 1), max(*beside, 1))
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
	if broke > 0 {
		fmt.Printf("%d broke\n", broke)
		os.Exit(1)
	}
}

// all runs what is asked for and prints the table. It returns in how many of its
// places sfsample broke.
func all(tool, only string, brief bool, runs, hz int, length time.Duration, jobs, beside int) (broke int, err error) {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if tool == "" {
		tool = filepath.Join(dir, "sfsample")
		if text, err := exec.Command("go", "build", "-o", tool, "sfsample/cmd/sfsample").CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build sfsample: %w\n%s", err, text)
		}
	}
	b, err := newBuilder(dir)
	if err != nil {
		return 0, err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	type line struct {
		*trial
		text string
		held bool
		done chan struct{}
	}
	var lines []*line
	if err := reachable(dir); err != nil {
		return 0, err
	}
	for i, a := range attacks() {
		for k, m := range modes {
			if !chosen(only, a, m) || brief && !short(&a, i, k) || !m.here(&a) {
				continue
			}
			program, err := b.build(a.source)
			if err != nil {
				return broke, err
			}
			t := newTrial(tool, program, a, m, hz, length)
			if !a.alone && !a.fails {
				t.targets = beside
			}
			lines = append(lines, &line{trial: t, done: make(chan struct{})})
		}
	}
	go func() {
		var busy sync.WaitGroup
		room := make(chan struct{}, jobs)
		for _, l := range lines {
			room <- struct{}{}
			if l.attack.alone {
				busy.Wait()
			}
			work := func() {
				l.text, l.held = row(l.trial, runs)
				close(l.done)
				<-room
			}
			if l.attack.alone {
				work()
				continue
			}
			busy.Go(work)
		}
	}()
	for _, l := range lines {
		<-l.done
		if !l.held {
			broke++
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.attack.name, l.mode.name, l.text)
		w.Flush()
	}
	return broke, nil
}

// chosen tells whether an attack in a mode is asked for.
func chosen(only string, a attack, m mode) bool {
	return strings.Contains(a.name+"/"+m.name, only)
}

// row makes the runs of one place in the table.
func row(t *trial, runs int) (text string, held bool) {
	sum := counts{}
	var stood int64
	for i := range runs {
		c, err := t.run()
		switch {
		case errors.Is(err, errNotHere):
			return "left out: " + err.Error(), true
		case err != nil:
			return fmt.Sprintf("broke in run %d of %d: %v", i+1, runs, err), false
		}
		sum.add(c)
		stood = max(stood, c["stood_us"])
	}
	calls, eintr, short, taken := sum["calls"], sum["eintr"], sum["short"], sum[stacks]
	err := lacks(t, sum, runs)
	if err == nil && taken == 0 && !t.attack.fails && (t.attack.name != "procs traceme" || blocked(&t.mode)) { // who is traced already is not stopped
		err = fmt.Errorf("sfsample has taken no stack in %d runs", runs)
	}
	if err != nil {
		return fmt.Sprintf("broke: %v", err), false
	}
	text = fmt.Sprintf("held\t%d runs\t%d calls\t%d stacks", runs*t.targets, calls, taken)
	if eintr > 0 {
		text += fmt.Sprintf("\t%d EINTR, as asked for", eintr)
	}
	if stood > 0 {
		text += fmt.Sprintf("\tothers stood still for %v at most", time.Duration(stood)*time.Microsecond)
	}
	if short > 0 {
		text += fmt.Sprintf("\t%d short counts", short)
	}
	return text, true
}
