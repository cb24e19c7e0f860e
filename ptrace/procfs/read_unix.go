//go:build unix

package procfs

import (
	"io/fs"
	"sync"
	"syscall"
)

// firstRead holds most files whole, in bytes.
const firstRead = 1024

// readFile reads at most max bytes of a file. A dump reads some files of each thread:
// so it goes without an os.File, which costs twice as much as the reading itself.
func readFile(path string, max int64) ([]byte, error) {
	fd, err := openRead(path, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	return readAll(fd, path, make([]byte, 0, min(max, firstRead)), max)
}

// openRead opens a file or folder to be read.
func openRead(path string, flags int) (fd int, err error) {
	if fd, err = again(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|flags, 0) }); err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// readAll appends what is left of an open file to b, until that has max bytes.
// A file of which no more than maxSmall is expected is of one record: that the first read gives whole if there is room (seq_read_iter, fs/seq_file.c).
func readAll(fd int, path string, b []byte, max int64) ([]byte, error) {
	for int64(len(b)) < max {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		room := b[len(b):min(int64(cap(b)), max)]
		n, err := again(func() (int, error) { return syscall.Read(fd, room) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		b = b[:len(b)+n]
		if n == 0 || max <= maxSmall+1 && n < len(room) {
			break
		}
	}
	return b, nil
}

// pieceBytes holds a line of maps: a path takes four times as much there at most as it has.
const pieceBytes = 32 << 10

var pieces = sync.Pool{New: func() any { return new([pieceBytes]byte) }}

// readPieces has take called with what each read of a file gives, until that has an error.
func readPieces(path string, take func(piece []byte) error) error {
	fd, err := openRead(path, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	buf := pieces.Get().(*[pieceBytes]byte)
	defer pieces.Put(buf)
	for {
		n, err := again(func() (int, error) { return syscall.Read(fd, buf[:]) })
		if err != nil {
			return &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return nil
		}
		if err := take(buf[:n]); err != nil {
			return err
		}
	}
}

// again repeats a call that a signal has ended.
func again(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != syscall.EINTR {
			return n, err
		}
	}
}
