package sampler

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/capture"
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
	const tp, m, g0, g, signal, other = 0x7000, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
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
		name   string
		change func(k goThreadMemory)
		a, b   uint64
		found  bool
	}{
		{"C has called back", nil, own + 8, stack + 8, true},
		{"C is called", nil, stack + 8, own + 8, true},
		{"C is called, where g is g0", func(k goThreadMemory) { k[tp-40] = g0 }, stack + 8, own + 8, true},
		{"the ends of a stack", nil, own, stack + 0x7fff, true},
		{"below the thread's own", nil, own - 1, stack, false},
		{"behind the goroutine's", nil, stack + 0x8000, own, false},
		{"both on one", nil, own + 8, own + 16, false},
		{"it has gone on by now", nil, elsewhere + 8, own + 8, false},
		{"no g", func(k goThreadMemory) { k[tp-40] = 0 }, own + 8, stack + 8, false},
		{"no address", func(k goThreadMemory) { k[tp-40] = g + 4 }, own + 8, stack + 8, false},
		{"g0 of another m", func(k goThreadMemory) { k[g0+48] = m + 8 }, own + 8, stack + 8, false},
		{"the signals' stack is not that of the goroutine", nil, 0x9000_0008, own + 8, false},
	} {
		k := whole()
		if tt.change != nil {
			tt.change(k)
		}
		r := goThread{mem: k}
		first, second, ok := r.find(tp, tt.a, tt.b, false)
		if ok != tt.found {
			t.Errorf("%s: found: %t; want %t", tt.name, ok, tt.found)
		}
		if none := strings.HasPrefix(tt.name, "no ") || strings.HasPrefix(tt.name, "g0 of"); none != (first.At == 0) {
			t.Errorf("%s: the thread's own: %+v", tt.name, first)
		}
		if !ok {
			continue
		}
		if want := (taking.Other{Word: g0, At: 56}); first != want {
			t.Errorf("%s: %+v; want %+v", tt.name, first, want)
		}
		if want := (taking.Other{Word: m + 192, Via: true, At: 56}); second != want {
			t.Errorf("%s: %+v; want %+v", tt.name, second, want)
		}
		// Of another goroutine the same place tells.
		if k[m+192] = other; !r.record(&second) || !r.on(elsewhere) || r.on(stack) || !r.record(&first) || !r.on(own) {
			t.Errorf("%s: a g that is known is another", tt.name)
		}
		if k[m+192] = 0; r.record(&second) {
			t.Errorf("%s: a g where there is none", tt.name)
		}
	}
	// Before Go 1.21 the walk does not know where it has gone: any goroutine will do that the thread runs, but not by the variable that has the g of now.
	k := whole()
	const slot = m + 136 // in m itself, where there is no C
	k[slot] = g
	r := goThread{mem: k}
	if _, o, ok := r.find(slot+8, elsewhere+8, own+8, true); !ok || o != (taking.Other{Word: m + 192, Via: true, At: 56}) {
		t.Errorf("anyone: %t, %+v", ok, o)
	}
	k[m+192] = g0
	if _, o, ok := r.find(slot+8, elsewhere+8, own+8, true); ok {
		t.Errorf("nobody: %+v", o)
	}
}

// goSpace is a process with that memory. reads are counted.
type goSpace struct {
	Target
	goThreadMemory
	reads int
}

func (s *goSpace) ReadAt(b []byte, addr int64) (int, error) {
	s.reads++
	return s.goThreadMemory.ReadAt(b, addr)
}

func (*goSpace) Mappings() []procfs.Mapping {
	return []procfs.Mapping{{Start: 0x7f00_0000, End: 0x7f00_8000, Perms: procfs.Read | procfs.Write}, {Start: 0xc000_0000, End: 0xc000_8000, Perms: procfs.Read | procfs.Write}}
}

// TestGoOthers: what advice tells of the other stack of a Go thread. Records of both stacks are copied from when a walk went over twice, and tell
// from then on by themselves; the words of stacks by which it was known before are dropped, but not those of signal frames.
func TestGoOthers(t *testing.T) {
	const tp, m, g0, g, tid = 0x7000, 0x10000, 0x20000, 0x30000, 7
	const own, stack = 0x7f00_0000, 0xc000_0000
	space := &goSpace{goThreadMemory: goThreadMemory{tp - 40: g, m: g0, m + 192: g}}
	for at, low := range map[uint64]uint64{g0: own, g: stack} {
		space.goThreadMemory[at], space.goThreadMemory[at+8], space.goThreadMemory[at+48] = low, low+0x8000, m
	}
	note := make([]byte, 27*8) // fs_base is the 22nd (struct user_regs_struct, sys/user.h)
	binary.LittleEndian.PutUint64(note[168:], tp)
	tg := &target{space: space, threads: map[int]*seen{}}
	ofOwn, ofStack := taking.Other{Word: g0, At: 56}, taking.Other{Word: m + 192, Via: true, At: 56}
	signal, word := taking.Other{Word: own + 0x700, Kept: true, Bytes: 8192, Stack: taking.Extent{Low: stack, High: stack + 0x8000}}, taking.Other{Word: own + 0x600, Bytes: 8192, Stack: taking.Extent{Low: stack, High: stack + 0x8000}}
	// after tells what a walk from the thread's own stack that went over so often, by a word at that address, makes of advice.
	after := func(v *Advice, over int, by uint64) (got []taking.Other) {
		ws := &walks{blocks: []block{{low: own + 16, over: -1}, {low: stack + 0x100, high: stack + 0x800}}}
		for range over {
			ws.over = append(ws.over, unwind.Stack{Frame: 1, Base: stack + 0x100, Word: by})
		}
		ws.others(tg, regs.AMD64, &capture.Capture{TID: tid, Regs: note, StackAddr: own + 16}, v, []unwind.Frame{{SP: own + 0x400}}, 0)
		sum := 0
		for _, o := range v.Others {
			if o.Bytes == 0 {
				break
			}
			if sum += o.Bytes; o.Bytes < 0x800 {
				t.Errorf("%d bytes of %+v", o.Bytes, o)
			}
			if o.At != 0 && o.Word == ofStack.Word && (o.Stack.Low != stack || o.Stack.High != stack+0x8000) {
				t.Errorf("its stack is %+v", o.Stack)
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
	v.Others[0], v.Others[1] = word, signal
	if got, want := after(&v, 1, 0), []taking.Other{bare(word), bare(signal)}; !slices.Equal(got, want) || space.reads > 0 {
		t.Errorf("it went over once: %+v; want %+v without a read, and got %d", got, want, space.reads)
	}
	if got, want := after(&v, 2, own+0x700), []taking.Other{bare(signal), bare(word)}; !slices.Equal(got, want) || space.reads > 0 {
		t.Errorf("it went over by a signal frame: %+v; want %+v without a read, and got %d", got, want, space.reads)
	}
	if got, want := after(&v, 2, 0), []taking.Other{ofStack, ofOwn, bare(signal)}; !slices.Equal(got, want) {
		t.Errorf("it went over twice: %+v; want %+v", got, want)
	}
	if got, want := after(&v, 1, 0), []taking.Other{ofStack, ofOwn, bare(signal)}; !slices.Equal(got, want) {
		t.Errorf("it is known: %+v; want %+v", got, want)
	}
	// Of a thread that looks otherwise no more is read after some tries.
	space.goThreadMemory[tp-40], tg.threads = 0, map[int]*seen{}
	tries := 0
	for before := -1; space.reads != before && tries < 1000; tries++ {
		before = space.reads
		after(new(Advice), 2, 0)
	}
	if tries != 5 {
		t.Errorf("%d tries, the last without a read; want 5", tries)
	}
	space.goThreadMemory[tp-40], space.goThreadMemory[m+192], tg.threads, tries = g, 0, map[int]*seen{}, 0 // the goroutine has gone on
	for before := -1; space.reads != before && tries < 1000; tries++ {
		before = space.reads
		after(new(Advice), 2, 0)
	}
	if tries != maxGoes+1 {
		t.Errorf("%d tries where it has gone on, the last without a read; want %d", tries, maxGoes+1)
	}
}
