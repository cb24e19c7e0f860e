package module

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"sfsample/internal/late"
	"sfsample/sampler/symbol"
)

// reading is the file of an object, which is read as long as there is time: see [Cache]. The mutex of the object is held.
type reading struct {
	*late.File
	file File
	obj  *object
	err  error // of a read that failed just now
}

// ReadAt implements io.ReaderAt. Who reads a table may do without what could not be read: err tells of it.
func (r *reading) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(b, off)
	if passing(err) {
		r.err = err
	}
	return n, err
}

// read opens the file of m to be read for tables.
func read(m *Module) (*reading, error) {
	f, err := m.OpenFile()
	if err != nil {
		return nil, err
	}
	return &reading{File: late.Open(m.obj.mem.cache.Until, f), file: f, obj: m.obj}, nil
}

// passing tells that a file could not be opened or read just now, and can be another time: it lacked room, or a disk has failed.
func passing(err error) bool {
	for _, e := range []error{unix.EIO, unix.EINTR, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Close closes the file and keeps in mind whether there was no time for a part of it.
func (r *reading) Close() error {
	r.obj.late = r.obj.late || r.Missed()
	return r.file.Close()
}

// over reports whether no more tables of o are to be read as a whole, and keeps it in mind.
func over(o *object) bool {
	o.late = o.late || o.mem.cache.Until.Over()
	return o.late
}

// maxUnread bounds how often one file is tried that cannot be read just now.
const maxUnread = 16

// again tells whether a file is to be tried another time that could not be read for that reason; then nobody knows just now what it would tell.
func again(o *object, err error) bool {
	if !passing(err) || o.unread >= maxUnread {
		return false
	}
	o.unread++
	o.mem.failed = true
	return true
}

// Late tells whether there was no time to read all that the module's file tells of its code.
func (m *Module) Late() bool {
	m.obj.mu.Lock()
	defer m.obj.mu.Unlock()
	return m.obj.late
}

// debugFrame reads the .debug_frame of the file of m.
func debugFrame(m *Module) ([]byte, error) {
	f, err := read(m)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := symbol.DebugFrame(f, maxDebugFrame, m.obj.mem.cache.Until)
	return data, cmp.Or(f.err, err)
}
