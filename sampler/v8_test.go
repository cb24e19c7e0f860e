package sampler

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// nodes are the programs to try: that of the machine, and those that SFSAMPLE_TEST_NODES lists, with colons between them.
func nodes(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_NODES", "node") }

// nodeVersion is what a node says of itself.
func nodeVersion(t *testing.T, node string) string {
	out, err := exec.Command(node, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// startNode starts the program that tells its stack.
func startNode(t *testing.T, node string, args ...string) *teller {
	return startTeller(t, node, append([]string{absolute(t, "../testdata/scripts/truth.js")}, args...)...)
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

// TestV8Truth compares every frame of a program of node that tells its own stack and blocks, in turn read without a stop and copied at one: each
// dump goes through all of node's symbols.
func TestV8Truth(t *testing.T) {
	t.Parallel()
	type run struct{ node, flag string }
	var runs []run
	for _, node := range nodes(t) {
		runs = append(runs, run{node: node})
		if v := nodeVersion(t, node); v >= "v24" {
			runs = append(runs, run{node, "--no-turbofan"}) // Maglev's code lasts
		}
	}
	for _, r := range runs {
		t.Run(nodeVersion(t, r.node)+r.flag, func(t *testing.T) {
			p := startTeller(t, r.node, slices.DeleteFunc([]string{r.flag, absolute(t, "../testdata/scripts/truth.js"), "main"}, func(s string) bool { return s == "" })...)
			n, bad := 0, 0
			pipe := scriptPipeline()
			for s := p.next(t); s != nil; s = p.next(t) {
				want := strings.Join(s.lines(), "\n     ")
				n++
				stop := StopNever
				if n%2 == 0 {
					stop = StopAlways
				}
				d := new(ThreadDump)
				for d.Stack == nil || d.Call != "read" || stop == StopAlways && d.Taken != "stop" { // it is on its way to where it blocks
					d = dumpOne(t, pipe, p.Process.Pid, p.Process.Pid, stop)
				}
				frames := nodeFrames(d.Stack)
				if len(frames) > 0 && strings.HasPrefix(frames[0], "readSync ") {
					frames = frames[1:] // node's own, which the program has not called yet when it tells
				}
				if got := strings.Join(frames, "\n     "); got != want || d.Stack.End != "" {
					if bad++; bad < 8 {
						t.Errorf("stack %d, %s (end %q):\n got %s\nwant %s", n, d.Taken, d.Stack.End, got, want)
					}
				}
				p.in.Write([]byte("\n"))
			}
			if n < 200 || bad > 0 {
				t.Errorf("%d of %d stacks are wrong", bad, n)
			}
		})
	}
}

// TestV8Random takes a program of node at random instants, in its main thread and in a worker: each of its functions is called by one that
// calls it, and where the program's own frames end, node's begin.
func TestV8Random(t *testing.T) {
	for _, node := range nodes(t) {
		for _, where := range []string{"random", "randomworker"} {
			t.Run(nodeVersion(t, node)+"/"+where, func(t *testing.T) {
				file, err := os.ReadFile("../testdata/scripts/truth.js")
				if err != nil {
					t.Fatal(err)
				}
				source := strings.Split(string(file), "\n")
				p := startNode(t, node, where)
				got := &scripted{ends: map[string]int{}}
				var x Scripts
				want := 100
				if os.Getenv("SFSAMPLE_TEST_NODES") != "" {
					want = 300
				}
				for begun := time.Now(); len(got.stacks) < want && time.Since(begun) < time.Minute; {
					pipe := scriptPipeline()
					pipe.cfg.Sink = got
					if _, err := Run(context.Background(), Options{PIDs: []int{p.Process.Pid}, Hz: 499}, 3*time.Second, pipe, nil, nil); err != nil {
						t.Fatal(err)
					}
					n := pipe.Stats().Scripts
					x = Scripts{x.Placed + n.Placed, x.Loose + n.Loose, x.Unnamed + n.Unnamed, x.Unseen + n.Unseen}
				}
				bad, whole, frames, lineless := 0, 0, 0, 0
				for n, stack := range got.stacks {
					if !got.cut[n] {
						whole++
					}
					for i, f := range stack {
						name, at := nameAndPlace(f)
						var line int
						j := strings.LastIndex(at, ":")
						if !strings.HasSuffix(at[:j], "truth.js") {
							continue
						}
						fmt.Sscan(at[j+1:], &line)
						frames++
						if line == 0 {
							lineless++
						}
						if why := wrongLine(source, stack, i, name, line); why != "" {
							if bad++; bad < 5 {
								t.Errorf("%s: %s:\n  %s", f, why, strings.Join(stack[:min(len(stack), 12)], "\n  "))
							}
						}
					}
				}
				t.Logf("%d stacks, %d whole, %d frames of the program, %d wrong, %d without a line, %+v, ends %v", len(got.stacks), whole, frames, bad, lineless, x, got.ends)
				if n := len(got.stacks); n < want/2 || bad > 0 || lineless*2 > frames || whole*4 < 3*n || (whole+got.ends[codeChanged])*100 < 97*n || frames < 2*n || x.Unnamed*20 > x.Placed {
					t.Errorf("%d stacks, %d whole, %d frames, %d wrong, %d without a line, %+v", n, whole, frames, bad, lineless, x)
				}
			})
		}
	}
}

// nameAndPlace are those of a frame as scriptFrames has it.
func nameAndPlace(f string) (name, place string) {
	i := strings.LastIndex(f, " ")
	return f[:i], f[i+1:]
}

// wrongLine tells what is wrong with a frame of the program, in which name is at a line: a frame that has called another one has its name, or
// that of what it was called by, in its line.
func wrongLine(source, stack []string, i int, name string, line int) string {
	if line > len(source) {
		return "there is no such line"
	}
	if name[0] != '(' && name[0] != '<' && !strings.Contains(strings.Join(source, "\n"), strings.TrimPrefix(strings.TrimPrefix(name, "get "), "set ")) {
		return "there is no such function"
	}
	if i == 0 || line == 0 {
		return ""
	}
	callee, at := nameAndPlace(stack[i-1])
	if !strings.Contains(at, "truth.js") || callee[0] == '(' || callee[0] == '<' {
		return ""
	}
	calls := func(text string) bool {
		return strings.Contains(text, callee) || slices.ContainsFunc(called[callee], func(c string) bool { return strings.Contains(text, c) })
	}
	if calls(source[line-1]) {
		return ""
	}
	return "it does not call " + callee
}

// called are the ways in which functions are called other than by their names.
var called = map[string][]string{
	"get size": {".size"}, "set size": {".size"}, "get": {"proxy."}, "has": {"in proxy"}, "toString": {"`${s}`"}, "valueOf": {"+s"}, "toJSON": {"JSON.stringify"},
	"reviver": {"JSON.parse"}, "Shape": {"new Shape", "super(x)"}, "Circle": {"new Circle"}, "numbers": {"numbers(", "yield*"}, "outer": {"outer("},
	"add": {"f(", "add("}, "key": {"f(", "key"}, "recurse": {"f(", "recurse("}, "named": {"named"}, "object.method": {"method("}, "object.arrow": {"arrow(", "f("}, "method": {"method", "f("}, "arrow": {"arrow", "f("},
	"list.push": {"f("}, "hide": {"#hide"}, "<static_initializer>": {"class"}, "numbers2": {"f("}, "f": {"f("},
	"report": {"report", "map(key)"},
}

// TestV8Inlined takes a program of many functions at random instants, all in one frame: all of them are named.
func TestV8Inlined(t *testing.T) {
	for _, node := range nodes(t) {
		for _, tt := range []struct {
			name string
			n    int
			flag string
		}{{"inlined", 60, "--turbo-inlining"}} {
			t.Run(nodeVersion(t, node)+"/"+tt.name, func(t *testing.T) {
				p := testprog.StartCmd(t, exec.Command(node, tt.flag, absolute(t, "../testdata/scripts/chain.js"), fmt.Sprint(tt.n)))
				got := &scripted{ends: map[string]int{}}
				full, most := 0, 0
				for begun := time.Now(); full < 50 && time.Since(begun) < testprog.Patience/18; {
					pipe := scriptPipeline()
					pipe.cfg.Sink = got
					if _, err := Run(context.Background(), Options{PIDs: []int{p.PID}, Hz: 499}, 2*time.Second, pipe, nil, nil); err != nil {
						t.Fatal(err)
					}
					full = 0
					for _, stack := range got.stacks {
						var list []string
						for _, f := range stack {
							if name, _ := nameAndPlace(f); name[0] == 'f' {
								list = append(list, name)
							}
						}
						for i, name := range list {
							if want := fmt.Sprintf("f%d", len(list)-1-i); name != want && len(list) == tt.n {
								t.Fatalf("%v, want %s at %d", list, want, i)
							}
						}
						if most = max(most, len(list)); len(list) == tt.n {
							full++
						}
					}
				}
				t.Logf("%d stacks, %d with all functions, at most %d of %d; ends %v", len(got.stacks), full, most, tt.n, got.ends)
				if full < 50 || full*2 < len(got.stacks) {
					t.Errorf("%d of %d stacks have all functions, the best one %d of %d", full, len(got.stacks), most, tt.n)
				}
			})
		}
	}
}
