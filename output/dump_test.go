package output

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func TestAppendFrame(t *testing.T) {
	for _, tc := range []struct {
		name  string
		n     int
		frame Frame
		want  string
	}{
		{"function", 0, frRead, "#0 0x00007f000010051a read+0x1a (libc.so.6) [regs]"},
		{"line", 12, frMain, "#12 0x0000555500000120 main+0x20 (app) [sframe] at /src/app.c:10"},
		{"inlined", 1, frScan, "#1 0x0000555500000244 scan (app) [inlined] at /src/scan.h:7"},
		{"no name", 0, frNoName, "#0 0x00007f0000001f20 libc.so.6+0x1f20 (libc.so.6) [regs]"},
		{"anonymous", 3, frAnon, "#3 0x00007e0000000010 [anon]+0x7e0000000010 ([anon]) [fp]"},
		{"unmapped", 0, frNone, "#0 0x0000000000000010 [unknown] ([unmapped]) [regs]"},
		{"marker", 0, Frame{Func: "[never caught running]"}, "#0 0x0000000000000000 [never caught running] ([unmapped]) [none]"},
		{"kernel", 0, frKernel, "k0 vfs_read+0x60 (kernel)"},
		{"kernel with address", 1, Frame{Func: "do_syscall_64", PC: 0xffffffff81000010, Offset: 0x10, Kernel: true},
			"k1 0xffffffff81000010 do_syscall_64+0x10 (kernel)"},
		{"kernel without name", 0, Frame{Kernel: true}, "k0 [unknown] (kernel)"},
		{"hostile", 0, frEvil, `#0 0x00007f0000000001 a;b<script>"'&\x1b[31m\x0a\x09\xff\u202e\ end 12+0x1 (ev;il\x0a.so) [fp]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(AppendFrame(nil, tc.n, &tc.frame)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestDumpForm holds the text against the form that scripts rely on.
func TestDumpForm(t *testing.T) {
	got := string(write(t, func(b *bytes.Buffer) *Dump { return NewDump(b, Options{}) }, testRun()))
	golden(t, "dump.txt", []byte(got))
	frame := regexp.MustCompile(`^#[0-9]+ 0x[0-9a-f]{16} .+ \(.+\) \[[a-z_]+\]( at .+)?$`)
	for _, l := range strings.Split(got, "\n") {
		switch {
		case strings.HasPrefix(l, "#"):
			if !frame.MatchString(l) {
				t.Errorf("frame %q", l)
			}
		case !strings.HasPrefix(l, "k") && strings.Contains(l, "0x"):
			t.Errorf("a line that is no frame has 0x: %q", l)
		}
	}
	if n := strings.Count(got, "\nend: "); n != len(testRun())-1 { // one sample has no stack
		t.Errorf("%d stacks tell how they ended, want %d", n, len(testRun())-1)
	}
}

func TestReasonHasNoAddress(t *testing.T) {
	got := string(AppendStack(nil, &Stack{End: "unreadable stack at 0x7f00"}))
	if got != "end: truncated: unreadable stack at 7f00\n" {
		t.Errorf("got %q", got)
	}
}
