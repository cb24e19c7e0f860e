package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// stdoutName is the file name that means standard output.
const stdoutName = "-"

// file is where one output goes. A regular file is written under another name
// beside it ("FILE.PID.partial") and renamed when it is whole, so that a file
// of that name is always a whole one and an older one stays until then. What
// cannot be renamed over (a device, a pipe, a link, a file in a folder that
// may not be changed) is written in place.
type file struct {
	name    string
	f       *os.File    // nil until something is written
	partial string      // name of f until it is whole; empty: in place
	mode    fs.FileMode // of the file that is replaced; 0: there is none
	fresh   bool        // in place, and the old contents still stand
	whole   int64       // bytes of the writes that succeeded
}

// title is what messages call it.
func (w *file) title() string {
	if w.name == stdoutName {
		return "standard output"
	}
	return w.name
}

// openFile checks that name can be written, before any work is put into what
// will be; nothing is changed by that. With now set it is opened at once.
func openFile(name string, now bool) (*file, error) {
	if name == stdoutName {
		return &file{name: name, f: os.Stdout}, nil
	}
	w := &file{name: name}
	info, err := os.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("output %s: is a folder (give a file in it)", name)
	case err == nil && !info.Mode().IsRegular():
		return w, w.openInPlace()
	case err == nil:
		// A file that may not be written is not replaced either.
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, openError(name, err)
		}
		f.Close()
		w.mode = info.Mode().Perm()
	}
	w.partial = fmt.Sprintf("%s.%d.partial", name, os.Getpid())
	if err := w.create(); err != nil {
		if w.mode == 0 {
			return nil, openError(name, err)
		}
		return w, w.openInPlace()
	}
	if !now {
		w.f.Close()
		w.f = nil
		if err := os.Remove(w.partial); err != nil && !errors.Is(err, fs.ErrNotExist) { // in a folder to which files may only be added
			return nil, fmt.Errorf("output %s: cannot remove %s, made to try: %w (give a file in another folder, or - for standard output)", name, w.partial, cause(err))
		}
	}
	return w, nil
}

func (w *file) openInPlace() (err error) {
	w.partial = ""
	if w.f, err = os.OpenFile(w.name, os.O_WRONLY|os.O_CREATE, 0o666); err != nil {
		return openError(w.name, err)
	}
	info, err := w.f.Stat()
	w.fresh = err == nil && info.Mode().IsRegular()
	return nil
}

// create makes the partial file, which must not exist: it is never somebody
// else's, nor a link that somebody has put there.
func (w *file) create() (err error) {
	if w.f, err = os.OpenFile(w.partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666); err != nil {
		return err
	}
	if w.mode != 0 {
		return w.f.Chmod(w.mode)
	}
	return nil
}

// openError adds to an error of opening name what to do about it.
func openError(name string, err error) error {
	remedy := "give another file, or - for standard output"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		remedy = "create its folder first, or give another file"
	case errors.Is(err, fs.ErrPermission):
		remedy = "give a file where you may write, or - for standard output"
	}
	return fmt.Errorf("output %s: %w (%s)", name, cause(err), remedy)
}

// cause takes operation and path, which our messages name already, off err.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Write implements io.Writer.
func (w *file) Write(p []byte) (int, error) {
	if w.f == nil {
		if err := w.create(); err != nil {
			return 0, err
		}
	}
	if w.fresh {
		w.fresh = false
		if err := w.f.Truncate(0); err != nil {
			return 0, err
		}
	}
	n, err := w.f.Write(p)
	if err == nil {
		w.whole += int64(n)
	}
	return n, err
}

// commit ends a file that is whole.
func (w *file) commit() error {
	if _, err := w.Write(nil); err != nil { // creates or empties it, if there was nothing to write
		return err
	}
	if w.name == stdoutName {
		return nil
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	if w.partial == "" {
		return nil
	}
	return os.Rename(w.partial, w.name)
}

// discard ends a file that is not whole. With keep set its beginning stays,
// under the name that discard returns, without what is there of a write that
// failed.
func (w *file) discard(keep bool) (kept string) {
	if w.f == nil || w.name == stdoutName {
		return ""
	}
	keep = keep && w.partial != "" && w.whole > 0 && w.f.Truncate(w.whole) == nil
	w.f.Close()
	if keep {
		return w.partial
	}
	if w.partial != "" {
		os.Remove(w.partial)
	}
	return ""
}

// writeError says what becomes of an output that could not be written to its
// end. fate is where what was written, or could be saved, is now.
func (w *file) writeError(err error, fate string) error {
	name := w.title()
	if errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write %s: %w (its reader has gone)", name, cause(err))
	}
	return fmt.Errorf("write %s: %w (%s)", name, cause(err), fate)
}

// rescue writes a result to a new file in the folder for temporary files and
// returns its name.
func rescue(write func(io.Writer) error, ending string) (string, error) {
	f, err := os.CreateTemp("", "sfsample-*"+ending)
	if err != nil {
		return "", err
	}
	err = errors.Join(write(f), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}
