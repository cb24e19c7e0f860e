package sampler

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/output"
)

// monoMethods are where the methods of the program begin, by name.
type monoMethods map[string]uint64

// name is the method that pc is in; empty: none. The test's methods are small.
func (m monoMethods) name(pc uint64) (name string) {
	for n, at := range m {
		if pc >= at && pc-at < 0x200 && (name == "" || at > m[name]) {
			name = n
		}
	}
	return name
}

// monoWrong tells what is wrong with a complete stack of the program, empty if nothing is. through: Main has called Run.
func monoWrong(st *output.Stack, methods monoMethods, through bool) string {
	var list []string
	for _, f := range st.Frames { // innermost first
		if f.Module == "[anon]" {
			list = append(list, methods.name(f.PC))
		}
	}
	want := []string{"Main"}
	if through {
		want = []string{"Run", "Main"}
	}
	if list = list[:max(len(list)-1, 0)]; len(list) == 0 { // what has called Main lies near it
		return "no frame of the program"
	}
	n := len(list) - len(want)
	if n < 0 || strings.Join(list[n:], " ") != strings.Join(want, " ") {
		return fmt.Sprintf("%q, want it to end with %q", list, want)
	}
	for i, name := range list[:n] {
		if name != "Fib" && !(name == "Sum" && n == 1) || i > 11 {
			return fmt.Sprintf("%q", list)
		}
	}
	if root := st.Frames[len(st.Frames)-1].Func; root != "_start" {
		return "its root is " + root
	}
	return ""
}

// TestMonoForever: methods that never return, which Mono compiles without a frame pointer, lead on to their callers: to one that calls directly, and to
// what calls each program's Main, through a register.
func TestMonoForever(t *testing.T) {
	mono, err := exec.LookPath("mono")
	if err != nil {
		t.Skip("no mono on this machine")
	}
	mcs, err := exec.LookPath("mcs")
	if err != nil {
		t.Skip("no mcs on this machine")
	}
	program := filepath.Join(t.TempDir(), "forever.exe")
	if out, err := exec.Command(mcs, "-out:"+program, "../testdata/scripts/Forever.cs").CombinedOutput(); err != nil {
		t.Fatalf("mcs: %v: %s", err, out)
	}
	for _, args := range [][]string{nil, {"through"}} {
		t.Run(strings.Join(append([]string{"main"}, args...), "/"), func(t *testing.T) {
			p := startTeller(t, mono, append([]string{program}, args...)...)
			methods := monoMethods{}
			for range 4 {
				line, err := p.out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
				if methods[name], err = strconv.ParseUint(at, 10, 64); err != nil {
					t.Fatal(err)
				}
			}
			checkMono(t, p.Process.Pid, methods, len(args) > 0)
		})
	}
}

// monoSink looks at the stacks of the program's first thread.
type monoSink struct {
	methods      monoMethods
	pid          int
	through      bool
	n, cut, bad  int
	first, ended string // what is wrong with the first bad one; an end
}

// Add implements output.Sink.
func (s *monoSink) Add(x *output.Sample) error {
	if x.TID != s.pid || x.Taken != "stop" || len(x.Stack.Frames) == 0 {
		return nil
	}
	s.n++
	if x.Stack.End != "" {
		s.cut++
		s.ended = x.Stack.End
	} else if why := monoWrong(x.Stack, s.methods, s.through); why != "" {
		if s.bad++; s.first == "" {
			s.first = why
		}
	}
	return nil
}

// Close implements output.Sink.
func (s *monoSink) Close() error { return nil }

func checkMono(t *testing.T, pid int, methods monoMethods, through bool) {
	t.Helper()
	sink := &monoSink{methods: methods, pid: pid, through: through}
	for begun := time.Now(); sink.n < 200 && time.Since(begun) < time.Minute; {
		pipe := scriptPipeline()
		pipe.cfg.Sink = sink
		if _, err := Run(context.Background(), Options{PIDs: []int{pid}, Hz: 499}, time.Second, pipe, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d stacks, %d cut (%s), %d wrong", sink.n, sink.cut, sink.ended, sink.bad)
	if sink.n < 200 || sink.cut*50 > sink.n || sink.bad > 0 {
		t.Errorf("%d stacks, %d cut (%s), %d wrong: %s", sink.n, sink.cut, sink.ended, sink.bad, sink.first)
	}
}
