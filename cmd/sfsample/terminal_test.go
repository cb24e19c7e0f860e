package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"sfsample/internal/testprog"
)

// disguised turns the direction of text and moves the cursor, is no valid UTF-8, and
// breaks the line.
const disguised = "a\u202eb\x1b[2Jc\u2066d\xffe\u009bf\ng\u200bh"

// TestDisguisedText: nothing that comes from a target or a file reaches the terminal
// raw, by whatever way.
func TestDisguisedText(t *testing.T) {
	for name, write := range map[string]func(w io.Writer){
		"log": func(w io.Writer) {
			log := slog.New(&plainHandler{w: w, level: slog.LevelDebug, mu: new(sync.Mutex)})
			log.With("module", disguised).Debug("file not used", "reason", disguised)
		},
		"closing lines": func(w io.Writer) {
			s := &session{stderr: w}
			s.say("module: %s", disguised)
		},
		"error": func(w io.Writer) {
			if status := run([]string{"replay", "/nowhere/" + disguised}, io.Discard, w); status != exitFailed {
				t.Errorf("exit status %d", status)
			}
		},
		"wrong usage": func(w io.Writer) {
			if status := run([]string{"--" + disguised}, io.Discard, w); status != exitUsage {
				t.Errorf("exit status %d", status)
			}
		},
		"reasons": func(w io.Writer) {
			s := &session{stderr: w}
			s.say("stacks%s", reasons(map[string]int64{disguised: 1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			write(&b)
			for _, raw := range []string{"\u202e", "\x1b", "\u2066", "\xff", "\u009b", "\u200b"} {
				if strings.Contains(b.String(), raw) {
					t.Errorf("%q stands in %q", raw, b.String())
				}
			}
			if !strings.Contains(b.String(), `a\u202eb\x1b[2Jc`) {
				t.Errorf("%q does not tell what it was", b.String())
			}
		})
	}
}

// TestClosedStdout: a result that would go nowhere is an error, before any work.
func TestClosedStdout(t *testing.T) {
	p := startTarget(t, "obey")
	pid := strconv.Itoa(p.pid)
	for name, tt := range map[string]struct {
		args   []string
		status int
	}{
		"sample":         {[]string{"-p", pid, "-d", "0.1"}, exitFailed},
		"dump":           {[]string{"dump", "-p", pid}, exitFailed},
		"sample to file": {[]string{"-p", pid, "-d", "0.1", "-o", t.TempDir() + "/out.folded"}, exitDone},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := tool(tt.args...)
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			ps, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{Env: cmd.Env, Files: []*os.File{os.Stdin, nil, w}})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r)
			r.Close()
			state, err := ps.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if state.ExitCode() != tt.status || strings.Contains(string(text), "standard output is closed") != (tt.status == exitFailed) {
				t.Errorf("exit status %d, standard error:\n%s", state.ExitCode(), text)
			}
		})
	}
}

// TestFewFiles: a limit at which files of /proc cannot be opened is told, and does not
// pass for the end of all threads.
func TestFewFiles(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash on this machine")
	}
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, "ehframe", "spinners"), "60")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limited := func(files int) outcome {
		cmd := tool("-p", strconv.Itoa(p.PID), "-d", "0.5", "-o", "/dev/null")
		script := fmt.Sprintf(`ulimit -n %d; exec -a "$1" "$0" "${@:2}"`, files)
		under := exec.Command("bash", append([]string{"-c", script, exe}, cmd.Args...)...)
		under.Env = cmd.Env
		return begin(t, under).end(t)
	}
	limited(12).want(t, exitFailed, "only 12 files may be open", "ulimit -n")
	limited(64).want(t, exitDone, "next: some threads were not sampled, as no more files could be opened (try: ulimit -n 4096")
}
