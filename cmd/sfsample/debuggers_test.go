package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// pcs are the program counters of each thread's frames, innermost first.
type pcs map[int][]uint64

// gdbScript prints what gdb's unwinder finds: frames that gdb makes up of
// inlined functions and tail calls have no place on the stack.
const gdbScript = `
import gdb
for t in gdb.selected_inferior().threads():
    t.switch()
    print("tid %d" % t.ptid[1])
    f = gdb.newest_frame()
    while f is not None:
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            print("#0 0x%x" % f.pc())
        f = f.older()
`

func gdbStacks(t *testing.T, pid int) pcs {
	t.Helper()
	script := filepath.Join(t.TempDir(), "stacks.py")
	if err := os.WriteFile(script, []byte(gdbScript), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off",
		"-ex", "set backtrace past-main on", "-p", strconv.Itoa(pid), "-x", script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, out)
	}
	return parseStacks(t, string(out), "tid ")
}

func euStacks(t *testing.T, pid int) pcs {
	t.Helper()
	out, err := exec.Command("eu-stack", "-q", "-n", "0", "-p", strconv.Itoa(pid)).Output()
	if len(out) == 0 {
		t.Fatalf("eu-stack: %v", err)
	}
	return parseStacks(t, string(out), "TID ")
}

func ourStacks(t *testing.T, pid int) pcs {
	t.Helper()
	text := dumpText(t, pid)
	if strings.Contains(text, "end: truncated") {
		t.Errorf("a stack is cut:\n%s", text)
	}
	return parseStacks(t, text, "tid ")
}

func dumpText(t *testing.T, pid int) string {
	t.Helper()
	o := sfsample(t, "dump", "--group=false", "-p", strconv.Itoa(pid), "--max-depth", "4000", "--scripts", "off")
	o.want(t, exitDone)
	return o.stdout
}

// parseStacks reads lines that begin a thread and lines "#N 0x… …".
func parseStacks(t *testing.T, text, thread string) pcs {
	t.Helper()
	stacks := pcs{}
	tid := 0
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if rest, ok := strings.CutPrefix(line, thread); ok {
			n, _, _ := strings.Cut(strings.TrimSuffix(rest, ":"), " ")
			var err error
			if tid, err = strconv.Atoi(n); err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			stacks[tid] = nil
			continue
		}
		f := strings.Fields(line)
		if len(f) < 2 || f[0][0] != '#' || tid == 0 {
			continue
		}
		pc, err := strconv.ParseUint(strings.TrimPrefix(f[1], "0x"), 16, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		stacks[tid] = append(stacks[tid], pc)
	}
	return stacks
}

// TestDebuggersAgree stops programs of the distribution at random moments and
// compares every thread's frames with gdb's and eu-stack's.
func TestDebuggersAgree(t *testing.T) {
	needStock(t)
	needDebuggers(t)
	for _, prog := range stock {
		t.Run(prog.name, func(t *testing.T) {
			pid := prog.begin(t)
			stacks, frames := 0, 0
			for range 2 * long() {
				s, f := agree(t, pid)
				stacks, frames = stacks+s, frames+f
				if t.Failed() {
					break
				}
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				working(t, pid)
			}
			t.Logf("%d stacks, %d frames equal to gdb's and eu-stack's", stacks, frames)
		})
	}
}

// agree stops the process, compares, and returns what was equal.
func agree(t *testing.T, pid int) (stacks, frames int) {
	t.Helper()
	stop(t, pid)
	ours, gdb, eu := threeStacks(t, pid, ourStacks)
	for tid, got := range ours {
		st, err := (procfs.FS{}).Task(pid, tid).Schedstat()
		if err == nil && st.Run < time.Millisecond && len(got) == 1 && len(gdb[tid]) == 2 && len(eu[tid]) == 2 && gdb[tid][0] == got[0] && eu[tid][0] == got[0] && gdb[tid][1] != eu[tid][1] {
			// It is being born and has hardly run: the table says that it has no caller (clone3.S of glibc), and each debugger goes on to another address.
			continue
		}
		for name, want := range map[string][]uint64{"gdb": gdb[tid], "eu-stack": eu[tid]} {
			if !slices.Equal(got, want) {
				t.Errorf("thread %d: we and %s differ:\n%s", tid, name, sideBySide(got, want))
			}
		}
		stacks++
		frames += len(got)
	}
	return stacks, frames
}

// stop stops a process by a signal.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is stopped", func() bool { return allStopped(t, pid) })
}

// threeStacks returns the frames of a stopped process's threads as we (by dump),
// gdb and eu-stack find them.
func threeStacks(t *testing.T, pid int, dump func(*testing.T, int) pcs) (ours, gdb, eu pcs) {
	t.Helper()
	stopped := func() bool { return allStopped(t, pid) }
	ours = dump(t, pid)
	eventually(t, "the process is still stopped after us", stopped)
	gdb = gdbStacks(t, pid)
	eventually(t, "the process is still stopped after gdb", stopped)
	eu = euStacks(t, pid)
	if len(ours) != len(tasks(t, pid)) {
		t.Errorf("%d threads shown, the process has %d", len(ours), len(tasks(t, pid)))
	}
	return ours, gdb, eu
}

func allStopped(t *testing.T, pid int) bool {
	t.Helper()
	for _, tid := range tasks(t, pid) {
		if s, err := (procfs.FS{}).Task(pid, tid).Stat(); err == nil && s.State != 'T' {
			return false
		}
	}
	return true
}

func sideBySide(a, b []uint64) string {
	var s strings.Builder
	at := func(list []uint64, i int) string {
		if i < len(list) {
			return fmt.Sprintf("%#x", list[i])
		}
		return "-"
	}
	for i := range max(len(a), len(b)) {
		mark := ""
		if at(a, i) != at(b, i) {
			mark = "  <"
		}
		fmt.Fprintf(&s, "#%d %18s %18s%s\n", i, at(a, i), at(b, i), mark)
	}
	return s.String()
}
