package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lacking is the exit status of a program that finds that.
const lacking = 77

// errNotHere: the machine lacks what an attack takes.
var errNotHere = errors.New("not to be had on this machine")

// counts are the counters of a result line.
type counts map[string]int64

func parseCounts(line string) (counts, error) {
	rest, ok := strings.CutPrefix(line, "result ")
	if !ok {
		return nil, fmt.Errorf("the program says %q, want its result", line)
	}
	c := counts{}
	for _, word := range strings.Fields(rest) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the program says %q: %w", line, err)
		}
		c[name] = n
	}
	return c, nil
}

// trial is one run of an attack in a mode.
type trial struct {
	tool, program string
	attack        attack
	mode          mode
	rate          int
	length        time.Duration
	targets       int // of the one sfsample
}

func newTrial(tool, program string, a attack, m mode, rate int, length time.Duration) *trial {
	if a.hz != 0 {
		rate = a.hz
	}
	a.fails = a.fails && (a.about == "" || a.about == m.name)
	return &trial{tool, program, a, m, rate, max(length, a.least), 1}
}

// patience is how long anything may take that should take no time.
const patience = 30 * time.Second

// deadline is the end of all that a run starts.
func (t *trial) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), t.length+t.attack.prepares+patience)
}

// run makes the trial. The error says what broke. On a busy machine two programs may differ
// by chance: three times in a row they do not.
func (t *trial) run() (c counts, err error) {
	if !t.attack.alone {
		c, err := t.once()
		if err == nil && t.attack.ctrlC {
			err = t.interrupt()
		}
		return c, err
	}
	for range 3 {
		var p *target
		ctx, cancel := t.deadline()
		defer cancel()
		if p, err = t.startTarget(ctx); err != nil {
			return nil, err
		}
		c, err = t.once()
		if twin, err2 := p.finish(); err != nil || err2 != nil {
			return c, errors.Join(err, err2)
		} else if err = compare(c, twin); err == nil {
			break
		}
	}
	return c, err
}

func (t *trial) once() (counts, error) {
	ctx, cancel := t.deadline()
	defer cancel()
	if t.mode.command {
		return t.asCommand(ctx)
	}
	var list []*target
	var pids []string
	for range t.targets {
		p, err := t.startTarget(ctx)
		if err != nil {
			return nil, err // ctx ends the others
		}
		list, pids = append(list, p), append(pids, p.pids)
	}
	type result struct {
		counts
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := t.sample(ctx, strings.Join(pids, " "))
		done <- result{c, err}
	}()
	if t.attack.signal {
		time.Sleep(t.length / 2) // while it is sampled: any moment will do
		for _, p := range list {
			if err := p.say("now", "installed"); err != nil {
				<-done
				return nil, p.died(err)
			}
		}
	}
	r := <-done
	toolErr := r.err
	sum := r.counts
	for _, p := range list {
		p.in.Close() // all at once: those that go on keep the others from their ends
	}
	for _, p := range list {
		c, err := p.finish()
		var failure *toolFailure
		switch {
		case err != nil:
			return nil, errors.Join(toolErr, err)
		case toolErr != nil && !(t.attack.fails && errors.As(toolErr, &failure)):
			return nil, toolErr
		}
		sum.add(c)
		if err := t.judge(c); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// add adds others.
func (c counts) add(others counts) {
	for name, n := range others {
		c[name] += n
	}
}

// Counters of what sfsample says of itself: the stacks that it has taken, since one that takes nothing harms nobody, its ticks, those of threads, and what
// it has lost of these.
const (
	stacks      = "stacks"
	ticks       = "ticks"
	threadTicks = "thread ticks"
	lost        = "lost"
)

var (
	account = regexp.MustCompile(`(?m)^sfsample: \S+s, (\d+) ticks? \(\d+ late\), (\d+) thread ticks? = [^;\n]+(?:; lost: (\d+))?$`)
	unwound = regexp.MustCompile(`(?m)^sfsample: stacks: (\d+) unwound`)
	ofWhom  = regexp.MustCompile(`^(?:tid \d+|\d+ threads of pid \d+) .*?: (running \(R\))?`)
)

// told counts what a run of sfsample tells of, or the stacks that a dump shows. Where a thread runs all the time, only those of such threads count.
func (t *trial) told(stdout, stderr string) (counts, error) {
	c := counts{}
	if t.mode.dump {
		runs := ""
		for line := range strings.Lines(stdout) {
			if m := ofWhom.FindStringSubmatch(line); m != nil {
				runs = m[1]
			}
			if strings.HasPrefix(line, "#0 ") && (runs != "" || !spins(t)) {
				c[stacks]++
			}
		}
		return c, nil
	}
	a, u := account.FindStringSubmatch(stderr), unwound.FindStringSubmatch(stderr)
	if a == nil || u == nil {
		return c, fmt.Errorf("sfsample gives no account of its ticks or stacks: %s", strings.TrimSpace(stderr))
	}
	for name, number := range map[string]string{ticks: a[1], threadTicks: a[2], lost: a[3], stacks: u[1]} {
		c[name], _ = strconv.ParseInt(number, 10, 64) // none are lost: nothing is told of that
	}
	return c, nil
}

// spins: the program has a thread that runs all the time.
func spins(t *trial) bool { return t.attack.source == "fuse.c" }

// lacks says what sfsample has not done of what several runs were for. Of its ticks a tenth may be missing, since it begins late on a busy machine; with all CPUs busy
// tenfold up to half of what threads had was lost, and three quarters of what a thread had that is frozen nearly all the time.
func lacks(t *trial, sum counts, runs int) error {
	most := 0.75
	if t.attack.name == "memory frozen" {
		most = 0.95
	}
	switch made := int64(float64(runs*t.rate) * t.length.Seconds()); {
	case t.attack.fails:
	case !t.mode.dump && 10*sum[ticks] < 9*made:
		return fmt.Errorf("sfsample has made %d ticks of %d", sum[ticks], made)
	case float64(sum[lost]) > most*float64(sum[threadTicks]):
		return fmt.Errorf("sfsample has lost %d ticks of %d", sum[lost], sum[threadTicks])
	}
	return nil
}

func (t *trial) judge(c counts) error {
	switch {
	case c["wrong"] > 0:
		return fmt.Errorf("%d of %d results are wrong", c["wrong"], c["calls"])
	case c["eintr"] > 0 && !t.mode.eintr:
		return fmt.Errorf("%d of %d calls have returned EINTR", c["eintr"], c["calls"])
	case c["short"] > 0 && whole(&t.attack) && !t.mode.user && os.Getuid() == 0:
		return fmt.Errorf("%d of %d calls have done a part of what they were asked for", c["short"], c["calls"])
	case c["calls"] == 0:
		return errors.New("the program has done nothing")
	}
	return nil
}

// jiffy is the longest tick of a kernel's clock, in microseconds (CONFIG_HZ is 100 to 1000).
const jiffy = 10_000

// compare holds the times of calls against those of a twin that ran beside it and that nobody
// sampled: 2 % or a millisecond more or less, or a tick less where the limit is told in ticks.
func compare(c, twin counts) error {
	for name, us := range c {
		call, timed := strings.CutSuffix(name, "_us")
		alone := twin[name]
		slack := max(1000, alone/50)
		less := slack
		if strings.HasSuffix(call, "_jiffies") {
			less = max(slack, jiffy)
		}
		if timed && (us > alone+slack || us < alone-less) {
			return fmt.Errorf("%s takes %d µs, and %d where nobody samples", call, us, alone)
		}
	}
	return nil
}

// unbound has sfsample take what it can: else it takes less at 999 Hz where that costs a target more than 1 %.
var unbound = []string{"--max-overhead", "100", "--max-cpu", "100"}

// sample runs sfsample on processes for as long as the trial lasts, and counts what it takes.
func (t *trial) sample(ctx context.Context, pids string) (counts, error) {
	target := []string{"-p", pids}
	if !t.mode.dump {
		args := slices.Concat([]string{"-o", "/dev/null", "--hz", strconv.Itoa(t.rate), "-d", t.length.String()}, unbound, t.mode.flags, target)
		stdout, stderr, err := t.runTool(ctx, t.length, 0, args)
		c, untold := t.told(stdout, stderr) // one that fails may have taken some, too
		if err == nil {
			err = untold
		}
		return c, err
	}
	sum := counts{}
	for end := time.Now().Add(t.length); time.Now().Before(end); {
		stdout, stderr, err := t.runTool(ctx, 0, 0, target)
		if err != nil {
			return sum, err
		}
		c, _ := t.told(stdout, stderr)
		sum.add(c)
	}
	return sum, nil
}

// asCommand lets sfsample start the program, or a shell that starts several.
func (t *trial) asCommand(ctx context.Context) (counts, error) {
	args := append([]string{"-o", "/dev/null", "--hz", strconv.Itoa(t.rate)}, unbound...)
	if t.targets > 1 {
		const several = `n=$1; shift; while [ $n -gt 0 ]; do "$@" & n=$((n-1)); done; wait`
		args = append(args, "--children", "--", "sh", "-c", several, "sh", strconv.Itoa(t.targets), t.program)
	} else {
		args = append(args, "--", t.program)
	}
	args = append(args, t.attack.args...)
	stdout, stderr, err := t.runTool(ctx, t.length+t.attack.prepares, 0, append(args, fmt.Sprint(t.length.Seconds())))
	var failure *toolFailure
	if err != nil && !(t.attack.fails && errors.As(err, &failure)) {
		return nil, err
	}
	sum, untold := t.told(stdout, stderr)
	if err == nil && untold != nil {
		return nil, untold
	}
	told := 0
	for line := range strings.Lines(stdout) {
		if c, err := parseCounts(strings.TrimSpace(line)); err == nil {
			sum.add(c)
			told++
			if err := t.judge(c); err != nil {
				return sum, err
			}
		}
		if strings.HasPrefix(line, "lacks ") {
			return nil, errNotHere
		}
	}
	if told != t.targets {
		return nil, fmt.Errorf("a program has died: %d of %d have told a result", told, t.targets)
	}
	return sum, nil
}

// Bounds of sfsample itself, whatever the target is. Those of time are for what is not waited for CPUs: see [moment].
const (
	maxMemory = 256 << 10 // kilobytes
	// maxAfter is what it may take beyond the length of its run: it begins, reads what hangs for as long as an impatient user waits, and names.
	maxAfter = 3 * time.Second
	// afterCtrlC is how long it may go on after Ctrl-C: a second is promised; a process of ten thousand threads takes some time to exit.
	afterCtrlC = 1500 * time.Millisecond
	// afterHang is how much longer where a server does not answer: that one of its own threads hangs is known after 1.5 s.
	afterHang  = time.Second
	untilCtrlC = 300 * time.Millisecond // when that comes
)

// mayGoOn is how long sfsample may do so after Ctrl-C.
func mayGoOn(t *trial) time.Duration {
	if t.attack.mounts {
		return afterCtrlC + afterHang
	}
	return afterCtrlC
}

// moment is a point in time, and for how long somebody had waited for a CPU by then.
type moment struct {
	at      time.Time
	pressed time.Duration
}

// now reads a machine's clock and its pressure (Documentation/accounting/psi.rst). Of a kernel that does not tell that, CPUs count as busy all the time:
// what takes too long there is ended by patience alone.
func now() moment {
	m := moment{at: time.Now()}
	b, err := os.ReadFile("/proc/pressure/cpu")
	if _, total, ok := strings.Cut(string(b), "total="); ok && err == nil {
		total, _, _ = strings.Cut(total, "\n")
		us, _ := strconv.ParseInt(total, 10, 64)
		m.pressed = time.Duration(us) * time.Microsecond
	} else {
		m.pressed = time.Since(started)
	}
	return m
}

var started = time.Now()

// late tells whether the time that it took, in which nobody waited for a CPU, is more than is wanted and this beyond it: on a machine that is busy with other
// attacks all takes longer, if not share times.
func (m moment) late(begun moment, wanted, beyond time.Duration) bool {
	const share = 8
	took := m.at.Sub(begun.at) - wanted
	return took > share*beyond || took-(m.pressed-begun.pressed) > beyond
}

// toolFailure is the end of sfsample with a reason.
type toolFailure struct {
	state *os.ProcessState
	text  string
}

func (e *toolFailure) Error() string { return fmt.Sprintf("sfsample: %v: %s", e.state, e.text) }

// runTool runs sfsample, and ends it by Ctrl-C after ctrlC, if that is not 0. One that does not end tells where its goroutines are. Where it starts the
// target, that one's memory is counted with its own (wait4(2)).
func (t *trial) runTool(ctx context.Context, length, ctrlC time.Duration, args []string) (stdout, text string, err error) {
	var out, errs bytes.Buffer
	cmd := t.toolCommand(ctx, args)
	cmd.Stdout, cmd.Stderr = &out, &errs
	begun := now()
	interrupted, ended, err := waitFor(cmd, ctrlC)
	var exit *exec.ExitError
	until, _ := ctx.Deadline()
	if errors.Is(err, context.DeadlineExceeded) && ended.at.Before(until) { // it was reaped late
		err = nil
	}
	if ctrlC > 0 && t.mode.command && errors.Is(err, exec.ErrWaitDelay) { // the command goes on
		err = nil
	}
	signal := syscall.Signal(0)
	if errors.As(err, &exit) {
		signal = exit.Sys().(syscall.WaitStatus).Signal()
	}
	switch {
	case ended.at.After(until):
		return "", "", fmt.Errorf("sfsample does not end:\n%s", bytes.TrimSpace(errs.Bytes()))
	case exit != nil && exit.ExitCode() == lacking: // the command's
		return "", "", errNotHere
	case exit != nil && exit.ExitCode() == 1:
		return out.String(), errs.String(), &toolFailure{exit.ProcessState, string(bytes.TrimSpace(errs.Bytes()))}
	case signal == syscall.SIGINT && ctrlC > 0:
		return "", "", errEarly
	case exit != nil:
		return "", "", fmt.Errorf("sfsample: %v: %s", exit, bytes.TrimSpace(errs.Bytes()))
	case ctrlC == 0 && ended.late(begun, length, maxAfter):
		return "", "", fmt.Errorf("sfsample takes %v for a run of %v", ended.at.Sub(begun.at), length)
	case ctrlC > 0 && interrupted.at.IsZero():
		return "", "", fmt.Errorf("sfsample ends before Ctrl-C: %s", bytes.TrimSpace(errs.Bytes()))
	case ctrlC > 0 && ended.late(interrupted, 0, mayGoOn(t)):
		return "", "", fmt.Errorf("sfsample goes on for %v after Ctrl-C", ended.at.Sub(interrupted.at))
	}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && used.Maxrss > maxMemory && !t.mode.command {
		return "", "", fmt.Errorf("sfsample uses %d MB of memory", used.Maxrss>>10)
	}
	return out.String(), errs.String(), err
}

// waitFor starts a program, ends it by Ctrl-C after a while (0: never; the time is zero if it has ended before), and waits for it. It tells when that has
// ended, which its parent may learn much later: to reap it takes the kernel
// many seconds where others do so and something reads /proc (release_task, kernel/exit.c; shrink_dcache_parent, fs/dcache.c). Seen on Linux
// 6.18 while tasks of the root group got no CPU beside one busy autogroup (sched(7)): with kernel.sched_autogroup_enabled=0 it was not.
func waitFor(cmd *exec.Cmd, ctrlC time.Duration) (interrupted, end moment, err error) {
	if err := cmd.Start(); err != nil {
		return interrupted, now(), err
	}
	ended, err := endOf(cmd.Process.Pid)
	if err != nil {
		return interrupted, now(), errors.Join(err, cmd.Wait())
	}
	if ctrlC > 0 {
		select {
		case end := <-ended:
			return interrupted, end, cmd.Wait()
		case <-time.After(ctrlC):
			interrupted = now()
			_ = cmd.Process.Signal(os.Interrupt) // it may have ended just now
		}
	}
	err = cmd.Wait()
	return interrupted, <-ended, err
}

// endOf tells when a process ends, which is not reaped yet.
func endOf(pid int) (<-chan moment, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	ended := make(chan moment, 1)
	go func() {
		defer unix.Close(fd)
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
				ended <- now()
				return
			}
		}
	}()
	return ended, nil
}

// toolCommand is sfsample as the mode and the attack want it.
func (t *trial) toolCommand(ctx context.Context, args []string) *exec.Cmd {
	args = append(slices.Clone(t.attack.asks), args...)
	if t.mode.dump {
		args = append([]string{"dump"}, args...)
	}
	cmd := exec.CommandContext(ctx, t.tool, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it tells where its goroutines are
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if t.mode.user {
		cmd.SysProcAttr.Credential = nobody
	}
	return cmd
}

// errEarly: Ctrl-C came before sfsample had begun to listen to it.
var errEarly = errors.New("sfsample is ended by Ctrl-C without a result")

// interrupt runs sfsample without an end of its own, and ends it by Ctrl-C. On a busy machine it may not have begun by then.
func (t *trial) interrupt() error {
	for wait := untilCtrlC; ; wait *= 2 {
		if err := interruptAfter(t, wait); !errors.Is(err, errEarly) || wait > patience/5 {
			return err
		}
	}
}

func interruptAfter(t *trial, wait time.Duration) error {
	ctx, cancel := t.deadline()
	defer cancel()
	args := append([]string{"-o", "/dev/null", "--hz", strconv.Itoa(t.rate)}, t.mode.flags...)
	var list []*target
	switch {
	case t.mode.command: // which goes on
		args = append(append(append(args, "--", t.program), t.attack.args...), fmt.Sprint((wait + mayGoOn(t) + time.Second).Seconds()))
	default:
		p, err := t.startTarget(ctx)
		if err != nil {
			return err
		}
		if t.mode.dump {
			args = []string{"--watch", "50ms"}
		}
		list, args = append(list, p), append(args, "-p", p.pids)
	}
	_, stderr, err := t.runTool(ctx, 0, wait, args)
	var failure *toolFailure
	if t.attack.fails && errors.As(err, &failure) {
		err = nil
	} else if err == nil && !t.mode.dump && !account.MatchString(stderr) {
		err = fmt.Errorf("sfsample has no result after Ctrl-C: %s", strings.TrimSpace(stderr))
	}
	for _, p := range list {
		c, end := p.finish()
		if end == nil {
			end = t.judge(c)
		}
		err = errors.Join(err, end)
	}
	return err
}

// target is a program under attack.
type target struct {
	cmd  *exec.Cmd
	pids string // to attach to: its own, or those that it names
	in   io.WriteCloser
	out  *bufio.Reader
}

// nobody is the ordinary user of some modes.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

func (t *trial) startTarget(ctx context.Context) (*target, error) {
	cmd := exec.CommandContext(ctx, t.program, t.attack.args...)
	// With its helpers: what waits for a silent file server, also sfsample, goes on when that is gone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
			return err
		}
		return os.ErrProcessDone // so that Wait tells that the time is over
	}
	switch {
	case t.mode.user && t.attack.mounts:
		cmd.Env = append(os.Environ(), fmt.Sprint("ATTACK_UID=", nobody.Uid))
	case t.mode.user:
		cmd.SysProcAttr.Credential = nobody
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr // what went wrong, in its own words
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &target{cmd, strconv.Itoa(cmd.Process.Pid), in, bufio.NewReader(out)}
	line, err := p.out.ReadString('\n')
	word, others, named := strings.Cut(strings.TrimSpace(line), " ")
	if named {
		p.pids = others
	}
	if err != nil || word != "ready" {
		return nil, p.died(errors.Join(err, fmt.Errorf("the program says %q, want ready", line)))
	}
	return p, nil
}

// want reads a line.
func (p *target) want(text string) error {
	line, err := p.out.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != text {
		err = fmt.Errorf("the program says %q, want %s", line, text)
	}
	return err
}

// say writes a line and reads the answer.
func (p *target) say(text, answer string) error {
	if _, err := fmt.Fprintln(p.in, text); err != nil {
		return err
	}
	return p.want(answer)
}

// died ends a program that is not what it should be, and tells why; err if it ends
// in order.
func (p *target) died(err error) error {
	p.in.Close()
	end := p.cmd.Wait()
	if p.cmd.ProcessState.ExitCode() == lacking {
		return errNotHere
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return fmt.Errorf("the program has died: %v", status.Signal())
	}
	return errors.Join(err, end)
}

// finish lets the program end and reads its counters.
func (p *target) finish() (counts, error) {
	p.in.Close()
	line, err := p.out.ReadString('\n')
	if err != nil {
		return nil, p.died(fmt.Errorf("the program has told no result: %w", err))
	}
	c, err := parseCounts(strings.TrimSpace(line))
	if end := p.cmd.Wait(); err == nil {
		err = end
	}
	return c, err
}
