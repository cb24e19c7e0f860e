package capture

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sfsample/ptrace/procfs"
)

// every has a value in each field of each record, so that a field that is
// forgotten on one side shows.
func every() []Record {
	w := Weight{CPU: 4, Wall: 5, Delay: 6, Pause: 7, Late: 8}
	return []Record{
		&Run{Host: "s390x", Start: time.Unix(1, 2), Hz: 99.5, Weight: "wall", Command: "app -x", PIDs: []int{1, 23}, Machine: "box"},
		&Name{PID: 1, TID: 2, Name: "a;b\n"},
		&Maps{PID: 1, VDSO: []byte{1, 2}, Regions: []Region{{
			Mapping: procfs.Mapping{Start: 0x1000, End: 0x3000, Perms: procfs.Read | procfs.Exec, Offset: 0x100,
				Dev: procfs.Dev{Major: 8, Minor: 1}, Inode: 77, Path: "/a b", Deleted: true},
			BuildID: "00ff", Size: 24, Modified: 25,
		}}},
		&Capture{PID: 1, TID: 2, Tick: 9, At: 10, Taken: Exiting, Blocked: true, Count: 11,
			Regs:  Registers{Note: []byte{1}, FP: []byte{2}, Call: Call{NR: -1, Args: [6]uint64{1, 2, 3, 4, 5, 1 << 63}, SP: 12, PC: 13}, PACMask: 14},
			Stack: Stack{1 << 63, []byte{3, 4, 5}}, Kernel: []byte("[<0>] f+0x1/0x2\n"), Weight: w,
			Beyond: Copies{[]Block{{16, 1}, {19, 1}}, []byte{6, 7}}, Doubt: Range{17, 18}, Roots: []uint64{21, 22}},
		&Credit{PID: 1, TID: 2, At: 15, Waited: true, Weight: w},
		&Spent{PID: 1, TID: 2, Weight: w},
		&Gone{PID: 1},
		&Memory{PID: 1, Addr: 20, Bytes: []byte{9}},
	}
}

func record(t *testing.T, recs []Record) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readBack(b []byte) (recs []Record, err error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	for {
		rec, err := r.Next()
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec)
	}
}

func TestRoundTrip(t *testing.T) {
	want := every()
	got, err := readBack(record(t, want))
	if err != io.EOF {
		t.Fatalf("end of the file: %v", err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records differ (-written +read):\n%s", d)
	}
}

// TestEveryFieldIsSet holds every to its word: a field that it leaves zero would
// hide one that is not written.
func TestEveryFieldIsSet(t *testing.T) {
	for _, r := range every() {
		if s := zeroFields(r); s != "" && s != ".Marks" { // which are not recorded
			t.Errorf("%T: the test leaves %s zero", r, s)
		}
	}
}

func TestCutRecording(t *testing.T) {
	whole := record(t, every())
	for n := len(Magic) + 12; n < len(whole)-1; n++ {
		recs, err := readBack(whole[:n])
		if err != io.ErrUnexpectedEOF {
			t.Fatalf("cut at %d of %d: error %v, want %v", n, len(whole), err, io.ErrUnexpectedEOF)
		}
		if len(recs) > len(every()) {
			t.Fatalf("cut at %d: %d records", n, len(recs))
		}
	}
}

func TestNotARecording(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":         nil,
		"other file":    []byte("\x7fELF and so on, long enough to be read"),
		"other version": []byte("sfsample-capture 9\n and so on"),
		"no gzip":       []byte(Magic + "not compressed at all"),
	} {
		if _, err := NewReader(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestUnknownRecordIsSkipped(t *testing.T) {
	b := record(t, []Record{&Gone{PID: 1}, strange{}, &Gone{PID: 2}})
	got, err := readBack(b)
	if err != io.EOF {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Record{&Gone{PID: 1}, &Gone{PID: 2}}, got); d != "" {
		t.Error(d)
	}
}

// strange is a record of a later version.
type strange struct{}

func (strange) kind() byte        { return 200 }
func (strange) encode(e *encoder) { e.string("something new") }
func (strange) decode(*decoder)   {}

func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w, _ := NewWriter(&b)
	for _, r := range every() {
		w.Write(r)
	}
	w.Close()
	f.Add(b.Bytes())
	f.Add([]byte(Magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		recs, err := readBack(b)
		if err == nil {
			t.Fatal("a file without end")
		}
		// What was read can be written and read again, to the same end.
		again, err := readBack(record(t, recs))
		if err != io.EOF || cmp.Diff(recs, again) != "" {
			t.Fatalf("read %d records, after writing %d (%v)", len(recs), len(again), err)
		}
	})
}

// FuzzRecord decodes single records, which the compression keeps a fuzzer from
// reaching.
func FuzzRecord(f *testing.F) {
	for _, r := range every() {
		var e encoder
		r.encode(&e)
		f.Add(r.kind(), e.b)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		r := newRecord(kind)
		if r == nil {
			return
		}
		d := decoder{b: b}
		r.decode(&d)
		if d.err != nil {
			if !errors.Is(d.err, errDamaged) {
				t.Fatal(d.err)
			}
			return
		}
		var e encoder
		r.encode(&e)
		again := newRecord(kind)
		d = decoder{b: e.b}
		again.decode(&d)
		if d.err != nil || len(d.b) > 0 {
			t.Fatalf("cannot read what was written: %v, %d bytes left", d.err, len(d.b))
		}
	})
}
