package symbol

import (
	"bytes"
	"errors"
	"testing"
)

// holed is a file of which what lies behind an offset does not come.
type holed struct {
	*bytes.Reader
	from int64
}

func (h *holed) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > h.from {
		return 0, errors.New("it does not come")
	}
	return h.Reader.ReadAt(b, off)
}

// TestHalfName: a name of which only the beginning can be read is none; it is read when the rest has come.
func TestHalfName(t *testing.T) {
	b := bytes.Repeat([]byte{'x'}, strPageSize+10)
	b[strPageSize-4] = 0
	f := &holed{bytes.NewReader(b), strPageSize}
	s := stringTable{f: f, size: int64(len(b))}
	if got := s.name(strPageSize - 3); got != "" {
		t.Errorf("half a name: %q", got)
	}
	if got := s.name(strPageSize - 8); got != "xxxx" {
		t.Errorf("a name before it: %q", got)
	}
	f.from = int64(len(b))
	if got := s.name(strPageSize - 3); got != "xxxxxxxxxxxxx" {
		t.Errorf("the whole name: %q", got)
	}
}
