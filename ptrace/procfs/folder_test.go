package procfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// folder makes a /proc of files by their paths.
func folder(t *testing.T, files map[string]string) FS {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return FS{Root: root}
}

// readers are all that read one small file of a process, or of its thread 2.
var readers = map[string]func(FS) error{
	"1/status":           func(f FS) error { _, err := f.Status(1); return err },
	"1/stat":             func(f FS) error { _, err := f.Stat(1); return err },
	"1/task/2/stat":      func(f FS) error { _, err := f.Task(1, 2).Stat(); return err },
	"1/task/2/schedstat": func(f FS) error { _, err := f.Task(1, 2).Schedstat(); return err },
	"1/task/2/syscall":   func(f FS) error { _, err := f.Task(1, 2).Syscall(); return err },
	"1/task/2/stack":     func(f FS) error { _, err := f.Task(1, 2).Stack(); return err },
	"1/task/2/comm":      func(f FS) error { _, err := f.Task(1, 2).Comm(); return err },
	"1/task/2/wchan":     func(f FS) error { _, err := f.Task(1, 2).Wchan(); return err },
	"1/cmdline":          func(f FS) error { _, err := f.Cmdline(1); return err },
	"1/cgroup":           func(f FS) error { _, err := f.Cgroups(1); return err },
	"1/personality":      func(f FS) error { _, err := f.Personality(1); return err },
	"1/auxv":             func(f FS) error { _, err := f.Auxv(1, binary.LittleEndian, 8); return err },
}

// texts are such files, as short as may be.
var texts = map[string]string{
	"1/status": "State:\tS\nTgid:\t1\nPid:\t1\n", "1/stat": stat("S", 0), "1/task/2/stat": stat("S", 0), "1/task/2/schedstat": "1 2 3\n",
	"1/task/2/syscall": "running\n", "1/task/2/stack": "[<0>] f+0x1/0x2\n", "1/task/2/comm": "a", "1/task/2/wchan": "f", "1/cmdline": "a",
	"1/personality": "0", "1/auxv": "", "1/cgroup": "0::/a",
}

// TestFilesAreBounded: a file that is longer than any can be is refused, but for
// those whose text may be cut.
func TestFilesAreBounded(t *testing.T) {
	cut := map[string]bool{"1/task/2/comm": true, "1/task/2/wchan": true, "1/cmdline": true, "1/auxv": true, "1/cgroup": true}
	for name, read := range readers {
		if err := read(folder(t, nil)); !Gone(err) {
			t.Errorf("%s is not there: %v", name, err)
		}
		var path *fs.PathError
		if err := read(folder(t, map[string]string{name + "/x": ""})); !errors.As(err, &path) || path.Op != "read" || !strings.HasSuffix(path.Path, name) {
			t.Errorf("%s is a folder: %v", name, err)
		}
		if err := read(folder(t, map[string]string{name: texts[name]})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		const limit = 64 << 10
		text := texts[name] + strings.Repeat("\n", limit-len(texts[name]))
		if err := read(folder(t, map[string]string{name: text})); name != "1/task/2/stack" && err != nil {
			t.Errorf("%s of %d bytes: %v", name, limit, err)
		}
		err := read(folder(t, map[string]string{name: text + "\n"}))
		if tooLong := errors.Is(err, ErrTooLong); tooLong == cut[name] {
			t.Errorf("%s of %d bytes: %v", name, limit+1, err)
		}
	}
	f := folder(t, map[string]string{"1/maps": "", "1/task/1/stat": stat("S", 0), "1/task/2/sched": "a\nse.exec_start : 5.000000" + strings.Repeat("\n", 64<<10)})
	if at, ok := f.Task(1, 2).LastRan(); at != 5*time.Millisecond || !ok {
		t.Errorf("a sched file that is cut: run at %v, %v", at, ok)
	}
	line := "1000-2000 r-xp 00000000 08:1f 12 /" + strings.Repeat("a", 4000) + "\n"
	f = folder(t, map[string]string{"1/maps": strings.Repeat(line, 64<<20/len(line)), "1/task/1/stat": stat("S", 0)})
	list, err := f.Maps(1, nil)
	if err != nil || len(list) != 64<<20/len(line) || list[len(list)-1].Path != line[len(line)-4002:len(line)-1] {
		t.Errorf("maps of 64 MiB: %d mappings, %v", len(list), err)
	}
	end, read, took := errors.New("the end"), 0, 0
	if _, err := f.Maps(1, func(text, list int) error {
		if read, took = text, list; text > 1<<20 {
			return end
		}
		return nil
	}); err != end || read > 1<<20+32<<10 || took < read/len(line)*mappingBytes || took > read/2 {
		t.Errorf("ended with %v after %d bytes, in %d", err, read, took)
	}
	if err := os.Truncate(f.Path(1, "maps"), 64<<20+1); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Maps(1, nil); !errors.Is(err, ErrTooLong) {
		t.Errorf("maps of a byte more than 64 MiB: %v", err)
	}
	if _, err := folder(t, map[string]string{"1/maps": line[:1000] + strings.Repeat("a", 64<<10), "1/task/1/stat": stat("S", 0)}).Maps(1, nil); !errors.Is(err, ErrTooLong) {
		t.Errorf("a line of more than 64 KiB: %v", err)
	}
	long := strings.Repeat("a", 64<<10+1)
	if args, err := folder(t, map[string]string{"1/cmdline": long}).Cmdline(1); err != nil || len(args) != 1 || len(args[0]) != 64<<10 {
		t.Errorf("a command line that is cut: %d arguments, %v", len(args), err)
	}
}

// TestWords: files of one word.
func TestWords(t *testing.T) {
	f := folder(t, map[string]string{"1/task/2/wchan": "0", "1/task/3/wchan": "do_wait\n", "1/task/2/comm": "a b\n\n", "1/cmdline": "",
		"1/personality": "00040000\n", "2/personality": "ffffffff\n", "3/personality": "100000000\n", "4/personality": "x"})
	for tid, want := range map[int]string{2: "", 3: "do_wait"} {
		if s, err := f.Task(1, tid).Wchan(); s != want || err != nil {
			t.Errorf("thread %d is blocked in %q, %v; want %q", tid, s, err, want)
		}
	}
	if s, err := f.Task(1, 2).Comm(); s != "a b\n" || err != nil { // only the last newline is the kernel's
		t.Errorf("name %q, %v", s, err)
	}
	if args, err := f.Cmdline(1); args != nil || err != nil {
		t.Errorf("no arguments: %q, %v", args, err)
	}
	for pid, want := range map[int]uint32{1: 0x40000, 2: 1<<32 - 1} { // ADDR_NO_RANDOMIZE (include/uapi/linux/personality.h), all
		if n, err := f.Personality(pid); n != want || err != nil {
			t.Errorf("personality %#x, %v; want %#x", n, err, want)
		}
	}
	for _, pid := range []int{3, 4} {
		var syntax *SyntaxError
		if n, err := f.Personality(pid); n != 0 || !errors.As(err, &syntax) || syntax.File != "personality" || syntax.Line != 1 {
			t.Errorf("personality %#x, %v", n, err)
		}
	}
}

// TestLinks: what the links of a process lead to.
func TestLinks(t *testing.T) {
	f := folder(t, map[string]string{"1/fd/x": "", "1/ns/x": "", "2/x": ""})
	for name, to := range map[string]string{"1/fd/3": "pipe:[12]", "1/ns/net": "net:[4026531840]", "1/exe": "/a b (deleted)", "2/exe": "/a"} {
		if err := os.Symlink(to, filepath.Join(f.Root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := f.Link(1, 3); to != "pipe:[12]" || err != nil {
		t.Errorf("descriptor 3: %s, %v", to, err)
	}
	if to, err := f.Namespace(1, "net"); to != "net:[4026531840]" || err != nil {
		t.Errorf("namespace: %s, %v", to, err)
	}
	for pid, want := range map[int]string{1: "/a b", 2: "/a"} {
		if exe, deleted, err := f.Exe(pid); exe != want || deleted != (pid == 1) || err != nil {
			t.Errorf("executable %s, deleted %v, %v; want %s", exe, deleted, err, want)
		}
	}
	if _, _, err := f.Exe(3); !Gone(err) {
		t.Errorf("the executable of nobody: %v", err)
	}
}

// TestFilesAreClosed: no reader leaves a descriptor open.
func TestFilesAreClosed(t *testing.T) {
	open := func() []string {
		list, err := filepath.Glob("/proc/self/fd/*")
		if err != nil || len(list) == 0 {
			t.Skip("no /proc/self/fd on this system")
		}
		return list
	}
	f := folder(t, map[string]string{"1/status": "x", "1/task/2/stat": "2 (a) S", "1/task/2/comm": "a"})
	before := open()
	for range 5 {
		f.Status(1)
		f.Task(1, 2).Comm()
		if ids, err := f.TaskIDs(1); !slices.Equal(ids, []int{2}) || err != nil {
			t.Fatalf("threads %v, %v", ids, err)
		}
		if ids, err := f.PIDs(); !slices.Equal(ids, []int{1}) || err != nil {
			t.Fatalf("processes %v, %v", ids, err)
		}
	}
	if after := open(); len(after) > len(before) {
		t.Errorf("descriptors %v, and %v before", after, before)
	}
}

// TestLongFolder: a folder that takes several reads (of 16 KiB, in which a name of four digits has 24 bytes) is listed whole.
func TestLongFolder(t *testing.T) {
	f := folder(t, map[string]string{"x": ""})
	var want []int
	for id := range 700 {
		want = append(want, 1000+id)
		if err := os.Mkdir(f.Path(1000+id), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.PIDs()
	if slices.Sort(got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d of 700 are listed, %v", len(got), err)
	}
}

// TestNoFolder: what is not there, or not open any more, has no threads.
func TestNoFolder(t *testing.T) {
	if ids, err := (FS{Root: filepath.Join(t.TempDir(), "none")}).PIDs(); err == nil || ids != nil {
		t.Errorf("processes %v without a folder", ids)
	}
	f := folder(t, map[string]string{"1/task/2/stat": "", "3/task": ""})
	if ids, err := f.TaskIDs(3); err == nil || len(ids) > 0 {
		t.Errorf("threads %v in a file", ids)
	}
	if tid, err := f.LiveTask(2); !Gone(err) || tid != 0 {
		t.Errorf("thread %d of nobody, %v", tid, err)
	}
}

// stat is a stat file with these state and flags.
func stat(state string, flags int) string {
	return fmt.Sprintf("2 (a) %s 1 1 1 0 -1 %d%s\n", state, flags, strings.Repeat(" 0", 43))
}

// TestLiveTask: a thread that exits or has exited is not taken, whatever the order.
func TestLiveTask(t *testing.T) {
	for _, tt := range []struct {
		states string // of threads 2, 3, …; e: runs, and exits
		want   int    // 0: none
	}{{"SS", 2}, {"ZS", 3}, {"XR", 3}, {"ZX", 0}, {"X", 0}, {"?Zt", 4}, {"eS", 3}, {"e", 0}} {
		files := map[string]string{}
		for i, state := range tt.states {
			text := stat(string(state), 0)
			if state == 'e' {
				text = stat("R", FlagExiting)
			}
			files[filepath.Join("1/task", string(rune('2'+i)), "stat")] = text
		}
		f := folder(t, files)
		tid, err := f.LiveTask(1)
		// A folder of a file system lists in any order.
		if tt.want == 2 && tid == 3 {
			tid = 2
		}
		if tid != tt.want || errors.Is(err, fs.ErrNotExist) != (tt.want == 0) {
			t.Errorf("%s: %d, %v; want %d", tt.states, tid, err, tt.want)
		}
	}
}

// TestPermission: each fact comes from its own line or file.
func TestPermission(t *testing.T) {
	me, group := os.Geteuid(), os.Getegid()
	const status = "Name:\ta\nState:\tS\nTgid:\t7\nPid:\t7\nTracerPid:\t0\nUid:\t11\t12\t13\t14\nGid:\t21\t22\t23\t24\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Permission
	}{
		{"nothing there", nil, Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1}},
		{"capable", map[string]string{"self/status": "State:\tR\nTgid:\t1\nPid:\t1\nCapEff:\t0000000000080000\n"},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Capable: true}},
		{"all capabilities but that", map[string]string{"self/status": "State:\tR\nTgid:\t1\nPid:\t1\nCapEff:\tfffffffffff7ffff\n"},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1}},
		{"a process", map[string]string{"7/status": status},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Exists: true, UID: [3]int{11, 12, 13}, GID: [3]int{21, 22, 23}}},
		{"a traced zombie", map[string]string{"7/status": "State:\tZ\nTgid:\t7\nPid:\t7\nTracerPid:\t5\n"},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Exists: true, TracerPID: 5, Zombie: true}},
		{"a thread", map[string]string{"7/status": "State:\tS\nTgid:\t6\nPid:\t7\n"},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Exists: true, ThreadOf: 6}},
		{"files of another than its user", map[string]string{"7/status": status, "7/task/7/stat": stat("S", 0), "7/task/7/maps": ""},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Exists: true, UID: [3]int{11, 12, 13}, GID: [3]int{21, 22, 23}, NotDumpable: true}},
		{"files that cannot be asked", map[string]string{"7/status": status, "7/task/7/stat": stat("S", 0)},
			Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: -1, Exists: true, UID: [3]int{11, 12, 13}, GID: [3]int{21, 22, 23}}},
		{"yama", map[string]string{"sys/kernel/yama/ptrace_scope": "2\n"}, Permission{PID: 7, OwnUID: me, OwnGID: group, PtraceScope: 2}},
	} {
		if got := folder(t, tt.files).Permission(7); got != tt.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, tt.want)
		}
	}
	own := strings.Replace(status, "12", strconv.Itoa(me), 1)
	if p := folder(t, map[string]string{"7/status": own, "7/task/7/stat": stat("S", 0), "7/task/7/maps": ""}).Permission(7); p.NotDumpable {
		t.Error("a process whose files are its user's cannot be traced by that")
	}
	for text, want := range map[string]int{"0\n": 0, "1": 1, "3\n": 3, "4\n": -1, "": -1, "x": -1} {
		if got := folder(t, map[string]string{"sys/kernel/yama/ptrace_scope": text}).Permission(7).PtraceScope; got != want {
			t.Errorf("ptrace_scope %q: %d, want %d", text, got, want)
		}
	}
}
