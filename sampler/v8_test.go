package sampler

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sfsample/output"
)

// nodes are the programs to try: that of the machine, and those that SFSAMPLE_TEST_NODES lists, with colons between them.
func nodes(t *testing.T) []string {
	list := strings.FieldsFunc(os.Getenv("SFSAMPLE_TEST_NODES"), func(r rune) bool { return r == ':' })
	if p, err := exec.LookPath("node"); err == nil {
		list = append(list, p)
	}
	if len(list) == 0 {
		t.Skip("no node on this machine")
	}
	return list
}

// nodeVersion is what a node says of itself.
func nodeVersion(t *testing.T, node string) string {
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		t.Skipf("%s cannot be started: %v", node, err)
	}
	return strings.TrimSpace(string(out))
}

// startNode starts the program that tells its stack.
func startNode(t *testing.T, node string, args ...string) *teller {
	file, err := filepath.Abs("../testdata/scripts/truth.js")
	if err != nil {
		t.Fatal(err)
	}
	return startTeller(t, node, append([]string{file}, args...)...)
}

// nodeFrames are the frames of functions with a file: builtins and what eval has made are not among what programs are told in the same way.
func nodeFrames(st *output.Stack) (list []string) {
	for _, f := range scriptFrames(st) {
		if !strings.Contains(f, " :") {
			list = append(list, f)
		}
	}
	return list
}

// TestV8Truth compares every frame of a program of node that tells its own stack and blocks.
func TestV8Truth(t *testing.T) {
	for _, node := range nodes(t) {
		for stop, how := range map[StopMode]string{StopNever: "no stop", StopAlways: "stop"} {
			t.Run(nodeVersion(t, node)+"/"+how, func(t *testing.T) {
				p := startNode(t, node, "main")
				n, bad, begun := 0, 0, time.Now()
				pipe := scriptPipeline()
				for s := p.next(t); s != nil; s = p.next(t) {
					n++
					var got []string
					d := dumpOne(t, pipe, p.Process.Pid, p.Process.Pid, stop)
					for again := 0; ; again++ {
						// Between the stack that it tells and the read there are two frames of node's own.
						got = nodeFrames(d.Stack)
						if len(got) > 1 && strings.HasPrefix(got[0], "readSync ") || again == 200 {
							break
						}
						d = dumpOne(t, pipe, p.Process.Pid, p.Process.Pid, stop) // it is on its way to where it blocks
					}
					got, want := got[min(1, len(got)):], s.lines()
					if strings.Join(got, "\n") != strings.Join(want, "\n") || d.Stack.End != "" {
						if bad++; bad < 8 {
							t.Errorf("stack %d (end %q):\n got %s\nwant %s", n, d.Stack.End, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
						}
					}
					p.in.Write([]byte("\n"))
				}
				t.Logf("%d stacks, %d wrong, %v", n, bad, time.Since(begun))
				if n < 200 || bad > 0 {
					t.Errorf("%d of %d stacks are wrong", bad, n)
				}
			})
		}
	}
}
