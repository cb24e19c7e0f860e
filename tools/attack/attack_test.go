package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestAttacks makes the short form of all attacks, once.
func TestAttacks(t *testing.T) {
	for _, need := range []string{"gcc", "go"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("no %s on this machine", need)
		}
	}
	dir := t.TempDir()
	tool := os.Getenv("SFSAMPLE_TEST_TOOL")
	if tool == "" {
		tool = filepath.Join(dir, "sfsample")
		if text, err := exec.Command("go", "build", "-o", tool, "sfsample/cmd/sfsample").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	b, err := newBuilder(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A run of 100 ms may meet nobody on a busy machine, most do not.
	var ran, taken atomic.Int64
	t.Cleanup(func() {
		if ran.Load() > 3*taken.Load()/2 {
			t.Errorf("in %d of %d runs a stack was taken", taken.Load(), ran.Load())
		}
	})
	for i, a := range attacks() {
		program, err := b.build(a.source)
		if err != nil {
			t.Fatal(err)
		}
		for k, m := range modes {
			if !short(&a, i, k) {
				continue
			}
			t.Run(a.name+"/"+m.name, func(t *testing.T) {
				if !a.alone {
					t.Parallel()
				}
				switch c, err := newTrial(tool, program, a, m, 999, 100*time.Millisecond).run(); {
				case errors.Is(err, errNotHere):
					t.Skip(err)
				case err != nil:
					t.Error(err)
				default:
					ran.Add(1)
					if c[stacks] > 0 {
						taken.Add(1)
					}
				}
			})
		}
	}
}

// TestParseCounts: what a program says of itself is taken as it is, or refused.
func TestParseCounts(t *testing.T) {
	c, err := parseCounts("result calls=12 wrong=0")
	if err != nil || len(c) != 2 || c["calls"] != 12 || c["wrong"] != 0 {
		t.Errorf("%v, %v", c, err)
	}
	for _, line := range []string{"", "ready", "result calls=x", "result calls"} {
		if c, err := parseCounts(line); err == nil {
			t.Errorf("%q: %v, want an error", line, c)
		}
	}
}
