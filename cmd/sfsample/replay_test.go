package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

// recorded samples a process and returns the folded stacks of the run and its
// recording.
func recorded(t *testing.T, pid int, args ...string) (folded, recording string) {
	t.Helper()
	recording = filepath.Join(t.TempDir(), "recording")
	o := sfsample(t, append([]string{"-p", strconv.Itoa(pid), "--record", recording}, args...)...)
	o.want(t, exitDone)
	return o.stdout, recording
}

// wantReplay fails the test if a replay does not write the same, byte by byte.
func wantReplay(t *testing.T, recording, folded string) {
	t.Helper()
	o := sfsample(t, "replay", "--max-depth", "4000", recording)
	o.want(t, exitDone, "stacks: ")
	if o.stdout == folded {
		return
	}
	got := strings.Split(o.stdout, "\n")
	for i, want := range strings.Split(folded, "\n") {
		if i >= len(got) || got[i] != want {
			t.Fatalf("line %d of the replay differs:\n%.600s\nthe run wrote\n%.600s", i+1, strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""), want)
		}
	}
	t.Fatalf("the replay has %d lines more than the run", len(got)-strings.Count(folded, "\n")-1)
}

// TestReplayStock records programs of the distribution. What a recording holds
// must be enough when the process has gone, and twice the same.
func TestReplayStock(t *testing.T) {
	needStock(t)
	for _, prog := range stock {
		t.Run(prog.name, func(t *testing.T) {
			pid := prog.begin(t)
			folded, recording := recorded(t, pid, "-d", "0.7", "-hz", "299", "--max-depth", "4000")
			if folded == "" {
				t.Fatal("nothing was sampled")
			}
			wantReplay(t, recording, folded)
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wantReplay(t, recording, folded)
		})
	}
}

// TestReplay records our own target in the ways that need no other program.
func TestReplay(t *testing.T) {
	tests := []struct {
		name string
		args []string
	}{
		{"running", nil},
		{"all threads", []string{"--threads", "all"}},
		{"never stopped", []string{"--threads", "all", "--stop", "never"}},
		{"always stopped", []string{"--threads", "all", "--stop", "always"}},
		{"exit stacks", []string{"--exit-stacks"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startTarget(t, "obey")
			recording := filepath.Join(t.TempDir(), "recording")
			args := append([]string{"-p", strconv.Itoa(p.pid), "-hz", "199", "--max-depth", "4000", "--max-overhead", "100", "--record", recording}, tt.args...)
			r := begin(t, tool(args...))
			if tt.name == "never stopped" {
				eventually(t, "the recording is begun", func() bool {
					_, err := os.Stat(recording)
					return err == nil
				})
			} else {
				r.traces(t, p.pid)
			}
			p.worked(t, 20)
			p.send(t, "exec") // and what is recorded of it is another program
			if got := p.line(t); got != "ready" {
				t.Fatalf("after exec the target says %q", got)
			}
			p.worked(t, 20)
			p.send(t, "exit")
			o := r.end(t)
			o.want(t, exitDone)
			if tt.name != "never stopped" {
				wantStacks(t, o.stdout)
			}
			wantSimilar(t, recording, o.stdout)
		})
	}
}

// wantSimilar is wantReplay for a target that calls exec and exits while it is
// sampled. What it had in memory at that moment and no file has, such as a table
// that could not be read any more, a recording cannot give back: a small share
// of the samples may differ, but none may be lost.
func wantSimilar(t *testing.T, recording, folded string) {
	t.Helper()
	o := sfsample(t, "replay", "--max-depth", "4000", recording)
	o.want(t, exitDone, "stacks: ")
	run, replayed := weights(t, folded), weights(t, o.stdout)
	var all, again, same int
	for stack, n := range run {
		all += n
		same += min(n, replayed[stack])
	}
	for _, n := range replayed {
		again += n
	}
	if all != again {
		t.Errorf("the run weighs %d ticks, the replay %d", all, again)
	}
	if 5*(all-same) > all {
		t.Errorf("only %d of %d ticks are in the same stacks; the run wrote\n%.3000s\nthe replay\n%.3000s", same, all, folded, o.stdout)
	}
}

// weights reads folded stacks.
func weights(t *testing.T, folded string) map[string]int {
	t.Helper()
	m := map[string]int{}
	for line := range strings.Lines(folded) {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[i+1:]))
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		m[line[:i]] += n
	}
	return m
}

// TestReplayBad replays files that are no whole recordings.
func TestReplayBad(t *testing.T) {
	p := startTarget(t, "obey")
	recording := filepath.Join(t.TempDir(), "recording")
	r := begin(t, tool("-p", strconv.Itoa(p.pid), "-hz", "999", "--record", recording))
	r.traces(t, p.pid)
	p.worked(t, 8)
	r.interrupt(t)
	r.end(t).want(t, exitDone)
	whole := readFile(t, recording)

	write := func(t *testing.T, text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Run("cut", func(t *testing.T) {
		o := sfsample(t, "replay", write(t, whole[:len(whole)*3/4]))
		o.want(t, exitFailed, "replay", "cut", "what came before was used")
		wantStacks(t, o.stdout)
	})
	t.Run("no such file", func(t *testing.T) {
		o := sfsample(t, "replay", "/nonexistent")
		o.want(t, exitFailed, "replay", "no such file or directory")
		o.wantOneLine(t)
	})
	t.Run("folder", func(t *testing.T) {
		o := sfsample(t, "replay", "/")
		o.want(t, exitFailed, "replay")
		o.wantOneLine(t)
	})
	t.Run("empty", func(t *testing.T) {
		o := sfsample(t, "replay", write(t, ""))
		o.want(t, exitFailed, "replay", "--record")
		o.wantOneLine(t)
	})
	t.Run("text", func(t *testing.T) {
		o := sfsample(t, "replay", write(t, strings.Repeat("python3;main 3\n", 100)))
		o.want(t, exitFailed, "replay", "--record")
		o.wantOneLine(t)
	})
	// One byte changed anywhere: an end with an error or without, never a panic,
	// never a hang.
	t.Run("damaged", func(t *testing.T) {
		for i := 0; i < len(whole); i += max(1, len(whole)/20) {
			b := []byte(whole)
			b[i] ^= 0x55
			o := sfsample(t, "replay", write(t, string(b)))
			if o.status != exitDone && o.status != exitFailed || strings.Contains(o.stderr, "goroutine ") {
				t.Errorf("byte %d changed: exit status %d, %s", i, o.status, o.stderr)
			}
		}
	})
}

// TestWritingEnds: a result that nobody reads does not keep sfsample: Ctrl-C ends a replay, and a run whose end has come by the
// second one.
func TestWritingEnds(t *testing.T) {
	p := startTarget(t, "obey")
	pid := strconv.Itoa(p.pid)
	recording := filepath.Join(t.TempDir(), "recording")
	sfsample(t, "-p", pid, "-hz", "999", "-d", "200ms", "--threads", "all", "-o", "/dev/null", "--record", recording).want(t, exitDone)
	for _, tt := range []struct {
		name  string
		times int // that Ctrl-C takes; 0: two signals come at once
		args  []string
	}{
		{"replay, svg", 1, []string{"replay", recording, "-o", "svg=-"}},
		{"replay, html", 1, []string{"replay", recording, "-o", "html=-"}},
		{"sample, svg", 2, []string{"-p", pid, "-hz", "999", "-d", "200ms", "--threads", "all", "-o", "svg=-"}},
		{"two signals, svg", 0, []string{"-p", pid, "-hz", "999", "-d", "200ms", "--threads", "all", "-o", "svg=-"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			room, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
			if err != nil {
				t.Fatal(err)
			}
			cmd := tool(tt.args...)
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			eventually(t, "a pipe that is full", func() bool {
				n, err := unix.IoctlGetUint32(int(r.Fd()), unix.TIOCINQ)
				return err == nil && int(n) == room
			})
			begun := time.Now()
			if tt.times == 0 {
				for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCONT} {
					if err := cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range tt.times {
				begun = time.Now()
				cmd.Process.Signal(syscall.SIGINT) // an error is that it has ended
				still := 0                         // a thread that has a signal to take runs, and threads are not read at one instant
				eventually(t, "Ctrl-C is taken", func() bool {
					fs := procfs.FS{}
					ids, _ := fs.TaskIDs(cmd.Process.Pid)
					still++
					if slices.ContainsFunc(ids, func(tid int) bool {
						c, err := fs.Task(cmd.Process.Pid, tid).Syscall()
						return err == nil && c.Running
					}) {
						still = 0
					}
					return still == 3
				})
			}
			select {
			case <-ended:
				t.Logf("ended %v after Ctrl-C", time.Since(begun))
			case <-time.After(testprog.Patience):
				cmd.Process.Kill()
				t.Error("does not end on Ctrl-C")
			}
			p.untouched(t)
		})
	}
}

// TestReplayTitle: pictures of a recording have the title of those of its run.
func TestReplayTitle(t *testing.T) {
	dir := t.TempDir()
	p := startTarget(t, "work")
	live, again, recording := filepath.Join(dir, "live.svg"), filepath.Join(dir, "again.svg"), filepath.Join(dir, "run.cap")
	sfsample(t, "-p", strconv.Itoa(p.pid), "-hz", "499", "-d", "0.3", "--record", recording, "-o", live).want(t, exitDone)
	sfsample(t, "replay", recording, "-o", again).want(t, exitDone)
	title := regexp.MustCompile(`id="title"[^>]*>([^<]*\(pid ` + strconv.Itoa(p.pid) + `\))<`)
	var titles []string
	for _, file := range []string{live, again} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := title.FindSubmatch(b)
		if m == nil {
			t.Fatalf("no title with the process in %s: %.1500s", file, b)
		}
		titles = append(titles, string(m[1]))
	}
	if titles[0] != titles[1] {
		t.Errorf("titles %q", titles)
	}
}

// rebuiltSource works in one function or, built otherwise, in the other, which has its place then.
const rebuiltSource = `
#include <time.h>
static volatile unsigned sink;
__attribute__((noinline)) void FIRST(void) { for (int i = 0; i < 100000; i++) sink += i; }
__attribute__((noinline)) void SECOND(void) { sink++; }
int main(void) { while (clock() < CLOCKS_PER_SEC / 4) { FIRST(); SECOND(); } }
`

// TestReplayRebuilt: of a program without a build-id that was built anew in its place, with the same inode and size, a replay takes no names
// and says so. It takes those of the one that was recorded.
func TestReplayRebuilt(t *testing.T) {
	dir := t.TempDir()
	source, prog, recording := filepath.Join(dir, "program.c"), filepath.Join(dir, "program"), filepath.Join(dir, "run.cap")
	if err := os.WriteFile(source, []byte(rebuiltSource), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func(bin, first, second string) {
		t.Helper()
		cc := command(t, "gcc", "-O1", "-Wl,--build-id=none", "-DFIRST="+first, "-DSECOND="+second, "-o", bin, source)
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cc.Args, err, out)
		}
	}
	build(prog, "one_work", "two_work")
	other := filepath.Join(dir, "other")
	build(other, "two_work", "one_work")
	sfsample(t, "-hz", "499", "--record", recording, "-o", filepath.Join(dir, "live.folded"), "--", prog).want(t, exitDone)
	const told = "has no build-id"
	if o := sfsample(t, "replay", recording); !strings.Contains(o.stdout, ";one_work ") || strings.Contains(o.stderr, told) {
		t.Errorf("the file as it was: one_work is missing in\n%s%s", o.stdout, o.stderr)
	}
	if err := os.WriteFile(prog, []byte(readFile(t, other)), 0o700); err != nil {
		t.Fatal(err)
	}
	o := sfsample(t, "replay", recording)
	o.want(t, exitDone, prog+" "+told, "(try: ")
	if strings.Contains(o.stdout, "_work") || !strings.Contains(o.stdout, "program") {
		t.Errorf("the other program's names are shown:\n%s", o.stdout)
	}
	if n := strings.Count(o.stderr, told); n != 1 {
		t.Errorf("told %d times: %s", n, o.stderr)
	}
}
