package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTally counts what perf is made to tell: a tick of 999 a second has a stop of 21 us, ten calls and a sleep; what is before and behind the window,
// and of other programs, does not count.
func TestTally(t *testing.T) {
	var text bytes.Buffer
	for i := range 4 * 999 {
		at := 100 + float64(i)/999
		call := func(us float64, nr int, args string) {
			fmt.Fprintf(&text, "sfsample  77 %.9f: raw_syscalls:sys_enter: NR %d (%s, 1, 2, 3, 4)\n", at+us/1e6, nr, args)
		}
		call(0, unix.SYS_PTRACE, "4206, 2a")
		call(1, unix.SYS_PTRACE, "4207, 2a")
		call(21, unix.SYS_PTRACE, "11, 2a")
		for j := range 7 {
			call(30+float64(j), unix.SYS_PREAD64, "5, 0")
		}
		fmt.Fprintf(&text, "sfsample  77 %.9f: syscalls:sys_exit_process_vm_readv: 0x%x\n", at+10e-6, 4096)
		fmt.Fprintf(&text, "sfsample  77 %.9f: sched:sched_switch: prev_comm=sfsample prev_pid=77 prev_prio=1 prev_state=S ==> next_comm=x\n", at+40e-6)
		fmt.Fprintf(&text, "sfsample  78 %.9f: sched:sched_switch: prev_comm=sfsample prev_pid=78 prev_prio=1 prev_state=R ==> next_comm=x\n", at+40e-6)
		fmt.Fprintf(&text, "work  99 %.9f: raw_syscalls:sys_enter: NR 101 (4207, 2a, 0, 0, 0, 0)\n", at)
	}
	got, err := tally(text.Bytes(), "sfsample", 999)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]float64{"system calls a tick": 10, "of these ptrace": 3, "of these pread64": 7, "stops a tick": 1, "wake-ups a tick": 1,
		"bytes read a tick": 4096, "tracee, us a second": 999 * 21} {
		if v := got[what]; v < 0.998*want || v > 1.002*want {
			t.Errorf("%s: %v, want %v", what, v, want)
		}
	}
	if _, err := tally(text.Bytes()[:text.Len()/2], "sfsample", 999); err == nil {
		t.Error("half a run was counted")
	}
}

// TestReport: a count that has moved, in either direction, or is new, is marked; one within its bound is not.
func TestReport(t *testing.T) {
	name := scenes[0].name
	was := Baseline{Counts: Counts{name: {"system calls a tick": 20, "of these read": 5, "stops a tick": 1, "bytes read a tick": 4096, "tracee, us a second": 1000}}}
	var out strings.Builder
	now := Counts{name: {"system calls a tick": 21, "of these read": 4, "of these ioctl": 1, "stops a tick": 1.1, "bytes read a tick": 8192, "tracee, us a second": 2200}}
	if moved := report(&out, now, was, false); moved != 4 {
		t.Errorf("%d moved, want 4:\n%s", moved, out.String())
	}
	if moved := report(&out, was.Counts, was, false); moved != 0 {
		t.Errorf("%d of the same have moved", moved)
	}
	if moved := report(&out, now, was, true); moved != 2 { // another call, and bytes
		t.Errorf("%d moved beside others, want 2:\n%s", moved, out.String())
	}
	if _, err := run(1, "baseline.json", true, false, "", "99", &out); err == nil {
		t.Error("a part of the baseline is written")
	}
	if m := medians([]map[string]float64{{"a": 1}, {"a": 3, "b": 7}, {"a": 2}}); m["a"] != 2 || m["b"] != 0 {
		t.Errorf("medians %v", m)
	}
}
