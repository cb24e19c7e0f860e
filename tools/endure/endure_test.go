package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEndure is the short form: five seconds tell nothing of growth.
func TestEndure(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	t.Chdir(filepath.Join("..", ".."))
	dir := t.TempDir()
	tool := filepath.Join(dir, "sfsample")
	if text, err := exec.Command("go", "build", "-o", tool, "./cmd/sfsample").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	list, err := start(dir)
	defer stop(list)
	if err != nil {
		t.Fatal(err)
	}
	f, err := watch(t.Context(), tool, dir, list, 5*time.Second, 999, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.counts(); err != nil {
		t.Errorf("%v\n%s", err, f.text)
	}
}

// TestJudge: what breaks is told.
func TestJudge(t *testing.T) {
	const text = "sfsample: 20.0s, 199 ticks (10 late), 30 thread ticks = 20 samples + 10 waiting for a CPU; lost: 0\n"
	good := finding{text: text, folded: 10 * time.Second, used: 10 * time.Second}
	for i := range good.parts {
		good.parts[i] = tenth{memory: 50_000, files: 100, cpu: time.Duration(i+1) * time.Minute}
	}
	for _, tt := range []struct {
		change func(*finding)
		want   string // "": it held
	}{
		{func(f *finding) {}, ""},
		{func(f *finding) { f.parts[0] = tenth{memory: 10_000, files: 10, cpu: time.Second} }, ""},
		{func(f *finding) { f.parts[parts-1].memory += 9 << 10 }, "memory grows from 50000 to 59216 kB"},
		{func(f *finding) { f.parts[parts-1].files += 65 }, "open files grow from 100 to 165"},
		{func(f *finding) { f.parts[parts-1].cpu += 31 * time.Second }, "CPU time grows from 1m0s to 1m31s a tenth"},
		{func(f *finding) { f.parts[parts-1] = tenth{} }, "sfsample has ended early"},
		{func(f *finding) { f.text = "" }, "sfsample tells no account"},
		{func(f *finding) { f.text = strings.Replace(text, "20 samples", "19 samples", 1) }, "30 thread ticks, and 29 in its classes"},
		{func(f *finding) { f.folded = 9600 * time.Millisecond }, "the profile holds 9.6s of CPU time, the programs used 10s"},
		{func(f *finding) { f.folded = 10400 * time.Millisecond }, "the profile holds 10.4s of CPU time, the programs used 10s"},
	} {
		f := good
		tt.change(&f)
		got := ""
		if err := f.judge(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestSum adds up a file whose stacks hold spaces.
func TestSum(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte("a b;c 5\nd 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := sum(file); got != 12*time.Microsecond || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("a b;c\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sum(file); err == nil {
		t.Error("a line without a number passes")
	}
}
