package procfs

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestOwnProcess reads every file of the test's own process.
func TestOwnProcess(t *testing.T) {
	var f FS
	pid := os.Getpid()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := syscall.Gettid()

	status, err := f.Status(tid)
	if err != nil || status.Pid != tid || status.Tgid != pid || status.PPid != os.Getppid() || status.UID[1] != os.Geteuid() {
		t.Errorf("Status(%d) = %+v, %v", tid, status, err)
	}
	stat, err := f.Task(pid, tid).Stat()
	if err != nil || stat.PID != tid || stat.State != 'R' || stat.NoUserStack() || stat.Comm != status.Name {
		t.Errorf("TaskStat(%d) = %+v, %v", tid, stat, err)
	}
	if s, err := f.Stat(pid); err != nil || s.PPID != os.Getppid() || s.StartTicks == 0 {
		t.Errorf("Stat = %+v, %v", s, err)
	}
	if ids, err := f.TaskIDs(pid); err != nil || !slices.Contains(ids, tid) || !slices.Contains(ids, pid) {
		t.Errorf("TaskIDs = %v, %v; want %d in it", ids, err, tid)
	}
	if pids, err := f.PIDs(); err != nil || !slices.Contains(pids, pid) {
		t.Errorf("PIDs = %v, %v; want %d in it", pids, err, pid)
	}
	if live, err := f.LiveTask(pid); err != nil || live != pid {
		t.Errorf("LiveTask = %d, %v; want %d", live, err, pid)
	}
	if c, err := f.Task(pid, tid).Comm(); err != nil || c != stat.Comm {
		t.Errorf("Comm = %q, %v; stat has %q", c, err, stat.Comm)
	}
	if args, err := f.Cmdline(pid); err != nil || !slices.Equal(args, os.Args) {
		t.Errorf("Cmdline = %q, %v; want %q", args, err, os.Args)
	}
	want, _ := os.Executable()
	if exe, deleted, err := f.Exe(pid); err != nil || exe != want || deleted {
		t.Errorf("Exe = %q, %v, %v; want %q", exe, deleted, err, want)
	}
	if p := f.Permission(pid); !p.Exists || p.UID[1] != os.Geteuid() || p.ThreadOf != 0 || p.Zombie {
		t.Errorf("Permission = %+v", p)
	}
}

// TestOwnCode finds the address of a function in maps, and the vDSO of maps in
// the auxiliary vector.
func TestOwnCode(t *testing.T) {
	var f FS
	maps, err := f.Maps(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	pc, _, _, _ := runtime.Caller(0)
	i := slices.IndexFunc(maps, func(m Mapping) bool { return m.Start <= uint64(pc) && uint64(pc) < m.End })
	if i < 0 || maps[i].Perms&Exec == 0 || !maps[i].File() {
		t.Errorf("%#x is in no executable mapping of a file", pc)
	}
	if !slices.IsSortedFunc(maps, func(a, b Mapping) int { return int(int64(a.Start>>1) - int64(b.Start>>1)) }) {
		t.Error("maps are not sorted")
	}
	aux, err := f.Auxv(os.Getpid(), binary.NativeEndian, 8)
	if err != nil {
		t.Fatal(err)
	}
	a := slices.IndexFunc(aux, func(e Aux) bool { return e.Type == AuxSysinfoEhdr })
	exe, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	value := map[uint64]uint64{}
	for _, e := range aux {
		value[e.Type] = e.Value
	}
	const phdrBytes = 56 // sizeof(Elf64_Phdr)
	if value[AuxPhnum] != uint64(len(exe.Progs)) || value[AuxPhent] != phdrBytes || value[AuxPagesz] != uint64(os.Getpagesize()) {
		t.Errorf("of %d program headers and pages of %d bytes %v tells otherwise", len(exe.Progs), os.Getpagesize(), aux)
	}
	if bias := value[AuxEntry] - exe.Entry; bias%uint64(os.Getpagesize()) != 0 {
		t.Errorf("entry %#x, in the file %#x", value[AuxEntry], exe.Entry)
	}
	if value[AuxPhdr]%uint64(os.Getpagesize()) != 64 { // behind the ELF header
		t.Errorf("%v has the program headers elsewhere", aux)
	}
	interp := slices.ContainsFunc(exe.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if base, ok := value[AuxBase]; !ok || interp != slices.ContainsFunc(maps, func(m Mapping) bool { return m.Start == base && m.File() }) {
		t.Errorf("an interpreter at %#x, %v: the file asks for one: %v", base, ok, interp)
	}
	v := slices.IndexFunc(maps, func(m Mapping) bool { return m.Path == "[vdso]" })
	if (a < 0) != (v < 0) || a >= 0 && aux[a].Value != maps[v].Start {
		t.Errorf("vDSO: entry %d of %v, mapping %d", a, aux, v)
	}
}

// TestBlockedThread compares the system call line of a thread that waits in
// read(2) with what it called.
func TestBlockedThread(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tids := make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tids <- syscall.Gettid()
		var b [1]byte
		syscall.Read(int(r.Fd()), b[:]) // Fd makes it a blocking descriptor
		tids <- 0
	}()
	tid, f := <-tids, FS{}
	defer func() { w.Close(); <-tids }()
	for {
		s, err := f.Task(os.Getpid(), tid).Syscall()
		if os.IsPermission(err) {
			t.Skip("no /proc/PID/syscall on this machine")
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.NR == syscall.SYS_READ && s.Args[2] == 1 {
			if s.SP == 0 || s.PC == 0 {
				t.Errorf("no registers in %+v", s)
			}
			break
		}
		runtime.Gosched()
	}
	before, err := f.Task(os.Getpid(), tid).Schedstat()
	if err != nil {
		t.Fatal(err)
	}
	if after, err := f.Task(os.Getpid(), tid).Schedstat(); err != nil || after.Count != before.Count {
		t.Errorf("a blocked thread's count went from %d to %d (%v)", before.Count, after.Count, err)
	}
}

// TestRenamedMapping maps a file with a newline and a blank in its name, which
// is then deleted.
func TestRenamedMapping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b\nc")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mem, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	for _, deleted := range []bool{false, true} {
		maps, err := FS{}.Maps(os.Getpid(), nil)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(maps, func(m Mapping) bool { return strings.HasSuffix(m.Path, "a b\nc") })
		if i < 0 || maps[i].Path != path || maps[i].Deleted != deleted {
			t.Errorf("deleted=%v: %q is not in maps", deleted, path)
		}
		os.Remove(path)
	}
}

// TestListingReusesRoom: the threads of a target are listed again and
// again.
func TestListingReusesRoom(t *testing.T) {
	pid := os.Getpid()
	ids, err := FS{}.TaskIDs(pid)
	if err != nil || !slices.Contains(ids, pid) {
		t.Fatalf("%v, %v", ids, err)
	}
	const times = 50
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if _, err := (FS{}).TaskIDs(pid); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector has a sync.Pool forget one in four.
	if used, most := int(after.TotalAlloc-before.TotalAlloc)/times, 16*len(ids)+direntBytes/2; used > most {
		t.Errorf("%d bytes a listing of %d threads, want %d at most", used, len(ids), most)
	}
}
