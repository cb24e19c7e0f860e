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
	return &started{p, ours, command[0]}, nil
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

// abandon ends a command that was never let go.
func (s *started) abandon() { s.sock.Close() }

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
