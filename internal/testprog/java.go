package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Javas are the machines to try: that of the distribution, and those that SFSAMPLE_TEST_JAVAS lists, with colons between them. The test is
// skipped when there is none.
func Javas(t testing.TB) []string {
	list := strings.FieldsFunc(os.Getenv("SFSAMPLE_TEST_JAVAS"), func(r rune) bool { return r == ':' })
	if p, err := exec.LookPath("java"); err == nil {
		list = append(list, p)
	}
	if len(list) == 0 {
		t.Skip("no java on this machine")
	}
	return list
}

// JavaVersion is the folder that java is installed in, or the name of a program that starts one.
func JavaVersion(java string) string {
	if name := filepath.Base(java); name != "java" {
		return name
	}
	if p, err := filepath.EvalSymlinks(java); err == nil {
		java = p
	}
	return filepath.Base(filepath.Dir(filepath.Dir(java)))
}

// JavaClasses builds a Java program from a file below testdata and returns the folder with its classes. The test is skipped when there is no javac.
func JavaClasses(t testing.TB, source string) string {
	t.Helper()
	javac, err := exec.LookPath("javac")
	if err != nil {
		t.Skip("no javac on this machine")
	}
	dir := t.TempDir()
	if out, err := exec.Command(javac, "-nowarn", "--release", "11", "-d", dir, filepath.Join(root(t), source)).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return dir
}
