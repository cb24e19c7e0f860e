package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	flag.Parse()
	broke, err := all(*tool, *only, *brief, *runs, *hz, *length)
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
func all(tool, only string, brief bool, runs, hz int, length time.Duration) (broke int, err error) {
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
	for i, a := range attacks() {
		for k, m := range modes {
			if !chosen(only, a, m) || brief && !short(&a, i, k) {
				continue
			}
			program, err := b.build(a.source)
			if err != nil {
				return broke, err
			}
			text, held := row(newTrial(tool, program, a, m, hz, length), runs)
			if !held {
				broke++
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", a.name, m.name, text)
		}
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
	var calls, eintr, short int64
	for i := range runs {
		c, err := t.run()
		switch {
		case errors.Is(err, errNotHere):
			return "left out: " + err.Error(), true
		case err != nil:
			return fmt.Sprintf("broke in run %d of %d: %v", i+1, runs, err), false
		}
		calls += c["calls"]
		eintr += c["eintr"]
		short += c["short"]
	}
	text = fmt.Sprintf("held\t%d runs\t%d calls", runs, calls)
	if eintr > 0 {
		text += fmt.Sprintf("\t%d EINTR, as asked for", eintr)
	}
	if short > 0 {
		text += fmt.Sprintf("\t%d short counts", short)
	}
	return text, true
}
