package procfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// With this variable set the test binary waits until its standard input ends.
const waitsEnv = "SFSAMPLE_PROCFS_WAITS"

func init() {
	if os.Getenv(waitsEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

// TestKept: files that stay open say what those opened anew say, no more stay open than there is room for, and those of a process that
// has been reaped say that it is gone.
func TestKept(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), waitsEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var f FS
	k := f.Keep(1)
	task := k.Task(pid, pid)
	for i := range 3 {
		before, err := task.Schedstat()
		if err != nil || before.Count == 0 {
			t.Fatalf("%+v, %v", before, err)
		}
		if _, err := task.Syscall(); err != nil && !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		if i > 0 && (task.fds[0] == 0 || task.fds[1] != 0 || k.room.Load() != 0) {
			t.Errorf("open are %v, room is left for %d", task.fds, k.room.Load())
		}
	}
	if after, err := f.Task(pid, pid).Schedstat(); err != nil {
		t.Error(err)
	} else if now, err := task.Schedstat(); err != nil || now.Count < after.Count {
		t.Errorf("%+v, %v after %+v: an old text", now, err, after)
	}
	_, stackErr := f.Task(pid, pid).Stack()
	for _, folders := range []int{1, 0} { // with an open folder, and by paths
		k.Close()
		k.most = folders
		task := k.Task(pid, pid)
		if open := task.folder.fd >= 0; open != (folders > 0) {
			t.Errorf("room for %d folders, one is open: %v", folders, open)
		}
		if s, err := task.Stat(); err != nil || s.PID != pid || s.PPID != os.Getpid() {
			t.Errorf("%+v, %v", s, err)
		}
		frames, err := 0, stackErr
		for end := time.Now().Add(time.Minute); err == nil && frames == 0 && time.Now().Before(end); { // while it runs it has none
			var text []byte
			if text, err = task.RawStack(make([]byte, 1)); err == nil {
				list, _ := ParseStack(text)
				frames = len(list)
			}
		}
		if (err == nil) != (stackErr == nil) || err == nil && frames == 0 {
			t.Errorf("%d frames of the kernel, %v; by path %v", frames, err, stackErr)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if s, err := task.Schedstat(); !Gone(err) || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("of a process that is gone: %+v, %v", s, err)
	}
	if s, err := task.Stat(); !Gone(err) {
		t.Errorf("of a process that is gone: %+v, %v", s, err)
	}
	task.Close()
	if task.fds != [2]int{} || k.room.Load() != 1 {
		t.Errorf("open are %v, room is left for %d", task.fds, k.room.Load())
	}
}

// openBelow counts the open files of a folder, and tells of those that programs which we start would have.
func openBelow(t *testing.T, root string) (n int) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Error(err)
	}
	list, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range list {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, root) {
			n++
			nr, _ := strconv.Atoi(filepath.Base(fd))
			if flags, err := unix.FcntlInt(uintptr(nr), unix.F_GETFD, 0); flags != unix.FD_CLOEXEC {
				t.Errorf("%s: flags %d, %v: programs that we start have it", to, flags, err)
			}
		}
	}
	return n
}

// TestKeptFolder: which files stay open, and are closed.
func TestKeptFolder(t *testing.T) {
	f := folder(t, map[string]string{"1/task/2/schedstat": "1 2 3\n", "1/task/2/syscall": "running\n", "1/task/2/stat": stat("S", 0), "1/task/2/stack": "",
		"1/task/5/schedstat/x": "", "3/task/4/schedstat": "4 5 6\n"})
	opened := func() int { return openBelow(t, f.Root) }
	k := f.Keep(1)
	k.most = 1
	a, b, none := k.Task(1, 2), k.Task(3, 4), k.Task(7, 7)
	if again := k.Task(1, 9); again.folder != a.folder || a.folder.fd < 0 || b.folder.fd != -1 || none.folder.fd != -1 || opened() != 1 {
		t.Errorf("folders %d, %d, %d, room for one; %d files are open", a.folder.fd, b.folder.fd, none.folder.fd, opened())
	}
	read := func(task *TaskFiles, want time.Duration, files int) {
		t.Helper()
		if s, err := task.Schedstat(); err != nil || s.Run != want {
			t.Errorf("thread %d: %+v, %v; want %d", task.task.tid, s, err, want)
		}
		if got := opened(); got != files {
			t.Errorf("%d files are open, want %d", got, files)
		}
	}
	read(&a, 1, 2)
	read(&b, 4, 2) // no room
	if err := os.WriteFile(f.Path(1, "task/2/schedstat"), []byte("7 8 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	read(&a, 7, 2) // from its beginning
	if s, err := a.Syscall(); !s.Running || err != nil || opened() != 2 {
		t.Errorf("call %+v, %v; %d files are open", s, err, opened())
	}
	if s, err := a.Stat(); s.PID != 2 || err != nil || opened() != 2 {
		t.Errorf("stat %+v, %v; %d files are open", s, err, opened())
	}
	if err := os.Remove(f.Path(1, "task/2/schedstat")); err != nil {
		t.Fatal(err)
	}
	read(&a, 7, 2) // it stays that thread's
	a.Close()
	a.Close()
	if k.room.Load() != 1 || opened() != 1 {
		t.Errorf("room for %d, %d files are open", k.room.Load(), opened())
	}
	lost := k.Task(1, 5)
	for path, err := range map[string]error{
		"open 1/task/2/schedstat": second(a.Schedstat()), "open 3/task/4/syscall": second(b.Syscall()), "open 3/task/4/stat": second(b.Stat()),
		"open 3/task/4/stack": second(b.RawStack(nil)), "open 7/task/7/stat": second(none.Stat()), "read 1/task/5/schedstat": second(lost.Schedstat()),
	} {
		op, name, _ := strings.Cut(path, " ")
		var bad *fs.PathError
		if !errors.As(err, &bad) || bad.Op != op || bad.Path != filepath.Join(f.Root, name) {
			t.Errorf("%s: %v", path, err)
		}
	}
	lost.Close()
	k.Close()
	if opened() != 0 || a.folder.fd != -1 {
		t.Errorf("%d files are open", opened())
	}
	if c := k.Task(1, 2); c.folder == a.folder || c.folder.fd < 0 {
		t.Error("a folder is not opened anew")
	}
	k.Close()
}

func second[T any](_ T, err error) error { return err }

// TestKeep: no more files are kept than are asked for, and no more than half of those that may be open; and folders an eighth of
// these, 256 at most.
func TestKeep(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	for limit, folders := range map[uint64]int{800: 100, 807: 100, 808: 101, was.Cur: min(256, int(was.Cur/8))} {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		half := int64(limit / 2)
		for most, want := range map[int]int64{0: 0, 3: 3, int(half): half, int(half) + 1: half, 2 * int(half): half, 5 * int(half): half} {
			if k := (FS{}).Keep(most); k.room.Load() != want || k.most != folders {
				t.Errorf("of at most %d, with %d that may be open, %d are kept and %d folders, want %d and %d", most, limit, k.room.Load(), k.most, want, folders)
			}
		}
	}
}

// TestSplit: each of n is in one part, and there are no more parts than CPUs, nor than one for each 32.
func TestSplit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	if Parts() != 4 || runtime.GOMAXPROCS(0) != 4 {
		t.Errorf("%d parts on 4 CPUs", Parts())
	}
	for n, want := range map[int]int{0: 1, 1: 1, 31: 1, 32: 2, 95: 3, 96: 4, 5*32 + 3: 4, 1000: 4} {
		seen := make([]int, n)
		var mu sync.Mutex
		sizes := map[int]int{}
		Split(n, func(part, from, to int) {
			mu.Lock()
			defer mu.Unlock()
			sizes[part] = to - from
			for i := from; i < to; i++ {
				seen[i]++
			}
		})
		for part := range want {
			if size, ok := sizes[part]; !ok || len(sizes) != want || size != n/want && size != (n+want-1)/want {
				t.Errorf("%d in parts of %v, want %d even ones", n, sizes, want)
			}
		}
		for i, times := range seen {
			if times != 1 {
				t.Errorf("of %d, %d is in %d parts", n, i, times)
			}
		}
	}
}

// TestKeptBusy: a thread's call is not read while it runs in a state of sleep.
func TestKeptBusy(t *testing.T) {
	const asleep = "7 0x1 0x2 0x0 0x0 0x0 0x0 0x7ffc00000000 0x7f0000000000\n"
	f := folder(t, map[string]string{"1/task/1/wchan": "0", "1/task/1/stat": stat("S", 0), "1/task/1/schedstat": "1 2 3\n", "1/task/1/syscall": asleep,
		"1/task/2/wchan": "do_wait", "1/task/2/syscall": asleep})
	k := f.Keep(9)
	defer k.Close()
	spins, waits := k.Task(1, 1), k.Task(1, 2)
	defer spins.Close()
	defer waits.Close()
	is := func(what string, running bool) {
		t.Helper()
		if s, err := spins.Syscall(); err != nil || s.Running != running {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
	runs := func() (stop func()) {
		file, err := os.OpenFile(f.Path(1, "task/1/schedstat"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			defer file.Close()
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				default:
					_, _ = file.WriteAt([]byte(strconv.Itoa(1+i%9)), 0)
				}
			}
		}()
		return func() { close(end); <-ended }
	}
	stop := runs()
	is("a kernel that tells of nobody where it waits", false)
	if s, err := waits.Syscall(); err != nil || s.NR != 7 {
		t.Errorf("a thread that waits: %+v, %v", s, err)
	}
	is("it runs", true)
	looked := k.pauses.Swap(mostPauses)
	is("there was much to wait for", false)
	if k.pauses.Store(looked); looked < 1 || looked >= busyLooks {
		t.Errorf("%d pauses for one thread", looked)
	}
	stop()
	is("it does not run", false)
	if err := os.WriteFile(f.Path(1, "task/1/stat"), []byte(stat("R", 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	stop = runs()
	defer stop()
	is("its state says that it runs, and so will its file", false)
}
