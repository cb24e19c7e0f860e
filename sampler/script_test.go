package sampler

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/ledger"
	"sfsample/sampler/module"
	"sfsample/sampler/runtimes"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// pythons are the interpreters to try: that of the distribution, and those that SFSAMPLE_TEST_PYTHONS lists, with
// colons between them.
func pythons(t *testing.T) []string {
	var list []string
	if p, err := filepath.EvalSymlinks("/usr/bin/python3"); err == nil {
		list = append(list, p)
	}
	for _, p := range strings.Split(os.Getenv("SFSAMPLE_TEST_PYTHONS"), ":") {
		if p != "" {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		t.Skip("no python3 on this machine")
	}
	return list
}

const truthPy = "../testdata/scripts/truth.py"

// teller is a program that tells its own stack and blocks.
type teller struct {
	*exec.Cmd
	in  *os.File
	out *bufio.Reader
}

// told is the stack that a program tells of itself: module, function, file and line, innermost first.
type told struct {
	TID   int
	Stack [][4]any
}

func (s *told) lines() (list []string) {
	for _, f := range s.Stack {
		name := fmt.Sprint(f[1])
		if f[0] != "" {
			name = fmt.Sprint(f[0], ".", f[1])
		}
		list = append(list, fmt.Sprintf("%s %s:%v", name, f[2], f[3]))
	}
	return list
}

func startTeller(t *testing.T, interpreter string, args ...string) *teller {
	t.Helper()
	p := &teller{Cmd: exec.Command(interpreter, args...)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdin, p.Stdout, p.Stderr = r, out, os.Stderr
	if err := p.Start(); err != nil {
		t.Skipf("%s cannot be started: %v", interpreter, err)
	}
	r.Close()
	out.Close()
	p.in, p.out = w, bufio.NewReader(in)
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
		w.Close()
		in.Close()
	})
	return p
}

// next lets the program go on and returns its next stack, nil at its end.
func (p *teller) next(t *testing.T) *told {
	t.Helper()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil
	}
	s := new(told)
	if err := json.Unmarshal(line, s); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return s
}

// scriptFrames are the frames of scripts in a stack, as told.lines has them, and how many native ones are between their first and last.
func scriptFrames(st *output.Stack) (list []string) {
	if st == nil {
		return nil
	}
	for _, f := range st.Frames {
		if f.Script {
			list = append(list, fmt.Sprintf("%s %s:%d", f.Func, f.File, f.Line))
		}
	}
	return list
}

// dumpOne dumps one thread.
func dumpOne(t *testing.T, pipe *Pipeline, pid, tid int, stop StopMode) *ThreadDump {
	t.Helper()
	d, err := Dump(Options{PIDs: []int{pid}, TIDs: []int{tid}, Stop: stop}, pipe)
	if err != nil || len(d.Threads) != 1 {
		t.Fatalf("dump of thread %d: %+v, %v", tid, d, err)
	}
	return d.Threads[0]
}

// scriptPipeline is a pipeline that shows scripts.
func scriptPipeline() *Pipeline {
	p := testPipeline(nil)
	p.cfg.Scripts.On = true
	return p
}

// TestScriptTruth compares every frame of Python programs that tell their own stack and block: those of the main thread and of
// another one, read without a stop and copied at one.
func TestScriptTruth(t *testing.T) {
	t.Parallel()
	for _, python := range pythons(t) {
		for _, where := range []string{"main", "thread"} {
			for stop, how := range map[StopMode]string{StopNever: "no stop", StopAlways: "stop"} {
				t.Run(filepath.Base(python)+"/"+where+"/"+how, func(t *testing.T) {
					p := startTeller(t, python, truthPy, where, "1")
					checkTruth(t, p, stop, 25)
				})
			}
		}
	}
}

// checkTruth compares all stacks that a program tells, at least so many.
func checkTruth(t *testing.T, p *teller, stop StopMode, least int) {
	n, bad, cut := 0, 0, 0
	pipe := scriptPipeline()
	for s := p.next(t); s != nil; s = p.next(t) {
		n++
		var before int64
		d := new(ThreadDump)
		for d.Stack == nil || d.Call == "" || stop == StopAlways && d.Taken != "stop" { // it is on its way to where it blocks
			before = pipe.Stats().Scripts.Loose
			d = dumpOne(t, pipe, p.Process.Pid, s.TID, stop)
		}
		got, want := scriptFrames(d.Stack), s.lines()
		x := pipe.Stats().Scripts
		loose := x.Loose > before && slices.ContainsFunc(d.Stack.Frames, func(f output.Frame) bool { return f.Script && f.PC == 0 }) // a look before that at a stop counts too
		// Where a C library keeps frame pointers, as Ubuntu's does, a caller may be known by a register alone, which is not there without a stop.
		noRegs := stop == StopNever && d.Stack.End == unwind.UnknownRegister.String()
		if noRegs && len(got) == 0 {
			cut++
		} else if strings.Join(got, "\n") != strings.Join(want, "\n") || !noRegs && (loose || d.Stack.End != "") {
			if bad++; bad < 4 {
				t.Errorf("stack %d (end %q, %+v):\n got %s\nwant %s", n, d.Stack.End, x, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
			}
		}
		p.in.Write([]byte("\n"))
	}
	if n < least || bad > 0 || cut > 0 && cut < n {
		t.Errorf("%d of %d stacks are wrong, %d cut", bad, n, cut)
	}
	if cut > 0 {
		t.Skipf("all %d stacks are cut without a stop: frame pointers", n)
	}
}

// TestScriptRandom takes a Python program at random instants: which function calls which, from which line, is never other than what the
// program tells of itself.
func TestScriptRandom(t *testing.T) {
	for _, python := range pythons(t) {
		t.Run(filepath.Base(python), func(t *testing.T) {
			calls := map[string]bool{}
			edges := func(stack []string) (list []string) {
				for i, f := range stack {
					name, _, _ := strings.Cut(f, " ")
					if i+1 < len(stack) && strings.Contains(f, "truth.py") && strings.Contains(stack[i+1], "truth.py") && !strings.Contains(stack[i+1], "<module>") {
						list = append(list, stack[i+1]+" calls "+name)
					}
				}
				return list
			}
			p := startTeller(t, python, truthPy, "main", "1")
			for s := p.next(t); s != nil; s = p.next(t) {
				for _, e := range edges(s.lines()) {
					calls[e] = true
					if at, ok := strings.CutSuffix(e, " calls __main__.drive"); ok {
						calls[at+" calls __main__.coro"] = true // which it is given: a coroutine's frame is there while it is made (RETURN_GENERATOR)
					}
				}
				p.in.Write([]byte("\n"))
			}
			p = startTeller(t, python, truthPy, "random")
			pipe := scriptPipeline()
			frames, bad, taken, whole := 0, 0, 0, 0
			var before int64
			loose := 0 // stacks with script frames without a place: one may have many
			cut := 0   // stacks that end early: what they lack of the interpreter are places for script frames
			begun := time.Now()
			want := 100
			if os.Getenv("SFSAMPLE_TEST_PYTHONS") != "" {
				want = 300
			}
			for taken < want && time.Since(begun) < time.Minute {
				dumped, err := Dump(Options{PIDs: []int{p.Process.Pid}, Stop: StopAuto}, pipe)
				if err != nil {
					t.Fatal(err)
				}
				x, ends := pipe.Stats().Scripts, ""
				for _, d := range dumped.Threads {
					got := scriptFrames(d.Stack)
					if len(got) == 0 {
						continue
					}
					taken++
					ends += d.Stack.End
					frames += len(got)
					root := got[len(got)-1]
					if strings.HasPrefix(root, "__main__.<module>") || strings.HasPrefix(root, "threading.") && strings.Contains(root, "_bootstrap") {
						whole++
					} else if strings.Contains(root, "truth.py") && d.Stack.End == "" {
						t.Errorf("root %q", root)
					}
					for _, e := range edges(got) {
						if !calls[e] {
							if bad++; bad < 5 {
								t.Errorf("%q is no call of the program:\n  %s", e, strings.Join(got, "\n  "))
							}
						}
					}
				}
				if ends != "" {
					if cut++; testing.Verbose() {
						t.Log(ends)
					}
				} else if x.Loose > before {
					loose++
				}
				before = x.Loose
			}
			t.Logf("%d stacks, %d whole, %d frames, %d cut, %+v", taken, whole, frames, cut, pipe.Stats().Scripts)
			if taken < 50 || bad > 0 || loose*25 > taken || cut*2 > taken {
				t.Errorf("%d stacks, %d wrong calls, %d with script frames without a place, %d cut", taken, bad, loose, cut)
			}
		})
	}
}

// TestGIL compares who is shown to hold Python's global lock with what a program tells of its threads: one blocks with it, and without, and
// another one, which in an interpreter of its own holds that one's, else wants it. What --gil leaves out is in a class of its own.
func TestGIL(t *testing.T) {
	for _, python := range pythons(t) {
		for _, where := range []string{"main", "sub"} {
			t.Run(filepath.Base(python)+"/"+where, func(t *testing.T) {
				if out, err := exec.Command(python, "-c", "import _interpreters").CombinedOutput(); where == "sub" && err != nil {
					t.Skipf("it has no interpreters with locks of their own: %s", out)
				}
				checkGIL(t, startTeller(t, python, "../testdata/scripts/gil.py", where), where == "sub")
			})
		}
	}
}

// checkGIL compares 20 turns of gil.py. apart: the other thread has a lock of its own, and holds that.
func checkGIL(t *testing.T, p *teller, apart bool) {
	pipe := scriptPipeline()
	holds := func(tid int, blocked bool) bool {
		t.Helper()
		for begun := time.Now(); time.Since(begun) < 20*time.Second; {
			d := dumpOne(t, pipe, p.Process.Pid, tid, StopAuto)
			if pipe.script.ok && len(scriptFrames(d.Stack)) > 0 && (!blocked || d.Call == "read") {
				return pipe.script.stack.Locked
			}
		}
		t.Fatalf("thread %d is not shown", tid)
		return false
	}
	var left int64 // ticks that --gil has left out
	for turn := range 20 {
		line, err := p.out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var now struct {
			TID, Other int
			Held       bool
		}
		if err := json.Unmarshal(line, &now); err != nil {
			t.Fatal(err)
		}
		if got := holds(now.TID, true); got != now.Held {
			t.Errorf("the reader holds the lock: %v, it says %v", got, now.Held)
		}
		if got := holds(now.Other, false); (apart || now.Held) && got != apart {
			t.Errorf("the other thread holds the lock: %v, while the reader holds it: %v", got, now.Held)
		}
		if now.Held && turn < 6 {
			left += checkHolders(t, p.Process.Pid, now.TID, now.Other, apart)
		}
		p.in.Write([]byte("\n"))
	}
	if left == 0 && !apart {
		t.Error("no tick is without the lock")
	}
}

// checkHolders samples a process whose lock thread tid holds all the time, and other if it is apart, with --gil, and returns how many ticks that leaves out.
func checkHolders(t *testing.T, pid, tid, other int, apart bool) int64 {
	t.Helper()
	got := &holders{ticks: map[int]int64{}}
	pipe := scriptPipeline()
	pipe.cfg.Sink, pipe.cfg.Scripts.Locked = got, true
	var left, shown int64
	for begun := time.Now(); time.Since(begun) < 20*time.Second && (got.ticks[tid] == 0 || apart && got.ticks[other] == 0); { // other processes may leave it little of the CPUs
		r, err := Run(t.Context(), Options{PIDs: []int{pid}, Hz: 200, All: true, WallWeight: true}, 200*time.Millisecond, pipe, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := &r.Account
		left, shown = left+a.Count[ledger.Unlocked], shown+a.Count[ledger.Sampled]+a.Count[ledger.Reused]
		if a.Sum() != a.Expected || got.all != time.Duration(shown)*time.Second/200 {
			t.Errorf("of %d thread ticks %v; shown %v", a.Expected, a, got.all)
		}
		pipe = scriptPipeline()
		pipe.cfg.Sink, pipe.cfg.Scripts.Locked = got, true
	}
	if got.without > 0 || got.ticks[tid] == 0 || (got.ticks[other] > 0) != apart {
		t.Errorf("%d samples without the label; by thread %v, of which %d and, apart: %v, %d hold it", got.without, got.ticks, tid, apart, other)
	}
	return left
}

// holders is a sink that counts samples of threads that hold their interpreter's lock.
type holders struct {
	without int
	all     time.Duration
	ticks   map[int]int64
}

// Add implements output.Sink.
func (h *holders) Add(m *output.Sample) error {
	if m.GIL != "held" {
		h.without++
	}
	h.all += m.Wall
	h.ticks[m.TID]++
	return nil
}

// Close implements output.Sink.
func (h *holders) Close() error { return nil }

// shown is a sink that keeps what is shown of each sample with scripts.
type shown struct {
	stacks []string
	enough func() // if set, called when there are some
}

// Add implements output.Sink.
func (s *shown) Add(m *output.Sample) error {
	if len(scriptFrames(m.Stack)) > 0 {
		s.stacks = append(s.stacks, fmt.Sprint(m.CPU, m.Taken, " ", string(output.AppendStack(nil, m.Stack))))
	}
	if len(s.stacks) >= 60 && s.enough != nil {
		s.enough()
	}
	return nil
}

// Close implements output.Sink.
func (s *shown) Close() error { return nil }

// TestScriptReplay: a recording shows what was shown when it was made, scripts too.
func TestScriptReplay(t *testing.T) {
	checkReplay(t, startTeller(t, pythons(t)[0], truthPy, "random"))
}

// checkReplay records a program, and compares what is shown of it again.
func checkReplay(t *testing.T, p *teller) {
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithTimeout(t.Context(), time.Minute) // other processes may leave it little of the CPUs
	defer enough()
	live, again := &shown{enough: enough}, new(shown)
	pipe := scriptPipeline()
	pipe.cfg.Sink, pipe.cfg.Record = live, w
	if _, err := Run(ctx, Options{PIDs: []int{p.Process.Pid}, Hz: 99, All: true, WallWeight: true}, 0, pipe, nil, nil); err != nil {
		t.Fatal(err)
	}
	x := pipe.Stats().Scripts
	t.Logf("%+v", x)
	if len(live.stacks) < 20 || x.Placed == 0 {
		t.Fatalf("%d samples with scripts, %+v", len(live.stacks), x)
	}
	r := reread(t, w, &b)
	files := NewRecorded(time.Time{})
	pipe = NewPipeline(PipelineConfig{Host: runtime.GOARCH, Start: time.Now(), Sink: again, Names: NewNames(NameOptions{Recorded: true}), Scripts: ScriptOptions{On: true},
		Open: func(pid int) (Target, *Survivor, error) {
			return module.NewSpace(files.Source(pid), module.NewCache(0), module.Options{}), nil, nil
		}})
	if err := Replay(r, pipe, files); err != nil {
		t.Fatal(err)
	}
	if got := pipe.Stats().Scripts; got != x {
		t.Errorf("replayed %+v, live %+v", got, x)
	}
	for i := range max(len(live.stacks), len(again.stacks)) {
		if i >= len(live.stacks) || i >= len(again.stacks) || live.stacks[i] != again.stacks[i] {
			t.Fatalf("sample %d of %d and %d differs: live\n%s\nreplayed\n%s", i, len(live.stacks), len(again.stacks), live.stacks[min(i, len(live.stacks)-1)], again.stacks[min(i, len(again.stacks)-1)])
		}
	}
}

// randomStacks samples a process until there are at least so many stacks with script frames, for a minute at most: other processes may leave it
// little of the CPUs.
func randomStacks(t *testing.T, pid, least int) (*scripted, Scripts) {
	t.Helper()
	got, x := &scripted{ends: map[string]int{}}, Scripts{}
	for begun := time.Now(); len(got.stacks) < least && time.Since(begun) < time.Minute; {
		pipe := scriptPipeline()
		pipe.cfg.Sink = got
		if _, err := Run(context.Background(), Options{PIDs: []int{pid}, Hz: 499}, 2*time.Second, pipe, nil, nil); err != nil {
			t.Fatal(err)
		}
		n := pipe.Stats().Scripts
		x = Scripts{x.Placed + n.Placed, x.Loose + n.Loose, x.Unnamed + n.Unnamed, x.Unseen + n.Unseen}
	}
	return got, x
}

// interpreters are those to try: the ones of the distribution by their names, and those that a variable of the environment lists, with colons
// between them.
func interpreters(t *testing.T, variable string, names ...string) []string {
	t.Helper()
	list := strings.FieldsFunc(os.Getenv(variable), func(r rune) bool { return r == ':' })
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		t.Skipf("no %s on this machine", strings.Join(names, " or "))
	}
	return list
}

// absolute is the whole path of a file.
func absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// bareSpace is a Target that has memory of zeros.
type bareSpace struct {
	Target
	gen     uint64
	modules []*module.Module
}

func (s *bareSpace) Generation() uint64        { return s.gen }
func (s *bareSpace) Modules() []*module.Module { return s.modules }
func (*bareSpace) Source() module.Source       { return blank{} }
func (*bareSpace) Mappings() []procfs.Mapping  { return nil }

// blank is memory of zeros.
type blank struct{ module.Source }

func (blank) ReadAt(b []byte, _ int64) (int, error)              { return len(b), nil }
func (blank) ReadRanges(b []byte, _ []module.Range) (int, error) { return len(b), nil }

// endless is an interpreter that reads for as long as it can.
type endless struct {
	runtimes.Interpreter
	reads int
}

func (e *endless) read(mem io.ReaderAt) {
	for b := make([]byte, 8<<10); e.reads < 8*maxScriptReads; e.reads++ {
		if _, err := mem.ReadAt(b, 1<<20); err != nil {
			break
		}
	}
}

func (e *endless) Roots(mem io.ReaderAt, _ runtimes.Thread) []taking.Root {
	e.read(mem)
	return []taking.Root{{Addr: 1 << 20}}
}

func (e *endless) Recipe([]taking.Root, *runtimes.Stack) *taking.Recipe { return new(taking.Recipe) }

func (e *endless) Frames(_ runtimes.Memory, late io.ReaderAt, _ []uint64, _ *runtimes.Stack) {
	e.read(late)
}

// TestScriptReads: what is read of an interpreter for a capture is bounded, wherever it is read.
func TestScriptReads(t *testing.T) {
	p, rt := scriptPipeline(), new(endless)
	pid := os.Getpid()
	tg := &target{pid: pid, space: &bareSpace{gen: 1}, threads: map[int]*seen{}, met: newMet(), scripts: &scripts{runtime: rt}}
	p.targets.all[pid] = tg
	enough := func(what string) {
		t.Helper()
		if rt.reads == 0 || rt.reads > maxScriptReads/3 { // of 8 KB
			t.Errorf("%s: %d reads", what, rt.reads)
		}
		rt.reads = 0
	}
	for range 2 {
		p.foreseeScript(pid, pid, new(Feedback))
		enough("before the first stop")
		tg.threads[pid].script.roots, tg.threads[pid].script.next = nil, 0
	}
	p.script.left = maxScriptReads
	tg.threads[pid].script.roots = []taking.Root{{Addr: 1 << 20}}
	p.copyScript(tg, &capture.Capture{PID: pid, TID: pid, Taken: capture.Unstopped}, rt)
	enough("without a stop")
	if m := (scriptMemory{p, tg}); m.Gather([]runtimes.Span{{Addr: 1 << 20, Len: 8}}, make([]byte, 8)) {
		t.Error("more was read than may be")
	}
}

// large is an interpreter whose functions have the name that takes most.
type large struct {
	runtimes.Interpreter
	name string
}

func (l *large) Name() string { return "large" }

func (l *large) Key(_ runtimes.Memory, _ io.ReaderAt, f *runtimes.Frame) (runtimes.Key, bool) {
	return runtimes.Key{Code: f.Code}, true
}

func (l *large) Function(io.ReaderAt, *runtimes.Frame, runtimes.Key) (*runtimes.Function, bool) {
	return &runtimes.Function{Name: l.name}, true
}

// TestScriptHeld: what is kept of functions is bounded by its bytes, and all that leads to it goes with it.
func TestScriptHeld(t *testing.T) {
	p, rt := scriptPipeline(), &large{name: strings.Repeat("x", 1<<20)}
	tg := &target{met: newMet(), scripts: &scripts{runtime: rt, functions: map[runtimes.Key]*runtimes.Function{}, lines: map[scriptLine]*script{}}}
	s := tg.scripts
	for i := range uint64(200) {
		sc := p.scriptAt(tg, scriptMemory{p, tg}, &runtimes.Frame{Code: i})
		if again := p.scriptAt(tg, scriptMemory{p, tg}, &runtimes.Frame{Code: i}); sc != again || sc.fn.Name != rt.name {
			t.Fatalf("function %d is %p and %p", i, sc, again)
		}
		tg.intern(p.cfg.Names, []frameKey{{pc: i, script: sc}}, nil, "")
		if n := maxScriptBytes / len(rt.name); len(s.functions) > n || len(s.lines) > n || len(tg.met.frames) > n {
			t.Fatalf("%d functions, %d lines and %d frames are held, %d may be", len(s.functions), len(s.lines), len(tg.met.frames), n)
		}
	}
	if len(s.functions) < 8 {
		t.Errorf("%d functions are held", len(s.functions))
	}
}

// TestScriptLooked: of objects that were looked through those are remembered that are there.
func TestScriptLooked(t *testing.T) {
	p, there, gone := scriptPipeline(), new(module.Module), new(module.Module)
	sp := &bareSpace{gen: 1, modules: []*module.Module{there}}
	tg := &target{space: sp, scripts: &scripts{looked: map[*module.Module]bool{gone: true}}}
	for range 2 {
		p.runtime(tg, blank{})
		if s := tg.scripts; len(s.looked) != 1 || !s.looked[there] {
			t.Errorf("%v", s.looked)
		}
		sp.gen++
	}
}
