package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// languages are programs of other languages and other kinds than the stock
// ones, each busy in several threads.
var languages = []struct {
	name  string
	begin func(t testing.TB) (pid int)
}{
	{"c++", func(t testing.TB) int {
		return built(t, "cxx.cc", cxxSource, "g++", "-O2", "-std=c++17", "-pthread", "-o")
	}},
	{"static-pie", func(t testing.TB) int {
		return built(t, "static.c", staticSource, "gcc", "-O2", "-static-pie", "-pthread", "-o")
	}},
	{"go", func(t testing.TB) int {
		return built(t, "main.go", goSource, "go", "build", "-o")
	}},
	{"rust", func(t testing.TB) int {
		// rustup's rustc is there without a compiler where it is another user's.
		if command(t, "rustc", "--version").Run() != nil {
			t.Skip("no rustc on this machine")
		}
		return built(t, "main.rs", rustSource, "rustc", "-O", "--edition=2021", "-o")
	}},
	{"ripgrep", func(t testing.TB) int {
		return busy(t, "/dev/urandom", "rg", "-a", "--no-mmap", `(foo|ba[rz])+\d{9}[^x]{3}q`, "-")
	}},
	{"node", func(t testing.TB) int {
		return busy(t, "", "node", "-e", nodeSource)
	}},
}

// built compiles a program and starts it.
func built(t testing.TB, file, source, compiler string, args ...string) int {
	t.Helper()
	cc := command(t, compiler, args...)
	dir := t.TempDir()
	src, bin := filepath.Join(dir, file), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cc.Dir = dir
	cc.Args = append(cc.Args, bin, src)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cc.Args, err, out)
	}
	return busy(t, "", bin)
}

const cxxSource = `
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct node {
	virtual ~node() {}
	virtual long eval(int depth) = 0;
};
struct sum : node {
	std::unique_ptr<node> a, b;
	long eval(int depth) override { return a->eval(depth + 1) + b->eval(depth + 1); }
};
struct leaf : node {
	std::function<long(int)> f;
	long eval(int depth) override {
		try {
			return f(depth);
		} catch (const std::runtime_error &e) {
			return std::string(e.what()).size();
		}
	}
};

static long work(int depth) {
	std::map<std::string, int> m;
	std::vector<int> v;
	for (int i = 0; i < 200; i++)
		v.push_back(i * 7919 % 211), m[std::to_string(i * depth)] = i;
	std::sort(v.begin(), v.end(), [&](int x, int y) { return x % 13 < y % 13; });
	if (v[depth % 200] % 3 == 0)
		throw std::runtime_error("every third");
	return m.size() + v[0];
}

static std::unique_ptr<node> tree(int n) {
	if (n == 0) {
		auto l = std::make_unique<leaf>();
		l->f = work;
		return l;
	}
	auto s = std::make_unique<sum>();
	s->a = tree(n - 1), s->b = tree(0);
	return s;
}

int main() {
	std::mutex mu;
	std::condition_variable never;
	std::vector<std::thread> threads;
	for (int i = 0; i < 2; i++)
		threads.emplace_back([] {
			auto t = tree(40);
			for (volatile long all = 0;;)
				all = all + t->eval(0);
		});
	std::unique_lock<std::mutex> lock(mu);
	never.wait(lock, [] { return false; });
}
`

const staticSource = `
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int by_last(const void *a, const void *b) { return *(const int *)a % 10 - *(const int *)b % 10; }

static long deep(int n) {
	volatile char pad[16 + n % 5 * 24];
	pad[0] = n;
	if (n > 0)
		return deep(n - 1) + pad[0];
	int v[300];
	char s[100];
	for (int i = 0; i < 300; i++)
		v[i] = i * 7919 % 307;
	qsort(v, 300, sizeof *v, by_last);
	snprintf(s, sizeof s, "%d %s %f", v[3], "text", v[7] / 3.0);
	return strlen(s);
}

static void *loop(void *x) {
	for (volatile long all = 0;;)
		all = all + deep(50);
	return x;
}

int main(void) {
	pthread_t t;
	pthread_create(&t, 0, loop, 0);
	pthread_create(&t, 0, loop, 0);
	for (;;)
		pause();
}
`

const goSource = `package main

import (
	"encoding/json"
	"regexp"
	"sort"
	"strings"
	"sync"
)

type tree struct{ L, R *tree; V []int }

func grow(n int) *tree {
	if n == 0 {
		return nil
	}
	v := []int{n * 7919 % 31, n, n / 2, n * n}
	sort.Slice(v, func(i, j int) bool { return v[i]%7 < v[j]%7 })
	return &tree{grow(n - 1), grow(n / 2), v}
}

func main() {
	re := regexp.MustCompile("([0-9]+),[0-9]*7")
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() {
			for {
				b, _ := json.Marshal(grow(12))
				var t tree
				json.Unmarshal(b, &t)
				strings.Count(re.ReplaceAllString(string(b), "$1"), "7")
			}
		}()
	}
	wg.Wait()
}
`

const rustSource = `
use std::collections::HashMap;
use std::thread;

fn deep(n: u32, s: &str) -> usize {
    if n > 0 {
        let copy = format!("{}{}", s, n % 7);
        return deep(n - 1, &copy[..copy.len().min(40)]) + copy.len();
    }
    let mut m: HashMap<String, u32> = HashMap::new();
    for i in 0..200u32 {
        *m.entry(format!("{}{}", s, i % 17)).or_insert(0) += i;
    }
    let mut v: Vec<_> = m.into_iter().collect();
    v.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    v.iter().filter_map(|(k, _)| k.parse::<u64>().ok()).count()
}

fn main() {
    let threads: Vec<_> = (0..2)
        .map(|_| thread::spawn(|| loop { assert!(deep(60, "x") > 0); }))
        .collect();
    for t in threads { t.join().unwrap(); }
}
`

const nodeSource = `
function tree(n) { return n === 0 ? [1, "two", { three: 3 }] : { l: tree(n - 1), n, s: "x".repeat(n) }; }
function walk(t, f) { return t.l ? f(t.n) + walk(t.l, f) : Object.keys(t).length; }
for (;;) {
  const t = JSON.parse(JSON.stringify(tree(60)));
  walk(t, (n) => [..."sorting this"].sort((a, b) => (a < b ? -1 : 1)).length + n);
  "a1b22c333".repeat(50).replace(/(\w)(\d+)/g, (m, a, b) => b + a);
}
`

// TestLanguages stops programs at random moments and compares every thread's
// frames with gdb's and eu-stack's, as far as these agree with each other.
func TestLanguages(t *testing.T) {
	needStock(t)
	needDebuggers(t)
	for _, prog := range languages {
		t.Run(prog.name, func(t *testing.T) {
			if prog.name == "node" && long() == 1 {
				t.Skip("node is compared in long runs")
			}
			pid := prog.begin(t)
			var all comparison
			for range long() {
				all.agreed(t, pid)
				if t.Failed() {
					break
				}
				if err := unix.Kill(pid, unix.SIGCONT); err != nil {
					t.Fatal(err)
				}
				working(t, pid)
			}
			t.Logf("%+v", all)
		})
	}
}

// comparison counts what was compared.
type comparison struct {
	Stacks, Same, Frames int // stacks, those of which gdb, eu-stack and we have the same frames, all frames compared
	GDBShort, EUShort    int // stacks of which we have all frames of gdb or eu-stack, and more
	GDBOther, EUOther    int // stacks for which gdb or eu-stack has other frames than we
}

// agreed stops the process and compares: as far as gdb's frames and eu-stack's
// are the same, counted from the innermost one, ours have to be too.
func (c *comparison) agreed(t *testing.T, pid int) {
	t.Helper()
	stop(t, pid)
	var switched map[int]bool
	ours, gdb, eu := threeStacks(t, pid, func(t *testing.T, pid int) (stacks pcs) {
		stacks, switched = cutStacksToo(t, pid)
		return stacks
	})
	maps, err := procfs.FS{}.Maps(pid, nil)
	if err != nil {
		t.Fatal(err)
	}
	for tid, got := range ours {
		g, e := code(maps, gdb[tid]), code(maps, eu[tid])
		n := common(g, e)
		if switched[tid] {
			n = min(n, len(got))
		}
		if common(got, g[:n]) < n {
			t.Errorf("thread %d: gdb and eu-stack agree on %d frames, we differ:\n%s", tid, n, sideBySide(got, g))
		}
		c.Stacks++
		c.Frames += n
		if slices.Equal(got, g) && slices.Equal(got, e) {
			c.Same++
		}
		count(got, g, &c.GDBShort, &c.GDBOther)
		count(got, e, &c.EUShort, &c.EUOther)
		if !slices.Equal(got, g) || !slices.Equal(got, e) {
			t.Logf("thread %d, we and gdb:\n%s\nwe and eu-stack:\n%s", tid, sideBySide(got, g), sideBySide(got, e))
		}
	}
}

// goSwitch finds threads whose stacks end where Go's runtime has changed stacks:
// the code that called these functions is on another one. The debuggers go on
// with what lies above on the same stack, left there by earlier calls.
var goSwitch = regexp.MustCompile(`(?m)^tid (\d+) .*\n(?:  .*\n|.*0x.*\n|k\d.*\n)*#\d+ 0x[0-9a-f]+ runtime\.(?:(?:morestack|mcall)\+.*\nend: complete|(?:morestack|systemstack|mcall)\+.*\nend: truncated)`)

// cutStacksToo is ourStacks for programs whose stacks may end early, and tells
// the threads for which it is so because of goSwitch. A thread that did not get
// a CPU in time to show its registers is asked again.
func cutStacksToo(t *testing.T, pid int) (stacks pcs, switched map[int]bool) {
	t.Helper()
	text := dumpText(t, pid)
	for range 10 {
		if !strings.Contains(text, "register unknown") {
			break
		}
		text = dumpText(t, pid)
	}
	switched = map[int]bool{}
	for _, m := range goSwitch.FindAllStringSubmatch(text, -1) {
		tid, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		switched[tid] = true
	}
	return parseStacks(t, text, "tid "), switched
}

// code returns the frames before the first that lies in no code. Both debuggers
// go on past the first frame of a thread whose table does not mark it, as Go's
// does not, and show a 0 or a stack address there.
func code(maps []procfs.Mapping, pcs []uint64) []uint64 {
	for i, pc := range pcs {
		if i > 0 && !slices.ContainsFunc(maps, func(m procfs.Mapping) bool {
			return m.Perms&procfs.Exec != 0 && m.Start < pc && pc <= m.End
		}) {
			return pcs[:i]
		}
	}
	return pcs
}

func count(got, other []uint64, short, differ *int) {
	switch {
	case slices.Equal(got, other):
	case common(got, other) == len(other):
		*short++
	default:
		*differ++
	}
}

// common is the length of what two stacks have in common, from the innermost
// frame on.
func common(a, b []uint64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func needDebuggers(t testing.TB) {
	t.Helper()
	for _, name := range []string{"gdb", "eu-stack"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s on this machine", name)
		}
	}
}
