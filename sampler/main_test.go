package sampler

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the process that the tests sample, told apart by
// argv[0].
const targetName = "sampler-target"

func TestMain(m *testing.M) {
	if os.Args[0] == targetName {
		runTarget(os.Args[1:])
	}
	os.Exit(m.Run())
}

// targetCmd runs the test binary as [runTarget].
func targetCmd(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{targetName}, args...)}
}

// runTarget is the main function of a process to sample. It prints ready, waits
// for a line on standard input, and does what args say, one after the other:
//
//	storm     has 400 threads born and die (100 on s390x), while two spin and two sleep
//	bolt      ends while several of its threads have others born
//	children  does the same for 20 processes
//	threads   has two threads stay in stacks that they tell
//	deep      has goroutines of many depths, without end
//	bursts    has three threads work for a millisecond, and sleep for two, without end
//	sleepers  has 200 threads sleep without end
//	exec      becomes a new program, which does what remains
//
// Each thread that it makes prints a line "tid N" in the end, and the
// last line is "done".
func runTarget(args []string) {
	if os.Getenv(goesOn) == "" {
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
	}
	for i, word := range args {
		switch word {
		case "storm":
			storm()
		case "bolt":
			bolt()
		case "children":
			for range 20 {
				child := targetCmd("nothing")
				child.Env = append(os.Environ(), goesOn+"=1")
				if err := child.Run(); err != nil {
					fail(err)
				}
			}
		case "threads":
			goThreads()
		case "deep":
			goDeep()
		case "sleepers":
			sleepers()
		case "bursts":
			bursts()
		case "collect":
			collect()
		case "brief":
			brief()
		case "exec":
			os.Setenv(goesOn, "1")
			fail(syscall.Exec("/proc/self/exe", append([]string{targetName}, args[i+1:]...), os.Environ()))
		}
	}
	fmt.Println("done")
	os.Exit(0)
}

// goesOn is set in the environment of what must not wait to be told.
const goesOn = "SAMPLER_TARGET_GOES_ON"

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// bolt has some threads make others, and ends while they do.
func bolt() {
	births := func(n int) {
		for range n {
			ended := make(chan struct{})
			go func() {
				runtime.LockOSThread() // never unlocked
				close(ended)
			}()
			<-ended
		}
	}
	for range 3 {
		go births(1000)
	}
	births(20)
}

// sleepers has 200 threads sleep.
func sleepers() {
	for range 200 {
		go func() {
			for {
				unix.Pause()
			}
		}()
	}
	fmt.Println("asleep")
	select {}
}

// bursts has three threads work now and then.
func bursts() {
	for range 3 {
		go func() {
			runtime.LockOSThread()
			for {
				for begun := time.Now(); time.Since(begun) < time.Millisecond; {
				}
				time.Sleep(2 * time.Millisecond)
			}
		}()
	}
	fmt.Println("at work")
	select {}
}

// storm has threads born and die.
func storm() {
	var mu sync.Mutex
	var tids strings.Builder
	var busy, all sync.WaitGroup
	end := make(chan struct{})
	thread := func(f func()) {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			mu.Lock()
			fmt.Fprintf(&tids, "tid %d\n", unix.Gettid())
			mu.Unlock()
			f()
		}()
	}
	for range 2 {
		thread(func() {
			for ended := false; !ended; {
				select {
				case <-end:
					ended = true
				default: // keeps the CPU busy
				}
			}
		})
		thread(func() { <-end })
	}
	rounds := 50
	if runtime.GOARCH == "s390x" { // emulated, where a birth takes milliseconds
		rounds = 12
	}
	for range rounds {
		for range 8 {
			busy.Add(1)
			thread(func() {
				defer busy.Done()
				for until := time.Now().Add(time.Millisecond); time.Now().Before(until); {
				}
			})
		}
		busy.Wait()
	}
	close(end)
	all.Wait()
	fmt.Print(tids.String())
}
