package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archive writes an initramfs in the "newc" format of cpio: a header of 13
// numbers of 8 hexadecimal digits, the name, the contents, each padded to 4
// bytes (kernel: driver-api/early-userspace/buffer-format).
type archive struct {
	w    io.Writer
	off  int64
	ino  uint32
	made map[string]bool // folders that are in it
	err  error           // the first that happened
}

func newArchive(w io.Writer) *archive {
	return &archive{w: w, made: map[string]bool{".": true, "/": true}}
}

// entry writes one member. name has no leading slash.
func (a *archive) entry(name string, mode fs.FileMode, size int64, r io.Reader) {
	const folder, regular, link = 0o040000, 0o100000, 0o120000
	kind := uint32(regular)
	switch {
	case mode.IsDir():
		kind = folder
	case mode&fs.ModeSymlink != 0:
		kind = link
	}
	if size > 1<<32-1 {
		a.fail(fmt.Errorf("%s is too large for a cpio archive", name))
	}
	a.ino++
	a.print("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.ino, kind|uint32(mode.Perm()), 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	if a.err == nil && r != nil {
		n, err := io.CopyN(a.w, r, size)
		a.off += n
		a.fail(err)
	}
	a.pad()
}

func (a *archive) print(format string, args ...any) {
	if a.err == nil {
		n, err := fmt.Fprintf(a.w, format, args...)
		a.off += int64(n)
		a.fail(err)
	}
}

func (a *archive) pad() {
	for a.off%4 != 0 && a.err == nil {
		a.print("\x00")
	}
}

func (a *archive) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// folder adds a folder and those above it, unless they are there.
func (a *archive) folder(name string) {
	if a.made[name] {
		return
	}
	a.folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, fs.ModeDir|0o755, 0, nil)
}

// file adds a file with the contents of the file src.
func (a *archive) file(name string, mode fs.FileMode, src string) {
	a.folder(path.Dir(name))
	f, err := os.Open(src)
	if err != nil {
		a.fail(err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		a.fail(err)
		return
	}
	a.entry(name, mode, info.Size(), f)
}

// link adds a symbolic link.
func (a *archive) link(name, target string) {
	a.folder(path.Dir(name))
	a.entry(name, fs.ModeSymlink|0o777, int64(len(target)), strings.NewReader(target))
}

// tree adds the folder src, with all that lies below it and passes keep, as
// name. keep gets the path relative to src; for a folder false leaves out all
// of it.
func (a *archive) tree(name, src string, keep func(rel string) bool) {
	err := filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, p)
		if err != nil {
			return err
		}
		if rel != "." && !keep(rel) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		to := path.Join(name, filepath.ToSlash(rel))
		switch {
		case d.IsDir():
			a.folder(to)
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			a.link(to, target)
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			a.file(to, info.Mode(), p)
		}
		return a.err
	})
	a.fail(err)
}

// close ends the archive.
func (a *archive) close() error {
	a.entry("TRAILER!!!", 0, 0, nil)
	if errors.Is(a.err, io.EOF) {
		return io.ErrUnexpectedEOF // a file shrank meanwhile
	}
	return a.err
}
