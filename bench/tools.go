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
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// brought is what a tool took and brought in a run.
type brought struct {
	cpu           time.Duration
	rss           int64 // bytes at most
	bytes         int64 // written
	stacks, whole int   // whole -1: what it writes does not tell
	unread        bool  // how many stacks there are is not told, or took too long to read
	frames, named int   // no frames: they are not known
}

// tool looks at a target while that works.
type tool struct {
	name, what string
	lacks      func() string
	only       func(target string) bool // nil: any
	// start attaches to a process, of which hz stacks a second are wanted, and returns when it is ready. finish ends the tool.
	start func(o *options, pid, hz int) (finish func() (brought, error), err error)
}

// nobody is the tool that does nothing.
const nobody = "alone"

var tools = []tool{
	{nobody, "nobody: the spread of equal runs", nothing, nil, func(*options, int, int) (func() (brought, error), error) {
		return func() (brought, error) { return brought{whole: -1}, nil }, nil
	}},
	{"loop", "a bare C loop that stops the thread, copies its registers and 4 KiB, and lets it go", nothing, func(name string) bool { return name == "spin" }, startLoop},
	{"sfsample", "sfsample -p PID", nothing, nil, startSfsample()},
	{"sfsample 50%", "sfsample -p PID --max-overhead 50%: it leaves out no ticks", nothing, nil, startSfsample("--max-overhead", "50%")},
	{"sfsample all", "sfsample -p PID --threads all", nothing, nil, startSfsample("--threads", "all")},
	{"perf fp", "perf record --call-graph fp", needs("perf"), nil, startPerf("fp")},
	{"perf dwarf 8K", "perf record --call-graph dwarf,8192", needs("perf"), nil, startPerf("dwarf,8192")},
	{"perf dwarf 64K", "perf record --call-graph dwarf,65528", needs("perf"), nil, startPerf("dwarf,65528")},
	{"eu-stack", "eu-stack -p PID over and over", needs("eu-stack"), few, over("eu-stack", "-p")},
	{"gdb", "gdb -p PID, a backtrace of all threads, over and over", needs("gdb"), few, over("gdb", "-nx", "-batch", "-ex", "thread apply all bt", "-p")},
	{"py-spy", "py-spy record", needs("py-spy"), func(name string) bool { return name == "python3" }, startPySpy},
}

// few leaves out what a debugger would take minutes for.
func few(name string) bool { return name != "idle10k" }

// ready is how long a tool may take to attach.
const ready = 30 * time.Second

// background starts a tool's command and waits until attached says that it is. The tool ends by SIGINT.
func background(cmd *exec.Cmd, attached func(pid int) bool) (finish func(b *brought) error, err error) {
	var said bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended, peak := make(chan error, 1), watchPeak(cmd.Process.Pid)
	go func() { ended <- cmd.Wait() }()
	for late := time.After(ready); !attached(cmd.Process.Pid); {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("%s has ended: %w\n%s", cmd.Args[0], err, said.String())
		case <-late:
			_ = cmd.Process.Kill()
			<-ended
			return nil, fmt.Errorf("%s does not attach", cmd.Args[0])
		case <-time.After(time.Millisecond):
		}
	}
	return func(b *brought) error {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended with its target
		err := <-ended
		var status *exec.ExitError
		if errors.As(err, &status) && status.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
			err = nil
		}
		b.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		b.rss = peak()
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", cmd.Args[0], err, said.String())
		}
		return err
	}, nil
}

// watchPeak watches how much memory a process takes at most, until peak is called. (What wait4 tells is the peak of who has
// forked it, if that was larger.)
func watchPeak(pid int) (peak func() int64) {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var bytes int64
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, after, _ := strings.Cut(string(text), "VmHWM:")
			var kb int64
			if _, err := fmt.Sscan(after, &kb); err == nil {
				bytes = max(bytes, kb<<10)
			}
			select {
			case <-tick.C:
			case <-stop:
				most <- bytes
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

// opens tells whether a process has a file open of which the name has a part.
func opens(part string) func(pid int) bool {
	return func(pid int) bool {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		list, _ := os.ReadDir(dir)
		for _, fd := range list {
			if name, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.Contains(name, part) {
				return true
			}
		}
		return false
	}
}

func size(name string) int64 {
	i, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return i.Size()
}

func startLoop(o *options, pid, hz int) (func() (brought, error), error) {
	log := o.file("loop.log")
	seconds := max(1, int(o.length.Seconds()))
	cmd := exec.Command(o.file("loop"), "sleep", strconv.Itoa(pid), strconv.Itoa(hz), strconv.Itoa(seconds), log)
	seized := func(int) bool {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return !bytes.Contains(status, []byte("TracerPid:\t0\n"))
	}
	finish, err := background(cmd, seized)
	if err != nil {
		return nil, err
	}
	return func() (brought, error) {
		b := brought{whole: -1}
		// It takes so many samples, and ends by itself.
		for end := time.Now().Add(ready); size(log) == 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if err := finish(&b); err != nil {
			return b, err
		}
		lines, err := os.ReadFile(log)
		b.stacks = bytes.Count(lines, []byte("\n"))
		return b, err
	}, nil
}

// unwound is the closing line of sfsample.
var unwound = regexp.MustCompile(`stacks: (\d+) unwound, (\d+) complete`)

func startSfsample(flags ...string) func(o *options, pid, hz int) (func() (brought, error), error) {
	return func(o *options, pid, hz int) (func() (brought, error), error) {
		out := o.file("out.folded")
		cmd := exec.Command(o.sfsample, append([]string{"-p", strconv.Itoa(pid), "-hz", strconv.Itoa(hz), "-o", out}, flags...)...)
		var said bytes.Buffer
		cmd.Stderr = &said
		finish, err := background(cmd, opens(fmt.Sprintf("/proc/%d/task", pid)))
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, said.String())
		}
		return func() (b brought, err error) {
			if err := finish(&b); err != nil {
				return b, fmt.Errorf("%w\n%s", err, said.String())
			}
			m := unwound.FindStringSubmatch(said.String())
			if m == nil {
				return b, fmt.Errorf("sfsample tells of no stacks: %s", said.String())
			}
			b.stacks, _ = strconv.Atoi(m[1])
			b.whole, _ = strconv.Atoi(m[2])
			b.bytes = size(out)
			f, err := os.Open(out)
			if err != nil {
				return b, err
			}
			defer f.Close()
			b.frames, b.named, err = foldedNames(f)
			return b, err
		}, nil
	}
}

// foldedNames counts the frames of folded stacks, and those that have a name.
func foldedNames(r io.Reader) (frames, named int, err error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		i := strings.LastIndexByte(s.Text(), ' ')
		n, err := strconv.Atoi(s.Text()[i+1:])
		if i < 0 || err != nil {
			return 0, 0, fmt.Errorf("no folded line: %q", s.Text())
		}
		for k, f := range strings.Split(s.Text()[:i], ";") {
			if k == 0 || strings.HasPrefix(f, "[") { // the thread; what is no function
				continue
			}
			frames += n
			if !strings.Contains(f, "+0x") && !strings.Contains(f, "fn_") {
				named += n
			}
		}
	}
	return frames, named, s.Err()
}

// reading bounds what perf may take to tell what it has recorded: that is not among its costs here.
const reading = time.Minute

func startPerf(graph string) func(o *options, pid, hz int) (func() (brought, error), error) {
	return func(o *options, pid, hz int) (func() (brought, error), error) {
		data := o.file("perf.data")
		cmd := exec.Command("perf", "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(hz), "--call-graph", graph, "-p", strconv.Itoa(pid), "-o", data)
		finish, err := background(cmd, opens("[perf_event]"))
		if err != nil {
			return nil, err
		}
		return func() (b brought, err error) {
			if err := finish(&b); err != nil {
				return b, err
			}
			b.whole, b.bytes = -1, size(data)
			ctx, cancel := context.WithTimeout(context.Background(), reading)
			defer cancel()
			script := exec.CommandContext(ctx, "perf", "script", "-i", data, "--no-inline", "-F", "ip,sym")
			out, err := script.StdoutPipe()
			if err != nil {
				return b, err
			}
			if err := script.Start(); err != nil {
				return b, err
			}
			b.stacks, b.frames, b.named = scriptNames(out)
			if script.Wait() != nil && ctx.Err() != nil { // what it has told so far is no share of the whole
				b.unread, b.stacks, b.frames, b.named = true, 0, 0, 0
			}
			return b, nil
		}, nil
	}
}

// scriptNames counts stacks in the output of perf script, frames, and those that have a name.
func scriptNames(r io.Reader) (stacks, frames, named int) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	inside := false
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" {
			inside = false
			continue
		}
		if !inside {
			stacks++
		}
		inside = true
		frames++
		if !strings.HasSuffix(line, "[unknown]") {
			named++
		}
	}
	return stacks, frames, named
}

// over runs a tool that shows the stacks once, as often as is wanted, or as it can.
func over(args ...string) func(o *options, pid, hz int) (func() (brought, error), error) {
	return func(o *options, pid, hz int) (func() (brought, error), error) {
		stop, ended := make(chan struct{}), make(chan brought, 1)
		var failed error
		go func() {
			b := brought{whole: -1}
			tick := time.NewTicker(time.Second / time.Duration(hz))
			defer tick.Stop()
			for failed == nil {
				select {
				case <-stop:
					ended <- b
					return
				case <-tick.C:
				}
				ctx, cancel := context.WithTimeout(context.Background(), ready)
				cmd := exec.CommandContext(ctx, args[0], append(args[1:len(args):len(args)], strconv.Itoa(pid))...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Dir = &out, o.dir // where a tool that crashes leaves its core
				if failed = cmd.Start(); failed != nil {
					cancel()
					break
				}
				peak := watchPeak(cmd.Process.Pid)
				_ = cmd.Wait() // it fails when the target has ended
				cancel()
				b.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				b.rss = max(b.rss, peak())
				b.bytes += int64(out.Len())
				b.stacks += strings.Count("\n"+out.String(), "\n#0 ")
			}
			ended <- b
		}()
		return func() (brought, error) {
			close(stop)
			b := <-ended
			return b, failed
		}, nil
	}
}

func startPySpy(o *options, pid, hz int) (func() (brought, error), error) {
	out := o.file("py-spy.folded")
	cmd := exec.Command("py-spy", "record", "-p", strconv.Itoa(pid), "-r", strconv.Itoa(hz), "-f", "raw", "-o", out)
	finish, err := background(cmd, opens(fmt.Sprintf("/proc/%d/", pid)))
	if err != nil {
		return nil, err
	}
	return func() (b brought, err error) {
		if err := finish(&b); err != nil {
			return b, err
		}
		b.whole, b.bytes = -1, size(out)
		f, err := os.Open(out)
		if err != nil {
			return b, err
		}
		defer f.Close()
		b.frames, b.named, err = foldedNames(f)
		b.unread = true
		return b, err
	}, nil
}
