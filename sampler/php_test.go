package sampler

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
)

const truthPHP = "../testdata/scripts/truth.php"

// phps are the interpreters to try: that of the distribution, and those that SFSAMPLE_TEST_PHPS lists, with
// colons between them.
func phps(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_PHPS", "php8.2") }

// startPHP starts the program that tells its stack, without the settings of the machine but flags.
func startPHP(t *testing.T, php string, flags []string, args ...string) *teller {
	return startTeller(t, php, append(append([]string{"-n"}, flags...), append([]string{absolute(t, truthPHP)}, args...)...)...)
}

// jitFlags have opcache compile all functions to native code.
var jitFlags = []string{"-d", "display_startup_errors=0", "-d", "zend_extension=opcache", "-d", "opcache.enable_cli=1", "-d", "opcache.jit=function", "-d", "opcache.jit_buffer_size=32M"}

// hasJIT tells whether a PHP can do that.
func hasJIT(php string) bool {
	out, err := exec.Command(php, append(append([]string{"-n"}, jitFlags...), "-r", `echo opcache_get_status(false)["jit"]["on"];`)...).Output()
	return err == nil && strings.HasSuffix(string(out), "1")
}

// TestPHPTruth compares every frame of a PHP program that tells its own stack and blocks, read without a stop and copied at one.
func TestPHPTruth(t *testing.T) {
	t.Parallel()
	for _, php := range phps(t) {
		for stop, how := range map[StopMode]string{StopNever: "no stop", StopAlways: "stop"} {
			t.Run(filepath.Base(php)+"/"+how, func(t *testing.T) {
				checkTruth(t, startPHP(t, php, nil, "main"), stop, 100)
			})
		}
	}
}

// scripted is a sink that keeps the script frames of each sample, and how the stack ended.
type scripted struct {
	stacks [][]string
	cut    []bool
	short  []bool // there are more script frames
	ends   map[string]int
}

// Add implements output.Sink.
func (s *scripted) Add(m *output.Sample) error {
	if got := scriptFrames(m.Stack); len(got) > 0 {
		s.stacks = append(s.stacks, got)
		s.cut, s.short = append(s.cut, m.Stack.End != ""), append(s.short, m.Stack.End == scriptCut)
		s.ends[m.Stack.End]++
	}
	return nil
}

// Close implements output.Sink.
func (s *scripted) Close() error { return nil }

// gone stands for what was freed before its name was read.
const gone = "[code is gone]"

// phpCalls are the calls of the program between which it tells its stack, and its lines of source.
type phpCalls struct {
	made   map[string]bool
	source []string
}

// calls tells whether the program has caller, as told.lines has it, call callee: it has told so, or the line names it.
func (p *phpCalls) calls(caller, callee string) bool {
	name, _, _ := strings.Cut(callee, " ")
	if strings.HasPrefix(caller, gone) || strings.HasPrefix(callee, gone) || strings.Contains(name, "Iterator::") { // which is called by whatever goes over it
		return true
	}
	if p.made[caller+" "+name] {
		return true
	}
	if from, ok := strings.CutSuffix(caller, ":0"); ok { // its lines were freed before they were read
		return p.made[from+" "+name]
	}
	at := strings.LastIndex(caller, ":")
	var line int
	if fmt.Sscan(caller[at+1:], &line); !strings.HasSuffix(caller[:at], "truth.php") || line < 1 || line > len(p.source) {
		return false
	}
	if name == "{closure}" {
		name = "function"
	}
	class, method, ok := strings.Cut(name, "::")
	return strings.Contains(p.source[line-1], class) || ok && strings.Contains(p.source[line-1], method)
}

// numbers makes the names of functions that differ by a number the same.
func numbers(stack []string) (list []string) {
	for _, f := range stack {
		list = append(list, madeName.ReplaceAllString(f, "made_N"))
	}
	return list
}

var madeName = regexp.MustCompile(`made_\d+`)

// span is the numbers of the first line that has each of two texts, the second from the first on.
func (p *phpCalls) span(from, to string) (first, last int) {
	for i, l := range p.source {
		switch {
		case first == 0 && strings.Contains(l, from):
			first = i + 1
		case first > 0 && strings.Contains(l, to):
			return first, i + 1
		}
	}
	return first, last
}

// TestPHPRandom takes a PHP program at random instants: each frame is called from where the program calls it, and the innermost line is
// one that computes.
func TestPHPRandom(t *testing.T) {
	for _, php := range phps(t) {
		t.Run(filepath.Base(php), func(t *testing.T) { checkPHP(t, php, nil) })
	}
}

// TestPHPJIT does so with native code that opcache has generated: there all frames are known too, and of the innermost no line is told, as
// neither registers nor memory have it.
func TestPHPJIT(t *testing.T) {
	for _, php := range phps(t) {
		t.Run(filepath.Base(php), func(t *testing.T) {
			if !hasJIT(php) {
				t.Skip("no opcache with a JIT")
			}
			checkPHP(t, php, jitFlags)
		})
	}
}

// checkPHP takes a PHP program with these flags at random instants.
func checkPHP(t *testing.T, php string, flags []string) {
	source, err := os.ReadFile(truthPHP)
	if err != nil {
		t.Fatal(err)
	}
	known := &phpCalls{made: map[string]bool{}, source: strings.Split(string(source), "\n")}
	p := startPHP(t, php, flags, "main") // the JIT has lines of its own where code delegates
	for s := p.next(t); s != nil; s = p.next(t) {
		list := numbers(s.lines())
		for i := range list[1:] {
			name, _, _ := strings.Cut(list[i], " ")
			known.made[list[i+1]+" "+name] = true
			known.made[list[i+1][:strings.LastIndex(list[i+1], ":")]+" "+name] = true
		}
		p.in.Write([]byte("\n"))
	}
	first, last := known.span("function report(", "return 0;")
	loop, _ := known.span("$i < 3000", "}") // and the line behind it: memory has one of them all the time, only registers have both
	p = startPHP(t, php, flags, "random")
	got, x := randomStacks(t, p.Process.Pid, 200)
	bad, unknown, inner, frames, lineless, looping := 0, 0, 0, 0, 0, [2]int{}
	wrong := func(what string, stack []string) {
		if bad++; bad < 5 {
			t.Errorf("%s:\n  %s", what, strings.Join(stack[:min(len(stack), 12)], "\n  "))
		}
	}
	for n, stack := range got.stacks {
		stack = numbers(stack)
		if root := stack[len(stack)-1]; !got.short[n] && !strings.HasPrefix(root, "{main} ") {
			wrong("its root", stack)
		}
		frames += len(stack)
		for i := range stack[1:] {
			if strings.HasSuffix(stack[i+1], ".php:0") || strings.HasSuffix(stack[i+1], "code:0") {
				lineless++
			}
			if !known.calls(stack[i+1], stack[i]) {
				wrong(stack[i+1]+" does not call "+stack[i], stack)
			}
		}
		var line int
		if at := strings.LastIndex(stack[0], ":"); strings.HasPrefix(stack[0], "report ") {
			inner++
			switch fmt.Sscan(stack[0][at+1:], &line); {
			case line == 0:
				unknown++
			case line < first || line > last:
				wrong("its innermost line", stack)
			case line == loop || line == loop+1:
				looping[line-loop]++
			}
		}
	}
	n := len(got.stacks)
	t.Logf("%d stacks, %d in the function that computes, %d of these in the lines of its loop, %d without a line, %+v, ends %v", n, inner, looping, unknown, x, got.ends)
	right := unknown*50 <= inner && (looping[0]+looping[1])*10 >= inner*9 && min(looping[0], looping[1])*10 >= inner && x.Loose*100 <= x.Placed && lineless*10 <= frames
	if flags != nil {
		right = unknown*100 >= inner*99 && inner > 0 && x.Loose < x.Placed
	}
	if n < 100 || bad > 0 || !right || x.Unnamed*100 > x.Placed {
		t.Errorf("%d stacks, %d of them wrong, of %d innermost lines %d unknown and %d in the loop, of %d frames %d without a line, %+v", n, bad, inner, unknown, looping, frames, lineless, x)
	}
}

// resumers are who resumes the generators of resumed.php.
var resumers = map[string][]string{"plain": {"Generator::next"}, "leaf": {"Generator::next", "over"}, "root": {"leaf"}, "twig": {"root"}}

// plainName is the function of a frame, as told.lines has it.
func plainName(frame string) string {
	name, _, _ := strings.Cut(frame, " ")
	return name
}

// resumes tells whether the program has caller call or resume callee: by the source, in which each function is a line of its own.
func (p *phpCalls) resumes(caller, callee string) bool {
	from, to := plainName(caller), plainName(callee)
	resumed := slices.Contains(resumers[to], from)
	var line int
	if fmt.Sscan(caller[strings.LastIndex(caller, ":")+1:], &line); line < 1 || line > len(p.source) {
		return resumed && from == "Generator::next"
	}
	text := p.source[line-1]
	_, method, _ := strings.Cut(to, "::")
	return strings.Contains(text, "function "+from+"(") != (from == "{main}") &&
		(resumed && strings.Contains(text, "foreach") || strings.Contains(text, cmp.Or(method, to)+"("))
}

// TestPHPResumed takes a PHP program that does little but resume generators, at random instants: each frame is called from where the program
// calls it, and no generator stands twice.
func TestPHPResumed(t *testing.T) {
	const path = "../testdata/scripts/resumed.php"
	for _, php := range phps(t) {
		t.Run(filepath.Base(php), func(t *testing.T) {
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			known := &phpCalls{source: strings.Split(string(source), "\n")}
			p := testprog.StartCmd(t, exec.Command(php, "-n", absolute(t, path)))
			got := &scripted{ends: map[string]int{}}
			for begun := time.Now(); len(got.stacks) < 2000 && time.Since(begun) < testprog.Patience; {
				pipe := scriptPipeline()
				pipe.cfg.Sink = got
				if _, err := Run(context.Background(), Options{PIDs: []int{p.PID}, Hz: 999}, 2*time.Second, pipe, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			bad, inside, whole := 0, 0, 0
			for n, stack := range got.stacks {
				if !got.cut[n] {
					whole++
				}
				if _, ok := resumers[plainName(stack[0])]; ok {
					inside++
				}
				for i := range stack[1:] {
					if !known.resumes(stack[i+1], stack[i]) {
						if bad++; bad < 5 {
							t.Errorf("%s does not call %s:\n  %s", stack[i+1], stack[i], strings.Join(stack, "\n  "))
						}
						break
					}
				}
			}
			t.Logf("%d stacks, %d of them wrong, %d whole, %d in generators, ends %v", len(got.stacks), bad, whole, inside, got.ends)
			if n := len(got.stacks); n < 2000 || bad > 0 || inside*20 < n || whole*10 < 9*n {
				t.Errorf("%d stacks, %d wrong, %d whole, %d in generators", n, bad, whole, inside)
			}
		})
	}
}
