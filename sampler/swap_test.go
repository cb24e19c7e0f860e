package sampler

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace"
)

// stays is what the program swap tells of its libraries: which one was mapped
// when, in nanoseconds of CLOCK_MONOTONIC.
type stays struct{ list []stay }

type stay struct{ which, from, to uint64 }

func readStays(t *testing.T, path string) stays {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	word := func(i uint64) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	var s stays
	for n := range word(0) {
		s.list = append(s.list, stay{word(1 + 3*n), word(2 + 3*n), word(3 + 3*n)})
	}
	return s
}

// mapped tells whether a library was mapped at any time between two.
func (s stays) mapped(which uint64, from, to int64) bool {
	i, _ := slices.BinarySearchFunc(s.list, uint64(from), func(x stay, t uint64) int {
		if x.to != 0 && x.to < t {
			return -1
		}
		return 1
	})
	for ; i < len(s.list) && s.list[i].from <= uint64(to); i++ {
		if s.list[i].which == which {
			return true
		}
	}
	return false
}

// swapSink keeps all samples.
type swapSink struct {
	mu   sync.Mutex
	list []output.Sample
}

// Add implements output.Sink.
func (s *swapSink) Add(x *output.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, *x)
	return nil
}

// Close implements output.Sink.
func (s *swapSink) Close() error { return nil }

// originOf is a time as CLOCK_MONOTONIC has it, within 10 us, in nanoseconds.
func originOf(start time.Time) int64 {
	for {
		before := ptrace.Now()
		since := int64(time.Since(start))
		if after := ptrace.Now(); after-before < 10_000 {
			return before - since
		}
	}
}

// oneID is the linker's flag for the same build-id in all libraries.
const oneID = "-Wl,--build-id=0x0123456789abcdef0123456789abcdef01234567"

// swapper builds the program swap.
func swapper(t *testing.T) (path string) { return swapBuild(t, "-pthread") }

// swapped builds its libraries, with this flag for their build-ids.
func swapped(t *testing.T, id string) (libs []string) {
	t.Helper()
	for _, l := range [][2]string{{"alpha", "0"}, {"beta", "6"}} {
		libs = append(libs, swapBuild(t, "-shared", "-nostdlib", "-fPIC", "-fomit-frame-pointer", "-fasynchronous-unwind-tables",
			"-Wl,-z,max-page-size=0x10000", id, "-Wl,-e,"+l[0]+"_outer", "-DLIBRARY="+l[0], "-DROOM="+l[1]))
	}
	return libs
}

func swapBuild(t *testing.T, flags ...string) string {
	t.Helper()
	return testprog.Compile(t, append([]string{"-O2", "-fno-stack-protector"}, flags...), "swap.c")
}

// TestSwappedLibraries samples a thread that is always within one of two libraries,
// which come one after the other at the same address. What the stacks say is held
// against the program's own account of what was mapped when: no frame may be of the
// other library, or be found by its rows.
func TestSwappedLibraries(t *testing.T) {
	path := swapper(t)
	// Samples to tell which share is whole. There are fewer under the race detector and on a busy machine, but not none: a thread that always runs has a
	// twentieth of a CPU there. Of few the first ones, which are cut before it is known what to read with them, and chance take a larger part.
	const enough, few = 100, 20
	for _, tt := range []struct {
		stays, how string // in milliseconds
		hz         int
		seconds    int
		id         string
		least      int // of a hundred stacks that are whole, at a load of 20 for each CPU
	}{
		{"20", "", 199, 4, "-Wl,--build-id", 6},
		{"80", "", 199, 4, "-Wl,--build-id", 35},
		{"500", "", 199, 4, "-Wl,--build-id", 75},
		{"1500,12", "", 499, 6, "-Wl,--build-id", 85}, // there is no look at the second one as a rule
		{"1500,25", "", 99, 8, "-Wl,--build-id", 75},
		{"300,20", "", 499, 4, "-Wl,--build-id", 70},
		{"25,1500", "", 499, 4, "-Wl,--build-id", 85},
		{"80,20", "move", 499, 4, "-Wl,--build-id", 60},
		{"20,8", "move 24", 999, 6, "-Wl,--build-id", 10}, // more places than marks are kept of
		{"20", "", 199, 4, oneID, 6},
		{"80,20", "move", 499, 4, oneID, 60},
		{"300,20", "", 499, 4, oneID, 70},
		{"80,20", "move", 499, 4, "-Wl,--build-id=none", 60},
	} {
		t.Run(strings.TrimSpace(fmt.Sprintf("%s ms %s %s", tt.stays, tt.how, strings.TrimPrefix(tt.id, "-Wl,--build-id"))), func(t *testing.T) {
			t.Parallel()
			libs := swapped(t, tt.id)
			log := filepath.Join(t.TempDir(), "log")
			p := testprog.Start(t, path, append([]string{tt.stays, log, libs[0], libs[1]}, strings.Fields(tt.how)...)...)
			sink := new(swapSink)
			pipe := testPipeline(sink)
			start := pipe.cfg.Start
			origin := originOf(start)
			if _, err := Run(context.Background(), Options{PIDs: []int{p.PID}, Hz: tt.hz}, time.Duration(tt.seconds)*time.Second, pipe, nil, nil); err != nil {
				t.Fatal(err)
			}
			p.Finish(t)
			truth := readStays(t, log)
			var all, whole, wrong, second, secondWhole int
			ends := map[string]int{}
			for i := range sink.list {
				s := &sink.list[i]
				if s.Taken != "stop" {
					continue
				}
				all++
				ends[s.Stack.End]++
				at := origin + int64(s.Time.Sub(start))
				if !truth.mapped(0, at-stamp, at) {
					second++
					if s.Stack.End == "" {
						secondWhole++
					}
				}
				if why := falseFrame(s.Stack, truth, libs, at-stamp, at); why != "" {
					if wrong++; wrong <= 5 {
						t.Errorf("%v, at %v: %s", names(s.Stack), s.Time.Sub(start), why)
					}
				} else if s.Stack.End == "" {
					whole++
				}
			}
			least := tt.hz * tt.seconds / 200
			if raceEnabled { // clocks come too late for nearly all there: 2 of 796, on a busy machine
				least = 1
			}
			if all < least {
				t.Errorf("%d samples, want %d at least", all, least)
			}
			if all >= enough && 100*whole < tt.least*all || all < enough && 300*whole < tt.least*(all-few) || wrong > 0 {
				t.Errorf("%d of %d samples with false frames, %d whole, want %d %% at least, of fewer than %d a third of that", wrong, all, whole, tt.least, enough)
			}
			t.Logf("%d samples, %d whole, %d with false frames, %d of the second library, %d of these whole; ends: %v", all, whole, wrong, second, secondWhole, ends)
		})
	}
}

// TestDumpSwapped dumps the same program again and again, each time as if for the first time. Where it is not
// known at a stop what was mapped, another stop tells.
func TestDumpSwapped(t *testing.T) {
	path, libs := swapper(t), swapped(t, "-Wl,--build-id")
	for _, how := range [][]string{nil, {"move"}} {
		log := filepath.Join(t.TempDir(), "log")
		p := testprog.Start(t, path, append([]string{"4,1", log, libs[0], libs[1]}, how...)...)
		type dumped struct {
			stack    *output.Stack
			from, to int64
		}
		var list []dumped
		for range 40 {
			d := dumped{from: ptrace.Now()}
			got, err := Dump(Options{PIDs: []int{p.PID}, Hooks: Hooks{Released: func() { d.to = ptrace.Now() }}}, testPipeline(new(swapSink)))
			if err != nil {
				t.Fatal(err)
			}
			for _, th := range got.Threads {
				if th.TID == p.PID && th.Stack != nil {
					d.stack = th.Stack
					list = append(list, d)
				}
			}
		}
		p.Finish(t)
		truth := readStays(t, log)
		whole, wrong := 0, 0
		for _, d := range list {
			if why := falseFrame(d.stack, truth, libs, d.from, d.to); why != "" {
				wrong++
				t.Errorf("%v: %s", names(d.stack), why)
			} else if d.stack.End == "" {
				whole++
			}
		}
		t.Logf("%v: %d dumps, %d whole, %d with false frames", how, len(list), whole, wrong)
		if 3*whole < 2*len(list) {
			t.Errorf("%v: %d of %d dumps are whole", how, whole, len(list))
		}
	}
}

func names(s *output.Stack) (list []string) {
	for _, f := range s.Frames {
		list = append(list, f.Func)
	}
	return list
}

// stamp: a capture has its time behind its stop.
const stamp = int64(5 * time.Millisecond)

// falseFrame says what is wrong about a stack of the program swap that was captured
// between two times of CLOCK_MONOTONIC.
func falseFrame(s *output.Stack, truth stays, libs []string, from, to int64) string {
	for _, f := range s.Frames {
		which := slices.IndexFunc(libs, func(path string) bool { return filepath.Base(path) == f.Module })
		if which >= 0 && !truth.mapped(uint64(which), from, to) {
			return fmt.Sprintf("%s+%#x: the library was not mapped", f.Module, f.Offset)
		}
	}
	list := names(s)
	chains := [2][]string{}
	for i, lib := range []string{"alpha", "beta"} {
		chains[i] = []string{lib + "_leaf", lib + "_mid", lib + "_outer", "stay", "main"}
	}
	if len(list) == 0 || !strings.Contains(list[0], "_leaf") && !strings.Contains(list[0], "_mid") && !strings.Contains(list[0], "_outer") {
		for _, f := range list {
			if strings.HasPrefix(f, "alpha_") || strings.HasPrefix(f, "beta_") {
				return f + " is the caller of what is not its own"
			}
		}
		return ""
	}
	for i, chain := range chains {
		k := slices.Index(chain, list[0])
		if k < 0 {
			continue
		}
		if !truth.mapped(uint64(i), from, to) {
			return "the library was not mapped"
		}
		chain = chain[k:]
		if n := min(len(list), len(chain)); !slices.Equal(list[:n], chain[:n]) {
			return fmt.Sprintf("want %v", chain)
		}
		return ""
	}
	return "no function of the program"
}
