// Package late bounds what is read of files once a run has no time left for them. Whoever writes a program that is
// sampled can make its file take hours to read, by sizes alone; what is read of it ends then, and whoever reads it
// learns why.
//
// All may be used by any number of goroutines.
package late

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
)

// ErrNoTime is the error of what is not read for want of time.
var ErrNoTime = errors.New("no time was left to read it")

// What is read once time is up, in bytes: files of the usual size are read all the same, on however slow a machine. 16 MB of
// symbols take some 50 ms.
const (
	fileBytes = 16 << 20 // of one file
	runBytes  = 64 << 20 // of all files of a run
)

// Time is how long the files of a run may be read. The nil Time has no end.
type Time struct {
	context.Context
	end  func()       // of a part
	left atomic.Int64 // bytes that are still read once it is done
}

// New returns the time until ctx is done.
func New(ctx context.Context) *Time {
	t := &Time{Context: ctx}
	t.left.Store(runBytes)
	return t
}

// Part returns a part of t: its end is that of t, or when End is called, if that is sooner.
func (t *Time) Part() *Time {
	ctx, end := context.WithCancel(t.Until())
	part := New(ctx)
	part.end = end
	return part
}

// End ends a part.
func (t *Time) End() { t.end() }

// Over reports whether time is up.
func (t *Time) Over() bool { return t != nil && t.Err() != nil }

// Until is the context whose end is that of t.
func (t *Time) Until() context.Context {
	if t == nil {
		return context.Background()
	}
	return t
}

// Reader makes r fail with ErrNoTime once time is up.
func (t *Time) Reader(r io.Reader) io.Reader { return reader{t, r} }

type reader struct {
	t *Time
	r io.Reader
}

func (u reader) Read(b []byte) (int, error) {
	if u.t.Over() {
		return 0, ErrNoTime
	}
	return u.r.Read(b)
}

// Source is what a file is read through.
type Source interface {
	io.ReaderAt
	Size() int64 // in bytes
}

// patient is a Source whose reads no longer wait once done is closed: the error is [os.ErrDeadlineExceeded] then.
type patient interface {
	ReadUntil(done <-chan struct{}, b []byte, off int64) (int, error)
}

// File is a file that is read as long as there is time.
type File struct {
	Source
	t      *Time
	left   atomic.Int64 // bytes that are still read once time is up
	missed atomic.Bool
	free   atomic.Bool
}

// Open returns f as it may be read within t, which may be nil.
func Open(t *Time, f Source) *File {
	l := &File{Source: f, t: t}
	l.left.Store(fileBytes)
	return l
}

// ReadAt implements io.ReaderAt. The error is ErrNoTime once time is up and as much as is read then has been read, or something
// had to be waited for.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	if !f.Take(len(b)) {
		return 0, ErrNoTime
	}
	var n int
	var err error
	if p, ok := f.Source.(patient); ok {
		n, err = p.ReadUntil(f.t.Until().Done(), b, off)
	} else {
		n, err = f.Source.ReadAt(b, off)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.missed.Store(true)
		if f.t.Over() {
			f.t.left.Store(0) // what comes next could have to be waited for as well
			err = ErrNoTime
		}
	}
	return n, err
}

// Take is for work on n bytes of the file that takes as long as to read them. It is false if there is no time for it.
func (f *File) Take(n int) bool {
	if !f.t.Over() || f.free.Load() {
		return true
	}
	if f.left.Add(-int64(n)) < 0 || f.t.left.Add(-int64(n)) < 0 {
		f.missed.Store(true)
		return false
	}
	return true
}

// Missed reports whether there was no time for a part of the file, or one did not come.
func (f *File) Missed() bool { return f.missed.Load() }

// Free ends the bound: what is read from now on is little.
func (f *File) Free() { f.free.Store(true) }
