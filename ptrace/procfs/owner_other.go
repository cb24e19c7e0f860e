//go:build !unix

package procfs

import "io/fs"

var errNoProcess = fs.ErrNotExist

// fileOwner has no answer where files have no owners.
func fileOwner(path string) (int, error) {
	return 0, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrInvalid}
}
