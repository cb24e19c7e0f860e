package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

// TestStuck dumps a process with a thread that waits for what does not come, alone
// and as one of many: its stack is there, and those of all others. How long a dump
// takes is logged; SFSAMPLE_TEST_LONG is how many to make.
func TestStuck(t *testing.T) {
	for _, kind := range []struct{ name, function, states string }{
		{"vfork", "in_vfork", "D"},
		{"uffd", "in_fault", "S"},
		{"fuse", "in_fault", "SD"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			path := testprog.Compile(t, []string{"-O1", "-pthread"}, "stuck.c")
			ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
			defer cancel()
			var exit *exec.ExitError
			switch err := exec.CommandContext(ctx, path, kind.name).Run(); { // its input is at its end: it only tries
			case errors.As(err, &exit) && exit.ExitCode() == 77:
				t.Skipf("a wait of this kind is not to be had here: %s", kind.name)
			case err != nil:
				t.Fatal(err)
			}
			for _, others := range []int{0, 499} {
				t.Run(fmt.Sprint(others), func(t *testing.T) {
					p := startProc(t, exec.Command(path, kind.name, strconv.Itoa(others)))
					var times []time.Duration
					for range long() {
						times = append(times, dumpStuck(t, p.pid, others, kind.function, kind.states))
					}
					slices.Sort(times)
					t.Logf("%d dumps take %v (p50), %v at most", len(times), times[len(times)/2], times[len(times)-1])
				})
			}
		})
	}
}

// dumpStuck wants all of a dump of stuck, and returns how long that took. A thread
// may still be on its way to where it waits: then it is made again.
func dumpStuck(t *testing.T, pid, others int, function, states string) time.Duration {
	t.Helper()
	var text string
	for limit := time.Now().Add(testprog.Patience); time.Now().Before(limit); {
		begun := time.Now()
		o := begin(t, tool("dump", "--group=false", "-p", strconv.Itoa(pid))).end(t)
		took := time.Since(begun)
		o.want(t, exitDone)
		found, polls := 0, 0
		for thread := range strings.SplitSeq(o.stdout, "\n\n") {
			head, _, _ := strings.Cut(thread, "\n")
			switch complete := strings.HasSuffix(strings.TrimSpace(thread), "end: complete"); {
			case !complete:
			case strings.Contains(thread, " "+function+"+") && strings.ContainsAny(head[max(0, len(head)-2):], states):
				found++
			case strings.Contains(thread, " in_poll+"):
				polls++
			}
		}
		if found == 1 && polls == others {
			return took
		}
		text = fmt.Sprintf("%d complete stacks with %s in a state of %s and %d of %d that poll:\n%s", found, function, states, polls, others, o.stdout)
	}
	t.Fatal(text)
	return 0
}
