package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrRemote is returned for what lies on a file system whose server may keep whoever
// asks for it waiting for ever, out of reach even for SIGKILL: to look a name up
// is enough, or to ask for the file's type.
var ErrRemote = errors.New("on a file system whose server may not answer")

// remoteTypes are the types of such file systems, up to the first dot
// (proc_pid_mountinfo(5), field 9).
var remoteTypes = map[string]bool{
	"nfs": true, "nfs4": true, "cifs": true, "smb3": true, "smbfs": true, "fuse": true, "fuseblk": true,
	"virtiofs": true, "9p": true, "ceph": true, "afs": true, "coda": true, "ncpfs": true, "lustre": true,
	"orangefs": true, "pvfs2": true, "gpfs": true, "beegfs": true, "ocfs2": true, "gfs2": true, "autofs": true,
}

// Mounts tells which mounts of a process are remote, as its mountinfo file says:
// nobody but the kernel is asked.
type Mounts struct {
	points  map[string]bool // where they are, in the process's root
	devices map[string]bool // major:minor
}

// maxMountinfo bounds what is read of a mountinfo file.
const maxMountinfo = 16 << 20

// MountsOf reads the mounts of the process with this folder in /proc. What our own
// root is on is not remote: without it nothing would be left.
func MountsOf(dir string) (Mounts, error) {
	own, err := readMountinfo("/proc/self")
	if err != nil {
		return Mounts{}, err
	}
	text := own
	if dir != "/proc/self" {
		if text, err = readMountinfo(dir); err != nil {
			return Mounts{}, err
		}
	}
	return parseMounts(text, rootDevice(own)), nil
}

func readMountinfo(dir string) (string, error) {
	f, err := os.Open(dir + "/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMountinfo+1))
	if err == nil && len(b) > maxMountinfo {
		err = fmt.Errorf("read %s: more than %d bytes", f.Name(), maxMountinfo)
	}
	return string(b), err
}

// mount is a line of mountinfo.
type mount struct{ device, point, kind string }

func parseMount(line string) (m mount, ok bool) {
	front, back, ok := strings.Cut(line, " - ")
	fields, kind := strings.Fields(front), strings.Fields(back)
	if !ok || len(fields) < 6 || len(kind) < 1 {
		return m, false
	}
	base, _, _ := strings.Cut(kind[0], ".")
	return mount{fields[2], mountEscapes.Replace(fields[4]), base}, true
}

// mountEscapes takes back what mangle does to names (fs/proc_namespace.c).
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// rootDevice is the device of the last mount at "/", which covers others.
func rootDevice(text string) (device string) {
	for line := range strings.Lines(text) {
		if m, ok := parseMount(line); ok && m.point == "/" {
			device = m.device
		}
	}
	return device
}

func parseMounts(text, own string) Mounts {
	ms := Mounts{map[string]bool{}, map[string]bool{}}
	for line := range strings.Lines(text) {
		if m, ok := parseMount(line); ok && remoteTypes[m.kind] && m.device != own {
			ms.points[m.point], ms.devices[m.device] = true, true
		}
	}
	return ms
}

// Device tells whether a file of this device, as /proc/PID/maps shows it, is on
// a remote file system.
func (m Mounts) Device(major, minor uint32) bool {
	return m.devices[fmt.Sprintf("%d:%d", major, minor)]
}

// below returns the mounts that a folder contains, seen from there.
func (m Mounts) below(folder string) map[string]bool {
	folder = strings.TrimSuffix(folder, "/")
	points := map[string]bool{}
	for p := range m.points {
		if rest, ok := strings.CutPrefix(p, folder); ok && strings.HasPrefix(rest, "/") {
			points[rest] = true
		}
	}
	return points
}
