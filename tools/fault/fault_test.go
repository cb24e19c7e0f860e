package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFaults is the short form.
func TestFaults(t *testing.T) {
	for _, tool := range []string{"go", "prlimit"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s command on this machine", tool)
		}
	}
	t.Chdir(filepath.Join("..", ".."))
	var out strings.Builder
	broke, err := all("", "", 8, false, &out)
	if t.Log(out.String()); err != nil || broke > 0 {
		t.Errorf("%d broke, %v", broke, err)
	}
}

// TestFaultsBroken: tools that do what sfsample may not do are found.
func TestFaultsBroken(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	defer func(was time.Duration) { limit = was }(limit)
	limit = time.Second
	for what, tt := range map[string]struct{ script, want string }{
		"nothing":             {"exit 0", "not one stack is whole"},
		"writes nothing":      {"exit 0", "it ends well and has written nothing"},
		"leaves a file":       {"echo >$OUT.1.partial", "without a word"},
		"leaves a process":    {"sleep 3 &", "it leaves a process"},
		"fails silently":      {"exit 1", "it fails without a word"},
		"panics":              {"echo 'panic: x' >&2; exit 2", "it panics"},
		"hangs":               {"exec sleep 60", "it has not ended"},
		"stops the target":    {"kill -STOP $2", "the target is left behind"},
		"another stack":       {"echo 'deep;_start;main;wrong 1' >$OUT", "the target has not the stack"},
		"an end without word": {"echo 'deep;flex;spin 1' >$OUT", "a stack ends without a word"},
		"half a line":         {"printf 'deep;[truncated: x];spin' >$OUT", "the output has the line"},
		"control characters":  {"printf '\\033[2J' >&2", "it writes control characters"},
	} {
		t.Run(what, func(t *testing.T) {
			tool := filepath.Join(t.TempDir(), "tool")
			script := "#!/bin/sh\nfor OUT; do :; done\nOUT=${OUT#folded=}\n" + tt.script + "\n"
			if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			b := &bench{tool: tool, out: filepath.Join(t.TempDir(), "out")}
			var out strings.Builder
			broke, err := b.try(fault{name: "none", run: func(p *place, _ float64, _ int) result { return p.run(p.command(), injector{}) }}, 1, &out, &out)
			if err != nil || broke == 0 || !strings.Contains(out.String(), tt.want) {
				t.Errorf("%d broke, %v; want %q in\n%s", broke, err, tt.want, out.String())
			}
		})
	}
}

// TestFollow counts and changes the calls of a program that is not ours.
func TestFollow(t *testing.T) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("no cat command on this machine")
	}
	entered := 0
	status, calls, hung, err := injector{enter: func(call) unix.Errno { entered++; return 0 }}.follow(exec.Command(cat, os.DevNull), time.Minute)
	if err != nil || hung || status.ExitStatus() != 0 || calls < 5 || entered != calls {
		t.Errorf("%#x, %d calls, %d told, %v, %v", status, calls, entered, hung, err)
	}
	status, _, _, err = injector{leave: func(_ call, result int64) int64 {
		if result >= 3 && result < 10 {
			return -int64(unix.EMFILE) // no file is opened
		}
		return result
	}}.follow(exec.Command(cat, os.DevNull), time.Minute)
	if err != nil || status.ExitStatus() == 0 {
		t.Errorf("%#x, %v of a program that can open no file", status, err)
	}
	said := filepath.Join(t.TempDir(), "said")
	f, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command(cat, said)
	cmd.Stderr = f
	status, _, _, err = injector{enter: func(c call) unix.Errno {
		if c.nr == unix.SYS_OPENAT {
			return unix.ENFILE
		}
		return 0
	}}.follow(cmd, time.Minute)
	if text, _ := os.ReadFile(said); err != nil || status.ExitStatus() == 0 || !strings.Contains(string(text), unix.ENFILE.Error()) && !strings.Contains(string(text), "Error 23") {
		t.Errorf("%#x, %v of a program none of whose openat is made: %s", status, err, text)
	}
	if _, _, hung, err := (injector{enter: func(call) unix.Errno { return 0 }}).follow(exec.Command(cat, os.DevNull, "/dev/zero"), time.Second); err != nil || !hung {
		t.Errorf("%v, %v of a program that does not end", hung, err)
	}
}
