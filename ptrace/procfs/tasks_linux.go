package procfs

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"sync"
	"syscall"
)

// direntBytes is how much of a folder is read at once.
const direntBytes = 16 << 10

var direntRoom = sync.Pool{New: func() any { return new([direntBytes]byte) }}

// numbered lists the names in a folder that are numbers, by getdents64(2), without a string for each: threads are listed again
// and again.
func numbered(dir string) (ids []int, err error) {
	fd, err := openRead(dir, syscall.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	room := direntRoom.Get().(*[direntBytes]byte)
	defer direntRoom.Put(room)
	for {
		n, err := again(func() (int, error) { return syscall.ReadDirent(fd, room[:]) })
		if err != nil {
			return ids, &fs.PathError{Op: "getdents64", Path: dir, Err: err}
		}
		if n <= 0 {
			return ids, nil
		}
		ids = appendDirents(ids, room[:n])
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
