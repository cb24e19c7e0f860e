package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// unseen are the kinds of which sfsample may take nothing at all: a process that writes its core, and threads that another one traces.
var unseen = map[string]bool{"memory core": true, "procs debugger": true}

// tries is how often an attack is made of which nothing was taken.
const tries = 5

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
	if err := reachable(dir); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	type tally struct{ ran, took int }
	modesSeen, kinds := map[string]tally{}, map[string]tally{}
	count := func(in map[string]tally, name string, took bool) {
		mu.Lock()
		defer mu.Unlock()
		n := in[name]
		n.ran++
		if took {
			n.took++
		}
		in[name] = n
	}
	t.Cleanup(func() {
		// A run of 100 ms may meet nobody on a busy machine, most do not.
		for name, n := range modesSeen {
			if 2*n.ran > 3*n.took {
				t.Errorf("mode %s: in %d of %d runs a stack was taken", name, n.took, n.ran)
			}
		}
		for name, n := range kinds {
			if n.took == 0 && !unseen[name] {
				t.Errorf("%s: in none of %d runs a stack was taken", name, n.ran)
			}
		}
	})
	for i, a := range attacks() {
		program, err := b.build(a.source)
		if err != nil {
			t.Fatal(err)
		}
		for k, m := range modes {
			if !short(&a, i, k) || !m.here(&a) {
				continue
			}
			t.Run(a.name+"/"+m.name, func(t *testing.T) {
				if !a.alone {
					t.Parallel()
				}
				for try := range tries {
					c, err := newTrial(tool, program, a, m, 999, 100*time.Millisecond).run()
					if errors.Is(err, errNotHere) {
						t.Skip(err)
					}
					if err != nil {
						t.Fatal(err)
					}
					took := c[stacks] > 0
					if count(kinds, a.name, took); try == 0 && (took || !a.fails) {
						count(modesSeen, m.name, took)
					}
					if took || unseen[a.name] {
						break
					}
				}
			})
		}
	}
}

// TestCompare: a wait may end neither later nor earlier than one of a twin, but for a tick where it is counted in those.
func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name      string
		us, alone int64
		held      bool
	}{
		{"poll_us", 21_000, 20_000, true}, {"poll_us", 21_001, 20_000, false},
		{"poll_us", 19_000, 20_000, true}, {"poll_us", 18_999, 20_000, false},
		{"poll_us", 204_000, 200_000, true}, {"poll_us", 204_001, 200_000, false},
		{"poll_us", 196_000, 200_000, true}, {"poll_us", 195_999, 200_000, false},
		{"recv_jiffies_us", 10_000, 20_000, true}, {"recv_jiffies_us", 9_999, 20_000, false},
		{"recv_jiffies_us", 21_000, 20_000, true}, {"recv_jiffies_us", 21_001, 20_000, false},
		{"recv_jiffies_us", 980_000, 1_000_000, true}, {"recv_jiffies_us", 979_999, 1_000_000, false},
		{"calls", 1, 20_000, true},
	} {
		if err := compare(counts{tt.name: tt.us}, counts{tt.name: tt.alone}); (err == nil) != tt.held {
			t.Errorf("%s %d µs, alone %d: %v", tt.name, tt.us, tt.alone, err)
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
