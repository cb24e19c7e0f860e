package ptrace

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// execAside tells the ids of two threads that are not the leader. When the first is
// traced the second calls exec.
func execAside() {
	tids := make(chan int)
	go func() {
		runtime.LockOSThread()
		tids <- unix.Gettid()
		select {}
	}()
	go func() {
		runtime.LockOSThread()
		tid := <-tids
		fmt.Println(tid, unix.Gettid())
		for tracer := 0; tracer == 0; runtime.Gosched() {
			s, err := (procfs.FS{}).Status(tid)
			if err != nil {
				panic(err)
			}
			tracer = s.TracerPid
		}
		env := append(os.Environ(), childEnv+"=spin")
		if err := unix.Exec("/proc/self/exe", []string{"exec"}, env); err != nil {
			panic(err)
		}
	}()
	select {}
}

func init() {
	if os.Getenv(childEnv) == "exec" {
		runtime.LockOSThread() // main is to run on the leader
	}
}

// TestSeizeInExec seizes a thread of a process while a thread of that is in exec and
// waits for the end of a third, which is a tracee that nobody has waited for yet. A
// plain seize would wait for good, and so would the exec.
func TestSeizeInExec(t *testing.T) {
	t.Run("leader", func(t *testing.T) {
		seizeInExec(t, func(pid, caller int) (int, error) { return pid, unix.EPERM }) // that is gone
	})
	t.Run("caller", func(t *testing.T) {
		seizeInExec(t, func(pid, caller int) (int, error) { return caller, nil })
	})
}

// seizeInExec seizes the thread that which tells. It says what error is wanted, too.
func seizeInExec(t *testing.T, which func(pid, caller int) (tid int, want error)) {
	cmd, out := runChild(t, "exec")
	t.Cleanup(func() { cmd.Process.Kill() })
	var first, caller int
	if _, err := fmt.Fscanf(out, "ready\n%d %d\n", &first, &caller); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	tid, want := which(pid, caller)
	var ended []Status
	var err error
	done := OnThread(func() { ended, err = seizeWithZombie(pid, first, tid) })
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the seize does not return")
	}
	if err != want {
		t.Errorf("seize: %v, want %v", err, want)
	}
	if len(ended) != 1 || ended[0].TID != first || ended[0].Kind != KindGone {
		t.Errorf("ended: %+v, want thread %d", ended, first)
	}
	if line, err := out.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Errorf("the new program says %q (%v)", line, err)
	}
}

// rawSeize seizes a thread outside of Go's scheduler.
type rawSeize struct {
	tid   int
	errno unix.Errno
}

//go:nosplit
func (r *rawSeize) Outside() { r.errno = RawSeize(r.tid) }

// seizeToEnd seizes a thread and returns when it is a zombie.
func seizeToEnd(pid, tid int) error {
	if err := Seize(tid, 0); err != nil {
		return err
	}
	if own := unix.Gettid(); !isTracee(tid) || isTracee(own) {
		return fmt.Errorf("traced: the seized thread %v, this one %v; want true, false", isTracee(tid), isTracee(own))
	}
	for state := byte('S'); state != 'Z'; runtime.Gosched() {
		st, err := (procfs.FS{}).Task(pid, tid).Stat()
		if err != nil {
			return err
		}
		state = st.State
	}
	return nil
}

// seizeWithZombie seizes tid when first, which it seizes before, is a zombie.
func seizeWithZombie(pid, first, tid int) (ended []Status, err error) {
	if err := seizeToEnd(pid, first); err != nil {
		return nil, err
	}
	ended, err = SeizeIn(pid, tid, 0)
	if err == nil && (isTracee(tid) || !isTracee(pid)) { // it has another id now
		err = fmt.Errorf("traced: the seized thread %v, the leader %v; want false, true", isTracee(tid), isTracee(pid))
	}
	return ended, err
}

// TestSeizeEnds: an alarm ends a seize that waits for an exec which does not end, and nothing is seized. The exec waits for a thread that
// another one of ours traces.
func TestSeizeEnds(t *testing.T) {
	cmd, out := runChild(t, "exec")
	t.Cleanup(func() { cmd.Process.Kill() })
	var first, caller int
	if _, err := fmt.Fscanf(out, "ready\n%d %d\n", &first, &caller); err != nil {
		t.Fatal(err)
	}
	hangs, end := make(chan error), make(chan bool)
	letGo := sync.OnceFunc(func() { close(end) })
	t.Cleanup(letGo)
	holds := OnThread(func() {
		hangs <- seizeToEnd(cmd.Process.Pid, first)
		<-end
	})
	if err := <-hangs; err != nil {
		t.Fatal(err)
	}
	for name, seize := range map[string]func() error{
		"seize": func() error { return Seize(caller, 0) },
		"raw": func() error {
			r := rawSeize{tid: caller}
			Outside(&r)
			return r.errno
		},
	} {
		var err error
		var traced bool
		done := OnThread(func() {
			alarm, aerr := NewAlarm()
			if aerr != nil {
				err = aerr
				return
			}
			defer alarm.Close()
			alarm.Set(Now() + int64(20*time.Millisecond))
			err = seize()
			traced = isTracee(caller)
		})
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not return", name)
		}
		if err != unix.EINTR || traced {
			t.Errorf("%s: %v, traced: %v; want %v, false", name, err, traced, unix.EINTR)
		}
	}
	letGo()
	<-holds
	if line, err := out.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Errorf("the new program says %q (%v)", line, err)
	}
}

// TestSeizeHeld does the same where the third thread stops before its exit, which the caller has to answer: an alarm ends the seize for that.
func TestSeizeHeld(t *testing.T) {
	cmd, out := runChild(t, "exec")
	t.Cleanup(func() { cmd.Process.Kill() })
	var first, caller int
	if _, err := fmt.Fscanf(out, "ready\n%d %d\n", &first, &caller); err != nil {
		t.Fatal(err)
	}
	var err, held error
	done := OnThread(func() {
		if err = Seize(first, OptExit); err != nil {
			return
		}
		if _, err = waitKind(first, KindExit); err != nil {
			return
		}
		var alarm *Alarm
		if alarm, err = NewAlarm(); err != nil {
			return
		}
		defer alarm.Close()
		alarm.Set(Now() + int64(20*time.Millisecond))
		_, held = SeizeIn(cmd.Process.Pid, caller, 0)
		RawAlarm(alarm, 0)
		Cont(first, 0)
		_, err = SeizeIn(cmd.Process.Pid, caller, 0)
	})
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the seize does not return")
	}
	if err != nil || held != unix.EINTR {
		t.Errorf("seized: %v while a thread is held, want %v; then %v", held, unix.EINTR, err)
	}
	if line, err := out.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Errorf("the new program says %q (%v)", line, err)
	}
}

// isTracee tells whether a thread is a tracee, or a child, of the calling OS thread.
func isTracee(tid int) bool {
	_, _, errno := RawWait(tid, false)
	return errno != unix.ECHILD
}
