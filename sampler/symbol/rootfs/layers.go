package rootfs

import (
	"path"
	"strings"
)

// maxStacked is how deep file systems lie on each other (FILESYSTEM_MAX_STACK_DEPTH, include/linux/fs.h), and maxNames how
// many names the path of a layer may have.
const (
	maxStacked = 2
	maxNames   = 64
)

// judge tells which mounts are remote. What our own root is on is not, and a file system that lies on others is if one of
// them is. Paths of layers are those of whoever mounted it, in a namespace that may be gone: they are looked up in our own
// mounts and in the list, and count only if the same file system is mounted in our own namespace, as container engines do,
// or if the list's owner is trusted (see trusts).
type judge struct {
	own, list map[string]*mount // by mount point, the last ones: they cover others
	ours      map[string]bool   // devices of our own
	root      string            // device of our own root
	trusts    bool
	remote    map[string]bool // by device, as far as found
}

func judgeMounts(list, own []mount, trusts bool) *Mounts {
	j := judge{own: byPoint(own), list: byPoint(list), ours: map[string]bool{}, trusts: trusts, remote: map[string]bool{}}
	for i := range own {
		j.ours[own[i].device] = true
	}
	if m := j.own["/"]; m != nil {
		j.root = m.device
	}
	ms := &Mounts{devices: map[string]bool{}, local: map[string]bool{}, points: j.list, disks: map[string]bool{}}
	for i := range list {
		m := &list[i]
		remote := j.isRemote(m, maxStacked)
		ms.local[m.id] = !remote
		switch {
		case remote:
			ms.devices[m.device] = true
		case !memoryTypes[m.kind]:
			ms.disks[m.device] = true
		}
		ms.autofs = ms.autofs || m.kind == "autofs"
	}
	return ms
}

func byPoint(list []mount) map[string]*mount {
	points := make(map[string]*mount, len(list))
	for i := range list {
		points[list[i].point] = &list[i]
	}
	return points
}

func (j *judge) isRemote(m *mount, depth int) bool {
	stacked := m.kind == "overlay" || m.kind == "ecryptfs"
	switch {
	case m.device == j.root:
		return false
	case !stacked || depth == 0:
		return stacked || remoteTypes[m.kind]
	}
	remote, known := j.remote[m.device]
	if !known {
		remote = !j.trusts && !j.ours[m.device] || j.onRemote(m, depth)
		j.remote[m.device] = remote
	}
	return remote
}

// onRemote tells whether a layer of m is on a remote mount, or unknown.
func (j *judge) onRemote(m *mount, depth int) bool {
	layers, ok := m.layers()
	for _, layer := range layers {
		at := mountOf(j.own, layer)
		if at == nil || at.device == m.device || j.isRemote(at, depth-1) {
			return true
		}
		// In a container all paths lead to m itself; elsewhere m hides its layer.
		at = mountOf(j.list, layer)
		if at != nil && (at.device != m.device && j.isRemote(at, depth-1) || at.device == m.device && at.point != "/") {
			return true
		}
	}
	return !ok || len(layers) == 0
}

// mountOf is the mount that an absolute path leads to, nil: none.
func mountOf(points map[string]*mount, name string) *mount {
	for name = path.Clean(name); ; name = path.Dir(name) {
		if m := points[name]; m != nil || name == "/" {
			return m
		}
	}
}

// layers are the directories that a stacked file system lies on (ovl_show_options, fs/overlayfs/params.c; ecryptfs tells
// the one as its source). Relative ones are taken for those beside the absolute upper directory, on the file system of
// which container engines keep them all. It is false if one is not known.
func (m *mount) layers() (list []string, ok bool) {
	if m.kind == "ecryptfs" {
		list = []string{mountEscapes.Replace(m.source)}
	}
	upper := ""
	for option := range strings.SplitSeq(m.options, ",") {
		name, value, _ := strings.Cut(option, "=")
		value = mountEscapes.Replace(value)
		switch name {
		case "upperdir":
			if list = append(list, splitLayers(value)...); len(list) > 0 {
				upper = list[len(list)-1]
			}
		case "lowerdir":
			list = append(list, splitLayers(value)...)
		case "lowerdir+", "datadir+":
			list = append(list, value)
		}
	}
	for i, layer := range list {
		if !path.IsAbs(layer) {
			layer, list[i] = upper, upper
		}
		if !path.IsAbs(layer) || strings.Count(layer, "/") > maxNames {
			return list[:i], false
		}
	}
	return list, true
}

// splitLayers splits at colons but for those behind a backslash (ovl_parse_param_split_lowerdirs, fs/overlayfs/params.c).
// Two, before layers of data alone, leave nothing between them.
func splitLayers(text string) (list []string) {
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			list = append(list, b.String())
		}
		b.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == ':':
			end()
			continue
		case text[i] == '\\' && i+1 < len(text):
			i++
		}
		b.WriteByte(text[i])
	}
	end()
	return list
}
