package sampler

import (
	"fmt"
	"testing"
)

// TestAfar: one line of each kind however many threads are stopped from elsewhere, and one that counts them.
func TestAfar(t *testing.T) {
	var a afar
	if got := a.total(); got != "" {
		t.Errorf("before any: %q", got)
	}
	one := afar{stops: 1, pids: map[int]bool{1: true}, cpus: map[int]bool{0: true}}
	if got, want := one.total(), "1 stop was asked for from elsewhere, of threads of 1 process on 1 CPU"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	lines := 0
	warn := func(format string, args ...any) { lines++; _ = fmt.Sprintf(format, args...) }
	for i := range 40 {
		a.note(warn, 100+i%8, i%2, i%4 == 0)
	}
	if want := "40 stops were asked for from elsewhere, of threads of 8 processes on 2 CPUs"; lines != 2 || a.total() != want {
		t.Errorf("%d lines, and %q, want %q", lines, a.total(), want)
	}
}
