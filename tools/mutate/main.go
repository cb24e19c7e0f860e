package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

func main() {
	n := flag.Int("n", 200, "faults in each package")
	seed := flag.Uint64("seed", 1, "another seed is another choice of faults")
	jobs := flag.Int("j", 2, "runs at a time")
	want := flag.Float64("want", 92, "percentage that has to be found")
	verbose := flag.Bool("v", false, "show the faults that were found too")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "mutate: no package given (try: go run ./tools/mutate ./unwind)")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok, err := mutate(ctx, os.Stdout, flag.Args(), *n, *seed, *jobs, *want, *verbose)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// mutate plants n faults in each package and reports to w. ok: at least want
// percent were found in each.
func mutate(ctx context.Context, w io.Writer, packages []string, n int, seed uint64, jobs int, want float64, verbose bool) (ok bool, _ error) {
	list, err := readKnown(equivalents)
	if err != nil {
		return false, err
	}
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(scratch)
	ok = true
	for _, pkg := range packages {
		t, err := openTests(ctx, pkg, scratch, list)
		if err != nil {
			return false, err
		}
		faults, err := t.choose(seed)
		if err != nil {
			return false, err
		}
		count := map[verdict]int{}
		t.try(ctx, faults, n, jobs, func(r result) {
			count[r.verdict]++
			if verbose || r.verdict == survived {
				before, after := r.lines()
				fmt.Fprintf(w, "%s %s/%s:%d %s\n\t- %s\n\t+ %s\n", r.verdict, t.path, r.file, r.line, r.fn, before, after)
			}
		})
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		counted := count[found] + count[survived]
		share := 100 * float64(count[found]) / float64(max(counted, 1))
		fmt.Fprintf(w, "%s: %d of %d found, %.1f %%; %d equivalent; %d faults to choose from\n",
			t.path, count[found], counted, share, count[equivalent], len(faults))
		ok = ok && counted > 0 && share >= want
	}
	return ok, nil
}
