package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var othersLoad = load{
	name: "others",
	lacks: func(*options) string {
		if _, err := exec.LookPath("true"); err != nil {
			return err.Error()
		}
		return ""
	},
	run: runWorkload(thisAs("others")),
}

// startOthers has a thread for each CPU compute, and another program, which nobody samples, start programs and wait for them.
func startOthers() (start, end func()) {
	busy := runtime.NumCPU()
	runtime.GOMAXPROCS(busy + 2)
	var stop atomic.Bool
	there, release, ended := make(chan int), make(chan bool), make(chan bool)
	for range busy {
		go func() {
			runtime.LockOSThread()
			there <- unix.Gettid()
			<-release
			for n := 0; !stop.Load(); n++ {
			}
			ended <- true
		}()
	}
	var tids []int
	for range busy {
		tids = append(tids, <-there)
	}
	other := &exec.Cmd{Path: "/proc/self/exe", Args: []string{workloadName, "starts"}, Env: os.Environ(), Stderr: os.Stderr}
	in, err := other.StdinPipe()
	check(err)
	out, err := other.StdoutPipe()
	check(err)
	check(other.Start())
	var began time.Time
	var moved int
	start = func() {
		began, moved = time.Now(), migrations(tids)
		close(release)
		_, err := io.WriteString(in, "go\n")
		check(err)
	}
	end = func() {
		check(in.Close())
		var n int
		_, err := fmt.Fscan(bufio.NewReader(out), &n)
		check(err)
		elapsed := time.Since(began)
		say("rate", float64(n)/elapsed.Seconds(), "programs started by another, a second")
		say("rate", float64(migrations(tids)-moved)/elapsed.Seconds(), "moves of busy threads, a second")
		stop.Store(true)
		for range tids {
			<-ended
		}
		check(other.Wait())
	}
	return start, end
}

// starts starts programs and waits for them, from a line on its standard input to the end of that, and says how many.
func starts() {
	in := bufio.NewReader(os.Stdin)
	_, err := in.ReadString('\n')
	check(err)
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, in) // that it ends is all
		over.Store(true)
	}()
	program, err := exec.LookPath("true")
	check(err)
	n := 0
	for ; !over.Load(); n++ {
		check(exec.Command(program).Run())
	}
	fmt.Println(n)
}

// migrations is how often threads have changed their CPU (se.nr_migrations, kernel/sched/debug.c; a kernel without CONFIG_SCHED_DEBUG tells none).
func migrations(tids []int) (sum int) {
	for _, tid := range tids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/sched", tid))
		_, after, _ := bytes.Cut(text, []byte("\nse.nr_migrations"))
		_, after, _ = bytes.Cut(after, []byte(":"))
		var n int
		_, _ = fmt.Sscan(string(after), &n)
		sum += n
	}
	return sum
}
