package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestYama: what an ordinary user may sample where Yama says who may trace whom: with 1 what sfsample has started, with 2
// nothing. What is refused is refused at once, in one line with a remedy, and root is not refused.
func TestYama(t *testing.T) {
	const file = "/proc/sys/kernel/yama/ptrace_scope"
	before, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no Yama in this kernel")
	}
	if err != nil {
		t.Fatal(err)
	}
	scope := func(n string) error { return os.WriteFile(file, []byte(n), 0) }
	if err := scope(strings.TrimSpace(string(before))); err != nil {
		t.Skip("Yama cannot be set: ", err)
	}
	t.Cleanup(func() {
		if err := scope(strings.TrimSpace(string(before))); err != nil {
			t.Error(err)
		}
	})
	asNobody := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
		return cmd
	}
	p := startProc(t, asNobody(&exec.Cmd{Path: self, Args: []string{targetName, "obey"}}))
	pid := strconv.Itoa(p.pid)
	samples := func(t *testing.T, cmd *exec.Cmd) (o outcome, taken bool) {
		t.Helper()
		o = begin(t, cmd).end(t)
		return o, strings.Contains(o.stderr, " unwound, ") && !strings.Contains(o.stderr, "stacks: 0 unwound")
	}
	for _, tt := range []struct {
		scope                     string
		process, command, refused string
	}{
		{"0", "taken", "taken", ""},
		{"1", "refused", "taken", "kernel.yama.ptrace_scope is 1, try: "},
		{"2", "refused", "refused", "kernel.yama.ptrace_scope is 2, try: run as root"},
	} {
		t.Run("scope "+tt.scope, func(t *testing.T) {
			if err := scope(tt.scope); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "out")
			if err := os.WriteFile(out, nil, 0o666); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				name, want string
				args       []string
			}{
				{"process", tt.process, []string{"-v", "--stop", "always", "--threads", "all", "-d", "300ms", "-p", pid}},
				{"command", tt.command, []string{"-v", "-hz", "999", "-o", "/dev/null", "--", self, "-test.list", "^Test"}},
				{"dump", tt.process, []string{"dump", "-p", pid}},
			} {
				t.Run(c.name, func(t *testing.T) {
					o, taken := samples(t, asNobody(tool(c.args...)))
					if c.name == "dump" {
						taken = strings.Contains(o.stdout, "\n#0 ")
					}
					if c.want == "taken" {
						o.want(t, exitDone)
						if !taken {
							t.Errorf("nothing was taken:\n%s%s", o.stdout, o.stderr)
						}
						return
					}
					o.want(t, exitFailed, tt.refused)
					if taken {
						t.Errorf("something was taken:\n%s%s", o.stdout, o.stderr)
					}
				})
			}
			t.Run("root", func(t *testing.T) {
				o, taken := samples(t, tool("-v", "--stop", "always", "--threads", "all", "-d", "300ms", "-p", pid))
				if o.want(t, exitDone); !taken {
					t.Errorf("nothing was taken:\n%s", o.stderr)
				}
			})
		})
	}
	p.untouched(t)
}
