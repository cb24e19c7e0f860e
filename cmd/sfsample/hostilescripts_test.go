package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHostileScripts: whatever names scripts, their files and their packages have, the output keeps its form and its size, and shows them.
func TestHostileScripts(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("most interpreters are known on x86-64 only")
	}
	const scripts = "../../testdata/scripts/hostile."
	for _, args := range [][]string{
		{"/usr/bin/python3", scripts + "py"}, {"ruby", scripts + "rb"}, {"php", scripts + "php", "DIR"}, {"perl", scripts + "pl"}, {"lua5.4", scripts + "lua"},
		{"node", scripts + "js"}, {"erl", "-noshell", "-pa", "DIR", "-s", "hostile", "main"},
	} {
		t.Run(filepath.Base(args[0]), func(t *testing.T) {
			if _, err := exec.LookPath(args[0]); err != nil {
				t.Skip(err)
			}
			dir := t.TempDir()
			for i, a := range args {
				if a == "DIR" {
					args[i] = dir
				}
			}
			if args[0] == "erl" {
				if text, err := exec.Command("erlc", "-o", dir, scripts+"erl").CombinedOutput(); err != nil {
					t.Skipf("erlc: %v, %s", err, text)
				}
			}
			cmd := exec.Command(args[0], args[1:]...)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				cmd.Process.Kill()
				cmd.Wait()
			}()
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
				t.Fatalf("it says %q, %v", line, err)
			}
			checkHostileScript(t, dir, fmt.Sprint(cmd.Process.Pid))
		})
	}
}

// checkHostileScript looks at what is written of a process that runs scripts with hostile names.
func checkHostileScript(t *testing.T, dir, pid string) {
	t.Helper()
	formats := []string{"folded", "json", "svg", "html", "firefox", "perf", "pprof"}
	args := []string{"-p", pid, "--lines", "--hz", "199", "-d", "1s"}
	for _, f := range formats {
		args = append(args, "-o", f+"="+filepath.Join(dir, "out."+f))
	}
	texts := map[string][]byte{}
	eventually(t, "hostile names", func() bool {
		o := sfsample(t, args...)
		o.want(t, exitDone)
		texts["standard error"] = []byte(o.stderr)
		for _, f := range formats {
			b, err := os.ReadFile(filepath.Join(dir, "out."+f))
			if err != nil {
				t.Fatal(err)
			}
			texts[f] = b
		}
		// Erlang's own quoting is octal.
		return bytes.Contains(texts["folded"], []byte(`[31m:two`)) && bytes.Contains(texts["folded"], []byte(`b.`))
	})
	traces, err := exec.Command("go", "tool", "pprof", "-raw", filepath.Join(dir, "out.pprof")).Output()
	if err != nil {
		t.Errorf("go tool pprof: %v", err)
	}
	texts["pprof"] = traces
	for _, dump := range [][]string{{"dump"}, {"dump", "--json"}} {
		o := sfsample(t, append(dump, "-p", pid, "--stop", "always")...)
		o.want(t, exitDone)
		texts[strings.Join(dump, " ")] = []byte(o.stdout)
	}
	for what, b := range texts {
		// Tabs are our own: perf's and pprof's before each frame, svg's and html's in their scripts.
		if m := control.Find(bytes.ReplaceAll(b, []byte("\t"), nil)); m != nil {
			t.Errorf("%s has the control character %q", what, m)
		}
		if len(b) > 8<<20 || !utf8.Valid(b) {
			t.Errorf("%s has %d bytes, UTF-8: %v", what, len(b), utf8.Valid(b))
		}
		if (what == "svg" || what == "html") && bytes.Contains(b, []byte("<script>x")) {
			t.Errorf("%s has markup of the target", what)
		}
	}
	for line := range strings.Lines(string(texts["folded"])) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.Trim(line[at+1:], "0123456789\n") != "" {
			t.Errorf("a line that does not end in a number: %.1000q", line)
		}
		for label := range strings.SplitSeq(line, ";") {
			if len(label) > 16<<10 {
				t.Errorf("a label of %d bytes", len(label))
			}
		}
	}
}
