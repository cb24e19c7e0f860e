package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	var buf bytes.Buffer
	frames := []struct {
		kind byte
		text string
	}{{Output, "hello\x00\xff"}, {Exit, ""}, {Output, string(make([]byte, MaxFrame))}}
	for _, f := range frames {
		if err := Write(&buf, f.kind, []byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range frames {
		kind, b, err := Read(&buf)
		if err != nil || kind != f.kind || string(b) != f.text {
			t.Errorf("frame %d: kind %q, %d bytes, %v; want kind %q, %d bytes", i, kind, len(b), err, f.kind, len(f.text))
		}
	}
	if _, _, err := Read(&buf); err != io.EOF {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestReadDamaged(t *testing.T) {
	for name, b := range map[string][]byte{
		"cut in the head": {'o', 0, 0},
		"cut in the text": {'o', 0, 0, 0, 9, 'x'},
		"too long":        {'o', 0xff, 0, 0, 0, 'x'},
	} {
		if _, _, err := Read(bytes.NewReader(b)); err == nil || errors.Is(err, io.EOF) && err == io.EOF {
			t.Errorf("%s: %v, want an error that is not io.EOF", name, err)
		}
	}
	if err := Write(io.Discard, Output, make([]byte, MaxFrame+1)); err == nil {
		t.Error("a frame of MaxFrame+1 bytes was written")
	}
}
