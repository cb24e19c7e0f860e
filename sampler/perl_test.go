package sampler

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

const truthPerl = "../testdata/scripts/truth.pl"

// perls are the interpreters to try: that of the distribution, and those that SFSAMPLE_TEST_PERLS lists, with colons between them.
func perls(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_PERLS", "perl") }

// startPerl starts the program that tells its stack.
func startPerl(t *testing.T, perl string, args ...string) *teller {
	return startTeller(t, perl, append([]string{absolute(t, truthPerl)}, args...)...)
}

// TestPerlTruth compares every frame of a Perl program that tells its own stack and blocks: of the main thread and of another one, read without a
// stop and copied at one.
func TestPerlTruth(t *testing.T) {
	t.Parallel()
	for _, perl := range perls(t) {
		for _, where := range []string{"main", "thread"} {
			for stop, how := range map[StopMode]string{StopNever: "no stop", StopAlways: "stop"} {
				t.Run(filepath.Base(perl)+"/"+where+"/"+how, func(t *testing.T) {
					checkTruth(t, startPerl(t, perl, where), stop, 140)
				})
			}
		}
	}
}

// TestPerlReplay: a recording shows what was shown when it was made.
func TestPerlReplay(t *testing.T) { checkReplay(t, startPerl(t, perls(t)[0], "same")) }

// TestPerlRandom takes a Perl program at random instants, also one that makes code and drops it all the time: no frame is called from where the
// program has not told that it calls it, or that its line names, and the innermost line of the function that computes is one that computes.
func TestPerlRandom(t *testing.T) {
	source, err := os.ReadFile(truthPerl)
	if err != nil {
		t.Fatal(err)
	}
	text := &phpCalls{source: strings.Split(string(source), "\n")}
	first, last := text.span("sub compute {", "}")
	last += 2
	for _, perl := range perls(t) {
		made := map[string]bool{}
		p := startPerl(t, perl, "main")
		for s := p.next(t); s != nil; s = p.next(t) {
			list := perlNumbers(s.lines())
			for i := range list[1:] {
				made[list[i+1]+" "+perlName(list[i])] = true
			}
			p.in.Write([]byte("\n"))
		}
		for _, mode := range []string{"random", "churn"} {
			t.Run(filepath.Base(perl)+"/"+mode, func(t *testing.T) {
				p := startPerl(t, perl, mode)
				got, x := randomStacks(t, p.Process.Pid, 300)
				bad, inner, unknown, told := 0, 0, 0, 0
				wrong := func(what string, stack []string) {
					if bad++; bad < 5 {
						t.Errorf("%s:\n  %s", what, strings.Join(stack[:min(len(stack), 12)], "\n  "))
					}
				}
				whole, offset := 0, -1
				for n, stack := range got.stacks {
					if mode == "churn" {
						// What was made has one number, which the place where it is called has too.
						if m := perlMade.FindStringSubmatch(strings.Join(stack, "\n")); m != nil {
							whole++
							number, eval, line := atoi(m[1]), atoi(m[4]), atoi(m[5])
							if m[1] != m[2] || m[3] != "" && m[3] != m[4] || line != 2+number%7 || offset >= 0 && (eval-number+1000000)%1000 != offset {
								wrong("its numbers", stack)
							}
							offset = (eval - number + 1000000) % 1000
						}
					}
					stack = perlNumbers(stack)
					if root := stack[len(stack)-1]; !got.cut[n] && !perlRoot.MatchString(root) {
						wrong("its root", stack)
					}
					for i, f := range stack[:len(stack)-1] {
						if made[stack[i+1]+" "+perlName(f)] {
							told++
						} else if !text.perl(stack[i+1], f) {
							wrong(stack[i+1]+" does not call "+f, stack)
						}
					}
					if strings.HasPrefix(stack[0], "main::compute ") {
						var line int
						inner++
						switch fmt.Sscan(stack[0][strings.LastIndex(stack[0], ":")+1:], &line); {
						case line == 0:
							unknown++
						case line <= first || line > last:
							wrong("its innermost line", stack)
						}
					}
				}
				t.Logf("%d stacks wholly of code that was made", whole)
				if mode == "churn" && whole < 3 {
					t.Errorf("%d stacks of code that was made", whole)
				}
				t.Logf("%d stacks, %d calls that were told, %d in the function that computes, %d without a line, %+v, ends %v", len(got.stacks), told, inner, unknown, x, got.ends)
				if n := len(got.stacks); n < 100 || bad > 0 || told < n || inner*4 < n || unknown*20 > inner || x.Loose*100 > x.Placed || mode == "random" && x.Unnamed*20 > x.Placed || x.Unnamed*2 > x.Placed {
					t.Errorf("%d stacks, %d of them wrong, of %d innermost lines %d unknown, %+v", n, bad, inner, unknown, x)
				}
			})
		}
	}
}

// perlNumbers makes the names and files of code that differ by a number the same.
func perlNumbers(stack []string) (list []string) {
	for _, f := range stack {
		list = append(list, perlNumber.ReplaceAllString(f, "$1"))
	}
	return list
}

// perlMade is a sub that was made, where that calls, if that is known, and where it is called.
var perlMade = regexp.MustCompile(`Made(\d+)::made_(\d+) (?:\(eval (\d+)\):1|:0)\n\(eval\) \(eval (\d+)\):(\d+)\n`)

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// perlName is a frame without its place.
func perlName(frame string) string { return perlPlace.ReplaceAllString(frame, "") }

var perlPlace = regexp.MustCompile(` (/\S*|\(eval \)|in"side;\.pl|):\d+$`)

// compiles is subs that are called while something is compiled.
var compiles = regexp.MustCompile(`::(BEGIN|import|unimport)$`)

// perlRoot is the outermost frames, also while the program is compiled.
var perlRoot = regexp.MustCompile(`^(main program|\(eval\)) |^\[code is gone\]`)

var perlNumber = regexp.MustCompile(`((?:\(eval |Made|made_))\d+`)

// perl tells whether the line of the program that caller is at has the call of callee, or that cannot be told.
func (p *phpCalls) perl(caller, callee string) bool {
	if strings.HasPrefix(caller, gone) || strings.HasPrefix(callee, gone) || strings.HasSuffix(caller, " :0") {
		return true
	}
	at := strings.LastIndex(caller, ":")
	var line int
	fmt.Sscan(caller[at+1:], &line)
	name := perlName(callee)
	if !strings.HasSuffix(caller[:at], "/truth.pl") {
		return strings.HasSuffix(caller[:at], ".pm") && !strings.HasSuffix(caller[:at], "/Included.pm") // which it uses
	}
	if line < 1 || line > len(p.source) {
		return false
	}
	text := p.source[line-1]
	switch {
	case name == "(require)" || compiles.MatchString(name): // while it is compiled
		return strings.HasPrefix(caller, "(") || compiles.MatchString(perlName(caller)) || strings.Contains(text, "require")
	case name == "(eval)":
		return strings.Contains(text, "eval") || strings.Contains(text, "do '") // of a file: perldoc -f caller
	case strings.HasPrefix(name, "format "): // caller fails in one
		return strings.Contains(text, "write")
	case strings.HasPrefix(caller, "format "):
		return name == "main::formatted"
	}
	return strings.Contains(text, name[strings.LastIndex(name, ":")+1:]+"(")
}

// TestDumpRunning dumps programs that run, of whose interpreter's state nothing is known before the first stop.
func TestDumpRunning(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *teller{
		"perl": func(t *testing.T) *teller { return startPerl(t, perls(t)[0], "random") },
		"lua":  func(t *testing.T) *teller { return startLua(t, luas(t)[0], "random") },
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			stopped, shown := 0, 0
			for begun := time.Now(); stopped < 20 && time.Since(begun) < testprog.Patience/6; {
				d, err := Dump(Options{PIDs: []int{p.Process.Pid}, Stop: StopAuto}, scriptPipeline())
				if err != nil {
					t.Fatal(err)
				}
				if th := d.Threads[0]; th.Taken == "stop" && strings.Contains(fmt.Sprint(th.Stack.Frames), "libc") {
					stopped++
					if list := scriptFrames(th.Stack); len(list) > 0 && th.Stack.End == "" {
						shown++
					} else if testing.Verbose() {
						t.Logf("%q %v", th.Stack.End, list)
					}
				}
			}
			t.Logf("%d of %d stacks have frames of scripts", shown, stopped)
			if stopped < 5 || shown*2 < stopped {
				t.Errorf("%d of %d stacks have frames of scripts", shown, stopped)
			}
		})
	}
}
