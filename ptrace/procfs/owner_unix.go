//go:build unix

package procfs

import (
	"io/fs"
	"os"
	"syscall"
)

// errNoProcess is what an open file of a process gives once that is gone.
var errNoProcess error = syscall.ESRCH

// fileOwner returns the user that a file belongs to.
func fileOwner(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrInvalid}
	}
	return int(st.Uid), nil
}
