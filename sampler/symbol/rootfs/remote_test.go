package rootfs

import (
	"errors"
	"testing"
)

// mountinfo has lines as proc_pid_mountinfo(5) shows them, and as fs/proc_namespace.c
// writes names with spaces.
const mountinfo = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw,nosuid shared:12 - proc proc rw
40 22 0:50 / /home rw,relatime shared:2 master:1 - nfs4 server:/home rw,vers=4.2
41 22 0:51 / /mnt/with\040space\134 rw - fuse.sshfs user@host: rw
42 22 0:52 / /data ro - tmpfs tmpfs ro
43 22 0:53 / /net rw - autofs systemd-1 rw
short line
44 22 0:54 / /broken rw
`

func TestMounts(t *testing.T) {
	m := parseMounts(mountinfo, rootDevice(mountinfo))
	for _, c := range []struct {
		minor uint32
		want  bool
	}{{50, true}, {51, true}, {52, false}, {53, true}, {54, false}, {99, false}} {
		if got := m.Device(0, c.minor); got != c.want {
			t.Errorf("device 0:%d is remote: %v, want %v", c.minor, got, c.want)
		}
	}
	below := m.below("/")
	for _, p := range []string{"/home", `/mnt/with space\`, "/net"} {
		if !below[p] {
			t.Errorf("%s is not remote", p)
		}
	}
	if len(below) != 3 {
		t.Errorf("%d remote mounts, want 3: %v", len(below), below)
	}
	if b := m.below("/mnt"); len(b) != 1 || !b[`/with space\`] {
		t.Errorf("below /mnt: %v", b)
	}
}

// TestOwnRoot: what our own root is on is not remote.
func TestOwnRoot(t *testing.T) {
	const text = "1 0 0:9 / / rw - rootfs rootfs rw\n22 1 0:50 / / rw - nfs server:/root rw\n23 22 0:50 /x /x rw - nfs server:/root rw\n24 22 0:51 / /home rw - nfs server:/home rw\n"
	m := parseMounts(text, rootDevice(text))
	if m.Device(0, 50) || !m.Device(0, 51) || len(m.points) != 1 {
		t.Errorf("%+v", m)
	}
}

// TestNeverEntered: no path leads into a remote mount, by links or dots either.
func TestNeverEntered(t *testing.T) {
	r := tree(t)
	r.remote = map[string]bool{"/usr": true, "/deep/a": true}
	for path, want := range map[string]error{
		"usr": ErrRemote, "usr/lib/lib.so": ErrRemote, "lib/lib.so": ErrRemote, "etc/../usr/../etc/file": ErrRemote,
		"deep/a/b/x": ErrRemote, "deep//./a/up": ErrRemote,
		"etc/file": nil, "deep/up": nil, "absolute": nil, "etc/../deep/../secret": nil,
	} {
		f, err := r.OpenFile(path)
		if err == nil {
			f.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
