package testprog

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// testdata is the module's testdata folder, found upwards from the working
// folder of the test: sources need not be there, nor a go.mod.
var testdata = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		try := filepath.Join(dir, "testdata")
		if _, err := os.Stat(filepath.Join(try, "bin")); err == nil {
			return try, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no testdata/bin in any folder above the test")
		}
		dir = up
	}
})

func root(t testing.TB) string {
	t.Helper()
	dir, err := testdata()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Committed returns the path of a committed program, such as "deep", of an
// architecture ("amd64", "386", "arm64", "s390x") in a variant ("sframe3",
// "fp", ...; the README of testdata lists them).
func Committed(t testing.TB, arch, variant, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "bin", arch, variant, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Variants returns the variants in which a program is committed for an
// architecture, sorted.
func Variants(t testing.TB, arch, name string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), "bin", arch, "*", name))
	if err != nil {
		t.Fatal(err)
	}
	var variants []string
	for _, p := range paths {
		variants = append(variants, filepath.Base(filepath.Dir(p)))
	}
	slices.Sort(variants)
	return variants
}

// RequireArch skips the test when this machine cannot run programs of an
// architecture: its own is always fine, and 386 on an x86-64 kernel that has
// 32-bit emulation.
func RequireArch(t testing.TB, arch string) {
	t.Helper()
	if arch == runtime.GOARCH {
		return
	}
	if arch == "386" && runtime.GOARCH == "amd64" {
		if err := runs386(t); err == nil {
			return
		} else if !errors.Is(err, syscall.ENOEXEC) {
			t.Fatal(err)
		}
	}
	t.Skipf("this machine runs no %s programs", arch)
}

// runs386 tries to start a 32-bit program. ENOEXEC: the kernel cannot.
func runs386(t testing.TB) error {
	path := Committed(t, "386", "none", "deep")
	p, err := os.StartProcess(path, []string{path, "b", "1"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}
