package targets

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sfsample/ptrace/procfs"
)

// TestContainerOf: the forms of control groups that Docker, containerd, CRI-O and Kubernetes' kubelet make.
func TestContainerOf(t *testing.T) {
	id, other := strings.Repeat("0a1b", 16), strings.Repeat("f", 64)
	const uid = "12345678-9abc-def0-1234-56789abcdef0"
	under := strings.ReplaceAll(uid, "-", "_")
	for group, want := range map[string][2]string{
		"/": {}, "/user.slice/user-0.slice/session-1.scope": {}, "/system.slice/podman.service": {},
		"/docker/" + id:                            {id, ""},
		"/system.slice/docker-" + id + ".scope":    {id, ""},
		"/docker/" + other + "/docker/" + id:       {id, ""},
		"/kubepods/burstable/pod" + uid + "/" + id: {id, uid},
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/cri-containerd-" + id + ".scope": {id, uid},
		"/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + id + ".scope":                                                {id, uid},
		"/kubepods/pod" + strings.ReplaceAll(uid, "-", "") + "/" + id:                                                          {id, strings.ReplaceAll(uid, "-", "")},
		"/system.slice/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id:                                         {id, uid},
		"/machine.slice/libpod-conmon-" + id + ".scope":                                                                        {}, "/machine.slice/libpod-" + id + ".scope/container": {id, ""},
		"/kubepods/podless/" + id[:63]: {},
		"/x/" + strings.ToUpper(id):    {},
	} {
		if container, pod := containerOf(group); container != want[0] || pod != want[1] {
			t.Errorf("%s: container %q, pod %q; want %q", group, container, pod, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	d, err := Describe(procfs.FS{}, os.Getpid())
	exe, _ := os.Executable()
	if err != nil || d.Executable != exe || d.Name != filepath.Base(exe) {
		t.Errorf("%+v, %v; want %s", d, err, exe)
	}
	w := newWorld(t)
	id := strings.Repeat("ab", 32)
	w.add(10, 1, 5, "web", "/usr/bin/web (deleted)", "/docker/"+id, 0)
	if d, err := Describe(w.fs(), 10); err != nil || d != (Description{"/usr/bin/web", "web", id, ""}) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Describe(w.fs(), 11); err == nil {
		t.Error("a process that is none is described")
	}
}
