package capture

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Limits of what a reader believes. They are far above what a writer makes, and
// keep a damaged or hostile file from asking for memory.
const (
	maxRecordBytes = 64 << 20
	maxRegions     = 1 << 20
	maxRoots       = 1 << 10
	maxPIDs        = 1 << 16
	maxText        = 64 << 10 // bytes of a path, a build-id, a name
	maxVDSO        = 1 << 20  // bytes
)

var errDamaged = errors.New("damaged record")

// encoder appends fields to a buffer.
type encoder struct{ b []byte }

func (e *encoder) uint(v uint64)       { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) int(v int64)         { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) dur(d time.Duration) { e.int(int64(d)) }
func (e *encoder) string(s string)     { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) bytes(s []byte)      { e.uint(uint64(len(s))); e.b = append(e.b, s...) }
func (e *encoder) float(f float64)     { e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(f)) }
func (e *encoder) bool(v bool)         { e.b = append(e.b, boolByte(v)) }
func (e *encoder) ids(pid, tid int)    { e.int(int64(pid)); e.int(int64(tid)) }
func boolByte(v bool) (b byte) {
	if v {
		b = 1
	}
	return b
}

func (e *encoder) weight(w *Weight) {
	e.int(0) // was the weight in ticks
	for _, d := range [...]time.Duration{w.CPU, w.Wall, w.Delay, w.Pause, w.Late} {
		e.dur(d)
	}
}

// decoder takes fields from a record. The first failure sticks; after it every
// field is zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() { d.err, d.b = errDamaged, nil }

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) dur() time.Duration { return time.Duration(d.int()) }

// bytes returns a field that shares the record's memory.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

// text is a string of which many are kept.
func (d *decoder) text() string {
	b := d.bytes()
	if len(b) > maxText {
		d.fail()
		return ""
	}
	return string(b)
}

func (d *decoder) float() float64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(d.b))
	d.b = d.b[8:]
	return v
}

func (d *decoder) bool() bool {
	if len(d.b) < 1 {
		d.fail()
		return false
	}
	v := d.b[0] != 0
	d.b = d.b[1:]
	return v
}

func (d *decoder) ids() (pid, tid int) { return int(d.int()), int(d.int()) }

func (d *decoder) weight() (w Weight) {
	d.int() // was the weight in ticks
	for _, p := range [...]*time.Duration{&w.CPU, &w.Wall, &w.Delay, &w.Pause, &w.Late} {
		*p = d.dur()
	}
	return w
}
