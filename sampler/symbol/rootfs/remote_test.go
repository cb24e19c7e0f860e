package rootfs

import "testing"

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
	m := judgeMounts(parseMounts(mountinfo), parseMounts(mountinfo), false)
	for _, c := range []struct {
		minor uint32
		want  bool
	}{{50, true}, {51, true}, {52, false}, {53, true}, {54, false}, {99, false}} {
		if got := m.Device(0, c.minor); got != c.want {
			t.Errorf("device 0:%d is remote: %v, want %v", c.minor, got, c.want)
		}
	}
	for id, want := range map[string]bool{"22": true, "40": false, "41": false, "42": true, "43": false} {
		if local, known := m.local[id]; local != want || !known {
			t.Errorf("mount %s is local: %t, known: %t, want %t", id, local, known, want)
		}
	}
	if !m.autofs {
		t.Error("no autofs is seen")
	}
	if len(m.local) != 6 {
		t.Errorf("%d mounts, want 6: %v", len(m.local), m.local)
	}
}

// TestOwnRoot: what our own root is on is not remote.
func TestOwnRoot(t *testing.T) {
	const text = "1 0 0:9 / / rw - rootfs rootfs rw\n22 1 0:50 / / rw - nfs server:/root rw\n23 22 0:50 /x /x rw - nfs server:/root rw\n24 22 0:51 / /home rw - nfs server:/home rw\n"
	m := judgeMounts(parseMounts(text), parseMounts(text), false)
	if m.Device(0, 50) || !m.Device(0, 51) || !m.local["22"] || m.local["24"] {
		t.Errorf("%+v", m)
	}
}
