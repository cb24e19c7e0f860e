//go:build !race

// Package bench_test runs every program of this folder once, for as short as it can be.
package bench_test

import (
	"os/exec"
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
	}{
		{"harm", []string{"-pairs", "2", "-d", "100ms"}, []string{"epoll: 2 pairs", "spinners: 2 pairs", "EINTR", "thread ticks = "}, nil},
		{"pause", []string{"-rounds", "1", "-d", "100ms", "-hz", "99"}, []string{"nobody", "loop, sleep", "loop, poll", "loop, same-cpu", "of the best loop"}, nil},
		{"unwind", []string{"-pairs", "1", "-rounds", "100", "-depth", "50"}, []string{"ours ", "ours, copy", "libdw", "libunwind", "ns a frame"}, []string{"elfutils/libdwfl.h", "libunwind-ptrace.h"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, h := range tt.lib {
				if exec.Command("cc", "-fsyntax-only", "-include", h, "-x", "c", "/dev/null").Run() != nil {
					t.Skipf("no %s on this machine", h)
				}
			}
			out, err := exec.Command("go", append([]string{"run", "./bench/" + tt.name}, tt.args...)...).CombinedOutput()
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
