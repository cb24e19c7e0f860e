// Bench measures sfsample beside its peers: the same programs run alone and with each tool in turn, and what they
// lose, what the tool takes and what it brings stand in one table.
//
//	go run ./bench [-d 5s] [-turns 4] [-hz 99,999] [-targets NAMES] [-tools NAMES] [-sfsample FILE] [-o bench.md]
//
// Targets and tools are listed by -list; what the machine lacks is named and left out. Each turn runs every tool once, in an order
// that moves on by one, so that a drift of the machine's speed meets all. "alone" is measured twice a turn: the second stands in the
// table as a tool that does nothing, and shows how far equal runs are apart.
//
//	lost     of the target's work, against the run alone of the same turn: median of the turns (lowest to highest), in per cent.
//	         Work that is given (xz, sqlite3, python3, node, java, redis, nginx) counts by its time, else by how much was done
//	CPU      the same of the CPU time that the target takes for each unit of its work
//	p99      latency of a server's requests, the longest that the spinning thread stood still or that an exec took, milliseconds
//	tool     CPU time that the tool takes, in per cent of a CPU; the memory that it takes at most; what it writes
//	stacks   how many a second (a tool that brings none has failed); of 100 ticks for which the target has run by its own CPU time (fewer: samples
//	         were lost; more: of threads that did not run, too, and with perf of its children); whole ones and named frames in per cent, as far as that can be told from what the tool writes
//
// The table is written to standard output and with -o to files: FILE.md, FILE.json, FILE.svg, the work that all targets
// lose against the rate, a curve for each tool, and FILE-targets.svg, CPU time against the rate for each of them. The other programs below this folder measure one thing each: harm, pause, unwind.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are the settings of a comparison.
type options struct {
	length   time.Duration // of a run
	turns    int
	rates    []int
	sfsample string
	dir      string // removed at the end
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	rates := fs.String("hz", "99,999", "samples a second")
	targetNames := fs.String("targets", "", "names of targets (default: all)")
	toolNames := fs.String("tools", "", "names of tools (default: all)")
	list := fs.Bool("list", false, "list targets and tools")
	out := fs.String("o", "", "write FILE.md, FILE.json, FILE.svg and FILE-targets.svg")
	fs.DurationVar(&o.length, "d", 5*time.Second, "length of a run")
	fs.IntVar(&o.turns, "turns", 4, "runs of each tool")
	fs.StringVar(&o.sfsample, "sfsample", "", "the program to measure (default: built from this module)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	for r := range strings.SplitSeq(*rates, ",") {
		hz, err := strconv.Atoi(r)
		if err != nil || hz < 1 {
			return fmt.Errorf("-hz %s: %q is no rate (try: -hz 99,999)", *rates, r)
		}
		o.rates = append(o.rates, hz)
	}
	if fs.NArg() > 0 || o.turns < 1 || o.length < 10*time.Millisecond {
		return errors.New("wrong usage (try: go run ./bench -turns 4 -d 5s)")
	}
	chosen, err := choose("target", targets, *targetNames, func(t target) string { return t.name })
	if err != nil {
		return err
	}
	hired, err := choose("tool", tools, *toolNames, func(t tool) string { return t.name })
	if err != nil {
		return err
	}
	if *list {
		for _, t := range chosen {
			fmt.Fprintf(w, "target  %-12s %s\n", t.name, t.what)
		}
		for _, t := range hired {
			fmt.Fprintf(w, "tool    %-12s %s\n", t.name, t.what)
		}
		return nil
	}
	if o.dir, err = os.MkdirTemp("", "bench-*"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	if err := o.build(); err != nil {
		return err
	}
	rep := newReport(&o)
	for _, t := range chosen {
		if err := rep.measure(&o, t, hired); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	rep.markdown(w)
	if *out == "" {
		return nil
	}
	return rep.write(strings.TrimSuffix(*out, ".md"))
}

// choose returns those of list that are named; "" stands for all.
func choose[T any](what string, list []T, names string, name func(T) string) (chosen []T, err error) {
	if names == "" {
		return list, nil
	}
	for n := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(list, func(x T) bool { return name(x) == n })
		if i < 0 {
			return nil, fmt.Errorf("no %s %q (try: -list)", what, n)
		}
		chosen = append(chosen, list[i])
	}
	return chosen, nil
}

// build builds the programs of the comparison.
func (o *options) build() error {
	for name, source := range map[string]string{"work": "bench/src/work.c", "spin": "bench/pause/src/spin.c", "loop": "bench/pause/src/loop.c"} {
		if out, err := exec.Command("cc", "-O2", "-pthread", "-o", o.file(name), source).CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s(try: apt install gcc, and go run ./bench from the folder of go.mod)", source, err, out)
		}
	}
	if o.sfsample != "" {
		return nil
	}
	o.sfsample = o.file("sfsample")
	if out, err := exec.Command("go", "build", "-o", o.sfsample, "./cmd/sfsample").CombinedOutput(); err != nil {
		return fmt.Errorf("build sfsample: %w\n%s", err, out)
	}
	return nil
}

func (o *options) file(name string) string { return filepath.Join(o.dir, name) }

// has tells whether programs are there; what says which is not.
func has(names ...string) (what string) {
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			return "no " + n + " on this machine"
		}
	}
	return ""
}
