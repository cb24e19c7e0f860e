package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// outcome is what a run of a target has shown of its work.
type outcome struct {
	units float64       // that it did
	took  time.Duration // for that
	cpu   time.Duration // of CPUs
	tail  time.Duration // of its latency, 0: it has none
}

// target is a program to be sampled.
type target struct {
	name, what string
	lacks      func() string // what the machine has not got, "": nothing
	start      func(o *options) (*running, error)
}

// running is a target that is ready to work.
type running struct {
	pid  int
	work func() (outcome, error)
	stop func() // ends it; more than once does no harm
}

func nothing() string { return "" }

func needs(names ...string) func() string { return func() string { return has(names...) } }

var targets = []target{
	{"spin", "a thread that spins 200 frames deep and notes when it stands still", nothing, startSpin},
	{"threads", "64 threads that compute", nothing, counting("threads", 64)},
	{"idle", "500 threads that sleep, and one that computes", nothing, counting("idle", 500)},
	{"idle10k", "10,000 threads that sleep, and one that computes", nothing, counting("idle", 10_000)},
	{"signals", "2 threads that raise signals as fast as they can", nothing, counting("signals", 2)},
	{"births", "2 threads that make threads as fast as they can", nothing, counting("births", 2)},
	{"forks", "2 threads that fork as fast as they can", nothing, counting("forks", 2)},
	{"execs", "a program with 4 threads that becomes itself as fast as it can", nothing, counting("execs", 4)},
	{"xz", "xz -6 of text", needs("xz"), startXz},
	{"sqlite3", "sqlite3: inserts, an index and sums in memory", needs("sqlite3"), startSqlite},
	{"python3", "python3: json back and forth", needs("python3"), startPython},
	{"node", "node: json back and forth", needs("node"), startNode},
	{"java", "java: strings and hash maps", needs("java"), startJava},
	{"redis", "redis-server under redis-benchmark, 20 clients", needs("redis-server", "redis-benchmark"), startRedis},
	{"nginx", "nginx under ab, 20 clients", needs("nginx", "ab"), startNginx},
	{"postgres", "postgres on its own (--single): rows, a sort and sums", lacksPostgres, startPostgres},
	{"cgo", "a Go program whose C calls back into Go", needs("go", "cc"), startCgo},
	{"objdump", "objdump -d of sfsample, a large binary", needs("objdump"), startObjdump},
}

// cpuOf is the CPU time that a process has used, its ended threads' too, its children's not.
func cpuOf(pid int) (time.Duration, error) {
	var ts unix.Timespec
	// The clock of a process: MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED, include/linux/posix-timers.h.
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// begin starts a command whose standard input and output are given back.
func begin(cmd *exec.Cmd) (r *running, in io.WriteCloser, out *bufio.Reader, err error) {
	if in, err = cmd.StdinPipe(); err != nil {
		return nil, nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, nil, err
	}
	r = &running{pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Kill() // an error says that it has ended
		_ = cmd.Wait()
	}}
	return r, in, bufio.NewReader(pipe), nil
}

// counting is a kind of src/work.c.
func counting(kind string, n int) func(o *options) (*running, error) {
	return func(o *options) (*running, error) {
		r, in, out, err := begin(exec.Command(o.file("work"), kind, strconv.Itoa(n)))
		if err != nil {
			return nil, err
		}
		if line, err := out.ReadString('\n'); line != "ready\n" {
			r.stop()
			return nil, fmt.Errorf("the target says %q: %w", line, err)
		}
		r.work = func() (w outcome, err error) {
			before, err := cpuOf(r.pid)
			if err != nil {
				return w, err
			}
			start := time.Now()
			if _, err := fmt.Fprintln(in, o.length.Milliseconds()); err != nil {
				return w, err
			}
			line, err := out.ReadString('\n')
			if err != nil {
				return w, fmt.Errorf("the target has ended: %w", err)
			}
			w.took = time.Since(start)
			var longest float64 // not every kind tells it
			if n, err := fmt.Sscanf(line, "units %g longest %g", &w.units, &longest); n < 1 {
				return w, fmt.Errorf("the target says %q: %w", line, err)
			}
			w.tail = time.Duration(longest * 1e6)
			after, err := cpuOf(r.pid)
			w.cpu = after - before
			return w, err
		}
		return r, nil
	}
}

// startSpin starts the thread of bench/pause. Its work is the time that it was not kept from it.
func startSpin(o *options) (*running, error) {
	file := o.file("gaps")
	r, _, out, err := begin(exec.Command(o.file("spin"), "200", file))
	if err != nil {
		return nil, err
	}
	if line, err := out.ReadString('\n'); line != "ready\n" {
		r.stop()
		return nil, fmt.Errorf("the target says %q: %w", line, err)
	}
	gaps := func() ([]time.Duration, error) {
		data, err := os.ReadFile(file)
		if err != nil || len(data) < 16 {
			return nil, fmt.Errorf("read the gaps: %w", err)
		}
		list := make([]time.Duration, binary.NativeEndian.Uint64(data))
		for i := range list {
			list[i] = time.Duration(binary.NativeEndian.Uint64(data[8*(3+2*i):]))
		}
		return list, nil
	}
	r.work = func() (w outcome, err error) {
		before, err := gaps()
		if err != nil {
			return w, err
		}
		used, err := cpuOf(r.pid)
		if err != nil {
			return w, err
		}
		start := time.Now()
		time.Sleep(o.length)
		w.took = time.Since(start)
		after, err := gaps()
		if err != nil {
			return w, err
		}
		w.units = w.took.Seconds()
		for _, g := range after[len(before):] {
			w.units -= g.Seconds()
			w.tail = max(w.tail, g)
		}
		w.cpu, err = cpuOf(r.pid)
		w.cpu -= used
		return w, err
	}
	return r, nil
}

// given starts a command that ends when its work is done, of units. Until then it is a shell that waits.
func given(units float64, stdin *os.File, args ...string) (*running, error) {
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", append([]string{"-c", `read line <&3; exec 3<&-; exec "$@"`, "sh"}, args...)...)
	cmd.ExtraFiles = []*os.File{gate}
	cmd.Stdin = stdin
	var said bytes.Buffer
	cmd.Stderr = &said
	err = cmd.Start()
	gate.Close()
	if err != nil {
		open.Close()
		return nil, err
	}
	ended := false
	return &running{
		pid: cmd.Process.Pid,
		work: func() (w outcome, err error) {
			start := time.Now()
			if _, err := open.WriteString("go\n"); err != nil {
				return w, err
			}
			err = cmd.Wait()
			ended = true
			if err != nil {
				return w, fmt.Errorf("%s: %w\n%s", args[0], err, said.String())
			}
			return outcome{units: units, took: time.Since(start), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
		},
		stop: func() {
			open.Close()
			if !ended {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				ended = true
			}
		},
	}, nil
}

// Units of given work for each second of a run's length: about what a CPU does in it.
const (
	xzPerSecond     = 2 << 20 // bytes
	sqlitePerSecond = 400_000 // rows
	pythonPerSecond = 25_000  // documents
	nodePerSecond   = 100_000
	javaPerSecond   = 2_000_000 // words
	redisPerSecond  = 40_000    // requests of each kind
	nginxPerSecond  = 8_000

	postgresPerSecond = 10_000_000 // rows
	cgoPerSecond      = 1_200_000  // calls
	objdumpPerSecond  = 5_000_000  // bytes of code
)

func (o *options) units(perSecond int) int { return max(1, int(float64(perSecond)*o.length.Seconds())) }

// text is a file of so many bytes of pseudo-random words, always the same.
func (o *options) text(bytes int) (string, error) {
	name := o.file("text")
	if i, err := os.Stat(name); err == nil && i.Size() == int64(bytes) {
		return name, nil
	}
	var b []byte
	rnd := rand.New(rand.NewPCG(1, 2))
	for len(b) < bytes {
		for range 1 + rnd.IntN(8) {
			b = append(b, 'a'+byte(rnd.ExpFloat64()*4)%26)
		}
		b = append(b, ' ')
	}
	return name, os.WriteFile(name, b[:bytes], 0o600)
}

func startXz(o *options) (*running, error) {
	n := o.units(xzPerSecond)
	name, err := o.text(n)
	if err != nil {
		return nil, err
	}
	return given(float64(n), nil, "xz", "-6", "-T1", "-k", "-f", name)
}

func startSqlite(o *options) (*running, error) {
	n := o.units(sqlitePerSecond)
	name := o.file("work.sql")
	sql := fmt.Sprintf(`create table t (a integer, b text);
with recursive c(x) as (select 1 union all select x+1 from c where x < %d) insert into t select x*7919 %% 10007, 'row '||x from c;
create index i on t (a);
select sum(length(b)), count(distinct a) from t where a %% 3 = 1;
`, n)
	if err := os.WriteFile(name, []byte(sql), 0o600); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return given(float64(n), f, "sqlite3", ":memory:")
}

func startPython(o *options) (*running, error) {
	n := o.units(pythonPerSecond)
	return given(float64(n), nil, "python3", "-c", fmt.Sprintf(`import json
def turn(i):
    return json.loads(json.dumps({"a": [i, str(i)], "b": {"c": i * 0.5, "d": None}}))
def main(n):
    return sum(turn(i)["a"][0] for i in range(n))
main(%d)`, n))
}

func startNode(o *options) (*running, error) {
	n := o.units(nodePerSecond)
	return given(float64(n), nil, "node", "-e", fmt.Sprintf(`function turn(i) { return JSON.parse(JSON.stringify({a: [i, String(i)], b: {c: i / 2, d: null}})).a[0]; }
let sum = 0; for (let i = 0; i < %d; i++) sum += turn(i);`, n))
}

func startJava(o *options) (*running, error) {
	n := o.units(javaPerSecond)
	name := filepath.Join(o.dir, "Work.java")
	source := fmt.Sprintf(`import java.util.HashMap;
class Work {
  static String word(int i) { return "w" + i %% 1000; }
  public static void main(String[] args) {
    var counts = new HashMap<String, Integer>();
    for (int i = 0; i < %d; i++) counts.merge(word(i), 1, Integer::sum);
    if (counts.size() > 1000) System.exit(1);
  }
}`, n)
	if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
		return nil, err
	}
	return given(float64(n), nil, "java", name)
}

// patience is how long a server may take to answer for the first time.
const patience = 30 * time.Second

// served starts a server, waits until it answers at an address, and lets load work on it.
func served(cmd *exec.Cmd, network, address string, load func() (outcome, error)) (*running, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &running{pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial(network, address)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			r.stop()
			return nil, fmt.Errorf("%s does not answer: %w", cmd.Args[0], err)
		}
	}
	r.work = func() (w outcome, err error) {
		before, err := cpuOf(r.pid)
		if err != nil {
			return w, err
		}
		start := time.Now()
		if w, err = load(); err != nil {
			return w, err
		}
		w.took = time.Since(start)
		after, err := cpuOf(r.pid)
		w.cpu = after - before
		return w, err
	}
	return r, nil
}

func startRedis(o *options) (*running, error) {
	dir, err := os.MkdirTemp(o.dir, "redis-*")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	n := o.units(redisPerSecond)
	return served(exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir), "unix", socket, func() (w outcome, err error) {
		out, err := exec.Command("redis-benchmark", "-s", socket, "-n", strconv.Itoa(n), "-c", "20", "-r", "1000", "-t", "set,get", "--csv").Output()
		if err != nil {
			return w, fmt.Errorf("redis-benchmark: %w", err)
		}
		w.units = float64(2 * n)
		w.tail, err = redisTail(out)
		return w, err
	})
}

// redisTail is the larger p99 of two kinds of request in redis-benchmark's table.
func redisTail(table []byte) (tail time.Duration, err error) {
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil || len(rows) != 3 {
		return 0, fmt.Errorf("redis-benchmark: no table of two tests in %q (%w)", table, err)
	}
	for i, name := range rows[0] {
		if name != "p99_latency_ms" {
			continue
		}
		for _, row := range rows[1:] {
			ms, err := strconv.ParseFloat(row[i], 64)
			if err != nil {
				return 0, fmt.Errorf("redis-benchmark: %w", err)
			}
			tail = max(tail, time.Duration(ms*1e6))
		}
		return tail, nil
	}
	return 0, errors.New("redis-benchmark tells no p99 (it does from 6.2 on)")
}

// tail99 is the line of ab's table that has the time in which 99 % of the requests were answered, in milliseconds.
var tail99 = regexp.MustCompile(`(?m)^ +99% +(\d+)`)

func startNginx(o *options) (*running, error) {
	dir, err := os.MkdirTemp(o.dir, "nginx-*")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	l.Close()
	conf := filepath.Join(dir, "conf")
	text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors;\nevents {}\n"+
		"http { access_log off; keepalive_requests 1000000; server { listen %[2]s; location / { return 200 \"%[3]s\\n\"; } } }\n", dir, address, strings.Repeat("hello ", 100))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	n := o.units(nginxPerSecond)
	return served(exec.Command("nginx", "-c", conf, "-e", filepath.Join(dir, "errors")), "tcp", address, func() (w outcome, err error) {
		out, err := exec.Command("ab", "-q", "-k", "-n", strconv.Itoa(n), "-c", "20", "http://"+address+"/").CombinedOutput()
		m := tail99.FindSubmatch(out)
		if err != nil || m == nil || !bytes.Contains(out, []byte("Failed requests:        0\n")) {
			return w, fmt.Errorf("ab: %w\n%s", err, out)
		}
		ms, _ := strconv.Atoi(string(m[1]))
		return outcome{units: float64(n), tail: time.Duration(ms) * time.Millisecond}, nil
	})
}

// postgres is where distributions have it, the newest first.
func postgres(name string) string {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name) // the pattern is right
	if len(list) == 0 {
		path, _ := exec.LookPath(name)
		return path
	}
	return list[len(list)-1]
}

func lacksPostgres() string {
	switch {
	case postgres("postgres") == "" || postgres("initdb") == "":
		return "no postgres on this machine"
	case os.Getuid() == 0:
		return has("setpriv")
	}
	return ""
}

// startPostgres has one of its backends work without a server. As root it is nobody's, as it refuses to be root's.
func startPostgres(o *options) (*running, error) {
	var as []string
	dir := o.file("postgres")
	if os.Getuid() == 0 {
		as = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"}
	}
	if _, err := os.Stat(dir); err != nil {
		if err := errors.Join(os.Chmod(o.dir, 0o711), os.Mkdir(dir, 0o700), os.Chown(dir, map[bool]int{true: 65534, false: -1}[len(as) > 0], -1)); err != nil {
			return nil, err
		}
		args := append(as[:len(as):len(as)], postgres("initdb"), "-D", dir, "-U", "bench", "--no-sync", "-A", "trust")
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w\n%s", err, out)
		}
	}
	const each = 100_000 // rows of a query: its sort fits in memory
	n := max(1, o.units(postgresPerSecond)/each)
	name := o.file("work.pgsql") // in its single-user mode a line is a command
	sql := strings.Repeat(fmt.Sprintf("select sum(length(b)), count(distinct a) from (select x*7919 %% 10007 as a, 'row ' || x as b from (select generate_series(1::bigint, %d) x) s) t where a %% 3 = 1;\n", each), n)
	if err := os.WriteFile(name, []byte(sql), 0o600); err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return given(float64(n*each), f, append(as, postgres("postgres"), "--single", "-c", "exit_on_error=on", "-D", dir, "postgres")...)
}

func startCgo(o *options) (*running, error) {
	exe := o.file("cgo")
	if _, err := os.Stat(exe); err != nil {
		cmd := exec.Command("go", "build", "-o", exe, "./bench/src/cgo")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build bench/src/cgo: %w\n%s", err, out)
		}
	}
	n := o.units(cgoPerSecond)
	return given(float64(n), nil, exe, strconv.Itoa(n))
}

func startObjdump(o *options) (*running, error) {
	f, err := elf.Open(o.sfsample)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := f.Section(".text")
	if text == nil {
		return nil, fmt.Errorf("%s has no code", o.sfsample)
	}
	n := o.units(objdumpPerSecond)
	turns := 1 + n/int(text.Size)
	args := []string{"objdump", "-d", fmt.Sprintf("--start-address=%#x", text.Addr), fmt.Sprintf("--stop-address=%#x", text.Addr+uint64(n/turns))}
	return given(float64(n), nil, append(args, slices.Repeat([]string{o.sfsample}, turns)...)...)
}
