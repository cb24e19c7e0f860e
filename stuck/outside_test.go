package stuck

import (
	"os"
	"path/filepath"
	"testing"

	"sfsample/ptrace/procfs"
)

// TestOutsideGone: a thread of a process that others wait for, which ends while it is looked at, is left out.
func TestOutsideGone(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "77/task/77"), 0o755); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "77/stat"), stat, 0o644); err != nil {
		t.Fatal(err)
	}
	d := Begin(procfs.FS{Root: root}, nil, nil)
	d.threads = []*Thread{{Wait: &Wait{On: []Releaser{{PID: 77}}}}}
	if d.outside() || len(d.threads) != 1 {
		t.Errorf("%d threads, want the one that waits", len(d.threads))
	}
}
