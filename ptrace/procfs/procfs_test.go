package procfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func TestParseMaps(t *testing.T) {
	tests := []struct {
		name, line string
		want       Mapping
	}{
		{"text", "55d4e5a00000-55d4e5a2f000 r-xp 00002000 fe:01 1573034                    /usr/bin/bash",
			Mapping{Start: 0x55d4e5a00000, End: 0x55d4e5a2f000, Perms: Read | Exec, Offset: 0x2000,
				Dev: Dev{0xfe, 1}, Inode: 1573034, Path: "/usr/bin/bash"}},
		{"anonymous, blank at the end", "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ",
			Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Perms: Read | Write}},
		{"anonymous, no blank", "7f0000000000-7f0000001000 ---p 00000000 00:00 0",
			Mapping{Start: 0x7f0000000000, End: 0x7f0000001000}},
		{"shared memory", "10000-11000 rw-s 00000000 00:01 9 /dev/zero (deleted)",
			Mapping{Start: 0x10000, End: 0x11000, Perms: Read | Write | Shared, Dev: Dev{0, 1}, Inode: 9,
				Path: "/dev/zero", Deleted: true}},
		{"vsyscall at the top", "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
			Mapping{Start: 0xffffffffff600000, End: 0xffffffffff601000, Perms: Exec, Path: "[vsyscall]"}},
		{"32-bit", "08048000-08049000 r-xp 00000000 08:01 12 /bin/a",
			Mapping{Start: 0x8048000, End: 0x8049000, Perms: Read | Exec, Dev: Dev{8, 1}, Inode: 12, Path: "/bin/a"}},
		{"newline and blanks in the name", `1000-2000 r--p 00000000 08:01 12 /tmp/a b\012c  d`,
			Mapping{Start: 0x1000, End: 0x2000, Perms: Read, Dev: Dev{8, 1}, Inode: 12, Path: "/tmp/a b\nc  d"}},
		{"backslash stays", `1000-2000 r--p 00000000 08:01 12 /tmp/a\b`,
			Mapping{Start: 0x1000, End: 0x2000, Perms: Read, Dev: Dev{8, 1}, Inode: 12, Path: `/tmp/a\b`}},
		{"large minor, offset and inode", "1000-2000 r--p 123456789000 103:fffff 18446744073709551615 /x",
			Mapping{Start: 0x1000, End: 0x2000, Perms: Read, Offset: 0x123456789000, Dev: Dev{0x103, 0xfffff},
				Inode: 1<<64 - 1, Path: "/x"}},
		{"anonymous with a name like a deleted file", "1000-2000 r--p 00000000 00:00 0 [anon:x (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Perms: Read, Path: "[anon:x (deleted)"}},
		{"a file that its server numbers 0", "1000-2000 r--p 00000000 00:31 0 [x (deleted)",
			Mapping{Start: 0x1000, End: 0x2000, Perms: Read, Dev: Dev{0, 0x31}, Path: "[x", Deleted: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMaps([]byte(tt.line + "\n"))
			if err != nil || len(got) != 1 || got[0] != tt.want {
				t.Errorf("ParseMaps(%q)\n got %+v, %v\nwant %+v", tt.line, got, err, tt.want)
			}
			if file := tt.want.Dev != (Dev{}); tt.want.File() != file || tt.want.Pseudo() != (!file && strings.HasPrefix(tt.want.Path, "[")) {
				t.Errorf("%q: of a file %t, by the kernel's name %t", tt.line, tt.want.File(), tt.want.Pseudo())
			}
		})
	}
}

// TestParseMapsRefuses: each field of a line, damaged, by the format of proc_pid_maps(5).
func TestParseMapsRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"": "bad start address",
		"10000000000000000-20000000000000000 r-xp 00000000 00:00 0": "bad start address",
		"1000 2000 r-xp 00000000 00:00 0":                           "no - between addresses",
		"1000-x r-xp 00000000 00:00 0":                              "bad end address",
		"2000-1000 r-xp 00000000 00:00 0":                           "end is not above start",
		"2000-2000 r-xp 00000000 00:00 0":                           "end is not above start",
		"1000-2000 x-rp 00000000 00:00 0":                           "bad permissions",
		"1000-2000 r-x- 00000000 00:00 0":                           "bad permissions",
		"1000-2000_r-xp 00000000 00:00 0":                           "bad permissions",
		"1000-2000 r-x":                                             "bad permissions",
		"1000-2000 r-xp":                                            "no offset",
		"1000-2000 r-xp_00000000 00:00 0":                           "no offset",
		"1000-2000 r-xp x 00:00 0":                                  "bad offset",
		"1000-2000 r-xp 00000000_00:00 0":                           "bad device",
		"1000-2000 r-xp 00000000 x:0 0":                             "bad device",
		"1000-2000 r-xp 00000000 :0 0":                              "bad device",
		"1000-2000 r-xp 00000000 0 0":                               "bad device",
		"1000-2000 r-xp 00000000 0:x 0":                             "bad device",
		"1000-2000 r-xp 00000000 100000000:0 0":                     "bad device",
		"1000-2000 r-xp 00000000 00:00":                             "no inode",
		"1000-2000 r-xp 00000000 00:00 18446744073709551616":        "bad inode",
		"1000-2000 r-xp 00000000 00:00 5/x":                         "no blank before the path",
	} {
		got, err := ParseMaps([]byte("1000-2000 r-xp 00000000 00:00 0\n" + line + "\n"))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || *syntax != (SyntaxError{"maps", 2, want, line}) || got != nil {
			t.Errorf("ParseMaps with %q = %v, %v; want %s in line 2", line, got, err, want)
		}
	}
}

// TestOneName: mappings of one file have its name once in memory.
func TestOneName(t *testing.T) {
	maps, err := ParseMaps([]byte("1000-2000 r-xp 0 8:1 5 /a\n2000-3000 rw-p 0 8:1 5 /a\n3000-4000 rw-p 0 8:1 6 /b\\012\n4000-5000 rw-p 0 8:1 5 /a\n5000-6000 rw-p 0 8:1 6 /b\\012\n"))
	if err != nil || len(maps) != 5 || maps[0].Path != "/a" || maps[2].Path != "/b\n" {
		t.Fatalf("%v, %v", maps, err)
	}
	for i, of := range []int{0, 0, 2, 0, 2} {
		if unsafe.StringData(maps[i].Path) != unsafe.StringData(maps[of].Path) {
			t.Errorf("%v has a name of its own", maps[i])
		}
	}
}

// TestMappingString: a line of maps, for people.
func TestMappingString(t *testing.T) {
	for _, tt := range []struct {
		m    Mapping
		want string
	}{
		{Mapping{Start: 0x1000, End: 0x2000, Perms: Read | Exec, Offset: 0x300, Dev: Dev{8, 0x1f}, Inode: 12, Path: "/a b"}, "00001000-00002000 r-xp 00000300 08:1f 12 /a b"},
		{Mapping{Start: 0x7f0000000000, End: 0x7f0000001000}, "7f0000000000-7f0000001000 ---p 00000000 00:00 0"},
		{Mapping{End: 1, Inode: 1, Path: "/a\x1f", Deleted: true}, `00000000-00000001 ---p 00000000 00:00 1 "/a\x1f" (deleted)`},
		{Mapping{End: 1, Inode: 1, Path: "/\x7f"}, `00000000-00000001 ---p 00000000 00:00 1 "/\x7f"`},
		{Mapping{End: 1, Inode: 1, Path: "/\x7e\u0100"}, "00000000-00000001 ---p 00000000 00:00 1 /~\u0100"},
	} {
		if got := tt.m.String(); got != tt.want {
			t.Errorf("%+v is %s, want %s", tt.m, got, tt.want)
		}
	}
}

// TestSyntaxErrors: they tell the file and the line in it, and quote 80 bytes at most.
func TestSyntaxErrors(t *testing.T) {
	long := strings.Repeat("x", 81)
	quote := long[1:]
	stat := func(text string) error { _, err := ParseStat([]byte(text)); return err }
	status := func(text string) error { _, err := ParseStatus([]byte(text)); return err }
	stack := func(text string) error { _, err := ParseStack([]byte(text)); return err }
	for _, tt := range []struct {
		parse func(string) error
		text  string
		want  string
	}{
		{func(text string) error { _, err := ParseMaps([]byte(text)); return err }, long, `maps: line 1: bad start address: "` + quote + `"`},
		{stat, long, `stat: line 1: no pid, name and state: "` + quote + `"`},
		{stat, "1 (a) S 2 x", `stat: line 1: bad or missing field: "1 (a) S 2 x"`},
		{status, "Pid:\tx\n", `status: line 1: bad value: "Pid:\tx"`},
		{status, "Pid:\t1\nState:\t\n", `status: line 2: bad value: "State:\t"`},
		{status, "Name:\ta\n\nUid:\t1\n", `status: line 3: bad value: "Uid:\t1"`},
		{status, long, `status: line 1: no Pid, Tgid or State: ""`},
		{func(text string) error { _, err := ParseSchedstat([]byte(text)); return err }, "1 2", `schedstat: line 1: not three numbers: "1 2"`},
		{func(text string) error { _, err := ParseSyscall([]byte(text)); return err }, "1 2", `syscall: line 1: not a number with its arguments, sp and pc: "1 2"`},
		{stack, "[<0>] f+0x1/0x2\n" + long, `stack: line 2: not a kernel frame: "` + quote + `"`},
	} {
		if err := tt.parse(tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("%q: %v\nwant %s", tt.text, err, tt.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	const line = " S 1 4321 4321 34816 4400 4194560 1521 30 2 3 250 150 7 8 20 0 3 0 98765 236019712 " +
		"1333 18446744073709551615 1 1 140736 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0\n"
	for _, comm := range []string{"bash", "a) R 1 (b", "((", "))) S 7", "", "x y", "new\\nline", `back\\slash`} {
		t.Run(comm, func(t *testing.T) {
			got, err := ParseStat([]byte("4321 (" + comm + ")" + line))
			if err != nil {
				t.Fatal(err)
			}
			want := Stat{PID: 4321, Comm: unescape([]byte(comm)), State: 'S', PPID: 1, Flags: 4194560, Faults: 1521 + 2,
				UTime: 2500 * time.Millisecond, STime: 1500 * time.Millisecond, Reaped: (7 + 8) * 10 * time.Millisecond, Threads: 3, StartTicks: 98765,
				StartStack: 140736, Processor: 5}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			want.RealTime = true
			if got, err = ParseStat([]byte("4321 (" + comm + ")" + strings.Replace(line, " 20 0 3 ", " -2 0 3 ", 1))); err != nil || got != want {
				t.Errorf("real time: got  %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

func TestParseStatRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"empty":            "",
		"no name":          "12 S 1",
		"parentheses":      "12 )( S 1",
		"no state":         "12 (a)",
		"too few fields":   "12 (a) S 1 2 3",
		"letters":          "12 (a) S 1 2 x",
		"pid of 33 bits":   "4294967296 (a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
		"state not letter": "12 (a) ? 1",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseStat([]byte(line)); err == nil {
				t.Errorf("ParseStat(%q) = %+v, want an error", line, got)
			}
		})
	}
}

func TestNoUserStack(t *testing.T) {
	// Flags as Linux 6.18 shows them: kthreadd, an io_uring worker, a shell.
	for flags, want := range map[uint64]bool{0x208040: true, 0x404050: true, 0x400100: false} {
		if got := (&Stat{Flags: flags}).NoUserStack(); got != want {
			t.Errorf("NoUserStack with flags %#x = %v, want %v", flags, got, want)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const text = "Pid\nName:\tweird\\nname\\\\\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t100\nNgid:\t0\nPid:\t102\n" +
		"PPid:\t1\nTracerPid:\t77\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nNSpid:\t102\t12\t1\nThreads:\t4\n" +
		"SigCgt:\t0000000000010002\nCapEff:\t000001ffffffffff\nSeccomp:\t2\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n"
	got, err := ParseStatus([]byte(text))
	want := Status{Name: "weird\nname\\", State: 'S', Tgid: 100, Pid: 102, PPid: 1, TracerPid: 77, Switches: 695,
		UID: [4]int{1000, 1001, 1002, 1003}, GID: [4]int{5, 6, 7, 8}, NSpid: []int{102, 12, 1}, Threads: 4,
		CapEff: 0x1ffffffffff, Caught: 0x10002, Seccomp: 2}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}

func TestParseStatusRefuses(t *testing.T) {
	const good = "State:\tS\nTgid:\t100\nPid:\t102\n"
	for name, text := range map[string]string{
		"empty":          "",
		"no state":       "Tgid:\t100\nPid:\t102\n",
		"empty state":    "State:\t\nTgid:\t100\nPid:\t102\n",
		"pid a word":     "State:\tS\nTgid:\t100\nPid:\tx\n",
		"two uids":       good + "Uid:\t1\t2\n",
		"endless NSpid":  good + "NSpid:" + strings.Repeat("\t1", 100) + "\n",
		"cap. no number": good + "CapEff:\tzz\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := ParseStatus([]byte(text)); err == nil {
				t.Errorf("ParseStatus(%q) = %+v, want an error", text, got)
			}
		})
	}
}

func TestParseSchedstat(t *testing.T) {
	got, err := ParseSchedstat([]byte("17216063 2505 42\n"))
	if want := (Schedstat{17216063, 2505, 42}); got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1 2", "1 2 x", "-1 2 3", "18446744073709551615 1 1", "99999999999999999999 1 1"} {
		if got, err := ParseSchedstat([]byte(bad)); err == nil {
			t.Errorf("ParseSchedstat(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseSyscall(t *testing.T) {
	tests := []struct {
		name, text string
		want       Syscall
	}{
		{"running", "running\n", Syscall{Running: true, NR: -1}},
		{"in a call", "232 0x4 0x7ffe 0x2 0xffffffffffffffff 0x0 0x8 0x7ffe11 0x7f22\n",
			Syscall{NR: 232, Args: [6]uint64{4, 0x7ffe, 2, 1<<64 - 1, 0, 8}, SP: 0x7ffe11, PC: 0x7f22}},
		{"in a page fault", "-1 0x7ffe11 0x7f22\n", Syscall{NR: -1, SP: 0x7ffe11, PC: 0x7f22}},
		{"zombie", "-1 0x0 0x0\n", Syscall{NR: -1}},
		{"call number 0", "0 0x3 0x1 0x2 0x0 0x0 0x0 0x10 0x20\n",
			Syscall{Args: [6]uint64{3, 1, 2}, SP: 0x10, PC: 0x20}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := ParseSyscall([]byte(tt.text)); got != tt.want || err != nil {
				t.Errorf("ParseSyscall(%q)\n got %+v, %v\nwant %+v", tt.text, got, err, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "run", "runningly", "5", "5 0x1 0x2 0x3 0x4 0x5 0x6 0x7", "-1 0x1", "-1 1 2", "x 0x1 0x2"} {
		if got, err := ParseSyscall([]byte(bad)); err == nil {
			t.Errorf("ParseSyscall(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseStack(t *testing.T) {
	got, err := ParseStack([]byte("[<0>] do_epoll_wait+0x683/0x7a0\n[<0>] fuse_get_req+0x1c/0x30 [fuse]\n" +
		"[<0>] g+0x1/0x2 [m]\n[<0>] g+0x1/0x2 []\n[<0>] 0xffffffffc0001234\n[<0>] __x64_sys_nanosleep+0x10/0x90\n"))
	want := []KernelFrame{{"do_epoll_wait", 0x683, 0x7a0, ""}, {"fuse_get_req", 0x1c, 0x30, "fuse"},
		{"g", 1, 2, "m"}, {"g", 1, 2, ""}, {"0xffffffffc0001234", 0, 0, ""}, {"__x64_sys_nanosleep", 0x10, 0x90, ""}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	for _, bad := range []string{"x", "[<0>]", "[<0>] ", "[<0>] f+x/0x1", "[<0>] +0x1/0x2"} {
		if got, err := ParseStack([]byte(bad + "\n")); err == nil {
			t.Errorf("ParseStack(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseAuxv(t *testing.T) {
	le32 := []byte{3, 0, 0, 0, 0x34, 0x80, 4, 8, 9, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7}
	be64 := []byte{0, 0, 0, 0, 0, 0, 0, 33, 0, 0, 3, 0xff, 0, 0, 0, 0, 1, 2, 3}
	if got, want := ParseAuxv(le32, binary.LittleEndian, 4), []Aux{{AuxPhdr, 0x8048034}, {AuxEntry, 0x4030201}}; !reflect.DeepEqual(got, want) {
		t.Errorf("little-endian, 32 bits: got %#x, want %#x", got, want)
	}
	for _, bytes := range []int{8, 0} { // a word that is not of 4 bytes has 8
		if got, want := ParseAuxv(be64[:16], binary.BigEndian, bytes), []Aux{{AuxSysinfoEhdr, 0x3ff00000000}}; !reflect.DeepEqual(got, want) {
			t.Errorf("one entry, words of %d bytes: got %#x, want %#x", bytes, got, want)
		}
	}
	// include/uapi/linux/auxvec.h
	if got, want := []uint64{AuxNull, AuxPhdr, AuxPhent, AuxPhnum, AuxPagesz, AuxBase, AuxEntry, AuxSysinfoEhdr}, []uint64{0, 3, 4, 5, 6, 7, 9, 33}; !slices.Equal(got, want) {
		t.Errorf("types %d, want %d", got, want)
	}
	if got := ParseAuxv(bytes.Repeat(le32[:8], 257), binary.LittleEndian, 4); len(got) != 256 {
		t.Errorf("a vector without end: %d entries, want 256", len(got))
	}
	if got, want := ParseAuxv(be64, binary.BigEndian, 8), []Aux{{AuxSysinfoEhdr, 0x3ff00000000}}; !reflect.DeepEqual(got, want) {
		t.Errorf("big-endian, 64 bits, cut: got %#x, want %#x", got, want)
	}
}

// TestHotParsersDoNotAllocate: the sampler calls these for each thread at each
// tick.
func TestHotParsersDoNotAllocate(t *testing.T) {
	sched, call := []byte("17216063 2505 42\n"), []byte("232 0x4 0x7ffe 0x2 0xff 0x0 0x8 0x7ffe11 0x7f22\n")
	n := testing.AllocsPerRun(100, func() {
		if _, err := ParseSchedstat(sched); err != nil {
			t.Fatal(err)
		}
		if _, err := ParseSyscall(call); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestFSOnFolder(t *testing.T) {
	f := FS{Root: "testdata/proc"}
	if s, err := f.Status(4242); err != nil || s.Name != "worker" || s.Seccomp != 2 {
		t.Errorf("Status = %+v, %v", s, err)
	}
	if m, err := f.Maps(4242, nil); err != nil || len(m) != 4 || m[3].Path != "[vdso]" || !m[3].Pseudo() || m[3].File() {
		t.Errorf("Maps = %v, %v", m, err)
	}
	if ids, err := f.TaskIDs(4242); err != nil || len(ids) != 2 {
		t.Errorf("TaskIDs = %v, %v; want 4242 and 4243", ids, err)
	}
	if tid, err := f.LiveTask(4242); tid != 4243 || err != nil {
		t.Errorf("LiveTask = %d, %v; want 4243, as the leader has exited", tid, err)
	}
	if w, err := f.Task(4242, 4243).Wchan(); w != "do_epoll_wait" || err != nil {
		t.Errorf("Wchan = %q, %v", w, err)
	}
	if c, err := f.Cmdline(4242); err != nil || !reflect.DeepEqual(c, []string{"/srv/worker", "-n", "", "4"}) {
		t.Errorf("Cmdline = %q, %v", c, err)
	}
	if c, err := f.Task(4242, 4243).Comm(); c != "pool 1" || err != nil {
		t.Errorf("Comm = %q, %v", c, err)
	}
	if n := f.Permission(4242).PtraceScope; n != 1 {
		t.Errorf("PtraceScope = %d, want 1", n)
	}
	if _, err := f.Maps(1, nil); !Gone(err) {
		t.Errorf("Maps of a process that is not there: %v, want one that Gone knows", err)
	}
}

func TestRemedy(t *testing.T) {
	own := [3]int{1000, 1000, 1000}
	tests := []struct {
		name string
		p    Permission
		want []string // all of them, in this order; nothing: empty
	}{
		{"gone", Permission{}, []string{"no such process"}},
		{"root", Permission{Exists: true, Capable: true, UID: own, PtraceScope: 1}, nil},
		{"thread", Permission{Exists: true, Capable: true, ThreadOf: 7}, []string{"thread of process 7", "-p 7"}},
		{"other user", Permission{Exists: true, OwnUID: 1000, UID: [3]int{0, 0, 0}, PtraceScope: -1},
			[]string{"belongs to uid 0", "we are uid 1000", "root"}},
		{"other group", Permission{Exists: true, OwnUID: 1000, UID: own, OwnGID: 1000, GID: [3]int{1000, 100, 100}, PtraceScope: -1},
			[]string{"1000, 100 and 100", "ours is 1000", "root"}},
		{"set-user-id target", Permission{Exists: true, OwnUID: 1000, UID: [3]int{1000, 0, 0}, PtraceScope: -1},
			[]string{"belongs to uid 0, we are uid 1000", "root"}},
		{"not dumpable", Permission{Exists: true, OwnUID: 1000, UID: own, NotDumpable: true, PtraceScope: 0},
			[]string{"does not let its own user", "root"}},
		{"yama 1", Permission{Exists: true, OwnUID: 1000, UID: own, PtraceScope: 1},
			[]string{"ptrace_scope is 1", "root", "-- COMMAND"}},
		{"yama 3 as root", Permission{Exists: true, Capable: true, PtraceScope: 3}, []string{"ptrace_scope is 3"}},
		{"yama 2", Permission{Exists: true, OwnUID: 1000, UID: own, PtraceScope: 2}, []string{"ptrace_scope is 2", "run as root"}},
		{"ended", Permission{Exists: true, Capable: true, Zombie: true}, []string{"main thread has exited"}},
		{"traced", Permission{Exists: true, Capable: true, TracerPID: 55}, []string{"traced by process 55"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.p.Remedy()
			if len(tt.want) == 0 && got != "" {
				t.Errorf("Remedy = %q, want none", got)
			}
			rest := got
			for _, w := range tt.want {
				i := strings.Index(rest, w)
				if i < 0 {
					t.Fatalf("Remedy = %q, want %q in it", got, w)
				}
				rest = rest[i:]
			}
		})
	}
}

func BenchmarkParseSchedstat(b *testing.B) {
	line := []byte("17216063 2505 42\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSchedstat(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSyscall(b *testing.B) {
	line := []byte("232 0x4 0x7ffe8000 0x2 0xffffffffffffffff 0x0 0x8 0x7ffe11223344 0x7f2211223344\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseSyscall(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseMaps(b *testing.B) {
	text, err := os.ReadFile("testdata/proc/4242/maps")
	if err != nil {
		b.Fatal(err)
	}
	for len(text) < 100<<10 {
		text = append(text, text...)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMaps(text); err != nil {
			b.Fatal(err)
		}
	}
}
