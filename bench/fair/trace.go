package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"sfsample/sampler/syscalls"
)

// traceFor is how long a turn of the trace is at most, in seconds: a server makes some hundred thousand calls in each.
const traceFor = 0.5

// traceLine is a line of perf script: thread, seconds, which of three trace points, and the number of the call or the thread that is next.
var traceLine = regexp.MustCompile(`^ *(\d+) +([\d.]+): +(?:raw_syscalls|sched):(sys_enter|sys_exit|sched_switch): (?:NR (\d+)|.*next_pid=(\d+))`)

// trace adds to into for how long threads of a process were on a CPU within each system call, by its name, and outside of all (""), in seconds: by
// the kernel's trace points at the beginnings and ends of calls and at switches. Each costs time of its own.
func (o *options) trace(pid int, into shares) error {
	file := o.file("trace.data")
	args := []string{"record", "-q", "-a", "-m", "16M", "-o", file, "-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "-e", "sched:sched_switch", "--",
		"sleep", fmt.Sprint(min(traceFor, (o.length / turns).Seconds()))}
	if out, err := exec.Command("perf", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("perf record: %w\n%s", err, out)
	}
	text, err := exec.Command("perf", "script", "-i", file, "--ns", "--show-lost-events", "-F", "tid,time,event,trace").Output()
	if err != nil {
		return fmt.Errorf("perf script: %w", err)
	}
	if bytes.Contains(text, []byte("PERF_RECORD_LOST")) {
		return errors.New("the kernel has lost some of its records")
	}
	traced(text, runtime.GOARCH, runTimes(pid), into)
	return nil
}

// traced reads the lines of a trace, which are in the order of their times. What a thread does before its first call begins or ends that tells; one
// that makes none does its own work.
func traced(text []byte, arch string, threads map[int]float64, into shares) {
	since := map[int]float64{} // of threads that are on a CPU: from when on they do what they do
	calls := map[int]string{}  // of threads that have made one: which they are in
	before := map[int]float64{}
	for line := range bytes.Lines(text) {
		m := traceLine.FindStringSubmatch(string(line))
		if m == nil {
			continue
		}
		tid, _ := strconv.Atoi(m[1]) // digits, as the pattern says; so the others
		now, _ := strconv.ParseFloat(m[2], 64)
		number, _ := strconv.Atoi(m[4] + m[5])
		call, known := calls[tid]
		if begun, ok := since[tid]; ok && known {
			into[call] += now - begun
		} else if ok {
			before[tid] += now - begun
		}
		delete(since, tid)
		if m[3] == "sched_switch" {
			if _, ours := threads[number]; ours {
				since[number] = now
			}
			continue
		}
		if _, ours := threads[tid]; !ours {
			continue
		}
		name, _ := syscalls.Name(arch, int64(number))
		began := m[3] == "sys_enter"
		if !known && !began {
			into[name] += before[tid]
			delete(before, tid)
		}
		if since[tid], calls[tid] = now, name; !began {
			calls[tid] = ""
		}
	}
	for _, s := range before {
		into[""] += s
	}
}

// ofCall is the share of the call whose name a function of libc has, by a trace. false: it has that of none which was made.
func ofCall(traced shares, function string) (share float64, ok bool) {
	file, name, _ := strings.Cut(function, " ")
	name = strings.TrimLeft(name, "_")
	return traced.of(name), strings.HasPrefix(file, "libc.") && name != "" && traced[name] > 0
}
