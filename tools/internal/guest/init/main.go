// Init is the first process of a guest. It mounts what Linux programs expect,
// runs the commands of the jobs file one after the other, sends what they print
// and how they end to the host, and switches the machine off.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/tools/internal/guest/wire"
)

func main() {
	if os.Getpid() == 1 {
		if err := first(); err != nil {
			fmt.Fprintln(os.Stderr, "init:", err)
		}
		syscall.Sync()
		err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
		fmt.Fprintln(os.Stderr, "init: power off:", err)
		select {} // the kernel panics when its first process ends
	}
	port, err := openPort(wire.Port)
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		os.Exit(1)
	}
	if err := runJobs(port); err != nil {
		_ = wire.Write(port, wire.Broken, []byte(err.Error()))
		os.Exit(1)
	}
}

// first does the work of the first process: mounts, the loopback, and reaping of orphans
// until its one child, this program again, has ended. The child runs the
// commands: the first process cannot wait for one of them by name while it
// waits for whatever ends.
func first() error {
	for _, m := range []struct{ source, target, kind string }{
		{"proc", "/proc", "proc"},
		{"sysfs", "/sys", "sysfs"},
		{"devtmpfs", "/dev", "devtmpfs"},
		{"devpts", "/dev/pts", "devpts"},
		{"tmpfs", "/tmp", "tmpfs"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(m.source, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return err
	}
	if err := loopback(); err != nil {
		return err
	}
	child, err := os.StartProcess("/proc/self/exe", []string{"init"},
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if err != nil && err != syscall.EINTR {
			return fmt.Errorf("wait: %w", err)
		}
		if pid == child.Pid {
			return nil
		}
	}
}

// loopback switches the network of the machine itself on (netdevice(7)).
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// openPort opens a virtio serial port by its name. Ports appear one by one
// while the machine comes up, so it looks again for a while.
func openPort(name string) (*os.File, error) {
	for range 250 {
		files, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(b)) == name {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(f)), os.O_WRONLY, 0)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("no virtio serial port %q", name)
}

// runJobs runs the commands of the jobs file.
func runJobs(port io.Writer) error {
	b, err := os.ReadFile(wire.JobsFile)
	if err != nil {
		return err
	}
	var jobs []wire.Job
	if err := json.Unmarshal(b, &jobs); err != nil {
		return fmt.Errorf("%s: %w", wire.JobsFile, err)
	}
	for _, j := range jobs {
		status := ""
		if err := runJob(j, port); err != nil {
			status = err.Error()
		}
		if err := wire.Write(port, wire.Exit, []byte(status)); err != nil {
			return err
		}
	}
	return nil
}

func runJob(j wire.Job, port io.Writer) error {
	cmd := exec.Command(j.Argv[0], j.Argv[1:]...)
	cmd.Dir = j.Dir
	cmd.Env = append([]string{"PATH=/usr/bin:/usr/sbin", "HOME=/tmp", "TMPDIR=/tmp", "USER=root"}, j.Env...)
	// One writer for both keeps them in order (os/exec).
	out := output{port}
	cmd.Stdout, cmd.Stderr = out, out
	// A process that the command left behind may keep the pipe open.
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}

// output makes frames of what is written to it.
type output struct{ port io.Writer }

func (o output) Write(b []byte) (int, error) {
	n := 0
	for len(b) > 0 {
		part := b[:min(len(b), wire.MaxFrame)]
		if err := wire.Write(o.port, wire.Output, part); err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}
