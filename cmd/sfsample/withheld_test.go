package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

// TestWithheld: a page of a stack goes after the look whether it is there, and before it is read, and does not come any more. The thread
// that is held for it goes on within a second, and what is known of it is written.
func TestWithheld(t *testing.T) {
	path := testprog.Compile(t, []string{"-O1", "-pthread"}, "withheld.c")
	if err := exec.Command(path, "try").Run(); err != nil {
		t.Skipf("userfaultfd is not to be had here: %v", err)
	}
	for name, args := range map[string][]string{
		"run":         {"--hz", "999"},
		"exit stacks": {"--hz", "999", "--exit-stacks"},
		"dump":        {"dump", "--watch", "1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			var stood []time.Duration
			for len(stood) == 0 || stood[len(stood)-1] > time.Second && len(stood) < 3 { // others may have the CPUs
				stood = append(stood, withhold(t, path, args))
			}
			if last := stood[len(stood)-1]; last > time.Second {
				t.Errorf("the thread stands still for %v, want a second at most", stood)
			}
		})
	}
}

// withhold is for how long the thread stands still.
func withhold(t *testing.T, path string, args []string) (stood time.Duration) {
	t.Helper()
	p := testprog.Start(t, path)
	cmd := tool(append(args, "-p", fmt.Sprint(p.PID))...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if _, err := fmt.Sscanf(p.Line(t), "stood %d", &stood); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	select {
	case err := <-ended:
		if !errors.As(err, &exit) || exit.ExitCode() != exitFailed || !strings.Contains(stderr.String(), "not brought") {
			t.Errorf("sfsample: %v, %s", err, &stderr)
		}
	case <-time.After(testprog.Patience):
		cmd.Process.Kill()
		t.Fatal("sfsample does not end")
	}
	if stdout.Len() == 0 { // the very first copy may be the one that hangs
		t.Error("nothing is written")
	}
	return stood
}
