package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mark starts the lines that the testing package prints with
// -test.v=test2json (cmd/internal/test2json: marker ^V).
const mark = "\x16"

func TestReport(t *testing.T) {
	const skipped = mark + "=== RUN   TestA\n    a_test.go:7: no gdb on this machine\n" + mark + "--- SKIP: TestA (0.00s)\n" + mark + "PASS\n"
	// A name that starts with - is of a test that fails.
	results := func(tests ...string) string {
		var b strings.Builder
		for _, test := range tests {
			name, failed := strings.CutPrefix(test, "-")
			word := "PASS"
			if failed {
				word = "FAIL"
			}
			fmt.Fprintf(&b, "%s=== RUN   %s\n%s--- %s: %s (0.01s)\n", mark, name, mark, word, name)
		}
		return b.String() + mark + "PASS\n"
	}
	accepted := []acceptedSkip{{pkg: "p", test: "TestA", reason: "no gdb", runs: []string{"arm64"}}}
	tests := []struct {
		name   string
		run    string
		strict bool
		output string
		exit   error
		again  string // printed by the second attempt
		exit2  error
		want   string // closing line
		says   string // somewhere in the text
		ok     bool
	}{
		{
			name: "pass", run: "host",
			output: mark + "=== RUN   TestA\n" + mark + "--- PASS: TestA (0.01s)\n" + mark + "PASS\n",
			want:   "1 passed, 0 failed, 0 skipped", ok: true,
		},
		{
			name: "slow tests are told of", run: "host",
			output: mark + "=== RUN   TestA\n" + mark + "=== RUN   TestA/x\n" + mark + "--- PASS: TestA/x (11.00s)\n" + mark + "--- PASS: TestA (12.30s)\n" + mark + "PASS\n",
			want:   "2 passed, 0 failed, 0 skipped", says: "slow host: p TestA 12 s\n", ok: true,
		},
		{
			name: "fail shows the output of the test", run: "host",
			output: mark + "=== RUN   TestA\n    a_test.go:7: got 1\n" + mark + "--- FAIL: TestA (0.01s)\n" + mark + "FAIL\n",
			exit:   errors.New("exit status 1"),
			want:   "0 passed, 1 failed, 0 skipped", says: "a_test.go:7: got 1",
		},
		{
			name: "passes when run again", run: "host", strict: true,
			output: results("TestB", "-TestA/x", "-TestA"), exit: errors.New("exit status 1"),
			again: results("TestA/x", "TestA"),
			want:  "3 passed, 0 failed, 0 skipped", says: "host: p TestA/x failed, and passed when run again by itself", ok: true,
		},
		{
			name: "fails when run again", run: "host",
			output: results("-TestA/x", "-TestA"), exit: errors.New("exit status 1"),
			again: results("TestA/x", "-TestA/y", "-TestA"), exit2: errors.New("exit status 1"),
			want: "1 passed, 2 failed, 0 skipped", says: "host: p TestA/y failed when it was run again",
		},
		{
			name: "is skipped when run again", run: "arm64",
			output: results("-TestA"), exit: errors.New("exit status 1"), again: skipped,
			want: "0 passed, 1 failed, 0 skipped", says: "arm64: p TestA failed",
		},
		{
			name: "crashes when run again", run: "host",
			output: results("-TestA"), exit: errors.New("exit status 1"),
			again: mark + "=== RUN   TestA\npanic: gone\n", exit2: errors.New("exit status 2"),
			want: "0 passed, 1 failed, 0 skipped", says: "panic: gone",
		},
		{
			name: "a crash is not run again", run: "host",
			output: results("-TestA"), exit: errors.New("exit status 2"), again: results("TestA"),
			want: "0 passed, 1 failed, 0 skipped",
		},
		{
			name: "an exit in a test is a crash", run: "host",
			output: strings.TrimSuffix(results("-TestA"), mark+"PASS\n") + mark + "=== RUN   TestB\nfatal: gone\n",
			exit:   errors.New("exit status 1"), again: results("TestA"),
			want: "0 passed, 1 failed, 0 skipped", says: "host: p TestA failed",
		},
		{
			name: "too many to be run again", run: "host",
			output: results("-TestA", "-TestB", "-TestC", "-TestD", "-TestE", "-TestF", "-TestG"),
			exit:   errors.New("exit status 1"),
			again:  results("TestA", "TestB", "TestC", "TestD", "TestE", "TestF", "TestG"),
			want:   "0 passed, 7 failed, 0 skipped",
		},
		{
			name: "crash shows what is known", run: "host",
			output: mark + "=== RUN   TestA\npanic: gone\n",
			exit:   errors.New("exit status 2"),
			want:   "0 passed, 1 failed, 0 skipped", says: "panic: gone",
		},
		{
			name: "crash names what was under way", run: "host",
			output: mark + "=== RUN   TestA\n" + mark + "=== RUN   TestA/x\npanic: gone\n",
			exit:   errors.New("exit status 2"),
			want:   "0 passed, 1 failed, 0 skipped", says: "unfinished: TestA, TestA/x",
		},
		{
			name: "bad status after passed tests", run: "host",
			output: mark + "=== RUN   TestA\n" + mark + "--- PASS: TestA (0.01s)\n" + mark + "PASS\n",
			exit:   errors.New("exit status 3"),
			want:   "1 passed, 1 failed, 0 skipped", says: "exit status 3",
		},
		{
			name: "nothing ran", run: "host", output: mark + "PASS\n",
			want: "0 passed, 0 failed, 0 skipped",
		},
		{
			name: "accepted skip", run: "arm64", strict: true,
			output: mark + "=== RUN   TestB\n" + mark + "--- PASS: TestB (0.01s)\n" + skipped,
			want:   "1 passed, 0 failed, 1 skipped", ok: true,
		},
		{
			name: "skip accepted in another run only", run: "host", strict: true, output: skipped,
			want: "0 passed, 1 failed, 0 skipped", says: "no gdb on this machine",
		},
		{
			name: "skip not accepted, not strict", run: "host",
			output: mark + "=== RUN   TestB\n" + mark + "--- PASS: TestB (0.01s)\n" + skipped,
			want:   "1 passed, 0 failed, 1 skipped", says: "no gdb on this machine", ok: true,
		},
	}
	if _, err := test2json(); err != nil {
		t.Skip("no go command on this machine")
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			rep := &report{out: &out, accepted: accepted, strict: tt.strict}
			rep.begin(tt.run)
			if err := rep.run("p", strings.NewReader(tt.output), func() error { return tt.exit }); err != nil {
				t.Fatal(err)
			}
			if again := rep.again([]binary{{pkg: "o"}, {pkg: "p"}}); len(again) > 0 {
				if len(again) != 1 || again[0].pkg != "p" || again[0].only != "^(TestA)$" {
					t.Errorf("to be run again: %+v", again)
				}
				if err := rep.run("p", strings.NewReader(tt.again), func() error { return tt.exit2 }); err != nil {
					t.Fatal(err)
				}
			}
			rep.settle()
			ok := rep.finish()
			text := out.String()
			if !strings.HasSuffix(text, "\n"+tt.want+"\n") || !strings.Contains(text, tt.says) || ok != tt.ok {
				t.Errorf("output %q: ok = %v, printed\n%s\nwant ok = %v, %q and the closing line %q",
					tt.output, ok, text, tt.ok, tt.says, tt.want)
			}
		})
	}
}

func TestParseSkip(t *testing.T) {
	good := map[string]acceptedSkip{
		"unwind TestGdb: no gdb":                   {pkg: "unwind", test: "TestGdb", reason: "no gdb"},
		"unwind TestGdb/deep: no gdb [arm64 user]": {pkg: "unwind", test: "TestGdb/deep", reason: "no gdb", runs: []string{"arm64", "user"}},
	}
	for line, want := range good {
		got, err := parseSkip(line)
		if err != nil || got.pkg != want.pkg || got.test != want.test || got.reason != want.reason || strings.Join(got.runs, " ") != strings.Join(want.runs, " ") {
			t.Errorf("parseSkip(%q) = %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"unwind TestGdb", "TestGdb: no gdb", "unwind Test\\: no gdb", "unwind TestGdb: ", "unwind TestGdb: x [mars]", "unwind TestGdb: x [host"} {
		if got, err := parseSkip(line); err == nil {
			t.Errorf("parseSkip(%q) = %+v; want an error", line, got)
		}
	}
}

// TestIsAccepted: an entry is for the tests that its pattern names, which a part of a name is not.
func TestIsAccepted(t *testing.T) {
	list := []acceptedSkip{{pkg: "p", test: "TestA/fuse_*/*", reason: "no"}}
	for test, want := range map[string]bool{"TestA/fuse_x/y": true, "TestA/fuse_x": false, "TestA/procs_x/y": false, "TestA/fuse_x/y/z": false} {
		if got := isAccepted(list, "user", "p", test, "no"); got != want {
			t.Errorf("%s: %v, want %v", test, got, want)
		}
	}
}

// TestCommittedSkips: the list in the repository can be read, and each entry
// names a package that exists.
func TestCommittedSkips(t *testing.T) {
	root := filepath.Join("..", "..")
	file := filepath.Join(root, "testdata", "skips.txt")
	list, err := readSkips(file)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing", file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(s.pkg))); err != nil {
			t.Errorf("%s: entry for %s %s: %v", file, s.pkg, s.test, err)
		}
	}
}

// TestLeftOver: a program that is left over of a test program that has died does not keep its result.
func TestLeftOver(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	defer func(d time.Duration) { leftFor = d }(leftFor)
	leftFor = time.Millisecond
	file := filepath.Join(t.TempDir(), "left")
	var out strings.Builder
	rep := &report{out: &out, name: "host"}
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $! >"+file+"; exit 3")
	if err := runCommand(cmd, "p", rep); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
		t.Errorf("the program that is left over: %v", err)
	}
	if rep.sum.failed != 1 || !strings.Contains(out.String(), "exit status 3") {
		t.Errorf("%d failed: %s", rep.sum.failed, out.String())
	}
}
