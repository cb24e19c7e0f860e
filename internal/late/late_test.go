package late

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

// counter is a file of zeros that counts what is read of it.
type counter struct{ size, read int64 }

func (c *counter) Size() int64 { return c.size }

func (c *counter) ReadAt(b []byte, off int64) (int, error) {
	n := min(int64(len(b)), c.size-off)
	clear(b[:n])
	c.read += n
	if n < int64(len(b)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// readAll reads f piece by piece, and returns why that ended.
func readAll(f *File) error {
	b := make([]byte, 1<<20)
	for off := int64(0); off < f.Size(); off += int64(len(b)) {
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
	}
	return nil
}

func TestFile(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := New(ctx)
	early := &counter{size: 2 * runBytes}
	if f := Open(run, early); readAll(f) != nil || f.Missed() || early.read != early.size {
		t.Errorf("before the end: %d of %d bytes read", early.read, early.size)
	}
	cancel()
	var read int64
	for range 2 * runBytes / fileBytes {
		c := &counter{size: 2 * fileBytes}
		f := Open(run, c)
		if err := readAll(f); !errors.Is(err, ErrNoTime) || !f.Missed() || c.read > fileBytes {
			t.Errorf("after the end: %d bytes of a file read, %v", c.read, err)
		}
		read += c.read
	}
	if read != runBytes {
		t.Errorf("after the end: %d bytes of all files read, want %d", read, runBytes)
	}
	f := Open(run, early)
	f.Free()
	if err := readAll(f); err != nil || f.Missed() {
		t.Errorf("without a bound: %v", err)
	}
}

// silent is a file that does not come: who reads it goes on when time is up.
type silent struct{ counter }

func (s *silent) ReadUntil(done <-chan struct{}, b []byte, off int64) (int, error) {
	<-done
	return 0, &os.PathError{Op: "read", Path: "silent", Err: os.ErrDeadlineExceeded}
}

// TestSilent: a read under way ends when time is up, and no other one is begun, of whatever file.
func TestSilent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := New(ctx)
	f, other := Open(run, new(silent)), Open(run, &counter{size: 1 << 20})
	ended := make(chan error)
	go func() {
		_, err := f.ReadAt(make([]byte, 1), 0)
		ended <- err
	}()
	if err := readAll(other); err != nil {
		t.Errorf("meanwhile: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, ErrNoTime) || !f.Missed() {
		t.Errorf("when time is up: %v, missed %t", err, f.Missed())
	}
	if err := readAll(other); !errors.Is(err, ErrNoTime) {
		t.Errorf("another file then: %v, want %v", err, ErrNoTime)
	}
}

func TestTime(t *testing.T) {
	var none *Time
	if none.Over() || none.Until().Err() != nil {
		t.Error("the nil Time has an end")
	}
	ctx, cancel := context.WithCancel(t.Context())
	run := New(ctx)
	r := run.Reader(bytes.NewReader(make([]byte, 10)))
	if n, err := r.Read(make([]byte, 5)); n != 5 || err != nil {
		t.Errorf("before the end: %d bytes, %v", n, err)
	}
	cancel()
	if n, err := r.Read(make([]byte, 5)); n != 0 || !errors.Is(err, ErrNoTime) {
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
}

// TestPart: a part ends with the whole, or before it.
func TestPart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	whole := New(ctx)
	one, other := whole.Part(), whole.Part()
	one.End()
	if !one.Over() || other.Over() || whole.Over() {
		t.Errorf("one has ended: %t, another %t, the whole %t", one.Over(), other.Over(), whole.Over())
	}
	if cancel(); !other.Over() {
		t.Error("a part goes on when the whole has ended")
	}
	if none := (*Time)(nil); none.Part().Over() {
		t.Error("a part of the nil Time has ended")
	}
}
