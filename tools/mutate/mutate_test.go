package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

import "fmt"

const limit = 10

func f(a, b int, on bool) int {
	if on && a < b {
		a += b
		fmt.Println(a - 1)
	}
	for i := 0; i < 3; i++ {
		if !on {
			continue
		}
	}
	s := []bool{true}
	_ = s
	return a
}
`

// TestFaults: the lines of a small file, each as often as it can be changed.
func TestFaults(t *testing.T) {
	list, err := faultsOf("p.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		_, after := f.lines()
		got = append(got, fmt.Sprintf("%d %s: %s", f.line, f.fn, after))
		if changed := string(f.changed()); changed == sample || strings.Count(changed, "\n") != strings.Count(sample, "\n") {
			t.Errorf("%s gives\n%s", got[len(got)-1], changed)
		}
	}
	want := []string{
		"5 : const limit = (10 - 1)",
		"8 f: if on || a < b {",
		"8 f: if !on && a < b {",
		"8 f: if on && a <= b {",
		"9 f: a -= b",
		"9 f:",
		"10 f: fmt.Println(a + 1)",
		"10 f: fmt.Println(a - (1 - 1))",
		"10 f:",
		"12 f: for i := (0 + 1); i < 3; i++ {",
		"12 f: for i := 0; i <= 3; i++ {",
		"12 f: for i := 0; i < (3 + 1); i++ {",
		"12 f: for i := 0; i < 3; i-- {",
		"13 f: if on {",
		"14 f:",
		"17 f: s := []bool{false}",
		"18 f:",
	}
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	slices.Sort(got)
	slices.Sort(want)
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("not planted: %s", w)
		}
	}
	for _, g := range got {
		// Which of one more and one less depends on the fault's number.
		if !slices.Contains(want, g) && !strings.Contains(g, "1)") {
			t.Errorf("planted: %s", g)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d", len(got), len(want))
	}
}

// module makes a module of one package.
func module(t *testing.T, test string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.26\n",
		"p/p.go":      "package p\n\nfunc Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n\nfunc Late() { for i := 0; i < 1; i++ {\n\t}\n}\n",
		"p/p_test.go": "package p\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n" + test + "\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestVerdicts: a fault that the tests see is found, one that they do not see
// survives, one that is listed is neither, and what does not compile is no fault.
func TestVerdicts(t *testing.T) {
	t.Chdir(module(t, "if Max(2, 1) != 2 { t.Fail() }"))
	src, err := os.ReadFile("p/p.go")
	if err != nil {
		t.Fatal(err)
	}
	known, err := readKnown("p/p.go Max\n- if a > b {\n+ if a >= b {\nequal ones are equal\n\np/p.go Max\n- if a > b {\n+ if a < b {\nthat is not so\n")
	if err != nil {
		t.Fatal(err)
	}
	tt, err := openTests(t.Context(), "./p", t.TempDir(), known)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(src), "a > b")
	for text, want := range map[string]verdict{"a < b": found, "a > b-1": survived, "a >= b": equivalent, "a + b": invalid} {
		f := fault{file: "p.go", fn: "Max", from: at, to: at + len("a > b"), text: text, src: src}
		if got := tt.judge(t.Context(), &f); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if now, err := os.ReadFile("p/p.go"); err != nil || string(now) != string(src) {
		t.Errorf("the source was changed: %v", err)
	}
}

// TestMutate: the report and the sum; tests that fail by themselves are an error.
func TestMutate(t *testing.T) {
	t.Chdir(module(t, "if Max(2, 1) != 2 { t.Fail() }"))
	var out strings.Builder
	ok, err := mutate(context.Background(), &out, []string{"./p"}, 100, 1, 2, 100, false)
	if err != nil || ok || !strings.Contains(out.String(), "survived m/p/p.go:4 Max\n\t- if a > b {\n\t+ if a >= b {\n") {
		t.Errorf("%v, %v:\n%s", ok, err, out.String())
	}
	if ok, err := mutate(context.Background(), &out, []string{"./p"}, 100, 1, 2, 0, false); !ok || err != nil {
		t.Errorf("a lower aim is missed: %v, %v\n%s", ok, err, out.String())
	}
	t.Chdir(module(t, "t.Fail()"))
	if _, err := mutate(context.Background(), &out, []string{"./p"}, 1, 1, 1, 0, false); err == nil {
		t.Error("tests that fail as they are found a fault")
	}
}

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	_, file, _, _ := runtime.Caller(0)
	dir := filepath.Join(filepath.Dir(file), "..", "..")
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Skip("no sources on this machine")
	}
	return dir
}

// TestEquivalents: each entry of equivalent.txt is about a fault that can still
// be planted.
func TestEquivalents(t *testing.T) {
	t.Chdir(root(t))
	list, err := readKnown(equivalents)
	if err != nil {
		t.Fatal(err)
	}
	faults := map[string][]fault{}
	for _, k := range list {
		if faults[k.path] == nil {
			src, err := os.ReadFile(k.path)
			if err != nil {
				t.Error(err)
				continue
			}
			if faults[k.path], err = faultsOf(filepath.Base(k.path), src); err != nil {
				t.Error(err)
			}
		}
		pkg := "sfsample/" + filepath.ToSlash(filepath.Dir(k.path))
		if !slices.ContainsFunc(faults[k.path], func(f fault) bool { return k.is(pkg, &f) }) {
			t.Errorf("%s %s has no line %q that could become %q", k.path, k.fn, k.before, k.after)
		}
	}
}
