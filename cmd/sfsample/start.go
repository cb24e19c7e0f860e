package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/sampler"
)

// A command is started in two steps, so that it can be traced from its first
// instruction: this program starts itself once more, waits until it is traced,
// and then lets it replace itself by the command.

// launcherName is the name (argv[0]) that tells the second instance what it is.
const launcherName = "sfsample: about to run"

// launcherFD is the launcher's end of the socket to its parent. A byte from the
// parent says "go"; an error number from the launcher says that exec failed.
const launcherFD = 3

// started is a command that waits to be let go.
type started struct {
	process *os.Process
	sock    *os.File
	name    string
	ran     chan error // what became of its exec; nil: it was never let go
}

// start begins a command with these files (standard input, output, error); it runs once release is called.
func start(command []string, files [3]*os.File) (*started, error) {
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, runError(command[0], unwrapExec(err))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", command[0], err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "launcher"), os.NewFile(uintptr(pair[1]), "launcher")
	defer theirs.Close()
	args := append([]string{launcherName, path}, command...)
	defer fallBack()()
	p, err := os.StartProcess("/proc/self/exe", args, &os.ProcAttr{
		Files: []*os.File{files[0], files[1], files[2], theirs},
	})
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("run %s: %w", command[0], err)
	}
	return &started{process: p, sock: ours, name: command[0]}, nil
}

// unwrapExec takes the wrapping off that would name the command twice.
func unwrapExec(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err
}

// release lets the command run. Its error is that of exec.
func (s *started) release() error {
	defer s.sock.Close()
	if _, err := s.sock.Write([]byte{1}); err != nil {
		return fmt.Errorf("run %s: %w", s.name, err)
	}
	// The launcher's end closes at exec, or carries the error.
	answer, err := io.ReadAll(io.LimitReader(s.sock, 16))
	if err != nil || len(answer) == 0 {
		return nil
	}
	n, _ := strconv.Atoi(string(answer))
	return runError(s.name, unix.Errno(n))
}

// runError says why a command does not run, and what to try.
func runError(name string, err error) error {
	remedy := "try: sh -c with it, to see what is wrong"
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		remedy = "try: its full path; a script's interpreter must exist too"
	case errors.Is(err, fs.ErrPermission):
		remedy = "try: chmod +x, or its interpreter before it: -- sh FILE"
	case errors.Is(err, unix.EISDIR):
		remedy = "give a program in it"
	case errors.Is(err, unix.ENOEXEC):
		remedy = "it is no program, or one of another machine; a script needs its interpreter: -- sh FILE"
	}
	return fmt.Errorf("run %s: %w (%s)", name, err, remedy)
}

// hangs is the error of an exec that does not end.
func (s *started) hangs() error {
	return fmt.Errorf("run %s: process %d is still in its exec (its file, or the server that has it, does not answer; try: kill -9 %[2]d)", s.name, s.process.Pid)
}

// outlive waits for the end of a command that goes on without samples, until ctx is done or d is over (0: no bound).
func (s *started) outlive(ctx context.Context, d time.Duration) (end unix.WaitStatus, ended bool) {
	if d > 0 {
		var stop func()
		ctx, stop = context.WithTimeout(ctx, d)
		defer stop()
	}
	reaped := make(chan syscall.WaitStatus, 1)
	go func() {
		var status syscall.WaitStatus
		if state, err := s.process.Wait(); err == nil {
			status = state.Sys().(syscall.WaitStatus)
		}
		reaped <- status
	}()
	select {
	case status := <-reaped:
		return unix.WaitStatus(status), true
	case <-ctx.Done():
		return 0, false
	}
}

// execPatience is how much longer than a run an exec may take: on a busy machine, or from a slow disk, one takes seconds.
const execPatience = 5 * time.Second

// begin lets the command begin, and returns when it has, but where its threads are held for the whole run, of duration d (0: it
// has no end). Nobody traces its exec otherwise: a set-user-ID program that an ordinary user traces there runs without its
// owner's rights (execve(2)). stop ends the run.
//
// An exec that reads from a server that does not answer has no end: neither has a run by that.
func (s *started) begin(ctx context.Context, stop func(), d time.Duration, held bool) {
	s.ran = make(chan error, 2)
	begun := make(chan struct{})
	var hangs *time.Timer
	if d > 0 {
		hangs = time.AfterFunc(d+execPatience, func() {
			s.ran <- s.hangs()
			stop()
		})
	}
	go func() {
		defer close(begun)
		s.ran <- s.release()
		if hangs != nil {
			hangs.Stop()
		}
	}()
	if held {
		return
	}
	select {
	case <-begun:
	case <-ctx.Done():
	}
}

// awaitExec returns why the command could not be run, if there is one and it could not.
func (s *started) awaitExec(ctx context.Context) error {
	if s == nil {
		return nil
	}
	if s.ran == nil { // it was never let go
		s.sock.Close()
		return nil
	}
	select {
	case err := <-s.ran:
		return err
	default:
	}
	select {
	case err := <-s.ran:
		return err
	case <-ctx.Done():
	case <-time.After(time.Second): // it holds the socket in a process of its own
	}
	return nil
}

// tellEnd says how the command has ended, unless well, or that it has not.
func (s *started) tellEnd(say func(string, ...any), r *sampler.Result, bounded bool) {
	switch {
	case !r.Ended:
		or := ""
		if bounded {
			or = ", or no -d"
		}
		say("%s lives on as process %d (try: kill %[2]d%s)", s.name, s.process.Pid, or)
	case r.Status.Signaled():
		say("%s was ended by %s", s.name, unix.SignalName(r.Status.Signal()))
	case r.Status.ExitStatus() != 0:
		say("%s ended with status %d", s.name, r.Status.ExitStatus())
	}
}

// launch is the second instance: it waits for the word and becomes the command.
// It returns the exit status if that fails. args: path, command.
func launch(args []string) int {
	sock := os.NewFile(launcherFD, "parent")
	unix.CloseOnExec(launcherFD)
	var b [1]byte
	if n, _ := sock.Read(b[:]); n != 1 || len(args) < 2 {
		return 1 // the parent has given up
	}
	err := syscall.Exec(args[0], args[1:], os.Environ())
	var errno syscall.Errno
	errors.As(err, &errno)
	io.WriteString(sock, strconv.Itoa(int(errno)))
	return 127
}
