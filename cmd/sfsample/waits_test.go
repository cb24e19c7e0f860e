package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"sfsample/internal/testprog"
)

// startWaits starts a case of testdata/stuck/waits.c.
func startWaits(t testing.TB, args ...string) *testprog.Proc {
	t.Helper()
	return startStuck(t, exec.Command(waitsProg(t), args...))
}

func waitsProg(t testing.TB) string {
	t.Helper()
	return testprog.Compile(t, []string{"-O1", "-g", "-pthread"}, "../stuck/waits.c")
}

// startStuck starts a program that ends with its input, which lasts as long as the test.
func startStuck(t testing.TB, cmd *exec.Cmd) *testprog.Proc {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return testprog.StartCmd(t, cmd)
}

// dumpedJSON is a dump with --json.
func dumpedJSON(t testing.TB, args ...string) jsonDump {
	t.Helper()
	o := sfsample(t, append([]string{"dump", "--json"}, args...)...)
	o.want(t, exitDone)
	var d jsonDump
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil {
		t.Fatalf("%v in %q", err, o.stdout)
	}
	return d
}

func (d *jsonDump) thread(tid int) *jsonThread {
	for i := range d.Threads {
		if d.Threads[i].Task.TID == tid {
			return &d.Threads[i]
		}
	}
	return nil
}

// TestWaits: what a dump says of threads that are stuck is what the program itself
// knows: which lock, at which address, who holds it, who is at the other end. No thread
// is stopped for it.
func TestWaits(t *testing.T) {
	waitsProg(t) // skips here, if it does
	for _, args := range []string{
		"ring 2", "ring 5", "ring-recursive 2", "ring-check 2", "ring-robust 2", "ring-adaptive 2", "ring-pi 2", "ring-robust-pi 3",
		"ring-shared 2", "ring-shared-robust 3", "self", "mixed", "locks", "lost", "dead", "timed", "crowd 30", "pipe", "stopped", "namespaces", "silent", "backlog", "unix", "tcp", "handlers", "fds", "file", "children",
	} {
		t.Run(args, func(t *testing.T) {
			if args == "namespaces" {
				if out, err := exec.Command("unshare", "-Upf", "true").CombinedOutput(); err != nil {
					t.Skipf("no pid namespace to be had: %s", out)
				}
			}
			p := startWaits(t, strings.Fields(args)...)
			agreeWaits(t, p)
		})
	}
}

// TestWaitsOfStopped: a thread that was stopped for its stack has not run by its own doing.
func TestWaitsOfStopped(t *testing.T) {
	p := startFramePointers(t, "fds")
	var wrong []string
	for end := time.Now().Add(testprog.Patience); time.Now().Before(end); {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
		if wrong = disagree(&d, p.Lines); len(wrong) > 0 {
			continue
		}
		stops, woken := 0, 0
		for _, th := range d.Threads {
			if th.Stack.Taken == "stop" {
				stops++
			}
			if th.Between.Motion != "blocked" {
				woken++
			}
		}
		if stops > 0 && woken == 0 {
			return
		}
		wrong = []string{fmt.Sprintf("%d threads were stopped, %d are not blocked", stops, woken)}
	}
	t.Error(strings.Join(wrong, "\n"))
}

// TestLostNotStopped: a thread whose wake-up was lost is not stopped for its stack: it would look at the word again, and go on.
func TestLostNotStopped(t *testing.T) {
	p := startFramePointers(t, "lost")
	for range 2 {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
		if wrong := disagree(&d, p.Lines); len(wrong) > 0 {
			t.Fatal(strings.Join(wrong, "\n"))
		}
	}
}

// startFramePointers starts a case of waits.c whose frames are found by frame pointers, which the kernel does not publish.
func startFramePointers(t *testing.T, what string) *testprog.Proc {
	t.Helper()
	return startStuck(t, exec.Command(testprog.Compile(t, []string{"-O0", "-g", "-pthread"}, "../stuck/waits.c"), what))
}

// agreeWaits dumps until all that the program told is in a dump. (On a busy machine the
// search for other ends may run out of time, which the dump then says.)
func agreeWaits(t *testing.T, p *testprog.Proc) {
	t.Helper()
	var wrong []string
	for end := time.Now().Add(testprog.Patience); time.Now().Before(end); {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID), "--tree")
		wrong = disagree(&d, p.Lines)
		for _, th := range d.Threads {
			if th.Stack.Taken != "no stop" && th.Task.State != "Z" && !th.Task.Outside { // one that is on its way to its wait runs the first time
				wrong = append(wrong, fmt.Sprintf("thread %d was taken by %q", th.Task.TID, th.Stack.Taken))
			}
		}
		if len(wrong) == 0 {
			return
		}
	}
	t.Errorf("%s\nthe program said:\n%s\nthe dump:\n%s", strings.Join(wrong, "\n"), strings.Join(p.Lines, "\n"),
		sfsample(t, "dump", "-p", strconv.Itoa(p.PID), "--tree").stdout)
}

// disagree compares a dump with the program's lines, see waits.c.
func disagree(d *jsonDump, lines []string) (wrong []string) {
	ring, refused := []int{}, 0
	for _, line := range lines {
		var tid, other, fd int
		var word, address string
		f := strings.Fields(line)
		if f[0] == "ring" {
			for _, w := range f[1:] {
				tid, _ = strconv.Atoi(w)
				ring = append(ring, tid)
			}
			continue
		}
		fmt.Sscan(f[1], &tid)
		th := d.thread(tid)
		if th == nil || th.Call.Wait == nil {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", line, th))
			continue
		}
		ok := true
		switch w := th.Call.Wait; f[0] {
		case "waits":
			word, address = f[2], f[3]
			fmt.Sscan(f[4], &other)
			if w.Kind == "refused lock" {
				refused++
				continue
			}
			ok = strings.Contains(w.Text, word) && len(w.On) == 1 && w.On[0].TID == other && (address == "0" || w.Lock == address)
		case "free":
			word, address = f[2], f[3]
			ok = strings.Contains(w.Text, word) && len(w.On) == 0 && w.Lock == address && w.Unknown+w.Lost != ""
		case "fd":
			word = f[2]
			fmt.Sscan(f[3], &fd)
			fmt.Sscan(f[4], &other)
			ok = strings.Contains(w.Text, word) &&
				(fd == 0 || slices.ContainsFunc(w.FDs, func(d jsonFD) bool { return d.FD == fd }) || strings.Contains(w.Text, " "+strconv.Itoa(fd)) || word == "semaphore") &&
				(other == 0 || slices.ContainsFunc(w.On, func(r jsonReleaser) bool { return r.PID == other }))
		case "stopped":
			ok = th.Task.State == "T" && w.Kind == "stopped"
		case "zombie":
			ok = th.Task.State == "Z" && strings.Contains(w.Text, "not reaped")
		}
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", line, *th.Call.Wait))
		}
	}
	var rings []string
	for _, c := range d.Cycles {
		slices.Sort(c.TIDs)
		rings = append(rings, fmt.Sprint(c.TIDs, c.Deadlock))
	}
	slices.Sort(ring)
	var want []string
	// A process that may not be looked at may hold another end of what these wait for: then they may be let go.
	unknown := strings.HasPrefix(lines[0], "fd ") && slices.ContainsFunc(d.Missing, func(m string) bool { return strings.Contains(m, "other ends of pipes and sockets") })
	if len(ring) > 0 && refused == 0 && !unknown {
		want = []string{fmt.Sprint(ring, true)}
	}
	// Threads of a ring that ask for priority-inheriting mutexes at once are all refused: each sees the others wait (rt_mutex_adjust_prio_chain in kernel/locking/rtmutex.c).
	if !slices.Equal(rings, want) || refused > len(ring) {
		wrong = append(wrong, fmt.Sprintf("rings %v, want %v; %d refused", rings, want, refused))
	}
	return wrong
}

// TestNoFalseDeadlock: programs that lock hard and send to each other, and never
// deadlock. SFSAMPLE_TEST_LONG is how many tens of dumps to make.
func TestNoFalseDeadlock(t *testing.T) {
	p := startWaits(t, "hard", "40")
	blocked, owned := 0, 0
	for range 10 * long() {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID), "--tree")
		for _, c := range d.Cycles {
			t.Fatalf("a deadlock that there is not:\n%s", strings.Join(c.Proof, "\n"))
		}
		for _, th := range d.Threads {
			if th.Call.Wait == nil || th.Call.Wait.Kind != "futex" {
				continue
			}
			if blocked++; len(th.Call.Wait.On) > 0 {
				owned++
			}
		}
	}
	t.Logf("%d waits on locks, of %d the owner was the same in both looks", blocked, owned)
	if owned == 0 {
		t.Error("no owner was ever told")
	}
}

// TestWaitsSampled: with --waits samples say what the program itself knows, in each
// output.
func TestWaitsSampled(t *testing.T) {
	waitsProg(t) // skips here, if it does
	for args, calls := range map[string]map[string]string{
		"locks": {"condition": "futex: condition variable", "semaphore": "futex: semaphore", "barrier": "futex: barrier",
			"read-write": "futex: read-write lock held by tid %d", "end": "futex: end of a thread tid %d", "once": "futex: once"},
		"ring 2": {"mutex": "futex: mutex held by tid %d"},
		"fds":    {"pipe": "read: pipe", "eventfd": "poll: eventfd, pipe", "timerfd": "read: timerfd", "sleeps": "sleep"},
		"file":   {"flock": "held by pid %d ", "fcntl": "held by pid %d "},
	} {
		t.Run(args, func(t *testing.T) {
			p := startWaits(t, strings.Fields(args)...)
			want := map[int]string{} // by thread
			for _, line := range p.Lines {
				var tid, other int
				f := strings.Fields(line)
				fmt.Sscan(f[1], &tid)
				fmt.Sscan(f[len(f)-1], &other)
				if text, ok := calls[f[min(2, len(f)-1)]]; ok {
					if strings.Contains(text, "%d") {
						text = fmt.Sprintf(text, other)
					}
					want[tid] = text
				}
			}
			dir := t.TempDir()
			o := sfsample(t, "--waits", "--threads", "all", "-q", "-d", "0.2", "-o", "json=-", "-o", dir+"/w.folded", "-o", dir+"/w.pb.gz",
				"-o", dir+"/w.firefox.json", "-p", strconv.Itoa(p.PID))
			o.want(t, exitDone)
			got := map[int]string{}
			for line := range strings.Lines(o.stdout) {
				var s struct {
					TID    int
					Wait   string
					Frames []struct{ Function string }
				}
				if err := json.Unmarshal([]byte(line), &s); err != nil {
					t.Fatal(err)
				}
				if got[s.TID] = s.Wait; s.Wait != "" && (len(s.Frames) == 0 || s.Frames[0].Function != "["+s.Wait+"]") {
					t.Errorf("thread %d: the wait %q and the frames %v", s.TID, s.Wait, s.Frames)
				}
			}
			if len(want) < 2 {
				t.Errorf("%d waits in %q", len(want), p.Lines)
			}
			for tid, text := range want {
				if !strings.Contains(got[tid], text) {
					t.Errorf("thread %d: %q, want %q", tid, got[tid], text)
				}
				agreeWith(t, dir, got[tid])
			}
		})
	}
}

// agreeWith wants a wait in the files of a run.
func agreeWith(t *testing.T, dir, wait string) {
	t.Helper()
	folded, err := os.ReadFile(dir + "/w.folded")
	if err != nil {
		t.Fatal(err)
	}
	leaf := ";[" + wait + "]"
	if !strings.Contains(string(folded), leaf) && !strings.Contains(string(folded), strings.ReplaceAll(leaf, " ", "_")) {
		t.Errorf("folded lacks %q:\n%s", leaf, folded)
	}
	b, err := os.ReadFile(dir + "/w.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	prof, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(prof.Sample, func(s *profile.Sample) bool { return slices.Contains(s.Label["wait"], wait) }) {
		t.Errorf("pprof lacks %q", wait)
	}
	b, err = os.ReadFile(dir + "/w.firefox.json")
	if err != nil {
		t.Fatal(err)
	}
	var fox struct {
		Shared  struct{ StringArray []string }
		Threads []struct{ Markers struct{ Name []int } }
	}
	if err := json.Unmarshal(b, &fox); err != nil {
		t.Fatal(err)
	}
	for _, th := range fox.Threads {
		for _, n := range th.Markers.Name {
			if fox.Shared.StringArray[n] == wait {
				return
			}
		}
	}
	t.Errorf("Firefox has no marker %q", wait)
}

// TestInterpreterLock: threads of Python wait for one that sleeps in C with the
// interpreter's lock, and are told which.
func TestInterpreterLock(t *testing.T) {
	const path = "/usr/bin/python3"
	version, err := exec.Command(path, "-c", "import sys; print(sys.version_info[1])").Output()
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	if minor, err := strconv.Atoi(strings.TrimSpace(string(version))); err != nil || minor < 11 || minor > 13 {
		t.Skipf("python 3.%s keeps its lock's holder in another way", bytes.TrimSpace(version))
	}
	p := startStuck(t, exec.Command(path, "-c", `
import ctypes, threading
def want():
    while True: pass
for i in range(3): threading.Thread(target=want, daemon=True).start()
lib = ctypes.PyDLL(None)  # calls keep the lock
print("ready", flush=True)
lib.getchar()
`))
	var text string
	for end := time.Now().Add(testprog.Patience); time.Now().Before(end); {
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
		told := 0
		for _, th := range d.Threads {
			if w := th.Call.Wait; w != nil && strings.Contains(w.Text, "Python's global interpreter lock") && len(w.On) == 1 && w.On[0].TID == p.PID {
				told++
			}
		}
		text = fmt.Sprintf("%d threads are told on whom they wait: %q", told, d.Summary)
		if told > 0 && len(d.Cycles) == 0 && strings.Contains(d.Summary[2], fmt.Sprintf("held by tid %d ", p.PID)) {
			return
		}
	}
	t.Error(text)
}

// TestCrowd: thousands of threads that wait for one are one screen, and who holds them
// up is in the third line.
func TestCrowd(t *testing.T) {
	const n = 5000
	p := startWaits(t, "crowd", strconv.Itoa(n))
	cmd := tool("dump", "-p", strconv.Itoa(p.PID))
	begun := time.Now()
	o := begin(t, cmd).end(t)
	took, used := time.Since(begun), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	o.want(t, exitDone)
	if used > 1500*time.Millisecond && !raceEnabled { // 0.4 s on a quiet machine
		t.Errorf("%v of CPU time", used)
	}
	lines := strings.Split(o.stdout, "\n")
	if len(lines) > 50 || len(o.stdout) > 16<<10 {
		t.Errorf("%d lines, %d bytes", len(lines), len(o.stdout))
	}
	if want := fmt.Sprintf("%d threads wait for mutex ", n); !strings.HasPrefix(lines[2], want) || !strings.Contains(lines[2], fmt.Sprintf("held by tid %d ", p.PID)) {
		t.Errorf("the third line is %q, want one that begins with %q", lines[2], want)
	}
	t.Logf("%d threads in %v, %v of CPU time", n, took, used)
}

// TestDeadOwner: an owner that has ended is searched for once, not for each of a thousand that wait.
func TestDeadOwner(t *testing.T) {
	p := startWaits(t, "dead", "1000")
	cmd := tool("dump", "-p", strconv.Itoa(p.PID))
	o := begin(t, cmd).end(t)
	o.want(t, exitDone)
	if !strings.Contains(o.stdout, "which is no thread that can be seen: it has ended") {
		t.Errorf("%.3000s", o.stdout)
	}
	if took := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); took > 5*time.Second {
		t.Errorf("%v of CPU time", took)
	}
}

// stuckGo is a program whose goroutines wait for each other and for channels, one of them locked to its thread.
const stuckGo = `package main

import ("fmt"; "os"; "os/signal"; "runtime"; "sync")

func main() {
	var a, b sync.Mutex
	var both sync.WaitGroup
	both.Add(2)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	lock := func(first, second *sync.Mutex) { first.Lock(); both.Done(); both.Wait(); second.Lock() }
	go func() { runtime.LockOSThread(); lock(&a, &b) }()
	go lock(&b, &a)
	both.Wait()
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
`

// TestGoThreads: the threads of a Go program whose goroutines are stuck are idle in plain words, and the goroutines stand beside
// them; with threads alone it is said that goroutines are not looked at.
func TestGoThreads(t *testing.T) {
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(stuckGo), 0o600); err != nil {
		t.Fatal(err)
	}
	cc := command(t, "go", "build", "-o", bin, src)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := startStuck(t, exec.Command(bin))
	want := []string{"idles: Go has no goroutine for it to run", "waits until its goroutine can go on", "waits for a signal to pass on (os/signal)"}
	var texts []string
	const unknown = "what the goroutines of pid"
	for end := time.Now().Add(testprog.Patience); time.Now().Before(end); { // the threads are on their way to where they wait
		d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
		locks := 0
		for _, g := range shownGoroutines(&d) {
			if g.Reason == "sync.Mutex.Lock" {
				locks++
			}
		}
		texts = slices.Clone(d.Missing)
		for _, th := range d.Threads {
			if th.Call.Wait != nil && th.Task.PID == p.PID { // who holds the other ends is there too
				texts = append(texts, th.Call.Wait.Text)
			}
		}
		all := strings.Join(texts, "\n")
		if !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(all, w) }) &&
			!strings.Contains(all, unknown) && !strings.Contains(all, "futex") && locks == 2 {
			o := sfsample(t, "dump", "-p", strconv.Itoa(p.PID), "-t", strconv.Itoa(p.PID))
			if strings.Contains(o.stdout, "idles: Go has no goroutine") && !strings.Contains(o.stdout, unknown) {
				t.Errorf("goroutines are not mentioned:\n%s", o.stdout)
			}
			return
		}
	}
	t.Errorf("%q, want %q and two goroutines that wait for locks", texts, want)
}

// TestWatch marks what has changed between two dumps, and ends when the process does.
func TestWatch(t *testing.T) {
	p := startTarget(t, "obey")
	cmd := tool("dump", "--watch", "20ms", "-p", strconv.Itoa(p.pid))
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	cmd.Stdout = wr
	r := begin(t, cmd)
	wr.Close()
	var out strings.Builder
	dumps := 0
	for lines := bufio.NewScanner(rd); lines.Scan(); {
		fmt.Fprintln(&out, lines.Text())
		if strings.Contains(lines.Text(), "no deadlock found") {
			if dumps++; dumps == 2 {
				p.send(t, "exit")
			}
		}
	}
	o := r.end(t)
	if o.status != exitDone || dumps < 2 || !strings.Contains(out.String(), "\n---- ") {
		t.Errorf("status %d, %q:\n%s", o.status, o.stderr, out.String())
	}
}

// TestWaitsAsAnotherUser: what may not be known is named.
func TestWaitsAsAnotherUser(t *testing.T) {
	o, pid := onAnothersProcess(t, "dump", "-p")
	if want := fmt.Sprintf("not known: what the threads of pid %d wait for (it belongs to uid 0", pid); !strings.Contains(o.stdout, want) {
		t.Errorf("no line %q:\n%s", want, o.stdout)
	}
}

// TestSchemaIsDocumented: docs/dump-json.md names every field that a dump can have.
func TestSchemaIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/dump-json.md")
	if err != nil {
		t.Skip("no sources on this machine")
	}
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if typ != reflect.TypeFor[jsonThread]() && (name == "" || !bytes.Contains(text, []byte("`"+name+"`"))) { // whose parts are one object
				t.Errorf("field %s of %v (%q) is not in docs/dump-json.md", typ.Field(i).Name, typ, name)
			}
			check(typ.Field(i).Type)
		}
	}
	check(reflect.TypeFor[jsonDump]())
	if want := "`" + dumpVersion + "`"; !bytes.Contains(text, []byte(want)) {
		t.Errorf("the version %s is not in docs/dump-json.md", want)
	}
}
