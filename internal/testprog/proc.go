package testprog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a program may take to become ready, and to end after
// SIGTERM. It is long because emulated machines are slow, and reached only
// when something is broken.
const Patience = 3 * time.Minute

// Proc is a running test program.
type Proc struct {
	PID int
	// Stack is the stack of the main thread, function names innermost first.
	// Empty if the program does not tell.
	Stack []string
	// Threads are the stacks that the program told by thread id, innermost
	// first.
	Threads map[int][]string
	// Lines are the other lines that came before "ready".
	Lines []string

	cmd  *exec.Cmd
	out  *bufio.Reader
	pipe *os.File
	wait func() error
}

// Start starts the program and waits until it is ready. The program is killed
// when the test ends, if it is still there.
func Start(t testing.TB, path string, args ...string) *Proc {
	t.Helper()
	return StartCmd(t, exec.Command(path, args...))
}

// StartCmd is [Start] for a command that was set up by the caller. Its standard
// output must not be set.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Proc {
	t.Helper()
	p, err := start(cmd)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	t.Cleanup(func() { p.ends(t) })
	if err := p.untilReady(); err != nil {
		p.Kill()
		t.Fatalf("%s: %v, after the lines %q", strings.Join(cmd.Args, " "), err, p.Lines)
	}
	return p
}

func start(cmd *exec.Cmd) (*Proc, error) {
	// A pipe of our own, not StdoutPipe: Wait would close that one and lose
	// what the program printed at its end.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Proc{
		PID:     cmd.Process.Pid,
		Threads: map[int][]string{},
		cmd:     cmd, out: bufio.NewReader(r), pipe: r,
		wait: sync.OnceValue(cmd.Wait),
	}, nil
}

// untilReady reads lines up to "ready".
func (p *Proc) untilReady() error {
	if err := p.pipe.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	for {
		line, err := p.out.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the program ended before it was ready")
		}
		if err != nil {
			return fmt.Errorf("the program is not ready: %w", err)
		}
		if line == "ready\n" {
			return nil
		}
		if err := p.take(line); err != nil {
			return err
		}
	}
}

// take stores what a line tells.
func (p *Proc) take(line string) error {
	words := strings.Fields(line)
	switch {
	case len(words) > 1 && words[0] == "stack":
		p.Stack = words[1:]
		slices.Reverse(p.Stack)
	case len(words) > 2 && words[0] == "thread":
		tid, err := strconv.Atoi(words[1])
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		slices.Reverse(words[2:])
		p.Threads[tid] = words[2:]
	default:
		p.Lines = append(p.Lines, strings.TrimSuffix(line, "\n"))
	}
	return nil
}

// Line returns the next line that the program prints after "ready", without
// its newline.
func (p *Proc) Line(t testing.TB) string {
	t.Helper()
	if err := p.pipe.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("process %d prints nothing: %v\n%s", p.PID, err, p.states())
	}
	return strings.TrimSuffix(line, "\n")
}

// Signal sends a signal to the process.
func (p *Proc) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal %d: %v", p.PID, err)
	}
}

// Finish sends SIGTERM, at which programs print their counts and end, and
// returns the lines printed since the last one read. It fails the test if the
// program ends in another way than by status 0.
func (p *Proc) Finish(t testing.TB) []string {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	return p.Rest(t)
}

// Rest reads what the program prints up to its end, like [Proc.Finish] without
// the signal.
func (p *Proc) Rest(t testing.TB) []string {
	t.Helper()
	if err := p.pipe.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(p.out)
	if err != nil {
		t.Fatalf("process %d does not end: %v, after %q", p.PID, err, b)
	}
	if err := p.wait(); err != nil {
		t.Fatalf("process %d: %v, after %q", p.PID, err, b)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// Kill ends the process at once and reaps it. It may be called again.
func (p *Proc) Kill() { p.kill() }

// kill is Kill; false: the process does not end.
func (p *Proc) kill() bool {
	// Both errors say that it has ended before.
	_ = p.cmd.Process.Kill()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.wait()
	}()
	select {
	case <-ended:
	case <-time.After(Patience):
		return false
	}
	p.pipe.Close()
	return true
}

// ends is what is to be done at the end of a test.
func (p *Proc) ends(t testing.TB) {
	if !p.kill() {
		t.Errorf("process %d was killed and does not end:\n%s", p.PID, p.states())
	}
}

// states tells what holds up each thread of the process: its state, its tracer, the call it is in and where it is in the kernel.
func (p *Proc) states() string {
	var b strings.Builder
	dirs, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p.PID))
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status")
		fmt.Fprintf(&b, "%s:", filepath.Base(dir))
		for line := range strings.Lines(string(status)) {
			if name, value, _ := strings.Cut(line, ":"); name == "State" || name == "TracerPid" || name == "SigPnd" {
				fmt.Fprintf(&b, " %s %s;", name, strings.TrimSpace(value))
			}
		}
		for _, name := range []string{"syscall", "schedstat", "stack"} {
			text, _ := os.ReadFile(dir + "/" + name) // some may be denied
			fmt.Fprintf(&b, " %s %s;", name, strings.Join(strings.Fields(string(text)), " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
