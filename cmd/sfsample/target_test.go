package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workUnit is the CPU time of one unit of "work": two ticks at 99 Hz.
const workUnit = 25 * time.Millisecond

// init keeps the main goroutine on the main thread, so that a target knows
// which thread does what.
func init() {
	if os.Args[0] == targetName {
		runtime.LockOSThread()
	}
}

// target is the main function of a process to sample. args: "exit" ends at once;
// "obey" prints ready and does what standard input says, a line each, until it
// ends; "headless" does the same after the main thread has exited; "crowd" does
// the same with many threads, see [crowd]; "spinners" with some that never sleep;
// "calls" makes many system calls; "parent" has a child that ends with it, and tells its id;
// "jit" runs code that no file holds; "tracer" traces a process;
// "sample-self" becomes sfsample, asked for its own id.
func target(args []string) {
	switch args[0] {
	case "exit":
		os.Exit(0)
	case "sample-self":
		err := syscall.Exec(self, []string{toolName, "-p", strconv.Itoa(os.Getpid())}, os.Environ())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case "jit":
		jit(args[1])
	case "tracer":
		pid, err := strconv.Atoi(args[1])
		check(err)
		tracer(pid)
	case "headless":
		// The others go on: only exit_group(2) ends a process. (Raw, it would keep its processor of Go's from the
		// collector for ever.)
		go func() {
			runtime.LockOSThread()
			awaitLeader()
			obey(nil)
		}()
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	case "crowd":
		obey(newCrowd().obey)
	case "spinners":
		startSpinners()
	case "calls":
		obey(callOften)
	case "parent":
		child := exec.Cmd{Path: self, Args: []string{targetName, "obey"}}
		in, err := child.StdinPipe() // its end is the child's
		check(err)
		defer in.Close()
		out, err := child.StdoutPipe()
		check(err)
		check(child.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		check(err)
		obey(func(string) string { return strconv.Itoa(child.Process.Pid) })
	}
	obey(nil)
}

// awaitLeader waits until the main thread has exited.
func awaitLeader() {
	for {
		b, err := os.ReadFile("/proc/self/stat")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if _, after, ok := strings.Cut(string(b), ") "); ok && after[0] == 'Z' {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// obey does what standard input says, a line each. Lines that it does not know
// are for more, which returns the answer.
func obey(more func(word string) string) {
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, arg, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "work":
			n := 1
			fmt.Sscan(arg, &n)
			spin(time.Duration(n) * workUnit)
			fmt.Println("worked")
		case "exec":
			err := syscall.Exec(self, []string{targetName, "obey"}, os.Environ())
			fmt.Println("exec:", err)
		case "exit":
			os.Exit(0)
		case "name":
			check(os.WriteFile("/proc/self/comm", []byte(arg), 0))
			fmt.Println("named")
		default:
			if more == nil {
				fmt.Println("unknown word", word)
				break
			}
			fmt.Println(more(word))
		}
	}
	os.Exit(0)
}

// spin uses this much CPU time of its thread.
//
//go:noinline
func spin(d time.Duration) {
	var n uint64
	for end := threadCPU() + d; threadCPU() < end; {
		for range 10_000 {
			n++
		}
	}
	runtime.KeepAlive(n)
}

// callOften works in steps of about 10 us, with a system call after each, and tells how many of
// a thousand parts of its CPU time the calls have taken.
func callOften(string) string {
	const calls, step = 100_000, 10 * time.Microsecond
	begun := threadCPU()
	for range calls {
		getppid()
	}
	call := (threadCPU() - begun) / calls
	begun = threadCPU()
	compute(1 << 24)
	loops := int(step * (1 << 24) / (threadCPU() - begun))
	begun = threadCPU()
	n := 0
	for end := begun + 4500*time.Millisecond; threadCPU() < end; {
		for range 100 {
			compute(loops)
			getppid()
			n++
		}
	}
	return fmt.Sprint("called ", int64(call)*int64(n)*1000/int64(threadCPU()-begun))
}

//go:noinline
func getppid() { syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0) }

//go:noinline
func compute(loops int) {
	n := uint64(loops)
	for range loops {
		n = n*3 + 1
	}
	runtime.KeepAlive(n)
}

func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return time.Duration(ts.Nano())
}

// spinnerThreads is how many threads of a target "spinners" never sleep.
const spinnerThreads = 8

// startSpinners starts them and returns when all are there.
func startSpinners() {
	runtime.GOMAXPROCS(spinnerThreads + 2)
	var there sync.WaitGroup
	for range spinnerThreads {
		there.Add(1)
		go func() {
			runtime.LockOSThread()
			there.Done()
			for {
				spin(time.Hour)
			}
		}()
	}
	there.Wait()
}
