package sampler

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sfsample/output"
)

// erlangs are the programs to try: that of the machine, and those that SFSAMPLE_TEST_ERLANGS lists, with colons between them.
func erlangs(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_ERLANGS", "erl") }

// startErlang starts the program that tells its stacks.
func startErlang(t *testing.T, erl string, args ...string) *teller {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command(filepath.Join(filepath.Dir(erl), "erlc"), "-o", dir, absolute(t, "../testdata/scripts/truth.erl")).CombinedOutput(); err != nil {
		t.Skipf("truth.erl cannot be compiled: %v: %s", err, out)
	}
	return startTeller(t, erl, append([]string{"+S", "2:2", "-noshell", "-pa", dir, "-s", "truth", "run"}, args...)...)
}

// beamFrames are the frames of Erlang in a stack, from the function that tells it on, those that are equal to the one before left out, as the emulator does. nil: it
// does not tell one.
func beamFrames(st *output.Stack) []string {
	list := scriptFrames(st)
	i := slices.IndexFunc(list, func(f string) bool { return strings.HasPrefix(f, "truth:tell/1 ") })
	if i < 0 {
		return nil
	}
	list = slices.Compact(list[i:])
	list[0] = "truth:tell/1" // which is further by now
	return list
}

// TestBeamTruth compares every frame of Erlang processes that tell their own stacks and run on: in code of their own, in native functions that this
// calls, and where these collect garbage.
func TestBeamTruth(t *testing.T) {
	for _, erl := range erlangs(t) {
		p := startErlang(t, erl, "tell")
		pipe := scriptPipeline()
		n, bad, tries, cut := 0, 0, 0, map[string]int{}
		for s := p.next(t); s != nil; s = p.next(t) {
			want := s.lines()
			want[0] = "truth:tell/1"
			want = slices.Compact(want)
			for tried := 0; ; tried++ {
				d, err := Dump(Options{PIDs: []int{p.Process.Pid}, Stop: StopAlways}, pipe)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				end := ""
				for _, th := range d.Threads {
					if list := beamFrames(th.Stack); list != nil {
						got, end = list, th.Stack.End
					}
				}
				if tries++; got != nil && end != "" && tried < 20 {
					cut[end]++
					continue // its innermost frame was one of which nothing is known
				}
				if got == nil {
					continue // it was on its way, or another one ran
				}
				if strings.Join(got, "\n") != strings.Join(want, "\n") || end != "" {
					if bad++; bad < 4 {
						t.Errorf("stack %d (end %q):\n got %s\nwant %s", n, end, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
					}
				}
				break
			}
			n++
			p.in.Write([]byte("\n"))
		}
		t.Logf("%d stacks, %d dumps, cut %v", n, tries, cut)
		if n < 200 || bad > 0 {
			t.Errorf("%d of %d stacks are wrong", bad, n)
		}
	}
}
