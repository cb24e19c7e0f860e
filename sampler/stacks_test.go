package sampler

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/unwind"
)

// parked is a test program that stays in the stacks that it has told.
type parked struct {
	*testprog.Proc
	name, variant string
}

func park(t *testing.T, variant, prog string, args ...string) *parked {
	t.Helper()
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, variant, prog), args...)
	return &parked{p, strings.Join(append([]string{variant, prog}, args...), " "), variant}
}

// stacks returns what the program told, by thread.
func (p *parked) stacks() map[int][]string {
	if p.Stack != nil {
		return map[int][]string{p.PID: p.Stack}
	}
	return p.Threads
}

// method is what finds the frames of a variant: its only tables, or the chain
// that it keeps.
func method(variant string) string {
	kind, _, _ := strings.Cut(strings.TrimRight(variant, "0123456789"), "-")
	switch kind = strings.TrimRight(kind, "0123456789"); kind {
	case "ehframe":
		return "eh_frame"
	case "packed":
		return "backchain"
	}
	return kind
}

// byFrame is the method that finds each frame of a stack that p has told.
func (p *parked) byFrame(stack []string) []string {
	how := make([]string, len(stack))
	for i := range stack {
		switch {
		case i == 0:
			how[i] = "regs"
		case isTrampoline(stack[i-1]):
			how[i] = "signal"
		case p.variant != "mixed":
			how[i] = method(p.variant)
		case strings.HasPrefix(stack[i-1], "first_"):
			how[i] = method(chained[runtime.GOARCH])
		case strings.HasPrefix(stack[i-1], "second_"):
			how[i] = "eh_frame"
		default:
			how[i] = "sframe"
		}
	}
	return how
}

// chained is the variant without tables that can be unwound.
var chained = map[string]string{"amd64": "fp", "arm64": "fp", "s390x": "backchain"}

func isTrampoline(name string) bool { return name == "restorer" || name == "__kernel_rt_sigreturn" }

// looks is a sink that keeps the stacks of threads, and reports when each thread
// that is wanted was seen.
type looks struct {
	mu   sync.Mutex
	got  map[int][]*output.Stack
	in   map[int]string // by thread: the innermost function
	want map[int]bool
	done func()
}

// Add implements output.Sink.
func (l *looks) Add(s *output.Sample) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Taken != "stop" && s.Taken != "no stop" || len(s.Stack.Frames) == 0 {
		return nil
	}
	if s.Taken == "no stop" && s.Stack.End == unknown && !mustNotStop(s.Stack.Frames[0].Func) {
		return nil // it will be stopped for its registers
	}
	if s.Stack.Frames[0].Func != l.in[s.TID] {
		return nil // still on its way there, or right before a restarted call
	}
	if s.Stack.End == unwind.OutsideCopy.String() {
		return nil // the next copy is larger
	}
	if !slices.Contains(l.got[s.TID], s.Stack) {
		l.got[s.TID] = append(l.got[s.TID], s.Stack)
	}
	if delete(l.want, s.TID); len(l.want) == 0 {
		l.done()
	}
	return nil
}

// Close implements output.Sink.
func (l *looks) Close() error { return nil }

// unknown is how a stack ends that takes registers which are not read without a
// stop.
var unknown = unwind.UnknownRegister.String()

// mustNotStop tells of a function of the program "blocked" whether a stop would
// not go unnoticed in its call: a socket may have a time limit, a vfork stops
// when its child ends, EINTR cannot be taken back everywhere, and a wait for a span of time may have to begin
// anew, as another thread may install a filter.
func mustNotStop(name string) bool {
	switch name {
	case "in_accept", "in_recv", "in_nanosleep", "start_thread":
		return true
	case "in_epoll", "in_semop", "in_sigtimedwait", "in_io_getevents":
		return !ptrace.Reverts
	}
	return false
}

// sampleAll samples processes until each thread was seen. order lists the methods, nil
// for the default.
func sampleAll(t *testing.T, order []unwind.How, all []*parked) map[int][]*output.Stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
	defer cancel()
	l := &looks{got: map[int][]*output.Stack{}, in: map[int]string{}, want: map[int]bool{}, done: cancel}
	opt := Options{Hz: 20, All: true, WallWeight: true}
	for _, p := range all {
		opt.PIDs = append(opt.PIDs, p.PID)
		for tid, stack := range p.stacks() {
			l.want[tid], l.in[tid] = true, stack[0]
		}
	}
	pipe := testPipeline(l)
	pipe.cfg.Walk.Order = order
	r, err := Run(ctx, opt, 0, pipe, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d threads, %d stops, %v", len(l.got), r.Stops.Asked, &r.Account)
	for tid := range l.want {
		t.Errorf("no stack of thread %d was seen", tid)
	}
	return l.got
}

// bare are the methods that need a table or a chain: what a variant lacks, its stacks lack.
var bare = []unwind.How{unwind.SFrame, unwind.EHFrame, unwind.FramePointer, unwind.BackChain}

// TestStacks samples programs that tell their stacks: every frame, the method
// that found it, and the way in which the stack ends.
func TestStacks(t *testing.T) {
	arch := runtime.GOARCH
	cases := map[string]func() []*parked{
		"blocked": func() (all []*parked) {
			for _, v := range testprog.Variants(t, arch, "deep") {
				all = append(all, park(t, v, "deep", "b", "7"))
			}
			for _, v := range testprog.Variants(t, arch, "handler") {
				for _, how := range []string{"k", "l", "n"} {
					all = append(all, park(t, v, "handler", how))
				}
			}
			for _, v := range testprog.Variants(t, arch, "altstack") {
				all = append(all, park(t, v, "altstack", "b", "7"))
			}
			return append(all, park(t, "mixed", "mixed"))
		},
		"calls": func() (all []*parked) {
			for _, v := range testprog.Variants(t, arch, "blocked") {
				all = append(all, park(t, v, "blocked", "17"))
			}
			return all
		},
	}
	// Where the handlers' stack leads to a page that was never written: frames of s390x hold much that is not used.
	for _, part := range []string{"a", "b", "c", "d", "e"} {
		cases["places/"+part] = func() (all []*parked) {
			for range 12 {
				all = append(all, park(t, "ehframe", "altstack", "b", "7"))
			}
			return all
		}
	}
	// Threads that spin are sampled one at a time: they would take the CPUs from
	// each other.
	for _, v := range testprog.Variants(t, arch, "deep") {
		for how, depth := range map[string]string{"s": "6", "p": "5"} {
			cases[v+"/"+how] = func() []*parked { return []*parked{park(t, v, "deep", how, depth)} }
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			all := cases[name]()
			got := sampleAll(t, bare, all)
			for _, p := range all {
				for tid, want := range p.stacks() {
					// in_vfork ends with a jump: it is not on the stack.
					want = slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "in_vfork" })
					for _, s := range got[tid] {
						checkStack(t, p, want, s)
					}
				}
				p.Kill()
			}
		})
	}
}

// TestStacksByCode samples the programs that have no tables: their code alone tells the whole stack,
// also of leaves whose callers the frame pointer leaves out. Not those that trap where the code does not go
// on: only without frame pointers is their caller looked for.
func TestStacksByCode(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("elsewhere a blocked thread's return address is in a register")
	}
	var all []*parked
	for _, prog := range [][]string{{"deep", "b", "7"}, {"deep", "s", "6"}, {"deep", "p", "5"}, {"handler", "k"}, {"handler", "l"}, {"handler", "n"}, {"blocked", "17"}} {
		for _, v := range testprog.Variants(t, runtime.GOARCH, prog[0]) {
			if m := method(v); m == "none" || m == "fp" && prog[0] != "handler" {
				all = append(all, park(t, v, prog[0], prog[1:]...))
			}
		}
	}
	seen := 0
	got := sampleAll(t, nil, all)
	for _, p := range all {
		for tid, want := range p.stacks() {
			want = slices.DeleteFunc(slices.Clone(want), func(s string) bool { return s == "in_vfork" })
			for _, s := range got[tid] {
				var names, hows []string
				for _, f := range s.Frames {
					names, hows = append(names, f.Func), append(hows, f.How)
				}
				if s.End == unknown && mustNotStop(want[0]) && p.variant != "none" {
					continue // it ends by way of rbp
				}
				if !slices.Equal(names, want) || s.End != "" || !slices.Contains(hows, "code") {
					t.Errorf("%s:\n got %s by %s, ends: %q\nwant %s", p.name, names, hows, s.End, want)
				}
				seen++
			}
		}
	}
	if seen < 20 {
		t.Errorf("%d stacks seen", seen)
	}
}

// checkStack compares a sampled stack with the one that the program has told.
func checkStack(t *testing.T, p *parked, want []string, s *output.Stack) {
	t.Helper()
	var names, hows []string
	for _, f := range s.Frames {
		names, hows = append(names, f.Func), append(hows, f.How)
	}
	how, end := p.byFrame(want), ""
	switch {
	case p.variant == "none":
		// No method applies. What the stack shows is not all, and says so.
		if s.End == "" || names[0] != want[0] {
			t.Errorf("%s: got %s, ends: %q; want %s and a reason", p.name, names, s.End, want[0])
		}
		return
	case s.End == unknown && mustNotStop(want[0]):
		end = unknown
		want = want[:min(len(want), len(names))]
	case p.variant == "mixed" && runtime.GOARCH == "s390x":
		// The chain does not tell r11, from which through finds its frame.
		end = unknown
		want = want[:slices.Index(want, "through")+1]
	}
	how = how[:len(want)]
	want, how = leaveOut(p.variant, want, how)
	if len(want) > 1 && strings.HasPrefix(want[0], "in_") && leavesOut(p.variant) {
		// Called by a pointer: nothing tells that the leaf's caller is missing.
		if less, lessHow := slices.Delete(slices.Clone(want), 1, 2), slices.Delete(slices.Clone(how), 1, 2); slices.Equal(names, less) {
			want, how = less, lessHow
		} else if s.End != "" {
			end = s.End
			want, how = want[:min(len(want), len(names))], how[:min(len(want), len(names))]
		}
	}
	if !slices.Equal(names, want) || !slices.Equal(hows, how) || s.End != end {
		t.Errorf("%s:\n got %s by %s, ends: %q\nwant %s by %s, ends: %q", p.name, names, hows, s.End, want, how, end)
	}
}

// leavesOut: the variant's method needs a proof that an innermost function has
// no frame of its own, else it leaves that function's caller out.
func leavesOut(variant string) bool {
	m := method(variant)
	return m == "backchain" || m == "fp" && runtime.GOARCH == "arm64"
}

// leaveOut takes from a stack the frames that the variant's method is known to
// leave out: callers of a leaf that keeps its return address elsewhere than in
// the register (park), and on x86-64 of any leaf.
func leaveOut(variant string, stack, how []string) (left, leftHow []string) {
	leaf := func(name string) bool {
		return name == "park" && method(variant) == "backchain" || method(variant) == "fp" &&
			runtime.GOARCH == "amd64" && (name == "spin" || name == "block" || name == "park" || name == "trap_in_leaf")
	}
	for i := range stack {
		if i > 0 && leaf(stack[i-1]) && (i == 1 || isTrampoline(stack[i-2])) {
			continue
		}
		left, leftHow = append(left, stack[i]), append(leftHow, how[i])
	}
	return left, leftHow
}
