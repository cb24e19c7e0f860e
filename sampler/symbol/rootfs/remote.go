package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
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
	"vboxsf": true, "prl_fs": true, "vmhgfs": true,
	"aufs": true, // it does not tell its layers
}

// memoryTypes are the types of file systems without a disk: a page that does not come there is one that a program keeps back (userfaultfd(2)).
var memoryTypes = map[string]bool{"tmpfs": true, "ramfs": true, "devtmpfs": true, "hugetlbfs": true}

// Mounts tells which mounts of a process are remote, as its mountinfo file says:
// nobody but the kernel is asked.
type Mounts struct {
	devices map[string]bool   // major:minor, of those that are remote
	local   map[string]bool   // by the mount's id, of all
	points  map[string]*mount // by where they are mounted, the last ones
	disks   map[string]bool   // major:minor, of those that are neither remote nor in memory
	autofs  bool              // one of them mounts what is looked up below it
}

// maxMountinfo bounds what is read of a mountinfo file.
const maxMountinfo = 16 << 20

// MountsOf reads the mounts of the process with this folder in /proc. What our own
// root is on is not remote: without it nothing would be left.
func MountsOf(dir string) (*Mounts, error) {
	t, err := openMounts(dir)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.now()
}

func readMountinfo(f *os.File) (string, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxMountinfo+1))
	if err == nil && len(b) > maxMountinfo {
		err = fmt.Errorf("read %s: more than %d bytes", f.Name(), maxMountinfo)
	}
	return string(b), err
}

// mount is a line of mountinfo. The source and the options are as they are written there.
type mount struct{ id, device, point, kind, source, options string }

func parseMount(line string) (m mount, ok bool) {
	front, back, ok := strings.Cut(line, " - ")
	fields, super := strings.Fields(front), strings.Fields(back)
	if !ok || len(fields) < 6 || len(super) < 1 {
		return m, false
	}
	super = append(super, "", "")
	base, _, _ := strings.Cut(super[0], ".")
	return mount{fields[0], fields[2], mountEscapes.Replace(fields[4]), base, super[1], super[2]}, true
}

// mountEscapes takes back what mangle does to names (fs/proc_namespace.c), and seq_show_option to options.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#", `\054`, ",", `\075`, "=")

func parseMounts(text string) (list []mount) {
	for line := range strings.Lines(text) {
		if m, ok := parseMount(line); ok {
			list = append(list, m)
		}
	}
	return list
}

// Device tells whether a file of this device, as /proc/PID/maps shows it, is on
// a remote file system.
func (m *Mounts) Device(major, minor uint32) bool {
	return m.devices[fmt.Sprintf("%d:%d", major, minor)]
}

// deviceOf is the number of the device that an absolute path leads to, but for symbolic links; 0 if it is not known.
func (m *Mounts) deviceOf(path string) uint64 {
	var major, minor uint32
	if at := mountOf(m.points, path); at != nil {
		fmt.Sscanf(at.device, "%d:%d", &major, &minor)
	}
	return unix.Mkdev(major, minor)
}
