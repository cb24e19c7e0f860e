package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
)

// stock are programs of the distribution, as it built them, each busy for as
// long as it is let.
var stock = []struct {
	name  string
	begin func(t testing.TB) (pid int)
}{
	{"python3", func(t testing.TB) int {
		return busy(t, "", "/usr/bin/python3", "-c", `
import json, re, hashlib
def walk(n, d):
    if n == 0: return len(json.dumps(d)) + len(re.sub(r'(\w)(\d+)', r'\2\1', 'a1b22c333' * 20))
    return walk(n - 1, d) + n
class T:
    def __lt__(self, other): return self.k < other.k
    def __init__(self, k): self.k = k
while True:
    walk(60, {'a': list(range(50)), 'b': {'c': 'x' * 100}})
    sorted(T((i * 7919) % 1009) for i in range(500))
    hashlib.sha256(b'x' * 100000).hexdigest()
`)
	}},
	{"sqlite3", func(t testing.TB) int {
		return busy(t, "", "sqlite3", ":memory:", `
create table a(x integer primary key, y text, z real);
with recursive c(n) as (select 1 union all select n+1 from c limit 20000)
  insert into a select n, printf('%08x', n*7919 % 65536), n*1.5 from c;
with recursive c(n) as (select 1 union all select n+1 from c)
  select count(*), (select max(y || n) from a where y like '%7%a%' order by substr(y, 3), z) from c;`)
	}},
	{"xz", func(t testing.TB) int { return busy(t, "/dev/urandom", "xz", "-6", "-c") }},
	{"xz threads", func(t testing.TB) int { return busy(t, "/dev/urandom", "xz", "-0", "-T3", "-c") }},
	{"zstd", func(t testing.TB) int { return busy(t, "/dev/urandom", "zstd", "-q", "-12", "-c") }},
	{"zstd threads", func(t testing.TB) int { return busy(t, "/dev/urandom", "zstd", "-q", "-3", "-T3", "-c") }},
	{"perl", func(t testing.TB) int {
		return busy(t, "", "perl", "-e", `
no warnings 'recursion';
sub f { my ($n, $s) = @_; return $n ? 1 + f($n - 1, $s) : scalar(() = $s =~ /(\w+?)(\d+)\s*/g) }
while (1) { f(80, "abc123 def456 " x 30); my %h = map { $_ => $_ ** 2 } 1 .. 300; my @s = sort { $h{$a} <=> $h{$b} } keys %h; sprintf "%s", join ",", @s }`)
	}},
	{"bash", func(t testing.TB) int {
		return busy(t, "", "bash", "-c", `f() { local n=$1; if ((n > 0)); then f $((n - 1)); else x=${PATH//[aeiou]/_}; fi; }; while :; do f 100; done`)
	}},
	{"redis-server", redis},
}

// busy starts a program and waits until it has used some CPU time: then it is
// past its start.
func busy(t testing.TB, stdin, name string, args ...string) int {
	t.Helper()
	cmd := command(t, name, args...)
	if stdin != "" {
		f, err := os.Open(stdin)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.Stdin = f
	}
	launchBackground(t, cmd)
	working(t, cmd.Process.Pid)
	return cmd.Process.Pid
}

// command is a program of this machine; the test is skipped if it has none.
func command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s on this machine", filepath.Base(name))
	}
	return exec.Command(path, args...)
}

// launchBackground starts a program that is killed when the test ends.
func launchBackground(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // errors say that it has ended
		_ = cmd.Wait()
	})
}

// working waits until a process has used another 100 ms of CPU time.
func working(t testing.TB, pid int) {
	t.Helper()
	var first time.Duration
	eventually(t, fmt.Sprintf("process %d works", pid), func() bool {
		var sum time.Duration
		for _, s := range tasks(t, pid) {
			if st, err := (procfs.FS{}).Task(pid, s).Schedstat(); err == nil {
				sum += st.Run
			}
		}
		if first == 0 {
			first = sum + 1
		}
		return sum > first+100*time.Millisecond
	})
}

func tasks(t testing.TB, pid int) []int {
	t.Helper()
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// redis starts a server and the distribution's load for it.
func redis(t testing.TB) int {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "redis")
	server := command(t, "redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	load := command(t, "redis-benchmark", "-s", socket, "-l", "-q", "-c", "20", "-t", "set,get,lrange_100,zadd,hset,mset", "-P", "4")
	launchBackground(t, server)
	eventually(t, "the server answers", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	launchBackground(t, load)
	working(t, server.Process.Pid)
	return server.Process.Pid
}

// long is how much longer than usual measuring tests run: for acceptance runs,
// set in the environment.
func long() int {
	n, err := strconv.Atoi(os.Getenv("SFSAMPLE_TEST_LONG"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// TestComplete samples stripped programs of the distribution: at least 99 of 100
// stacks lead to the start of their thread, and why others do not is told.
func TestComplete(t *testing.T) {
	needStock(t)
	for _, prog := range stock {
		t.Run(prog.name, func(t *testing.T) {
			pid := prog.begin(t)
			d := time.Duration(long()) * 1500 * time.Millisecond
			// bash takes nine frames for each call of a shell function.
			var o outcome
			all, complete := 0, 0
			// On a machine that is busy with other things, a run may hardly get
			// a turn.
			for try := 0; all < 20 && try < 5; try++ {
				o = sfsample(t, "-p", strconv.Itoa(pid), "-d", d.String(), "-hz", "299", "--max-depth", "4000")
				o.want(t, exitDone)
				all, complete = stacks(t, o)
			}
			t.Logf("%d of %d stacks complete; %s", complete, all, line(o.stderr, "stacks: "))
			// The loads of redis are short: it may idle for a moment.
			if all < 20 {
				t.Errorf("only %d stacks:\n%s", all, o.stderr)
			}
			// A short run may have three cut while the engine learns how deep
			// the stacks are.
			// Without its share of the CPUs it learns late.
			allowed := max(3, all/100)
			if hindered(o.stderr) {
				allowed = max(10, all/20)
			}
			if cut := all - complete; cut > allowed {
				t.Errorf("%d of %d stacks are cut:\n%s\n%s", cut, all, o.stderr, cutStacks(o.stdout))
			}
		})
	}
}

var ticksLost = regexp.MustCompile(`(\d+) thread ticks = .*; lost: (\d+)`)

// hindered tells by the closing lines of a run whether it lost more than a tenth of its ticks.
func hindered(stderr string) bool {
	m := ticksLost.FindStringSubmatch(stderr)
	if m == nil {
		return false
	}
	ticks, _ := strconv.Atoi(m[1])
	lost, _ := strconv.Atoi(m[2])
	return 10*lost > ticks
}

// needStock skips a test on a machine without a distribution.
func needStock(t testing.TB) {
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("no programs of a distribution on this machine")
	}
}

// stacks reads the closing lines of a run.
func stacks(t testing.TB, o outcome) (all, complete int) {
	t.Helper()
	if _, err := fmt.Sscanf(line(o.stderr, "stacks: "), "%d unwound, %d complete", &all, &complete); err != nil {
		t.Fatalf("no count of stacks: %v in\n%s", err, o.stderr)
	}
	return all, complete
}

// line returns what follows key on a line of the closing lines.
func line(stderr, key string) string {
	_, after, _ := strings.Cut(stderr, "sfsample: "+key)
	text, _, _ := strings.Cut(after, "\n")
	return text
}

func cutStacks(folded string) string {
	var b strings.Builder
	for l := range strings.Lines(folded) {
		if strings.Contains(l, "[truncated") {
			b.WriteString(l[:min(len(l), 500)] + "\n")
		}
	}
	return b.String()
}
