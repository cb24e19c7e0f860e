package output

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseSpec(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"-", "folded=-"},
		{"x", "folded=x"},
		{"a.b/x", "folded=a.b/x"},
		{"/dev/null", "folded=/dev/null"},
		{"a.speedscope.json", "speedscope=a.speedscope.json"},
		{"a.firefox.json", "firefox=a.firefox.json"},
		{"a.json", "json=a.json"},
		{"x.folded", "folded=x.folded"},
		{"x.txt", "folded=x.txt"},
		{"x.pb.gz", "pprof=x.pb.gz"},
		{"a/x.pprof", "pprof=a/x.pprof"},
		{"pprof=x.txt", "pprof=x.txt"},
		{"folded=a=b", "folded=a=b"},
		{"./a=b.pprof", "pprof=./a=b.pprof"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := ParseSpec(tc.in)
			if err != nil || got.String() != tc.want {
				t.Errorf("got %v, %v, want %s", got, err, tc.want)
			}
			if again, err := ParseSpec(got.String()); err != nil || again != got {
				t.Errorf("%s read again is %v, %v", got, again, err)
			}
		})
	}
	for _, tc := range []struct{ in, want string }{
		{"", "no file name"},
		{"x.svg.gz", `the ending of "x.svg.gz" tells no format (endings are .folded .txt .pb.gz`},
		{"svg", `or write FORMAT=FILE, as folded=svg)`},
		{"a.foo", `the ending of "a.foo" tells no format`},
		{"pprof=", "try: pprof=-"},
		{"flame=x", `unknown format "flame"`},
		{"=x", `unknown format ""`},
		{"\x1b[31m=x", `\x1b[31m`},
	} {
		t.Run("error/"+tc.in, func(t *testing.T) {
			_, err := ParseSpec(tc.in)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("got %v, want an error with %s", err, tc.want)
			}
		})
	}
}

// open opens specs in a new folder and returns the folder.
func open(t *testing.T, specs ...string) (*Outputs, string, error) {
	t.Helper()
	dir := t.TempDir()
	outs, err := openIn(t, dir, specs...)
	return outs, dir, err
}

func openIn(t *testing.T, dir string, specs ...string) (*Outputs, error) {
	t.Helper()
	t.Chdir(dir)
	var list []Spec
	for _, s := range specs {
		spec, err := ParseSpec(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, spec)
	}
	return Open(list, Options{Hz: 100})
}

// names lists a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func feed(t *testing.T, o *Outputs) {
	t.Helper()
	for _, s := range testRun() {
		if err := o.Add(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOutputsFromOneStream(t *testing.T) {
	outs, dir, err := open(t, "a.folded", "b.pb.gz")
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "" {
		t.Errorf("before Close there is %s", got)
	}
	feed(t, outs)
	if err := outs.Close(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "a.folded b.pb.gz" {
		t.Errorf("the folder has %s", got)
	}
	for name, want := range map[string][]byte{
		"a.folded": write(t, folded(Options{}), testRun()),
		"b.pb.gz":  write(t, pprof(Options{Hz: 100}), testRun()),
	} {
		if got, err := os.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(got), len(want))
		}
	}
}

func TestOutputWithoutSamplesIsEmpty(t *testing.T) {
	outs, _, err := open(t, "a.folded")
	if err != nil {
		t.Fatal(err)
	}
	if err := outs.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("a.folded"); err != nil || len(b) != 0 {
		t.Errorf("%v, %q", err, b)
	}
}

func TestExistingFile(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "a.folded")
	restore := func(mode fs.FileMode) {
		os.Remove(old)
		if err := os.WriteFile(old, []byte(strings.Repeat("old\n", 1000)), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(old, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
	}
	content := func() string {
		b, err := os.ReadFile(old)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	want := string(write(t, folded(Options{}), testRun()))

	t.Run("replaced with its mode kept", func(t *testing.T) {
		restore(0o640)
		outs, err := openIn(t, dir, "a.folded")
		if err != nil {
			t.Fatal(err)
		}
		feed(t, outs)
		if !strings.HasPrefix(content(), "old\n") {
			t.Error("changed before Close")
		}
		if err := outs.Close(); err != nil {
			t.Fatal(err)
		}
		if content() != want {
			t.Errorf("got %q", content())
		}
		if info, err := os.Stat(old); err != nil || info.Mode().Perm() != 0o640 && runtime.GOOS != "windows" {
			t.Errorf("mode is %v, %v", info.Mode(), err)
		}
	})
	t.Run("kept by Discard", func(t *testing.T) {
		restore(0o644)
		outs, err := openIn(t, dir, "a.folded")
		if err != nil {
			t.Fatal(err)
		}
		feed(t, outs)
		outs.Discard()
		if !strings.HasPrefix(content(), "old\n") || names(t, dir) != "a.folded" {
			t.Errorf("the folder has %s", names(t, dir))
		}
	})
	t.Run("written through a link", func(t *testing.T) {
		restore(0o644)
		link := filepath.Join(dir, "link.folded")
		if err := os.Symlink("a.folded", link); err != nil {
			t.Fatal(err)
		}
		outs, err := openIn(t, dir, "link.folded")
		if err != nil {
			t.Fatal(err)
		}
		feed(t, outs)
		if err := outs.Close(); err != nil {
			t.Fatal(err)
		}
		if content() != want {
			t.Errorf("got %q", content())
		}
		if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link is now %v, %v", info.Mode(), err)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	t.Run("no such folder", func(t *testing.T) {
		_, dir, err := open(t, "a.txt", "no/b.pprof")
		if err == nil || !errors.Is(err, fs.ErrNotExist) ||
			err.Error() != "output no/b.pprof: no such file or directory (create its folder first, or give another file)" {
			t.Errorf("got %v", err)
		}
		if got := names(t, dir); got != "" {
			t.Errorf("%s was left behind", got)
		}
	})
	t.Run("a folder", func(t *testing.T) {
		_, _, err := open(t, "folded=/")
		if err == nil || err.Error() != "output /: is a folder (give a file in it)" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not writable", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o444); err != nil {
			t.Fatal(err)
		}
		_, err := openIn(t, dir, "a.txt")
		if err == nil || !errors.Is(err, fs.ErrPermission) ||
			err.Error() != "output a.txt: permission denied (give a file where you may write, or - for standard output)" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("writable file in a folder that is not", func(t *testing.T) {
		if os.Geteuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		old := filepath.Join(dir, "a.txt")
		if err := os.WriteFile(old, []byte(strings.Repeat("old", 1000)), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o755)
		outs, err := openIn(t, dir, "a.txt")
		if err != nil {
			t.Fatal(err)
		}
		feed(t, outs)
		if err := outs.Close(); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(old); string(b) != string(write(t, folded(Options{}), testRun())) {
			t.Errorf("got %q", b)
		}
	})
	for name, specs := range map[string][]string{
		"by name":            {"a.txt", "folded=a.txt"},
		"by another path":    {"a.txt", "pprof=./sub/../a.txt"},
		"standard output":    {"-", "pprof=-"},
		"by link":            {"old.txt", "folded=link"},
		"by hard link":       {"old.txt", "folded=hard"},
		"link and hard link": {"link", "hard"},
	} {
		t.Run("same output twice "+name, func(t *testing.T) {
			dir := t.TempDir()
			err := errors.Join(os.WriteFile(filepath.Join(dir, "old.txt"), nil, 0o644),
				os.Symlink("old.txt", filepath.Join(dir, "link")),
				os.Link(filepath.Join(dir, "old.txt"), filepath.Join(dir, "hard")))
			if err != nil {
				t.Fatal(err)
			}
			_, err = openIn(t, dir, specs...)
			if err == nil || !strings.Contains(err.Error(), "is the same as") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full on this machine")
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	outs, dir, err := open(t, "folded=/dev/full", "b.txt")
	if err != nil {
		t.Fatal(err)
	}
	feed(t, outs)
	err = outs.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v", err)
	}
	saved := filepath.Join(tmp, names(t, tmp))
	if want := "write /dev/full: no space left on device (the result is saved as " + saved + ")"; err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	want := string(write(t, folded(Options{}), testRun()))
	for _, f := range []string{saved, filepath.Join(dir, "b.txt")} {
		if b, err := os.ReadFile(f); err != nil || string(b) != want {
			t.Errorf("%s: %v, %q", f, err, b)
		}
	}
}

func TestFullDiskAndNoOtherPlace(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full on this machine")
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	outs, _, err := open(t, "folded=/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	feed(t, outs)
	if err := outs.Close(); err == nil || !strings.Contains(err.Error(), "no room to save it elsewhere") {
		t.Errorf("got %v", err)
	}
}

// TestAppendOnly: a folder to which files may only be added, which would keep what is written to on the way, is refused before there is a result.
func TestAppendOnly(t *testing.T) {
	const get, set, add = 0x80086601, 0x40086602, 0x20 // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_APPEND_FL (include/uapi/linux/fs.h)
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), get)
	if err != nil || unix.IoctlSetPointerInt(int(f.Fd()), set, flags|add) != nil {
		t.Skip("no folder can be made to which files may only be added")
	}
	defer unix.IoctlSetPointerInt(int(f.Fd()), set, flags)
	if _, err = openIn(t, dir, "folded=x"); err == nil || !strings.Contains(err.Error(), ".partial, made to try: operation not permitted (give a file in another folder") {
		t.Errorf("got %v", err)
	}
}

// TestClosedPipe writes into a pipe that nobody reads. (To descriptor 1 the
// Go runtime answers with SIGPIPE, unless the program catches or ignores it.)
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	f, _ := formatByName("folded")
	outs := &Outputs{list: []*sinkFile{{format: f, file: &file{name: "-", f: w}, sink: f.new(w, Options{})}}}
	feed(t, outs)
	err = outs.Close()
	if err == nil || err.Error() != "write standard output: broken pipe (its reader has gone)" {
		t.Errorf("got %v", err)
	}
	if got := names(t, tmp); got != "" {
		t.Errorf("%s was left behind", got)
	}
}

type failingWriter struct{}

var errDisk = errors.New("disk full")

func (failingWriter) Write([]byte) (int, error) { return 0, errDisk }

// TestWriteErrors: every format reports that it could not write.
func TestWriteErrors(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			s := f.new(failingWriter{}, Options{})
			var err error
			for _, sample := range testRun() {
				err = errors.Join(err, s.Add(sample))
			}
			if err = errors.Join(err, s.Close()); !errors.Is(err, errDisk) {
				t.Errorf("got %v, want %v", err, errDisk)
			}
		})
	}
}

// failingSink is a stream that writes one line and fails at its second sample.
type failingSink struct {
	w     io.Writer
	added int
}

func (f *failingSink) Add(*Sample) error {
	if f.added++; f.added > 1 {
		return syscall.ENOSPC
	}
	if _, err := io.WriteString(f.w, "one\n"); err != nil {
		return err
	}
	_, err := f.w.(*file).f.WriteString("tw") // a write that the disk had no room for
	return err
}

func (f *failingSink) Close() error { panic("closed after it has failed") }

func TestFailedStreamKeepsItsBeginning(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("s.json", []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := openFile("s.json", true)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open([]Spec{{"folded", "a.folded"}}, Options{Hz: 100})
	if err != nil {
		t.Fatal(err)
	}
	outs := &Outputs{list: append(other.list, &sinkFile{format: format{name: "test", stream: true}, file: w, sink: &failingSink{w: w}})}
	var failures []string
	for _, s := range testRun() {
		if err := outs.Add(s); err != nil {
			failures = append(failures, err.Error())
		}
	}
	partial := w.partial
	if want := "write s.json: no space left on device (its beginning is kept as " + partial + ")"; len(failures) != 1 || failures[0] != want {
		t.Errorf("got %q, want once %q", failures, want)
	}
	if err := outs.Close(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"s.json": "old", partial: "one\n", "a.folded": string(write(t, folded(Options{}), testRun()))} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s: %v, %q, want %q", name, err, b, want)
		}
	}
}

// TestWrote: time that nobody was met in is no sample, nor is more weight for an old one.
func TestWrote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.folded")
	o, err := Open([]Spec{{"folded", file}}, Options{Hz: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Sample{{Process: "app", CPU: 3 * tick}, {Process: "app", CPU: 2 * tick, Taken: "none"}, {Process: "app", CPU: tick, Taken: "reused"}} {
		if err := o.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := o.Wrote(), file+" (1 sample, 60.0 ms of CPU time)"; len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}
