package testprog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// record is what testdata/TOOLCHAIN says.
func record(t *testing.T) (packages []string, hashes map[string]string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), "TOOLCHAIN"))
	if err != nil {
		t.Fatal(err)
	}
	hashes = map[string]string{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "package ") {
			packages = append(packages, line)
		} else if hash, path, ok := strings.Cut(line, "  "); ok {
			hashes[path] = hash
		}
	}
	if len(packages) == 0 || len(hashes) == 0 {
		t.Fatalf("the record has %d packages and %d hashes", len(packages), len(hashes))
	}
	return packages, hashes
}

func fileHash(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// TestRecord: the committed programs are those that build.sh made of these
// very sources. Whoever changes a source has to run it.
func TestRecord(t *testing.T) {
	_, hashes := record(t)
	for path, want := range hashes {
		if got := fileHash(t, filepath.Join(root(t), path)); got != want {
			t.Errorf("%s has hash %s, the record %s (try: testdata/build.sh)", path, got, want)
		}
	}
	err := filepath.WalkDir(filepath.Join(root(t), "bin"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root(t), path)
		if err != nil {
			return err
		}
		if _, ok := hashes[filepath.ToSlash(rel)]; !ok {
			t.Errorf("%s is not in the record (try: testdata/build.sh)", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRebuild builds every program again, where the compilers of the record are
// at hand, and compares all bytes. It downloads nothing.
func TestRebuild(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("the recorded toolchains are not on this machine")
	}
	for _, suite := range []string{"forky", "trixie"} {
		if _, err := os.Stat(filepath.Join(cache, "sfsample", "roots", "toolchain-"+suite, ".packages")); err != nil {
			t.Skip("the recorded toolchains are not on this machine")
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may run the recorded toolchains")
	}
	packages, hashes := record(t)
	src := filepath.Dir(root(t))
	out, err := exec.Command("go", "run", "sfsample/tools/vm", "toolchains").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(out)); got != strings.Join(packages, "\n") {
		t.Skip("the toolchains on this machine are not of the recorded versions")
	}
	// A copy of what the script needs: it writes into its own folder.
	tree := t.TempDir()
	for _, part := range []string{"go.mod", "go.sum", "tools", "testdata/build.sh", "testdata/progs"} {
		dst := filepath.Join(tree, part)
		if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command("cp", "-r", filepath.Join(src, part), dst).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, text)
		}
	}
	if text, err := exec.Command(filepath.Join(tree, "testdata", "build.sh")).CombinedOutput(); err != nil {
		t.Fatalf("build.sh: %v\n%s", err, bytes.TrimSpace(text))
	}
	for path, want := range hashes {
		if got := fileHash(t, filepath.Join(tree, "testdata", path)); got != want {
			t.Errorf("%s: built anew it has hash %s, the record %s", path, got, want)
		}
	}
}
