package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestSetUserID: a program that runs with its owner's rights does so as the command of an ordinary user, who may not trace it: it
// goes on to its end without samples, and that is told.
func TestSetUserID(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a set-user-ID program")
	}
	dir, err := os.MkdirTemp("", "setuid")
	check(err)
	defer os.RemoveAll(dir)
	check(os.Chmod(dir, 0o755))
	owned := func(program string) string {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("no %s on this machine", program)
		}
		b, err := os.ReadFile(path)
		check(err)
		name := filepath.Join(dir, program)
		check(os.WriteFile(name, b, 0o755))
		check(os.Chmod(name, 0o755|os.ModeSetuid))
		return name
	}
	name, slow := owned("id"), owned("sleep")
	run := func(cmd *exec.Cmd) outcome {
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: nobody}
		return begin(t, cmd).end(t)
	}
	if o := run(exec.Command(name, "-u")); o.stdout != "0\n" {
		t.Skipf("no set-user-ID program has its owner's rights on this machine: %q", o.stdout+o.stderr)
	}
	for range 5 {
		o := run(tool("-o", "/dev/null", "--", name, "-u"))
		if o.stdout != "0\n" {
			t.Fatalf("it runs without its owner's rights: %q\n%s", o.stdout, o.stderr)
		}
	}
	begun := time.Now()
	run(tool("-o", "/dev/null", "--", slow, "0.5")).want(t, exitFailed, "operation not permitted (it belongs to uid 0", "try: run as root")
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("sfsample ended after %v, before its command", took)
	}
}
