package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

// The test binary is three programs, told apart by argv[0]: the tests, sfsample
// itself, and the processes that it samples. So the tests need no compiler, no
// go command and no other file, and run in guests that have none.
const (
	toolName   = "sfsample"
	targetName = "sfsample-target"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case toolName, launcherName:
		main()
	case targetName:
		target(os.Args[1:])
	case pivotName:
		pivot(os.Args[1:])
	}
	os.Exit(m.Run())
}

// self is a path of the test binary that any user may execute: a magic link,
// which needs no permission for the folders on the way.
const self = "/proc/self/exe"

// tool is the command that runs sfsample with args.
func tool(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: self, Args: append([]string{toolName}, args...)}
}

// outcome is how a run of sfsample ended.
type outcome struct {
	status         int // -1: by a signal
	stdout, stderr string
}

// running is a run of sfsample under way.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr written
	ended          chan error
}

// written is what a program has written so far.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// begin starts sfsample. It is killed if it is still there when the test ends.
func begin(t testing.TB, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{cmd: cmd, ended: make(chan error, 1)}
	if cmd.Stdout == nil {
		cmd.Stdout = &r.stdout
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &r.stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that it has ended
	})
	return r
}

// intoFile has a run write to a file: a pipe would have no end before that of a command which outlives it.
func intoFile(t testing.TB, cmd *exec.Cmd) (told func() string) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	check(err)
	t.Cleanup(func() { f.Close() })
	cmd.Stdout, cmd.Stderr = f, f
	return func() string {
		b, err := os.ReadFile(f.Name())
		check(err)
		return string(b)
	}
}

// end waits for the end of the run.
func (r *running) end(t testing.TB) outcome {
	t.Helper()
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
	case <-time.After(testprog.Patience):
		_ = r.cmd.Process.Signal(syscall.SIGQUIT) // for the goroutines in stderr
		<-r.ended
		t.Fatalf("%q does not end; standard error:\n%s", r.cmd.Args, r.stderr.String())
	}
	return outcome{r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String()}
}

// interrupt sends what Ctrl-C sends.
func (r *running) interrupt(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// sfsample runs to the end with args.
func sfsample(t testing.TB, args ...string) outcome {
	t.Helper()
	return begin(t, tool(args...)).end(t)
}

// want fails the test if the run has not ended with status, or if standard
// error lacks one of parts.
func (o outcome) want(t testing.TB, status int, parts ...string) {
	t.Helper()
	if o.status != status {
		t.Errorf("exit status %d, want %d; standard error:\n%s", o.status, status, o.stderr)
	}
	for _, part := range parts {
		if !strings.Contains(o.stderr, part) {
			t.Errorf("standard error lacks %q:\n%s", part, o.stderr)
		}
	}
}

// wantOneLine fails the test if an error is told in anything but one line of
// printable text that begins with the program's name, or if data was written.
func (o outcome) wantOneLine(t testing.TB) {
	t.Helper()
	line, rest, _ := strings.Cut(o.stderr, "\n")
	if rest != "" || !strings.HasPrefix(line, "sfsample: ") {
		t.Errorf("standard error is not one line of sfsample's:\n%s", o.stderr)
	}
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("standard error has control characters: %q", line)
	}
	if !strings.Contains(line, "(") {
		t.Errorf("standard error has no remedy in brackets: %s", line)
	}
	if o.stdout != "" {
		t.Errorf("standard output has data: %q", o.stdout)
	}
}

// proc is a process to sample, in one of the ways of [target].
type proc struct {
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startTarget starts a process to sample and waits until it is there.
func startTarget(t testing.TB, args ...string) *proc {
	t.Helper()
	return startProc(t, &exec.Cmd{Path: self, Args: append([]string{targetName}, args...)})
}

// startProc starts a process that answers like a target.
func startProc(t testing.TB, cmd *exec.Cmd) *proc {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &proc{cmd.Process.Pid, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // errors say that it has ended
		_ = cmd.Wait()
	})
	if got := p.line(t); got != "ready" {
		t.Fatalf("the target says %q, want ready", got)
	}
	return p
}

func (p *proc) line(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("process %d prints nothing: %v", p.pid, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// worked waits until the target has used CPU time since now, one unit of
// [workUnit] for each of n. It is how tests let time pass.
func (p *proc) worked(t testing.TB, n int) {
	t.Helper()
	p.send(t, "work "+strconv.Itoa(n))
	if got := p.line(t); got != "worked" {
		t.Fatalf("the target says %q, want worked", got)
	}
}

func (p *proc) send(t testing.TB, line string) {
	t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(testprog.Patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, testprog.Patience)
		}
		time.Sleep(time.Millisecond) // a pause between looks; nothing depends on its length
	}
}

// over tells whether the run has ended.
func (r *running) over() bool {
	select {
	case err := <-r.ended:
		r.ended <- err
		return true
	default:
		return false
	}
}

// traces waits until the run knows every thread of a process that lives: it has its schedstat open.
func (r *running) traces(t testing.TB, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the threads of process %d are known", pid), func() bool {
		if r.over() {
			t.Fatalf("%q has ended; standard error:\n%s", r.cmd.Args, r.stderr.String())
		}
		fds := fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid)
		list, err := os.ReadDir(fds)
		if err != nil {
			return false
		}
		open := map[string]bool{}
		for _, fd := range list {
			name, _ := os.Readlink(filepath.Join(fds, fd.Name()))
			open[name] = true
		}
		for _, s := range threadStatus(t, pid) {
			if !open[fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, s.Pid)] && s.State != 'Z' {
				return false
			}
		}
		return true
	})
}

// untouched fails the test if a process is traced or stopped, or does no work.
func (p *proc) untouched(t testing.TB) {
	t.Helper()
	for _, s := range threadStatus(t, p.pid) {
		if s.TracerPid != 0 || s.State == 't' || s.State == 'T' {
			t.Errorf("thread %d is left in state %c, traced by %d", s.Pid, s.State, s.TracerPid)
		}
	}
	p.worked(t, 1)
}

func threadStatus(t testing.TB, pid int) []procfs.Status {
	t.Helper()
	var list []procfs.Status
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range ids {
		s, err := (procfs.FS{}).Status(tid)
		if err != nil && procfs.Gone(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// zombie makes a process that has exited and is not reaped before the test
// ends.
func zombie(t testing.TB) (pid int) {
	t.Helper()
	cmd := &exec.Cmd{Path: self, Args: []string{targetName, "exit"}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // its status means nothing here
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return cmd.Process.Pid
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}
