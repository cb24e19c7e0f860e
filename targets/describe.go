package targets

import (
	"path/filepath"
	"strings"

	"sfsample/ptrace/procfs"
)

// Description is what a process is, for whoever has many machines.
type Description struct {
	Executable string // path of its file, as its own file system has it
	Name       string // of that file, without folders
	Container  string // id; empty: it is in none that its control group tells of
	Pod        string // Kubernetes' uid of the pod; empty: none
}

// Describe reads what a process is. An error: it has ended, or may not be read.
func Describe(fs procfs.FS, pid int) (d Description, err error) {
	if d.Executable, _, err = fs.Exe(pid); err != nil {
		return d, err
	}
	d.Name = filepath.Base(d.Executable)
	groups, err := fs.Cgroups(pid)
	if err != nil {
		return d, err
	}
	for _, g := range groups {
		container, pod := containerOf(g)
		if d.Container == "" {
			d.Container = container
		}
		if d.Pod == "" {
			d.Pod = pod
		}
	}
	return d, nil
}

// containerDigits is how many digits the id of a container has.
const containerDigits = 64

// containerOf finds the ids of a container and of a pod in the path of a control group: docker-ID.scope, /docker/ID,
// kubepods-burstable-podUID.slice/cri-containerd-ID.scope, kubepods-podUID.slice:cri-containerd:ID, /kubepods/burstable/podUID/ID. The last ones
// count: a container may be in another. What monitors a container (conmon) is not in it.
func containerOf(group string) (container, pod string) {
	for folder := range strings.FieldsFuncSeq(group, func(c rune) bool { return c == '/' || c == ':' }) {
		if strings.Contains(folder, "conmon-") {
			continue
		}
		name := strings.TrimSuffix(strings.TrimSuffix(folder, ".scope"), ".slice")
		last := name[strings.LastIndexByte(name, '-')+1:]
		if len(last) == containerDigits && strings.Trim(last, "0123456789abcdef") == "" {
			container = last
		}
		if i := strings.LastIndex(name, "pod"); i >= 0 && (i == 0 || name[i-1] == '-') {
			if uid := strings.ReplaceAll(name[i+len("pod"):], "_", "-"); isUID(uid) {
				pod = uid
			}
		}
	}
	return container, pod
}

// isUID tells whether a word is a UUID, or 32 digits as those of static pods are.
func isUID(s string) bool {
	digits := strings.ReplaceAll(s, "-", "")
	return len(digits) == 32 && (len(s) == 32 || len(s) == 36) && strings.Trim(digits, "0123456789abcdef") == ""
}
