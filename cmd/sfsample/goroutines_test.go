package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

// goBuilds are the ways to build a Go program that differ in what it tells of itself.
var goBuilds = map[string][]string{
	"whole":             {"-tags=netgo"},
	"without-DWARF":     {"-tags=netgo", "-ldflags=-w"},
	"stripped":          {"-tags=netgo", "-ldflags=-s -w"},
	"pie":               {"-tags=netgo", "-buildmode=pie"},
	"pie-stripped":      {"-tags=netgo", "-buildmode=pie", "-ldflags=-s -w"},
	"with-C":            {"-ldflags=-linkmode=external"},
	"with-C-stripped":   {"-ldflags=-linkmode=external -s -w"},
	"without-optimizer": {"-tags=netgo", "-gcflags=all=-N -l"},
}

// buildGoroutines builds testdata/stuck/goroutines.go.
func buildGoroutines(t testing.TB, build string) string {
	t.Helper()
	if strings.HasPrefix(build, "with-C") {
		command(t, "gcc")
	}
	return testprog.CompileGo(t, goBuilds[build], "../stuck/goroutines.go")
}

// goTruth is what Go's own runtime says of a goroutine.
type goTruth struct {
	reason  string
	frames  []string // innermost first; "..." stands for elided ones
	elided  int
	creator string
}

var (
	goHeader  = regexp.MustCompile(`^goroutine (\d+) (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[([^\],]*)[^\]]*\]:$`)
	goElided  = regexp.MustCompile(`^\.\.\.(\d+) frames elided\.\.\.$`)
	goCreated = regexp.MustCompile(`^created by (.*?)(?: in goroutine \d+)?$`)
)

// readGoTruth reads what the runtime prints at SIGQUIT.
func readGoTruth(t testing.TB, text string) map[uint64]goTruth {
	t.Helper()
	all := map[uint64]goTruth{}
	for block := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		m := goHeader.FindStringSubmatch(lines[0])
		if m == nil {
			continue
		}
		id, _ := strconv.ParseUint(m[1], 10, 64)
		g := goTruth{reason: m[2]}
		for _, line := range lines[1:] {
			if e := goElided.FindStringSubmatch(line); e != nil {
				g.elided, _ = strconv.Atoi(e[1])
				g.frames = append(g.frames, "...")
			} else if c := goCreated.FindStringSubmatch(line); c != nil {
				g.creator = c[1]
			} else if i := strings.LastIndexByte(line, '('); i > 0 && line[0] != '\t' {
				g.frames = append(g.frames, line[:i])
			}
		}
		all[id] = g
	}
	return all
}

// is tells whether a stack is that of the truth, frame by frame.
func (g *goTruth) is(frames []string) bool {
	i := slices.Index(g.frames, "...")
	if i < 0 {
		return slices.Equal(g.frames, frames)
	}
	inner, outer := g.frames[:i], g.frames[i+1:]
	return len(frames) == len(inner)+g.elided+len(outer) && slices.Equal(frames[:i], inner) && slices.Equal(frames[len(frames)-len(outer):], outer)
}

// goShown is what a dump says of a goroutine.
type goShown struct {
	jsonGoroutine
	*jsonGoStack
	frames []string
}

func shownGoroutines(d *jsonDump) map[uint64]goShown {
	all := map[uint64]goShown{}
	for _, p := range d.Go {
		for i := range p.Stacks {
			s := &p.Stacks[i]
			var names []string
			for _, f := range s.Frames {
				names = append(names, strings.TrimSuffix(f.Func, ".abi0"))
			}
			for _, g := range s.Goroutines {
				all[g.ID] = goShown{g, s, names}
			}
		}
	}
	return all
}

// quit has a program end by SIGQUIT, and returns what it says then, in the file that has its standard error.
func quit(t testing.TB, p *testprog.Proc, stderr string) map[uint64]goTruth {
	t.Helper()
	p.Signal(t, syscall.SIGQUIT)
	for end := time.Now().Add(testprog.Patience); ; time.Sleep(time.Millisecond) {
		if st, err := (procfs.FS{}).Stat(p.PID); err != nil || st.State == 'Z' {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the program does not end")
		}
	}
	b, err := os.ReadFile(stderr)
	if err != nil {
		t.Fatal(err)
	}
	return readGoTruth(t, string(b))
}

// told is the rest of the line that a program has printed which begins with word.
func told(t testing.TB, p *testprog.Proc, word string) string {
	t.Helper()
	for _, line := range p.Lines {
		if rest, ok := strings.CutPrefix(line, word+" "); ok {
			return rest
		}
	}
	t.Fatalf("the program did not tell %q, but %q", word, p.Lines)
	return ""
}

// TestGoroutines: of a program whose goroutines wait in all ways, a dump shows what Go's own runtime prints of them afterwards:
// each goroutine, what it waits for, who started it, and all frames.
func TestGoroutines(t *testing.T) {
	command(t, "go")
	for build := range goBuilds {
		t.Run(build, func(t *testing.T) {
			path := buildGoroutines(t, build)
			said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			cmd := exec.Command(path)
			cmd.Stderr = said
			cmd.Env = append(os.Environ(), "GOTRACEBACK=system")
			p := startStuck(t, cmd)
			count, _ := strconv.Atoi(told(t, p, "count"))
			var d jsonDump
			for end := time.Now().Add(testprog.Patience / 6); time.Now().Before(end); {
				d = dumpedJSON(t, "--inlines", "-p", strconv.Itoa(p.PID))
				if len(d.Go) == 1 && d.Go[0].LeftOut == 0 && d.Go[0].InCall == 1 {
					break
				}
			}
			begun, _ := strconv.ParseInt(told(t, p, "late"), 10, 64)
			age := time.Since(time.Unix(0, begun))
			shown, late := shownGoroutines(&d), 0
			for id, g := range shown {
				if !slices.Contains(g.frames, "main.late") {
					continue
				}
				if late++; time.Duration(g.Waits) > age {
					t.Errorf("goroutine %d was started %v ago, and has waited for %v at least", id, age, time.Duration(g.Waits))
				}
			}
			if late != 1 {
				t.Errorf("%d goroutines were started late, want 1", late)
			}
			text := sfsample(t, "dump", "-p", strconv.Itoa(p.PID)).stdout
			compareGoroutines(t, shown, quit(t, p, said.Name()), count-1) // main reads
			checkGoObjects(t, &d, p)
			if want := fmt.Sprintf("%d goroutines of pid %d ", count, p.PID); !strings.Contains(text, want) || !strings.Contains(text, ": chan receive, not run for ") ||
				strings.Contains(text, "runFinalizers") || strings.Contains(text, "runfinq") || strings.Contains(text, "what the goroutines") || strings.Contains(strings.Join(d.Missing, "\n"), "goroutines") {
				t.Errorf("want a line with %q, none with runFinalizers; not known: %q\n%s", want, d.Missing, text)
			}
		})
	}
}

// compareGoroutines wants users goroutines of the program in got, and all of them as truth has them. The runtime's own may have
// run since.
func compareGoroutines(t *testing.T, got map[uint64]goShown, truth map[uint64]goTruth, users int) {
	t.Helper()
	n, reasons := 0, map[string]bool{}
	for id, g := range got {
		want, ok := truth[id]
		if g.Runtime && (!ok || want.reason != g.Reason) {
			continue
		}
		if !g.Runtime {
			n++
		}
		reasons[g.Reason] = true
		creator := ""
		if g.StartedBy != nil {
			creator = strings.TrimSuffix(g.StartedBy.Func, ".abi0")
		}
		if !ok || g.Reason != want.reason || !want.is(g.frames) || g.End != "" || creator != want.creator {
			t.Errorf("goroutine %d: %q, ends: %q, started by %s:\n%q\nwant %q, started by %s:\n%q", id, g.Reason, g.End, creator, g.frames, want.reason, want.creator, want.frames)
		}
		if g.Waits <= 0 && !g.Runtime && !slices.Contains(g.frames, "main.last") {
			t.Errorf("goroutine %d has waited for %d ns", id, g.Waits)
		}
		if slices.Contains(g.frames, "runtime.runFinalizers") && !g.Runtime {
			t.Errorf("goroutine %d runs no finalizer and is not the runtime's", id)
		}
	}
	if n != users {
		t.Errorf("%d goroutines of the program, want %d", n, users)
	}
	for _, r := range []string{"chan receive", "chan send", "select", "select (no cases)", "sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock",
		"sync.WaitGroup.Wait", "sync.Cond.Wait", "sleep", "IO wait", "chan receive (nil chan)", "chan send (nil chan)", "finalizer wait"} {
		if !reasons[r] {
			t.Errorf("no goroutine waits for %q", r)
		}
	}
}

// checkGoObjects wants the channel that the program has told of with the one that sends to it, and the thread that one
// is locked to.
func checkGoObjects(t *testing.T, d *jsonDump, p *testprog.Proc) {
	t.Helper()
	full, tid := told(t, p, "full"), told(t, p, "locked")
	sends, selects, locked := 0, 0, 0
	for _, g := range shownGoroutines(d) {
		on := slices.ContainsFunc(g.Objects, func(o jsonGoObject) bool {
			return o.Kind == "channel" && o.Addr == full && *o.Held == 2 && *o.Room == 2
		})
		switch {
		case g.Reason == "chan send" && on && len(g.Objects) == 1:
			sends++
		case g.Reason == "select" && on && len(g.Objects) == 2:
			selects++
		}
		if strconv.Itoa(g.LockedTID) == tid {
			locked++
		}
	}
	if sends != 1 || selects != 1 || locked != 1 {
		t.Errorf("%d send to %s, %d select it, %d are locked to thread %s; want one of each", sends, full, selects, locked, tid)
	}
}

// TestRestlessGoroutines: of goroutines that run all the time, no stack is shown that is none: half of one wait
// and half of another.
func TestRestlessGoroutines(t *testing.T) {
	p := startStuck(t, exec.Command(buildGoroutines(t, "stripped"), "restless"))
	taken, left := 0, 0
	for range 10 * long() {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
		for _, g := range d.Go {
			left += g.LeftOut
		}
		for id, g := range shownGoroutines(&d) {
			var halves []string
			for _, f := range g.frames {
				if half, ok := strings.CutPrefix(f, "main.right"); ok {
					halves = append(halves, "r"+half)
				} else if half, ok := strings.CutPrefix(f, "main.left"); ok {
					halves = append(halves, "l"+half)
				}
			}
			text := strings.Join(halves, " ")
			// A goroutine may be put aside between two calls.
			if !strings.HasSuffix("r3 r2 r1", text) && !strings.HasSuffix("l3 l2 l1", text) || g.End != "" {
				t.Errorf("goroutine %d: %q, ends: %q", id, g.frames, g.End)
			}
			if len(halves) == 3 {
				taken++
			}
		}
	}
	t.Logf("%d stacks with all three, %d goroutines were left out", taken, left)
	if taken == 0 {
		t.Error("no stack was ever taken")
	}
}

// stuckInC is a program whose main goroutine waits in a function that C code has called.
var stuckInC = map[string]string{
	"main.go": `package main

// void call_back(int n);
import "C"
import "fmt"

//export wait
func wait(n C.int) { fmt.Println("ready"); select {} }

func main() { C.call_back(3) }
`,
	"back.c": `void wait(int);
void call_back(int n) { if (n) call_back(n - 1); else wait(n); __asm__ volatile(""); }
`,
	"go.mod": "module inc\n\ngo 1.21\n",
}

// TestGoroutineInC: the stack of a goroutine that C code has called goes on there, on the stack of the thread that is locked to it.
func TestGoroutineInC(t *testing.T) {
	p := startStuck(t, exec.Command(withCgo(t, stuckInC)))
	want := []string{"main.wait", "runtime.cgocallback", "crosscall2", "call_back", "call_back", "call_back", "call_back", "runtime.asmcgocall", "main.main", "runtime.goexit"}
	var got string
	for end := time.Now().Add(testprog.Patience / 6); time.Now().Before(end); {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID), "--inlines")
		g := shownGoroutines(&d)[1]
		i := 0
		for _, f := range g.frames {
			if i < len(want) && f == want[i] {
				i++
			}
		}
		if i == len(want) && g.End == "" && g.LockedTID == p.PID {
			return
		}
		got = fmt.Sprintf("%q, ends: %q, locked to %d, %d of the frames", g.frames, g.End, g.LockedTID, i)
	}
	t.Errorf("got %s; want %q and others between", got, want)
}

// withCgo builds a program of Go and C.
func withCgo(t *testing.T, files map[string]string) string {
	t.Helper()
	command(t, "gcc")
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := command(t, "go", "build", "-o", "program", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "program")
}

// callsBack is a program whose goroutines call C that calls back, at depths that differ all the time, so that no stack is twice where it was.
var callsBack = map[string]string{
	"main.go": `package main

// unsigned long level(int depth, unsigned long x);
import "C"
import "fmt"

//go:noinline
func work(x uint64) uint64 {
	for range 20000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//export back
func back(depth C.int, x C.ulong) C.ulong {
	return C.ulong(work(uint64(C.level(depth, C.ulong(work(uint64(x)))))))
}

//go:noinline
func turn(deeper, depth int) uint64 {
	if deeper > 0 {
		return turn(deeper-1, depth) + 1
	}
	return uint64(C.level(C.int(depth), 1))
}

func main() {
	for range 3 {
		go func() {
			for i := 0; ; i++ {
				turn(i%17, i%4)
			}
		}()
	}
	fmt.Println("ready")
	select {}
}
`,
	"back.c": `unsigned long back(int, unsigned long);
static unsigned long work(unsigned long x) { for (int i = 0; i < 20000; i++) x = x * 6364136223846793005UL + 1442695040888963407UL; return x; }
unsigned long level(int depth, unsigned long x) { x = work(x); if (depth) x ^= back(depth - 1, x); return work(x) + 1; }
`,
	"go.mod": "module inc\n\ngo 1.22\n",
}

// TestGoCallbacks: goroutines that call C which calls back have whole stacks, all parts of them in their order.
func TestGoCallbacks(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on x86-64 alone it is known where a Go thread's stacks are")
	}
	p := testprog.StartCmd(t, exec.Command(withCgo(t, callsBack)))
	o := begin(t, tool("-p", strconv.Itoa(p.PID), "-hz", "499", "--max-overhead", "100", "-d", "3s", "-o", "folded=-")).end(t)
	o.want(t, exitDone)
	whole, cut, back := 0, 0, 0
	for line := range strings.Lines(o.stdout) {
		i := strings.LastIndexByte(line, ' ')
		stack := line[:i]
		n, err := strconv.Atoi(strings.TrimSpace(line[i:]))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if strings.Contains(stack, "[truncated: ") || strings.Contains(stack, "[frames missing]") {
			cut += n
			continue
		}
		var calls []string
		for f := range strings.SplitSeq(stack, ";") {
			if f == "level" || f == "main.back" || f == "main.turn" && !slices.Contains(calls, f) {
				calls = append(calls, f)
			}
		}
		for i, f := range calls {
			if want := []string{"level", "main.back"}[(i+1)%2]; i == 0 && f != "main.turn" || i > 0 && f != want {
				t.Fatalf("%q in %s", calls, stack)
			}
		}
		if whole += n; len(calls) > 2 {
			back += n
		}
	}
	t.Logf("%d stacks whole, %d of them called back, %d cut", whole, back, cut)
	if back < 100 || cut*14 > whole {
		t.Errorf("%d stacks whole, %d of them called back, %d cut:\n%s", whole, back, cut, o.stderr)
	}
}
