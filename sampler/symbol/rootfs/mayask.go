package rootfs

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxAncestors bounds how many processes are asked about a mount.
const maxAncestors = 32

// MayAsk is nil if what an O_PATH descriptor stands for may be asked for, by fstat(2), say, or opened: its mount is
// one that is known and not remote, or the one of the kernel's own memory files (memfd_create(2)). Else it is [ErrRemote].
//
// A mount is known by our own mountinfo or that of the process with the folder dir in /proc. That of a process below
// chroot(2) leaves out the mount that its root is in (show_mountinfo, fs/proc_namespace.c): there its ancestors have it.
// The one that our own root is in is not remote (see [MountsOf]).
// While the descriptor is open the mount's id (proc_pid_fdinfo(5), mnt_id) is no other's.
func MayAsk(fd int, dir string) error {
	id, err := mountID(fd)
	if err != nil {
		return err
	}
	if id == memoryFiles() {
		return nil
	}
	own, err := ownMounts()
	if err != nil {
		return err
	}
	ms, err := own.now()
	if err == nil {
		if _, known := ms.local[id]; !known && id == rootMount() { // we are below chroot(2)
			return nil
		}
	}
	folders := []string{dir}
	for n := 0; ; n++ {
		if err == nil {
			if local, known := ms.local[id]; known {
				return remoteUnless(local)
			}
		}
		if n >= len(folders) || n >= maxAncestors {
			return ErrRemote
		}
		ms, err = MountsOf(folders[n])
		folders = append(folders, parents(folders[n])...)
	}
}

func remoteUnless(local bool) error {
	if local {
		return nil
	}
	return ErrRemote
}

// parents is the folder in /proc of the parent of the process with this folder, if there is one that we see.
func parents(dir string) []string {
	b, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(b)) {
		if pid, ok := strings.CutPrefix(line, "PPid:\t"); ok && pid != "0\n" {
			return []string{"/proc/" + strings.TrimSpace(pid)}
		}
	}
	return nil
}

// mountID is the id of the mount that an open file is on.
func mountID(fd int) (string, error) {
	name := fmt.Sprintf("/proc/self/fdinfo/%d", fd)
	b, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", fmt.Errorf("read %s: no mnt_id in it", name)
}

// rootMount is the id of the mount that our own root is in. Empty: it is not known.
func rootMount() string {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	id, _ := mountID(fd)
	return id
}

// memoryFiles is the id of the mount of memory files, which is in no mountinfo: one for all of the machine (shm_mnt,
// mm/shmem.c). Empty: there is none.
var memoryFiles = sync.OnceValue(func() string {
	fd, err := unix.MemfdCreate("", unix.MFD_CLOEXEC)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	id, _ := mountID(fd)
	return id
})
