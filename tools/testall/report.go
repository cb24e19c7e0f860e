package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// event is a line of go tool test2json (its documentation lists the fields).
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// counts are those of tests.
type counts struct{ passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// report counts the tests of all runs and prints what went wrong.
type report struct {
	out      io.Writer
	accepted []acceptedSkip
	strict   bool // a skip that is not accepted is a failure

	name     string // of the current run
	sum      counts
	faults   []string  // for the end: one line each
	first    []attempt // programs of the current run with tests that failed
	trying   bool      // what runs is what failed first
	tried    int       // tests of the current run that were to be run again
	unsteady []string  // for the end: tests that failed first and passed when run again
}

// attempt is what is known of the tests of a program that failed.
type attempt struct {
	pkg    string
	failed []string        // in the first attempt, with subtests
	second map[string]bool // what the second one knows: whether they passed
}

// mostAgain is how many tests of a run are run again; more are no matter of the machine.
const mostAgain = 6

// again returns the programs that are to be run again, with the tests that failed, and expects to be told how that ends.
func (r *report) again(bins []binary) (list []binary) {
	for _, a := range r.first {
		i := slices.IndexFunc(bins, func(b binary) bool { return b.pkg == a.pkg })
		b := bins[i]
		var names []string
		for _, test := range a.failed {
			if top, _, _ := strings.Cut(test, "/"); !slices.Contains(names, top) {
				names = append(names, top)
			}
		}
		r.tried += len(names)
		b.only = "^(" + strings.Join(names, "|") + ")$"
		list = append(list, b)
	}
	if r.tried > mostAgain || len(list) == 0 {
		return nil
	}
	r.trying = true
	fmt.Fprintf(r.out, "-- %s: what failed, by itself\n", r.name)
	return list
}

// settle counts the tests that failed first, by what is known of them now, and ends the run.
func (r *report) settle() {
	for _, a := range r.first {
		for _, test := range a.failed {
			if a.second[test] {
				r.sum.passed++
				r.unsteady = append(r.unsteady, fmt.Sprintf("%s: %s %s failed, and passed when run again by itself", r.name, a.pkg, test))
			} else {
				r.sum.failed++
				r.fault("%s %s failed", a.pkg, test)
			}
			delete(a.second, test)
		}
		for test, passed := range a.second {
			if !passed {
				r.sum.failed++
				r.fault("%s %s failed when it was run again", a.pkg, test)
			}
		}
	}
	r.first, r.trying = nil, false
}

// begin starts a run.
func (r *report) begin(name string) {
	r.name, r.tried = name, 0
	fmt.Fprintf(r.out, "\n-- %s\n", name)
}

// broken counts a failure of the machinery, such as a program that cannot be
// compiled or a guest that does not come up.
func (r *report) broken(err error) {
	r.sum.failed++
	r.fault("%v", err)
	fmt.Fprintf(r.out, "FAIL %s: %v\n", r.name, err)
}

func (r *report) fault(format string, args ...any) {
	text, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	r.faults = append(r.faults, r.name+": "+text)
}

// test2json is the path of the converter; go builds it on demand.
var test2json = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "test2json").Output()
	if err != nil {
		return "", fmt.Errorf("go tool -n test2json: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// run reads the output of one test program up to its end and counts its tests.
// Then exit tells how the program ended. The program must have been given
// verboseArg.
func (r *report) run(pkg string, output io.Reader, exit func() error) error {
	conv, err := test2json()
	if err != nil {
		return err
	}
	cmd := exec.Command(conv, "-p", pkg, "-t")
	cmd.Stdin = output
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := packageResult{report: r, pkg: pkg, output: map[string]*strings.Builder{}, ended: map[string]bool{}}
	dec := json.NewDecoder(events)
	for {
		var e event
		if err := dec.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("test2json: %w", err)
		}
		p.take(e)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("test2json: %w", err)
	}
	p.end(exit())
	return nil
}

// verboseArg makes a test program print what test2json wants.
const verboseArg = "-test.v=test2json"

// packageResult collects the events of one package.
type packageResult struct {
	report  *report
	pkg     string
	output  map[string]*strings.Builder // by test, "" for the package
	counts  counts
	running int             // tests that have begun and not ended
	fell    []string        // tests that failed
	ended   map[string]bool // tests that passed (true) or failed
	elapsed float64
}

// slowTest is the time, in seconds, from which on a test is told of: where to look when a run has become long.
const slowTest = 10

func (p *packageResult) take(e event) {
	switch e.Action {
	case "output":
		b := p.output[e.Test]
		if b == nil {
			b = new(strings.Builder)
			p.output[e.Test] = b
		}
		b.WriteString(e.Output)
		return
	case "run":
		p.running++
		return
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.elapsed = e.Elapsed
			return
		}
		p.running--
	default:
		return
	}
	text := ""
	if b := p.output[e.Test]; b != nil {
		text = b.String()
		delete(p.output, e.Test)
	}
	if e.Elapsed >= slowTest && !strings.Contains(e.Test, "/") {
		fmt.Fprintf(p.report.out, "slow %s: %s %s %.0f s\n", p.report.name, p.pkg, e.Test, e.Elapsed)
	}
	switch e.Action {
	case "pass":
		p.counts.passed++
		p.ended[e.Test] = true
	case "fail":
		p.counts.failed++
		p.fell = append(p.fell, e.Test)
		p.ended[e.Test] = false
		fmt.Fprintf(p.report.out, "--- FAIL %s: %s %s\n%s", p.report.name, p.pkg, e.Test, text)
	case "skip":
		if !p.report.trying {
			p.counts.skipped++
			p.takeSkip(e.Test, text)
		}
	}
}

// takeSkip holds a skip against the list.
func (p *packageResult) takeSkip(test, text string) {
	if isAccepted(p.report.accepted, p.report.name, p.pkg, test, text) {
		return
	}
	reason := skipReason(text)
	if p.report.strict {
		p.counts.failed++
		p.counts.skipped--
		p.report.fault("%s %s skipped, which is not in the list: %s", p.pkg, test, reason)
	}
	fmt.Fprintf(p.report.out, "--- SKIP %s: %s %s: %s\n", p.report.name, p.pkg, test, reason)
}

// end adds the package to the sum. A program that ended badly although none of
// its tests is known to have failed (a crash, a time limit, a bad TestMain)
// counts as one failure, and what it printed is shown.
func (p *packageResult) end(exit error) {
	if exit != nil && p.counts.failed == 0 {
		p.counts.failed++
		fmt.Fprintf(p.report.out, "--- FAIL %s: %s: %v\n", p.report.name, p.pkg, exit)
		var unfinished []string
		for _, test := range slices.Sorted(maps.Keys(p.output)) {
			if test != "" {
				unfinished = append(unfinished, test)
				fmt.Fprintf(p.report.out, "--- unfinished: %s\n", test)
			}
			fmt.Fprint(p.report.out, p.output[test].String())
		}
		p.report.fault("%s: the test program ended with %v, unfinished: %s", p.pkg, exit, strings.Join(unfinished, ", "))
	}
	word := "ok  "
	if p.counts.failed > 0 {
		word = "FAIL"
	}
	fmt.Fprintf(p.report.out, "%s %-28s %7.1f s  %v\n", word, p.pkg, p.elapsed, p.counts)
	if p.report.trying {
		if p.whole(exit) {
			i := slices.IndexFunc(p.report.first, func(a attempt) bool { return a.pkg == p.pkg })
			p.report.first[i].second = p.ended
		}
		return
	}
	p.report.sum.passed += p.counts.passed
	p.report.sum.failed += p.counts.failed
	p.report.sum.skipped += p.counts.skipped
	switch {
	case len(p.fell) == 0:
	case p.whole(exit):
		p.report.sum.failed -= len(p.fell)
		p.report.first = append(p.report.first, attempt{pkg: p.pkg, failed: p.fell})
	default:
		for _, test := range p.fell {
			p.report.fault("%s %s failed", p.pkg, test)
		}
	}
}

// whole tells whether the program has gone through all its tests: it ends with status 0, or 1 if some of them failed
// (testing.go, Main), and has left none unfinished, as one that calls os.Exit does.
func (p *packageResult) whole(exit error) bool {
	return p.running == 0 && (exit == nil || exit.Error() == "exit status 1")
}

// finish prints the faults once more and the closing line. It reports whether
// all is well: something passed and nothing failed.
func (r *report) finish() bool {
	fmt.Fprintln(r.out)
	for _, f := range slices.Concat(r.unsteady, r.faults) {
		fmt.Fprintln(r.out, f)
	}
	fmt.Fprintln(r.out, r.sum)
	return r.sum.failed == 0 && r.sum.passed > 0
}
