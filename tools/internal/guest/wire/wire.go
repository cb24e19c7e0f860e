// Package wire is what a guest's first process and the host tell each other:
// the list of commands, and a stream of frames with what they print and how
// they end.
//
// A frame is a kind (1 byte), a length (4 bytes, big-endian) and that many
// bytes. Output frames carry both standard output and standard error of the
// current command, in order; an exit frame ends the command.
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Places that both sides know.
const (
	JobsFile = "/vm/jobs" // JSON: []Job
	Port     = "sfsample" // name of the virtio serial port
)

// Job is one command.
type Job struct {
	Dir  string   // working folder
	Argv []string // program, by full path, and arguments
	Env  []string // in addition to the guest's own
}

// Kinds of frames.
const (
	Output = 'o' // bytes that the command printed
	Exit   = 'x' // the command has ended: "" when well, else how
	Broken = 'b' // the guest itself cannot go on: why
)

// MaxFrame is the greatest number of bytes in a frame.
const MaxFrame = 64 << 10

// Write writes one frame with one call of w.Write.
func Write(w io.Writer, kind byte, b []byte) error {
	if len(b) > MaxFrame {
		return fmt.Errorf("frame of %d bytes", len(b))
	}
	frame := make([]byte, 5, 5+len(b))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(b)))
	_, err := w.Write(append(frame, b...))
	return err
}

// Read reads one frame. io.EOF: the stream ended between two frames.
func Read(r io.Reader) (kind byte, b []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes", n)
	}
	b = make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, nil, fmt.Errorf("frame cut short: %w", err)
	}
	return head[0], b, nil
}
