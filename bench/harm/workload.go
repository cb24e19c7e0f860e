package main

import (
	"bufio"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// workloadName is the name (argv[0]) by which this program knows that it is to
// be a load.
const workloadName = "harm-workload"

// Its garbage collector and its own preemption, a signal to each thread that
// runs for 10 ms, stay off: what is counted comes from outside.
const quietRuntime = "GODEBUG=asyncpreemptoff=1"

var epollLoad = load{
	name:  "epoll",
	lacks: func(*options) string { return "" },
	run:   runWorkload(thisAs("epoll")),
}

var spinnersLoad = load{
	name:  "spinners",
	lacks: func(*options) string { return "" },
	run:   runWorkload(thisAs("spinners")),
}

// spinners is how many threads count.
const spinners = 64

//go:embed execs/execs.c
var execsSource []byte

var execsLoad = load{
	name: "execs",
	lacks: func(o *options) string {
		source := filepath.Join(o.tmp, "execs.c")
		if err := os.WriteFile(source, execsSource, 0o600); err != nil {
			return err.Error()
		}
		if err := exec.Command("gcc", "-O2", "-static", "-pthread", "-o", execsProgram(o), source).Run(); err != nil {
			return "gcc: " + err.Error()
		}
		return ""
	},
	run: runWorkload(func(o *options) *exec.Cmd {
		return exec.Command(execsProgram(o), fmt.Sprint(o.duration.Seconds()))
	}),
}

func execsProgram(o *options) string { return filepath.Join(o.tmp, "execs") }

// thisAs is this program as a load.
func thisAs(mode string) func(o *options) *exec.Cmd {
	return func(o *options) *exec.Cmd {
		return &exec.Cmd{Path: "/proc/self/exe", Args: []string{workloadName, mode, o.duration.String()}, Env: append(os.Environ(), quietRuntime)}
	}
}

// runWorkload starts a load, which waits for a line, works and prints its figures.
func runWorkload(command func(o *options) *exec.Cmd) func(o *options, s *sampler) (result, error) {
	return func(o *options, s *sampler) (result, error) {
		cmd := command(o)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		defer func() {
			_ = cmd.Process.Kill() // an error says that it has ended
			_ = cmd.Wait()
		}()
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
			return nil, fmt.Errorf("the load says %q: %v", line, err)
		}
		if err := s.attach(cmd.Process.Pid); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(in, "go\n"); err != nil {
			return nil, err
		}
		// The load prints one line for each figure, "count" or "rate" before
		// it, then "done", and waits.
		var r result
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return nil, fmt.Errorf("the load has ended: %w", err)
			}
			if line == "done\n" {
				break
			}
			var kind string
			var f figure
			if _, err := fmt.Sscanf(line, "%s %g", &kind, &f.value); err != nil {
				return nil, fmt.Errorf("the load says %q: %w", line, err)
			}
			_, f.name, _ = strings.Cut(strings.TrimSpace(line), "\t")
			f.count = kind == "count"
			r = append(r, f)
		}
		return r, s.detach()
	}
}

// workload is the main function of a load.
func workload(args []string) {
	if args[0] == "starts" {
		starts()
		os.Exit(0)
	}
	debug.SetGCPercent(-1)
	d, err := time.ParseDuration(args[1])
	check(err)
	start, end := map[string]func() (start, end func()){"epoll": startEpoll, "spinners": startSpinners, "others": startOthers}[args[0]]()
	fmt.Println("ready")
	wait := bufio.NewReader(os.Stdin)
	if _, err := wait.ReadString('\n'); err != nil {
		os.Exit(1)
	}
	start()
	time.Sleep(d)
	end()
	fmt.Println("done")
	_, _ = wait.ReadString('\n') // until we are killed
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "harm: workload:", err)
		os.Exit(1)
	}
}

func say(kind string, value float64, name string) { fmt.Printf("%s %g\t%s\n", kind, value, name) }

// startSpinners starts threads that count from start to end.
func startSpinners() (start, end func()) {
	runtime.GOMAXPROCS(spinners + 2)
	type slot struct {
		n uint64
		_ [120]byte // no cache line is shared
	}
	counts := make([]slot, spinners)
	var stop atomic.Bool
	there, ended := make(chan bool), make(chan bool)
	release := make(chan bool)
	for i := range counts {
		go func() {
			runtime.LockOSThread()
			there <- true
			<-release
			n := uint64(0)
			for !stop.Load() {
				for range 1000 {
					n++
				}
			}
			counts[i].n = n
			ended <- true
		}()
	}
	for range counts {
		<-there
	}
	var began time.Time
	var cpu time.Duration
	start = func() {
		began, cpu = time.Now(), processCPU()
		close(release)
	}
	end = func() {
		stop.Store(true)
		elapsed, used := time.Since(began), processCPU()-cpu
		list := make([]uint64, spinners)
		for range counts {
			<-ended
		}
		for i := range counts {
			list[i] = counts[i].n
		}
		total, spread := shares(list)
		say("rate", total/elapsed.Seconds(), "counted a second")
		say("rate", total/used.Seconds(), "counted a second of CPU time")
		say("rate", used.Seconds()/elapsed.Seconds(), "CPUs that it got")
		say("rate", 100*spread, "largest less smallest share, % of mean")
	}
	return start, end
}

// shares is the sum of counts, and how far they are apart in parts of their
// mean.
func shares(counts []uint64) (total, spread float64) {
	for _, n := range counts {
		total += float64(n)
	}
	mean := total / float64(len(counts))
	return total, float64(slices.Max(counts)-slices.Min(counts)) / mean
}

func processCPU() time.Duration {
	var ts unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts))
	return time.Duration(ts.Nano())
}

// loop is an event loop on a thread of its own, with its counts.
type loop struct {
	epoll, timer int
	pipe         [2]int
	wakes, late  uint64 // returns of epoll_wait; expirations that had to share one
	eintr, other uint64
	short        uint64
	page         [4096]byte
}

// startEpoll makes an event loop that a timer wakes 1,000 times a second; each
// time it writes a page to a pipe, reads it back, and works for a moment.
func startEpoll() (start, end func()) {
	l := new(loop)
	var err error
	l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	check(err)
	l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	check(err)
	check(unix.Pipe2(l.pipe[:], unix.O_CLOEXEC))
	check(unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.timer, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.timer)}))
	var stop atomic.Bool
	ended := make(chan bool)
	var began time.Time
	var cpu time.Duration
	start = func() {
		began, cpu = time.Now(), processCPU()
		ms := unix.NsecToTimespec(int64(time.Millisecond))
		check(unix.TimerfdSettime(l.timer, 0, &unix.ItimerSpec{Interval: ms, Value: ms}, nil))
		go func() {
			runtime.LockOSThread()
			for !stop.Load() {
				l.turn()
			}
			ended <- true
		}()
	}
	end = func() {
		stop.Store(true)
		<-ended
		elapsed, used := time.Since(began), processCPU()-cpu
		say("rate", float64(l.wakes)/elapsed.Seconds(), "wake-ups a second")
		say("rate", 1e6*used.Seconds()/float64(l.wakes), "CPU time for each, µs")
		say("rate", float64(l.wakes+l.late)/elapsed.Seconds(), "timer expirations seen a second")
		say("count", float64(l.eintr), "EINTR")
		say("count", float64(l.other), "other errors")
		say("count", float64(l.short), "short reads and writes")
	}
	return start, end
}

// turn waits once and does what is to be done.
func (l *loop) turn() {
	var ev [1]unix.EpollEvent
	n, err := unix.EpollWait(l.epoll, ev[:], -1)
	l.note(1, n, err)
	if err != nil {
		return
	}
	var expired [8]byte
	n, err = unix.Read(l.timer, expired[:])
	l.note(len(expired), n, err)
	if err == nil {
		l.wakes++
		l.late += binary.NativeEndian.Uint64(expired[:]) - 1
	}
	n, err = unix.Write(l.pipe[1], l.page[:])
	l.note(len(l.page), n, err)
	n, err = unix.Read(l.pipe[0], l.page[:])
	l.note(len(l.page), n, err)
	for range 100_000 {
		l.page[0]++
	}
}

// note counts the end of a system call that should have given want.
func (l *loop) note(want, got int, err error) {
	switch {
	case err == unix.EINTR:
		l.eintr++
	case err != nil:
		l.other++
	case got != want:
		l.short++
	}
}
