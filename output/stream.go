package output

import (
	"bufio"
	"io"
	"time"
)

// stream is what the writers that write samples as they come write through: it
// gathers some, for at most a second of their time, and hands on only whole
// ones, so that a file that ends early ends between two samples.
type stream struct {
	out     *bufio.Writer
	flushed time.Time
}

func newStream(w io.Writer) stream {
	return stream{out: bufio.NewWriterSize(w, 1<<16)}
}

// write takes the text of the sample taken at the time at.
func (s *stream) write(b []byte, at time.Time) error {
	if s.out.Available() < len(b) {
		if err := s.out.Flush(); err != nil {
			return err
		}
	}
	if _, err := s.out.Write(b); err != nil {
		return err
	}
	if at.Sub(s.flushed) >= time.Second {
		s.flushed = at
		return s.out.Flush()
	}
	return nil
}

// Close writes what has been gathered.
func (s *stream) Close() error { return s.out.Flush() }
