package output

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it):\n%s", file, d)
	}
}

// Mappings of the test's process.
var (
	mapApp  = &Mapping{Start: 0x555500000000, End: 0x555500010000, FileOff: 0x1000, Path: "/usr/bin/app", BuildID: "0123456789abcdef"}
	mapLibc = &Mapping{Start: 0x7f0000000000, End: 0x7f0000200000, Path: "/lib/libc.so.6", BuildID: "feedface"}
)

// Frames of the test's process: main calls parse, which has scan inlined into
// it, which calls read in libc.
var (
	frMain   = Frame{Func: "main", Module: "app", Offset: 0x20, PC: 0x555500000120, File: "/src/app.c", Line: 10, How: "sframe", Mapping: mapApp}
	frParse  = Frame{Func: "parse", Module: "app", Offset: 0x44, PC: 0x555500000244, File: "/src/parse.c", Line: 33, How: "eh_frame", Mapping: mapApp}
	frScan   = Frame{Func: "scan", Module: "app", PC: 0x555500000244, File: "/src/scan.h", Line: 7, Inlined: true, How: "eh_frame", Mapping: mapApp}
	frRead   = Frame{Func: "read", Module: "libc.so.6", Offset: 0x1a, PC: 0x7f000010051a, How: "regs", Mapping: mapLibc}
	frNoName = Frame{Module: "libc.so.6", Offset: 0x1f20, PC: 0x7f0000001f20, How: "regs", Mapping: mapLibc}
	frAnon   = Frame{Module: "[anon]", Offset: 0x7e0000000010, PC: 0x7e0000000010, How: "fp"}
	frNone   = Frame{PC: 0x10, How: "regs"}
	frKernel = Frame{Func: "vfs_read", Module: "[kernel]", Offset: 0x60, Kernel: true}
	// frEvil carries what breaks formats: separators, quotes, markup, escape
	// sequences, a line break, invalid UTF-8, a direction mark, a trailing count.
	frEvil = Frame{Func: "a;b<script>\"'&\x1b[31m\n\t\xff\u202e\\ end 12", Module: "ev;il\n.so", Offset: 1, PC: 0x7f0000000001, How: "fp", Mapping: mapLibc}
)

// tick is the time between two ticks of the tests, at 100 Hz.
const tick = 10 * time.Millisecond

var start = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// testRun is a run of two processes at 100 Hz that has every kind of frame.
func testRun() []*Sample {
	read := &Stack{Frames: []Frame{frKernel, frRead, frScan, frParse, frMain}}
	parse := &Stack{Frames: []Frame{frScan, frParse, frMain}}
	cut := &Stack{Frames: []Frame{frNoName, frAnon}, End: "unreadable stack"}
	none := &Stack{Frames: []Frame{frNone}, End: "no row"}
	evil := &Stack{Frames: []Frame{frEvil, frMain}}
	var samples []*Sample
	add := func(pid, tid int, process, thread, state string, s *Stack, cpu time.Duration) {
		n := time.Duration(len(samples))
		samples = append(samples, &Sample{
			Time: start.Add(n * 10 * time.Millisecond), PID: pid, TID: tid, Process: process, Thread: thread,
			State: state, Taken: "stop", Stack: s, CPU: cpu, Wall: max(1, cpu/tick) * tick,
			Delay: 5 * time.Microsecond, Pause: 40 * time.Microsecond, Late: time.Microsecond,
		})
	}
	add(100, 100, "app", "app", "running", parse, tick)
	add(100, 101, "app", "worker 1", "read", read, 2*tick+3*time.Millisecond)
	add(100, 100, "app", "app", "running", parse, 3*tick)
	add(100, 101, "app", "worker 1", "running", cut, 9*time.Millisecond)
	add(100, 100, "app", "app", "running", none, time.Millisecond)
	add(200, 200, "e;v\x07il 3", "t\nwo", "running", evil, tick)
	add(200, 200, "e;v\x07il 3", "t\nwo", "running", &Stack{Frames: []Frame{frMain}}, 0)
	add(100, 102, "app", "", "futex", nil, tick)
	return samples
}

// write feeds samples to a sink made by newSink and returns what it wrote.
func write[S Sink](t testing.TB, newSink func(*bytes.Buffer) S, samples []*Sample) []byte {
	t.Helper()
	var b bytes.Buffer
	s := newSink(&b)
	for _, sample := range samples {
		if err := s.Add(sample); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0.01: "1 %", 0.07: "7 %", 1.3: "130 %", 0.00512: "0.51 %", 128: "12800 %"} {
		if got := Percent(share); got != want {
			t.Errorf("%v is %q, want %q", share, got, want)
		}
	}
}
