package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
)

// liveSample is a line of the json output.
type liveSample struct {
	Complete bool
	End      string
	Taken    string
	State    string
	Frames   []struct{ Function, Method string }
}

// linkUnknown: the thread was asleep for a moment, for a page or at a signal,
// and was read without the register that its return address is in.
func (s *liveSample) linkUnknown() bool {
	return runtime.GOARCH != "amd64" && s.Taken != "stop" && s.End == "register unknown"
}

func (s *liveSample) functions() (names []string) {
	for _, f := range s.Frames {
		names = append(names, f.Function)
	}
	return names
}

func (s *liveSample) methods() (names []string) {
	for _, f := range s.Frames {
		names = append(names, f.Method)
	}
	return names
}

// sampleLive samples a process until check has been given as many samples as it
// wants.
func sampleLive(t *testing.T, pid int, flags []string, check func(*liveSample) (enough bool)) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := tool(append([]string{"-p", strconv.Itoa(pid), "-hz", "199", "--max-overhead", "100", "-o", "json=-"}, flags...)...)
	cmd.Stdout = w
	run := begin(t, cmd)
	w.Close()
	if err := r.SetReadDeadline(time.Now().Add(testprog.Patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	var s liveSample
	for enough := false; !enough; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			_ = run.cmd.Process.Signal(unix.SIGQUIT) // for the goroutines in stderr
			<-run.ended
			t.Fatalf("not enough samples: %v; the last: %+v; standard error:\n%s", err, s, run.stderr.String())
		}
		s = liveSample{}
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		// A thread that waits for a CPU has the last stack that is known of it.
		enough = s.State != "waiting" && check(&s)
	}
	run.interrupt(t)
	// What it writes up to its end has to be read, however long that takes.
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, lines)
	run.end(t).want(t, exitDone)
}

// wantLive samples p until that many samples are complete, and wants the functions
// that p has told and these methods, innermost first. Until the first one a
// sample may be cut because the sampler does not know yet how much the thread
// needs: of the stack, of a further stack, or a stop.
func wantLive(t *testing.T, p *testprog.Proc, many int, flags, methods []string) {
	t.Helper()
	complete, cut, small, there := 0, 0, 0, false
	sampleLive(t, p.PID, flags, func(s *liveSample) bool {
		// The program may be on the way from telling its stack to where it stays.
		if there = there || s.Frames[0].Function == p.Stack[0]; !there {
			return false
		}
		if !s.Complete {
			cut++
			// Frames of a cut stack are true as well.
			if n := len(s.Frames); n > len(p.Stack) || !slices.Equal(s.functions(), p.Stack[:n]) {
				t.Errorf("cut stack %q, the program has %q", s.functions(), p.Stack)
			}
			if s.End == "stack copy too small" {
				small++ // taken before the coordinator, which others kept waiting, could give the clock more room
			}
			if complete > 0 && !s.linkUnknown() && (s.End != "stack copy too small" || small > 16) {
				t.Errorf("cut after %d complete ones: %s, %s, %d frames", complete, s.End, s.Taken, len(s.Frames))
			}
			return t.Failed()
		}
		complete++
		if !slices.Equal(s.functions(), p.Stack) {
			t.Errorf("stack %q, the program has %q", s.functions(), p.Stack)
		}
		if got := s.methods(); !slices.Equal(got, methods) {
			t.Errorf("methods %q, want %q for %q", got, methods, p.Stack)
		}
		return complete == many || t.Failed()
	})
	t.Logf("%d complete after %d cut, %d frames", complete, cut, len(p.Stack))
}

// methodsOf are the methods of a stack all of whose rows come from one source.
// Trampolines are known by their code.
func methodsOf(stack []string, method string) []string {
	list := make([]string, len(stack))
	for i := range stack {
		switch {
		case i == 0:
			list[i] = "regs"
		case stack[i-1] == "restorer" || stack[i-1] == "__kernel_rt_sigreturn":
			list[i] = "signal"
		default:
			list[i] = method
		}
	}
	return list
}

// parallel lets a test run with others, but for emulated machines: programs that
// spin leave little to each other there.
func parallel(t *testing.T) {
	if runtime.GOARCH == "amd64" {
		t.Parallel()
	}
}

// tables are the variants of the test programs whose frames are all found by
// one method.
var tables = map[string]string{"sframe3": "sframe", "ehframe": "eh_frame"}

// TestLiveAlternateStack: handlers on a stack of their own, one of which another
// has interrupted, running and blocked, with more below them than one copy of
// the stack holds.
func TestLiveAlternateStack(t *testing.T) {
	for variant, method := range tables {
		for _, how := range []string{"s", "n", "b"} {
			t.Run(variant+"/"+how, func(t *testing.T) {
				parallel(t)
				p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, variant, "altstack"), how, "160")
				many, flags := 3, []string{"--threads", "all"}
				if how == "b" && runtime.GOARCH == "amd64" {
					many = 1 // nothing new comes while the thread is blocked
				} else if how == "b" {
					flags = alwaysStop // the link register is needed
				}
				wantLive(t, p, many, flags, methodsOf(p.Stack, method))
				if how != "b" || runtime.GOARCH == "amd64" {
					wantDump(t, p)
				}
			})
		}
	}
}

// alwaysStop: with the registers, also of blocked threads.
var alwaysStop = []string{"--threads", "all", "--stop", "always"}

// withoutCode: code would find the frames that the frame pointer finds.
var withoutCode = []string{"--unwind", "sframe,eh_frame,fp,backchain"}

// wantDump holds a look at p against the stack that p has told. A running
// thread may not get to stop in the time that a dump takes: then it shows less,
// and is asked again.
func wantDump(t *testing.T, p *testprog.Proc) {
	t.Helper()
	eventually(t, "a dump shows the whole stack", func() bool {
		o := sfsample(t, "dump", "--group=false", "-p", strconv.Itoa(p.PID))
		o.want(t, exitDone)
		var got []string
		for line := range strings.Lines(o.stdout) {
			var n int
			var pc uint64
			var name string
			if _, err := fmt.Sscanf(line, "#%d 0x%x %s", &n, &pc, &name); err == nil {
				name, _, _ = strings.Cut(name, "+0x")
				got = append(got, name)
			}
		}
		if n := len(got); n > len(p.Stack) || !slices.Equal(got, p.Stack[:n]) {
			t.Fatalf("dump shows %q, the program has %q:\n%s", got, p.Stack, o.stdout)
		}
		whole := len(got) == len(p.Stack)
		if whole != strings.Contains(o.stdout, "end: complete") {
			t.Fatalf("dump shows %d frames of %d:\n%s", len(got), len(p.Stack), o.stdout)
		}
		return whole
	})
}

// TestLiveMixed: one stack through objects with SFrame, with frame pointers (on
// s390x the back chain) and with .eh_frame, whose rows need the frame pointer
// that the object without tables has kept.
func TestLiveMixed(t *testing.T) {
	t.Parallel()
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, "mixed", "mixed"))
	plain := "fp"
	if runtime.GOARCH == "s390x" {
		plain = "backchain"
	}
	// The method of a frame is that of the row of the function it has called.
	rowOf := map[string]string{
		"block": "sframe", "back": "sframe", "second_inner": "eh_frame", "second_outer": "eh_frame",
		"first_inner": plain, "first_outer": plain, "through": "sframe", "main": "sframe",
	}
	methodsOf := func() []string {
		methods := []string{"regs"}
		for _, callee := range p.Stack[:len(p.Stack)-1] {
			methods = append(methods, rowOf[callee])
		}
		return methods
	}
	methods := methodsOf()
	withoutCode := slices.Concat(withoutCode, alwaysStop)
	if runtime.GOARCH != "s390x" {
		wantLive(t, p, 3, withoutCode, methods)
		return
	}
	// A back chain does not tell r11, which through has as its frame pointer:
	// its stack ends there, with that reason. The code tells it.
	rowOf["first_inner"], rowOf["first_outer"] = "code", "code"
	wantLive(t, p, 3, alwaysStop, methodsOf())
	n := slices.Index(p.Stack, "through") + 1
	seen := 0
	sampleLive(t, p.PID, withoutCode, func(s *liveSample) bool {
		if s.Complete || s.End != "register unknown" || !slices.Equal(s.functions(), p.Stack[:n]) || !slices.Equal(s.methods(), methods[:n]) {
			t.Errorf("%+v, want %q by %q, then register unknown", s, p.Stack[:n], methods[:n])
		}
		seen++
		return seen == 3 || t.Failed()
	})
}

// TestLive386: a 32-bit program, sampled by the 64-bit tool, running and
// blocked, by either method that it has.
func TestLive386(t *testing.T) {
	testprog.RequireArch(t, "386")
	for _, tt := range []struct {
		variant, method string
		flags           []string
	}{{"fp", "fp", withoutCode}, {"fp", "code", nil}, {"ehframe", "eh_frame", nil}} {
		for _, how := range []string{"s", "b"} {
			t.Run(tt.variant+"/"+tt.method+"/"+how, func(t *testing.T) {
				parallel(t)
				p := testprog.Start(t, testprog.Committed(t, "386", tt.variant, "deep"), how, "100")
				if tt.method == "fp" && how == "s" {
					// The leaf keeps no frame pointer, so that it is its caller's:
					// following it leaves out that one. Nothing can tell.
					p.Stack = slices.Delete(p.Stack, 1, 2)
				}
				methods := methodsOf(p.Stack, tt.method)
				if tt.method == "code" {
					methods[len(methods)-1] = "fp" // main has aligned its stack, which code does not tell by how much
				}
				wantLive(t, p, 3, slices.Concat(alwaysStop, tt.flags), methods)
			})
		}
	}
	t.Run("gdb", func(t *testing.T) {
		for _, name := range []string{"gdb", "eu-stack"} {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("no %s on this machine", name)
			}
		}
		p := testprog.Start(t, testprog.Committed(t, "386", "ehframe", "deep"), "s", "100")
		if _, frames := agree(t, p.PID); frames != len(p.Stack) {
			t.Errorf("%d frames, the program has %d", frames, len(p.Stack))
		}
	})
}

// TestMethodsWithoutRows: a program that has no table of the only kind asked for
// gives stacks of one frame, and a hint.
func TestMethodsWithoutRows(t *testing.T) {
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, "ehframe", "deep"), "b", "3")
	run := sfsample(t, "-p", strconv.Itoa(p.PID), "-d", "0.5", "--threads", "all", "--unwind", "sframe")
	run.want(t, exitDone, "(try: --unwind with eh_frame)")
	run = sfsample(t, "-p", strconv.Itoa(p.PID), "-d", "0.5", "--threads", "all", "--unwind", "eh_frame")
	if strings.Contains(run.stderr, "try: --unwind") {
		t.Errorf("a hint although the program has these tables:\n%s", run.stderr)
	}
}
