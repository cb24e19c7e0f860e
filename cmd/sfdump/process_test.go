package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sfsample/ptrace/procfs"
)

// start runs the program of testdata until it says that it waits; it ends with
// the test.
func start(t testing.TB, name string) int {
	t.Helper()
	cmd := exec.Command(name)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	if _, err := io.ReadFull(stdout, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// biasOf is where the program of a process was loaded: it is linked for 0.
func biasOf(t testing.TB, pid int, name string) uint64 {
	t.Helper()
	maps, err := procfs.FS{}.Maps(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if filepath.Base(m.Path) == filepath.Base(name) {
			return m.Start
		}
	}
	t.Fatalf("%s is not mapped", name)
	return 0
}

// moved adds bias to the addresses in lines of --rows.
func moved(lines []string, bias uint64) []string {
	var out []string
	for _, line := range lines {
		f := strings.Fields(line)
		for _, i := range []int{0, 4} {
			addr, _ := strconv.ParseUint(f[i], 16, 64)
			if i == 0 || !strings.Contains(f[2], "M") {
				addr += bias
			}
			f[i] = fmt.Sprintf("%x", addr)
		}
		out = append(out, strings.Join(f, " "))
	}
	return out
}

// TestProcess: the tables in memory are those of the file, at the addresses of
// the process. The vDSO is read from memory too.
func TestProcess(t *testing.T) {
	name := native(t)
	pid := start(t, name)
	arg := strconv.Itoa(pid)
	bias := biasOf(t, pid, name)
	for _, flag := range []string{"--rows", "--eh"} {
		out, errs, status := sfdump("--rows", flag, "-p", arg)
		if status != exitDone || errs != "" {
			t.Fatalf("%s: status %d: %s", flag, status, errs)
		}
		got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		for _, line := range moved(rowsOf(t, name, flag), bias) {
			if !slices.Contains(got, line) {
				t.Errorf("%s: no row %q in the process", flag, line)
			}
		}
	}
	out, errs, status := sfdump("-p", arg)
	if status != exitDone || errs != "" || !strings.Contains(out, " waits: ") || !strings.Contains(out, "[vdso]: no .sframe\n") && !strings.Contains(out, "[vdso]: .sframe") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if out, errs, status := sfdump("--check", "-p", arg); status != exitDone {
		t.Errorf("--check: status %d: %s%s", status, out, errs)
	}
	leaf, _, _ := strings.Cut(rowsOf(t, name)[0], " ")
	addr, _ := strconv.ParseUint(leaf, 16, 64)
	if out, errs, status := sfdump("--lookup", fmt.Sprintf("%x", addr+bias), "-p", arg); status != exitDone || !strings.Contains(out, fmt.Sprintf("function %#x-", addr+bias)) {
		t.Errorf("--lookup: status %d: %s%s", status, out, errs)
	}
	if out, errs, status := sfdump("--lookup", "8", "-p", arg); status != exitFailed || out != "" || !strings.Contains(errs, "0x8: not code of a module") {
		t.Errorf("--lookup 8: status %d: %s%s", status, out, errs)
	}
}

// TestNoProcess: the message says what is wrong and what helps.
func TestNoProcess(t *testing.T) {
	const none = 1<<22 + 1 // above PID_MAX_LIMIT
	_, errs, status := sfdump("-p", strconv.Itoa(none))
	if status != exitFailed || !strings.Contains(errs, strconv.Itoa(none)) {
		t.Errorf("status %d, message %q", status, errs)
	}
	if os.Geteuid() == 0 {
		return // may read everybody's
	}
	if _, err := os.ReadFile("/proc/1/maps"); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Skip("process 1 is this user's")
	}
	if _, errs, status := sfdump("-p", "1"); status != exitFailed || !strings.Contains(errs, "try: ") {
		t.Errorf("status %d, message %q", status, errs)
	}
}
