// Fault lets things go wrong around sfsample, and looks whether it ends with a word, whether its target goes on, and whether what it has
// written is whole and true.
//
//	go run ./tools/fault [-runs 200] [-only TEXT] [-tool FILE] [-clock]
//
// The faults are
//
//	killed   the target is killed at one of sfsample's system calls, in each run at another, over all that it makes
//	late     one of its system calls takes 20 ms more, likewise
//	stopped  it is stopped for 20 ms (SIGSTOP, SIGCONT), in each run later
//	paused   the target is, likewise
//	frozen   the target is frozen for 20 ms with its cgroup, likewise, by each kind of cgroup that can
//	memory   reads of the target's memory fail or end early: one of them, at each number of pages, or all
//	files    reads of files fail or end early: one of them, or all
//	calls    one of its system calls returns an error that it could return
//	open     it may have so many open files, from 12 on
//	address  it may have so much memory, of all kinds
//	full     the file to be written may have so many bytes
//	pipe     who reads its output closes that after so many bytes
//	clock    (with -clock alone: it sets the machine's clock) the time of day goes forth and back by an hour
//
// A target that was not killed must run on, stopped and traced by nobody; its stack is known, and no other one may be in the output, but one that
// is cut and says so. sfsample must end in time, with status 0 or 1, without a panic. The exit status is 1 if something broke.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	runs := flag.Int("runs", 200, "runs of each fault")
	only := flag.String("only", "", "faults whose names contain this `text`")
	tool := flag.String("tool", "", "the `program` to try (default: ./cmd/sfsample, built now)")
	clock := flag.Bool("clock", false, "set the machine's clock, too")
	flag.Parse()
	broke, err := all(*tool, *only, *runs, *clock, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
	}
	if err != nil || broke > 0 {
		os.Exit(1)
	}
}

// all lets everything go wrong and prints a line for each fault. It returns in how many runs something broke.
func all(tool, only string, runs int, clock bool, w io.Writer) (broke int, err error) {
	dir, err := os.MkdirTemp("", "fault")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if tool == "" {
		tool = filepath.Join(dir, "sfsample")
		cmd := exec.Command("go", "build", "-o", tool, "./cmd/sfsample")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released: the dynamic linker's own calls are not asked
		if text, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("go build ./cmd/sfsample (run this in the module's top folder): %w\n%s", err, text)
		}
	}
	b := &bench{tool: tool, out: filepath.Join(dir, "out")}
	if err := b.count(); err != nil {
		return 0, err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "fault\truns\tended well\twith an error\tby a signal\tstacks whole\tcut\tbroke\t")
	for _, f := range faults {
		if !strings.Contains(f.name, only) || f.name == "clock" && !clock {
			continue
		}
		if f.lacks != nil && f.lacks() != "" {
			fmt.Fprintf(w, "left out: %s: %s\n", f.name, f.lacks())
			continue
		}
		n, err := b.try(f, runs, w, t)
		if broke += n; err != nil {
			return broke, err
		}
	}
	return broke, nil
}

// try lets a fault happen in so many runs. It tells w what broke, and the table a line.
func (b *bench) try(f fault, runs int, w, table io.Writer) (broke int, err error) {
	var sum tally
	for i := range runs {
		p, err := b.start()
		if err != nil {
			return broke, err
		}
		run := f.run(p, float64(i)/float64(runs), i)
		for _, what := range p.judge(&run, f.dies) {
			sum.broke++
			fmt.Fprintf(w, "%s, run %d of %d: %s\n%s\n", f.name, i, runs, what, run.said)
		}
		sum.add(&run, p)
		p.end()
	}
	if sum.whole == 0 {
		sum.broke++
		fmt.Fprintf(w, "%s: not one stack is whole\n", f.name)
	}
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", f.name, runs, sum.well, sum.failed, sum.signalled, sum.whole, sum.cut, sum.broke)
	return sum.broke, nil
}

// tally is what became of the runs of a fault.
type tally struct{ well, failed, signalled, whole, cut, broke int }

func (s *tally) add(r *result, p *place) {
	switch {
	case r.status.Signaled():
		s.signalled++
	case r.status.ExitStatus() == 0:
		s.well++
	default:
		s.failed++
	}
	s.whole += p.whole
	s.cut += p.cut
}

// bench is what all runs share.
type bench struct {
	tool, out string
	calls     int // how many calls a run of sfsample makes, about
	failing   int // how many of them may fail
}

// place is a target that is sampled once.
type place struct {
	*bench
	target     *exec.Cmd
	stack      []string // of the target, outermost first
	whole, cut int      // stacks that were found
	killed     bool     // the target was
}

// start starts a target that has told its stack.
func (b *bench) start() (*place, error) {
	bin := filepath.Join("testdata", "bin", runtime.GOARCH, "sframe3-dyn")
	p := &place{bench: b, target: exec.Command(filepath.Join(bin, "deep"), "s", "40")}
	p.target.Env = append(os.Environ(), "LD_LIBRARY_PATH="+bin)
	p.target.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.target.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.target.Start(); err != nil {
		return nil, fmt.Errorf("%w (run this in the module's top folder)", err)
	}
	line, err := bufio.NewReaderSize(out, 1<<16).ReadString('\n')
	frames, ok := strings.CutPrefix(strings.TrimSpace(line), "stack ")
	if err != nil || !ok {
		p.end()
		return nil, fmt.Errorf("the target says %q: %w", line, err)
	}
	p.stack = strings.Fields(frames)
	return p, nil
}

func (p *place) pid() int { return p.target.Process.Pid }

// kill kills the target.
func (p *place) kill() {
	_ = p.target.Process.Kill() // it is not reaped yet
	p.killed = true
}

func (p *place) end() {
	_ = p.target.Process.Kill() // it may have been
	_ = p.target.Wait()
	left, _ := filepath.Glob(p.out + "*") // the pattern is right
	for _, name := range append(left, p.saved()...) {
		_ = os.Remove(name)
	}
}

// command is sfsample on the target for 150 ms, perhaps below another program.
func (p *place) command(before ...string) *exec.Cmd {
	args := append(before, p.tool, "-p", strconv.Itoa(p.pid()), "-F", "199", "-d", length.String(), "--max-overhead", "50%", "-o", "folded="+p.out)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(p.out)) // what it cannot write it saves there
	return cmd
}

const (
	length = 150 * time.Millisecond // of a run
	hold   = 20 * time.Millisecond  // for how long something is held up
)

// goes stands behind what was said when somebody may still say more.
const goes = "(its standard error is not closed)"

// limit is how long a run may take: it has to end by itself 0.9 s after its time, here with each call slowed down.
var limit = 15 * time.Second

// result is what became of a run.
type result struct {
	status syscall.WaitStatus
	calls  int
	hung   bool
	err    error
	said   string
	output []byte // nil: of the file
}

// run runs sfsample with what goes wrong.
func (p *place) run(cmd *exec.Cmd, in injector) (r result) {
	said, w, err := os.Pipe() // no file: its size may be limited
	if err != nil {
		return result{err: err}
	}
	defer said.Close()
	cmd.Stderr = w
	text := make(chan string, 1)
	go func() {
		b, err := io.ReadAll(said)
		if err != nil {
			b = append(b, goes...)
		}
		text <- string(b)
	}()
	if in.enter != nil || in.leave != nil {
		r.status, r.calls, r.hung, r.err = in.follow(cmd, limit)
	} else {
		r.status, r.hung, r.err = await(cmd, in.during)
	}
	w.Close()
	_ = said.SetReadDeadline(time.Now().Add(time.Second)) // a pipe has them
	r.said = <-text
	return r
}

// await runs a command that may not take longer than the limit.
func await(cmd *exec.Cmd, during func(pid int)) (status syscall.WaitStatus, hung bool, err error) {
	if err := cmd.Start(); err != nil {
		return 0, false, err
	}
	late := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		close(late)
		_ = cmd.Process.Kill() // it may have ended in this moment
	})
	defer timer.Stop()
	if during != nil {
		during(cmd.Process.Pid)
	}
	err = cmd.Wait()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = nil
	}
	select {
	case <-late:
		hung = true
	default:
	}
	return cmd.ProcessState.Sys().(syscall.WaitStatus), hung, err
}

// judge says what broke.
func (p *place) judge(r *result, dies bool) (broke []string) {
	status := r.status
	switch {
	case r.err != nil:
		return []string{r.err.Error()}
	case r.hung:
		broke = append(broke, fmt.Sprintf("it has not ended in %v", limit))
	case dies && (status.Signaled() || status.ExitStatus() == 2):
		// The Go runtime ends a program that gets no memory.
	case status.Signaled() || status.ExitStatus() > 1:
		broke = append(broke, fmt.Sprintf("status %#x", status))
	case status.ExitStatus() == 1 && r.said == "":
		broke = append(broke, "it fails without a word")
	case status.ExitStatus() == 0 && !p.wrote(r):
		broke = append(broke, "it ends well and has written nothing")
	}
	if !dies && !r.hung {
		left, _ := filepath.Glob(p.out + ".*") // the pattern is right
		for _, name := range append(left, p.saved()...) {
			if !strings.Contains(r.said, name) {
				broke = append(broke, "it leaves "+name+" without a word")
			}
		}
	}
	if strings.Contains(r.said, goes) {
		broke = append(broke, "it leaves a process")
	}
	if !dies && (strings.Contains(r.said, "panic:") || strings.Contains(r.said, "goroutine ") || strings.Contains(r.said, "fatal error")) {
		broke = append(broke, "it panics")
	}
	if strings.ContainsFunc(strings.ReplaceAll(r.said, "\n", ""), func(c rune) bool { return c < ' ' && c != '\t' && c != '\r' || c == 0x7f }) {
		broke = append(broke, "it writes control characters")
	}
	if err := p.check(r); err != nil {
		broke = append(broke, err.Error())
	}
	if !p.killed {
		if err := p.goesOn(); err != nil {
			broke = append(broke, err.Error())
		}
	}
	return broke
}

// wrote tells whether there is an output.
func (p *place) wrote(r *result) bool {
	_, err := os.Stat(p.out)
	return err == nil || r.output != nil
}

// check looks at what was written, or saved elsewhere: no file, or whole lines of the stack that the target has, or of its inner end.
func (p *place) check(r *result) error {
	if r.output != nil {
		return p.lines(r.output[:bytes.LastIndexByte(r.output, '\n')+1]) // who reads has closed in its midst
	}
	for _, name := range append(p.saved(), p.out) {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = p.lines(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// saved are files that sfsample has written because it could not write the output.
func (p *place) saved() []string {
	list, _ := filepath.Glob(filepath.Join(filepath.Dir(p.out), "sfsample-*")) // the pattern is right
	return list
}

func (p *place) lines(text []byte) error {
	for line := range bytes.Lines(text) {
		stack, n, ok := cutLast(strings.TrimSuffix(string(line), "\n"), " ")
		if _, err := strconv.Atoi(n); !ok || err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			return fmt.Errorf("the output has the line %.100q", line)
		}
		if err := p.stackIs(strings.Split(stack, ";")[1:]); err != nil { // the first is the process
			return err
		}
	}
	return nil
}

// nameless is a frame of which no name could be read: MODULE+0x…, MODULE:fn_…
var nameless = regexp.MustCompile(`^[^;]*(\+0x|:fn_)[0-9a-f]+$`)

// stackIs says what is wrong with a stack, outermost frame first: without a word in brackets it has to be the target's, with one frames may be missing
// there.
func (p *place) stackIs(frames []string) error {
	left, gap, cut := slices.Clone(p.stack), false, false
	for _, f := range slices.Backward(frames) {
		if strings.HasPrefix(f, "[") {
			gap, cut = true, true
			continue
		}
		for gap && len(left) > 0 && left[len(left)-1] != f && !nameless.MatchString(f) {
			left = left[:len(left)-1]
		}
		if len(left) == 0 || left[len(left)-1] != f && !nameless.MatchString(f) {
			return fmt.Errorf("the target has not the stack %s", strings.Join(frames, ";"))
		}
		left, gap = left[:len(left)-1], false
	}
	switch {
	case cut:
		p.cut++
	case len(left) > 0:
		return fmt.Errorf("a stack ends without a word: %s", strings.Join(frames, ";"))
	default:
		p.whole++
	}
	return nil
}

// cutLast cuts s around the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// goesOn says what keeps the target from running.
func (p *place) goesOn() error {
	was, runs := p.used(), false
	for end := time.Now().Add(limit); !runs && time.Now().Before(end); time.Sleep(time.Millisecond) {
		runs = p.used() > was+2*time.Millisecond.Nanoseconds() // a stop takes a moment to arrive
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		return err
	}
	if !runs || !bytes.Contains(text, []byte("\nTracerPid:\t0\n")) {
		return fmt.Errorf("the target is left behind:\n%s", text[:min(len(text), 200)])
	}
	return nil
}

// used is the CPU time of the target: the first number of /proc/PID/schedstat (Documentation/scheduler/sched-stats.rst).
func (p *place) used() (ns int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.pid())) // 0, if it is gone
	_, _ = fmt.Sscan(string(text), &ns)
	return ns
}

// fault is a way to go wrong.
type fault struct {
	name string
	dies bool // what the kernel does of it may end sfsample
	// lacks is what the machine has not got for it, "": nothing. nil: it needs nothing.
	lacks func() string
	// run does run number i of it; part is which part of the runs came before.
	run func(p *place, part float64, i int) result
}

var faults = []fault{
	{name: "killed", run: func(p *place, part float64, _ int) result { return p.at(part, p.kill) }},
	{name: "late", run: func(p *place, part float64, _ int) result {
		return p.at(part, func() { time.Sleep(hold) })
	}},
	{name: "stopped", run: func(p *place, part float64, _ int) result {
		return p.run(p.command(), injector{during: func(pid int) { halt(pid, part) }})
	}},
	{name: "paused", run: func(p *place, part float64, _ int) result {
		return p.run(p.command(), injector{during: func(int) { halt(p.pid(), part) }})
	}},
	{name: "frozen", lacks: func() string {
		if len(freezers()) == 0 {
			return "no cgroup can be made here that freezes (try: as root)"
		}
		return ""
	}, run: func(p *place, part float64, i int) result {
		var err error
		list := freezers()
		r := p.run(p.command(), injector{during: func(int) { err = list[i%len(list)].hold(p.pid(), part) }})
		r.err = errors.Join(r.err, err)
		return r
	}},
	{name: "memory", run: func(p *place, part float64, i int) result {
		return p.tamper([]int64{unix.SYS_PROCESS_VM_READV}, part, i)
	}},
	{name: "files", run: func(p *place, part float64, i int) result {
		return p.tamper([]int64{unix.SYS_PREAD64, unix.SYS_READ}, part, i)
	}},
	{name: "calls", run: func(p *place, part float64, i int) result {
		one, met := pick(p.failing, part), 0
		return p.run(p.command(), injector{enter: func(c call) unix.Errno {
			errs := mayFail(c)
			if len(errs) == 0 {
				return 0
			}
			if met++; met-1 != one {
				return 0
			}
			return errs[i%len(errs)]
		}})
	}},
	{name: "open", run: func(p *place, part float64, i int) result {
		// With fewer the Go runtime ends before main.
		return p.run(p.command("prlimit", fmt.Sprintf("--nofile=%d:%[1]d", 12+int(part*150))), injector{})
	}},
	{name: "address", dies: true, run: func(p *place, part float64, i int) result {
		return p.run(p.command("prlimit", fmt.Sprintf("--as=%d", int64(part*float64(2<<30)))), injector{})
	}},
	{name: "full", run: func(p *place, part float64, i int) result {
		return p.run(p.command("prlimit", fmt.Sprintf("--fsize=%d", int(part*part*4000))), injector{})
	}},
	{name: "pipe", run: func(p *place, part float64, i int) result {
		cmd := p.command()
		cmd.Args[len(cmd.Args)-1] = "folded=-"
		r, w, err := os.Pipe()
		if err != nil {
			return result{err: err}
		}
		cmd.Stdout = w
		got := make(chan []byte, 1)
		go func() {
			text := make([]byte, int(part*part*4000))
			n, _ := io.ReadFull(r, text) // it may write less
			r.Close()
			got <- text[:n]
		}()
		res := p.run(cmd, injector{})
		w.Close()
		res.output = <-got
		return res
	}},
	{name: "clock", run: func(p *place, part float64, i int) result {
		var err error
		r := p.run(p.command(), injector{during: func(int) {
			time.Sleep(time.Duration(part * float64(length)))
			err = step(time.Hour)
			time.Sleep(hold)
			err = errors.Join(err, step(-time.Hour))
		}})
		r.err = errors.Join(r.err, err)
		return r
	}},
}

// halt stops a process for a moment when a part of the run is over.
func halt(pid int, part float64) {
	time.Sleep(time.Duration(part * float64(length)))
	_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended, and is not reaped
	time.Sleep(hold)
	_ = unix.Kill(pid, unix.SIGCONT)
}

// mayFail are errors that a call may return at any time (man pages of section 2): of resources, of what is gone, of what is forbidden.
func mayFail(c call) []unix.Errno {
	if c.nr == unix.SYS_WRITE && c.args[2] == 8 {
		return nil // the Go runtime's to an eventfd, which it cannot do without
	}
	return failures[c.nr]
}

var failures = map[int64][]unix.Errno{
	unix.SYS_PTRACE: {unix.ESRCH, unix.EPERM, unix.EIO}, unix.SYS_WAIT4: {unix.ECHILD, unix.EINTR}, unix.SYS_WAITID: {unix.ECHILD, unix.EINTR},
	unix.SYS_PROCESS_VM_READV: {unix.ESRCH, unix.EPERM, unix.EFAULT, unix.ENOMEM}, unix.SYS_PREAD64: {unix.ESRCH, unix.EIO}, unix.SYS_READ: {unix.ESRCH, unix.EIO},
	unix.SYS_OPENAT: {unix.EMFILE, unix.ENOENT, unix.EACCES, unix.ENOMEM, unix.ESRCH}, unix.SYS_GETDENTS64: {unix.ENOENT}, unix.SYS_READLINKAT: {unix.ENOENT, unix.EACCES},
	unix.SYS_WRITE: {unix.ENOSPC, unix.EIO}, unix.SYS_RENAMEAT: {unix.ENOSPC, unix.EACCES}, unix.SYS_FTRUNCATE: {unix.EIO}, unix.SYS_UNLINKAT: {unix.EACCES}, unix.SYS_IOCTL: {unix.ENOTTY},
	unix.SYS_SCHED_SETAFFINITY: {unix.EINVAL}, unix.SYS_SCHED_SETATTR: {unix.EPERM}, unix.SYS_SCHED_SETSCHEDULER: {unix.EPERM}, unix.SYS_SETPRIORITY: {unix.EACCES},
	unix.SYS_PERF_EVENT_OPEN: {unix.EACCES, unix.EMFILE, unix.ENODEV}, unix.SYS_PIDFD_OPEN: {unix.EMFILE, unix.ENOSYS}, unix.SYS_MEMFD_CREATE: {unix.EMFILE, unix.ENOSYS},
	unix.SYS_PRCTL: {unix.EINVAL}, unix.SYS_STATFS: {unix.EACCES}, unix.SYS_FCHMOD: {unix.EPERM}, unix.SYS_PRLIMIT64: {unix.EPERM},
}

// at does something at a system call.
func (p *place) at(part float64, do func()) result {
	one := pick(p.calls, part)
	return p.run(p.command(), injector{enter: func(c call) unix.Errno {
		if c.n == one {
			do()
		}
		return 0
	}})
}

// pick is the number of a call of so many.
func pick(calls int, part float64) int { return int(part * float64(calls)) }

// count fills in calls and failing.
func (b *bench) count() error {
	p, err := b.start()
	if err != nil {
		return err
	}
	defer p.end()
	r := p.run(p.command(), injector{enter: func(c call) unix.Errno {
		if len(mayFail(c)) > 0 {
			b.failing++
		}
		return 0
	}})
	b.calls = r.calls
	if r.err == nil && (r.hung || r.status.ExitStatus() != 0) {
		r.err = fmt.Errorf("sfsample fails without a fault: status %#x\n%s", r.status, r.said)
	}
	return errors.Join(r.err, p.check(&r))
}

// tamper lets one of these calls fail or end early, or all: by turns an error, nothing, the first byte, the first pages, all but a page.
func (p *place) tamper(which []int64, part float64, i int) result {
	from, met := pick(p.calls, part), 0
	const page = 4096
	return p.run(p.command(), injector{leave: func(c call, result int64) int64 {
		if c.n < from || !slices.Contains(which, c.nr) || result <= 0 {
			return result
		}
		if met++; met > 1 && i%7 != 6 || met > 1 && met%(2+i/7%5) != 0 { // the first from there on; in each seventh run many
			return result
		}
		switch i % 6 {
		case 0:
			return -int64(unix.EFAULT)
		case 1:
			return -int64(unix.ESRCH)
		case 2:
			return 0
		case 3:
			return 1
		case 4:
			return min(result, int64(i/6%4+1)*page)
		}
		return max(result-page, result/2)
	}})
}

// step moves the machine's time of day.
func step(by time.Duration) error {
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set the clock: %w (try: as root)", err)
	}
	return nil
}
