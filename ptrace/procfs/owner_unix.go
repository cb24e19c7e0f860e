//go:build unix

package procfs

import (
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
	return int(info.Sys().(*syscall.Stat_t).Uid), nil // on unix os.Stat gives no other
}
