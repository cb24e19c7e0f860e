package output

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// writes remembers each write by itself.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

// TestStreamsWriteWholeSamples: each write ends where a sample ends, and none
// waits for more than a second of samples.
func TestStreamsWriteWholeSamples(t *testing.T) {
	long := strings.Repeat("long", 1000) // so that a buffer holds about 16
	s := &Sample{Process: "p", Thread: "t", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: long}}}}
	for _, f := range formats {
		if !f.stream {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			var got writes
			sink := f.new(&got, Options{Hz: 100})
			for i := range 1000 {
				s.Time = start.Add(time.Duration(i) * 10 * time.Millisecond)
				if err := sink.Add(s); err != nil {
					t.Fatal(err)
				}
				if i%100 == 0 {
					if n := strings.Count(strings.Join(got, ""), long); n != i+1 {
						t.Fatalf("after %d samples, a second later, %d are written", i+1, n)
					}
				}
			}
			if err := sink.Close(); err != nil {
				t.Fatal(err)
			}
			var one bytes.Buffer
			sink = f.new(&one, Options{Hz: 100})
			sink.Add(s)
			sink.Close()
			end := one.String()[strings.Index(one.String(), long):]
			for i, w := range got {
				if !strings.HasSuffix(w, end) {
					t.Errorf("write %d ends in %q", i, w[max(0, len(w)-30):])
				}
			}
			if n := strings.Count(strings.Join(got, ""), long); n != 1000 {
				t.Errorf("%d samples, want 1000", n)
			}
		})
	}
}
