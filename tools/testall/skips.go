package main

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// acceptedSkip is a line of the list of accepted skips.
type acceptedSkip struct {
	pkg, test string   // test is a pattern of path.Match
	reason    string   // part of the text given to t.Skip
	runs      []string // in which it is accepted; none: in all
}

// readSkips reads the list. Its form stands at its head.
func readSkips(file string) ([]acceptedSkip, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("list of accepted skips: %w", err)
	}
	var list []acceptedSkip
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseSkip(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// runNames are the names that -runs and the list of skips know: the keys of
// kinds, in the usual order.
var runNames = []string{"host", "user", "race", "arm64", "s390x"}

// parseSkip parses "package TestName: reason [run run...]".
func parseSkip(line string) (acceptedSkip, error) {
	var s acceptedSkip
	if body, runs, ok := strings.Cut(line, "["); ok {
		runs, ok := strings.CutSuffix(runs, "]")
		if !ok {
			return s, fmt.Errorf("no ] at the end of %q", line)
		}
		s.runs = strings.Fields(runs)
		for _, run := range s.runs {
			if !slices.Contains(runNames, run) {
				return s, fmt.Errorf("unknown run %q", run)
			}
		}
		line = strings.TrimSpace(body)
	}
	head, reason, ok := strings.Cut(line, ": ")
	names := strings.Fields(head)
	if !ok || len(names) != 2 || reason == "" {
		return s, fmt.Errorf("want \"package TestName: reason\", have %q", line)
	}
	if _, err := path.Match(names[1], ""); err != nil {
		return s, fmt.Errorf("name of a test %q: %w", names[1], err)
	}
	s.pkg, s.test, s.reason = names[0], names[1], reason
	return s, nil
}

// isAccepted reports whether the list has this skip.
func isAccepted(list []acceptedSkip, run, pkg, test, text string) bool {
	return slices.ContainsFunc(list, func(s acceptedSkip) bool {
		same, _ := path.Match(s.test, test) // the pattern has been parsed
		return s.pkg == pkg && same && strings.Contains(text, s.reason) &&
			(len(s.runs) == 0 || slices.Contains(s.runs, run))
	})
}

// skipReason finds in a test's output what it gave to t.Skip: the text between
// the place ("x_test.go:12: ") and the line that says SKIP.
func skipReason(text string) string {
	reason := "no reason"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, "_test.go:"); ok {
			if _, msg, ok := strings.Cut(after, ": "); ok {
				reason = msg
			}
		}
	}
	return reason
}
