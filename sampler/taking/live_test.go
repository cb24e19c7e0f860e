package taking

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/regs"
)

// The test binary is also the process that is stopped, told apart by argv[0].
const targetName = "taking-target"

func TestMain(m *testing.M) {
	if os.Args[0] == targetName {
		fmt.Println("ready")
		bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// turns are two threads at one real-time priority and on one CPU, outside of Go's runtime, as a collection of garbage would wait for what they do.
type turns struct {
	k                 Live
	ready, begun, ran atomic.Bool
	limit             int64
	let               bool // the one that yields has let the other run
}

// asleep is the thread that is woken while the other one has the CPU.
type asleep struct{ *turns }

//go:nosplit
//go:norace
func (t asleep) Outside() {
	t.ready.Store(true)
	for !t.begun.Load() && t.k.Now() < t.limit {
		t.k.Sleep(t.k.Now() + 50_000)
	}
	t.ran.Store(true)
}

// yields is the other one.
type yields struct{ *turns }

//go:nosplit
//go:norace
func (t yields) Outside() {
	for !t.ready.Load() && t.k.Now() < t.limit {
		t.k.Sleep(t.k.Now() + 100_000)
	}
	t.begun.Store(true)
	for end := t.k.Now() + 5_000_000; !t.ran.Load() && t.k.Now() < end; {
		t.k.Yield()
	}
	t.let = t.ran.Load()
}

// TestYield: who yields its CPU at real-time priority lets another one of the same priority run that is ready to: so the keeper gets the CPU of a clock that
// waits for it.
func TestYield(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !set.IsSet(cpu) {
		cpu++
	}
	set.Zero()
	set.Set(cpu)
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // under the race detector they are not outside of it
	const tries = 20
	let := 0
	for range tries {
		both := &turns{limit: ptrace.Now() + int64(testprog.Patience)}
		denied := make(chan error, 2)
		begin := func(r interface{ Outside() }) <-chan struct{} {
			return ptrace.OnThread(func() {
				attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
				err := errors.Join(unix.SchedSetaffinity(0, &set), unix.SchedSetAttr(0, &attr, 0))
				if denied <- err; err == nil {
					ptrace.Outside(r)
				}
			})
		}
		first := begin(asleep{both})
		if err := <-denied; err != nil {
			t.Skip("no real-time priority to be had: ", err)
		}
		<-begin(yields{both})
		if <-first; both.let {
			let++
		}
	}
	if let < tries/2 {
		t.Errorf("the other thread has run in %d of %d tries", let, tries)
	}
}

// TestLive: a real thread is seized, interrupted, read, let go, stopped with its process, and reaped.
func TestLive(t *testing.T) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{targetName}, Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // which is to be the parent and the tracer
	defer runtime.UnlockOSThread()
	if err := ptrace.Interruptible(); err != nil {
		t.Fatal(err)
	}
	tid := testprog.StartCmd(t, cmd).PID
	k := new(Live)
	do := func(what string, errno unix.Errno) {
		t.Helper()
		if errno != 0 {
			t.Fatalf("%s: %v", what, errno)
		}
	}
	const interrupted = uint32(unix.PTRACE_EVENT_STOP<<16 | int(unix.SIGTRAP)<<8 | 0x7f)
	wait := func(what string, want uint32) {
		t.Helper()
		who, status, errno := k.Wait(tid, true)
		for errno == unix.EINTR { // a signal of Go's to this thread
			who, status, errno = k.Wait(tid, true)
		}
		if who != tid || status != want || errno != 0 {
			t.Fatalf("%s: thread %d reports %#x, %v; want %#x", what, who, status, errno, want)
		}
	}
	if errno := k.Seize(tid); errno == unix.EPERM {
		t.Skip("processes may not be traced here")
	} else if errno != 0 {
		t.Fatal(errno)
	}
	if who, _, errno := k.Wait(tid, false); who != 0 || errno != 0 {
		t.Fatalf("thread %d reports, and runs: %v", who, errno)
	}
	do("interrupt", k.Interrupt(tid))
	wait("interrupt", interrupted)
	if s, ok, err := k.Report(); s.TID != tid || s.Kind != ptrace.KindInterrupt || !ok || err != nil || k.AtExit(tid) {
		t.Errorf("report %+v, %t, %v; at its exit %t", s, ok, err, k.AtExit(tid))
	}
	b := &Buffer{Regs: Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Stack: Copy{Room: make([]byte, 512)}}
	do("take", Take(k, tid, new(Advice), b, -1, OwnStop, false))
	sp := ptrace.StackPointer(b.Regs.Used())
	if sp == 0 || b.Stack.N != 512 || b.StackAddr > sp || b.Call.Unwritten {
		t.Errorf("%d bytes at %#x, stack pointer %#x", b.Stack.N, b.StackAddr, sp)
	}
	again := make([]byte, 512)
	if n := k.Memory(tid, b.StackAddr, again); n != 512 || !slices.Equal(again, b.Stack.Room) {
		t.Errorf("%d bytes of the stack, which has changed while it was stopped", n)
	}
	if n := k.Memory(tid, 0, again); n != 0 {
		t.Errorf("%d bytes at address 0", n)
	}
	do("write registers", k.SetRegs(tid, ptrace.NotePrstatus, b.Regs.Used()))
	do("go on", k.Cont(tid, 0))
	unix.Tgkill(tid, tid, unix.SIGSTOP)
	wait("SIGSTOP", uint32(unix.SIGSTOP)<<8|0x7f)
	do("go on", k.Cont(tid, int(unix.SIGSTOP)))
	wait("group stop", uint32(unix.PTRACE_EVENT_STOP<<16|int(unix.SIGSTOP)<<8|0x7f))
	do("listen", k.Listen(tid))
	if who, _, errno := k.Wait(tid, false); who != 0 || errno != 0 {
		t.Fatalf("thread %d reports, and is to listen: %v", who, errno)
	}
	unix.Kill(tid, unix.SIGCONT)
	wait("SIGCONT", interrupted) // the end of the group stop
	if _, err := k.Message(ptrace.Status{TID: tid, Raw: interrupted}); err != nil {
		t.Error(err)
	}
	if _, err := k.Message(ptrace.Status{TID: tid, Raw: 0x57f}); err != unix.ESRCH {
		t.Errorf("the message of a stop that is over: %v", err)
	}
	if k.Reap(tid) && unix.Kill(tid, 0) != nil {
		t.Error("a stopped thread was reaped")
	}
	do("detach", k.Detach(tid, 0))
	in.Write([]byte("\n"))
	who, status, errno := k.Wait(tid, true)
	for ; errno == unix.EINTR; who, status, errno = k.Wait(tid, true) {
	}
	if who != tid || unix.WaitStatus(status).Stopped() || errno != 0 {
		t.Errorf("its end: thread %d reports %#x, %v", who, status, errno)
	}
	if !k.Reap(tid) || k.Reap(tid) {
		t.Error("it was not reaped once")
	}
	if _, _, errno := k.Wait(tid, false); errno != unix.ECHILD {
		t.Errorf("there is something to wait for: %v", errno)
	}
}

// TestLiveSelf: what is asked of the kernel about this very process.
func TestLiveSelf(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	alarm, err := ptrace.NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer alarm.Close()
	k := new(Live)
	begun := k.Now()
	if d := begun - ptrace.Now(); d > 0 || d < -int64(time.Second) {
		t.Errorf("the clocks are %d ns apart", d)
	}
	sleeps := 0
	for ; k.Now() < begun+2e6; sleeps++ { // a signal, as of Go's runtime, ends it
		k.Sleep(begun + 2e6)
	}
	if sleeps > 50 {
		t.Errorf("it took %d sleeps to get through 2 ms", sleeps)
	}
	k.Yield()
	var word uint32 = 5
	k.Park(&word, 4, 0) // it is not 4: does not sleep

	// A signal ends a sleep, once it may.
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (ptrace.AlarmSignal - 1)
	unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old)
	k.Signal(unix.Gettid())
	var now unix.Timespec
	sig, _, _ := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
	due := k.Now() + 1e6
	k.Alarm(alarm, due)
	long := unix.Timespec{Sec: 20}
	rung, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&long)), 8, 0, 0)
	for errno == unix.EINTR { // a signal of Go's
		rung, _, errno = unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(&long)), 8, 0, 0)
	}
	if rung != ptrace.AlarmSignal || k.Now() < due {
		t.Errorf("an alarm: signal %d, %v, %d ns behind its time", rung, errno, k.Now()-due)
	}
	unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)

	// A thread sleeps while a word is what it was, until a signal is handled.
	due = k.Now() + 1e6
	k.Alarm(alarm, due)
	parks := 0
	for ; rung == ptrace.AlarmSignal && k.Now() < due; parks++ {
		k.Park(&word, 5, 0)
	}
	k.Alarm(alarm, 0)
	if parks > 50 {
		t.Errorf("it slept %d times in 1 ms", parks)
	}
	if sig != ptrace.AlarmSignal {
		t.Errorf("signal %d has come, want the alarm", sig)
	}

	f, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 3)
	if n, errno := k.Pread(int(f.Fd()), b, 1); n != 3 || errno != 0 || string(b) != "ELF" {
		t.Errorf("read %d bytes %q, %v", n, b, errno)
	}
	if n, errno := k.Pread(-1, b, 0); n != 0 || errno != unix.EBADF {
		t.Errorf("read %d bytes of no file, %v", n, errno)
	}
	if n, errno := k.ReadFile([]byte("/proc/self/exe\x00"), b); n != 3 || errno != 0 || string(b) != "\x7fEL" {
		t.Errorf("read %d bytes %q, %v", n, b, errno)
	}
	if n, errno := k.ReadFile([]byte("/proc/self/nothing\x00"), b); n != 0 || errno != unix.ENOENT {
		t.Errorf("read %d bytes of a file that is not there, %v", n, errno)
	}
	some := []byte("some bytes")
	if n := k.Memory(os.Getpid(), uint64(uintptr(unsafe.Pointer(&some[0]))), b); n != 3 || string(b) != "som" {
		t.Errorf("read %d bytes %q of own memory", n, b)
	}
	areas := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&some[8])), Len: 1}, {Base: uintptr(unsafe.Pointer(&some[5])), Len: 2}, {Base: 8, Len: 3}}
	if n := k.Gather(os.Getpid(), areas, make([]byte, 6)); n != 3 {
		t.Errorf("%d bytes of areas of which the last is not there, want 3", n)
	}
	if n := k.Gather(os.Getpid(), areas[:2], b); n != 3 || string(b) != "eby" {
		t.Errorf("gathered %d bytes %q", n, b)
	}
	runtime.KeepAlive(some)
}

// TestLiveSpent: the CPU time of this process, and of one that cannot be.
func TestLiveSpent(t *testing.T) {
	const own = unix.CLOCK_PROCESS_CPUTIME_ID
	spent := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(own, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	k := new(Live)
	if first, here, last := spent(), k.Spent(own), spent(); here < first || here > last {
		t.Errorf("%d ns, between %d and %d", here, first, last)
	}
	const none = 1<<22 + 1                   // more than any number of a process (PID_MAX_LIMIT, include/linux/threads.h)
	if d := k.Spent(^none<<3 | 2); d != -1 { // MAKE_PROCESS_CPUCLOCK, include/linux/posix-timers.h
		t.Errorf("a process that is not there has spent %d ns", d)
	}
}

// TestLiveBind: a thread is bound to the CPUs that are told, if any, and gets the usual policy if that is to be.
func TestLiveBind(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test
	k := new(Live)
	var may, now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	one := make([]uint64, cpu/64+1)
	one[cpu/64] = 1 << (cpu % 64)
	for _, tt := range []struct {
		name string
		cpus []uint64
		want unix.Errno
		n    int // CPUs then
	}{{"none told", nil, 0, may.Count()}, {"no CPU", []uint64{0}, unix.EINVAL, may.Count()}, {"one", one, 0, 1}} {
		errno := k.Bind(tt.cpus, false)
		if unix.SchedGetaffinity(0, &now); errno != tt.want || now.Count() != tt.n || !now.IsSet(cpu) {
			t.Errorf("%s: %v, then bound to %d CPUs, want %d", tt.name, errno, now.Count(), tt.n)
		}
	}
	policy := func() uintptr {
		p, _, _ := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
		return p
	}
	priority := int32(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_BATCH, uintptr(unsafe.Pointer(&priority))); errno != 0 {
		t.Fatal(errno)
	}
	if errno := k.Bind(nil, false); errno != 0 || policy() != unix.SCHED_BATCH {
		t.Errorf("%v, then policy %#x", errno, policy())
	}
	if errno := k.Bind(nil, true); errno != 0 || policy() != unix.SCHED_NORMAL|unix.SCHED_RESET_ON_FORK {
		t.Errorf("%v, then policy %#x, want the usual one", errno, policy())
	}
	if errno := k.Bind([]uint64{0}, true); errno != unix.EINVAL {
		t.Errorf("bound to no CPU, with the usual policy: %v", errno)
	}
}
