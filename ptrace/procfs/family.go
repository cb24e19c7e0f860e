package procfs

import (
	"bytes"
	"os"
	"strings"
	"time"
)

// Children lists the children that the thread made. It needs a kernel with
// CONFIG_PROC_CHILDREN.
func (t Task) Children() ([]int, error) {
	b, err := readFile(t.path("children"), maxMaps)
	if err != nil {
		return nil, err
	}
	var list []int
	for {
		n, rest, ok := decimal(spaces(b))
		if !ok || n > 1<<31-1 {
			return list, nil
		}
		list, b = append(list, int(n)), rest
	}
}

// Cgroups reads the control groups of a process: one path with version 2 of the
// interface, one for each hierarchy with version 1.
func (f FS) Cgroups(id int) ([]string, error) {
	b, err := readFile(f.Path(id, "cgroup"), maxSmall)
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 {
			list = append(list, parts[2])
		}
	}
	return list, nil
}

// Namespace reads which namespace of a kind ("net", "pid") a process is in, as
// "net:[4026531840]".
func (f FS) Namespace(id int, kind string) (string, error) {
	return os.Readlink(f.Path(id, "ns", kind))
}

// LastRan reads when the thread was last on a CPU, on the scheduler's clock, which
// counts since boot, to about a tick (se.exec_start of proc_sched_show_task,
// kernel/sched/debug.c). It is false on kernels without CONFIG_SCHED_DEBUG. The
// clocks of two CPUs may differ by the time that interrupts took.
func (t Task) LastRan() (time.Duration, bool) {
	b, err := readFile(t.path("sched"), maxSmall)
	if err != nil {
		return 0, false
	}
	return ParseLastRan(b)
}

// ParseLastRan finds se.exec_start, in milliseconds, in a sched file.
func ParseLastRan(b []byte) (time.Duration, bool) {
	_, rest, ok := bytes.Cut(b, []byte("\nse.exec_start"))
	if !ok {
		return 0, false
	}
	ms, rest, ok := decimal(spaces(bytes.TrimPrefix(spaces(rest), []byte(":"))))
	if !ok || ms > 1<<43 || len(rest) < 7 || rest[0] != '.' {
		return 0, false
	}
	ns, _, ok := decimal(rest[1:7])
	return time.Duration(ms)*time.Millisecond + time.Duration(ns), ok
}

// Mounts reads the types of the file systems that thread id sees, by device. It is
// empty where that may not be read.
func (f FS) Mounts(id int) map[Dev]string {
	b, err := readFile(f.Path(id, "mountinfo"), maxMaps)
	if err != nil {
		return nil
	}
	return ParseMounts(b)
}

// ParseMounts parses the content of a mountinfo file (proc_pid_mountinfo(5)): the
// third word is the device, the first after "-" the type. Lines of another form are
// skipped.
func ParseMounts(b []byte) map[Dev]string {
	types := map[Dev]string{}
	for line := range bytes.Lines(b) {
		head, tail, ok := bytes.Cut(line, []byte(" - "))
		words := bytes.Fields(head)
		kind, _ := word(tail)
		if !ok || len(words) < 3 || len(kind) == 0 {
			continue
		}
		major, rest, ok1 := decimal(words[2])
		minor, _, ok2 := decimal(bytes.TrimPrefix(rest, []byte(":")))
		if ok1 && ok2 && major < 1<<32 && minor < 1<<32 {
			types[Dev{uint32(major), uint32(minor)}] = string(kind)
		}
	}
	return types
}
