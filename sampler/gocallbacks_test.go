package sampler

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// goCallsBack is a program whose goroutines call C that calls back, up to four times one in another, as functions that tell by their names how deep they are. Stacks
// grow while C calls back, and each goroutine lives for one call. Threads of C's own call Go, too.
func goCallsBack() map[string]string {
	const levels = 4
	var c, g strings.Builder
	c.WriteString("#include <pthread.h>\n#include <stdint.h>\n#include \"_cgo_export.h\"\nvolatile long sink;\n")
	g.WriteString("package main\n\n// #include <stdint.h>\n")
	for i := range levels {
		fmt.Fprintf(&c, "void c%d(int depth) { int i; char room[48]; for (i = 0; i < 48; i++) room[i] = depth; for (i = 0; i < 3000; i++) sink += i;\n"+
			"if (depth > %d) cb%d(depth); for (i = 0; i < 48; i++) sink += room[i]; for (i = 0; i < 3000; i++) sink += i; }\n", i, i, i)
		fmt.Fprintf(&g, "// void c%d(int depth);\n", i)
	}
	c.WriteString("static void *thread(void *a) { for (;;) { cbt(2); sink++; } return 0; }\nvoid start(void) { pthread_t t; pthread_create(&t, 0, thread, 0); }\n")
	g.WriteString("// void start(void);\nimport \"C\"\nimport \"fmt\"\n\nvar sink int\n\n//go:noinline\nfunc busy(n int) (x int) { for i := 0; i < n; i++ { x = x*3 + i }; return x }\n\n" +
		"//go:noinline\nfunc grow(n int) int { var a [40]int; if n == 0 { return 1 }; a[n%40] = grow(n - 1); return a[n%40] + n }\n\n" +
		"//export cbt\nfunc cbt(depth C.int) { sink += busy(3000); call0(int(depth)); sink++ }\n\n")
	for i := range levels {
		next := ""
		if i+1 < levels {
			next = fmt.Sprintf("call%d(int(depth)); ", i+1)
		}
		fmt.Fprintf(&g, "//go:noinline\nfunc call%d(depth int) { sink += busy(3000); C.c%d(C.int(depth)); sink += busy(3000) }\n\n"+
			"//export cb%d\nfunc cb%d(depth C.int) { sink += busy(1000) + grow(10+25*%d); %ssink += busy(1000) }\n\n"+
			"//go:noinline\nfunc worker%d(done chan int) { call0(%d); sink++; done <- 1 }\n\n", i, i, i, i, i, next, i, i)
	}
	g.WriteString("func main() {\nC.start()\nfmt.Println(\"ready\")\ndone := make(chan int)\nfor { ")
	for i := range levels {
		fmt.Fprintf(&g, "go worker%d(done); ", i)
	}
	g.WriteString("for i := 0; i < 4; i++ { <-done } }\n}\n")
	return map[string]string{"main.go": g.String(), "back.c": c.String(), "go.mod": "module back\n\ngo 1.19\n"}
}

// backStacks is a sink that counts stacks of that program.
type backStacks struct {
	mu       sync.Mutex
	complete [5]int // by how often C has called back; the last: of threads of C's
	cut      map[string]int
	wrong    []string
	done     func()
}

// Add implements output.Sink.
func (b *backStacks) Add(s *output.Sample) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Taken != "stop" || len(s.Stack.Frames) == 0 {
		return nil
	}
	if s.Stack.End != "" {
		b.cut[s.Stack.End]++
		return nil
	}
	if i := backOrder(s.Stack); i >= 0 {
		b.complete[i]++
	} else if i < -1 || slices.ContainsFunc(s.Stack.Frames, func(f output.Frame) bool { return f.Func == "main.busy" || f.Func == "main.grow" }) {
		b.wrong = append(b.wrong, fmt.Sprint(backNames(s.Stack)))
	}
	if slices.Min(b.complete[:]) >= 60 {
		b.done()
	}
	return nil
}

// Close implements output.Sink.
func (*backStacks) Close() error { return nil }

// backNames are those of a stack's functions, outermost first, as far as they are of the program.
func backNames(s *output.Stack) (list []string) {
	for _, f := range slices.Backward(s.Frames) {
		name := strings.TrimPrefix(f.Func, "main.")
		if len(list) > 0 && list[len(list)-1] == name {
			continue // cgo has one of that name for C, too
		}
		if name == "thread" || name == "cbt" || strings.HasPrefix(name, "worker") || len(name) == 5 && name[:4] == "call" || len(name) == 3 && name[:2] == "cb" || len(name) == 2 && name[0] == 'c' {
			list = append(list, name)
		}
	}
	return list
}

// backOrder is how often C has called back in a stack, -1 if it is none of those functions, -2 if they are not in their order.
func backOrder(s *output.Stack) int {
	list := backNames(s)
	if len(list) == 0 {
		return -1
	}
	depth, inC := 2, list[0] == "thread"
	switch {
	case inC && len(list) < 2:
		return -1
	case inC && list[1] != "cbt":
		return -2
	case inC:
		list = list[2:]
	default:
		if n, err := fmt.Sscanf(list[0], "worker%d", &depth); n != 1 || err != nil {
			return -2
		}
		list = list[1:]
	}
	for i, name := range list {
		if name != fmt.Sprint([]string{"call", "c", "cb"}[i%3], i/3) || i/3 > depth {
			return -2
		}
	}
	if inC {
		return 4
	}
	return min(len(list)/3, 3)
}

// TestGoCallbacks: the stacks of callbacks of C into Go are complete and in order, built with any Go, also where stacks have grown meanwhile.
func TestGoCallbacks(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this machine")
	}
	for name, tool := range map[string]string{"ours": "go", "before 1.21": "/usr/lib/go-1.19/bin/go"} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("no Go 1.19 on this machine: %v", err)
			}
			dir := t.TempDir()
			for name, text := range goCallsBack() {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			build := exec.Command(tool, "build", "-o", "program", ".")
			build.Dir = dir
			build.Env = append(os.Environ(), "CGO_ENABLED=1", "GOTOOLCHAIN=local", "GOFLAGS=")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			p := startReady(t, filepath.Join(dir, "program"))
			ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
			defer cancel()
			b := &backStacks{cut: map[string]int{}, done: cancel}
			if _, err := Run(ctx, Options{PIDs: []int{p}, Hz: 499, Budget: Budget{MaxOverhead: 1}}, 0, testPipeline(b), nil, nil); err != nil {
				t.Fatal(err)
			}
			all, cut := 0, 0
			for _, n := range b.complete {
				all += n
			}
			for _, n := range b.cut {
				cut += n
			}
			if slices.Min(b.complete[:]) < 60 || len(b.wrong) > 0 || cut > all/5 {
				t.Errorf("complete %d by depth, cut %v, wrong %q", b.complete, b.cut, b.wrong)
			}
			t.Logf("complete %d by depth, cut %v", b.complete, b.cut)
		})
	}
}

// startReady starts a program and waits until it says that it is ready.
func startReady(t *testing.T, path string) (pid int) {
	t.Helper()
	cmd := exec.Command(path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
