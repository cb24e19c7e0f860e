package sampler

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sfsample/output"
)

// erlangs are the programs to try: that of the machine, and those that SFSAMPLE_TEST_ERLANGS lists, with colons between them.
func erlangs(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_ERLANGS", "erl") }

// beamLayouts are what the emulator is told of its frames, by name.
var beamLayouts = []struct {
	name  string
	flags []string
}{{"plain", nil}, {"framed", []string{"+JPperf", "true"}}}

// startErlang starts the program that tells its stacks. The emulator's own flags begin with a plus sign, and each has a value.
func startErlang(t *testing.T, erl string, flags []string, args ...string) *teller {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command(filepath.Join(filepath.Dir(erl), "erlc"), "-o", dir, absolute(t, "../testdata/scripts/truth.erl")).CombinedOutput(); err != nil {
		t.Fatalf("erlc: %v: %s", err, out)
	}
	p := startTeller(t, erl, slices.Concat([]string{"+S", "2:2"}, flags, []string{"-noshell", "-pa", dir, "-s", "truth", "run"}, args)...)
	t.Cleanup(func() { // what it writes for perf
		os.Remove(fmt.Sprintf("/tmp/perf-%d.map", p.Process.Pid))
		os.Remove(fmt.Sprintf("/tmp/jit-%d.dump", p.Process.Pid))
	})
	return p
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

// schedulers are the threads of an emulator that run Erlang.
func schedulers(t *testing.T, pid int) (tids []int) {
	t.Helper()
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		if b, err := os.ReadFile(file); err == nil && (strings.HasSuffix(string(b), "_scheduler\n") || strings.HasPrefix(string(b), "erts_sched_")) { // of 25, and of 27
			tids = append(tids, atoi(filepath.Base(filepath.Dir(file))))
		}
	}
	return tids
}

// TestBeamTruth compares every frame of Erlang processes that tell their own stacks and run on: in code of their own, in native functions that this
// calls, and where these collect garbage.
func TestBeamTruth(t *testing.T) {
	for _, erl := range erlangs(t) {
		for _, layout := range beamLayouts {
			t.Run(filepath.Base(erl)+"/"+layout.name, func(t *testing.T) {
				t.Parallel()
				beamTruth(t, startErlang(t, erl, layout.flags, "tell"))
			})
		}
	}
}

// beamTruth compares the stacks that a program tells.
func beamTruth(t *testing.T, p *teller) {
	pipe := scriptPipeline()
	n, bad, tries, cut := 0, 0, 0, map[string]int{}
	for s := p.next(t); s != nil; s = p.next(t) {
		want := s.lines()
		want[0] = "truth:tell/1"
		want = slices.Compact(want)
		for tried := 0; ; tried++ {
			d, err := Dump(Options{PIDs: []int{p.Process.Pid}, TIDs: schedulers(t, p.Process.Pid), Stop: StopAlways}, pipe)
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

// TestBeamIdle: a scheduler that waits for work has a whole stack, although it is not stopped for that.
func TestBeamIdle(t *testing.T) {
	for _, layout := range beamLayouts {
		t.Run(layout.name, func(t *testing.T) { beamIdle(t, startErlang(t, erlangs(t)[0], layout.flags, "idle")) })
	}
}

func beamIdle(t *testing.T, p *teller) {
	p.next(t)
	pipe := scriptPipeline()
	for range 50 { // it may run for a moment
		d, err := Dump(Options{PIDs: []int{p.Process.Pid}, TIDs: schedulers(t, p.Process.Pid), Stop: StopNever}, pipe)
		if err != nil {
			t.Fatal(err)
		}
		for _, th := range d.Threads {
			list := scriptFrames(th.Stack)
			if th.Call != "" && len(list) == 1 && strings.HasPrefix(list[0], "global::process_main ") && th.Stack.End == "" {
				return
			}
		}
	}
	t.Error("no scheduler that waits has a whole stack")
}

// TestBeamReplay: a recording shows what was shown when it was made.
func TestBeamReplay(t *testing.T) {
	for _, layout := range beamLayouts {
		t.Run(layout.name, func(t *testing.T) {
			checkReplay(t, startErlang(t, erlangs(t)[0], layout.flags, "random"))
		})
	}
}

// TestBeamRandom takes an Erlang program at random instants, also one whose code is replaced all the time: each function is called by one that calls it, in
// its line.
func TestBeamRandom(t *testing.T) {
	file, err := os.ReadFile("../testdata/scripts/truth.erl")
	if err != nil {
		t.Fatal(err)
	}
	source := strings.Split(string(file), "\n")
	for _, erl := range erlangs(t) {
		for n := range 2 * len(beamLayouts) {
			layout, mode := beamLayouts[n/2], []string{"random", "churn"}[n%2]
			t.Run(filepath.Base(erl)+"/"+layout.name+"/"+mode, func(t *testing.T) {
				p := startErlang(t, erl, layout.flags, mode)
				if mode == "churn" {
					p.next(t) // all versions are compiled
				}
				got, x := randomStacks(t, p.Process.Pid, 400)
				bad, whole, frames, made := 0, 0, 0, 0
				for n, stack := range got.stacks {
					if !got.cut[n] {
						whole++
					}
					frames += len(stack)
					if strings.Contains(strings.Join(stack, " "), "made:") {
						made++
					}
					if why := beamWrong(source, stack, got.cut[n]); why != "" {
						if bad++; bad < 5 {
							t.Errorf("%s:\n  %s", why, strings.Join(stack, "\n  "))
						}
					}
				}
				t.Logf("%d stacks, %d whole, %d wrong, %d frames, %d of what is replaced, ends %v, %+v", len(got.stacks), whole, bad, frames, made, got.ends, x)
				least := 90
				if mode == "churn" {
					least = 30 // of code that is another's when it is read nothing is known
				}
				if n := len(got.stacks); n < 200 || bad > 0 || whole*100 < least*n || x.Unnamed*100 > x.Placed || mode == "churn" && made*20 < n {
					t.Errorf("%d stacks, %d whole, %d wrong, %d of what is replaced, %+v", n, whole, bad, made, x)
				}
			})
		}
	}
}

// beamTails are what functions of the program call last, so that they have no frame any more.
var beamTails = map[string][]string{"work": {"bits", "small"}, "busy": {"compute"}, "run": {"busy", "churn"}, "churn": {"churn"}}

// beamMade is a function of the module that is replaced.
var beamMade = regexp.MustCompile(`^made:(?:outer|inner(\d+))/2$`)

// beamWrong tells what is wrong with a stack of the program, empty if nothing is.
func beamWrong(source, stack []string, cut bool) string {
	count := map[string]int{}
	for i, f := range stack {
		name, place := nameAndPlace(f)
		base, own := beamBase(name)
		if m := beamMade.FindStringSubmatch(name); m != nil && m[1] != "" {
			// What calls it is of the same version: its number says how many lines are before both. Where it makes room for its frame it is in its first line.
			if k := atoi(m[1]); place != fmt.Sprintf("made.erl:%d", 6+2*k) && i > 0 && !strings.HasPrefix(stack[i-1], "global::") || i+1 < len(stack) && stack[i+1] != fmt.Sprintf("made:outer/2 made.erl:%d", 4+k) {
				return f + " is not of that version"
			}
		}
		if !own {
			continue
		}
		if !strings.Contains(name, "'-") {
			count[base]++
		}
		line := atoi(place[strings.LastIndexByte(place, ':')+1:])
		if line > 0 && beamDefined(source, line) != base {
			return f + ": another function has that line"
		}
		if i == 0 {
			continue
		}
		callee, its := beamBase(strings.SplitN(stack[i-1], " ", 2)[0])
		if its && line > 0 && !strings.Contains(stack[i-1], ":'-"+base) && !strings.Contains(source[line-1], callee) && !slices.ContainsFunc(beamCalled.FindAllString(source[line-1], -1), func(c string) bool {
			return slices.Contains(beamTails[strings.TrimSuffix(c, "(")], callee)
		}) {
			return f + " does not call " + callee
		}
	}
	root, _ := nameAndPlace(stack[len(stack)-1])
	switch {
	case count["fib"] > 18, count["compute"] > 26, count["busy"] > 1, count["work"] > 3:
		return fmt.Sprintf("more calls than there are: %v", count)
	case !cut && count["compute"] > 0 && root != "truth:busy/0" && root != "init:do_boot/3":
		return "its root"
	}
	return ""
}

var beamCalled = regexp.MustCompile(`[a-z]+\(`)

// beamBase is the function of the program that a name is of, or that a function without a name is in.
func beamBase(name string) (base string, own bool) {
	base, own = strings.CutPrefix(name, "truth:")
	base, _, _ = strings.Cut(strings.TrimPrefix(base, "'-"), "/")
	return base, own
}

// beamDefined is the function that a line of the program is of.
func beamDefined(source []string, line int) string {
	for i := line - 1; i >= 0 && i < len(source); i-- {
		if name, _, ok := strings.Cut(source[i], "("); ok && name != "" && name[0] >= 'a' && name[0] <= 'z' {
			return name
		}
	}
	return ""
}
