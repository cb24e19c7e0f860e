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
	"strconv"
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
name: ["web[0-9]*", 'db #1', 'it''s', "x: y", "a, b", "\"q\"", db, '\[', 'null'] # as by --name
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
	want.who.names, want.who.users, want.who.cgroups = []string{"web[0-9]*", "db #1", "it's", "x: y", "a, b", `"q"`, "db", `\[`, "null"}, []uint32{0, 0}, []string{"/a"}
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
	useless := "backchain" // on this machine
	if runtime.GOARCH == "s390x" {
		useless = "fp"
	}
	for text, want := range map[string]string{
		"hz: 19\nhzz: 3\n":                      ":2: unknown key \"hzz\" (write hz)",
		"nonsense: 1":                           ":1: unknown key \"nonsense\" (sfsample --help lists",
		"config: x":                             ":1: unknown key",
		"hz: fast":                              ":1: -hz fast: is no rate",
		"name: a\n\nhz:\nevery: 5s":             ":3: hz has no value (try: hz: 99)",
		"name:":                                 ":1: name has no value",
		"name: []":                              ":1: name has no value",
		"name: a\nhz: ~":                        ":2: hz has no value",
		"user:\n  - 0\n  -\n":                   ":3: user has no value",
		"hz: ''":                                ":1: hz has no value",
		"# c\nname: a\nhz 19\n":                 ":3: could not find expected ':' (write KEY: VALUE",
		"# c\n\n---\n# d\n\nhz:19":              ":6: this is no setting (write KEY: VALUE, with a blank after the colon",
		"- a":                                   ":1: this is no setting",
		"&x {hz: 19}":                           ":1: this is no setting",
		"# c\nname: a\nhz: 19\n- a\n":           ":4: did not find expected key",
		"name: a\nuser: a: b":                   ":2: mapping values are not allowed",
		"sampling:\n  hz: 19":                   ":2: sampling has neither a value nor a list of values",
		"name: {a: b}":                          ":1: name has neither",
		"name:\n- a\n- [b]":                     ":3: name has neither",
		"name:\n- a\n- b: c":                    ":3: name has neither",
		"name: a\nhz: &x 19":                    ":2: hz has neither",
		"hz: !!str 19":                          ":1: hz has neither",
		"name: &x [a]\ncgroup: *x":              ":1: name has neither",
		"name: [&x a]\ncgroup: *x":              ":1: name has neither",
		"hz: 19\nname:\n- *x":                   ":3: unknown anchor 'x' referenced (write KEY: VALUE",
		"name: !x!y z":                          ":1: found undefined tag handle",
		"hz: 19\n[a]: b":                        ":2: this is no key",
		"name:\n\t- a":                          ":2: found character that cannot start any token",
		"# c\nhz: 19\nname: [a, b":              ":3: did not find expected ',' or ']'",
		"# c\nhz: 19\nname: [a\nuser: 0":        ":3: did not find expected ',' or ']'",
		"# c\nname: 'a":                         ":2: found unexpected end of stream",
		"hz: 19\nname: @a":                      ":2: found character that cannot start any token",
		"name: \"\x01\"":                        ":1: control characters are not allowed",
		"name: \xff":                            ":1: it is no text in UTF-8",
		"hz: 19\n---\nname: a":                  ":2: a second document begins (leave out this line)",
		"---\nhz: 19\n---\n":                    ":3: a second document begins",
		"# c\rhz: fast":                         ":2: -hz fast",
		"# c\nhz: 19\nname: a\nhz: 20":          ":4: hz is set in line 2 too (give it once",
		"name: a\n\nname: b":                    ":3: name is set in line 1 too",
		"hz: [19,\n 20]":                        ":2: hz takes one value (try: hz: 99)",
		"every:\n- 1s\n- 2s":                    ":3: every takes one value",
		"tree: [true, false]":                   ":1: tree takes one value",
		"listen: [127.0.0.1:1, 127.0.0.1:2]":    ":1: listen takes one value",
		"spool: [/a, /b]":                       ":1: spool takes one value",
		"listen: :6464":                         ":1: --listen :6464: has no host (try: 127.0.0.1:6464, or 0.0.0.0:6464 for every address of the machine)",
		"name: a\noutput: [x-%T, pprof=./x-%T]": ":2: -o pprof=./x-%T: is written to twice",
		"tree: perhaps":                         ":1: --tree=perhaps: is a switch",
		"output: otlp=localhost":                ":1: -o otlp=localhost: otlp=localhost: it is no address",
		"output: x.folded":                      "an agent needs a choice of processes",
		// Found when all is known.
		"name: a\noutput: x.folded":                         ":2: -o x.folded: each round would write over the one before (put %T into the name",
		"name: a\noutput:\n- x-%T\n- pprof=x.pb.gz":         ":4: -o x.pb.gz: each round",
		"name: a\noutput: x-%T\nevery: 0.5":                 ":3: --every 500ms: a round takes at least",
		"output: x-%T\nname: [a, 'b[']":                     ":2: name \"b[\": it is no pattern",
		"name: a\noutput: x-%T\nrecord: x":                  ":3: --record is one file",
		"name: a\noutput: x-%T\nspool: x":                   ":3: --spool is for what is sent",
		"name: a\noutput: x-%T\nverbose: true\nquiet: true": ":4: -q and -v contradict each other",
		"name: a\noutput: x-%T\nwaits: true":                ":3: --waits is for blocked threads",
		"name: a\ntid: 5\noutput: x-%T":                     ":2: -t is for threads of single processes",
		"name: a\noutput: x-%T\nunwind: " + useless:         ":3: --unwind: ",
		"name: a":                           "an agent's profiles go somewhere",
		"name: a\noutput: x-%T\njson: true": ":3: --json has no meaning without dump",
	} {
		if want[0] == ':' {
			want = file + want
		}
		if _, err := parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, tc := range []struct{ text, args, want string }{ // the line is told of what the command line has not set anew
		{"name: a\noutput: x-%T\nevery: 5", "--every 0.5", "--every 500ms: a round"},
		{"name: a\noutput: x-%T\nevery: 0.6", "--hz 3", file + ":3: --every 600ms: a round"},
		{"name: a\noutput: x-%T", "-o y", "-o y: each round"},
		{"name: a\noutput: x", "-o y-%T", file + ":2: -o x: each round"},
		{"name: a\noutput: x-%T", "--name [", "name \"[\": it is no pattern"},
		{"name: a\noutput: x-%T\nverbose: true", "-q", file + ":3: -q and -v contradict"},
		{"name: a\noutput: x-%T\nquiet: true\nverbose: true", "-q", file + ":4: -q and -v contradict"},
		{"name: a\noutput: x-%T", "-hz fast", "-hz fast: is no rate"},
		{"hz: 3\noutput: x-%T", "", "an agent needs a choice"},
	} {
		if _, err := parse(tc.text, strings.Fields(tc.args)...); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%q with %s: %v, want %q", tc.text, tc.args, err, tc.want)
		}
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "\n---\n# nothing\n"} {
		if list, err := parseConfig([]byte(empty)); len(list) > 0 || err != nil {
			t.Errorf("%q: %v, %v", empty, list, err)
		}
	}
	for _, address := range []string{"otlp=http://me:s3cret@h/?s3cret", "otlp=ftp://me:s3cret@h", "pyroscope=http://h/?s3cret\x7f", "pyroscope=https://me:s3cret@h:port/"} {
		for _, text := range []string{"name: a\noutput: ['" + address + "',\n '" + address + "']", "name: a\n? '" + address + "'\n: x\n", "name: a\n'" + address + "': x\n'" + address + "': y\n", "hz: '" + address + "'"} {
			if _, err := parse(text); err == nil || strings.Contains(err.Error(), "s3cret") || !strings.HasPrefix(err.Error(), file+":") {
				t.Errorf("%q: %v", text, err)
			}
		}
		for _, args := range [][]string{{"-p", "1", "-o", address, "-o", address}, {"-p", "1", address}, {"-p", "1", "--outputs=" + address}} {
			if _, err := parseArgs(args); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
	for address, want := range map[string]string{"127.0.0.1:0": "", "[::1]:65535": "", "localhost:http": "", "0.0.0.0:6464": "",
		":6464": "has no host (try: 127.0.0.1:6464, or 0.0.0.0:6464", "[]:1": "has no host", "127.0.0.1": "is no address (HOST:PORT", "127.0.0.1:": "is no address", "6464": "is no address",
		"http://h:1": "is no address", "::1:6464": "is no address", "h:65536": `"65536" is no port`, "h:-1": "is no port", "h:+1": "is no port", "h:no-such-service": "is no port (0 to 65535, or"} {
		_, err := parseArgs([]string{"agent", "--name", "a", "-o", "x-%T", "--listen", address})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "--listen "+address+": ") || !strings.Contains(err.Error(), want)) {
			t.Errorf("--listen %s: %v, want %q", address, err, want)
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
	f.Add("# c\n---\nname: *x\n- a: b\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseConfig([]byte(text))
		last := 2                                                                // "?" has a key behind its end
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // of lines, in YAML
			last += strings.Count(text, end)
		}
		for _, s := range list {
			if err == nil && (s.line < 1 || s.line > last) {
				t.Errorf("%q: %+v", text, s)
			}
		}
		if err != nil {
			line, _, ok := strings.Cut(err.Error(), ": ")
			if n, wrong := strconv.Atoi(line); !ok || wrong != nil || n < 1 || n > last {
				t.Errorf("%q: %v", text, err)
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
	write(strings.Replace(settings, filepath.Join(dir, "spool"), "/proc/nope", 1))
	hup()
	until("so are those whose spool cannot be made", says("spool /proc/nope/"))
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
	numbers := map[string]int{"CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE, "CAP_SYS_NICE": unix.CAP_SYS_NICE, "CAP_PERFMON": unix.CAP_PERFMON}
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
