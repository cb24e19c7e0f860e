package sampler

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"sfsample/output"
	"sfsample/sampler/capture"
)

// lines is a sink that notes what it got, in its order, and fails at each.
type lines struct {
	got []string
	at  []time.Time
}

func (l *lines) Add(s *output.Sample) error {
	l.got, l.at = append(l.got, s.State), append(l.at, s.Time)
	return errors.New(s.State)
}
func (l *lines) EndRound(*Round) error { l.got = append(l.got, "round"); return nil }
func (l *lines) Close() error          { return nil }

// TestSender: samples come out in the order in which they were sent, those of a thread never back in time, a round's end behind those of
// the round; that an output has failed keeps none from it, and is told at the end.
func TestSender(t *testing.T) {
	sink := new(lines)
	p := NewPipeline(PipelineConfig{Sink: sink, Names: NewNames(NameOptions{Recorded: true}), Start: time.Unix(0, 0)})
	end := p.out.begin(0)
	a, b := &target{pid: 1, threads: map[int]*seen{}}, &target{pid: 2, threads: map[int]*seen{}}
	send := func(x *target, at time.Duration, state string) {
		p.out.send(x, x.pid, &seen{last: neverCaught, state: state}, at, "", new(capture.Weight))
	}
	send(a, 5*time.Second, "one")
	send(a, 3*time.Second, "two") // its clock was ahead
	send(b, 4*time.Second, "three")
	p.out.round(new(Round))
	send(a, 6*time.Second, "four")
	latest := p.out.latest
	end()
	if got := strings.Join(sink.got, " "); got != "one two three round four" {
		t.Errorf("it got %q", got)
	}
	for i, want := range []int64{5, 5, 4, 6} {
		if got := sink.at[i].Unix(); got != want {
			t.Errorf("sample %d is of second %d, want %d", i, got, want)
		}
	}
	if latest != 6*time.Second {
		t.Errorf("the latest is of %v, want 6s", latest)
	}
	if err := p.failed.err; err == nil || err.Error() != "one\ntwo\nthree\nfour" {
		t.Errorf("it failed with %v, want each", err)
	}
}

// fills is a file on a disk that is full after so many bytes.
type fills struct {
	bytes.Buffer
	room int
}

func (f *fills) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, errors.New("full")
	}
	return f.Buffer.Write(b)
}

// TestRecorderFails: a recording that fails is told of once, and nothing is written behind the hole.
func TestRecorderFails(t *testing.T) {
	file := &fills{room: 1 << 10}
	w, err := capture.NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPipeline(PipelineConfig{Record: w})
	for i := range 1 << 10 { // the writer compresses by blocks
		x := uint64(i)*0x9e3779b97f4a7c15 + 1
		noise := make([]byte, 512)
		for j := range noise {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			noise[j] = byte(x)
		}
		p.rec.write(&capture.Memory{PID: 1, Addr: 8, Bytes: noise})
		if p.rec.err != nil {
			file.room = 1 << 30 // there is room again
		}
	}
	if err := p.failed.err; err == nil || strings.Count(err.Error(), "full") != 1 {
		t.Errorf("it failed with %v, want the error once", err)
	}
	if file.Len() > 1<<10 {
		t.Errorf("%d bytes were written, of which the file had room for 1024", file.Len())
	}
}
