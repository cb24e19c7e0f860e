package procfs

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEdges: what is just let in, and what is just not.
func TestEdges(t *testing.T) {
	fd := func(text string) FDInfo { return ParseFDInfo([]byte(text)) }
	for _, tt := range []struct{ got, want any }{
		{fd("Pid:\t2147483647\n").PID, 1<<31 - 1}, {fd("Pid:\t2147483648\n").PID, 0}, {fd("Pid:\t-1\n").PID, -1}, {fd("Pid:\t-2\n").PID, 0}, {fd("Pid:\tx\n").PID, 0},
		{fd("Pid:\t7\n").PID, 7}, {fd("Pid: 0\n").PID, 0},
		{fd("tfd: 2147483647 events: 1\n").Watched, []Watched{{1<<31 - 1, 1}}}, {fd("tfd: 2147483648 events: 1\n").Watched, []Watched(nil)},
		{fd("tfd: x events: 1\n").Watched, []Watched(nil)}, {fd("tfd: 5 nothing: 1\n").Watched, []Watched(nil)}, {fd("tfd: 5 events: x\n").Watched, []Watched(nil)},
		{fd("tfd: 5 events: 1\npos: 3\n").Pos, int64(3)},
		{fd("it_value: (8589934592, 999999999)\n").Left, 8589934592*time.Second + 999999999}, {fd("it_value: (8589934593, 0)\n").Left, time.Duration(0)},
		{fd("it_value: (1, 1000000000)\n").Left, time.Duration(0)}, {fd("it_value: (x, 1)\n").Left, time.Duration(0)}, {fd("it_value: (1, x)\n").Left, time.Duration(0)},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%#v, want %#v", tt.got, tt.want)
		}
	}
	set := fd(strings.Repeat("tfd: 5 events: 1\n", maxWatched+3))
	if len(set.Watched) != 4096 || set.More != 3 {
		t.Errorf("%d descriptors and %d more, want 4096 and 3", len(set.Watched), set.More)
	}
	for link, want := range map[string]string{"pipe:[12]": "pipe 12 true", "pipe:[12": " ", "pipe:[12]x": " ", ":[12]": " 0 false", "/a:[12]": " 0 false", "a": " 0 false"} {
		kind, n, ok := ParseInode(link)
		if got := fmt.Sprint(kind, " ", n, " ", ok); want == " " && ok || want != " " && got != want {
			t.Errorf("%s: %s, want %s", link, got, want)
		}
	}
}

// TestLockEdges: lines of /proc/locks, byte by byte.
func TestLockEdges(t *testing.T) {
	good := "2147483647: POSIX ADVISORY WRITE 2147483647 fe:01:11691 0 EOF"
	want := FileLock{1<<31 - 1, false, "POSIX", "WRITE", 1<<31 - 1, 0xfe, 1, 11691, "0 EOF"}
	if got := ParseLocks([]byte(good)); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, bad := range []string{"2147483648" + good[10:], strings.Replace(good, "WRITE 2147483647", "WRITE 2147483648", 1), strings.TrimSuffix(good, " EOF"),
		"x" + good, strings.Replace(good, "fe:01:", "fe:01", 1), strings.Replace(good, "WRITE 2", "WRITE x", 1)} {
		if got := ParseLocks([]byte(bad)); got != nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	for pid, want := range map[string]int{"0": -1, "-1": -1, "-7": -1, "1": 1} {
		if got := ParseLocks([]byte("1: OFDLCK ADVISORY READ " + pid + " 0:1:2 0 EOF\n\n2: -> FLOCK ADVISORY READ 9 0:1:2 3 4\n")); len(got) != 2 || got[0].PID != want || !got[1].Waits || got[1].Range != "3 4" {
			t.Errorf("pid %s: %+v, want %d", pid, got, want)
		}
	}
}

// TestLocksWhole: a list that is longer than what is read is told.
func TestLocksWhole(t *testing.T) {
	f := FS{Root: t.TempDir()}
	if _, _, err := f.Locks(); err == nil {
		t.Error("locks without a file")
	}
	line := "1: FLOCK  ADVISORY  WRITE 359 fe:01:11691 0 EOF\n"
	for _, extra := range []int{0, 1} {
		b := append(append(bytes.Repeat([]byte{'x'}, 8<<20-len(line)+extra-1), '\n'), line...)
		if err := os.WriteFile(filepath.Join(f.Root, "locks"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		if list, whole, err := f.Locks(); err != nil || whole != (extra == 0) || len(list) != 1 {
			t.Errorf("%d bytes: %d locks, whole %v, %v", len(b), len(list), whole, err)
		}
	}
}

// TestLeases: leases and delegations, and no other locks.
func TestLeases(t *testing.T) {
	f := FS{Root: t.TempDir()}
	if list, whole, err := f.Leases(); err == nil || whole || list != nil {
		t.Errorf("leases without a file: %v, whole %v", list, whole)
	}
	text := "1: LEASE  ACTIVE    READ  5 fe:01:7 0 EOF\n2: POSIX  ADVISORY  WRITE 6 fe:01:8 0 EOF\n3: DELEG  BREAKING  WRITE 7 fe:01:9 0 EOF\n"
	if err := os.WriteFile(filepath.Join(f.Root, "locks"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []FileLock{{1, false, "LEASE", "READ", 5, 0xfe, 1, 7, "0 EOF"}, {3, false, "DELEG", "WRITE", 7, 0xfe, 1, 9, "0 EOF"}}
	if list, whole, err := f.Leases(); err != nil || !whole || !reflect.DeepEqual(list, want) {
		t.Errorf("leases %+v, whole %v, %v; want %+v", list, whole, err, want)
	}
}

// TestSocketEdges: lines of net/tcp.
func TestSocketEdges(t *testing.T) {
	at := netip.MustParseAddrPort("1.1.1.1:80")
	line := func(local, state, queue, inode string) string {
		return "0: " + local + " 01010101:0050 " + state + " " + queue + " 00:00000000 00000000 0 0 " + inode + " 1 0\n"
	}
	for state, want := range map[string]string{"01": "ESTABLISHED", "0A": "LISTEN", "0C": "NEW_SYN_RECV", "0D": "", "FF": "", "00": ""} {
		got := ParseSockets([]byte(line("01010101:0050", state, "00000001:0000000A", "77")))
		if len(got) != 1 || got[0] != (Socket{at, at, want, 1, 10, 77}) {
			t.Errorf("state %s: %+v, want %s", state, got, want)
		}
	}
	for _, bad := range []string{
		line("0101010:0050", "01", "0:0", "7"), line("0101010x:0050", "01", "0:0", "7"), line("01010101:10000", "01", "0:0", "7"), line("01010101:005x", "01", "0:0", "7"),
		line("01010101:0050", "x", "0:0", "7"), line("01010101:0050", "01", "00", "7"), line("01010101:0050", "01", "x:0", "7"),
		line("01010101:0050", "01", "0:x", "7"), line("01010101:0050", "01", "0:0", "x"), "0: 01010101:0050 01010101:0050 01 0:0 0 0 0 0\n",
		strings.Replace(line("01010101:0050", "01", "0:0", "7"), " 01010101:0050 01 ", " 0101010:0050 01 ", 1),
	} {
		if got := ParseSockets([]byte(bad)); got != nil {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	if got := ParseSockets([]byte("0: 01010101:0050 01010101:0050 01 0:0 0 0 0 0 7")); len(got) != 1 || got[0].Inode != 7 { // the inode ends it
		t.Errorf("a line of ten words: %+v", got)
	}
	if got := ParseSockets([]byte(line("01010101:FFFF", "01", "0:0", "7"))); len(got) != 1 || got[0].Local.Port() != 65535 {
		t.Errorf("the last port: %+v", got)
	}
}

// TestFamily: files of a process under another root.
func TestFamily(t *testing.T) {
	f := FS{Root: t.TempDir()}
	write := func(name, text string) {
		path := filepath.Join(f.Root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := f.Cgroups(1); err == nil || list != nil {
		t.Errorf("control groups without a file: %v", list)
	}
	if list, err := f.Task(1, 2).Children(); err == nil || list != nil {
		t.Errorf("children without a file: %v", list)
	}
	if at, ok := f.Task(1, 2).LastRan(); ok || at != 0 {
		t.Errorf("run at %v without a file", at)
	}
	if m := f.Mounts(1); m != nil {
		t.Errorf("mounts without a file: %v", m)
	}
	if _, whole, err := f.Sockets(1, "tcp"); err == nil || whole {
		t.Error("sockets without a file")
	}
	write("1/cgroup", "12:cpu,cpuacct:/a:b\n0::/c\nrubbish\n1:x\n")
	if list, err := f.Cgroups(1); err != nil || !reflect.DeepEqual(list, []string{"/a:b", "/c"}) {
		t.Errorf("control groups %q, %v", list, err)
	}
	for text, want := range map[string][]int{"3 4 \n": {3, 4}, "": nil, "3 x 4": {3}, "2147483647 2147483648": {1<<31 - 1}} {
		write("1/task/2/children", text)
		if list, err := f.Task(1, 2).Children(); err != nil || !reflect.DeepEqual(list, want) {
			t.Errorf("children %q: %v, %v, want %v", text, list, err, want)
		}
	}
	for text, want := range map[string]time.Duration{
		"x\nse.exec_start   :   12.000034\n": 12*time.Millisecond + 34, "x\nse.exec_start:8796093022208.000000\n": 8796093022208 * time.Millisecond,
		"x\nse.exec_start:8796093022209.000000\n": -1, "x\nse.exec_start : 12,000034\n": -1, "x\nse.exec_start : 12.00003": -1, "x\nse.exec_start : 12.000034": 12*time.Millisecond + 34,
		"x\nse.exec_start : x.000034": -1, "x\nse.exec_start : 12.x00034": -1, "se.exec": -1,
	} {
		write("1/task/2/sched", text)
		if at, ok := f.Task(1, 2).LastRan(); ok != (want >= 0) || ok && at != want || !ok && text[0] == 's' && at != 0 {
			t.Errorf("%q: run at %v, %v, want %v", text, at, ok, want)
		}
	}
	write("1/mountinfo", "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n1 2 4294967295:4294967295 - a x\n1 2 4294967296:0 - b x\n"+
		"1 2 0:4294967296 - c x\n1 2 x:1 - d x\n1 2 1:x - e x\n1 2 - f x\n1 2 3:4 g x\n1 2 5:6 - \n")
	if m := f.Mounts(1); !reflect.DeepEqual(m, map[Dev]string{{98, 0}: "ext3", {1<<32 - 1, 1<<32 - 1}: "a"}) {
		t.Errorf("mounts %v", m)
	}
	line := "0: 01010101:0050 01010101:0050 01 0:0 0 0 0 0 7 1 0\n"
	for extra, want := range map[int]bool{-1: true, 0: false} { // zeros follow the line
		write("1/net/tcp", line)
		if err := os.Truncate(f.Path(1, "net/tcp"), 16<<20+int64(extra)); err != nil {
			t.Fatal(err)
		}
		if list, whole, err := f.Sockets(1, "tcp"); err != nil || whole != want || len(list) != 1 {
			t.Errorf("%d bytes more than are read: %d sockets, whole %v, %v", extra, len(list), whole, err)
		}
	}
	for extra, want := range map[int]int64{-1: 9, 0: 9, 100: 0} { // the line at the end is read, cut, or not reached
		write("1/fdinfo/5", strings.Repeat("x", 1<<20+extra-len("\npos: 9"))+"\npos: 9")
		if i, err := f.FDInfo(1, 5); err != nil || i.Pos != want {
			t.Errorf("%d bytes more than are read: position %d, %v", extra, i.Pos, err)
		}
	}
	if _, err := f.FDInfo(1, 6); err == nil {
		t.Error("a descriptor that is not open")
	}
	for _, id := range []string{"Pid:\t1\nState:\tS\n", "Tgid:\t1\nState:\tS\n", "Tgid:\t1\nPid:\t1\n", "Pid:\t1\n", "Tgid:\t1\n", "State:\tS\n"} {
		if s, err := ParseStatus([]byte(id)); err == nil {
			t.Errorf("status %q: %+v", id, s)
		}
	}
	for _, flag := range []uint64{0x10, 0x4000, 0x200000} { // include/linux/sched.h
		if s := (Stat{Flags: flag}); !s.NoUserStack() {
			t.Errorf("a task with flag %#x has a stack of its own", flag)
		}
		if s := (Stat{Flags: ^flag &^ 0x204010}); s.NoUserStack() {
			t.Errorf("flags %#x: no stack", s.Flags)
		}
	}
}

// TestPagemap: memory that is there, and none.
func TestPagemap(t *testing.T) {
	p := (FS{}).OpenPagemap(os.Getpid())
	if p < 0 {
		t.Skip("no pagemap on this kernel")
	}
	if p.Gone() {
		t.Error("our own memory is gone")
	}
	if flags, err := unix.FcntlInt(uintptr(p), unix.F_GETFD, 0); flags != unix.FD_CLOEXEC {
		t.Errorf("flags %d of an open one, %v: programs that we start have it", flags, err)
	}
	p.Close()
	if Pagemap(-1).Gone() {
		t.Error("what cannot be read is not gone")
	}
	f := FS{Root: t.TempDir()}
	if p := f.OpenPagemap(1); p != -1 {
		t.Errorf("opened %d", p)
	}
	if err := os.MkdirAll(f.Path(1), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(1, "pagemap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p = f.OpenPagemap(1); !p.Gone() { // pagemap_read: of no memory it is empty
		t.Error("an empty one is of memory that is there")
	}
	p.Close()
	if _, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p)); err == nil {
		t.Error("not closed")
	}
	Pagemap(-1).Close()
}
