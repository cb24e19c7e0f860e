package sampler

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const truthRuby = "../testdata/scripts/truth.rb"

// rubies are the interpreters to try: that of the distribution, and those that SFSAMPLE_TEST_RUBIES lists, with colons between them.
func rubies(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_RUBIES", "ruby3.1") }

// startRuby starts the program that tells its stack, without gems.
func startRuby(t *testing.T, ruby string, args ...string) *teller {
	return startTeller(t, ruby, append([]string{"--disable-gems", absolute(t, truthRuby)}, args...)...)
}

// TestRubyTruth compares every frame of a Ruby program that tells its own stack and blocks: of the main thread, of another one, and in a fiber,
// read without a stop and copied at one.
func TestRubyTruth(t *testing.T) {
	t.Parallel()
	for _, ruby := range rubies(t) {
		for _, where := range []string{"main", "thread", "fiber"} {
			for stop, how := range map[StopMode]string{StopNever: "no stop", StopAlways: "stop"} {
				t.Run(filepath.Base(ruby)+"/"+where+"/"+how, func(t *testing.T) {
					checkTruth(t, startRuby(t, ruby, where), stop, 130)
				})
			}
		}
	}
}

// TestRubyCompiled is the same while code that YJIT has compiled runs in the place of the loop, where the build has that.
func TestRubyCompiled(t *testing.T) {
	for _, ruby := range rubies(t) {
		if out, err := exec.Command(ruby, "--yjit", "-e", "print RubyVM::YJIT.enabled?").CombinedOutput(); err != nil || string(out) != "true" {
			continue
		}
		t.Run(filepath.Base(ruby), func(t *testing.T) {
			checkTruth(t, startTeller(t, ruby, "--yjit", "--yjit-call-threshold=1", "--disable-gems", absolute(t, truthRuby), "main"), StopAlways, 130)
		})
	}
}

// TestRubyRandom takes a Ruby program at random instants: each frame is called from where the program has said that it calls it, or the line names
// it, and the innermost line of the function that computes is one that computes.
func TestRubyRandom(t *testing.T) {
	for _, ruby := range rubies(t) {
		t.Run(filepath.Base(ruby), func(t *testing.T) {
			sources := map[string][]string{}
			for _, path := range []string{truthRuby, filepath.Join(filepath.Dir(truthRuby), "included.rb")} {
				source, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				sources[filepath.Base(path)] = strings.Split(string(source), "\n")
			}
			made := map[string]bool{}
			p := startRuby(t, ruby, "main")
			for s := p.next(t); s != nil; s = p.next(t) {
				list := s.lines()
				for i := range list[1:] {
					name := list[i][:strings.LastIndex(list[i], " ")]
					for _, caller := range []string{list[i+1], classless(list[i+1])} {
						made[caller+" "+name], made[caller+" "+classless(name)] = true, true
					}
				}
				p.in.Write([]byte("\n"))
			}
			first, last := 0, 0
			for i, l := range sources["truth.rb"] {
				switch {
				case l == "def compute":
					first = i + 1
				case l == "end" && first > 0 && last == 0:
					last = i + 1
				}
			}
			p = startRuby(t, ruby, "random")
			p.next(t) // it has loaded what it needs
			got, x := randomStacks(t, p.Process.Pid, 300)
			bad, inner, looping := 0, 0, 0
			wrong := func(what string, stack []string) {
				if bad++; bad < 5 {
					t.Errorf("%s:\n  %s", what, strings.Join(stack[:min(len(stack), 12)], "\n  "))
				}
			}
			for n, stack := range got.stacks {
				if root := stack[len(stack)-1]; !got.cut[n] && !outermost.MatchString(root) {
					wrong("its root "+root, stack)
				}
				for i := range stack[1:] {
					if name := stack[i][:strings.LastIndex(stack[i], " ")]; !strings.HasPrefix(stack[i+1], gone) && !strings.HasPrefix(name, gone) && !made[stack[i+1]+" "+name] && !rubyNames(sources, stack[i+1], name) {
						wrong(stack[i+1]+" does not call "+stack[i], stack)
					}
				}
				if at := strings.LastIndex(stack[0], ":"); strings.HasPrefix(stack[0], "Object#compute ") {
					inner++
					var line int
					if fmt.Sscan(stack[0][at+1:], &line); line < first || line > last {
						wrong("its innermost line", stack)
					} else if line >= first+3 && line <= first+6 {
						looping++
					}
				}
			}
			t.Logf("%d stacks, %d in the function that computes, %d of these in its loop, %+v, ends %v", len(got.stacks), inner, looping, x, got.ends)
			if n := len(got.stacks); n < 100 || bad > 0 || inner*2 < n || looping*10 < inner*9 || x.Loose*50 > x.Placed || x.Unnamed*50 > x.Placed {
				t.Errorf("%d stacks, %d of them wrong, %d in the function that computes, %d of these in its loop, %+v", n, bad, inner, looping, x)
			}
		})
	}
}

// outermost is the outermost frames of the program's threads and fibers, as classless has them or not.
var outermost = regexp.MustCompile(`^(<main>|block in (Object#)?run|block (\(\d levels\) )?in (Object#)?all) `)

// classless is a frame without its class, as it is shown if that was gone when it was read.
func classless(frame string) string { return qualifier.ReplaceAllString(frame, "$1") }

var qualifier = regexp.MustCompile(`^((?:\S+ (?:\(.*?\) )?in )?)[A-Z][\w:]*[#.]`)

// rubyNames tells whether the line of the program that caller is at has the method of callee, or what makes Ruby call it, or caller is native code,
// whose calls cannot be seen. The lines of the program's files go by the files' names.
func rubyNames(sources map[string][]string, caller, callee string) bool {
	where := caller[strings.LastIndex(caller, " ")+1:]
	path, number, _ := strings.Cut(where, ":")
	line, err := strconv.Atoi(number)
	if err != nil || line == 0 {
		return native.MatchString(caller)
	}
	if callee == "BasicObject#method_missing" {
		return true
	}
	lines := sources[filepath.Base(path)]
	if line > len(lines) {
		return false
	}
	text := lines[line-1]
	if strings.HasPrefix(callee, "block ") && strings.Contains(text, "yield") {
		return true
	}
	if by, ok := rubyCalls[callee]; ok && strings.Contains(text, by) {
		return true
	}
	method := callee[strings.LastIndexAny(callee, "#. ")+1:]
	if method == "initialize" {
		method = "new"
	}
	return strings.Contains(text, method)
}

// rubyCalls are methods that Ruby calls by itself where a line has a word: to compare an error with the class that a clause rescues, to make it of
// the class that is raised, to tell a class of a new method (Ruby's class library, Module#===, Exception.exception and Module#method_added), to make
// a lambda of a literal (vm_core_lambda, vm.c), and to ask whether an object that is matched can be taken apart (iseq_compile_pattern_each,
// compile.c; RubyVM::InstructionSequence.compile("x in [y]").disasm shows the call).
var rubyCalls = map[string]string{"Module#===": "rescue", "Exception#exception": "rescue", "Module#method_added": "def ", "lambda": "->", "Kernel#respond_to?": " in ["}

var native = regexp.MustCompile(`^[A-Z][\w:]*[#.]\S+ :0$`)
