package rootfs

import (
	"slices"
	"strings"
	"testing"
)

// TestLayers: the options of stacked file systems, in the forms that kernels show.
func TestLayers(t *testing.T) {
	for _, c := range []struct {
		kind, options string
		want          []string
		ok            bool
	}{
		{"overlay", "rw,lowerdir=/a:/b,upperdir=/u,workdir=/w", []string{"/a", "/b", "/u"}, true},
		{"overlay", `ro,lowerdir=/a\054b\040c:/d\134:e\134\134::/data`, []string{"/a,b c", `/d:e\`, "/data"}, true},
		{"overlay", `ro,lowerdir+=/a:b,lowerdir+=/c,datadir+=/d\075e`, []string{"/a:b", "/c", "/d=e"}, true},
		{"overlay", "rw,lowerdir=l/A:l/B,upperdir=/docker/x/diff,workdir=/docker/x/work", []string{"/docker/x/diff", "/docker/x/diff", "/docker/x/diff"}, true},
		{"overlay", "ro,lowerdir=l/A:l/B", nil, false},
		{"overlay", "rw,lowerdir=/a,upperdir=u", []string{"/a"}, false},
		{"overlay", "ro,lowerdir=" + strings.Repeat("/a", 65), nil, false},
		{"ecryptfs", "rw,ecryptfs_sig=x", []string{"/srv/.e/x"}, true},
	} {
		m := mount{kind: c.kind, source: "/srv/.e/x", options: c.options}
		if got, ok := m.layers(); !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%s %s: %q, %t; want %q, %t", c.kind, c.options, got, ok, c.want, c.ok)
		}
	}
}

// ownInfo is what a host sees, theirs what a container of it does that has mounted things itself.
const (
	ownInfo = `1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:40 / /nfs rw - nfs4 server:/ rw
3 1 0:50 / /docker/x/merged rw - overlay overlay rw,lowerdir=l/A,upperdir=/docker/x/diff,workdir=/docker/x/work
4 1 0:51 / /docker/y/merged rw - overlay overlay rw,lowerdir=/nfs/image,upperdir=/docker/y/diff,workdir=/docker/y/work
5 1 0:52 / /nested rw - overlay overlay ro,lowerdir=/docker/x/merged/a:/b
6 1 0:53 / /nested2 rw - overlay overlay ro,lowerdir=/docker/y/merged/a:/b
7 1 0:54 / /nowhere rw - overlay overlay ro,lowerdir=l/A:l/B
`
	theirInfo = `10 0 0:50 / / rw - overlay overlay rw,lowerdir=l/A,upperdir=/docker/x/diff,workdir=/docker/x/work
11 10 0:60 / /mnt rw - fuse server rw
12 10 0:61 / /silent rw - overlay overlay ro,lowerdir=/mnt:/empty
13 10 0:62 / /hidden rw - overlay overlay ro,lowerdir=/gone:/empty
15 10 0:63 / /cover rw - overlay overlay ro,lowerdir=/cover:/empty
14 10 0:51 / /y rw - overlay overlay rw,lowerdir=/nfs/image,upperdir=/docker/y/diff,workdir=/docker/y/work
`
)

// TestStacked: a file system on others is remote if one of those is, or may be.
func TestStacked(t *testing.T) {
	for _, c := range []struct {
		name, list, own string
		trusts          bool
		remote          string // ids
	}{
		{"own", ownInfo, ownInfo, false, "2 4 6 7"},
		{"container", theirInfo, ownInfo, false, "11 12 13 14 15"},
		{"trusted", theirInfo, ownInfo, true, "11 12 14 15"},
		{"from inside", theirInfo, theirInfo, false, "11 12 15"},
		{"another container's", ownInfo[strings.Index(ownInfo, "3 1"):], "20 0 0:70 / / rw - overlay overlay rw,lowerdir=/x\n", true, "7"},
	} {
		ms := judgeMounts(parseMounts(c.list), parseMounts(c.own), c.trusts)
		for _, m := range parseMounts(c.list) {
			if want := slices.Contains(strings.Fields(c.remote), m.id); ms.local[m.id] == want {
				t.Errorf("%s: mount %s on %s is remote: %t, want %t", c.name, m.id, m.point, !want, want)
			}
		}
	}
}
