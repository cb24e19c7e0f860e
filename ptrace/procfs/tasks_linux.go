package procfs

import (
	"bytes"
	"encoding/binary"
	"os"
	"syscall"
)

// list reads the rest of the folder by getdents64(2), without a string for each
// name.
func (d *TaskDir) list(ids []int) ([]int, error) {
	if d.buf == nil {
		d.buf = make([]byte, 16<<10)
	}
	raw, err := d.file.SyscallConn()
	if err != nil {
		return ids, err
	}
	for {
		var n int
		var readErr error
		err := raw.Control(func(fd uintptr) {
			n, readErr = readDirent(int(fd), d.buf)
		})
		if err == nil {
			err = readErr
		}
		if err != nil {
			return ids, os.NewSyscallError("getdents64", err)
		}
		if n <= 0 {
			return ids, nil
		}
		ids = appendDirents(ids, d.buf[:n])
	}
}

func readDirent(fd int, buf []byte) (int, error) {
	for {
		n, err := syscall.ReadDirent(fd, buf)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// Layout of struct linux_dirent64, getdents(2): inode and offset of 8 bytes,
// the record's length in 2, type in 1, then the name up to NUL.
const (
	direntReclen = 16
	direntName   = 19
)

func appendDirents(ids []int, b []byte) []int {
	for len(b) >= direntName {
		size := int(binary.NativeEndian.Uint16(b[direntReclen:]))
		if size < direntName || size > len(b) {
			break
		}
		name, _, _ := bytes.Cut(b[direntName:size], []byte{0})
		if id, ok := taskID(name); ok {
			ids = append(ids, id)
		}
		b = b[size:]
	}
	return ids
}
