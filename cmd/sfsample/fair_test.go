package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFair: of a program that makes a system call every 10 us the samples lie in calls as often as it is there
// by its own clocks. A stop that is asked for from another CPU reaches the thread some microseconds later, at the
// end of a call: two of three samples would.
func TestFair(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		// In the guests 71 to 76 % of the samples were in calls, by the program's clocks 29 to 33 %: the interrupts of an emulated
		// processor favour calls, and so do signals of a timer of the program's own.
		t.Skip("no processor that is not emulated")
	}
	for _, args := range [][]string{nil, {"--nice"}, {"--exit-stacks"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			p := startTarget(t, "calls")
			file := filepath.Join(t.TempDir(), "samples")
			r := begin(t, tool(append(args, "-hz", "499", "-p", strconv.Itoa(p.pid), "-o", "json="+file, "--max-overhead", "100")...))
			r.traces(t, p.pid)
			p.send(t, "call")
			var share float64
			if _, err := fmt.Sscanf(p.line(t), "called %g", &share); err != nil {
				t.Fatal(err)
			}
			r.interrupt(t)
			o := r.end(t)
			o.want(t, exitDone)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, all := 0, 0
			for _, s := range parseSamples(t, string(text)) {
				inside := func(f struct{ Function string }) bool { return strings.HasSuffix(f.Function, ".callOften") }
				if s.Taken != "stop" || !slices.ContainsFunc(s.Frames, inside) {
					continue
				}
				all++
				if strings.Contains(s.Frames[0].Function, "Syscall6") {
					in++
				}
			}
			got, want := 100*float64(in)/float64(max(all, 1)), share/10
			t.Logf("%d samples, %.1f %% in system calls; by the program's clocks %.1f %%", all, got, want)
			if all < 1000 {
				t.Errorf("%d samples, want 2,000:\n%s", all, o.stderr)
			}
			if got > 2*want+5 || got < want/4-1 {
				t.Errorf("%.1f %% of the samples in system calls, the thread %.1f %% of its time", got, want)
			}
		})
	}
}
