package output

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
)

// Fields of the message Profile (profile.proto of github.com/google/pprof).
const (
	profileSampleType        = 1
	profileSample            = 2
	profileMapping           = 3
	profileLocation          = 4
	profileFunction          = 5
	profileStringTable       = 6
	profileTimeNanos         = 9
	profileDurationNanos     = 10
	profilePeriodType        = 11
	profilePeriod            = 12
	profileDefaultSampleType = 14
)

// Wire types (Protocol Buffers, "Encoding").
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// protoWriter writes a protocol buffer message, gzipped, field by field: a
// field that is itself a message is made up in memory with uint, varint and
// nested, and written by end. Fields that are 0 are left out, as in proto3.
type protoWriter struct {
	zip   *gzip.Writer
	msg   []byte // the field in the making
	marks []int  // where in msg each open nested field begins
	head  []byte
	err   error
}

func newProtoWriter(w io.Writer) *protoWriter {
	return &protoWriter{zip: gzip.NewWriter(w)}
}

// uint adds a number to the field in the making.
func (e *protoWriter) uint(field int, v uint64) {
	if v != 0 {
		e.msg = binary.AppendUvarint(e.msg, uint64(field)<<3|wireVarint)
		e.msg = binary.AppendUvarint(e.msg, v)
	}
}

// varint adds a bare number, in a packed list.
func (e *protoWriter) varint(v uint64) { e.msg = binary.AppendUvarint(e.msg, v) }

// begin begins a message or list in the field in the making; nested ends it.
func (e *protoWriter) begin() { e.marks = append(e.marks, len(e.msg)) }

func (e *protoWriter) nested(field int) {
	mark := e.marks[len(e.marks)-1]
	e.marks = e.marks[:len(e.marks)-1]
	e.head = binary.AppendUvarint(e.head[:0], uint64(field)<<3|wireBytes)
	e.head = binary.AppendUvarint(e.head, uint64(len(e.msg)-mark))
	body := len(e.msg) - mark
	e.msg = append(e.msg, e.head...) // make room, then put the head before the body
	copy(e.msg[mark+len(e.head):], e.msg[mark:mark+body])
	copy(e.msg[mark:], e.head)
}

// end writes the field in the making as a message.
func (e *protoWriter) end(field int) {
	e.head = binary.AppendUvarint(e.head[:0], uint64(field)<<3|wireBytes)
	e.head = binary.AppendUvarint(e.head, uint64(len(e.msg)))
	e.write(e.head)
	e.write(e.msg)
	e.msg = e.msg[:0]
}

// top writes a number.
func (e *protoWriter) top(field int, v uint64) {
	e.uint(field, v)
	e.write(e.msg)
	e.msg = e.msg[:0]
}

// string writes a string, the empty one too.
func (e *protoWriter) string(field int, s string) {
	e.msg = append(e.msg[:0], s...)
	e.end(field)
}

func (e *protoWriter) write(b []byte) {
	if e.err == nil {
		_, e.err = e.zip.Write(b)
	}
}

func (e *protoWriter) close() error { return errors.Join(e.err, e.zip.Close()) }
