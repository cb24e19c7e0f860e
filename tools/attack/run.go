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
	"strconv"
	"strings"
	"syscall"
	"time"
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
	attack
	mode
	rate    int
	length  time.Duration
	targets int // of the one sfsample
}

func newTrial(tool, program string, a attack, m mode, rate int, length time.Duration) *trial {
	if a.hz != 0 {
		rate = a.hz
	}
	return &trial{tool, program, a, m, rate, max(length, a.least), 1}
}

// patience is how long anything may take that should take no time.
const patience = 30 * time.Second

// run makes the trial. The error says what broke. On a busy machine two programs may differ
// by chance: three times in a row they do not.
func (t *trial) run() (c counts, err error) {
	if !t.alone {
		return t.once()
	}
	for range 3 {
		var p *target
		ctx, cancel := context.WithTimeout(context.Background(), t.length+patience)
		defer cancel()
		if p, err = startTarget(ctx, t.program, t.args); err != nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), t.length+patience)
	defer cancel()
	if t.command {
		return t.asCommand(ctx)
	}
	var list []*target
	var pids []string
	for range t.targets {
		p, err := startTarget(ctx, t.program, t.args)
		if err != nil {
			return nil, err // ctx ends the others
		}
		list, pids = append(list, p), append(pids, strconv.Itoa(p.pid))
	}
	type result struct {
		stacks int64
		err    error
	}
	done := make(chan result, 1)
	go func() {
		n, err := t.sample(ctx, strings.Join(pids, " "))
		done <- result{n, err}
	}()
	if t.signal {
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
	sum := counts{stacks: r.stacks}
	for _, p := range list {
		c, err := p.finish()
		var failure *toolFailure
		switch {
		case err != nil:
			return nil, errors.Join(toolErr, err)
		case toolErr != nil && !(t.fails && errors.As(toolErr, &failure)):
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

// stacks is the counter of what sfsample has taken, which it says itself: one that takes nothing harms nobody.
const stacks = "stacks"

var unwound = regexp.MustCompile(`(?m)^sfsample: stacks: (\d+) unwound`)

// stacksOf counts the stacks that a run of sfsample tells of, or those that a dump shows.
func (t *trial) stacksOf(stdout, stderr string) (n int64) {
	if t.dump {
		return int64(strings.Count("\n"+stdout, "\n#0 "))
	}
	if m := unwound.FindStringSubmatch(stderr); m != nil {
		n, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return n
}

func (t *trial) judge(c counts) error {
	switch {
	case c["wrong"] > 0:
		return fmt.Errorf("%d of %d results are wrong", c["wrong"], c["calls"])
	case c["eintr"] > 0 && !t.eintr:
		return fmt.Errorf("%d of %d calls have returned EINTR", c["eintr"], c["calls"])
	case c["calls"] == 0:
		return errors.New("the program has done nothing")
	}
	return nil
}

// compare holds the times of calls against those of a twin that ran beside it and that nobody
// sampled: 2 % or a millisecond more.
func compare(c, twin counts) error {
	for name, us := range c {
		alone := twin[name]
		if strings.HasSuffix(name, "_us") && us > alone+max(1000, alone/50) {
			return fmt.Errorf("%s takes %d µs, and %d where nobody samples", strings.TrimSuffix(name, "_us"), us, alone)
		}
	}
	return nil
}

// sample runs sfsample on processes for as long as the trial lasts, and counts the stacks that it takes.
func (t *trial) sample(ctx context.Context, pids string) (n int64, err error) {
	target := []string{"-p", pids}
	if !t.dump {
		args := append([]string{"-o", "/dev/null", "--hz", strconv.Itoa(t.rate), "-d", t.length.String()}, t.flags...)
		stdout, stderr, err := runTool(ctx, t.length, t.tool, append(args, target...))
		return t.stacksOf(stdout, stderr), err
	}
	for end := time.Now().Add(t.length); time.Now().Before(end); {
		stdout, stderr, err := runTool(ctx, 0, t.tool, append([]string{"dump"}, target...))
		n += t.stacksOf(stdout, stderr)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// asCommand lets sfsample start the program, or a shell that starts several.
func (t *trial) asCommand(ctx context.Context) (counts, error) {
	args := []string{"-o", "/dev/null", "--hz", strconv.Itoa(t.rate)}
	if t.targets > 1 {
		const several = `n=$1; shift; while [ $n -gt 0 ]; do "$@" & n=$((n-1)); done; wait`
		args = append(args, "--children", "--", "sh", "-c", several, "sh", strconv.Itoa(t.targets), t.program)
	} else {
		args = append(args, "--", t.program)
	}
	args = append(args, t.args...)
	stdout, stderr, err := runTool(ctx, t.length, t.tool, append(args, fmt.Sprint(t.length.Seconds())))
	if err != nil {
		return nil, err
	}
	sum, told := counts{stacks: t.stacksOf(stdout, stderr)}, 0
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

// Bounds of sfsample itself, whatever the target is.
const (
	maxMemory = 256 << 10 // kilobytes
	// maxAfter is what it may take beyond the length of its run: on a busy machine,
	// or at 20,000 mappings, a second is soon over.
	maxAfter = 8 * time.Second
)

// toolFailure is the end of sfsample with a reason.
type toolFailure struct {
	state *os.ProcessState
	text  string
}

func (e *toolFailure) Error() string { return fmt.Sprintf("sfsample: %v: %s", e.state, e.text) }

func runTool(ctx context.Context, length time.Duration, tool string, args []string) (stdout, text string, err error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Stderr = &stderr
	begun := time.Now()
	out, err := cmd.Output()
	took := time.Since(begun)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", "", errors.New("sfsample does not end")
	case errors.As(err, &exit) && exit.ExitCode() == lacking: // the command's
		return "", "", errNotHere
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return "", "", &toolFailure{exit.ProcessState, string(bytes.TrimSpace(stderr.Bytes()))}
	case errors.As(err, &exit):
		return "", "", fmt.Errorf("sfsample: %v: %s", exit, bytes.TrimSpace(stderr.Bytes()))
	case took > length+maxAfter:
		return "", "", fmt.Errorf("sfsample takes %v for a run of %v", took, length)
	}
	if used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && used.Maxrss > maxMemory {
		return "", "", fmt.Errorf("sfsample uses %d MB of memory", used.Maxrss>>10)
	}
	return string(out), stderr.String(), err
}

// target is a program under attack.
type target struct {
	cmd *exec.Cmd
	pid int // to attach to: its own, or a child's
	in  io.WriteCloser
	out *bufio.Reader
}

func startTarget(ctx context.Context, program string, args []string) (*target, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// With its helpers: what waits for a silent file server, also sfsample, goes on when that is gone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
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
	p := &target{cmd, cmd.Process.Pid, in, bufio.NewReader(out)}
	line, err := p.out.ReadString('\n')
	word, child, named := strings.Cut(strings.TrimSpace(line), " ")
	if err == nil && named {
		p.pid, err = strconv.Atoi(child)
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
