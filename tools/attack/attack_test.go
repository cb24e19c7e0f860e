package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
					if err := lacks(newTrial(tool, program, a, m, 999, 100*time.Millisecond), c, 1); err != nil && try == tries-1 {
						t.Error(err)
					} else if err != nil {
						continue // one run on a busy machine tells little
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

// TestLacks: ticks that were not made or are lost, no account of them, and dumps without a stack of the thread that runs are seen.
func TestLacks(t *testing.T) {
	const text = "sfsample: stacks: 5 unwound, 5 complete\n"
	line := func(ticks, lost string) string {
		return "sfsample: 0.1s, " + ticks + " (0 late), 100 thread ticks = 5 samples + 95 unsure" + lost + "\n" + text
	}
	a := attack{source: "memory.c"}
	for _, tt := range []struct {
		text string
		held bool
	}{
		{line("100 ticks", ""), true}, {line("100 ticks", "; lost: 75"), true}, {line("100 ticks", "; lost: 76"), false},
		{line("100 ticks", "; gone: 3"), false}, {line("90 ticks", "; lost: 1"), true}, {line("89 ticks", "; lost: 1"), false}, {text, false},
		{strings.TrimSuffix(line("100 ticks", ""), text), false},
	} {
		tr := newTrial("", "", a, modes[0], 1000, 100*time.Millisecond)
		c, err := tr.told("", tt.text)
		if err == nil {
			err = lacks(tr, c, 1)
		}
		if err == nil && c[stacks] != 5 || (err == nil) != tt.held {
			t.Errorf("%s: %v, %v", tt.text, c, err)
		}
	}
	const dumped = "2 threads of pid 7 \"x\": 1 running, 1 blocked\n\ntid 7 \"x\" (pid 7 \"x\"): sleeping in read (S)\n#0 a\n\ntid 8 \"x\" (pid 7 \"x\"): running (R)"
	for _, tt := range []struct {
		text          string
		all, spinning int64
	}{{dumped + "\nend: no stack\n", 1, 0}, {dumped + " [new]\n#0 a\n", 2, 1}, {"3 threads of pid 7 \"x\": running (R): tid 8, 9, 10\n#0 a\n", 1, 1}} {
		for source, want := range map[string]int64{"memory.c": tt.all, "fuse.c": tt.spinning} {
			if c, _ := newTrial("", "", attack{source: source}, mode{dump: true}, 1, 0).told(tt.text, ""); c[stacks] != want {
				t.Errorf("%s: %d stacks of %s, want %d", tt.text, c[stacks], source, want)
			}
		}
	}
}

// TestLate: what takes longer than it may is late, but for the time in which others waited for a CPU, and that has an end too.
func TestLate(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		took, pressed, wanted time.Duration
		late                  bool
	}{
		{s, 0, 0, false}, {s + 1, 0, 0, true}, {3 * s, 0, 2 * s, false}, {3*s + 1, 0, 2 * s, true},
		{5 * s, 4 * s, 0, false}, {5*s + 1, 4 * s, 0, true}, {8 * s, 8 * s, 0, false}, {8*s + 1, 9 * s, 0, true},
	} {
		begun := now()
		if end := (moment{begun.at.Add(tt.took), begun.pressed + tt.pressed}); end.late(begun, tt.wanted, s) != tt.late {
			t.Errorf("%+v: late is %v", tt, !tt.late)
		}
	}
}

// TestInterrupted: a tool that ends by itself, crashes at Ctrl-C, does not listen to it, or has no result then breaks.
func TestInterrupted(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this machine")
	}
	b, err := newBuilder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := b.build("memory.c")
	if err != nil {
		t.Fatal(err)
	}
	const told = "echo 'sfsample: 0.3s, 30 ticks (0 late), 30 thread ticks = 30 idle' >&2; "
	for _, tt := range []struct{ script, want string }{
		{"echo a >&2; exit 2", "sfsample: exit status 2: a"},
		{told + "exit 0", "sfsample ends before Ctrl-C"},
		{"trap 'kill -SEGV $$' INT; while :; do sleep 0.01; done", "segmentation fault"},
		{"trap 'echo b >&2; exit 1' INT; while :; do sleep 0.01; done", "sfsample: exit status 1: b"},
		{"trap 'exit 0' INT; while :; do sleep 0.01; done", "sfsample has no result after Ctrl-C"},
		{"trap '" + strings.ReplaceAll(told, "'", `"`) + "exit 0' INT; while :; do sleep 0.01; done", ""},
		{"trap '' INT; for i in 1 2 3 4 5; do sleep 2.5; done", "after Ctrl-C"},
	} {
		tool := filepath.Join(t.TempDir(), "tool")
		if err := os.WriteFile(tool, []byte("#!/bin/sh\n"+tt.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		err := newTrial(tool, program, attack{name: "memory churn", source: "memory.c", args: []string{"churn"}}, modes[0], 99, time.Second).interrupt()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.script, err, tt.want)
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
