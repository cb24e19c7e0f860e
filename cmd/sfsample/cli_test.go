package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler"
	"sfsample/sampler/ledger"
)

// TestUsage runs wrong command lines: status 2, one line that says what to
// write, and a target that was never touched.
func TestUsage(t *testing.T) {
	p := startTarget(t, "obey")
	pid := strconv.Itoa(p.pid)
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "no process given"},
		{"container's name", []string{"--container", "web"}, "--container web: is no id of a container"},
		{"agent of nobody", []string{"agent"}, "an agent needs a choice of processes (try: --config FILE"},
		{"hz zero", []string{"-p", pid, "-hz", "0"}, "-hz 0: is no rate"},
		{"hz negative", []string{"-p", pid, "-hz", "-1"}, "-hz -1: is no rate"},
		{"hz fraction", []string{"-p", pid, "-hz", "0.5"}, "-hz 0.5: is no rate"},
		{"hz exponent", []string{"-p", pid, "-hz", "1e9"}, "-hz 1e9: is no rate"},
		{"hz too high", []string{"-p", pid, "-hz", "1000000000"}, "-hz 1000000000: is no rate"},
		{"hz beyond 64 bits", []string{"-p", pid, "-hz", "99999999999999999999"}, "is no rate"},
		{"hz text", []string{"-p", pid, "-hz", "often"}, "-hz often: is no rate"},
		{"duration zero", []string{"-p", pid, "-d", "0"}, "-d 0: is no duration"},
		{"duration negative", []string{"-p", pid, "-d", "-3s"}, "-d -3s: is no duration"},
		{"duration text", []string{"-p", pid, "-d", "soon"}, "-d soon: is no duration"},
		{"duration with unknown unit", []string{"-p", pid, "-d", "5x"}, "-d 5x: is no duration"},
		{"duration too long", []string{"-p", pid, "-d", "1e30"}, "is no duration"},
		{"pid text", []string{"-p", "sfsample-no-such"}, `"sfsample-no-such" is no process or thread id`},
		{"pid of nothing", []string{"-p", " "}, `"" is no process or thread id`},
		{"record", []string{"record", "-p", pid}, "record is a flag (try: sfsample -p PID --record FILE"},
		{"top of nothing", []string{"top"}, "no process given (try: sfsample top -p PID"},
		{"top with an output", []string{"top", "-p", pid, "-o", "x.html"}, "-o has no meaning with top"},
		{"top with short rounds", []string{"top", "-p", pid, "--every", "0.1"}, "--every 100ms: a round takes at least 1s"},
		{"pid zero", []string{"-p", "0"}, `"0" is no process or thread id`},
		{"pid negative", []string{"-p", "-1"}, `"-1" is no process or thread id`},
		{"same output twice", []string{"-p", pid, "-o", "x.folded", "-o", "x.folded"}, "is written to twice"},
		{"standard output twice", []string{"-p", pid, "-o", "-", "-o", "pprof=-"}, "is written to twice"},
		{"output and recording", []string{"-p", pid, "-o", "x", "--record", "x"}, "both write x"},
		{"no command", []string{"--"}, "no command after --"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := sfsample(t, tt.args...)
			o.want(t, exitUsage, tt.want)
			o.wantOneLine(t)
		})
	}
	p.untouched(t)
}

// TestCannotSample runs right command lines for what cannot be sampled: status
// 1, one line with the reason and what to try.
func TestCannotSample(t *testing.T) {
	t.Run("no such process", func(t *testing.T) {
		// An id that was a moment ago, and that the kernel gives away again
		// only when it has been round all others.
		cmd := &exec.Cmd{Path: self, Args: []string{targetName, "exit"}}
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid := strconv.Itoa(cmd.Process.Pid)
		o := sfsample(t, "-p", pid)
		o.want(t, exitFailed, "attach "+pid+": no such process")
		o.wantOneLine(t)
	})
	t.Run("zombie", func(t *testing.T) {
		pid := zombie(t)
		o := sfsample(t, "-p", strconv.Itoa(pid))
		o.want(t, exitFailed, "has exited", "process "+strconv.Itoa(os.Getpid()))
		o.wantOneLine(t)
	})
	t.Run("thread of the kernel", func(t *testing.T) {
		s, err := (procfs.FS{}).Stat(2) // kthreadd, but in a pid namespace
		if err != nil || s.Flags&procfs.FlagKThread == 0 {
			t.Skip("no kernel threads to be seen on this machine")
		}
		o := sfsample(t, "-p", "2", "-d", "10")
		o.want(t, exitFailed, "attach 2: it is a thread of the kernel")
		o.wantOneLine(t)
	})
	t.Run("itself", func(t *testing.T) {
		cmd := &exec.Cmd{Path: self, Args: []string{targetName, "sample-self"}}
		o := begin(t, cmd).end(t)
		o.want(t, exitFailed, "attach "+strconv.Itoa(cmd.Process.Pid)+": this is sfsample itself")
		o.wantOneLine(t)
	})
	t.Run("thread as process", func(t *testing.T) {
		p := startTarget(t, "obey")
		ids, err := (procfs.FS{}).TaskIDs(p.pid)
		if err != nil {
			t.Fatal(err)
		}
		tid := ids[len(ids)-1]
		if tid == p.pid {
			t.Fatalf("threads %d of a Go program: want more than one", ids)
		}
		o := sfsample(t, "-p", strconv.Itoa(tid))
		o.want(t, exitFailed, "attach "+strconv.Itoa(tid)+": it is a thread of process "+strconv.Itoa(p.pid), "-p "+strconv.Itoa(p.pid))
		o.wantOneLine(t)
		p.untouched(t)
	})
	t.Run("thread of another process", func(t *testing.T) {
		p, q := startTarget(t, "obey"), startTarget(t, "obey")
		o := sfsample(t, "-p", strconv.Itoa(p.pid), "-t", strconv.Itoa(q.pid))
		o.want(t, exitFailed, "it is a thread of process "+strconv.Itoa(q.pid))
		o.wantOneLine(t)
		p.untouched(t)
		q.untouched(t)
	})
	t.Run("process of another user", func(t *testing.T) {
		o, pid := onAnothersProcess(t, "-d", "10", "-p")
		o.want(t, exitFailed, "attach "+strconv.Itoa(pid)+": operation not permitted", "uid 0", "try: ")
		o.wantOneLine(t)
	})
	t.Run("dump of another user's process", func(t *testing.T) {
		o, pid := onAnothersProcess(t, "dump", "-p")
		o.want(t, exitFailed, "dump "+strconv.Itoa(pid)+": no thread can be read (it belongs to uid 0", "try: ")
		if !strings.Contains(o.stdout, "of pid "+strconv.Itoa(pid)) || !strings.Contains(o.stdout, "end: no stack: cannot be read: it belongs to uid 0") {
			t.Errorf("what is known of the threads is not shown: %q", o.stdout)
		}
	})
	t.Run("kernel stacks without permission", func(t *testing.T) {
		cmd := tool("--kernel", "-o", "/dev/null", "--", self, "-test.list", "^$")
		cmd.Dir = "/"
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
		}
		const told = "the kernel's part of stacks cannot be shown: "
		begin(t, cmd).end(t).want(t, exitDone, told, "(try: as root, with CAP_SYS_ADMIN)")
		o, _ := onAnothersProcess(t, "dump", "--kernel", "-p")
		o.want(t, exitFailed, told)
		if o, _ := onAnothersProcess(t, "dump", "-p"); strings.Contains(o.stderr, told) {
			t.Errorf("without --kernel: %s", o.stderr)
		}
	})
}

// onAnothersProcess runs the tool with a process of another user as its last
// argument: as nobody if we are root, else with root's first process. Its target
// must not have been touched.
func onAnothersProcess(t *testing.T, args ...string) (o outcome, pid int) {
	t.Helper()
	pid = 1
	cmd := tool(args...)
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		p := startTarget(t, "obey")
		pid = p.pid
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
		defer p.untouched(t)
	}
	cmd.Args = append(cmd.Args, strconv.Itoa(pid))
	return begin(t, cmd).end(t), pid
}

// TestCannotRun starts commands that do not run: status 1, and one line that
// says why.
func TestCannotRun(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, tt := range []struct{ name, command, want string }{
		{"no such file", "/nonexistent/command", "no such file or directory (try: its full path"},
		{"not in PATH", "sfsample-no-such-command", "(try: its full path"},
		{"folder", dir, "is a directory (give a program in it)"},
		{"not executable", file("data", "data", 0o600), "permission denied (try: chmod +x"},
		{"no program", file("broken", "\x7fELF", 0o700), "exec format error (it is no program"},
		{"no interpreter", file("script", "#!/nonexistent/interpreter\n", 0o700), "no such file or directory (try: its full path; a script's interpreter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := sfsample(t, "--", tt.command)
			o.want(t, exitFailed, "run "+tt.command+": ", tt.want)
			o.wantOneLine(t)
		})
	}
}

// TestCommandStatus: a command's exit status is passed on, whoever of us reaps it, and
// one that outlives the run is told.
func TestCommandStatus(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh on this machine")
	}
	work := "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; "
	for _, tt := range []struct {
		name, script string
		args         []string
		status       int
		want         string
	}{
		{"done", "exit 0", nil, 0, "stacks: "},
		{"status", "exit 7", nil, 7, "sh ended with status 7\n"},
		{"signal", "kill -KILL $$", nil, 137, "sh was ended by SIGKILL\n"},
		{"seized often", work + "exit 7", []string{"-hz", "9999", "--max-overhead", "100"}, 7, "sh ended with status 7\n"},
		{"exit stacks", work + "exit 7", []string{"--exit-stacks"}, 7, "sh ended with status 7\n"},
		{"exit stacks, signal", "kill -TERM $$", []string{"--exit-stacks"}, 143, "sh was ended by SIGTERM\n"},
		{"outlives", "exec >&- 2>&-; read x", []string{"-d", "0.1"}, 0, "sh lives on as process "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := tool(append(append([]string{"-o", os.DevNull}, tt.args...), "--", "sh", "-c", tt.script)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			begin(t, cmd).end(t).want(t, tt.status, tt.want)
			in.Close()
		})
	}
}

// TestNext: the closing lines say what to do about a target that is stopped or sleeps, and a name
// given for an id is answered with the ids.
func TestNext(t *testing.T) {
	p := startTarget(t, "obey")
	pid := strconv.Itoa(p.pid)
	file := filepath.Join(t.TempDir(), "a.html")
	var o outcome
	for range 20 { // on busy CPUs a target that has just begun may wait for one in some of so few ticks
		if o = sfsample(t, "-p", pid, "-d", "0.1", "-o", file); strings.Contains(o.stderr, "next: hardly") {
			break
		}
	}
	o.want(t, exitDone, "next: hardly anything ran, ", "sfsample dump -p "+pid, "wrote "+file+" (")
	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, ended.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil { // a zombie
		t.Fatal(err)
	}
	idle := session{config: config{sampling: sampling{threads: threadsRunning}}, result: sampler.Result{Account: ledger.Account{Ticks: 9, Expected: 9}}}
	gone, brief := idle, idle
	gone.config.who.pids = []int{ended.Process.Pid}
	brief.command, brief.result.Expected = &started{}, 0
	for what, s := range map[string]session{"a process that has ended": gone, "a command": brief} {
		if next := s.next(sampler.Unwound{}); !strings.HasSuffix(next, " or a higher -hz)") {
			t.Errorf("what is to be done about %s that did not run: %s", what, next)
		}
	}
	_ = ended.Wait()
	// Where most of what is lost was left out on purpose, the purpose is named.
	for _, tt := range []struct {
		hz, throttled, lost int64
		taken               time.Duration
		maxCPU              float64
		want                string
	}{
		{99, 26, 25, 147 * time.Microsecond, 0, "26 of 100 thread ticks were left out, as a sample takes 147µs of the target's time (try: --max-overhead 3%, or a lower -hz)"},
		{3000, 60, 0, 110 * time.Microsecond, 0, "60 of 100 thread ticks were left out, as a sample takes 110µs of the target's time (try: --max-overhead 50%, or a lower -hz)"},
		{3000, 60, 0, 112 * time.Microsecond, 0, "60 of 100 thread ticks were left out, as a sample takes 112µs of the target's time (try: a lower -hz)"},
		{50, 60, 0, 110 * time.Microsecond, 0, "60 of 100 thread ticks were left out, as a sample takes 110µs of the target's time (try: a lower -hz)"}, // that much it may
		{99, 26, 26, 147 * time.Microsecond, 0, "52 of 100 thread ticks were lost (try: a lower -hz"},
		{99, 60, 0, 147 * time.Microsecond, 0.05, "60 of 100 thread ticks were lost (try: a lower -hz"},
		{99, 25, 0, 147 * time.Microsecond, 0, ""},
	} {
		s := session{config: config{pace: pace{hz: int(tt.hz), maxCPU: tt.maxCPU, maxOverhead: 0.01}}, result: sampler.Result{Account: ledger.Account{Ticks: 100, Expected: 100}}}
		s.found.names = new(sampler.Names)
		s.result.Count[ledger.Sampled], s.result.Count[ledger.Throttled], s.result.Count[ledger.Unmet] = 100-tt.throttled-tt.lost, tt.throttled, tt.lost
		s.result.Times.Taken.P50 = tt.taken
		if next := s.next(sampler.Unwound{}); !strings.HasPrefix(next, tt.want) || tt.want == "" && next != "" {
			t.Errorf("next: %q, want %q", next, tt.want)
		}
	}
	signalTo(t, p.pid, unix.SIGSTOP)
	o = sfsample(t, "-p", pid+" "+pid, "-d", "0.1", "-o", file) // as pidof prints them
	o.want(t, exitDone, "next: process "+pid+" is stopped, by a signal", "kill -CONT "+pid)
	signalTo(t, p.pid, unix.SIGCONT)
	comm, err := (procfs.FS{}).Task(p.pid, p.pid).Comm()
	if err != nil {
		t.Fatal(err)
	}
	sfsample(t, "-p", comm).want(t, exitUsage, "is no process or thread id, but a name (try: -p ", pid)
	sfsample(t, "help").want(t, exitDone)
	if err := (&config{}).checkProc(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not mounted here") {
		t.Errorf("without /proc the error is %v", err)
	}
	if err := (&config{}).checkProc("/proc"); err != nil {
		t.Error(err)
	}
}

// nobody is an ordinary user that owns nothing.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

// stackOf returns the folded lines that have a frame whose name ends with name.
func stackOf(folded, name string) (lines []string) {
	for line := range strings.Lines(folded) {
		stack := line[:max(0, strings.LastIndexByte(line, ' '))]
		for _, frame := range strings.Split(stack, ";") {
			if strings.HasSuffix(frame, name) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

// wantStacks fails the test if folded output has not the stack of [spin].
func wantStacks(t testing.TB, folded string) {
	t.Helper()
	if len(stackOf(folded, ".spin")) == 0 {
		t.Errorf("no stack with spin was written:\n%s", folded)
	}
}

// wantAllWork fails the test if folded output weighs less than a target's n
// units of work at this rate. Samples weigh CPU time, so that lateness and
// losses change nothing in the sum.
func wantAllWork(t testing.TB, folded string, n, hz int) {
	t.Helper()
	wantStacks(t, folded)
	var got int
	for line := range strings.Lines(folded) {
		words := strings.Fields(line)
		ticks, err := strconv.Atoi(words[len(words)-1])
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		got += ticks
	}
	if want := int(workUnit.Seconds() * float64(n*hz)); got < want-1 {
		t.Errorf("the lines sum up to %d ticks, want %d for the work done:\n%s", got, want, folded)
	}
}

// sampleWork starts sfsample on p and lets p work once it is traced.
func sampleWork(t testing.TB, p *proc, args ...string) *running {
	t.Helper()
	r := begin(t, tool(append([]string{"-p", strconv.Itoa(p.pid)}, args...)...))
	r.traces(t, p.pid)
	p.worked(t, 8)
	return r
}

// TestEnd ends runs in every way that is none of an error: status 0 and a whole
// result.
func TestEnd(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, p *proc, r *running)
	}{
		{"Ctrl-C", func(t *testing.T, p *proc, r *running) { r.interrupt(t) }},
		{"SIGTERM", func(t *testing.T, p *proc, r *running) { signalTo(t, r.cmd.Process.Pid, unix.SIGTERM) }},
		{"hangup", func(t *testing.T, p *proc, r *running) { signalTo(t, r.cmd.Process.Pid, unix.SIGHUP) }},
		{"target exits", func(t *testing.T, p *proc, r *running) { p.send(t, "exit") }},
		{"target is killed", func(t *testing.T, p *proc, r *running) { signalTo(t, p.pid, unix.SIGKILL) }},
		{"target is killed while it works", func(t *testing.T, p *proc, r *running) {
			p.send(t, "work 1000000")
			signalTo(t, p.pid, unix.SIGKILL)
		}},
		{"target dies of a signal", func(t *testing.T, p *proc, r *running) { signalTo(t, p.pid, unix.SIGKILL) }},
		{"target execs and exits", func(t *testing.T, p *proc, r *running) {
			p.send(t, "exec")
			if got := p.line(t); got != "ready" {
				t.Fatalf("after exec the target says %q", got)
			}
			p.worked(t, 8)
			p.send(t, "exit")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startTarget(t, "obey")
			r := sampleWork(t, p)
			tt.end(t, p, r)
			o := r.end(t)
			o.want(t, exitDone, "thread ticks = ", "rate: 99.0 Hz asked", "stacks: ")
			if strings.Contains(o.stderr, "do not add up") {
				t.Errorf("accounting:\n%s", o.stderr)
			}
			wantStacks(t, o.stdout)
		})
	}
}

func signalTo(t testing.TB, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// TestTargetOutlives lets the sampler end while its target works: nothing of it
// stays.
func TestTargetOutlives(t *testing.T) {
	p := startTarget(t, "obey")
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			r := sampleWork(t, p, "-hz", "999")
			signalTo(t, r.cmd.Process.Pid, sig)
			r.end(t)
			p.untouched(t)
		})
	}
}

// TestHeadless samples a process whose main thread has exited: its maps, its
// memory and its exe are to be had by another thread's id only.
func TestHeadless(t *testing.T) {
	p := startTarget(t, "headless")
	r := begin(t, tool("-p", strconv.Itoa(p.pid)))
	r.traces(t, p.pid)
	p.worked(t, 8)
	p.send(t, "exit")
	o := r.end(t)
	o.want(t, exitDone)
	wantStacks(t, o.stdout)
}

// TestOutputFails ends runs whose result cannot be written where it should be:
// status 1, one line that says so, the result saved, the target untouched.
func TestOutputFails(t *testing.T) {
	finish := func(t *testing.T, p *proc, r *running) outcome {
		t.Helper()
		r.interrupt(t)
		o := r.end(t)
		p.untouched(t)
		return o
	}
	t.Run("no such folder", func(t *testing.T) {
		p := startTarget(t, "obey")
		o := sfsample(t, "-p", strconv.Itoa(p.pid), "-o", "/nonexistent/x.folded")
		o.want(t, exitFailed, "output /nonexistent/x.folded: no such file or directory")
		o.wantOneLine(t)
		p.untouched(t)
	})
	t.Run("recording in no such folder", func(t *testing.T) {
		p := startTarget(t, "obey")
		o := sfsample(t, "-p", strconv.Itoa(p.pid), "--record", "/nonexistent/x")
		o.want(t, exitFailed, "record", "/nonexistent/x: no such file or directory")
		o.wantOneLine(t)
		p.untouched(t)
	})
	t.Run("same output by two names", func(t *testing.T) {
		p := startTarget(t, "obey")
		dir := t.TempDir()
		o := sfsample(t, "-p", strconv.Itoa(p.pid), "-o", dir+"/x", "-o", dir+"/./x")
		o.want(t, exitUsage, "is written to twice")
		o.wantOneLine(t)
		p.untouched(t)
	})
	t.Run("full disk", func(t *testing.T) {
		p := startTarget(t, "obey")
		cmd := tool("-p", strconv.Itoa(p.pid), "-o", "/dev/full")
		dir := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		r := begin(t, cmd)
		r.traces(t, p.pid)
		p.worked(t, 8)
		o := finish(t, p, r)
		o.want(t, exitFailed, "write /dev/full: no space left on device", "saved as "+dir)
		saved, err := filepath.Glob(dir + "/sfsample-*.folded")
		if err != nil || len(saved) != 1 {
			t.Fatalf("saved results %q, %v; want one", saved, err)
		}
		wantStacks(t, readFile(t, saved[0]))
	})
	t.Run("full disk for one of two", func(t *testing.T) {
		p := startTarget(t, "obey")
		r := sampleWork(t, p, "-hz", "999", "-o", "json=/dev/full", "-o", "-")
		o := finish(t, p, r)
		o.want(t, exitFailed, "write /dev/full: no space left on device")
		wantAllWork(t, o.stdout, 8, 999)
	})
	t.Run("recording on a full disk", func(t *testing.T) {
		p := startTarget(t, "obey")
		o := sfsample(t, "-p", strconv.Itoa(p.pid), "--record", "/dev/full")
		o.want(t, exitFailed, "/dev/full: no space left on device")
		o.wantOneLine(t)
		p.untouched(t)
	})
	t.Run("recording on a disk that runs full", func(t *testing.T) {
		dir := smallDisk(t)
		p := startTarget(t, "obey")
		r := sampleWork(t, p, "-hz", "999", "--record", dir+"/x")
		o := finish(t, p, r)
		o.want(t, exitFailed, "record", "no space left on device", "thread ticks = ")
		wantAllWork(t, o.stdout, 8, 999)
		if got := strings.Count(o.stderr, "no space left"); got != 1 {
			t.Errorf("the full disk is told %d times, want once:\n%s", got, o.stderr)
		}
	})
	t.Run("closed pipe", func(t *testing.T) {
		p := startTarget(t, "obey")
		rd, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		rd.Close()
		second := filepath.Join(t.TempDir(), "second.folded")
		cmd := tool("-p", strconv.Itoa(p.pid), "-hz", "999", "-o", "json=-", "-o", second)
		cmd.Stdout = wr
		r := begin(t, cmd)
		wr.Close()
		r.traces(t, p.pid)
		p.worked(t, 8)
		o := finish(t, p, r)
		o.want(t, exitFailed, "write standard output: broken pipe")
		wantAllWork(t, readFile(t, second), 8, 999)
	})
	t.Run("closed pipe and nothing else", func(t *testing.T) {
		p := startTarget(t, "obey")
		rd, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		rd.Close()
		cmd := tool("-p", strconv.Itoa(p.pid), "-hz", "999", "-o", "json=-")
		cmd.Stdout = wr
		r := begin(t, cmd)
		wr.Close()
		eventually(t, "the run ends", func() bool { // by itself: nobody reads what it would still find
			p.worked(t, 1)
			return r.over()
		})
		o := r.end(t)
		o.want(t, exitFailed, "write standard output: broken pipe")
		p.untouched(t)
	})
	t.Run("small file system", func(t *testing.T) {
		dir := smallDisk(t)
		p := startTarget(t, "obey")
		name := filepath.Join(dir, "x.jsonl")
		cmd := tool("-p", strconv.Itoa(p.pid), "-hz", "999", "-o", name, "-o", "-")
		r := begin(t, cmd)
		r.traces(t, p.pid)
		p.worked(t, 40)
		o := finish(t, p, r)
		o.want(t, exitFailed, "write "+name+": no space left on device", "its beginning is kept as "+name)
		wantAllWork(t, o.stdout, 40, 999)
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s exists, but is not whole", name)
		}
	})
}

// smallDisk is a folder with room for one page.
func smallDisk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
