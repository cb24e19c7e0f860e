package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"golang.org/x/sys/unix"
)

// terminal is our controlling terminal for once that a screen is shown, as tcell.Tty wants it. It differs from tcell's own in that the keys for
// signals stay with the kernel, as in any other run (Ctrl-C and Ctrl-Z reach the command that was started, too), and
// in that a write can be given up; and in the background, where each would stop us, it writes and sets nothing.
type terminal struct {
	f       *os.File
	saved   unix.Termios // before
	raw     unix.Termios // as we want it
	resized chan os.Signal
}

// newTerminal opens it; Stop closes it.
func newTerminal() (*terminal, error) {
	f, err := openTerminal()
	if err != nil {
		return nil, err
	}
	t := &terminal{f: f}
	var now *unix.Termios
	withFD(f, func(fd int) { now, err = unix.IoctlGetTermios(fd, unix.TCGETS) })
	if err != nil {
		f.Close()
		return nil, err
	}
	t.saved = *now
	return t, nil
}

// openTerminal opens the controlling terminal; in a container there may be none, and standard output is one all the
// same. It does not block, by which a deadline can be set.
func openTerminal() (f *os.File, err error) {
	for _, name := range []string{"/dev/tty", "/proc/self/fd/1"} {
		fd, e := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if e == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		err = errors.Join(err, &os.PathError{Op: "open", Path: name, Err: e})
	}
	return nil, err
}

// Start implements tcell.Tty.
func (t *terminal) Start() error {
	raw := &t.raw
	*raw = t.saved
	raw.Iflag &^= unix.BRKINT | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.ISTRIP | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.IEXTEN
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	raw.Cc[unix.VQUIT] = 0 // _POSIX_VDISABLE: it would end us without a word to the terminal
	return t.set(raw)
}

// kept tells whether the terminal is still as we want it.
func (t *terminal) kept() bool {
	var now *unix.Termios
	err := os.ErrClosed
	withFD(t.f, func(fd int) { now, err = unix.IoctlGetTermios(fd, unix.TCGETS) })
	return err == nil && *now == t.raw
}

func (t *terminal) set(to *unix.Termios) (err error) {
	withFD(t.f, func(fd int) { err = unix.IoctlSetTermios(fd, unix.TCSETS, to) })
	return err
}

// withFD calls f with the descriptor. (File.Fd would make it block.)
func withFD(file *os.File, f func(fd int)) {
	if c, err := file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// Drain implements tcell.Tty: who reads is to go on.
func (t *terminal) Drain() error { return t.f.SetReadDeadline(time.Now()) }

// Stop implements tcell.Tty.
func (t *terminal) Stop() (err error) {
	t.NotifyResize(nil)
	if ours(t.f) {
		err = t.set(&t.saved)
	}
	return errors.Join(err, t.f.Close())
}

// Read implements tcell.Tty.
func (t *terminal) Read(b []byte) (int, error) { return t.f.Read(b) }

// Write implements tcell.Tty.
func (t *terminal) Write(b []byte) (int, error) {
	if !ours(t.f) {
		return len(b), nil
	}
	return t.f.Write(b)
}

// Close implements tcell.Tty.
func (t *terminal) Close() error { return nil }

// leaveTime is how long a terminal that takes nothing may hold us up at the end.
const leaveTime = time.Second

// hurry gives up what the terminal does not take soon.
func (t *terminal) hurry() {
	_ = t.f.SetWriteDeadline(time.Now().Add(leaveTime)) // fails where it is closed, which is as well
}

// NotifyResize implements tcell.Tty.
func (t *terminal) NotifyResize(to chan<- bool) {
	if t.resized != nil {
		signal.Stop(t.resized)
		close(t.resized)
		t.resized = nil
	}
	if to == nil {
		return
	}
	c := make(chan os.Signal, 1)
	t.resized = c
	signal.Notify(c, syscall.SIGWINCH)
	go func() {
		for range c {
			select {
			case to <- true:
			default:
			}
		}
	}()
}

// WindowSize implements tcell.Tty.
func (t *terminal) WindowSize() (size tcell.WindowSize, err error) {
	var ws *unix.Winsize
	err = os.ErrClosed
	withFD(t.f, func(fd int) { ws, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ) })
	if err != nil {
		return size, err
	}
	size.Width, size.Height = int(ws.Col), int(ws.Row)
	if size.Width == 0 || size.Height == 0 { // a serial line tells none
		size.Width, size.Height = 80, 24
	}
	return size, nil
}

// ours tells whether we are in the foreground of a terminal; one that is not controlling belongs to whoever has it open.
func ours(f *os.File) bool {
	var group uint32 // pid_t; an int would have it in the wrong half on s390x
	err := os.ErrClosed
	withFD(f, func(fd int) { group, err = unix.IoctlGetUint32(fd, unix.TIOCGPGRP) })
	return err != nil || int(group) == unix.Getpgrp()
}

// foreground tells whether the terminal is ours now, or nobody would stop us for using it.
func foreground() bool {
	if signal.Ignored(unix.SIGTTOU) {
		return true
	}
	f, err := openTerminal()
	if err != nil {
		return true
	}
	defer f.Close()
	return ours(f)
}

// checkTerminal is an error if there is no terminal that can show a picture.
func checkTerminal() error {
	if !isTerminal(os.Stdout) {
		return errors.New("show processes: standard output is no terminal (try: sfsample -p PID -d 10s -o FILE.html, which writes a file)")
	}
	if name := os.Getenv("TERM"); name == "" || name == "dumb" {
		return fmt.Errorf("show processes: a terminal of the kind TERM=%q cannot place text (try: TERM=vt100 if it can, or sfsample -p PID -d 10s -o FILE.html)", name)
	}
	f, err := openTerminal()
	if err != nil {
		return fmt.Errorf("show processes: %w (try: from the terminal's own session, or docker exec -t)", err)
	}
	return f.Close()
}
