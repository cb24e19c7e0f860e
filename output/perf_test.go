package output

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func perf(o Options) func(*bytes.Buffer) *Perf {
	return func(b *bytes.Buffer) *Perf { return NewPerf(b, o) }
}

// The expressions by which stackcollapse-perf.pl and speedscope (its
// linux-tools-perf import) take a record apart.
var (
	perfHead  = regexp.MustCompile(`^(\S.+?)\s+(\d+)/*(\d+)*\s+`)
	perfTime  = regexp.MustCompile(`\s+(\d+\.\d+):\s+`)
	perfEvent = regexp.MustCompile(`(?m):\s*(\d+)*\s+(\S+):\s*$`)
	perfFrame = regexp.MustCompile(`^\s*(\w+)\s*(.+) \((\S*)\)$`)
	perfSym   = regexp.MustCompile(`\+0x[\da-f]+$`)
)

// TestPerfAsOthersReadIt takes the text apart as its readers do.
func TestPerfAsOthersReadIt(t *testing.T) {
	text := write(t, perf(Options{Hz: 100}), testRun())
	golden(t, "perf.txt", text)
	var want, periods int64
	for _, s := range testRun() {
		want += int64(s.CPU)
	}
	records := strings.Split(strings.TrimSuffix(string(text), "\n\n"), "\n\n")
	stacks := make(map[string]int)
	for _, r := range records {
		lines := strings.Split(r, "\n")
		head := perfHead.FindStringSubmatch(lines[0])
		if head == nil || perfTime.FindString(lines[0]) == "" {
			t.Fatalf("head %q is not understood", lines[0])
		}
		event := perfEvent.FindStringSubmatch(lines[0])
		if event == nil || event[2] != "cpu-clock" {
			t.Errorf("event of %q is %q", lines[0], event)
		}
		period, _ := strconv.ParseInt(event[1], 10, 64)
		periods += period
		stack := []string{head[1] + " " + head[2] + "/" + head[3]}
		for _, l := range lines[1:] {
			f := perfFrame.FindStringSubmatch(l)
			if f == nil {
				t.Fatalf("frame %q is not understood", l)
			}
			if _, err := strconv.ParseUint(f[1], 16, 64); err != nil {
				t.Errorf("%q: %v", l, err)
			}
			stack = append(stack, perfSym.ReplaceAllString(f[2], "")+"@"+f[3])
		}
		stacks[strings.Join(stack, " ")]++
	}
	for stack, n := range map[string]int{
		"app 100/100 scan@inlined parse@/usr/bin/app main@/usr/bin/app":                                                     4,
		"worker_1 100/101 vfs_read@[kernel.kallsyms] read@/lib/libc.so.6 scan@inlined parse@/usr/bin/app main@/usr/bin/app": 2,
		"worker_1 100/101 [unknown]@/lib/libc.so.6 [unknown]@[anon] [truncated: unreadable stack]@[truncated]":              1,
		"app 100/100 [unknown]@[unknown] [truncated: no row]@[truncated]":                                                   1,
		`t\x0awo 200/200 a;b<script>"'&\x1b[31m\x0a\x09\xff\u202e\ end 12@/lib/libc.so.6 main@/usr/bin/app`:                 1,
		":102 100/102": 1,
	} {
		if stacks[stack] != n {
			t.Errorf("%d times %s, want %d", stacks[stack], stack, n)
		}
		delete(stacks, stack)
	}
	for stack := range stacks {
		t.Errorf("unexpected %s", stack)
	}
	if periods != want {
		t.Errorf("periods add up to %d, want %d", periods, want)
	}
}

func TestPerfMarker(t *testing.T) {
	got := string(appendPerfFrame(nil, &Frame{Func: "[never caught running]"}))
	if want := "\t               0 [never caught running] ([unknown])\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPerfInOrder: CPU time of which nobody knows when it was used is one record, at the end: others
// between those of its thread would go back in time, which readers refuse.
func TestPerfInOrder(t *testing.T) {
	s := []*Sample{{Time: time.Unix(1, 0), Taken: "stop", CPU: tick}, {Time: time.Unix(1, 0), Taken: "none", CPU: 5 * tick}}
	if got := string(write(t, perf(Options{Hz: 100}), s)); !strings.HasSuffix(got, "1.000000: 50000000 cpu-clock: \n\n") || strings.Count(got, "clock") != 2 {
		t.Errorf("got %s", got)
	}
}

// TestPerfOverlaps: the ticks of a sample that reach back behind the last record of its thread have that one's time.
func TestPerfOverlaps(t *testing.T) {
	s := []*Sample{{Time: time.Unix(2, 0), TID: 1, CPU: tick}, {Time: time.Unix(2, 5e6), TID: 1, CPU: 3 * tick}, {Time: time.Unix(1, 0), TID: 2, CPU: tick}}
	var got []string
	for _, m := range perfTime.FindAllStringSubmatch(string(write(t, perf(Options{Hz: 100}), s)), -1) {
		got = append(got, m[1])
	}
	if want := "2.000000 2.000000 2.000000 2.005000 1.000000"; strings.Join(got, " ") != want {
		t.Errorf("times are %v, want %s", got, want)
	}
}

func TestPerfTimes(t *testing.T) {
	s := &Sample{Time: time.Unix(1000, 30_000_000), PID: 1, TID: 2, Thread: "a b  c ", Wall: 3*tick + 2}
	got := string(write(t, perf(Options{Hz: 100, Wall: true}), []*Sample{s}))
	want := "a_b__c 1/2 1000.010000: 10000000 wall-clock: \n\n" +
		"a_b__c 1/2 1000.020000: 10000001 wall-clock: \n\n" +
		"a_b__c 1/2 1000.030000: 10000001 wall-clock: \n\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
