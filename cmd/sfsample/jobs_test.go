package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// startJob starts a target that obeys in a process group of its own: in one whose
// members' parents are all in it too, the kernel ignores SIGTSTP (signal(7), POSIX
// orphaned process groups).
func startJob(t testing.TB) *proc {
	t.Helper()
	return startProc(t, &exec.Cmd{Path: self, Args: []string{targetName, "obey"}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}})
}

// nextState waits for the next change of a child's state, as a shell does.
func (p *proc) nextState(t testing.TB) string {
	t.Helper()
	var ws unix.WaitStatus
	eventually(t, "a change of the child's state", func() bool {
		pid, err := unix.Wait4(p.pid, &ws, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil)
		if err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		return pid == p.pid
	})
	return statusText(ws)
}

func statusText(ws unix.WaitStatus) string {
	switch {
	case ws.Stopped():
		return "stopped by " + unix.SignalName(ws.StopSignal())
	case ws.Continued():
		return "continued"
	}
	return fmt.Sprintf("%#x", ws)
}

// noNews fails the test if the child's state has changed again.
func (p *proc) noNews(t testing.TB) {
	t.Helper()
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(p.pid, &ws, unix.WNOHANG|unix.WUNTRACED|unix.WCONTINUED, nil); pid != 0 || err != nil {
		t.Errorf("the parent sees %s, %v; nothing has happened", statusText(ws), err)
	}
}

// control stops a job and lets it go on in every way, and tells what its parent
// sees. After each signal pass lets time pass.
func (p *proc) control(t *testing.T, pass func()) (seen []string) {
	t.Helper()
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT, unix.SIGTSTP, unix.SIGCONT, unix.SIGTTIN, unix.SIGCONT} {
		signalTo(t, p.pid, sig)
		seen = append(seen, p.nextState(t))
		pass()
		p.noNews(t)
		if sig == unix.SIGCONT {
			p.worked(t, 1)
			continue
		}
		// An interrupt of a stopped thread lets it turn round in the kernel.
		eventually(t, "the process is seen stopped", func() bool {
			state := stateOf(t, p.pid)
			return state == 'T' || state == 't'
		})
	}
	return seen
}

func stateOf(t testing.TB, pid int) byte {
	t.Helper()
	s, err := (procfs.FS{}).Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s.State
}

// TestJobControl stops processes that are sampled, and lets them go on: their
// parent sees what it would see without us, and who is stopped stays so, also
// when we leave.
func TestJobControl(t *testing.T) {
	// The clock goes on as long as this one works, while the other is stopped.
	other := startTarget(t, "obey")
	pass := func() { other.worked(t, 2) }
	want := startJob(t).control(t, func() {})
	for _, args := range [][]string{nil, {"--threads", "all"}, {"--stop", "always"}, {"--exit-stacks", "--children"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			p := startJob(t)
			list := strconv.Itoa(p.pid) + "," + strconv.Itoa(other.pid)
			sample := func() *running {
				r := begin(t, tool(append(args, "-hz", "999", "-p", list, "-o", os.DevNull)...))
				r.traces(t, p.pid)
				r.traces(t, other.pid)
				return r
			}
			leave := func(r *running) {
				r.interrupt(t)
				r.end(t).want(t, exitDone)
			}
			r := sample()
			if got := p.control(t, pass); !slices.Equal(got, want) {
				t.Errorf("the parent sees %q, without us %q", got, want)
			}
			signalTo(t, p.pid, unix.SIGSTOP)
			p.nextState(t)
			pass()
			leave(r)
			stopped := func() bool { return stateOf(t, p.pid) == 'T' } // it takes a moment on a CPU for that
			eventually(t, "the process is left stopped as before", stopped)
			// Once more, on a process that is stopped already.
			r = sample()
			pass()
			p.noNews(t)
			leave(r)
			eventually(t, "the process is left stopped as it was found", stopped)
			p.noNews(t)
			signalTo(t, p.pid, unix.SIGCONT)
			if got := p.nextState(t); got != "continued" {
				t.Errorf("the parent sees %q after SIGCONT", got)
			}
			p.untouched(t)
		})
	}
}

// TestKillIsPrompt kills a process whose sampler does not move: it ends all the
// same, in every thread.
func TestKillIsPrompt(t *testing.T) {
	for _, args := range [][]string{nil, {"--threads", "all"}, {"--stop", "always"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			p := startTarget(t, "spinners")
			r := begin(t, tool(append(args, "-hz", "999", "-p", strconv.Itoa(p.pid), "-o", os.DevNull)...))
			r.traces(t, p.pid)
			p.worked(t, 1)
			tracer := r.cmd.Process.Pid
			signalTo(t, tracer, unix.SIGSTOP)
			eventually(t, "the sampler stops", func() bool { return stateOf(t, tracer) == 'T' })
			signalTo(t, p.pid, unix.SIGKILL)
			began := time.Now()
			eventually(t, "every thread ends", func() bool {
				for _, s := range threadStatus(t, p.pid) {
					if s.State != 'Z' && s.State != 'X' {
						return false
					}
				}
				return true
			})
			t.Logf("ended in %v", time.Since(began))
			signalTo(t, tracer, unix.SIGCONT)
			if ws := p.status(t); !ws.Signaled() || ws.Signal() != unix.SIGKILL {
				t.Errorf("the parent sees wait status %#x, want that of SIGKILL", ws)
			}
			r.end(t).want(t, exitDone)
		})
	}
}

// TestZombie ends a process that is sampled and lets it wait for its parent: it
// is a zombie as without us, and its parent gets its status.
func TestZombie(t *testing.T) {
	p := startEnds(t)
	r := begin(t, tool("-p", strconv.Itoa(p.pid), "-hz", "999", "-o", os.DevNull))
	r.traces(t, p.pid)
	p.does(t, "g", "")
	r.end(t).want(t, exitDone)
	s, err := (procfs.FS{}).Status(p.pid)
	if err != nil || s.State != 'Z' || s.TracerPid != 0 {
		t.Errorf("state %c, traced by %d, %v; want a zombie that nobody traces", s.State, s.TracerPid, err)
	}
	if ws := p.status(t); !ws.Exited() || ws.ExitStatus() != 7 {
		t.Errorf("wait status %#x, want exit status 7", ws)
	}
}

// tracer seizes the threads of process pid, prints ready, and at the end of its
// input how often one of them has stopped.
func tracer(pid int) {
	runtime.LockOSThread()
	ids, err := (procfs.FS{}).TaskIDs(pid)
	check(err)
	for _, tid := range ids {
		check(ptrace.Seize(tid, 0))
	}
	fmt.Println("ready")
	_, err = io.ReadAll(os.Stdin)
	check(err)
	stops := 0
	for {
		tid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil)
		check(err)
		if tid == 0 {
			break
		}
		stops++
		check(ptrace.Cont(tid, 0))
	}
	fmt.Println(stops, "stops")
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestTracedByAnother samples and dumps a process that somebody else traces: its
// blocked threads are read without a stop, and the other tracer sees nothing of
// it.
func TestTracedByAnother(t *testing.T) {
	p := startEnds(t)
	pid := strconv.Itoa(p.pid)
	other := startTarget(t, "tracer", pid)
	blocked := []string{"await", "doze", "obey"}
	t.Run("sample", func(t *testing.T) {
		o := sfsample(t, "-p", pid, "-d", "1", "--threads", "all", "-o", "json=-")
		o.want(t, exitDone, "is traced by process "+strconv.Itoa(other.pid))
		list := parseSamples(t, o.stdout)
		for _, function := range blocked {
			if !slices.ContainsFunc(list, func(s *jsonSample) bool {
				return s.has(function) && s.Complete && s.Taken == "no stop"
			}) {
				t.Errorf("no complete stack with %s, read without a stop:\n%s", function, o.stdout)
			}
		}
	})
	t.Run("dump", func(t *testing.T) {
		o := sfsample(t, "dump", "--group=false", "-p", pid)
		o.want(t, exitDone)
		for _, function := range blocked {
			if !strings.Contains(o.stdout, " "+function+"+0x") {
				t.Errorf("no frame of %s:\n%s", function, o.stdout)
			}
		}
	})
	if err := other.in.Close(); err != nil {
		t.Fatal(err)
	}
	if got := other.line(t); got != "0 stops" {
		t.Errorf("the other tracer sees %s, want none", got)
	}
}

// TestSuspend stops the sampler as a shell does (Ctrl-Z, or output from the background): its targets go on, and
// nobody is our tracee meanwhile. Then it goes on.
func TestSuspend(t *testing.T) {
	for _, args := range [][]string{nil, {"--threads", "all"}, {"--stop", "always"}, {"--exit-stacks"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			p := startTarget(t, "obey")
			cmd := tool(append(args, "-hz", "999", "-p", strconv.Itoa(p.pid), "-o", os.DevNull)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with a parent outside of it: see startJob
			r := begin(t, cmd)
			r.traces(t, p.pid)
			sampler := cmd.Process.Pid
			p.worked(t, 2)
			if args != nil && args[0] == "--exit-stacks" {
				const told = "not stopped: "
				signalTo(t, sampler, unix.SIGTSTP)
				eventually(t, told, func() bool { return strings.Contains(r.stderr.String(), told) })
				p.worked(t, 5)
				if s := stateOf(t, sampler); s == 'T' {
					t.Error("the sampler is stopped, and holds all threads")
				}
				r.interrupt(t)
				r.end(t).want(t, exitDone)
				return
			}
			for range 5 {
				for _, sig := range []unix.Signal{unix.SIGTSTP, unix.SIGTTOU, unix.SIGTTIN} {
					signalTo(t, sampler, sig)
					eventually(t, "the sampler is stopped", func() bool { return stateOf(t, sampler) == 'T' })
					for _, tid := range tasks(t, p.pid) {
						if s, err := (procfs.FS{}).Status(tid); err == nil && s.TracerPid != 0 {
							t.Errorf("%v: thread %d is a tracee of %d, which is stopped", sig, tid, s.TracerPid)
						}
					}
					p.worked(t, 2)
					signalTo(t, sampler, unix.SIGCONT)
					eventually(t, "the sampler goes on", func() bool { return stateOf(t, sampler) != 'T' })
				}
			}
			p.worked(t, 2)
			r.interrupt(t)
			o := r.end(t)
			o.want(t, exitDone, " suspended")
			if strings.Contains(o.stderr, "do not add up") {
				t.Error(o.stderr)
			}
			p.untouched(t)
		})
	}
}
