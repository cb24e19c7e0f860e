package stuck

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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
	d.roster.threads = []*Thread{{Wait: &Wait{On: []Releaser{{PID: 77}}}}}
	if d.outside() || len(d.roster.threads) != 1 {
		t.Errorf("%d threads, want the one that waits", len(d.roster.threads))
	}
}

// TestOwnFiles: what we have opened for the dump is not searched for other ends, what we had before is.
func TestOwnFiles(t *testing.T) {
	before, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	defer w1.Close()
	d := Begin(procfs.FS{}, nil, nil)
	defer d.close()
	after, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	defer w2.Close()
	for _, c := range []struct {
		pipe *os.File
		ends int
	}{{before, 2}, {after, 0}} {
		link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(c.pipe.Fd())))
		if err != nil {
			t.Fatal(err)
		}
		d.ends.want(link)
		if _, err := d.ends.searchProcess(os.Getpid(), time.Now().Add(time.Hour)); err != nil || len(d.ends.wanted[link]) != c.ends {
			t.Errorf("%d ends, want %d; %v", len(d.ends.wanted[link]), c.ends, err)
		}
	}
}

// TestHidden: a /proc that may not show all processes proves nothing of who has an end.
func TestHidden(t *testing.T) {
	for _, tt := range []struct {
		ns    string
		first bool // process 1 is shown
		all   bool
	}{{"pid:[4026531836]", true, true}, {"pid:[4026531836]", false, false}, {"pid:[4026532300]", true, false}, {"", true, false}} {
		root := t.TempDir()
		self := filepath.Join(root, strconv.Itoa(os.Getpid()), "ns")
		for _, dir := range []string{self, filepath.Join(root, "1")} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if tt.ns != "" {
			if err := os.Symlink(tt.ns, filepath.Join(self, "pid")); err != nil {
				t.Fatal(err)
			}
		}
		if stat, err := os.ReadFile("/proc/self/stat"); err != nil || tt.first && os.WriteFile(filepath.Join(root, "1/stat"), stat, 0o644) != nil {
			t.Fatal(err)
		}
		d := newDump(procfs.FS{Root: root})
		d.ends.want("pipe:[1]")
		d.ends.search()
		if whole := d.ends.whole("pipe:[1]"); whole != tt.all || len(d.missing) > 0 == tt.all {
			t.Errorf("namespace %q, process 1 shown: %v: whole %v, missing %v", tt.ns, tt.first, whole, d.missing)
		}
	}
}

// TestMaskedLocks: a list of locks that lacks the one that a thread waits for is named as missing.
func TestMaskedLocks(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "locks"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d := newDump(procfs.FS{Root: root})
	var w Wait
	d.locks.find(&Thread{PID: 7}, &w, "FLOCK")
	if len(d.missing) != 1 || len(w.On) > 0 || w.Unknown == "" {
		t.Errorf("missing %v, %+v", d.missing, w)
	}
}

// TestLongMaps: of many mappings the shared ones are kept, and a list that is made too long is not read at all.
func TestLongMaps(t *testing.T) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	for lines, want := range map[int]int{1000: 1, 300_000: 0} {
		dir := filepath.Join(t.TempDir(), "7")
		if err := os.MkdirAll(filepath.Join(dir, "task/7"), 0o755); err != nil {
			t.Fatal(err)
		}
		text := strings.Repeat("1000-2000 rw-p 00000000 00:00 0\n", lines) + "3000-4000 rw-s 00000000 00:01 5 /dev/zero\n"
		for name, b := range map[string]string{"maps": text, "task/7/stat": string(stat)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(b), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := newOwners(procfs.FS{Root: filepath.Dir(dir)}, missing{})
		if list := o.mappings(7, 7); len(list) != want || cap(list) > 1 {
			t.Errorf("of %d mappings %d are kept, with room for %d", lines, len(list), cap(list))
		}
		if of := o.sharedFile(7, 7, 0x3000); of.inode != uint64(5*want) {
			t.Errorf("of %d mappings: inode %d", lines, of.inode)
		}
	}
}
