package module

import (
	"sfsample/internal/late"
	"sfsample/sampler/symbol"
)

// reading is the file of an object, which is read as long as there is time: see [Cache]. The mutex of the object is held.
type reading struct {
	*late.File
	file File
	obj  *object
}

// read opens the file of m to be read for tables.
func read(m *Module) (*reading, error) {
	f, err := m.OpenFile()
	if err != nil {
		return nil, err
	}
	return &reading{late.Open(m.obj.mem.cache.Until, f), f, m.obj}, nil
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
	return symbol.DebugFrame(f, maxDebugFrame, m.obj.mem.cache.Until)
}
