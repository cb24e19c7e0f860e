package goroutines

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sfsample/sampler/symbol"
)

// buildGo builds a program for an architecture with the go command that toolchain names, empty for the one at hand.
func buildGo(t *testing.T, goarch, toolchain string, args ...string) *symbol.GoProgram {
	t.Helper()
	goCmd, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command on this machine")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { <-make(chan int) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(goCmd, append(append([]string{"build"}, args...), "-o", "program", "main.go")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=", "GO111MODULE=off")
	if toolchain != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+toolchain)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("go build for %s does not work on this machine: %v\n%s", goarch, err, out)
	}
	f, err := os.Open(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	p, err := symbol.OpenGoProgram(io.NewSectionReader(f, 0, info.Size()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLayouts: the tables are those of the programs that Go makes. SFSAMPLE_TEST_GOS may name more toolchains ("go1.19.13
// go1.25.5"), which the go command then fetches.
func TestLayouts(t *testing.T) {
	for _, toolchain := range append([]string{""}, strings.Fields(os.Getenv("SFSAMPLE_TEST_GOS"))...) {
		for _, arch := range []string{"amd64", "arm64", "s390x"} {
			if toolchain != "" && arch != "amd64" {
				continue
			}
			p := buildGo(t, arch, toolchain)
			minor := releaseOf(p.Version())
			if minor == 0 {
				t.Skipf("%q is no release", p.Version())
			}
			got, missing := described(p)
			if want, ok := releases[minor]; missing != "" || !ok || got != want {
				t.Errorf("%s %s: debugging information has %+v (lacks %q), the table %+v", p.Version(), arch, got, missing, want)
			}
			if words := reasonsIn(p); !slices.Equal(words, reasonsOf(minor)) {
				t.Errorf("%s %s: the program has the words %q; the table %q", p.Version(), arch, words, reasonsOf(minor))
			}
		}
	}
}

// TestUndescribed: of a version that is not in the table, and a program that does not describe itself, it is said what is missing.
func TestUndescribed(t *testing.T) {
	p := buildGo(t, "amd64", "", "-ldflags=-w")
	if _, missing := described(p); missing != "runtime.g.sched" {
		t.Errorf("%q is missing, want runtime.g.sched", missing)
	}
}

// reasonsIn reads the words for waits out of a program's file.
func reasonsIn(p *symbol.GoProgram) []string {
	v := p.Variables("runtime.waitReasonStrings")["runtime.waitReasonStrings"]
	r := &Runtime{order: p.Order()}
	return r.readReasons(p, v.Addr, v.Size)
}
