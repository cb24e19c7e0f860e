//go:build !race

// Package main_test runs every program of this folder once, for as short as it can be.
package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBenches(t *testing.T) {
	if testing.Short() {
		t.Skip("runs benchmarks")
	}
	for _, tool := range []string{"go", "cc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s command on this machine", tool)
		}
	}
	t.Chdir("..")
	for _, tt := range []struct {
		name string
		args []string
		want []string // what a whole report has
		lib  []string // headers that it takes
		perf bool     // whether it takes perf's look at all CPUs
	}{
		{"", []string{"-turns", "1", "-d", "100ms", "-hz", "99", "-targets", "spin,threads,idle,forks,execs", "-tools", "alone,loop,sfsample", "-o", filepath.Join(t.TempDir(), "table")},
			[]string{"**spin**", "| loop | 99 |", "| sfsample | 99 |", "**forks**", "**execs**"}, nil, false},
		{"harm", []string{"-pairs", "2", "-d", "100ms"}, []string{"epoll: 2 pairs", "spinners: 2 pairs", "execs: 2 pairs", "others: 2 pairs", "EINTR", "thread ticks = "}, nil, false},
		{"pause", []string{"-rounds", "1", "-d", "100ms", "-hz", "99"}, []string{"nobody", "loop, sleep", "loop, poll", "loop, same-cpu", "sfsample, goes on", "of the loop, free ("}, nil, false},
		{"unwind", []string{"-pairs", "1", "-rounds", "100", "-depth", "50"}, []string{"ours ", "ours, copy", "libdw", "libunwind", "ns a frame"}, []string{"elfutils/libdwfl.h", "libunwind-ptrace.h"}, false},
		{"counts", []string{"-runs", "1", "-beside"}, []string{"a busy thread, 999 Hz", "stops a tick", "0 moved"}, nil, true},
		{"fair", []string{"-d", "800ms", "-doubt", "100", "-only", "threads 3"}, []string{"samples by perf", "calls work"}, nil, true},
	} {
		t.Run("bench "+tt.name, func(t *testing.T) {
			for _, h := range tt.lib {
				if exec.Command("cc", "-fsyntax-only", "-include", h, "-x", "c", "/dev/null").Run() != nil {
					t.Skipf("no %s on this machine", h)
				}
			}
			if tt.perf && exec.Command("perf", "record", "-q", "-a", "-e", "cpu-clock", "-o", filepath.Join(t.TempDir(), "data"), "--", "true").Run() != nil {
				t.Skip("perf may not look at all CPUs, or is not there")
			}
			out, err := exec.Command("go", append([]string{"run", "./bench/" + tt.name}, tt.args...)...).CombinedOutput()
			if strings.Contains(string(out), " is of another machine, ") {
				t.Skip("the counts are of another kernel")
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, w := range tt.want {
				if !strings.Contains(string(out), w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
		})
	}
}
