package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// window is a terminal's screen, as its user sees it.
type window struct {
	master *os.File
	slave  *os.File
	before unix.Termios

	mu   sync.Mutex
	raw  bytes.Buffer // all that was written to it
	grid [][]rune
	x, y int
	rest []byte // of a sequence that has not come whole
}

// newWindow opens a pseudo-terminal, and reads what is written to it if it is told to.
func newWindow(t testing.TB, columns, lines int, read bool) *window {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	w := &window{master: os.NewFile(uintptr(fd), "/dev/ptmx")}
	t.Cleanup(func() { w.master.Close() })
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { w.slave.Close() })
	w.resize(t, columns, lines)
	w.before = w.modes(t)
	if read {
		go w.read()
	}
	return w
}

func (w *window) resize(t testing.TB, columns, lines int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.grid = make([][]rune, lines)
	for i := range w.grid {
		w.grid[i] = []rune(strings.Repeat(" ", columns))
	}
	if err := unix.IoctlSetWinsize(int(w.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(lines), Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
}

func (w *window) modes(t testing.TB) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(w.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

func (w *window) read() {
	b := make([]byte, 1<<12)
	for {
		n, err := w.master.Read(b)
		w.mu.Lock()
		w.raw.Write(b[:n])
		w.show(b[:n])
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// sequence is an escape sequence, or the beginning of one.
var sequence = regexp.MustCompile("^\x1b(?:\\[([?>=<]?[0-9;:]*)[ !$]?([@-~])|[()].|[=>78cM])")

// show does what a terminal does with the little that is written here: text, places, clearing.
func (w *window) show(b []byte) {
	b = append(w.rest, b...)
	w.rest = nil
	for len(b) > 0 {
		r, n := []rune(string(b))[0], 1
		switch {
		case b[0] == 0x1b:
			m := sequence.FindSubmatch(b)
			if m == nil {
				w.rest = bytes.Clone(b)
				return
			}
			n = len(m[0])
			w.control(string(m[1]), string(m[2]))
		case r == '\r':
			w.x = 0
		case r == '\n':
			w.y = min(w.y+1, len(w.grid)-1)
		case r == '\b':
			w.x = max(0, w.x-1)
		case r == '\ufffd' && len(b) < 4: // half a character
			w.rest = bytes.Clone(b)
			return
		case r >= ' ':
			n = len(string(r))
			if w.y < len(w.grid) && w.x < len(w.grid[w.y]) {
				w.grid[w.y][w.x] = r
			}
			w.x++
		}
		b = b[n:]
	}
}

func (w *window) control(args, final string) {
	switch {
	case final == "H":
		w.x, w.y = 0, 0
		if line, column, ok := strings.Cut(args, ";"); ok {
			w.y, _ = strconv.Atoi(line)
			w.x, _ = strconv.Atoi(column)
			w.x, w.y = w.x-1, w.y-1
		}
	case final == "J" || args == "?1049":
		for _, line := range w.grid {
			for i := range line {
				line[i] = ' '
			}
		}
	}
}

// lines are what stands on the screen.
func (w *window) lines() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.grid {
		list = append(list, strings.TrimRight(string(l), " "))
	}
	return list
}

func (w *window) written() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.raw.String()
}

// times is how often s was written.
func (w *window) times(s string) int { return strings.Count(w.written(), s) }

// await waits until the screen has what is wanted; meanwhile p works.
func (w *window) await(t testing.TB, p *proc, what string, ok func(lines []string) bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the screen:\n%s", strings.Join(w.lines(), "\n"))
		}
	}()
	eventually(t, what, func() bool {
		if p != nil {
			p.worked(t, 1)
		}
		return ok(w.lines())
	})
}

func (w *window) press(t testing.TB, keys string) {
	t.Helper()
	if _, err := w.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// left waits until the screen is as it was before, for the nth time.
func (w *window) left(t testing.TB, n int) {
	t.Helper()
	eventually(t, "the screen is left", func() bool { return w.times(leaveScreen) == n && w.modes(t) == w.before })
}

const takeScreen, leaveScreen = "\x1b[?1049h", "\x1b[?1049l"

// hot is the function in which a target works.
const hot = "sfsample.spin"

// top runs sfsample top in a window, as a shell runs a program in the foreground.
func top(t testing.TB, w *window, env []string, args ...string) *running {
	t.Helper()
	cmd := tool(append([]string{"top"}, args...)...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "NO_COLOR="), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.slave, w.slave, w.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return begin(t, cmd)
}

func contains(list []string, s string) bool { return strings.Contains(strings.Join(list, "\n"), s) }

// row is the row of the table that is the first, or so many after it.
func row(lines []string, i int) string { return lines[4+i] }

// picture tells whether the table has the hot function on top. (An emulated machine spends more in the calls of the clock
// that it looks at.)
func picture(lines []string) bool { return contains(lines[4:8], hot) }

// TestTop: the function that works is the first, and its caller has the time in total; keys change what is shown, a
// change of size redraws it, and at the end the terminal is as it was.
func TestTop(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
	r := top(t, w, nil, "-p", strconv.Itoa(p.pid))
	is := func(what string, ok func(lines []string) bool) {
		t.Helper()
		w.await(t, p, what, ok)
	}
	is("the hot function is first", func(l []string) bool {
		return picture(l) && (runtime.GOARCH != "amd64" || strings.Contains(row(l, 0), hot)) && strings.HasPrefix(l[0], fmt.Sprintf("sfsample top  pid %d ", p.pid)) && strings.Contains(l[3], "▾SELF") && contains(l[2:3], " samples")
	})
	w.press(t, "s")
	is("sorted by total", func(l []string) bool {
		return strings.Contains(l[3], "▾TOTAL") && contains(l[4:16], hot) && contains(l[4:16], "main.main ") && contains(l[4:16], "sfsample.obey ")
	})
	w.press(t, "t")
	is("threads", func(l []string) bool {
		return strings.Contains(row(l, 0), fmt.Sprint(" ", p.pid, " ")) && strings.Contains(l[3], "MOSTLY IN")
	})
	w.press(t, "f/SPIN$\r")
	is("the filter", func(l []string) bool { return strings.Contains(row(l, 0), hot) && row(l, 1) == "" })
	w.press(t, "\r")
	is("the detail", func(l []string) bool {
		return contains(l, "called by") && contains(l, "sfsample.obey") && contains(l, "  > ")
	})
	w.press(t, "?")
	is("the help", func(l []string) bool { return contains(l, "hold the picture") })
	w.press(t, "?\x1b[B") // the help goes, and a key of several bytes does no harm
	is("the detail again", func(l []string) bool { return contains(l, "called by") })
	w.resize(t, 100, 30)
	is("as large as the window", func(l []string) bool {
		return len(l) == 30 && strings.Contains(l[29], "Esc back") && contains(l, "called by") && strings.Contains(l[0][80:], "CPU")
	})
	w.press(t, "q")
	r.end(t).want(t, exitDone)
	w.left(t, 1)
	eventually(t, "closing lines after the screen is left", func() bool {
		_, after, _ := strings.Cut(w.written(), leaveScreen)
		return strings.Contains(after, "sfsample: stacks: ")
	})
	p.untouched(t)
}

// TestTopEnds: each way to end the run leaves the terminal as it was, and lets the target go.
func TestTopEnds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *window, r *running){
		"SIGTERM": func(t *testing.T, w *window, r *running) { signalTo(t, r.cmd.Process.Pid, unix.SIGTERM) },
		"SIGHUP":  func(t *testing.T, w *window, r *running) { signalTo(t, r.cmd.Process.Pid, unix.SIGHUP) },
		"Ctrl-C":  func(t *testing.T, w *window, r *running) { w.press(t, "\x03") },
	} {
		t.Run(name, func(t *testing.T) {
			p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
			r := top(t, w, nil, "-p", strconv.Itoa(p.pid))
			w.await(t, p, "a picture", picture)
			if w.modes(t) == w.before || w.times(takeScreen) != 1 || w.times(leaveScreen) != 0 {
				t.Error("the screen is not taken")
			}
			end(t, w, r)
			r.end(t).want(t, exitDone)
			w.left(t, 1)
			p.untouched(t)
		})
	}
}

// TestTopSuspend: Ctrl-Z leaves the screen and lets the target go, fg takes it again.
func TestTopSuspend(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
	r := top(t, w, nil, "-p", strconv.Itoa(p.pid))
	sampler := r.cmd.Process.Pid
	w.await(t, p, "a picture", picture)
	for n := 1; n <= 3; n++ {
		w.press(t, "\x1a")
		eventually(t, "it is stopped", func() bool { return stateOf(t, sampler) == 'T' })
		w.left(t, n)
		for _, tid := range tasks(t, p.pid) {
			if s, err := (procfs.FS{}).Status(tid); err == nil && s.TracerPid != 0 {
				t.Errorf("thread %d is a tracee of %d, which is stopped", tid, s.TracerPid)
			}
		}
		p.worked(t, 2)
		signalTo(t, sampler, unix.SIGCONT)
		w.await(t, p, "a picture again", func(l []string) bool { return picture(l) && w.times(takeScreen) == n+1 && w.modes(t) != w.before })
	}
	// Of a SIGSTOP it does not know, and the shell has set the terminal as it likes.
	signalTo(t, sampler, unix.SIGSTOP)
	eventually(t, "it is stopped", func() bool { return stateOf(t, sampler) == 'T' })
	if err := unix.IoctlSetTermios(int(w.slave.Fd()), unix.TCSETS, &w.before); err != nil {
		t.Fatal(err)
	}
	signalTo(t, sampler, unix.SIGCONT)
	w.await(t, p, "a picture again", func(l []string) bool { return picture(l) && w.times(takeScreen) == 5 && w.modes(t) != w.before })
	w.press(t, "q")
	r.end(t).want(t, exitDone)
	w.left(t, 5)
	p.untouched(t)
}

// TestTopStopped: of a process that is stopped the picture says so, as long as it is.
func TestTopStopped(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
	r := top(t, w, nil, "-p", strconv.Itoa(p.pid))
	w.await(t, p, "a picture", picture)
	signalTo(t, p.pid, unix.SIGSTOP)
	told := fmt.Sprintf("process %d is stopped (try: kill -CONT %[1]d)", p.pid)
	w.await(t, nil, "it is told", func(l []string) bool { return strings.Contains(l[23], told) })
	signalTo(t, p.pid, unix.SIGCONT)
	w.await(t, p, "it is told no more", func(l []string) bool { return picture(l) && !strings.Contains(l[23], "is stopped") })
	w.press(t, "q")
	r.end(t).want(t, exitDone)
	p.untouched(t)
}

// TestTopTargetEnds: the last picture stays, and says why no other comes.
func TestTopTargetEnds(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
	r := top(t, w, nil, "-p", strconv.Itoa(p.pid))
	w.await(t, p, "a picture", picture)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.await(t, nil, "the end is told", func(l []string) bool {
		return strings.Contains(l[23], "everything that was sampled has ended; q leaves") && picture(l)
	})
	w.press(t, "m")
	w.await(t, nil, "keys work on", func(l []string) bool { return strings.Contains(l[3], "MODULE") && !strings.Contains(l[3], "FUNCTION") })
	w.press(t, "\x1a")
	eventually(t, "it is stopped", func() bool { return stateOf(t, r.cmd.Process.Pid) == 'T' })
	w.left(t, 1)
	signalTo(t, r.cmd.Process.Pid, unix.SIGCONT)
	w.await(t, nil, "a picture again", func(l []string) bool { return strings.Contains(l[23], "q leaves") })
	w.press(t, "q")
	r.end(t).want(t, exitDone)
	if w.modes(t) != w.before {
		t.Error("the terminal is not as it was")
	}
}

// TestTopDuration: a run that has a time ends by itself.
func TestTopDuration(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
	r := top(t, w, nil, "-p", strconv.Itoa(p.pid), "-d", "0.5")
	r.end(t).want(t, exitDone)
	w.left(t, 1)
	p.untouched(t)
}

// TestTopDeafTerminal: a terminal that takes nothing holds up neither the samples nor the end.
func TestTopDeafTerminal(t *testing.T) {
	p, w := startTarget(t, "obey"), newWindow(t, 200, 60, false)
	cmd := tool("top", "-hz", "199", "-p", strconv.Itoa(p.pid))
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	cmd.Stdin, cmd.Stdout = w.slave, w.slave // standard error is a pipe
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	r := begin(t, cmd)
	r.traces(t, p.pid)
	eventually(t, "the screen is taken", func() bool { return w.modes(t) != w.before })
	for range 40 { // each redraws it
		w.press(t, "\x0c")
	}
	pending := func() uint32 {
		n, err := unix.IoctlGetUint32(int(w.master.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "the terminal is full", func() bool { p.worked(t, 1); return pending() > 3000 })
	p.worked(t, 20)
	begun := time.Now()
	signalTo(t, cmd.Process.Pid, unix.SIGTERM)
	o := r.end(t)
	o.want(t, exitDone, " samples")
	t.Logf("ended in %v", time.Since(begun))
	if m := regexp.MustCompile(`= (\d+) samples`).FindStringSubmatch(o.stderr); m == nil || len(m[1]) < 2 {
		t.Errorf("hardly a sample:\n%s", o.stderr)
	}
	if w.modes(t) != w.before {
		t.Error("the terminal is not as it was")
	}
	p.untouched(t)
}

// TestTopPlain: no colours where NO_COLOR is set, and nothing but ASCII where the locale has no more; else there are both.
func TestTopPlain(t *testing.T) {
	colour := regexp.MustCompile("\x1b\\[(?:[0-9;]*;)?[34][0-9](?:;[0-9;]*)?m")
	for _, tt := range []struct {
		name           string
		env            []string
		colours, ascii bool
	}{
		{"all", nil, true, false},
		{"NO_COLOR", []string{"NO_COLOR=1"}, false, false},
		{"LANG=C", []string{"LC_ALL=C"}, true, true},
		{"latin 1", []string{"LC_ALL=de_DE.ISO-8859-1"}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, w := startTarget(t, "obey"), newWindow(t, 80, 24, true)
			p.send(t, "name h\u00f6t\x1b[2Jx")
			if got := p.line(t); got != "named" {
				t.Fatal(got)
			}
			r := top(t, w, tt.env, "-p", strconv.Itoa(p.pid))
			w.await(t, p, "a picture", picture)
			w.press(t, "t")
			name := map[bool]string{true: `h\u00f6t\x1b[2Jx`, false: `höt\x1b[2Jx`}[tt.ascii]
			w.await(t, p, "the thread's name, made harmless", func(l []string) bool { return contains(l, name) })
			w.press(t, "q")
			r.end(t).want(t, exitDone)
			text, _, _ := strings.Cut(w.written(), leaveScreen)
			if got := colour.MatchString(text); got != tt.colours {
				t.Errorf("colours: %v, want %v: %q", got, tt.colours, text)
			}
			if got := strings.IndexFunc(text, func(r rune) bool { return r > 0x7e }) < 0; got != tt.ascii {
				t.Errorf("nothing but ASCII: %v, want %v: %q", got, tt.ascii, text)
			}
		})
	}
}

// TestTopCommand: a command's output does not spoil the picture.
func TestTopCommand(t *testing.T) {
	w := newWindow(t, 80, 24, true)
	r := top(t, w, nil, "--", self, "-test.list", "^TestTop$")
	w.await(t, nil, "the end is told", func(l []string) bool { return strings.Contains(l[23], "has ended with status 0; q leaves") })
	w.press(t, "q")
	r.end(t).want(t, exitDone)
	if regexp.MustCompile("TestTop\r?\n").MatchString(w.written()) {
		t.Errorf("the command has written to the screen: %q", w.written())
	}
}

// TestTopNoTerminal: what cannot show a picture is told before any work.
func TestTopNoTerminal(t *testing.T) {
	p := startTarget(t, "obey")
	o := sfsample(t, "top", "-p", strconv.Itoa(p.pid))
	o.want(t, exitFailed, "standard output is no terminal (try: ")
	o.wantOneLine(t)
	w := newWindow(t, 80, 24, true)
	r := top(t, w, []string{"TERM=dumb"}, "-p", strconv.Itoa(p.pid))
	r.end(t).want(t, exitFailed)
	eventually(t, "the error is told", func() bool { return strings.Contains(w.written(), `TERM="dumb" cannot place text (try: `) })
	// What is wrong with the target is told without a screen.
	w = newWindow(t, 80, 24, true)
	top(t, w, nil, "-p", strconv.Itoa(zombie(t))).end(t).want(t, exitFailed)
	eventually(t, "the error is told", func() bool { return strings.Contains(w.written(), "it has exited") })
	if w.times(takeScreen) > 0 {
		t.Error("the screen was taken for nothing")
	}
}
