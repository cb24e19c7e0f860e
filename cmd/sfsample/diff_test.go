package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiffCommand compares a recording with what was made of it.
func TestDiffCommand(t *testing.T) {
	p := startTarget(t, "obey")
	dir := t.TempDir()
	name := func(file string) string { return filepath.Join(dir, file) }
	r := sampleWork(t, p, "--record", name("a.cap"), "-o", name("a.pb.gz"), "-o", name("a.folded"))
	r.interrupt(t)
	r.end(t).want(t, exitDone)
	for _, side := range []string{"a.cap", "a.pb.gz", "a.folded"} {
		page := name(side + ".html")
		sfsample(t, "diff", name("a.folded"), name(side), "-o", page).want(t, exitDone)
		if text := readFile(t, page); !strings.Contains(text, "<h1>From a.folded to "+side+"</h1>") || !strings.Contains(text, ".spin\"") {
			t.Errorf("the page of %s:\n%.2000s", side, text)
		}
	}
	cmd := tool("diff", name("a.folded"), "-", "-o", name("piped.html"))
	in, err := os.Open(name("a.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdin = in
	begin(t, cmd).end(t).want(t, exitDone)
	if text := readFile(t, name("piped.html")); !strings.Contains(text, "<h1>From a.folded to standard input</h1>") || !strings.Contains(text, ".spin\"") {
		t.Errorf("the page of standard input:\n%.2000s", text)
	}
	if err := os.WriteFile(name("bad"), []byte("nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"diff", name("a.folded")}, exitUsage, "diff needs two files"},
		{[]string{"diff", "-", "-", "-o", name("x.html")}, exitUsage, "standard input is one"},
		{[]string{"diff", name("bad"), "-", "-o", name("x.html")}, exitFailed, "line 1 is no folded stack"},
		{[]string{"diff", name("a.folded"), name("a.cap"), "-hz", "9"}, exitUsage, "-hz has no meaning with diff"},
		{[]string{"diff", name("bad"), name("a.cap"), "-o", name("x.html")}, exitFailed, "line 1 is no folded stack"},
		{[]string{"diff", name("none"), name("a.cap"), "-o", name("x.html")}, exitFailed, "no such file"},
		{[]string{"diff", name("a.folded"), name("a.cap"), "-o", name("x.svg")}, exitFailed, "a comparison is a page (try: -o diff.html)"},
	} {
		o := sfsample(t, tt.args...)
		o.want(t, tt.status, tt.want)
		o.wantOneLine(t)
	}
}
