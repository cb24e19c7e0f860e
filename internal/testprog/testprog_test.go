package testprog

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// architectures of the committed programs, and what their ELF header says.
var architectures = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "386": elf.EM_386, "arm64": elf.EM_AARCH64, "s390x": elf.EM_S390,
}

// wantStack is what deep's source says about the stack of a call with depth n
// that ends in last, innermost first.
func wantStack(n int, last string) []string {
	s := []string{"_start", "main"}
	for i := range n {
		s = append(s, []string{"plain", "wide", "saver", "flex"}[i%4])
	}
	s = append(s, last)
	slices.Reverse(s)
	return s
}

func TestDeepTellsItsStack(t *testing.T) {
	archs := []string{runtime.GOARCH}
	if runtime.GOARCH == "amd64" {
		archs = append(archs, "386")
	}
	for _, arch := range archs {
		for _, variant := range Variants(t, arch, "deep") {
			for how, last := range map[string]string{"s": "spin", "b": "block", "p": "park"} {
				t.Run(fmt.Sprintf("%s/%s/%s", arch, variant, last), func(t *testing.T) {
					RequireArch(t, arch)
					p := Start(t, Committed(t, arch, variant, "deep"), how, "7")
					if want := wantStack(7, last); !slices.Equal(p.Stack, want) {
						t.Errorf("deep %s 7 tells %q, want %q", how, p.Stack, want)
					}
				})
			}
		}
	}
}

// TestDeepIsDeep: the greatest depth fits on the usual stack of 8 MiB, also
// with the frames of 600 bytes.
func TestDeepIsDeep(t *testing.T) {
	p := Start(t, Committed(t, runtime.GOARCH, "none", "deep"), "b", "8000")
	if got, want := len(p.Stack), 8003; got != want {
		t.Errorf("deep b 8000 tells %d frames, want %d", got, want)
	}
}

// TestBlocked: the program tells a stack and a call for each of its threads,
// /proc agrees about the call, and nothing but time limits ends the calls.
func TestBlocked(t *testing.T) {
	for _, variant := range Variants(t, runtime.GOARCH, "blocked") {
		t.Run(variant, func(t *testing.T) {
			const threads = 40
			p := Start(t, Committed(t, runtime.GOARCH, variant, "blocked"), strconv.Itoa(threads))
			if len(p.Threads) != threads {
				t.Errorf("%d threads told their stacks, want %d", len(p.Threads), threads)
			}
			calls := 0
			for _, line := range p.Lines {
				var tid, nr int
				if n, _ := fmt.Sscanf(line, "call %d %d", &tid, &nr); n != 2 {
					if !strings.HasPrefix(line, "unavailable ") {
						t.Errorf("line %q", line)
					}
					continue
				}
				calls++
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", p.PID, tid))
				if err != nil || !strings.HasPrefix(string(b), strconv.Itoa(nr)+" ") {
					t.Errorf("%v is in call %d by its own word, in %q (%v) by /proc", p.Threads[tid], nr, b, err)
				}
			}
			if calls != threads {
				t.Errorf("%d threads told their calls, want %d", calls, threads)
			}
			for _, line := range p.Finish(t) {
				if f := strings.Fields(line); len(f) != 5 || f[0] != "count" || !slices.Equal(f[2:], []string{"0", "0", "0"}) {
					t.Errorf("line %q, want no call to have ended", line)
				}
			}
		})
	}
}

func TestBlockedWithLimits(t *testing.T) {
	p := Start(t, Committed(t, runtime.GOARCH, "none", "blocked"), "34", "20")
	ended := 0
	for _, line := range p.Finish(t) {
		var kind string
		var calls, eintr, other int
		if n, err := fmt.Sscanf(line, "count %s %d %d %d", &kind, &calls, &eintr, &other); n != 4 {
			t.Errorf("line %q: %v", line, err)
		}
		ended += calls
		if eintr != 0 || other != 0 {
			t.Errorf("%s: %d EINTR and %d other results in %d calls, want none", kind, eintr, other, calls)
		}
	}
	if ended == 0 {
		t.Log("no call had ended yet")
	}
}

// TestSpinners: every thread works, and their CPU time is not more than the
// machine had.
func TestSpinners(t *testing.T) {
	for _, variant := range Variants(t, runtime.GOARCH, "spinners") {
		t.Run(variant, func(t *testing.T) {
			start := time.Now()
			p := Start(t, Committed(t, runtime.GOARCH, variant, "spinners"), "5")
			lines := p.Finish(t)
			elapsed := time.Since(start)
			var total time.Duration
			for i, line := range lines {
				var n, tid int
				var rounds uint64
				var cpu time.Duration
				if _, err := fmt.Sscanf(line, "count spin_%d %d %d %d", &n, &tid, &rounds, &cpu); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				total += cpu
				want := []string{fmt.Sprintf("spin_%d", n), "run", "thread_start"}
				if n != i || rounds == 0 || !slices.Equal(p.Threads[tid], want) {
					t.Errorf("line %q: thread %d has stack %q, want %q", line, tid, p.Threads[tid], want)
				}
			}
			if limit := elapsed * time.Duration(runtime.NumCPU()); len(lines) != 5 || total > limit {
				t.Errorf("%d threads used %v of CPU, want 5 and at most %v", len(lines), total, limit)
			}
		})
	}
}

// TestHandler: the program gets as far as its innermost handler, by whichever
// way, and tells so.
func TestHandler(t *testing.T) {
	trampoline := "__kernel_rt_sigreturn"
	if runtime.GOARCH == "amd64" {
		trampoline = "restorer"
	}
	interrupted := map[string]string{
		"k": "kill_self", "l": "before_leaf trap_in_leaf", "a": "before_leaf trap_in_leaf",
		"n": "kill_self TRAMPOLINE on_first before_leaf trap_in_leaf",
	}
	for _, variant := range Variants(t, runtime.GOARCH, "handler") {
		for how, middle := range interrupted {
			t.Run(variant+"/"+how, func(t *testing.T) {
				p := Start(t, Committed(t, runtime.GOARCH, variant, "handler"), how)
				text := "_start main " + middle + " TRAMPOLINE on_last block"
				want := strings.Fields(strings.ReplaceAll(text, "TRAMPOLINE", trampoline))
				slices.Reverse(want)
				if !slices.Equal(p.Stack, want) {
					t.Errorf("handler %s tells %q, want %q", how, p.Stack, want)
				}
			})
		}
	}
}

// TestSignals: with nobody in its way the program counts every expiry once. The
// kernel handles expiries a moment after their time, in a guest that has no CPU
// many periods later, so the last ones may be missing: never is one counted
// twice, and one run in twenty misses one at most.
func TestSignals(t *testing.T) {
	for try := range 20 {
		p := Start(t, Committed(t, runtime.GOARCH, "none", "signals"), "500")
		for run := 0; run < 3e6; { // nanoseconds on a CPU, some periods
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.PID))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Sscan(string(b), &run)
		}
		lines := p.Finish(t)
		var delivered, overruns, expired int
		if n, err := fmt.Sscanf(lines[0], "count %d %d %d", &delivered, &overruns, &expired); n != 3 {
			t.Fatalf("%q: %v", lines, err)
		}
		sum := delivered + overruns
		if sum > expired {
			t.Fatalf("%d signals and %d overruns of %d expiries, want the sum or less", delivered, overruns, expired)
		}
		if delivered > 0 && sum >= expired-1 {
			return
		}
		t.Logf("try %d: %d signals and %d overruns of %d expiries", try, delivered, overruns, expired)
	}
	t.Error("no run counted all expiries but one")
}

func TestChurn(t *testing.T) {
	for how, name := range map[string]string{"t": "threads", "f": "processes"} {
		t.Run(name, func(t *testing.T) {
			p := Start(t, Committed(t, runtime.GOARCH, "none", "churn"), how, "100")
			if got := p.Rest(t); !slices.Equal(got, []string{"count 100"}) {
				t.Errorf("churn %s 100 prints %q, want count 100", how, got)
			}
		})
	}
	t.Run("exec", func(t *testing.T) {
		p := Start(t, Committed(t, runtime.GOARCH, "none", "churn"), "e", "20")
		if got := p.Rest(t); !slices.Equal(got, []string{"count 0"}) {
			t.Errorf("churn e 20 prints %q, want count 0 from its last self", got)
		}
	})
}

// TestMixed: the libraries are found beside the program.
func TestMixed(t *testing.T) {
	p := Start(t, Committed(t, runtime.GOARCH, "mixed", "mixed"))
	if want := strings.Fields("block back second_inner second_outer first_inner first_outer through main _start"); !slices.Equal(p.Stack, want) {
		t.Errorf("mixed tells %q, want %q", p.Stack, want)
	}
}

// TestCommittedSections: each program has the tables that its variant's name
// says, and no others. The truth is the section table written by the linker.
func TestCommittedSections(t *testing.T) {
	for arch, machine := range architectures {
		variants := Variants(t, arch, "*")
		if len(variants) == 0 {
			t.Errorf("no programs for %s", arch)
		}
		for _, variant := range slices.Compact(variants) {
			files, err := filepath.Glob(filepath.Join(root(t), "bin", arch, variant, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range files {
				t.Run(arch+"/"+variant+"/"+filepath.Base(path), func(t *testing.T) {
					checkSections(t, path, machine, variant)
				})
			}
		}
	}
}

func checkSections(t *testing.T, path string, machine elf.Machine, variant string) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("machine is %v, want %v", f.Machine, machine)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 50<<10 {
		t.Errorf("%d bytes, want at most 50 KiB", info.Size())
	}
	if f.Section(".symtab") == nil {
		t.Error("no symbol table")
	}
	if variant == "mixed" { // each object has its own
		variant = map[string]string{"mixed": "sframe3", "libfirst.so": "fp", "libsecond.so": "ehframe"}[filepath.Base(path)]
	}
	if (f.Section(".eh_frame") != nil) != strings.HasPrefix(variant, "ehframe") {
		t.Errorf(".eh_frame is present: %v", f.Section(".eh_frame") != nil)
	}
	s := f.Section(".sframe")
	if (s != nil) != strings.HasPrefix(variant, "sframe") {
		t.Fatalf(".sframe is present: %v", s != nil)
	}
	if s == nil {
		return
	}
	b, err := s.Data()
	if err != nil || len(b) < 4 {
		t.Fatalf(".sframe: %d bytes, %v", len(b), err)
	}
	// SFrame specification, section 2.1: magic 0xdee2, version, flags.
	if got := f.ByteOrder.Uint16(b); got != 0xdee2 {
		t.Errorf("magic is %#x, want 0xdee2", got)
	}
	if want := variant[len("sframe")] - '0'; b[2] != want {
		t.Errorf("version is %d, want %d", b[2], want)
	}
}

func TestStartFails(t *testing.T) {
	// This test program itself ends at once, without a word of being ready.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no such file": "/does/not/exist", "ends at once": self} {
		t.Run(name, func(t *testing.T) {
			p, err := start(exec.Command(path, "-test.list=^$"))
			if err != nil {
				return
			}
			defer p.Kill()
			if err := p.untilReady(); err == nil {
				t.Errorf("%s: ready", path)
			}
		})
	}
}
