package procfs

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestParseInode(t *testing.T) {
	for _, tt := range []struct {
		link, kind string
		inode      uint64
		ok         bool
	}{
		{"socket:[123]", "socket", 123, true},
		{"pipe:[18446744073709551615]", "pipe", 1<<64 - 1, true},
		{"anon_inode:[eventfd]", "", 0, false},
		{"/tmp/pipe:[12]", "", 0, false}, // a file may be called so
		{"pipe:[12] (deleted)", "", 0, false},
		{"pipe:[", "", 0, false},
		{"", "", 0, false},
	} {
		kind, inode, ok := ParseInode(tt.link)
		if ok != tt.ok || ok && (kind != tt.kind || inode != tt.inode) {
			t.Errorf("ParseInode(%q) = %q, %d, %v; want %q, %d, %v", tt.link, kind, inode, ok, tt.kind, tt.inode, tt.ok)
		}
	}
}

// The texts are what Linux 6.18 printed, as proc_pid_fdinfo(5) describes it.
func TestParseFDInfo(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want FDInfo
	}{
		"file":    {"pos:\t4096\nflags:\t0100001\nmnt_id:\t29\nino:\t12\n", FDInfo{Pos: 4096}},
		"eventfd": {"pos:\t0\nflags:\t02\neventfd-count:               1f\neventfd-id: 3\n", FDInfo{Count: 31}},
		"timerfd": {"flags:\t02\nclockid: 1\nticks: 4\nsettime flags: 00\nit_value: (2, 500000000)\nit_interval: (0, 0)\n",
			FDInfo{Ticks: 4, Left: 2500 * time.Millisecond}},
		"signalfd": {"sigmask:\t0000000000004002\n", FDInfo{Mask: 0x4002}},
		"pidfd":    {"Pid:\t-1\nNSpid:\t0\n", FDInfo{PID: -1}},
		"epoll": {"flags:\t02\ntfd:        5 events:       19 data:                5  pos:0 ino:61 sdev:7\ntfd: rubbish\n",
			FDInfo{Watched: []Watched{{5, 0x19}}}},
		"rubbish": {"pos: x\nflags: 9\nit_value: (99999999999, 0)\nPid: 4294967296\ntfd: 99999999999 events: 1\n\n:", FDInfo{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ParseFDInfo([]byte(tt.text)); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestParseLocks(t *testing.T) {
	got := ParseLocks([]byte("1: FLOCK  ADVISORY  WRITE 359 fe:01:11691 0 EOF\n" +
		"1: -> FLOCK  ADVISORY  READ  360 fe:01:11691 0 EOF\n" +
		"2: OFDLCK ADVISORY  WRITE -1 00:2e:7 128 255\n3: POSIX  ADVISORY  WRITE 0 00:2e:8 0 EOF\nrubbish\n4: FLOCK\n"))
	want := []FileLock{
		{1, false, "FLOCK", "WRITE", 359, 0xfe, 1, 11691, "0 EOF"},
		{1, true, "FLOCK", "READ", 360, 0xfe, 1, 11691, "0 EOF"},
		{2, false, "OFDLCK", "WRITE", -1, 0, 0x2e, 7, "128 255"},
		{3, false, "POSIX", "WRITE", -1, 0, 0x2e, 8, "0 EOF"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseSockets(t *testing.T) {
	four, six := "0100007F:1F90", "0000000000000000FFFF00000100007F:0050"
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // big-endian kernels print the same bytes so
		four, six = "7F000001:1F90", "00000000000000000000FFFF7F000001:0050"
	}
	got := ParseSockets([]byte("  sl  local_address rem_address   st\n" +
		"   0: " + four + " " + six + " 01 0000000A:00000003 00:00000000 00000000     0        0 1145 1 00 100 0\n" +
		"   1: zz:1 " + four + " 01 0:0 00:0 0 0 0 12\n   2: " + four + " " + four + ":1 01 0:0 0 0 0 0 1\nshort\n"))
	want := []Socket{{netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:80"), "ESTABLISHED", 10, 3, 1145}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseLastRan(t *testing.T) {
	text := "a (1, #threads: 1)\n---\nse.exec_start                                :       1219748.156090\nse.vruntime : 2.5\n"
	if got, ok := ParseLastRan([]byte(text)); !ok || got != 1219748156090*time.Nanosecond {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, bad := range []string{"", "x\nse.exec_start : -3.000000\n", "x\nse.exec_start : 99999999999999999.000000", "x\nse.exec_start : 5.00"} {
		if got, ok := ParseLastRan([]byte(bad)); ok || got != 0 {
			t.Errorf("%q: got %v", bad, got)
		}
	}
}

// FuzzWaitFiles runs one text through the parsers of what waits need.
func FuzzWaitFiles(f *testing.F) {
	f.Add([]byte("tfd:        5 events:       19 data: 5\nit_value: (2, 500000000)\n"))
	f.Add([]byte("1: -> FLOCK  ADVISORY  READ  360 fe:01:11691 0 EOF\n"))
	f.Add([]byte("   0: 0100007F:1F90 0100007F:0050 01 0000000A:00000003 00:00000000 00000000     0        0 1145 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i := ParseFDInfo(b); i.Left < 0 || len(i.Watched) > maxWatched || i.PID < -1 {
			t.Errorf("%+v", i)
		}
		for _, l := range ParseLocks(b) {
			if l.PID == 0 || l.PID < -1 || l.ID < 0 {
				t.Errorf("%+v", l)
			}
		}
		for _, s := range ParseSockets(b) {
			if !s.Local.IsValid() || !s.Remote.IsValid() {
				t.Errorf("%+v", s)
			}
		}
		if d, ok := ParseLastRan(b); ok && d < 0 {
			t.Errorf("negative time %v", d)
		}
	})
}
