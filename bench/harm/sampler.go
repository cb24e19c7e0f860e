package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"sfsample/ptrace/procfs"
)

// patience is how long a step may take that takes milliseconds.
const patience = 30 * time.Second

// sampler runs sfsample beside a load; nil does nothing.
type sampler struct {
	o       *options
	cmd     *exec.Cmd
	closing bytes.Buffer
}

// attach starts sfsample on a process and waits until it knows every thread.
func (s *sampler) attach(pid int) error {
	if s == nil {
		return nil
	}
	s.cmd = exec.Command(s.o.sfsample, append([]string{"-v", "-p", strconv.Itoa(pid), "-hz", strconv.Itoa(s.o.hz),
		"--threads", s.o.threads, "-o", filepath.Join(s.o.tmp, "out.folded")}, s.o.flags...)...)
	s.cmd.Stderr = &s.closing
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(patience); !knows(s.cmd.Process.Pid, pid); {
		if time.Now().After(end) {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
			return fmt.Errorf("sfsample does not know process %d: %s", pid, s.closing.String())
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// knows reports whether process sfsample has the times of every thread of process pid open.
func knows(sfsample, pid int) bool {
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		return false
	}
	open := map[string]bool{}
	fds := fmt.Sprintf("/proc/%d/fd", sfsample)
	list, _ := os.ReadDir(fds)
	for _, fd := range list {
		name, _ := os.Readlink(filepath.Join(fds, fd.Name()))
		open[name] = true
	}
	for _, tid := range ids {
		if !open[fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid)] {
			return false
		}
	}
	return true
}

// detach ends sfsample in order.
func (s *sampler) detach() error {
	if s == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("sfsample: %w\n%s", err, s.closing.String())
	}
	s.trim()
	return nil
}

// trim leaves those lines of the closing text that tell what the target has
// borne.
func (s *sampler) trim() {
	var kept []byte
	for _, line := range bytes.SplitAfter(s.closing.Bytes(), []byte("\n")) {
		for _, word := range []string{" ticks (", "rate: ", "delay ", "interrupts: "} {
			if bytes.Contains(line, []byte(word)) {
				kept = append(kept, line...)
				break
			}
		}
	}
	s.closing.Reset()
	s.closing.Write(kept)
}

// cpuTime is what a process has used so far.
func cpuTime(pid int) (sum time.Duration, err error) {
	var fs procfs.FS
	ids, err := fs.TaskIDs(pid)
	if err != nil {
		return 0, err
	}
	for _, tid := range ids {
		st, err := fs.Task(pid, tid).Schedstat()
		if err != nil {
			return 0, err
		}
		sum += st.Run
	}
	return sum, nil
}
