package output

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/pprof/profile"
)

// FuzzFormats writes one sample with arbitrary names in every format: nothing
// unprintable comes out, and there are as many lines as without those names.
func FuzzFormats(f *testing.F) {
	f.Add("app", "worker 1", "read", "main", "libc.so.6", "/src/a.c", "no row")
	f.Add("a\nb", "\x1b[2J", "\r", "f\n\n#0 0x1", "m)\n(", "/x\x00/y\n", "\u2028")
	f.Add("", "", "", "", "", "", "")
	f.Add("\xff", "\u202e", "\x85", "\U000e0001", " ) ", "\u00a0", "0x0x")
	f.Fuzz(func(t *testing.T, process, thread, state, name, module, file, end string) {
		s := &Sample{Time: start, PID: 1, TID: 2, Process: process, Thread: thread, State: state, Taken: "stop", CPU: tick, Wall: tick,
			Stack: &Stack{End: end, Frames: []Frame{
				{Func: name, Module: module, File: file, Line: 3, PC: 16, How: "regs", Kernel: true},
				{Func: name, Module: module, File: file, Line: 3, PC: 16, How: "regs", Mapping: &Mapping{Path: module, BuildID: file}},
			}}}
		cut := 0
		if end != "" {
			cut = 1
		}
		lines := map[string]int{"folded": 1, "json": 1, "firefox": 1, "speedscope": 1, "perf": 4 + cut, "dump": 5}
		for _, format := range formats {
			for _, o := range []Options{{Hz: 100}, {Hz: 100, Wall: true, By: ByThread, Lines: true}} {
				var b bytes.Buffer
				sink := format.new(&b, o)
				if err := sink.Add(s); err != nil {
					t.Fatal(err)
				}
				if err := sink.Close(); err != nil {
					t.Fatal(err)
				}
				if format.name == "pprof" {
					p, err := profile.Parse(bytes.NewReader(b.Bytes()))
					if err != nil {
						t.Fatal(err)
					}
					if n := len(p.Sample[0].Location); n != 2+cut {
						t.Errorf("pprof: %d locations, want %d", n, 2+cut)
					}
					b.Reset()
					b.WriteString(p.String())
				}
				if !utf8.Valid(b.Bytes()) || bytes.ContainsFunc(b.Bytes(), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
					t.Errorf("%s has unprintable characters: %q", format.name, b.Bytes())
				}
				if n, want := strings.Count(b.String(), "\n"), lines[format.name]; want > 0 && n != want {
					t.Errorf("%s has %d lines, want %d: %q", format.name, n, want, b.Bytes())
				}
			}
		}
	})
}
