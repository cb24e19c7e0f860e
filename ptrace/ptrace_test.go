package ptrace

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// The test binary is its own target: with this variable set it becomes one.
const childEnv = "SFSAMPLE_PTRACE_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childEnv); mode != "" {
		child(mode)
		return
	}
	os.Exit(m.Run())
}

// spins keeps the compiler from leaving out what a spinning child does.
var spins int

func child(mode string) {
	os.Stdout.WriteString("ready\n")
	if call, ok := strings.CutPrefix(mode, callMode); ok {
		block(call)
		return
	}
	switch mode {
	case "spin":
		for n := 0; ; n++ {
			spins = n
		}
	case "parent":
		for { // each try forks, and the child cannot become that
			exec.Command("/proc/self/nothing").Run()
		}
	case "exec":
		execAside()
	case "wait": // until the other end of standard input closes
		io.Copy(io.Discard, os.Stdin)
	}
}

// startChild starts a target and returns its pid once it is ready.
func startChild(t *testing.T, mode string) int {
	t.Helper()
	cmd, out := runChild(t, mode)
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("child said %q (%v)", line, err)
	}
	return cmd.Process.Pid
}

// runChild starts this program as a target with these additions to its
// environment. When the test ends its standard input does, and it is waited for.
func runChild(t *testing.T, mode string, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	// No signals of its own runtime.
	cmd.Env = append(append(os.Environ(), childEnv+"="+mode, "GODEBUG=asyncpreemptoff=1"), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// traced runs f on a tracing thread and hands its error on.
func traced(t *testing.T, f func() error) {
	t.Helper()
	var err error
	<-OnThread(func() { err = f() })
	if err != nil {
		t.Fatal(err)
	}
}

// waitKind waits for a stop of this kind of tid; others are answered.
func waitKind(tid int, kind Kind) (Status, error) {
	s, err := waitFor(func(s Status) bool { return s.TID == tid && (s.Kind == kind || s.Kind == KindGone) })
	if err == nil && s.Kind != kind {
		err = errors.New("the target has exited")
	}
	return s, err
}

// waitFor waits for a report that is wanted; others are answered.
func waitFor(wanted func(Status) bool) (Status, error) {
	for {
		s, ok, err := Wait()
		if err != nil {
			return s, err
		}
		if !ok {
			continue
		}
		if wanted(s) {
			return s, nil
		}
		switch s.Kind {
		case KindGroupStop:
			Listen(s.TID)
		case KindSignal:
			Cont(s.TID, s.Signal)
		case KindGone:
		default:
			Cont(s.TID, 0)
		}
	}
}

func TestStopReadContinue(t *testing.T) {
	pid := startChild(t, "spin")
	traced(t, func() error {
		if err := Seize(pid, OptClone|OptExec); err != nil {
			return err
		}
		for range 10 {
			if err := Interrupt(pid); err != nil {
				return err
			}
			if _, err := waitKind(pid, KindInterrupt); err != nil {
				return err
			}
			var note [512]byte
			n, err := ReadRegs(pid, NotePrstatus, note[:])
			if err != nil {
				return err
			}
			sp := StackPointer(note[:n])
			var word [8]byte
			if k, err := ReadMemory(pid, sp, word[:]); err != nil || k != len(word) {
				t.Errorf("read the stack at %#x: %d bytes, %v", sp, k, err)
			}
			if err := Cont(pid, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestThreadEndReleases: what was stopped when the tracing thread ended runs
// on, and is nobody's tracee.
func TestThreadEndReleases(t *testing.T) {
	pid := startChild(t, "spin")
	traced(t, func() error {
		if err := Seize(pid, 0); err != nil {
			return err
		}
		Interrupt(pid)
		_, err := waitKind(pid, KindInterrupt)
		return err // stopped now, and left so
	})
	traced(t, func() error { // it can be traced again, and stops again: so it ran
		if err := Seize(pid, 0); err != nil {
			return err
		}
		Interrupt(pid)
		_, err := waitKind(pid, KindInterrupt)
		return err
	})
}

// TestSignalOutlivesTracer: a signal that was reported, and not passed on before
// the tracing thread ended, is delivered all the same.
func TestSignalOutlivesTracer(t *testing.T) {
	pid := startChild(t, "wait")
	traced(t, func() error {
		if err := Seize(pid, 0); err != nil {
			return err
		}
		if err := unix.Tgkill(pid, pid, unix.SIGTERM); err != nil {
			return err
		}
		s, err := waitKind(pid, KindSignal)
		if err == nil && s.Signal != unix.SIGTERM {
			t.Errorf("signal %v, want SIGTERM", s.Signal)
		}
		return err
	})
	for limit := time.Now().Add(time.Minute); state(t, pid) != "Z"; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("the target lives on, in state %s: SIGTERM is lost", state(t, pid))
		}
	}
}

// TestKilledAtEvent kills a process at the event of a birth. It stops once more,
// at its exit, and the message that it has there is not the id of a child.
func TestKilledAtEvent(t *testing.T) {
	pid := startChild(t, "parent")
	traced(t, func() error {
		seized := map[int]bool{}
		for fresh := true; fresh; {
			tids, err := procfs.FS{}.TaskIDs(pid)
			if err != nil {
				return err
			}
			fresh = false
			for _, tid := range tids {
				if seized[tid] {
					continue
				}
				// EPERM: born of one that was seized, and so itself.
				if err := Seize(tid, OptFork|OptVfork|OptClone|OptExit); err != nil && err != unix.EPERM {
					return err
				}
				seized[tid], fresh = true, true
			}
		}
		birth, err := waitFor(func(s Status) bool {
			return s.Kind == KindClone || s.Kind == KindFork || s.Kind == KindVfork
		})
		if err != nil {
			return err
		}
		tid := birth.TID
		if id, err := birth.EventMsg(); err != nil || id == 0 || AtExit(tid) {
			t.Errorf("at the birth: message %d (%v), at the exit: %v", id, err, AtExit(tid))
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return err
		}
		exit, err := waitKind(tid, KindExit)
		if err != nil {
			return err
		}
		if id, err := birth.EventMsg(); err != unix.ESRCH || !AtExit(tid) {
			t.Errorf("at the exit: a birth of %d (%v), at the exit: %v", id, err, AtExit(tid))
		}
		if status, err := exit.EventMsg(); err != nil || unix.WaitStatus(status).Signal() != unix.SIGKILL {
			t.Errorf("at the exit: message %#x (%v), want SIGKILL", status, err)
		}
		if err := Cont(tid, 0); err != nil {
			return err
		}
		for stop(tid) != 0 { // it is on its way
		}
		_, err = waitFor(func(s Status) bool { return s.Kind == KindGone && (s.TID == tid || s.TID == pid) })
		return err // stop has left the end of the thread to be reported
	})
}

// TestGroupStopLasts: a stopped process reports its group-stop at once, shows
// its registers, and is still stopped when the tracer has gone.
func TestGroupStopLasts(t *testing.T) {
	pid := startChild(t, "wait")
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("wait for the stop: %v %v", ws, err)
	}
	traced(t, func() error {
		if err := Seize(pid, 0); err != nil {
			return err
		}
		s, err := waitKind(pid, KindGroupStop)
		if err != nil {
			return err
		}
		if s.Signal != unix.SIGSTOP {
			t.Errorf("group-stop by %v", s.Signal)
		}
		var note [512]byte
		if _, err := ReadRegs(pid, NotePrstatus, note[:]); err != nil {
			t.Errorf("read registers in the group-stop: %v", err)
		}
		return Listen(pid)
	})
	// The kernel wakes it once, to turn the tracer's stop into the plain one.
	for limit := time.Now().Add(time.Minute); ; runtime.Gosched() {
		s := state(t, pid)
		if s == "T" {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("state after the tracer has gone: %s, want T", s)
		}
	}
	unix.Kill(pid, unix.SIGCONT)
}

func state(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

func itoa(n int) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

// TestAlarmEndsWait: nothing reports, and Wait returns all the same.
func TestAlarmEndsWait(t *testing.T) {
	pid := startChild(t, "wait")
	traced(t, func() error {
		if err := Seize(pid, 0); err != nil {
			return err
		}
		a, err := NewAlarm()
		if err != nil {
			return err
		}
		defer a.Close()
		for range 100 {
			at := Now() + int64(200*time.Microsecond)
			a.Set(at)
			for Now() < at {
				if s, ok, err := Wait(); ok || err != nil {
					t.Errorf("Wait: %+v %v, want an interruption", s, err)
				}
			}
		}
		a.Set(1) // a time in the past
		if s, ok, err := Wait(); ok || err != nil {
			t.Errorf("Wait: %+v %v, want an interruption at once", s, err)
		}
		return nil
	})
}

func TestWaitWithoutTracees(t *testing.T) {
	traced(t, func() error {
		if _, ok, err := Wait(); ok || err != unix.ECHILD {
			t.Errorf("Wait: %v %v, want ECHILD", ok, err)
		}
		return nil
	})
}

// TestReadMemoryAcrossTheEnd: what is mapped before a hole is read, and told
// from it.
func TestReadMemoryAcrossTheEnd(t *testing.T) {
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Mprotect(b[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	copy(b[page-4:page], "tail")
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) + uint64(page) - 4
	got := make([]byte, 64)
	if n, err := ReadMemory(os.Getpid(), addr, got); n != 4 || err != nil || string(got[:n]) != "tail" {
		t.Errorf("ReadMemory: %d %v %q", n, err, got[:max(n, 0)])
	}
	if _, err := ReadMemory(os.Getpid(), addr+4, got); err != unix.EFAULT {
		t.Errorf("unmapped: %v, want EFAULT", err)
	}
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		raw  uint32
		kind Kind
		sig  unix.Signal
	}{
		{0x80057f, KindInterrupt, unix.SIGTRAP},
		{0x80137f, KindGroupStop, unix.SIGSTOP},
		{0x80147f, KindGroupStop, unix.SIGTSTP},
		{0x000a7f, KindSignal, unix.SIGUSR1},
		{0x00057f, KindSignal, unix.SIGTRAP},
		{0x00857f, KindSyscall, unix.SIGTRAP | 0x80},
		{0x03057f, KindClone, unix.SIGTRAP},
		{0x01057f, KindFork, unix.SIGTRAP},
		{0x02057f, KindVfork, unix.SIGTRAP},
		{0x04057f, KindExec, unix.SIGTRAP},
		{0x06057f, KindExit, unix.SIGTRAP},
		{0x000300, KindGone, 0},
		{0x000009, KindGone, 0},
	} {
		s := decode(1, c.raw)
		if s.Kind != c.kind || s.Kind != KindGone && s.Signal != c.sig {
			t.Errorf("%#x: %+v, want kind %d, signal %v", c.raw, s, c.kind, c.sig)
		}
	}
}

// TestOnThread: the thread has no children, whatever commands were begun. One that has is shown what another thread of its
// program makes of them.
func TestOnThread(t *testing.T) {
	sees := make(chan int)
	seized := make(chan struct{})
	pid := make(chan int)
	go func() {
		runtime.LockOSThread()
		cmd, _ := runChild(t, "wait")
		if !parental() {
			t.Error("a thread with a child is taken for one without")
		}
		pid <- cmd.Process.Pid
		<-seized
		for {
			if who, _, errno := RawWait(0, true); errno != unix.EINTR {
				sees <- who
				return
			}
		}
	}()
	tid := <-pid
	traced(t, func() error {
		if err := errors.Join(Seize(tid, 0), Interrupt(tid)); err != nil {
			return err
		}
		close(seized)
		if who := <-sees; who != tid {
			t.Errorf("the thread whose child has stopped for another thread is shown %d, not %d: OnThread need not care", who, tid)
		}
		return nil
	})
	for range 5 {
		runChild(t, "wait")
		for range 40 {
			<-OnThread(func() {
				if children, err := os.ReadFile("/proc/thread-self/children"); parental() || err == nil && len(children) > 0 {
					t.Errorf("the thread has children %q", children)
				}
			})
		}
	}
}
