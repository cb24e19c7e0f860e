package sampler

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// startJava starts the program that tells its stack.
func startJava(t *testing.T, java, classes, options string, args ...string) *teller {
	list := append(strings.Fields(options), "-Xshare:auto", "-cp", classes)
	return startTeller(t, java, append(list, args...)...)
}

// TestJavaTruth compares every frame of a Java program that tells its own stack and blocks, interpreted and compiled, of the main and of further
// threads.
func TestJavaTruth(t *testing.T) {
	t.Parallel()
	classes := testprog.JavaClasses(t, "scripts/Truth.java")
	for _, java := range testprog.Javas(t) {
		for _, tt := range []struct {
			options, rounds, calls string
			least                  int
		}{{"", "3", "3000", 180}, {"-Xint", "1", "0", 60}, {"-XX:TieredStopAtLevel=1", "2", "500", 120}} {
			t.Run(testprog.JavaVersion(java)+"/"+tt.options, func(t *testing.T) {
				checkJava(t, startJava(t, java, classes, tt.options, "Truth", "tell", tt.rounds, tt.calls), "Truth", tt.least)
			})
		}
	}
}

// checkJava compares all stacks that a program tells from its function tell on, which it is further in by then.
func checkJava(t *testing.T, p *teller, class string, least int) {
	n, bad, heap := 0, 0, 0
	tell := class + ".tell"
	var x Scripts
	cfg := scriptPipeline().cfg // with what was read of libjvm
	for s := p.next(t); s != nil; s = p.next(t) {
		n++
		pipe := NewPipeline(cfg)
		d := dumpOne(t, pipe, p.Process.Pid, s.TID, StopAuto)
		for d.Stack == nil || d.Call != "read" { // it is on its way to where it blocks
			d = dumpOne(t, pipe, p.Process.Pid, s.TID, StopAuto)
		}
		var got, want []string
		for _, f := range javaFrames(d.Stack) {
			if got = append(got, f); strings.HasPrefix(f, tell+" ") {
				got = []string{tell}
			}
		}
		for _, f := range s.lines() {
			if want = append(want, f); strings.HasPrefix(f, tell+" ") {
				want = []string{tell}
			}
		}
		if class == "Virtual" { // it tells its own frames alone
			at := slices.Index(got, javaEntered)
			if at < 0 || !strings.Contains(got[len(got)-1], ".ForkJoinWorkerThread.run ") {
				at = 0
			}
			if got = got[:at]; at > 1 && at <= len(want) && got[at-1] == javaHeap {
				got, want = got[:at-1], want[:at-1]
				heap++
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || d.Stack.End != "" {
			if bad++; bad < 4 {
				t.Errorf("stack %d (end %q):\n got %s\nwant %s", n, d.Stack.End, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		}
		x.Placed += pipe.Stats().Scripts.Placed
		x.Unnamed += pipe.Stats().Scripts.Unnamed
		p.in.Write([]byte("\n"))
	}
	t.Logf("%d stacks, %d with frames in the heap, %+v", n, heap, x)
	if n < least || bad > 0 || x.Unnamed > 0 || class == "Virtual" && (heap < n/5 || heap > n*4/5) {
		t.Errorf("%d of %d stacks are wrong, %d frames without a name", bad, n, x.Unnamed)
	}
}

// TestJavaVirtual compares the frames of virtual threads: all of those that the thread has not left in the heap, down to the thread that carries it.
func TestJavaVirtual(t *testing.T) {
	t.Parallel()
	classes := testprog.JavaClasses(t, "scripts/Virtual.java")
	for _, java := range testprog.Javas(t) {
		if version := javaMajor.FindStringSubmatch(testprog.JavaVersion(java)); version == nil || version[1] < "21" {
			continue
		}
		for _, options := range []string{"", "-Xint", "-XX:TieredStopAtLevel=1"} {
			t.Run(testprog.JavaVersion(java)+"/"+options, func(t *testing.T) {
				rounds, least := "3", 220
				if options == "-Xint" {
					rounds, least = "1", 70
				}
				checkJava(t, startJava(t, java, classes, options, "Virtual", "tell", rounds, "100"), "Virtual", least)
			})
		}
	}
}

// javaHeap stands for frames that a virtual thread has in the heap, and javaEntered is what runs it on the thread that carries it.
const (
	javaHeap    = "[more frames in the heap]"
	javaEntered = "jdk.internal.vm.Continuation.enterSpecial Continuation.java:0"
)

// javaMajor is a version in the name of a folder.
var javaMajor = regexp.MustCompile(`(\d\d)`)

// javaFrames are the frames of Java in a stack, as told.lines has them: not the runtime's own code between them.
func javaFrames(st *output.Stack) (list []string) {
	if st == nil {
		return nil
	}
	for _, f := range st.Frames {
		if f.Func == javaHeap {
			list = append(list, javaHeap)
		} else if f.Script && strings.Contains(f.Func, ".") {
			list = append(list, fmt.Sprintf("%s %s:%d", f.Func, f.File, f.Line))
		}
	}
	return list
}

// javaCalls are the calls between functions of the busy program, whatever of the class library is between them.
var javaCalls = map[string]string{
	"main":     "busy throwing",
	"busy":     "fib summed sorted mapped failing called",
	"fib":      "fib",
	"summed":   "mixed",
	"sorted":   "mixed lambda$sorted$ Truth$$Lambda",
	"mapped":   "mixed lambda$mapped$ Truth$$Lambda",
	"failing":  "failed",
	"failed":   "failed",
	"called":   "direct",
	"direct":   "tell",
	"throwing": "caught bounded",
	"bounded":  "indexed",
	"caught":   "threw",
	"threw":    "threw",

	"lambda$sorted$": "compared", "lambda$mapped$": "added", "compared": "mixed", "added": "mixed",
	"Truth$$Lambda": "busy lambda$sorted$ lambda$mapped$",
}

// javaName is a function of the program by its name, without what differs between compilations; empty: it is none of the program.
func javaName(f string) string {
	name, _, _ := strings.Cut(f, " ")
	if strings.HasPrefix(name, "Truth$$Lambda") {
		return "Truth$$Lambda"
	}
	name, ok := strings.CutPrefix(name, "Truth.")
	if !ok {
		return ""
	}
	return strings.TrimRight(name, "0123456789")
}

// javaSink keeps the frames of Java of each sample of a thread that has run in Java, and how its stack ended, and calls enough when there are many.
type javaSink struct {
	stacks [][]string
	whole  []bool // it says so, and is of a thread of the program
	ends   map[string]int
	enough func()
}

// Add implements output.Sink.
func (s *javaSink) Add(m *output.Sample) error {
	if m.Stack == nil {
		return nil
	}
	got, program := javaFrames(m.Stack), m.Thread == "java" || strings.HasPrefix(m.Thread, "Thread-") || strings.HasPrefix(m.Thread, "ForkJoinPool-")
	switch f := m.Stack.Frames; {
	case len(got) == 0 && !program: // the compiler's and the collector's
		return nil
	case len(f) == 1 && f[0].Func == "[never caught running]":
		return nil
	}
	s.ends[m.Stack.End]++
	deoptimised := slices.ContainsFunc(m.Stack.Frames, func(f output.Frame) bool { return f.Func == "[being deoptimised]" }) // in the place of a method
	s.whole = append(s.whole, m.Stack.End == "" && program && !deoptimised)
	if s.stacks = append(s.stacks, got); len(s.stacks)-s.ends[codeChanged] >= 2000 {
		s.enough()
	}
	return nil
}

// Close implements output.Sink.
func (s *javaSink) Close() error { return nil }

// virtualCalls are the calls between functions of Virtual.java.
var virtualCalls = map[string]string{
	"busy": "waited sorted failing fib", "waited": "waited yielded fib", "fib": "fib", "sorted": "lambda$sorted$", "lambda$sorted$": "compared", "compared": "waited",
	"failing": "failed fib", "failed": "failed yielded fib",
}

// virtualWrong tells what is wrong with a whole stack of a virtual thread, empty if nothing is.
func virtualWrong(stack []string) string {
	at := slices.Index(stack, javaEntered)
	if at < 0 {
		return "nothing carries it"
	}
	caller := ""
	if at == 0 || stack[at-1] != javaHeap {
		caller = "?"
	}
	for i := at - 1; i >= 0; i-- {
		name, ok := strings.CutPrefix(strings.Fields(stack[i])[0], "Virtual.")
		switch name = strings.TrimRight(name, "0123456789"); {
		case !ok:
			continue
		case caller == "?" && name != "busy":
			return "complete, but for who calls " + name
		case caller != "" && caller != "?" && !slices.Contains(strings.Fields(virtualCalls[caller]), name):
			return caller + " does not call " + name
		}
		caller = name
	}
	return ""
}

// TestJavaVirtualRandom takes virtual threads at random instants that go to the heap and come back all the time.
func TestJavaVirtualRandom(t *testing.T) {
	classes := testprog.JavaClasses(t, "scripts/Virtual.java")
	for _, java := range testprog.Javas(t) {
		if version := javaMajor.FindStringSubmatch(testprog.JavaVersion(java)); version == nil || version[1] < "21" {
			continue
		}
		for _, options := range []string{"", "-Xint", "-XX:TieredStopAtLevel=1"} {
			t.Run(testprog.JavaVersion(java)+"/"+options, func(t *testing.T) {
				p := startJava(t, java, classes, options, "Virtual", "random")
				got, _ := randomJava(t, p)
				n, heap, bad := 0, 0, 0
				for i, stack := range got.stacks {
					if !slices.ContainsFunc(stack, func(f string) bool { return strings.HasPrefix(f, "Virtual.") }) {
						continue
					}
					if n++; !got.whole[i] {
						continue
					}
					if slices.Contains(stack, javaHeap) {
						heap++
					}
					if why := virtualWrong(stack); why != "" {
						if bad++; bad < 5 {
							t.Errorf("%s:\n  %s", why, strings.Join(stack, "\n  "))
						}
					}
				}
				all := len(got.stacks) - got.ends[codeChanged]
				cut := all - got.ends[""]
				t.Logf("%d stacks, %d with frames in the heap, %d of %d cut, %d wrong, ends %v", n, heap, cut, all, bad, got.ends)
				if n < 200 || heap < n/20 || bad > 0 || cut*50 > all {
					t.Errorf("%d stacks, %d with frames in the heap, %d cut, %d wrong", n, heap, cut, bad)
				}
			})
		}
	}
}

// randomJava samples a program that has begun until there are enough stacks.
func randomJava(t *testing.T, p *teller) (*javaSink, Scripts) {
	t.Helper()
	p.next(t) // it has begun
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := &javaSink{ends: map[string]int{}, enough: cancel}
	pipe := scriptPipeline()
	pipe.cfg.Sink = got
	if _, err := Run(ctx, Options{PIDs: []int{p.Process.Pid}, Hz: 999}, 20*time.Second, pipe, nil, nil); err != nil {
		t.Fatal(err)
	}
	return got, pipe.Stats().Scripts
}

// TestJavaRandom takes a Java program at random instants: its stacks are whole, and every call in them is one that it makes.
func TestJavaRandom(t *testing.T) {
	classes := testprog.JavaClasses(t, "scripts/Truth.java")
	for _, java := range testprog.Javas(t) {
		for _, tt := range []struct {
			does, options string
			cut           int // per cent at most
		}{{"random", "", 1}, {"random", "-Xint", 1}, {"random", "-XX:TieredStopAtLevel=1", 1}, {"throwing", "", 1},
			{"throwing", "-XX:TieredStopAtLevel=1", 2}, // where C1's stubs have a handler's address in the place of the one to return to
		} {
			t.Run(testprog.JavaVersion(java)+"/"+tt.does+"/"+tt.options, func(t *testing.T) {
				p := startJava(t, java, classes, tt.options, "Truth", tt.does)
				got, x := randomJava(t, p)
				bad, empty := 0, 0
				for i, stack := range got.stacks {
					if len(stack) == 0 && !got.whole[i] {
						empty++
						continue
					}
					if why := javaWrong(stack, got.whole[i]); why != "" {
						if bad++; bad < 5 {
							t.Errorf("%s:\n  %s", why, strings.Join(stack, "\n  "))
						}
					}
				}
				n, changed := len(got.stacks), got.ends[codeChanged] // these where it was not looked often enough at what is mapped, for want of CPU time
				cut := n - got.ends[""] - changed
				t.Logf("%d stacks, %d wrong, %d without Java, ends %v, %+v", n, bad, empty, got.ends, x)
				if n-changed-empty < 200 || bad > 0 || cut*100 > tt.cut*(n-changed) || x.Unnamed*100 > x.Placed {
					t.Errorf("%d stacks, %d wrong, %d cut, %d without Java, %+v", n, bad, cut, empty, x)
				}
			})
		}
	}
}

// javaWrong tells what is wrong with a stack of the busy program, empty if nothing is. whole: it says that it is complete.
func javaWrong(stack []string, whole bool) string {
	caller := ""
	depth := map[string]int{}
	for i := len(stack) - 1; i >= 0; i-- {
		name := javaName(stack[i])
		if name == "" {
			continue
		}
		if caller == "" && whole && name != "main" && name != "Truth$$Lambda" {
			return "complete, but for who calls " + name
		}
		if caller != "" && !strings.Contains(" "+javaCalls[caller]+" ", " "+name+" ") {
			return caller + " does not call " + name
		}
		caller = name
		depth[name]++
	}
	switch {
	case whole && (caller == "" || caller == "main" || caller == "Truth$$Lambda" && depth["main"] == 0 && depth["busy"] == 0):
		return "complete, and nothing that the program does"
	case depth["fib"] > 15:
		return fmt.Sprintf("%d of fib", depth["fib"])
	case depth["failed"]+depth["threw"] > 10:
		return fmt.Sprintf("%d of failed or threw", depth["failed"]+depth["threw"])
	case depth["busy"] > 1:
		return "two of busy"
	}
	return ""
}

// javaMade is the number in the name of a class of Churn.java, and that in the name of its method, if it has one.
var javaMade = regexp.MustCompile(`^Made(\d+)\.[a-z]+[A-Z]*(\d*)`)

// TestJavaChurn takes a program that makes classes and drops them all the time at random instants: the classes of one stack are one.
func TestJavaChurn(t *testing.T) {
	classes := testprog.JavaClasses(t, "scripts/Churn.java")
	for _, java := range testprog.Javas(t) {
		t.Run(testprog.JavaVersion(java), func(t *testing.T) {
			p := startTeller(t, java, "-XX:+UseSerialGC", "-Xmx32m", "-Xshare:auto", "-cp", classes, "Churn")
			p.next(t) // it has begun
			made, bad := 0, 0
			var x Scripts
			for begun := time.Now(); made < 500 && time.Since(begun) < testprog.Patience/6; {
				pipe := scriptPipeline()
				got := &javaSink{ends: map[string]int{}, enough: func() {}}
				pipe.cfg.Sink = got
				if _, err := Run(context.Background(), Options{PIDs: []int{p.Process.Pid}, Hz: 499}, 5*time.Second, pipe, nil, nil); err != nil {
					t.Fatal(err)
				}
				n := pipe.Stats().Scripts
				x = Scripts{x.Placed + n.Placed, x.Loose + n.Loose, x.Unnamed + n.Unnamed, x.Unseen + n.Unseen}
				for _, stack := range got.stacks {
					numbers := map[string]bool{}
					for _, f := range stack {
						if m := javaMade.FindStringSubmatch(f); m != nil {
							numbers[m[1]] = true
							numbers[cmp.Or(m[2], m[1])] = true
						}
					}
					if len(numbers) > 0 {
						made++
					}
					if len(numbers) > 1 {
						if bad++; bad < 4 {
							t.Errorf("classes of one stack:\n  %s", strings.Join(stack, "\n  "))
						}
					}
				}
			}
			t.Logf("%d stacks of classes that are dropped, %d wrong, %+v", made, bad, x)
			if made < 100 || bad > 0 || x.Unnamed*20 > x.Placed {
				t.Errorf("%d stacks of classes that are dropped, %d wrong, %+v", made, bad, x)
			}
		})
	}
}
