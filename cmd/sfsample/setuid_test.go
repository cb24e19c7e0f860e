package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestSetUserID: a program that runs with its owner's rights does so as the command of an ordinary user, who may not trace it: it
// goes on without samples, and that is told at once. The run ends as any other does: with the command, by -d or by Ctrl-C.
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
	refused := []string{"operation not permitted (it belongs to uid 0", "try: run as root"}
	run(tool("-o", "/dev/null", "--", slow, "0.5")).want(t, exitFailed, refused...)
	for what, flags := range map[string][]string{"-d": {"-d", "0.5"}, "Ctrl-C": nil, "its end": nil} {
		cmd := tool(append(append([]string{"-o", "/dev/null"}, flags...), "--", slow, "200")...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: nobody}
		told := intoFile(t, cmd)
		r := begin(t, cmd)
		eventually(t, what+": the error is told at once", func() bool { return strings.Contains(told(), refused[1]) })
		pid, err := strconv.Atoi(regexp.MustCompile(`attach (\d+)`).FindStringSubmatch(told())[1])
		check(err)
		command, err := os.FindProcess(pid)
		check(err)
		end := fmt.Sprintf("%s lives on as process %d (try: kill %[2]d", slow, pid)
		switch what {
		case "Ctrl-C":
			r.interrupt(t)
		case "its end":
			check(command.Signal(syscall.SIGTERM))
			end = slow + " was ended by SIGTERM"
		}
		r.end(t)
		if text := told(); cmd.ProcessState.ExitCode() != exitFailed || strings.Count(text, refused[0]) != 1 || !strings.Contains(text, end) {
			t.Errorf("%s: status %d, want %d, and once each %q, %q:\n%s", what, cmd.ProcessState.ExitCode(), exitFailed, refused[0], end, text)
		}
		_ = command.Kill() // it may have ended
	}
}
