// Counts counts what sfsample does for a tick and a sample: system calls, stops, wake-ups, bytes that it reads, allocations of memory, and for
// how long threads are its tracees. These hardly depend on the machine, so that they are held against those that are
// committed: those of the same kernel and architecture, with a witness for the clocks.
//
//	go run ./bench/counts [-runs 3] [-baseline bench/counts/baseline.json] [-update] [-only TEXT] [-beside] [-sfsample FILE]
//
// sfsample and its target share one CPU, and the kernel counts (perf record, of tracepoints; allocations by a probe in the program) in two
// seconds in the midst of a run. Of the runs the median is taken. What differs from the baseline by more than its bound is marked, and the exit
// status is 1; -update writes a new baseline. What needs perf, and root, says so.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	runs := flag.Int("runs", 3, "runs of each case")
	file := flag.String("baseline", "bench/counts/baseline.json", "what to compare with")
	update := flag.Bool("update", false, "write the baseline anew")
	tool := flag.String("sfsample", "", "sfsample's binary (default: build it)")
	only := flag.String("only", "", "cases whose names contain this `text`")
	beside := flag.Bool("beside", false, "other programs work here, too: only what is more counts, and no time")
	flag.Parse()
	moved, err := run(*runs, *file, *update, *beside, *tool, *only, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "counts:", err)
	}
	if err != nil || moved > 0 {
		os.Exit(1)
	}
}

// scene is a target, and how it is sampled.
type scene struct {
	name   string
	hz     int
	target []string // of bench/src/work.c: kind and number of threads
	ms     string   // for how long it works, which it is told
	flags  []string
	crowd  bool // threads wait for one another's CPU, and clocks for them: how long depends on what else runs
}

// scenes: where a thread always runs, what a rate costs; where many do, that one is stopped a tick; where none does, what is left.
var scenes = []scene{
	{"a busy thread, 99 Hz", 99, []string{"threads", "1"}, "600000", nil, false},
	{"a busy thread, 999 Hz", 999, []string{"threads", "1"}, "600000", []string{"--max-overhead", "50%"}, false},
	{"16 busy threads, 99 Hz", 99, []string{"threads", "16"}, "600000", nil, true},
	{"501 idle threads, 99 Hz", 99, []string{"idle", "500"}, "1", nil, false},
	{"501 idle threads, 99 Hz, all", 99, []string{"idle", "500"}, "1", []string{"--threads", "all"}, false},
}

const (
	warm   = 1500 * time.Millisecond // from sfsample's first system call on, not counted
	window = 2 * time.Second         // counted
	length = 4 * time.Second         // of a run
)

// Counts are what was counted, by scene and what it is.
type Counts map[string]map[string]float64

// Baseline is what is committed.
type Baseline struct {
	Commit, Machine string
	Counts          Counts
}

func run(runs int, file string, update, beside bool, tool, only string, w io.Writer) (moved int, err error) {
	if update && only != "" {
		return 0, errors.New("-only leaves out what -update would have to write")
	}
	dir, err := os.MkdirTemp("", "counts")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	b := bench{dir: dir, tool: tool}
	if err := b.build(); err != nil {
		return 0, err
	}
	var was Baseline
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	if err != nil && !update {
		return 0, fmt.Errorf("baseline %s: %w (try: from the folder of go.mod; -update)", file, err)
	}
	if !update && was.Machine != machine() {
		return 0, fmt.Errorf("baseline %s is of another machine, %s, and this is %s (try: -update at a commit to compare with)", file, was.Machine, machine())
	}
	now := Counts{}
	for _, s := range scenes {
		if !strings.Contains(s.name, only) || beside && s.crowd {
			continue
		}
		var got []map[string]float64
		for range runs {
			one, err := b.count(s)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", s.name, err)
			}
			got = append(got, one)
		}
		now[s.name] = medians(got)
	}
	moved = report(w, now, was, beside)
	if !update {
		return moved, nil
	}
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return 0, fmt.Errorf("git describe: %w", err)
	}
	text, err = json.MarshalIndent(Baseline{strings.TrimSpace(string(commit)), machine(), now}, "", "\t")
	if err != nil {
		return 0, err
	}
	return 0, os.WriteFile(file, append(text, '\n'), 0o644)
}

// machine is what counts are compared on.
func machine() string {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail
	release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	return fmt.Sprintf("Linux %s, %s", release, runtime.GOARCH)
}

// medians of each count; one that a run has not is 0 there.
func medians(runs []map[string]float64) map[string]float64 {
	m := map[string]float64{}
	for _, one := range runs {
		for what := range one {
			m[what] = 0
		}
	}
	for what := range m {
		var v []float64
		for _, one := range runs {
			v = append(v, one[what])
		}
		slices.Sort(v)
		m[what] = v[len(v)/2]
	}
	return m
}

// bound is by how much a count may differ from the one before: a tenth, and what a tick more or less in a run, or a timer of the Go
// runtime, makes. Times depend on the machine; they may be twice as long.
func bound(what string, was float64) (low, high float64) {
	switch {
	case strings.Contains(what, "tracee"):
		return 0, 2*was + 100
	case strings.Contains(what, "bytes"):
		return 0.9*was - 64, 1.1*was + 64
	}
	return 0.9*was - 0.25, 1.1*was + 0.25
}

// report prints what was counted beside what was before, and returns how much of it has moved. beside: where other programs take CPUs the targets run for less, and
// a thread comes to its stop late.
func report(w io.Writer, now Counts, was Baseline, beside bool) (moved int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\tnow\tbaseline (%s)\t\n", was.Commit)
	for _, s := range scenes {
		if now[s.name] == nil {
			continue
		}
		fmt.Fprintf(t, "%s\t\t\t\n", s.name)
		all := maps.Clone(now[s.name])
		maps.Copy(all, was.Counts[s.name])
		for _, what := range slices.Sorted(maps.Keys(all)) {
			v, before := now[s.name][what], was.Counts[s.name][what]
			mark := ""
			low, high := bound(what, before)
			if beside {
				low = 0
				if strings.Contains(what, "tracee") {
					high = math.Inf(1)
				}
			}
			if v < low || v > high {
				mark = "MOVED"
				moved++
			}
			fmt.Fprintf(t, "  %s\t%.2f\t%.2f\t%s\n", what, v, before, mark)
		}
	}
	fmt.Fprintf(t, "%d moved\t\t\t\n", moved)
	return moved
}

type bench struct{ dir, tool string }

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) build() error {
	if out, err := exec.Command("cc", "-O2", "-pthread", "-o", b.file("work"), "bench/src/work.c").CombinedOutput(); err != nil {
		return fmt.Errorf("build work.c: %w\n%s(try: apt install gcc, and go run ./bench/counts from the folder of go.mod)", err, out)
	}
	if b.tool != "" {
		return nil
	}
	b.tool = b.file("sfsample")
	if out, err := exec.Command("go", "build", "-o", b.tool, "./cmd/sfsample").CombinedOutput(); err != nil {
		return fmt.Errorf("build sfsample: %w\n%s", err, out)
	}
	return nil
}

// count runs a scene once.
func (b *bench) count(s scene) (map[string]float64, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	cpu := 0
	for i := range 1024 {
		if set.IsSet(i) {
			cpu = i
		}
	}
	on := []string{"taskset", "-c", strconv.Itoa(cpu)}
	target := exec.Command(on[0], append(append(on[1:], b.file("work")), s.target...)...)
	in, err := target.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := target.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := target.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = target.Process.Kill() // it may have ended
		_ = target.Wait()
	}()
	said := bufio.NewScanner(out)
	said.Scan() // ready
	fmt.Fprintln(in, s.ms)
	if s.ms == "1" {
		said.Scan() // it has worked, and only sleeps from now on
	}
	data := b.file("perf.data")
	args := []string{"record", "-q", "-m", "4M", "-o", data,
		"-e", "raw_syscalls:sys_enter", "-e", "syscalls:sys_exit_process_vm_readv", "-e", "sched:sched_switch", "--"}
	sampler := append(append(on[:len(on):len(on)], b.tool, "-q", "-p", strconv.Itoa(target.Process.Pid), "-F", strconv.Itoa(s.hz), "-d", length.String(), "-o", "folded="+b.file("out")), s.flags...)
	if out, err := exec.Command("perf", append(args, sampler...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("perf record: %w\n%s(try: as root, with the package linux-perf)", err, out)
	}
	text, err := exec.Command("perf", "script", "-i", data, "--ns", "-F", "comm,tid,time,event,trace").Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w", err)
	}
	name := filepath.Base(b.tool)
	count, err := tally(text, name[:min(len(name), 15)], s.hz) // TASK_COMM_LEN
	if err != nil {
		return nil, err
	}
	n, err := allocated(b.tool, cpu, sampler) // in a run of its own: the probe doubles the time that stops take
	count["allocations a tick"] = math.Round(100*n/(window.Seconds()*float64(s.hz))) / 100
	return count, err
}

// names are of the system calls that are told one by one.
var names = map[int]string{unix.SYS_PROCESS_VM_READV: "process_vm_readv", unix.SYS_PTRACE: "ptrace", unix.SYS_WAIT4: "wait4", unix.SYS_PREAD64: "pread64",
	unix.SYS_READ: "read", unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_FUTEX: "futex", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep",
	unix.SYS_CLOCK_GETTIME: "clock_gettime", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_IOCTL: "ioctl",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_SCHED_YIELD: "sched_yield", unix.SYS_TGKILL: "tgkill", unix.SYS_TIMERFD_SETTIME: "timerfd_settime",
	unix.SYS_TIMER_SETTIME: "timer_settime", unix.SYS_RT_SIGRETURN: "rt_sigreturn", unix.SYS_MADVISE: "madvise", unix.SYS_WAITID: "waitid",
	unix.SYS_PRCTL: "prctl", unix.SYS_FSTAT: "fstat", unix.SYS_GETCPU: "getcpu", unix.SYS_GETTID: "gettid", unix.SYS_GETPID: "getpid", unix.SYS_WRITE: "write",
	unix.SYS_SCHED_GETSCHEDULER: "sched_getscheduler", unix.SYS_SCHED_SETATTR: "sched_setattr", unix.SYS_SCHED_GETATTR: "sched_getattr"}

// tally counts what perf script has told of programs of that name, by tick.
func tally(text []byte, name string, hz int) (map[string]float64, error) {
	var first, last time.Duration
	ticks := window.Seconds() * float64(hz)
	count, calls := map[string]float64{}, map[int]float64{}
	var bytesRead float64
	var tracee time.Duration
	seized := map[string]time.Duration{} // since when, by thread
	for line := range bytes.Lines(text) {
		// sfsample  1234  5678.123456789:  raw_syscalls:sys_enter: NR 101 (4206, 4d2, …)
		head, rest, ok := strings.Cut(string(line), ": ")
		f := strings.Fields(head)
		event, what, named := strings.Cut(strings.TrimSpace(rest), ": ")
		if !ok || !named || len(f) < 3 || !strings.HasPrefix(f[0], name) {
			continue // of taskset, before
		}
		secs, err := strconv.ParseFloat(f[len(f)-1], 64)
		if err != nil {
			return nil, fmt.Errorf("perf script: no time in %q", line)
		}
		at := time.Duration(secs * 1e9)
		if first == 0 {
			first = at
		}
		if last = at; at < first+warm || at >= first+warm+window {
			continue
		}
		switch event {
		case "raw_syscalls:sys_enter":
			var nr int
			var arg [2]uint64
			if _, err := fmt.Sscanf(what, "NR %d (%x, %x,", &nr, &arg[0], &arg[1]); err != nil {
				return nil, fmt.Errorf("perf script: %q: %w", line, err)
			}
			calls[nr]++
			count["system calls a tick"]++
			if nr != unix.SYS_PTRACE {
				continue
			}
			tid := strconv.FormatUint(arg[1], 10)
			switch arg[0] {
			case unix.PTRACE_SEIZE:
				seized[tid] = at
			case unix.PTRACE_INTERRUPT:
				count["stops a tick"]++
			case unix.PTRACE_DETACH:
				if since, ok := seized[tid]; ok {
					tracee += at - since
					delete(seized, tid)
				}
			}
		case "syscalls:sys_exit_process_vm_readv":
			n, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(what), "0x"), 16, 64)
			if err == nil && n > 0 {
				bytesRead += float64(n)
			}
		case "sched:sched_switch":
			if _, after, ok := strings.Cut(what, "prev_state="); ok && !strings.HasPrefix(after, "R") {
				count["wake-ups a tick"]++
			}
		}
	}
	if last < first+warm+window {
		return nil, errors.New("perf has told too little")
	}
	for nr, n := range calls {
		if n < ticks/20 {
			continue
		}
		call := names[nr]
		if call == "" {
			call = fmt.Sprintf("call %d", nr)
		}
		count["of these "+call] = n
	}
	for what := range count {
		count[what] /= ticks
	}
	count["bytes read a tick"] = bytesRead / ticks
	count["tracee, us a second"] = float64(tracee.Microseconds()) / window.Seconds()
	for what, v := range count {
		count[what] = math.Round(v*100) / 100
	}
	return count, nil
}
