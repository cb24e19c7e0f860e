package module

import (
	"io"
	"io/fs"
	"os"

	"sfsample/ptrace/procfs"
)

// Source is what a Space reads a process through.
type Source interface {
	// Maps returns the mappings of the process, in ascending order. None means
	// that the process has no memory any more.
	Maps() ([]procfs.Mapping, error)
	// ReadAt reads memory: offset = address (beyond 2^63: negative). Less than
	// asked for comes with an error.
	ReadAt(p []byte, addr int64) (int, error)
	// OpenFile opens the file of a mapping as the process sees it.
	OpenFile(m procfs.Mapping) (File, error)
}

// Range is a piece of memory.
type Range struct {
	Addr uint64
	Size int // in bytes
}

// Vector is a Source that reads many small pieces at the price of few.
type Vector interface {
	// ReadRanges reads the ranges to buf, one behind the other, and returns how
	// many bytes there were up to the first that could not be read.
	ReadRanges(buf []byte, ranges []Range) (int, error)
}

// File is an open file or the image of one.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// inner is a part of a file that is itself an ELF file, such as a library
// mapped straight out of an archive.
type inner struct {
	*io.SectionReader
	File
}

func (f inner) ReadAt(p []byte, off int64) (int, error) { return f.SectionReader.ReadAt(p, off) }
func (f inner) Size() int64                             { return f.SectionReader.Size() }

// Stat tells of the file that f is a part of.
func (f inner) Stat() (os.FileInfo, error) {
	if s, ok := f.File.(interface{ Stat() (os.FileInfo, error) }); ok {
		return s.Stat()
	}
	return nil, fs.ErrInvalid
}

// bytesFile is an image in memory.
type bytesFile struct{ *io.SectionReader }

func (bytesFile) Close() error { return nil }
