package sampler

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/unwind"
)

// start starts a program that ends with the test.
func start(t *testing.T, cmd *exec.Cmd) (pid int) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

func splitProgram(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("gcc splits stacks on x86-64")
	}
	return testprog.Compile(t, []string{"-O1", "-fsplit-stack"}, "split.c")
}

// wantSplit: st has all 41 calls, in several segments, and the root of the program.
func wantSplit(t *testing.T, st *output.Stack) {
	t.Helper()
	var names []string
	calls, segments := 0, 0
	for _, f := range st.Frames {
		names = append(names, f.Func)
		switch f.Func {
		case "down":
			calls++
		case "__morestack":
			segments++
		}
	}
	if st.End != "" || calls != 41 || segments < 2 || names[len(names)-1] != "_start" {
		t.Errorf("end %q, %d calls of down, want 41, in %d segments: %s", st.End, calls, segments, strings.Join(names, " "))
	}
}

// TestSplitStack dumps a stopped program whose stack lies in several segments: all
// calls that it has made, and its root.
func TestSplitStack(t *testing.T) {
	pid := start(t, exec.Command(splitProgram(t), "40"))
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	d, err := Dump(Options{PIDs: []int{pid}}, testPipeline(new(byFunction)))
	if err != nil || len(d.Threads) != 1 || d.Threads[0].Stack == nil {
		t.Fatalf("%+v, %v", d, err)
	}
	wantSplit(t, d.Threads[0].Stack)
}

// until is a sink that keeps the first stack of a running thread that ends as wanted and is
// accepted, and how others ended.
type until struct {
	mu     sync.Mutex
	accept func(functions []string) bool
	end    string // of the stack that is wanted
	done   func()
	got    *output.Stack
	ends   map[string]int
}

// Add implements output.Sink.
func (u *until) Add(s *output.Sample) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.Taken != "stop" || u.got != nil {
		return nil
	}
	var names []string
	for _, f := range s.Stack.Frames {
		names = append(names, strings.TrimSuffix(f.Func, ".abi0"))
	}
	u.ends[s.Stack.End]++
	if s.Stack.End == u.end && u.accept(names) {
		u.got = s.Stack
		u.done()
	}
	return nil
}

// Close implements output.Sink.
func (u *until) Close() error { return nil }

// sampleUntil samples a running process until a complete stack is accepted.
func sampleUntil(t *testing.T, pid int, accept func(functions []string) bool) *output.Stack {
	t.Helper()
	return sampleUntilEnd(t, pid, "", accept)
}

// sampleUntilEnd samples a running process until a stack that ends with end is accepted.
func sampleUntilEnd(t *testing.T, pid int, end string, accept func(functions []string) bool) *output.Stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
	defer cancel()
	u := &until{accept: accept, end: end, done: cancel, ends: map[string]int{}}
	if _, err := Run(ctx, Options{PIDs: []int{pid}, Hz: 99}, 0, testPipeline(u), nil, nil); err != nil {
		t.Fatal(err)
	}
	if u.got == nil {
		t.Fatalf("no such stack; stacks by their ends: %v", u.ends)
	}
	return u.got
}

// TestSplitStackRunning samples the same program while it runs: what lies on the other segments
// cannot be read when a sample has let it go. They are mapped when its mappings have been read.
func TestSplitStackRunning(t *testing.T) {
	pid := start(t, exec.Command(splitProgram(t), "40", "s"))
	var told sync.Once
	wantSplit(t, sampleUntil(t, pid, func(f []string) bool {
		if slices.Contains(f, "idle") {
			told.Do(func() {
				if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
					t.Error(err)
				}
			})
		}
		return slices.Contains(f, "spin")
	}))
}

// TestGoSwitchRunning samples a Go program that collects garbage: what a thread does on the scheduler's
// stack for a goroutine has that goroutine's function behind it, on the goroutine's own stack.
func TestGoSwitchRunning(t *testing.T) {
	if runtime.GOARCH == "s390x" {
		t.Skip("Go has no frame pointers there")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: self, Args: []string{targetName, "collect"}, Env: append(os.Environ(), goesOn+"=1")}
	sampleUntil(t, start(t, cmd), func(f []string) bool {
		i := slices.Index(f, "runtime.systemstack")
		return i > 0 && i+1 < len(f) && strings.HasPrefix(f[i+1], "runtime.") && f[len(f)-1] == "runtime.goexit"
	})
}

// pairs counts the stacks of a Go program, and where something that stands in a function runs on the scheduler's stack: whether that function is the one
// behind it. The compiler has named it after that (cmd/compile/internal/ir, closureName).
type pairs struct {
	stacks, cut, right int
	wrong              map[string]int
}

var closure = regexp.MustCompile(`^(.+)\.func[0-9]+(\.[0-9]+)*$`)

// Add implements output.Sink.
func (p *pairs) Add(s *output.Sample) error {
	p.stacks++
	if s.Stack.End != "" {
		p.cut++
	}
	f := s.Stack.Frames
	for i := 1; i+1 < len(f); i++ {
		in := closure.FindStringSubmatch(f[i-1].Func)
		switch caller := f[i+1].Func; {
		case in == nil || strings.TrimSuffix(f[i].Func, ".abi0") != "runtime.systemstack":
		case in[1] == caller:
			p.right++
		default:
			p.wrong[f[i-1].Func+" in "+caller]++
		}
	}
	return nil
}

// Close implements output.Sink.
func (p *pairs) Close() error { return nil }

// TestGoSwitchOlder samples a program of the distribution that Go 1.19 has made: the functions that go over to another stack have no frame pointer
// there, and what goroutines have left on their stacks looks like callers, too.
func TestGoSwitchOlder(t *testing.T) {
	gron, err := exec.LookPath("gron")
	if err != nil {
		t.Skip("no gron on this machine")
	}
	if info, err := buildinfo.ReadFile(gron); err != nil || version.Compare(info.GoVersion, "go1.21") >= 0 || runtime.GOARCH != "amd64" {
		t.Skip("gron is none of Go before 1.21 for x86-64")
	}
	const items = 200_000 // for 10 s and more
	var list bytes.Buffer
	list.WriteString("[0")
	for i := range items {
		fmt.Fprintf(&list, `,{"id":%d,"name":"n%d","tags":["a","b",{"x":[1,2,3,%d]}]}`, i, i, i)
	}
	list.WriteString("]")
	file := filepath.Join(t.TempDir(), "list.json")
	if err := os.WriteFile(file, list.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &pairs{wrong: map[string]int{}}
	if _, err := Run(t.Context(), Options{PIDs: []int{start(t, exec.Command(gron, file))}, Hz: 499}, 4*time.Second, testPipeline(p), nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d stacks, %d cut; behind %d switches of stacks is who made them", p.stacks, p.cut, p.right)
	if p.stacks < 200 || 20*p.cut > p.stacks || p.right < 20 || len(p.wrong) > 0 {
		t.Errorf("%d of %d stacks are cut, %d switches are right; wrong: %v", p.cut, p.stacks, p.right, p.wrong)
	}
}

// collect collects garbage for ever.
func collect() {
	garbage := make([][]*byte, 1000)
	for i := range garbage {
		garbage[i] = make([]*byte, 1000)
	}
	for {
		runtime.GC()
		garbage[0][0] = new(byte)
	}
}

// brief has threads take memory on the scheduler's stacks, for a moment each time, and then write to where their own frames have been.
func brief() {
	var told sync.WaitGroup
	for range 8 {
		told.Add(1)
		go func() {
			runtime.LockOSThread()
			fmt.Println("thread", unix.Gettid(), "brief")
			told.Done()
			for n := 0; ; n++ {
				take(n % 4)
				scribble(byte(n))
			}
		}()
	}
	told.Wait()
	fmt.Println("ready")
	select {}
}

//go:noinline
func take(depth int) []byte {
	if depth > 0 {
		return append(take(depth-1), 1)
	}
	return make([]byte, 64<<10)
}

//go:noinline
func scribble(n byte) (sum byte) {
	var b [8 << 10]byte
	for range 20 {
		for i := range b {
			b[i] += n | 1
		}
	}
	return b[n]
}

// switched counts the stacks of threads that were on the scheduler's stack, up to the first whole one of each.
type switched struct {
	open map[int][]string // threads that have none yet
	cut  int
	done func()
}

// Add implements output.Sink.
func (w *switched) Add(s *output.Sample) error {
	if w.open[s.TID] == nil || s.Taken != "stop" || !slices.ContainsFunc(s.Stack.Frames, func(f output.Frame) bool { return strings.TrimSuffix(f.Func, ".abi0") == "runtime.systemstack" }) {
		return nil
	}
	switch s.Stack.End {
	case "":
		delete(w.open, s.TID)
	case unwind.OutsideCopy.String():
		w.cut++
	}
	if len(w.open) == 0 {
		w.done()
	}
	return nil
}

// Close implements output.Sink.
func (w *switched) Close() error { return nil }

// TestGoSwitchBrief samples threads that are on the scheduler's stack for moments, many in a second: where the goroutine's stack
// lies has to be told by the first sample that was cut for want of it. By the time that memory is looked at, there is something else.
func TestGoSwitchBrief(t *testing.T) {
	if runtime.GOARCH == "s390x" {
		t.Skip("Go has no frame pointers there")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, &exec.Cmd{Path: self, Args: []string{targetName, "brief"}, Env: append(os.Environ(), goesOn+"=1")})
	ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
	defer cancel()
	threads := len(p.Threads)
	w := &switched{open: p.Threads, done: cancel}
	if _, err := Run(ctx, Options{PIDs: []int{p.PID}, Hz: 199}, 0, testPipeline(w), nil, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d threads, %d stacks cut before there was a whole one", threads, w.cut)
	if threads != 8 || len(w.open) > 0 || w.cut > threads+2 {
		t.Errorf("%d of %d threads without a whole stack, %d stacks cut, want one of each thread", len(w.open), threads, w.cut)
	}
}
