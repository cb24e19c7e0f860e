package procfs

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
)

// FuzzMaps: a list of whole mappings or an error, never both; and what was
// parsed can be written and parsed again with the same result.
func FuzzMaps(f *testing.F) {
	f.Add([]byte("1000-2000 r-xp 00000000 fe:01 12 /bin/a (deleted)\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n"))
	f.Add([]byte(`1000-2000 rw-s 00000000 00:01 9 /a\012b`))
	f.Fuzz(func(t *testing.T, b []byte) {
		maps, err := ParseMaps(b)
		if err != nil {
			if maps != nil {
				t.Errorf("mappings and an error: %v, %v", maps, err)
			}
			if strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("control characters in %q", err)
			}
			return
		}
		for _, m := range maps {
			if m.End <= m.Start {
				t.Errorf("empty mapping %+v", m)
			}
			line := m.String()
			if strings.Contains(line, `"`) || strings.HasPrefix(m.Path, " ") {
				continue // quoted for people
			}
			again, err := ParseMaps([]byte(line))
			m.Path = strings.TrimRight(m.Path, " ")
			if err != nil || len(again) != 1 || strings.TrimRight(again[0].Path, " ") != m.Path || again[0].Start != m.Start ||
				again[0].End != m.End || again[0].Perms != m.Perms || again[0].Inode != m.Inode || again[0].Dev != m.Dev {
				t.Errorf("%q: got %+v, %v; want %+v", line, again, err, m)
			}
		}
	})
}

// FuzzThreadFiles runs one text through the parsers of a thread's files.
func FuzzThreadFiles(f *testing.F) {
	f.Add([]byte("4321 (a) R (b) S 1 4321 4321 34816 4400 4194560 1521 30 2 3 250 150 7 8 20 0 3 0 98765 1 1 1 1 1 1 0 0 0 0 0 0 0 0 0 17 5\n"))
	f.Add([]byte("232 0x4 0x7ffe 0x2 0xff 0x0 0x8 0x7ffe11 0x7f22\n"))
	f.Add([]byte("-1 0x7ffe11 0x7f22\n"))
	f.Add([]byte("17216063 2505 42\n"))
	f.Add([]byte("State:\tS (sleeping)\nTgid:\t100\nPid:\t102\nNSpid:\t102\t1\n"))
	f.Add([]byte("[<0>] do_epoll_wait+0x683/0x7a0 [fuse]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseStat(b); err == nil {
			if s.UTime < 0 || s.STime < 0 {
				t.Errorf("negative time in %+v", s)
			}
		}
		if s, err := ParseSchedstat(b); err == nil && (s.Run < 0 || s.Wait < 0) {
			t.Errorf("negative time in %+v", s)
		}
		if s, err := ParseSyscall(b); err == nil && s.Running != bytes.HasPrefix(b, wordRunning) {
			t.Errorf("%q: %+v", b, s)
		}
		if s, err := ParseStatus(b); err == nil && (s.Pid == 0 || len(s.NSpid) > maxNamespaces) {
			t.Errorf("%q: %+v", b, s)
		}
		if frames, err := ParseStack(b); err == nil {
			for _, f := range frames {
				if f.Func == "" {
					t.Errorf("%q: a frame without function", b)
				}
			}
		}
	})
}
