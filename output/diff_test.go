package output

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// diffed compares and returns each call path with its weights before and after.
func diffed(t *testing.T, before, after []byte) map[string][2]int64 {
	t.Helper()
	file := filepath.Join(t.TempDir(), "d.html")
	outs, d, err := OpenDiff(Spec{"html", file}, "old", "new")
	if err != nil {
		t.Fatal(err)
	}
	for which, b := range map[int][]byte{Before: before, After: after} {
		if err := d.Read(bytes.NewReader(b), which); err != nil {
			t.Fatal(err)
		}
	}
	if err := outs.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		Pages, Names  []string
		Frames, Cells []int64
	}
	m := regexp.MustCompile(`(?s)id="data">(.*?)</script>`).FindSubmatch(b)
	if err := json.Unmarshal(m[1], &data); err != nil {
		t.Fatal(err)
	}
	if strings.Join(data.Pages, " ") != "old new" || !bytes.Contains(b, []byte("<title>From old to new</title>")) {
		t.Errorf("pages are %q", data.Pages)
	}
	var paths, path []string
	for i := 0; i < len(data.Frames); i += 2 {
		path = append(path[:data.Frames[i]], data.Names[data.Frames[i+1]])
		paths = append(paths, strings.Join(path, ";"))
	}
	got := map[string][2]int64{}
	for c := data.Cells; len(c) > 0; c = c[5:] {
		got[paths[c[0]]] = [2]int64{c[4], c[3]}
	}
	return got
}

// TestDiff: the frames of both sides are found by name, whatever format they come in.
func TestDiff(t *testing.T) {
	text := write(t, folded(Options{Micros: true}), testRun())
	got := diffed(t, write(t, pprof(Options{Hz: 100}), testRun()), []byte("app;main;parse;scan 7\napp;new 1.5\n"))
	for path, w := range map[string][2]int64{
		"app;main;parse;scan":                   {40_000_000_000, 7000}, // nanoseconds of pprof, 1,000 times what a folded count is
		"app;new":                               {0, 1500},
		"app;main;parse;scan;read;vfs_read_[k]": {23_000_000_000, 0},
	} {
		if got[path] != w {
			t.Errorf("%s: %v, want %v", path, got[path], w)
		}
	}
	for path, w := range diffed(t, text, text) {
		if w[0] != w[1] || w[0] == 0 {
			t.Errorf("%s differs from itself: %v", path, w)
		}
	}
}

func TestDiffErrors(t *testing.T) {
	if _, _, err := OpenDiff(Spec{"svg", "x.svg"}, "a", "b"); err == nil || !strings.Contains(err.Error(), "try: -o diff.html") {
		t.Errorf("a picture: %v", err)
	}
	for name, tc := range map[string]struct{ text, want string }{
		"empty":    {"", "it is empty"},
		"no count": {"a;b 3\na;b\n", "line 2 is no folded stack"},
		"negative": {"a;b -3\n", "line 1 is no folded stack"},
		"infinite": {"a;b Inf\n", "line 1 is no folded stack"},
		"gzip":     {"\x1f\x8bxx", "it is no profile of pprof"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Diff{NewHTML(nil, Options{})}
			if err := d.Read(strings.NewReader(tc.text), Before); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestDiffBombs: what some KB are, or expand to, takes no more than a known profile may.
func TestDiffBombs(t *testing.T) {
	zip := func(part string, times int) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		for range times {
			if _, err := z.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	// A stack of 100,000 times location 1, which has one line; field 1 of a sample has as many bytes as follow.
	deep := "\x0a\x04\x08\x00\x10\x00" + "\x22\x06\x08\x01\x22\x02\x08\x01" + "\x2a\x02\x08\x01" + "\x32\x00" +
		"\x12\xa7\x8d\x06\x0a\xa0\x8d\x06" + strings.Repeat("\x01", 100_000) + "\x12\x01\x01"
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"zeros":   {zip(strings.Repeat("\x00", 1<<20), 129), "expanded it is larger than 134217728 bytes"},
		"samples": {zip(strings.Repeat("\x12\x00", 1<<20), 8), "it has more than 4194304 samples"},
		"stack":   {zip(deep, 1), "a stack has more than 65536 frames"},
		"folded":  {[]byte(strings.Repeat(";", 8<<20) + " 1\n"), "line 1 has more than 65536 frames"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Diff{NewHTML(nil, Options{})}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := d.Read(bytes.NewReader(tt.file), Before)
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || !strings.Contains(err.Error(), tt.want) || took > 800 {
				t.Errorf("%v, want %q; %d MB are allocated", err, tt.want, took)
			}
		})
	}
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte("a;b 3\n"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Add([]byte("; 1\n 2\n;;; 1e3\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &Diff{NewHTML(nil, Options{})}
		if d.Read(bytes.NewReader(b), After) == nil {
			if err := d.page.write(&bytes.Buffer{}); err != nil {
				t.Error(err)
			}
		}
	})
}
