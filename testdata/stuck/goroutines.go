// Goroutines that wait in every way that Go's runtime has words for, and stay there. It prints "count" and how many there
// are, "locked" and the thread that one is locked to, "full" and the address of the channel that one sends to in vain,
// then "ready", and reads its input. SIGQUIT makes the runtime print them: with GOTRACEBACK=system all frames.
//
// With the argument "restless" it has goroutines instead that wait in the functions right1 to right3, then in left1 to left3,
// and so on.
package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

//go:noinline
func deep(n int, f func()) int {
	if n == 0 {
		f()
		return 0
	}
	return deep(n-1, f) + 1
}

// inlined is taken in by its callers.
func inlined(c chan int) int { return <-c + 1 }

type server struct {
	mu   sync.Mutex
	jobs chan func()
}

func (s *server) handle(f func(*server)) { f(s) }

func main() {
	if len(os.Args) > 1 && os.Args[1] == "restless" {
		restless()
	}
	empty, full, closed := make(chan int), make(chan int, 2), make(chan struct{})
	full <- 1
	full <- 2
	var nobody chan int
	var mu sync.Mutex
	mu.Lock()
	var written, read sync.RWMutex
	written.Lock()
	read.RLock()
	var wg sync.WaitGroup
	wg.Add(1)
	cond := sync.NewCond(new(sync.Mutex))
	s := &server{jobs: make(chan func(), 8)}
	s.mu.Lock()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	locked := make(chan int)

	for range 5 {
		go func() { <-empty }()
	}
	go func() { full <- 3 }()
	go func() {
		select {
		case <-empty:
		case full <- 4:
		case <-nobody:
		}
	}()
	go mu.Lock()
	go func() { mu.Lock() }()
	go func() { written.RLock() }()
	go func() { written.Lock() }()
	go func() { read.Lock() }()
	go func() { wg.Wait() }()
	go func() { cond.L.Lock(); cond.Wait() }()
	go func() { time.Sleep(time.Hour) }()
	go func() { l.Accept() }()
	go func() { <-nobody }()
	go func() { nobody <- 1 }()
	go func() { <-time.NewTicker(time.Hour).C }()
	go func() { <-time.After(time.Hour) }()
	go func() { select {} }()
	go func() { inlined(empty) }()
	go func() { defer close(closed); inlined(empty) }()
	go s.handle(func(s *server) { s.mu.Lock() })
	go s.handle(func(s *server) { (<-s.jobs)() })
	go deep(60, func() { <-empty })
	go deep(480, func() { <-empty })
	go func() {
		runtime.LockOSThread()
		locked <- syscall.Gettid()
		<-empty
	}()
	go func() {
		go func() { <-closed }()
		<-empty
	}()
	tid := <-locked
	runtime.SetFinalizer(new([16]int), func(*[16]int) {})
	allPark()
	runtime.GC()
	runtime.GC()
	for begun := time.Now(); time.Since(begun) < 300*time.Millisecond; { // what it does not wait for
	}
	fmt.Println("late", time.Now().UnixNano())
	go late(empty)
	allPark()
	runtime.GC() // finds it waiting for the first time
	go last(empty)
	allPark()
	runtime.GC()
	fmt.Println("count", runtime.NumGoroutine())
	fmt.Println("locked", tid)
	fmt.Printf("full %p\n", full)
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}

// late begins to wait when there have been collections of garbage already.
func late(c chan int) { <-c }

// last begins to wait after late was found.
func last(c chan int) { <-c }

// allPark returns when no goroutine but this one runs, or could.
func allPark() {
	buf := make([]byte, 1<<20)
	for {
		text := buf[:runtime.Stack(buf, true)]
		parked := bytes.Count(text, []byte("goroutine ")) - bytes.Count(text, []byte(" in goroutine ")) - bytes.Count(text, []byte(" [runn"))
		if parked >= runtime.NumGoroutine()-1 {
			return
		}
		runtime.Gosched()
	}
}

// restless does not return.
func restless() {
	for range 20 {
		c := make(chan int)
		go func() {
			for {
				right1(c)
				left1(c)
			}
		}()
		go func() {
			for i := 0; ; i++ {
				c <- i
				if i%1000 == 0 {
					time.Sleep(time.Microsecond)
				}
			}
		}()
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// The two halves have frames of one size, so that a goroutine waits in both at one stack pointer.

//go:noinline
func right1(c chan int) int { return right2(c) + 1 }

//go:noinline
func right2(c chan int) int { return right3(c) + 1 }

//go:noinline
func right3(c chan int) int { return <-c + 1 }

//go:noinline
func left1(c chan int) int { return left2(c) + 2 }

//go:noinline
func left2(c chan int) int { return left3(c) + 2 }

//go:noinline
func left3(c chan int) int { return <-c + 2 }
