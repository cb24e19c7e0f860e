package capture

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Magic opens a file; the digits are the version of the format.
const Magic = "sfsample-capture 1\n"

// flushEvery bounds what a killed sampler loses of a recording.
const flushEvery = time.Second

// Writer writes records to a file.
type Writer struct {
	gz      *gzip.Writer
	enc     encoder
	flushed time.Time
}

// NewWriter begins a recording on w.
func NewWriter(w io.Writer) (*Writer, error) {
	if _, err := io.WriteString(w, Magic); err != nil {
		return nil, err
	}
	gz, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the error is that there is no such level
	return &Writer{gz: gz, flushed: time.Now()}, nil
}

// Write appends r. It does not keep r.
func (w *Writer) Write(r Record) error {
	w.enc.b = w.enc.b[:0]
	r.encode(&w.enc)
	if len(w.enc.b) > maxRecordBytes {
		return fmt.Errorf("record of %d bytes is over the limit of %d", len(w.enc.b), maxRecordBytes)
	}
	head := binary.AppendUvarint([]byte{r.kind()}, uint64(len(w.enc.b)))
	if _, err := w.gz.Write(head); err != nil {
		return err
	}
	if _, err := w.gz.Write(w.enc.b); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(w.flushed) > flushEvery {
		w.flushed = now
		return w.gz.Flush()
	}
	return nil
}

// Close ends the recording. It does not close the file below.
func (w *Writer) Close() error { return w.gz.Close() }

// Reader reads a recording.
type Reader struct {
	r   *bufio.Reader
	num int // records read
}

// NewReader opens a recording. The error says when r is none, or one of a
// version that this program does not know.
func NewReader(r io.Reader) (*Reader, error) {
	head := make([]byte, len(Magic))
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, fmt.Errorf("not a recording of sfsample: %w", err)
	}
	if string(head) != Magic {
		return nil, fmt.Errorf("not a recording of sfsample of version 1: it begins with %q", head)
	}
	gz, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("damaged recording: %w", err)
	}
	return &Reader{r: bufio.NewReader(gz)}, nil
}

// Next returns the next record; io.EOF after the last one,
// io.ErrUnexpectedEOF when the recording was cut (what was read before holds),
// another error when it is damaged.
func (r *Reader) Next() (Record, error) {
	for {
		kind, err := r.r.ReadByte()
		if err != nil {
			return nil, err
		}
		r.num++
		n, err := binary.ReadUvarint(r.r)
		if err != nil {
			return nil, cut(err)
		}
		if n > maxRecordBytes {
			return nil, fmt.Errorf("record %d: length %d is over the limit: %w", r.num, n, errDamaged)
		}
		rec := newRecord(kind)
		if rec == nil {
			if _, err := r.r.Discard(int(n)); err != nil {
				return nil, cut(err)
			}
			continue
		}
		body, err := readBody(r.r, int(n))
		if err != nil {
			return nil, cut(err)
		}
		d := decoder{b: body}
		rec.decode(&d)
		if d.err != nil {
			return nil, fmt.Errorf("record %d: %w", r.num, d.err)
		}
		return rec, nil
	}
}

// readBody reads n bytes, allocating as they come: a file that promises more
// than it holds gets no memory for it.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	var b []byte
	for len(b) < n {
		k := min(n-len(b), step)
		b = append(b, make([]byte, k)...)
		if _, err := io.ReadFull(r, b[len(b)-k:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// cut turns the end of the file inside a record into io.ErrUnexpectedEOF.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
