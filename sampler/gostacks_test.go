package sampler

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// goThreads has two goroutines, each on a thread of its own, tell their stacks and
// stay there: one spins in a leaf without a frame, one waits in a system call.
func goThreads() {
	var r [2]int
	if err := unix.Pipe(r[:]); err != nil {
		fail(err)
	}
	var told sync.WaitGroup
	for _, f := range []func(){goSpin, func() { goWait(r[0]) }} {
		told.Add(1)
		go func() {
			runtime.LockOSThread()
			goOuter(told.Done, f)
		}()
	}
	told.Wait()
	fmt.Println("ready")
	select {}
}

// goDeep has goroutines of many depths, which go from thread to thread.
func goDeep() {
	runtime.GOMAXPROCS(2)
	for i := range 24 {
		go func() {
			for {
				goDig(i)
			}
		}()
	}
	fmt.Println("ready")
	select {}
}

//go:noinline
func goDig(n int) (sum int) {
	var large [1 << 10]byte
	for i := range 500 {
		large[i%len(large)] += byte(i * n)
	}
	if n > 0 {
		sum = goDig(n - 1)
	} else {
		runtime.Gosched()
	}
	for i := range 500 {
		sum += int(large[i%len(large)])
	}
	return sum
}

// TestGoDeep: of goroutines of many depths that go from thread to thread each copy reaches to the end of the stack, whatever is wanted of others. All ends are multiples
// of 2048 (runtime/stack.go, fixedStack).
func TestGoDeep(t *testing.T) {
	cmd := targetCmd("deep")
	cmd.Env = append(os.Environ(), goesOn+"=1")
	p := testprog.StartCmd(t, cmd)
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
	defer cancel()
	complete := 0
	pipe := testPipeline(&until{ends: map[string]int{}, done: cancel, accept: func([]string) bool { complete++; return complete == 600 }})
	pipe.cfg.Record = w
	if _, err := Run(ctx, Options{PIDs: []int{p.PID}, Hz: 499, Budget: Budget{MaxOverhead: 1}}, 0, pipe, nil, nil); err != nil {
		t.Fatal(err)
	}
	r := reread(t, w, &b)
	const first = 200 // at first nothing is known of a thread
	all, whole := 0, 0
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if c, ok := rec.(*capture.Capture); ok && c.Taken == capture.Stopped && len(c.Stack.Bytes) > 0 && len(c.Beyond.Blocks) == 0 { // else the thread has left the goroutine's stack
			if all++; all > first && (c.Stack.Addr+uint64(len(c.Stack.Bytes)))%2048 == 0 {
				whole++
			}
		}
	}
	stats := pipe.Stats()
	t.Logf("%d stacks, %d copied to the end; %d complete, cut %v", all, whole, stats.Complete, stats.Cut)
	if all -= first; all < 300 || whole < all*95/100 || stats.Complete < stats.Stacks*95/100 {
		t.Errorf("%d stacks, %d copied to the end; %d complete, cut %v", all, whole, stats.Complete, stats.Cut)
	}
}

//go:noinline
func goOuter(told, f func()) int { return goMiddle(told, f) + 1 }

// goMiddle has a frame larger than what one instruction can take.
//
//go:noinline
func goMiddle(told, f func()) int {
	var large [64 << 10]byte
	n := goInner(told, f, &large)
	return n + int(large[n&0xff])
}

//go:noinline
func goInner(told, f func(), large *[64 << 10]byte) int {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	var names []string
	for {
		fr, more := frames.Next()
		names = append(names, fr.Function)
		if !more {
			break
		}
	}
	slices.Reverse(names)
	os.Stdout.WriteString(fmt.Sprintln("thread", unix.Gettid(), strings.Join(names, " ")))
	told()
	f()
	return int(large[1])
}

// goSpin takes years.
//
//go:noinline
func goSpin() {
	for n := uint64(1); n != 0; n++ {
	}
}

//go:noinline
func goWait(fd int) {
	var b [1]byte
	unix.Read(fd, b[:])
}

// strip copies a program as strip(1) would leave it: the section headers of its
// symbols and of what debuggers read say that there is nothing.
func strip(t *testing.T, from string) (to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var order binary.ByteOrder = f.ByteOrder
	table, stripped := order.Uint64(b[40:]), 0 // e_shoff
	for i, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 && (s.Type == elf.SHT_SYMTAB || strings.HasPrefix(s.Name, ".debug_")) {
			order.PutUint32(b[table+uint64(i)*64+4:], uint32(elf.SHT_NULL)) // sh_type
			order.PutUint32(b[table+uint64(i)*64:], 0)                      // sh_name
			stripped++
		}
	}
	t.Logf("%d sections stripped", stripped)
	to = filepath.Join(t.TempDir(), "stripped")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// allStacks is a sink that keeps all stacks, and reports when each thread that is
// wanted was seen in its place.
type allStacks struct {
	mu   sync.Mutex
	got  map[int][]*output.Stack
	last map[int]string // samples left out, by thread, the last ones
	want map[int]bool   // threads that were not seen in their places yet
	done func()
}

// Add implements output.Sink.
func (a *allStacks) Add(s *output.Sample) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.Taken != "stop" && s.Taken != "no stop" || len(s.Stack.Frames) == 0 ||
		s.Taken == "no stop" && s.Stack.End == unknown || s.Stack.End == unwind.OutsideCopy.String() {
		a.last[s.TID] = fmt.Sprintf("%s %s, ends: %q", s.Taken, s.State, s.Stack.End)
		return nil // none of its own, or another follows
	}
	if !slices.Contains(a.got[s.TID], s.Stack) {
		a.got[s.TID] = append(a.got[s.TID], s.Stack)
	}
	if inPlace(s.Stack) {
		delete(a.want, s.TID)
	}
	if len(a.want) == 0 {
		a.done()
	}
	return nil
}

// inPlace: the thread has got to where it stays.
func inPlace(s *output.Stack) bool {
	return slices.ContainsFunc(s.Frames, func(f output.Frame) bool {
		return f.Func == "sfsample/sampler.goSpin" || f.Func == "sfsample/sampler.goWait"
	})
}

// Close implements output.Sink.
func (a *allStacks) Close() error { return nil }

// TestGoStacks samples a Go program, whole and stripped: Go's own account of its
// stacks is the truth for two threads, and the others, which are the runtime's,
// have to be complete.
func TestGoStacks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]func() string{
		"whole":    func() string { return self },
		"stripped": func() string { return strip(t, self) },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := &exec.Cmd{Path: path(), Args: []string{targetName, "threads"}}
			// A goroutine that runs for long gets a signal otherwise. It then must
			// not be waited for, nor have the only processor.
			cmd.Env = append(os.Environ(), goesOn+"=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=4")
			p := testprog.StartCmd(t, cmd)
			if len(p.Threads) != 2 {
				t.Fatalf("the program told the stacks %v, want two", p.Threads)
			}
			ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
			defer cancel()
			a := &allStacks{got: map[int][]*output.Stack{}, last: map[int]string{}, want: map[int]bool{}, done: cancel}
			for tid := range p.Threads {
				a.want[tid] = true
			}
			opt := Options{PIDs: []int{p.PID}, Hz: 20, All: true, WallWeight: true}
			if _, err := Run(ctx, opt, 0, testPipeline(a), nil, nil); err != nil {
				t.Fatal(err)
			}
			for tid := range a.want {
				t.Errorf("no stack of thread %d was seen in its place, but %v (last left out: %s)", tid, a.got[tid], a.last[tid])
			}
			for tid, stacks := range a.got {
				for _, s := range stacks {
					checkGoStack(t, s, p.Threads[tid])
				}
			}
			t.Logf("stacks of %d threads", len(a.got))
		})
	}
}

// checkGoStack: s is complete, has the functions told at its root if there are
// any, and each frame was found by a row.
func checkGoStack(t *testing.T, s *output.Stack, told []string) {
	t.Helper()
	if told != nil && !inPlace(s) {
		return
	}
	var names, hows []string
	for _, f := range s.Frames {
		names, hows = append(names, strings.TrimSuffix(f.Func, ".abi0")), append(hows, f.How)
	}
	if told == nil && s.End != "" && slices.Contains(open, names[len(names)-1]) {
		return
	}
	root := names[max(0, len(names)-len(told)):]
	if s.End != "" || told != nil && !slices.Equal(root, told) {
		t.Errorf("got %s by %s, ends: %q; want it complete, with %s", names, hows, s.End, told)
	}
	if told != nil && slices.ContainsFunc(hows[1:], func(how string) bool { return how != "eh_frame" }) {
		t.Errorf("got %s by %s, want all by eh_frame", names, hows)
	}
}

// open are functions in which the stacks of the runtime's threads may end: what
// called them is on another stack.
var open = []string{"runtime.systemstack", "runtime.morestack", "runtime.nanotime1", "runtime.walltime", "runtime.vgetrandom1"}

// goThreadMemory is memory of a Go thread: words by address, the rest is 0.
type goThreadMemory map[uint64]uint64

func (m goThreadMemory) ReadAt(b []byte, addr int64) (int, error) {
	if addr < 0x1000 {
		return 0, io.EOF
	}
	clear(b)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], m[uint64(addr)+uint64(i)])
	}
	return len(b), nil
}

// TestGoRecords: where the stack pointers of a Go thread's two stacks are kept is found from its thread pointer. What only looks like that leads nowhere.
func TestGoRecords(t *testing.T) {
	const tp, m, g0, g, signal, other, p = 0x7000, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000
	const own, stack, elsewhere = 0x7f00_0000, 0xc000_0000, 0xd000_0000
	whole := func() goThreadMemory {
		k := goThreadMemory{tp - 40: g, m: g0, m + 80: signal, m + 192: g}
		for at, low := range map[uint64]uint64{g0: own, g: stack, signal: 0x9000_0000, other: elsewhere} {
			k[at], k[at+8], k[at+48] = low, low+0x8000, m
		}
		k[other+48] = 0x60000
		return k
	}
	for _, tt := range []struct {
		name      string
		change    func(k goThreadMemory)
		found, ok bool
	}{
		{"a goroutine runs", nil, true, true},
		{"g is g0", func(k goThreadMemory) { k[tp-40] = g0 }, true, true},
		{"no g", func(k goThreadMemory) { k[tp-40] = 0 }, false, false},
		{"no address", func(k goThreadMemory) { k[tp-40] = g + 4 }, false, false},
		{"g0 of another m", func(k goThreadMemory) { k[g0+48] = m + 8 }, false, false},
		{"no goroutine runs", func(k goThreadMemory) { k[m+192] = 0 }, true, false},
		{"a goroutine of another m", func(k goThreadMemory) { k[m+192] = other }, true, false},
		{"its stack's size is no power of two", func(k goThreadMemory) { k[g+8] -= 0x800 }, true, false},
		{"its stack has no end", func(k goThreadMemory) { k[g+8] = k[g] }, true, false},
		{"what it has for a processor comes first", func(k goThreadMemory) { k[m+184], k[p], k[p+48] = p, 5, m }, true, true},
	} {
		k := whole()
		if tt.change != nil {
			tt.change(k)
		}
		r := goThread{mem: k, seen: new(goSeen), tp: tp}
		found, ok := r.find()
		if found != tt.found || ok != tt.ok {
			t.Errorf("%s: found: %t, %t; want %t, %t", tt.name, found, ok, tt.found, tt.ok)
		}
		if !ok {
			continue
		}
		first, second := r.other(0), r.other(r.way.G)
		if want := (taking.Other{Word: g0, At: 56}); first != want {
			t.Errorf("%s: %+v; want %+v", tt.name, first, want)
		}
		if want := (taking.Other{Word: m + 192, Via: true, At: 56, Homes: [2]taking.Range{{From: k[g0], To: k[g0+8]}, {From: k[signal], To: k[signal+8]}}}); second != want {
			t.Errorf("%s: %+v; want %+v", tt.name, second, want)
		}
		if want := (taking.Way{TLS: -40, M: 48, G: 192}); r.way != want {
			t.Errorf("%s: %+v; want %+v", tt.name, r.way, want)
		}
		// Of another goroutine the same place tells.
		if k[m+192] = other; !r.record(&second) || !r.on(elsewhere) || r.on(stack) || !r.record(&first) || !r.on(own) {
			t.Errorf("%s: a g that is known is another", tt.name)
		}
		if k[m+192] = 0; r.record(&second) {
			t.Errorf("%s: a g where there is none", tt.name)
		}
	}
	k := whole()
	const slot = m + 136 // the variable with g is in m itself, where there is no C
	k[slot], k[m+192] = g, 0
	r := goThread{mem: k, seen: new(goSeen), tp: slot + 8}
	if found, ok := r.find(); !found || ok {
		t.Errorf("the variable that has the g of now is taken for the field: %t, %+v", ok, r.way)
	}
}

// goSpace is a process with that memory. reads are counted.
type goSpace struct {
	Target
	goThreadMemory
	reads int
}

func (s *goSpace) Source() module.Source { return goSource{of: s} }

// goSource reads that memory.
type goSource struct {
	module.Source
	of *goSpace
}

func (s goSource) ReadAt(b []byte, addr int64) (int, error) {
	s.of.reads++
	return s.of.goThreadMemory.ReadAt(b, addr)
}

func (*goSpace) Mappings() []procfs.Mapping {
	return []procfs.Mapping{{Start: 0x7f00_0000, End: 0x7f00_8000, Perms: procfs.Read | procfs.Write}, {Start: 0xc000_0000, End: 0xc000_8000, Perms: procfs.Read | procfs.Write}}
}

// Module implements Code: nothing is known of the code.
func (*goSpace) Module(uint64) (*module.Module, uint64, bool) { return nil, 0, false }

// TestGoHome: where a thread's own stack is of use. Of stacks that C has made Go knows the end nearly, and not the beginning.
func TestGoHome(t *testing.T) {
	const m, g0, signal = 0x10000, 0x20000, 0x30000
	maps := []procfs.Mapping{{Start: 0xc000_0000, End: 0xc040_0000}, {Start: 0x7f00_0000_0000, End: 0x7f00_0080_0000}, {Start: 0x7ff0_0000_0000, End: 0x7ff0_0002_0000, Path: "[stack]"}}
	for _, tt := range []struct {
		low, high uint64
		of        uint64
		want      taking.Range
	}{
		{0xc000_2000, 0xc000_6000, m, taking.Range{From: 0xc000_2000, To: 0xc000_6000}},
		{0x7f00_0000_1000, 0x7f00_007f_e000, m, taking.Range{From: 0x7f00_0000_0000, To: 0x7f00_0080_0000}},
		{0x7f00_0000_1000, 0x7f00_0080_0000 - ownRoom, m, taking.Range{From: 0x7f00_0000_1000, To: 0x7f00_0080_0000 - ownRoom}},
		{0x7ff0_0000_f000, 0x7ff0_0001_f000, m, taking.Range{From: 0x7ff0_0000_0000 - maxBelow, To: 0x7ff0_0002_0000}},
		{0xc000_2000, 0xc000_6000, m + 8, taking.Range{}}, // of another m
	} {
		g := goThread{mem: goThreadMemory{m: g0, m + 72: signal, signal: 0x5000, signal + 8: 0x6000, signal + 48: m, g0: tt.low, g0 + 8: tt.high, g0 + 48: tt.of}, maps: maps, seen: new(goSeen)}
		want := [2]taking.Range{tt.want}
		if tt.of == m {
			want[1] = taking.Range{From: 0x5000, To: 0x6000}
		}
		if got := g.home(m); got != want {
			t.Errorf("from %#x to %#x: %#x, want %#x", tt.low, tt.high, got, want)
		}
	}
}

// TestGoOthers: what advice tells of the other stack of a Go thread. Records of stacks are copied from when a walk went over without a word to tell,
// and tell from then on by themselves; the words of stacks by which it was known before are dropped, but not those of signal frames. What one thread has told serves the others.
func TestGoOthers(t *testing.T) {
	const tp, m, g0, g, signal, tid, kin = 0x7000, 0x10000, 0x20000, 0x30000, 0x40000, 7, 8
	const own, stack, signals = 0x7f00_0000, 0xc000_0000, 0xc000_8000
	space := &goSpace{goThreadMemory: goThreadMemory{tp - 40: g, m: g0, m + 72: signal, m + 192: g, g0 + 56: own + 0x600}}
	for at, low := range map[uint64]uint64{g0: own, g: stack, signal: signals} {
		space.goThreadMemory[at], space.goThreadMemory[at+8], space.goThreadMemory[at+48] = low, low+0x8000, m
	}
	note := make([]byte, 27*8) // fs_base is the 22nd (struct user_regs_struct, sys/user.h)
	binary.LittleEndian.PutUint64(note[168:], tp)
	tg := &target{space: space, threads: map[int]*seen{}}
	ofStack := taking.Other{Word: m + 192, Via: true, At: 56, Homes: [2]taking.Range{{From: own, To: own + 0x8000}, {From: signals, To: signals + 0x8000}}}
	word := taking.Other{Word: own + 0x100, Bytes: 8192, Stack: taking.Extent{Low: stack, High: stack + 0x8000}}
	byKernel := taking.Other{Word: signals + 0x7000, Kept: true, Bytes: 8192, Stack: taking.Extent{Low: stack, High: stack + 0x8000}}
	var known *Kin
	// after tells what a walk from the thread's own stack that went over, by a word at that address, makes of advice.
	after := func(tid int, v *Advice, blind bool, by uint64) (got []taking.Other) {
		ws := &walks{cfg: &PipelineConfig{Log: slog.New(slog.DiscardHandler)}, blocks: []block{{low: own + 16, over: -1}, {low: stack + 0x100, high: stack + 0x800}}}
		ws.over = []unwind.Stack{{Frame: 1, Base: stack + 0x100, Word: by}}
		if blind {
			ws.owned = []unwind.Owned{{Frame: 0}}
		}
		known = ws.others(tg, regs.AMD64, &capture.Capture{TID: tid, Regs: capture.Registers{Note: note}, Stack: capture.Stack{Addr: own + 16}}, v, []unwind.Frame{{SP: own + 0x400}}, 0, known)
		sum := 0
		for _, o := range v.Others {
			if o.Bytes == 0 {
				break
			}
			if sum += o.Bytes; o.Bytes < 0x800 {
				t.Errorf("%d bytes of %+v", o.Bytes, o)
			}
			o.Bytes, o.Stack = 0, taking.Extent{}
			got = append(got, o)
		}
		if sum != v.Beyond {
			t.Errorf("%d bytes in all, %d by themselves", v.Beyond, sum)
		}
		return got
	}
	bare := func(o taking.Other) taking.Other {
		o.Bytes, o.Stack = 0, taking.Extent{}
		return o
	}
	var v Advice
	v.Others[0], v.Others[1] = word, byKernel
	if got, want := after(tid, &v, false, 0), []taking.Other{bare(word), bare(byKernel)}; !slices.Equal(got, want) || space.reads > 0 || known != nil {
		t.Errorf("no function of Go's: %+v; want %+v without a read, and got %d", got, want, space.reads)
	}
	if got, want := after(tid, &v, false, signals+0x7000), []taking.Other{bare(byKernel), bare(word)}; !slices.Equal(got, want) || space.reads > 0 {
		t.Errorf("it went over by a signal frame: %+v; want %+v without a read, and got %d", got, want, space.reads)
	}
	if got, want := after(tid, &v, true, 0), []taking.Other{ofStack, bare(byKernel)}; !slices.Equal(got, want) {
		t.Errorf("it went over without a word: %+v; want %+v", got, want)
	}
	way := taking.Other{Reg: 168, At: 56, Via: true, Way: taking.Way{TLS: -40, M: 48, G: 192}}
	if known == nil || bare(known.Others[0]) != way || known.Others[1].Bytes != 0 || known.Beyond != known.Others[0].Bytes || known.Beyond < minCopy ||
		known.Words[0].Field != 72 || known.Words[0].Below != 0x1000 || known.Words[1].Bytes != 0 {
		t.Fatalf("of its kin: %+v", known)
	}
	was := known
	if after(tid, &v, true, 0); known != was {
		t.Errorf("no news: %+v", known)
	}
	// Another thread, of which nothing is known but that.
	fb := &Feedback{kin: new(atomic.Pointer[Kin])}
	fb.learn(known)
	if fb.known() != known || fb.state() != (advised{kin: known}) {
		t.Errorf("feedback: %+v", fb.state())
	}
	if v = fb.Get(); bare(v.Others[0]) != way || v.Others[1].Bytes != 0 || v.Beyond != known.Beyond {
		t.Errorf("advice for another: %+v", v)
	}
	const m2, g02, g2, signal2, tp2 = 0x110000, 0x120000, 0x130000, 0x140000, 0x9000
	for at, low := range map[uint64]uint64{g02: own + 0x100000, g2: stack + 0x100000, signal2: signals + 0x100000} {
		space.goThreadMemory[at], space.goThreadMemory[at+8], space.goThreadMemory[at+48] = low, low+0x8000, m2
	}
	space.goThreadMemory[tp2-40], space.goThreadMemory[m2], space.goThreadMemory[m2+72], space.goThreadMemory[m2+192] = g2, g02, signal2, g2
	binary.LittleEndian.PutUint64(note[168:], tp2)
	want := []taking.Other{{Word: m2 + 192, Via: true, At: 56, Homes: [2]taking.Range{{From: own + 0x100000, To: own + 0x108000}, {From: signals + 0x100000, To: signals + 0x108000}}}, {Word: signals + 0x107000, Kept: true}}
	if got := after(kin, &v, true, 0); !slices.Equal(got, want) {
		t.Errorf("another thread: %+v; want %+v", got, want)
	}
	// It goes on with another m, as threads of C's do before Go 1.21.
	space.goThreadMemory[tp2-40] = g
	if got := after(kin, &v, true, 0); len(got) < 2 || got[0] != way || !tg.threads[kin].golang.moved {
		t.Errorf("a thread whose m is another: %+v", got)
	}
	fb.Set(v)
	if fb.learn(nil); fb.state().kin != nil || bare(fb.Get().Others[0]) != way {
		t.Errorf("a thread of which something is known: %+v", fb.Get())
	}
	// Of a thread that looks otherwise no more is read after some tries.
	binary.LittleEndian.PutUint64(note[168:], tp)
	space.goThreadMemory[tp-40], tg.threads, known = 0, map[int]*seen{}, nil
	tries := 0
	for before := -1; space.reads != before && tries < 1000; tries++ {
		before = space.reads
		after(tid, new(Advice), true, 0)
	}
	if tries != 5 {
		t.Errorf("%d tries, the last without a read; want 5", tries)
	}
	space.goThreadMemory[tp-40], space.goThreadMemory[m+192], tg.threads, tries = g, 0, map[int]*seen{}, 0 // the goroutine has gone on
	for before := -1; space.reads != before && tries < 1000; tries++ {
		before = space.reads
		after(tid, new(Advice), true, 0)
	}
	if tries != maxGoes+1 {
		t.Errorf("%d tries where it has gone on, the last without a read; want %d", tries, maxGoes+1)
	}
}

// TestGoFirst: where the goroutine's record is that a thread will leave, all threads of a process are told by the first that runs Go's code; one that looks
// otherwise tells nothing, and is not asked for ever.
func TestGoFirst(t *testing.T) {
	const tp, m, g0, g = 0x7000, 0x10000, 0x20000, 0x30000
	space := &goSpace{goThreadMemory: goThreadMemory{tp - 40: g, m: g0, m + 192: g}}
	for at, low := range map[uint64]uint64{g0: 0x7f00_0000, g: 0xc000_0000} {
		space.goThreadMemory[at], space.goThreadMemory[at+8], space.goThreadMemory[at+48] = low, low+0x8000, m
	}
	note := make([]byte, 27*8)
	binary.LittleEndian.PutUint64(note[168:], tp)
	tg := &target{space: space, threads: map[int]*seen{}}
	others := func(tid, bounds int) (*Kin, Advice) {
		ws := &walks{cfg: &PipelineConfig{Log: slog.New(slog.DiscardHandler)}, blocks: []block{{over: -1}}}
		v := Advice{Advice: taking.Advice{Bounds: bounds}}
		k := ws.others(tg, regs.AMD64, &capture.Capture{TID: tid, Regs: capture.Registers{Note: note}}, &v, []unwind.Frame{{}}, 0, nil)
		return k, v
	}
	if k, v := others(1, 0); k != nil || v.Beyond != 0 || space.reads > 0 {
		t.Errorf("no code of Go's: %+v, %+v, %d reads", k, v.Others[0], space.reads)
	}
	way := taking.Other{Reg: 168, At: 56, Via: true, Way: taking.Way{TLS: -40, M: 48, G: 192}, Bytes: recordCopy}
	k, v := others(2, 8)
	if k == nil || k.Others != [2]taking.Other{way} || k.Beyond != recordCopy {
		t.Errorf("kin: %+v", k)
	}
	if o := v.Others[0]; o.Word != m+192 || !o.Via || o.At != 56 || o.Bytes != recordCopy || v.Beyond != recordCopy || v.Others[1].Bytes != 0 {
		t.Errorf("the thread itself: %+v", v.Others[:2])
	}
	v.Others[0].Bytes, v.Beyond = 1<<20, 1<<20
	for range 10_000 { // room that is of no use any more is given back, but for some: that costs no time where it is of none
		if (&walks{cfg: &PipelineConfig{}, blocks: []block{{over: -1}}}).others(tg, regs.AMD64, &capture.Capture{TID: 2, Regs: capture.Registers{Note: note}}, &v, nil, 0, k); v.Beyond < recordCopy {
			t.Fatalf("room for %d bytes", v.Beyond)
		}
	}
	if v.Beyond != recordCopy {
		t.Errorf("room for %d bytes", v.Beyond)
	}
	space.goThreadMemory[tp-40] = 0
	for range 10 {
		others(3, 8)
	}
	reads := space.reads
	if k, _ := others(3, 8); k != nil || space.reads != reads {
		t.Errorf("a thread that is none of Go's: %+v, %d more reads", k, space.reads-reads)
	}
}

// TestGoWhich: which of its two stacks a Go thread went over to.
func TestGoWhich(t *testing.T) {
	const m, g0, own, stack = 0x10000, 0x20000, 0x7f00_0000, 0xc000_0000
	k := goThreadMemory{m: g0, g0: own, g0 + 8: own + 0x8000, g0 + 48: m}
	g := &goThread{mem: k, seen: new(goSeen), m: m, way: taking.Way{TLS: -8, M: 48, G: 192}}
	ofOwn, ofStack := taking.Other{Word: g0, At: 56}, taking.Other{Word: m + 192, Via: true, At: 56}
	for _, tt := range []struct {
		name         string
		low, before  uint64
		blind, twice bool
		o, also      taking.Other
		ok           bool
	}{
		{"C is called", stack, own, false, false, ofStack, taking.Other{}, true},
		{"C has called back", own + 0x7fff, stack, false, true, ofOwn, ofStack, true},
		{"and calls C again", stack, own + 8, false, true, ofStack, ofOwn, true},
		{"both on one", own + 8, own + 16, false, true, taking.Other{}, taking.Other{}, false},
		{"none on its own", own + 0x8000, own - 1, false, true, taking.Other{}, taking.Other{}, false},
		{"before Go 1.21", stack, own, true, false, ofStack, taking.Other{}, true},
	} {
		o, also, ok := g.which(tt.low, tt.before, tt.blind, tt.twice)
		if o != tt.o || also != tt.also || ok != tt.ok {
			t.Errorf("%s: %+v, %+v, %t", tt.name, o, also, ok)
		}
	}
	clear(k)
	if _, _, ok := g.which(stack, own, false, false); ok {
		t.Error("where nothing can be read")
	}
}
