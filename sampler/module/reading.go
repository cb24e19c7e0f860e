package module

import (
	"cmp"
	"errors"
	"time"

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

// tries are those of a file that could not be read just now.
type tries struct {
	next time.Time     // before which there is none
	rest time.Duration // from the last one to that
}

const (
	// firstTry is from a try to the next; each further one is twice as long, up to longestTry.
	firstTry   = 50 * time.Millisecond
	longestTry = 10 * time.Second
	// patient: once rests are that long, a file that cannot be read counts as one that tells nothing.
	patient = time.Second
)

// due tells whether a file may be tried. Before the next try nobody knows what it would tell.
func due(o *object) bool {
	is := !o.mem.via.access.opt.Now().Before(o.tries.next)
	o.mem.passing = o.mem.passing || !is && o.tries.rest < patient
	return is
}

// again tells whether a file is to be tried another time that could not be read for that reason; then nobody knows just now what it would tell.
func again(o *object, err error) bool {
	if !passing(err) {
		return false
	}
	o.tries.rest = min(max(firstTry, 2*o.tries.rest), longestTry)
	o.tries.next = o.mem.via.access.opt.Now().Add(o.tries.rest)
	if o.tries.rest >= patient {
		return false
	}
	o.mem.passing = true
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
	if err != nil {
		err = cmp.Or(f.err, err)
	}
	return data, err
}
