// Unwind times the walk over one deep stack of a stopped process: by us, by
// libdw (elfutils) and by libunwind, in turns.
//
//	go run ./bench/unwind [-pairs 7] [-depth 200] [-rounds 2000]
//
// The process is made for it: a chain of as many different functions as frames
// are asked for, compiled by cc with .eh_frame, that ends in pause(2). For each
// unwinder the first walk is timed with all that comes before it once the
// process is stopped (opening, tables), and then the frames of further walks,
// when everything is cached. "ours, copy" does as a sampler does: registers and
// stack are copied for each walk anew; "ours" walks one copy again and again.
// The others read the process's memory as they go; they have no other way.
//
// Needs cc, libdw-dev and libunwind-dev, and ptrace rights.
package main

import (
	"bufio"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/module"
	"sfsample/unwind"
)

//go:embed others/others.c
var othersSource string

func main() {
	pairs := flag.Int("pairs", 7, "how often each unwinder has its `turn`")
	depth := flag.Int("depth", 200, "functions on the `stack`")
	rounds := flag.Int("rounds", 2000, "warm `walks` in a turn")
	flag.Parse()
	if err := run(*pairs, *depth, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "unwind:", err)
		os.Exit(1)
	}
}

// timing is what one turn of one unwinder gave.
type timing struct {
	frames int
	first  float64 // ns
	warm   float64 // ns a frame
}

func run(pairs, depth, rounds int) error {
	dir, err := os.MkdirTemp("", "unwind")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	target, err := build(dir, "target", targetSource(depth))
	if err != nil {
		return err
	}
	others, err := build(dir, "others", othersSource, "-ldw", "-lelf", "-lunwind-ptrace", "-lunwind-generic", "-lunwind")
	if err != nil {
		return err
	}
	cmd := exec.Command(target)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the target: %w", err)
	}
	pid := cmd.Process.Pid
	// Its pipe does not block it, so once it sleeps it is in pause.
	for state := byte(0); state != 'S'; time.Sleep(time.Millisecond) {
		st, err := procfs.FS{}.Task(pid, pid).Stat()
		if err != nil {
			return err
		}
		state = st.State
	}
	turns := []struct {
		name string
		take func() (timing, error)
		got  []timing
	}{
		{name: "ours", take: func() (timing, error) { return ours(pid, rounds, false) }},
		{name: "ours, copy", take: func() (timing, error) { return ours(pid, rounds, true) }},
		{name: "libdw", take: func() (timing, error) { return other(others, "libdw", pid, max(1, rounds/100)) }},
		{name: "libunwind", take: func() (timing, error) { return other(others, "libunwind", pid, max(1, rounds/100)) }},
	}
	for range pairs {
		for i := range turns {
			t, err := turns[i].take()
			if err != nil {
				return fmt.Errorf("%s: %w", turns[i].name, err)
			}
			turns[i].got = append(turns[i].got, t)
		}
	}
	for i := range turns {
		report(os.Stdout, turns[i].name, turns[i].got)
	}
	return nil
}

func report(w io.Writer, name string, got []timing) {
	var first, warm []float64
	for _, t := range got {
		first, warm = append(first, t.first/1e3), append(warm, t.warm)
	}
	slices.Sort(first)
	slices.Sort(warm)
	n := len(got)
	fmt.Fprintf(w, "%-11s %d frames  first walk p50 %9.1f us, max %9.1f us  warm p50 %8.1f ns a frame, max %8.1f\n",
		name, got[0].frames, first[n/2], first[n-1], warm[n/2], warm[n-1])
}

// targetSource is a program of depth different functions that call each other.
func targetSource(depth int) string {
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include <unistd.h>\n")
	fmt.Fprintf(&b, "static __attribute__((noinline)) int f%d(int x) { puts(\"ready\"); fflush(stdout); for (;;) pause(); return x; }\n", depth)
	for i := depth - 1; i > 0; i-- {
		// Different frame sizes and different saved registers.
		fmt.Fprintf(&b, "static __attribute__((noinline)) int f%d(int x) { volatile int a[%d]; int k = x * %d; a[0] = x; return f%d(k + 1) + k + a[0]; }\n",
			i, 1+i%7, i+2, i+1)
	}
	b.WriteString("int main(int argc, char **argv) { (void)argv; return f1(argc) + 1; }\n")
	return b.String()
}

// build compiles one C file.
func build(dir, name, source string, libs ...string) (string, error) {
	c, bin := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(c, []byte(source), 0o600); err != nil {
		return "", err
	}
	args := append([]string{"-O2", "-fno-optimize-sibling-calls", c, "-o", bin}, libs...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile %s: %w (it needs cc, libdw-dev and libunwind-dev)\n%s", name, err, out)
	}
	return bin, nil
}

// other runs the comparison program.
func other(bin, which string, pid, rounds int) (timing, error) {
	out, err := exec.Command(bin, which, strconv.Itoa(pid), strconv.Itoa(rounds)).Output()
	if err != nil {
		return timing{}, err
	}
	var t timing
	_, err = fmt.Sscan(string(out), &t.frames, &t.first, &t.warm)
	return t, err
}

// ours stops the process and walks its stack.
func ours(pid, rounds int, copyEach bool) (t timing, err error) {
	<-ptrace.OnThread(func() {
		if err = ptrace.Seize(pid, 0); err != nil {
			return
		}
		defer ptrace.Detach(pid, 0)
		if err = ptrace.Interrupt(pid); err != nil {
			return
		}
		for ok := false; !ok; {
			if _, ok, err = ptrace.Wait(); err != nil {
				return
			}
		}
		t, err = walk(pid, rounds, copyEach)
	})
	return t, err
}

// stackBytes is how much of the stack is copied.
const stackBytes = 64 << 10

// sample is a copy of a thread's registers and stack.
type sample struct {
	pid   int
	note  [1 << 10]byte
	stack [stackBytes]byte
	mem   unwind.Memory
	user  regs.User
}

func (s *sample) take() error {
	n, err := ptrace.ReadRegs(s.pid, ptrace.NotePrstatus, s.note[:])
	if err != nil {
		return err
	}
	if s.user, err = regs.Prstatus(runtime.GOARCH, s.note[:n]); err != nil {
		return err
	}
	sp := s.user.Set.R[s.user.Arch.SP]
	if n, err = ptrace.ReadMemory(s.pid, sp, s.stack[:]); n == 0 {
		return err
	}
	s.mem.Reset(sp, s.stack[:n], nil)
	return nil
}

func walk(pid, rounds int, copyEach bool) (timing, error) {
	s := &sample{pid: pid}
	begin := time.Now()
	if err := s.take(); err != nil {
		return timing{}, err
	}
	space := module.NewSpace(module.NewLive(pid, nil), module.NewCache(0), module.Options{})
	defer space.Close()
	w := unwind.New(s.user.Arch, space, nil, 0)
	frames, end := w.Walk(&s.user.Set, &s.mem, nil)
	t := timing{frames: len(frames), first: float64(time.Since(begin))}
	if !end.Complete() {
		return t, fmt.Errorf("the stack of %d frames ends with %v", len(frames), end)
	}
	total := 0
	begin = time.Now()
	for range rounds {
		if copyEach {
			if err := s.take(); err != nil {
				return t, err
			}
		}
		frames, _ = w.Walk(&s.user.Set, &s.mem, frames[:0])
		total += len(frames)
	}
	t.warm = float64(time.Since(begin)) / float64(total)
	return t, nil
}
