package testprog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Compile builds a C program from files in testdata/progs with the machine's
// gcc and returns its path. The flags come after the sources' include folder
// and before the sources; -o is added. The test is skipped when there is no gcc.
//
// Programs are kept in the user's cache folder under a hash of everything that
// they are made of, so that only the first test of many waits for the compiler.
func Compile(t testing.TB, flags []string, sources ...string) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc on this machine")
	}
	return compile(t, gcc, "-o", flags, sources)
}

// CompileGo builds a Go program from a file in testdata/progs. The test is
// skipped when there is no go command.
func CompileGo(t testing.TB, flags []string, source string) string {
	t.Helper()
	goCmd, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command on this machine")
	}
	return compile(t, goCmd, "-o", append([]string{"build"}, flags...), []string{source})
}

func compile(t testing.TB, tool, outFlag string, flags, sources []string) string {
	t.Helper()
	progs := filepath.Join(root(t), "progs")
	key, err := buildKey(tool, progs, flags, sources)
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = t.TempDir()
	}
	out := filepath.Join(base, "sfsample", "progs", key)
	if _, err := os.Stat(out); err == nil {
		return out
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	// Under a name of its own first: another test may build the same.
	tmp, err := os.CreateTemp(filepath.Dir(out), "build")
	if err != nil {
		t.Fatal(err)
	}
	tmp.Close()
	defer os.Remove(tmp.Name())
	args := append([]string{}, flags...)
	args = append(args, outFlag, tmp.Name())
	cmd := exec.Command(tool, append(args, sources...)...)
	cmd.Dir = progs
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
	}
	if err := os.Rename(tmp.Name(), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// buildKey is a hash of the compiler's version, the flags and all sources and
// headers that the program can be made of.
func buildKey(tool, progs string, flags, sources []string) (string, error) {
	h := sha256.New()
	version := "--version"
	if filepath.Base(tool) == "go" {
		version = "version"
	}
	out, err := exec.Command(tool, version).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", tool, version, err)
	}
	h.Write(bytes.TrimSpace(out))
	fmt.Fprintf(h, "%q", flags)
	headers, err := filepath.Glob(filepath.Join(progs, "*.h"))
	if err != nil {
		return "", err
	}
	for _, s := range sources {
		headers = append(headers, filepath.Join(progs, s))
	}
	for _, name := range headers {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q", filepath.Base(name))
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}
