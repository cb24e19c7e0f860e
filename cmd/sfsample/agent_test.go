package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler"
)

// TestConfig: a file says what flags would.
func TestConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	parse := func(text string, more ...string) (config, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return parseArgs(append([]string{"agent", "--config", file}, more...))
	}
	text := `---
# everything that an agent can be told
name: [web*, 'db #1', "x: y"]  # as by --name
user:
  - 0
  - 00 # twice

cgroup:
- /a
hz: 49
tree: true
no-names: false
max-cpu: 0.5%
output:
  - otlp=http://h:1/p#q
  - "pprof=/x/%T.pb.gz"
listen: 127.0.0.1:1
`
	want := defaults()
	want.who.pids, want.out.specs = nil, []output.Spec{{Format: "pprof", File: "/x/%T.pb.gz"}}
	want.who.names, want.who.users, want.who.cgroups = []string{"web*", "db #1", "x: y"}, []uint32{0, 0}, []string{"/a"}
	want.agent.on, want.agent.listen = true, "127.0.0.1:1"
	want.pace.every, want.pace.hz, want.who.tree, want.who.children, want.pace.maxCPU = time.Minute, 49, true, true, 0.005
	want.sending.receivers = []send{{"otlp", "http://h:1/p#q"}}
	got, err := parse(text, "--every", "1m")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, exportAll); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for text, want := range map[string]string{
		"hz: 19\nhzz: 3\n":                  ":2: unknown key \"hzz\" (write hz)",
		"nonsense: 1":                       ":1: unknown key \"nonsense\" (sfsample --help lists",
		"config: x":                         ":1: unknown key",
		"hz: fast":                          ":1: -hz fast: is no rate",
		"name: a\n\nhz:\nevery: 5s":         ":3: hz has no value (try: hz: 99)",
		"name:":                             ":1: name has no value",
		"name: a\nhz 19":                    ":2: \"hz 19\" is no setting",
		"hz:19":                             ":1: \"hz:19\" is no setting",
		"- a":                               ":1: a value of no key",
		"hz: 19\n- a":                       ":2: a value of no key",
		"sampling:\n  hz: 19":               ":2: \"hz: 19\" is indented",
		"name:\n\t- a":                      ":2: a tab",
		"name: [a, b":                       "has no ] at its end",
		"name: 'a":                          "the quotes do not match",
		"name: {a: b}":                      "begins with a special character",
		"tree: perhaps":                     ":1: --tree=perhaps: is a switch",
		"output: otlp=localhost":            ":1: -o otlp=localhost: otlp=localhost: it is no address",
		"output: x.folded":                  "an agent needs a choice of processes",
		"name: a\noutput: x.folded":         "put %T into the name",
		"name: a":                           "an agent's profiles go somewhere",
		"name: a\noutput: x-%T\njson: true": "--json has no meaning without dump",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for args, want := range map[string]string{
		"-p 1 --listen 127.0.0.1:1":              "--listen is for an agent",
		"-p 1 --config x":                        "--config is for an agent",
		"agent --config /nonexistent":            "no such file",
		"agent --name x -o y-%T -- cmd":          "an agent samples processes that are there",
		"agent -t 1 -o y-%T":                     "an agent samples processes that are there",
		"-p 1 --service x":                       "--service is for what is sent",
		"-p 1 -o otlp=http://a -o otlp=http://a": "is sent to twice",
		"replay f -o otlp=http://a":              "what is replayed is not sent",
	} {
		if _, err := parseArgs(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("name: [a, 'b']\nuser:\n  - 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseConfig([]byte(text))
		for _, s := range list {
			if err == nil && (s.line < 1 || s.line > 1+strings.Count(text, "\n")) {
				t.Errorf("%q: %+v", text, s)
			}
		}
	})
}

// free is an address of this machine that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// needLoopback skips a test that sends to this machine where nobody can.
func needLoopback(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip("no loopback network on this machine: ", err)
	}
	l.Close()
}

// TestAgent: an agent tells how it does, begins anew with other settings when it is told to, keeps the old ones when those are
// wrong, and another one on the same address says so. Its rounds are those that the receiver has got.
func TestAgent(t *testing.T) {
	needLoopback(t)
	x := &takes{refused: map[string]bool{"a": true, "b": true}}
	server := httptest.NewServer(x)
	defer server.Close()
	dir := t.TempDir()
	file, address, name := filepath.Join(dir, "agent.yaml"), free(t), fmt.Sprintf("ag-%d", os.Getpid())
	settings := fmt.Sprintf("name: %s\nevery: 1s\nhz: 99\nspool: %s\nlisten: %s\noutput: otlp=%s\n", name, filepath.Join(dir, "spool"), address, server.URL)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(settings)
	p := startTarget(t, "obey")
	p.named(t, name)
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd := tool("agent", "--config", file)
	cmd.Stderr = stderr
	run := begin(t, cmd)
	get := func(path string) string {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return resp.Status + "\n" + string(b)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for i := 0; !ok(); i++ {
			if i > 4000 {
				b, _ := os.ReadFile(stderr.Name())
				t.Fatalf("%s never comes true; standard error:\n%s\nmetrics:\n%s", what, b, get("/metrics"))
			}
			p.worked(t, 1)
		}
	}
	says := func(text string) func() bool {
		return func() bool {
			b, err := os.ReadFile(stderr.Name())
			return err == nil && strings.Contains(string(b), text)
		}
	}
	sent := regexp.MustCompile(`(?m)^sfsample_messages_total\{address="http://[^"]*/v1development/profiles",receiver="otlp",result="sent"\} [1-9]`)
	until("a message is sent", func() bool { return sent.MatchString(get("/metrics")) })
	metrics := get("/metrics")
	line := regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [-+0-9.e]+$`)
	types := map[string]bool{}
	for _, l := range strings.Split(strings.TrimSpace(metrics), "\n")[1:] {
		if f := strings.Fields(l); f[0] == "#" {
			types[f[2]] = true
		} else if m := line.FindStringSubmatch(l); m == nil || !types[m[1]] {
			t.Errorf("metrics: %q", l)
		}
	}
	for _, want := range []string{"200 OK\n", "\nsfsample_processes 1\n", "\nsfsample_stride ", "\nsfsample_thread_ticks_total{class=\"samples\"} ", "\nprocess_cpu_seconds_total "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q:\n%s", want, metrics)
		}
	}
	if got := get("/healthz"); got != "200 OK\nok\n" {
		t.Errorf("healthz: %s", got)
	}
	if late := lateThreads(t, run.cmd.Process.Pid); len(late) == 0 && os.Geteuid() == 0 {
		t.Error("no thread is woken late, want the monitor of Go's runtime")
	} else if len(late) > 0 { // the first; threads that it has made since are as it is (copy_process, kernel/fork.c)
		// No other thread sleeps so (usleep, runtime/os_linux.go): clocks have clock_nanosleep(2).
		until("that thread is in nanosleep(2)", func() bool {
			call, err := (procfs.FS{}).Task(run.cmd.Process.Pid, late[0]).Syscall()
			return get("/healthz") != "" && err == nil && !call.Running && call.NR == unix.SYS_NANOSLEEP
		})
	}
	begin(t, tool("agent", "--config", file)).end(t).want(t, exitFailed, "listen on "+address+": ", "another agent may run")
	begin(t, tool("agent", "--config", file, "--listen", free(t))).end(t).want(t, exitFailed, "another sfsample uses it")

	write(settings + "hzz: 3\n")
	hup := func() {
		t.Helper()
		if err := run.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hup()
	until("the error is told", says(":7: unknown key \"hzz\" (write hz); the settings stay as they were"))
	write(settings + "verbose: true\n")
	hup()
	until("the settings are read anew", says("the settings are read anew"))
	until("rounds are told, as is set now", says("sfsample: round "))
	taken := strings.TrimPrefix(server.URL, "http://")
	write(strings.Replace(settings, address, taken, 1))
	hup()
	until("settings that cannot be begun with are left", says("listen on "+taken+": bind: address already in use (another agent may run; give another address: --listen 127.0.0.1:PORT); back to the settings as they were"))
	until("it goes on", func() bool { return sent.MatchString(get("/metrics")) })
	run.interrupt(t)
	o := run.end(t)
	b, _ := os.ReadFile(stderr.Name())
	o.stderr = string(b)
	o.want(t, exitDone)
	if len(x.errs) > 0 || len(x.otlp) < 2 {
		t.Errorf("the receiver has got %d messages; %v", len(x.otlp), x.errs)
	}
}

// TestAgentEndsAnew: an agent that begins anew ends in good order when it is told to, at any moment of that.
func TestAgentEndsAnew(t *testing.T) {
	needLoopback(t)
	server := httptest.NewServer(&takes{})
	defer server.Close()
	name := fmt.Sprintf("an-%d", os.Getpid())
	startTarget(t, "obey").named(t, name)
	for _, moment := range []string{"", "thread ticks", "the settings are read anew", "sfsample: round "} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			dir, spools := t.TempDir(), t.TempDir()
			file := filepath.Join(dir, "agent.yaml")
			settings := fmt.Sprintf("name: %s\nevery: 1s\nhz: 19\nverbose: true\noutput: otlp=%s\n", name, server.URL)
			if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := tool("agent", "--config", file)
			cmd.Env, cmd.Stderr = append(os.Environ(), "TMPDIR="+spools), w
			run := begin(t, cmd)
			w.Close()
			lines := make(chan string, 1<<16)
			go func() {
				for s := bufio.NewScanner(r); s.Scan(); {
					lines <- s.Text() + "\n"
				}
				close(lines)
			}()
			var said strings.Builder
			late := time.After(testprog.Patience)
			says := func(text string) {
				for {
					select {
					case line, ok := <-lines:
						said.WriteString(line)
						switch {
						case strings.Contains(line, text):
							return
						case ok:
							continue
						}
					case <-late:
					}
					t.Fatalf("%q, %v: nothing said %q:\n%s", moment, sig, text, said.String())
				}
			}
			says("sfsample: round ")
			if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if moment != "" {
				says(moment)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			o := run.end(t)
			for line := range lines {
				said.WriteString(line)
			}
			r.Close()
			if o.status != exitDone {
				t.Errorf("%q, %v: exit status %d:\n%s", moment, sig, o.status, said.String())
			}
			if left, err := os.ReadDir(spools); err != nil || len(left) > 0 {
				t.Errorf("%q, %v: %v is left; %v", moment, sig, left, err)
			}
		}
	}
}

// lateThreads are the threads of a process that the kernel may wake up to 10 ms late.
func lateThreads(t *testing.T, pid int) (late []int) {
	t.Helper()
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tid := range ids {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid)); err == nil && string(b) == "10000000\n" {
			late = append(late, tid)
		}
	}
	return late
}

// TestIll: an agent whose rounds stay out is ill.
func TestIll(t *testing.T) {
	now := time.Now()
	a := &agentRun{begun: now, every: 10 * time.Second}
	step := func(at time.Duration, ill bool) {
		t.Helper()
		if why := a.ill(now.Add(at)); (why != "") != ill {
			t.Errorf("after %v: %q", at, why)
		}
	}
	step(29*time.Second, false)
	step(31*time.Second, true)
	a.told(&sampler.Round{}, &rounds{})
	a.lastTold = now.Add(40 * time.Second)
	step(41*time.Second, false)
	step(71*time.Second, true)
}

// TestUnit: with no more rights than the unit for systemd leaves them, an agent's clocks have witnesses as they have with all of root's.
func TestUnit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has rights to bound")
	}
	unit, err := os.ReadFile("../../contrib/sfsample.service")
	if err != nil {
		t.Skip("no contrib/sfsample.service beside the tests: ", err)
	}
	m := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindSubmatch(unit)
	if m == nil {
		t.Fatal("the unit bounds no capabilities")
	}
	numbers := map[string]int{"CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_PERFMON": unix.CAP_PERFMON, "CAP_SYSLOG": unix.CAP_SYSLOG}
	kept := map[int]bool{}
	for _, name := range strings.Fields(string(m[1])) {
		n, ok := numbers[name]
		if !ok {
			t.Errorf("the unit keeps %s: what for?", name)
		}
		kept[n] = true
	}
	name := fmt.Sprintf("un-%d", os.Getpid())
	p := startTarget(t, "obey")
	p.named(t, name)
	witness := func(bounded bool) bool {
		cmd := tool("agent", "--name", name, "--every", "1", "-hz", "19", "-o", "folded="+t.TempDir()+"/%T")
		run := make(chan *running)
		go func() {
			runtime.LockOSThread() // for ever: the thread ends with its goroutine
			for c := 0; bounded && c <= unix.CAP_LAST_CAP; c++ {
				if !kept[c] {
					_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0) // an older kernel does not know the last ones
				}
			}
			run <- begin(t, cmd)
		}()
		r := <-run
		defer func() { r.interrupt(t); r.end(t).want(t, exitDone) }()
		for range 60 {
			p.worked(t, 1)
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
			for _, fd := range fds {
				if to, err := os.Readlink(fd); err == nil && strings.Contains(to, "perf_event") {
					return true
				}
			}
		}
		return false
	}
	if !witness(false) {
		t.Skip("no clock has a witness")
	}
	if !witness(true) {
		t.Error("with the unit's capabilities no clock has a witness")
	}
}
