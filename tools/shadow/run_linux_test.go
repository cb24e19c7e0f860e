package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"sfsample/unwind"
)

// steps is how many instructions each program is followed for; the command
// does more: go run ./tools/shadow -n 1000000 -- COMMAND.
const steps = 20_000

var (
	ehFrame  = []unwind.How{unwind.EHFrame}
	fp       = []unwind.How{unwind.FramePointer}
	code     = []unwind.How{unwind.Code}
	standard = unwind.DefaultOrder
)

// follow runs a command under the harness, and fails the test for a wrong chain
// that no known fault of a table explains, and for more cut ones than allowed.
func follow(t *testing.T, c config, maxCut float64) *result {
	t.Helper()
	c.steps, c.stretch, c.wait, c.seed = steps, cmp.Or(c.stretch, steps/2), 20*time.Millisecond, 1
	res, err := run(c)
	var text bytes.Buffer
	res.print(&text, 20)
	if err != nil {
		t.Fatalf("%v: %v\n%s", c.command, err, &text)
	}
	t.Logf("%v\n%s", c.command, &text)
	if res.steps != steps {
		t.Errorf("%d instructions stepped, want %d", res.steps, steps)
	}
	if len(res.badBase) > 0 {
		t.Errorf("a first walk was wrong: %v", res.badBase)
	}
	for _, order := range res.orders {
		tally := res.tallies[order]
		if n := tally.counts[wrong] - tally.defects[wrong]; n > 0 {
			t.Errorf("%s: %d wrong chains, want 0", order, n)
		}
		if n := tally.counts[cut] - tally.defects[cut]; float64(n) > maxCut*steps {
			t.Errorf("%s: %d cut chains, want at most %v", order, n, maxCut*steps)
		}
	}
	return res
}

// needHost skips where there are no distribution programs: in the guests.
func needHost(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("no distribution programs to follow on " + runtime.GOARCH)
	}
}

func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip("no " + program + " on this machine")
	}
	return path
}

// TestStockPrograms: programs of the distribution, which have .eh_frame.
func TestStockPrograms(t *testing.T) {
	needHost(t)
	for _, command := range [][]string{
		{"ls", "-lR", "/usr"},
		{"/usr/bin/python3", "-c", "while True: sorted(str(i) for i in range(200))"},
		{"sqlite3", ":memory:", "with recursive c(x) as (values(1) union all select x+1 from c where x<100000000) select sum(x*x%7) from c;"},
		{"xz", "-9", "-c", "/proc/self/exe"},
		{"perl", "-e", "for (1..100000000) { $h{$_ % 1000} = join q(,), map { sprintf q(%d), $_ } 1..9; $h{1} =~ s/1/2/ }"},
	} {
		t.Run(filepath.Base(command[0]), func(t *testing.T) {
			command[0] = need(t, command[0])
			follow(t, config{command: command, orders: [][]unwind.How{ehFrame, standard}}, 0.001)
		})
	}
}

// TestAwkwardFrames: our own program, all of whose code has .eh_frame.
func TestAwkwardFrames(t *testing.T) {
	needHost(t)
	for _, level := range []string{"-O0", "-O2", "-O3"} {
		t.Run("awkward"+level, func(t *testing.T) {
			bin := compile(t, "gcc", "awkward.c", level)
			res := follow(t, config{command: []string{bin}, orders: [][]unwind.How{ehFrame, standard}, stretch: steps / 10}, 0.002)
			if res.signals == 0 || res.switches == 0 {
				t.Errorf("%d signals and %d stack switches met, want some of both", res.signals, res.switches)
			}
		})
		t.Run("throwing"+level, func(t *testing.T) {
			bin := compile(t, "g++", "throwing.cc", level)
			follow(t, config{command: []string{bin}, orders: [][]unwind.How{ehFrame, standard}}, 0.002)
		})
	}
}

// TestStatic: without a dynamic linker, at a fixed and at a random address, and
// with another C library. Debian's musl has no tables: only its code tells.
func TestStatic(t *testing.T) {
	needHost(t)
	for _, tt := range []struct {
		name, compiler, flag string
		maxCut               float64
		order                []unwind.How
	}{
		{"static", "gcc", "-static", 0.002, ehFrame}, {"static-pie", "gcc", "-static-pie", 0.002, ehFrame},
		{"musl", "musl-gcc", "-static", 0.2, standard},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := compile(t, tt.compiler, "awkward.c", "-O2", tt.flag)
			follow(t, config{command: []string{bin}, orders: [][]unwind.How{tt.order}}, tt.maxCut)
		})
	}
}

// TestCodeAlone: where the code alone is followed, in programs of which the tables
// are not asked and in one that has none, stacks may be cut but are not wrong.
func TestCodeAlone(t *testing.T) {
	needHost(t)
	for _, command := range [][]string{
		{"ls", "-lR", "/usr"},
		{"xz", "-9", "-c", "/proc/self/exe"},
		{compile(t, "gcc", "awkward.c", "-O2", "-static", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables")},
	} {
		t.Run(filepath.Base(command[0]), func(t *testing.T) {
			command[0] = need(t, command[0])
			follow(t, config{command: command, orders: [][]unwind.How{code}}, 1)
		})
	}
}

// TestFramePointersAlone reports what frame pointers give where there is
// nothing else. They are wrong at times by their nature (the caller of a leaf
// without a frame is skipped): the harness has to see that.
func TestFramePointersAlone(t *testing.T) {
	needHost(t)
	bin := compile(t, "gcc", "awkward.c", "-O2", "-static", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables")
	c := config{command: []string{bin}, orders: [][]unwind.How{fp}, steps: steps, stretch: steps / 5, wait: 20 * time.Millisecond, seed: 1}
	res, err := run(c)
	if err != nil {
		t.Fatal(err)
	}
	tally := res.tallies[orderName(fp)]
	t.Logf("right %d, cut %d, wrong %d", tally.counts[right], tally.counts[cut], tally.counts[wrong])
	if tally.counts[wrong] == 0 || tally.counts[right] == 0 {
		t.Errorf("right %d, wrong %d: want some of both", tally.counts[right], tally.counts[wrong])
	}
}

func compile(t *testing.T, compiler, source string, flags ...string) string {
	t.Helper()
	need(t, compiler)
	src := filepath.Join("..", "..", "testdata", "awkward", source)
	bin := filepath.Join(t.TempDir(), strings.TrimSuffix(source, filepath.Ext(source)))
	out, err := exec.Command(compiler, append(flags, "-o", bin, src, "-lpthread")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatal(err)
	}
	return bin
}
