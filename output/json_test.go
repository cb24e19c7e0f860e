package output

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func jsonLines(b *bytes.Buffer) *JSON { return NewJSON(b, Options{}) }

// TestJSONRoundTrip reads each line back with encoding/json.
func TestJSONRoundTrip(t *testing.T) {
	text := write(t, jsonLines, testRun())
	golden(t, "json.jsonl", text)
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != len(testRun()) {
		t.Fatalf("%d lines for %d samples", len(lines), len(testRun()))
	}
	for i, s := range testRun() {
		var got struct {
			Version  int
			TimeNS   int64 `json:"time_ns"`
			PID, TID int
			Process  string
			CPUNS    int64 `json:"cpu_ns"`
			PauseNS  int64 `json:"pause_ns"`
			Complete bool
			End      string
			Frames   []struct {
				PC, Function, Offset, Module, Path, Method string
				BuildID                                    string `json:"build_id"`
				Line                                       int
				Inlined, Kernel                            bool
			}
		}
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatalf("%s: %v", lines[i], err)
		}
		if got.Version != 2 || got.TimeNS != s.Time.UnixNano() || got.PID != s.PID || got.TID != s.TID || got.Process != s.Process ||
			got.CPUNS != int64(s.CPU) || got.PauseNS != int64(s.Pause) {
			t.Errorf("%s\nis not %+v", lines[i], s)
		}
		if s.Stack == nil {
			if got.Complete || len(got.Frames) != 0 {
				t.Errorf("a sample without a stack is %s", lines[i])
			}
			continue
		}
		if got.Complete != (s.Stack.End == "") || got.End != s.Stack.End || len(got.Frames) != len(s.Stack.Frames) {
			t.Errorf("%s\nis not %+v", lines[i], s.Stack)
			continue
		}
		for j, f := range s.Stack.Frames {
			g := got.Frames[j]
			if g.Function != strings.ToValidUTF8(f.Func, "\ufffd") || g.Module != f.Module || g.Line != f.Line ||
				g.Inlined != f.Inlined || g.Kernel != f.Kernel || g.Method != f.How ||
				f.Mapping != nil && (g.Path != f.Mapping.Path || g.BuildID != f.Mapping.BuildID) {
				t.Errorf("frame %+v, want %+v", g, f)
			}
		}
	}
}

// FuzzJSONString requires that encoding/json reads the same text back, and
// that nothing unprintable goes out.
func FuzzJSONString(f *testing.F) {
	for _, s := range []string{"", "a\"b\\", "\x00\x1b\x7f\u0085", "\u2028\u202e", "\U0001f600\U000e0001", "\xff\xed\xa0\x80", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendJSON(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		want := strings.Map(func(r rune) rune { return r }, s) // each bad byte is U+FFFD
		if got != want {
			t.Errorf("%q became %q", s, got)
		}
		if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) || r == '<' }) {
			t.Errorf("%q has unprintable characters", b)
		}
	})
}

func BenchmarkJSONAdd(b *testing.B) {
	j := NewJSON(io.Discard, Options{})
	s := testRun()[1]
	b.ReportAllocs()
	for b.Loop() {
		j.Add(s)
	}
}
