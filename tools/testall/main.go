// Testall compiles the module's tests once for each kind of machine, runs them
// there one package after the other, and counts.
//
//	go run ./tools/testall [-runs host,user,race,arm64,s390x] [-skips FILE] [PACKAGE...]
//
// One package runs at a time: many tests start processes and look at the time
// these take, and two packages at once on a machine of two CPUs disturb each
// other. Compiling, which has no such problem, uses all CPUs.
//
// Some tests measure shares of time, which a machine that is busy with other
// things takes part in. So tests that fail, if they are few and their program
// did not crash, are run once more by themselves; that they failed first is told
// at the end. (A crash is never tried again.)
//
// The last line is "N passed, N failed, N skipped". The exit status is 1 if
// anything failed, or if CI=true and a test was skipped that the list of
// accepted skips does not name.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	runs := flag.String("runs", "host", "comma-separated `names`: host, user, race, arm64, s390x")
	skips := flag.String("skips", "testdata/skips.txt", "`file` of accepted skips")
	short := flag.Bool("short", false, "pass -test.short")
	pattern := flag.String("run", "", "pass -test.run `regexp`")
	flag.Parse()
	patterns := flag.Args()
	if len(patterns) == 0 {
		patterns = everything
	}
	var extra []string
	if *short {
		extra = append(extra, "-test.short")
	}
	if *pattern != "" {
		extra = append(extra, "-test.run="+*pattern)
	}
	ok, err := testAll(strings.Split(*runs, ","), *skips, patterns, extra)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testall:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// everything is all packages.
var everything = []string{"./..."}

// testAll does the named runs in order and prints the sum. It reports whether
// everything passed; the error is one of the machinery.
func testAll(runs []string, skipFile string, patterns, extra []string) (ok bool, err error) {
	accepted, err := readSkips(skipFile)
	if err != nil {
		return false, err
	}
	tmp, err := os.MkdirTemp("", "testall")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	// The ordinary user must be able to reach the folder.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return false, err
	}
	// A program that the race detector watches sleeps for a second before it exits, unless it is told otherwise: so do
	// hundreds of children of tests. Goroutines that can go on are watched for a moment all the same.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=10 "+os.Getenv("GORACE")); err != nil {
		return false, err
	}
	rep := &report{out: os.Stdout, accepted: accepted, strict: os.Getenv("CI") == "true"}
	for _, name := range runs {
		start := time.Now()
		rep.begin(name)
		if err := runNamed(name, tmp, patterns, extra, rep); err != nil {
			rep.broken(err)
		}
		fmt.Fprintf(rep.out, "%s: %.0f s\n", name, time.Since(start).Seconds())
	}
	return rep.finish(), nil
}

// runNamed does one run.
func runNamed(name, tmp string, patterns, extra []string, rep *report) error {
	k, found := kinds[name]
	if !found {
		return fmt.Errorf("unknown run %q", name)
	}
	if name == "user" && os.Geteuid() != 0 {
		fmt.Fprintln(rep.out, "user: the host run was one already")
		return nil
	}
	bins, err := k.compile(tmp, patterns, slices.ContainsFunc(extra, func(arg string) bool { return strings.HasPrefix(arg, "-test.run=") }))
	if err != nil {
		return err
	}
	defer rep.settle()
	args := slices.Concat([]string{verboseArg}, k.args, extra)
	if err := k.place(tmp, bins, args, rep); err != nil {
		return err
	}
	if again := rep.again(bins); len(again) > 0 {
		return k.place(tmp, again, args, rep)
	}
	return nil
}
