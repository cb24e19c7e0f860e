package sampler

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sfsample/internal/testprog"
)

const truthLua = "../testdata/scripts/truth.lua"

// luas are the interpreters to try: those of the distribution, and those that SFSAMPLE_TEST_LUAS lists, with colons between them.
func luas(t *testing.T) []string { return interpreters(t, "SFSAMPLE_TEST_LUAS", "lua5.3", "lua5.4") }

// startLua starts the program that tells its stack.
func startLua(t *testing.T, lua string, args ...string) *teller {
	return startTeller(t, lua, append([]string{absolute(t, truthLua)}, args...)...)
}

// TestLuaTruth compares every frame of a Lua program that tells its own stack and blocks, read without a stop and copied at one.
func TestLuaTruth(t *testing.T) {
	t.Parallel()
	for _, lua := range luas(t) {
		t.Run(filepath.Base(lua)+"/stop", func(t *testing.T) { checkTruth(t, startLua(t, lua, "main"), StopAlways, 80) })
		t.Run(filepath.Base(lua)+"/no stop", func(t *testing.T) { checkTruth(t, startLua(t, lua, "main"), StopNever, 80) })
	}
}

// TestLuaEmbedded does so with a program that has Lua as a library, runs it in a further thread and calls it from its own functions.
func TestLuaEmbedded(t *testing.T) {
	for _, v := range []string{"5.3", "5.4"} {
		include := "/usr/include/lua" + v
		if _, err := os.Stat(include); err != nil {
			t.Skipf("no headers of Lua %s on this machine", v)
		}
		t.Run(v, func(t *testing.T) {
			p := testprog.Compile(t, []string{"-O2", "-I" + include, "-Wl,--no-as-needed", "-llua" + v, "-pthread"}, "luaembed.c")
			checkTruth(t, startLua(t, p, "main"), StopAlways, 85)
		})
	}
}

// TestLuaRandom takes a Lua program at random instants, also one that makes code and drops it all the time: no function is called from
// where the program does not tell that it calls it, and the innermost line is one that computes.
func TestLuaRandom(t *testing.T) {
	source, err := os.ReadFile(truthLua)
	if err != nil {
		t.Fatal(err)
	}
	text := &phpCalls{source: strings.Split(string(source), "\n")}
	first, last := text.span("local function report(", "local resume")
	loop, _ := text.span("x = x + i", "end")
	for _, lua := range luas(t) {
		made := map[string]bool{}
		p := startLua(t, lua, "main")
		function := func(line string) string { return line[:strings.LastIndex(line, ":")] } // without the line that it is at
		for s := p.next(t); s != nil; s = p.next(t) {
			list := s.lines()
			for i := range list[1:] {
				made[list[i+1]+" "+function(list[i])] = true
			}
			p.in.Write([]byte("\n"))
		}
		for _, mode := range []string{"random", "churn"} {
			t.Run(filepath.Base(lua)+"/"+mode, func(t *testing.T) {
				p := startLua(t, lua, mode)
				got, x := randomStacks(t, p.Process.Pid, 300)
				bad, inner, unknown, told, looping := 0, 0, 0, 0, [2]int{}
				wrong := func(what string, stack []string) {
					if bad++; bad < 5 {
						t.Errorf("%s:\n  %s", what, strings.Join(stack[:min(len(stack), 12)], "\n  "))
					}
				}
				for n, stack := range got.stacks {
					if root := stack[len(stack)-1]; !got.cut[n] && !strings.HasPrefix(root, "main chunk <"+scriptFile(t)+"> ") {
						wrong("its root", stack)
					}
					for i, f := range stack[:len(stack)-1] {
						if made[stack[i+1]+" "+function(f)] {
							told++
						} else if !text.lua(stack[i+1], f) {
							wrong(stack[i+1]+" does not call "+f, stack)
						}
					}
					if strings.HasPrefix(stack[0], fmt.Sprintf("function <%s:%d>", scriptFile(t), first)) {
						var line int
						inner++
						switch fmt.Sscan(stack[0][strings.LastIndex(stack[0], ":")+1:], &line); {
						case line == 0:
							unknown++
						case line < first || line > last:
							wrong("its innermost line", stack)
						case line == loop || line == loop+1:
							looping[line-loop]++
						}
					}
				}
				t.Logf("%d stacks, %d calls that were told, %d in the function that computes, %d without a line, %d in its loop, %+v, ends %v", len(got.stacks), told, inner, unknown, looping, x, got.ends)
				cut := len(got.stacks) - got.ends[""]
				lines := unknown*50 <= inner && min(looping[0], looping[1])*10 >= inner
				if !strings.HasPrefix(lua, "/usr/") { // other builds may keep the instruction where nobody looks
					lines = lines || unknown == inner
				}
				if n := len(got.stacks); n < 100 || bad > 0 || told*2 < n || cut*2 > n || inner*4 < n || !lines || x.Loose*100 > x.Placed || x.Unnamed*5 > x.Placed {
					t.Errorf("%d stacks, %d of them wrong, %d cut, of %d innermost lines %d unknown, %+v", n, bad, cut, inner, unknown, x)
				}
			})
		}
	}
}

// scriptFile is the program as its frames name it.
func scriptFile(t *testing.T) string {
	file, err := filepath.Abs(truthLua)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// lua tells whether the text has caller, as told.lines has it, call callee where the program has told no such stack.
func (p *phpCalls) lua(caller, callee string) bool {
	if strings.HasPrefix(caller, gone) || strings.HasPrefix(callee, gone) {
		return true
	}
	from, to := luaPlaced(caller), luaPlaced(callee)
	at, what := p.luaText(from.file, from.line), p.luaText(to.file, to.begin)
	var named *regexp.Regexp // callee, if it has a name
	if name := luaNamed.FindStringSubmatch(what); name != nil {
		named = regexp.MustCompile(`\b` + name[1] + `\b`)
	}
	switch {
	case strings.HasPrefix(from.file, "chunk"): // its function ends in the call
		return from.begin == 0 && (to.file == from.file && to.begin > 0 || named != nil && named.MatchString("report"))
	case strings.HasPrefix(to.file, "chunk"):
		return to.begin == 0 && at == "f(report)"
	case at == "" || what == "":
		return false
	case named != nil:
		return named.MatchString(at)
	case strings.Contains(at, "ipairs(kinds)"):
		return strings.HasPrefix(what, "kind(") // one that ends in a call is gone when that tells
	case at == "return resume(co, ...)":
		return strings.Contains(what, "create(function")
	case at == "return g(...)":
		return strings.Contains(what, "wrap(function")
	case strings.Contains(at, "wrap(function"):
		return strings.Contains(what, "wrapped(function")
	}
	return from.line == to.begin
}

// luaText is a line of the program, without spaces around it; empty: it is none.
func (p *phpCalls) luaText(file string, line int) string {
	if !strings.HasSuffix(file, "/truth.lua") || line < 1 || line > len(p.source) {
		return ""
	}
	return strings.TrimSpace(p.source[line-1])
}

// luaPlace is where a function is and the line in it.
type luaPlace struct {
	file        string
	begin, line int // begin 0: it is the file
}

func luaPlaced(frame string) (l luaPlace) {
	m := luaFunction.FindStringSubmatch(frame)
	if m == nil {
		return l
	}
	l.file = m[1] + m[2]
	l.begin, _ = strconv.Atoi(m[3])
	l.line, _ = strconv.Atoi(m[4])
	return l
}

var (
	luaFunction = regexp.MustCompile(`^(?:main chunk <(.*)>|function <(.*):(\d+)>) .*:(\d+)$`)
	luaNamed    = regexp.MustCompile(`local function (\w+)`)
)
