package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes a root with files and links, and a secret beside it.
func tree(t testing.TB) *Root {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "root")
	for _, d := range []string{"etc", "usr/lib", "deep/a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"../secret": "secret", "etc/file": "file", "usr/lib/lib.so": "lib", "deep/a/b/x": "x", "secret": "inner",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"lib":       "usr/lib",
		"absolute":  "/etc/file",
		"dots":      "../../../../secret",
		"deep/up":   "../etc/file",
		"loop":      "loop",
		"chain":     "absolute",
		"dangling":  "/nowhere",
		"outside":   filepath.Join(top, "secret"),
		"deep/a/up": "../../../../../etc/file",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// ways opens paths both by the kernel and by hand: they must agree.
var ways = map[string]func(r *Root, path string) (int, error){
	"openat2": func(r *Root, path string) (int, error) { return r.openPath(path) },
	"walk":    func(r *Root, path string) (int, error) { return r.walk(path) },
}

func TestOpenPath(t *testing.T) {
	tests := []struct {
		path, want string
		err        error
	}{
		{"/etc/file", "file", nil},
		{"etc/file", "file", nil},
		{"//etc//./file", "file", nil},
		{"/lib/lib.so", "lib", nil},
		{"/absolute", "file", nil},
		{"/chain", "file", nil},
		{"/deep/up", "file", nil},
		{"/deep/a/up", "file", nil},
		{"/dots", "inner", nil}, // ".." of the root is the root
		{"/../../secret", "inner", nil},
		{"/lib/../../secret", "inner", nil},
		{"/deep/a/b/../../../etc/file", "file", nil},
		{"/outside", "", unix.ENOENT},
		{"/dangling", "", unix.ENOENT},
		{"/nothing", "", unix.ENOENT},
		{"/etc/file/x", "", unix.ENOTDIR},
		{"/loop", "", unix.ELOOP},
	}
	for way, open := range ways {
		for _, tt := range tests {
			t.Run(way+tt.path, func(t *testing.T) {
				if way == "openat2" && noOpenat2() {
					t.Skip("no openat2 on this machine")
				}
				fd, err := open(tree(t), tt.path)
				if !errors.Is(err, tt.err) {
					t.Fatalf("error %v, want %v", err, tt.err)
				}
				if err != nil {
					return
				}
				defer unix.Close(fd)
				b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fd))
				if err != nil || string(b) != tt.want {
					t.Errorf("read %q, %v; want %q", b, err, tt.want)
				}
			})
		}
	}
}

// The links of /proc that lead anywhere are not followed.
func TestMagicLinks(t *testing.T) {
	r, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for way, open := range ways {
		t.Run(way, func(t *testing.T) {
			if way == "openat2" && noOpenat2() {
				t.Skip("no openat2 on this machine")
			}
			fd, err := open(r, fmt.Sprintf("/proc/%d/root/etc", os.Getpid()))
			if err == nil {
				unix.Close(fd)
				t.Error("a magic link was followed")
			}
		})
	}
}

func TestOpenFile(t *testing.T) {
	r := tree(t)
	f, err := r.OpenFile("/absolute")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size())); err != nil || string(b) != "file" {
		t.Errorf("read %q, %v; want file", b, err)
	}
	for _, path := range []string{"/fifo", "/etc", "/"} {
		if f, err := r.OpenFile(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("OpenFile(%s) = %v, %v; want %v", path, f, err, ErrNotRegular)
		}
	}
	if _, err := r.OpenFile("/etc/fi\x00le"); err == nil {
		t.Error("a name with NUL was opened")
	}
	if _, err := r.OpenFile("/nothing"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one that is ErrNotExist", err)
	}
}

// A device is not opened, only looked at.
func TestDevice(t *testing.T) {
	r, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.OpenFile("/dev/null"); !errors.Is(err, ErrNotRegular) {
		t.Errorf("error %v, want %v", err, ErrNotRegular)
	}
}

// Neither way leaks descriptors.
func TestNoLeak(t *testing.T) {
	r := tree(t)
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := count()
	for range 10 {
		for _, open := range ways {
			for _, path := range []string{"/etc/file", "/loop", "/outside", "/deep/a/up", "/nothing", "/etc/file/x"} {
				if fd, err := open(r, path); err == nil {
					unix.Close(fd)
				}
			}
		}
		if _, err := r.OpenFile("/fifo"); err == nil {
			t.Fatal("FIFO opened")
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors are open, %d before", after, before)
	}
}

func ExampleRoot_OpenFile() {
	root, err := Open("/proc/self/root")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer root.Close()
	_, err = root.OpenFile("/dev/null")
	fmt.Println(errors.Is(err, ErrNotRegular))
	// Output: true
}
