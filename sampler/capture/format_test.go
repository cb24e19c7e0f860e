package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
)

// plain returns the records of a file as they lie below the compression.
func plain(t *testing.T, file []byte) []byte {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(file[len("sfsample-capture 1\n"):]))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// file compresses records that were put together by hand.
func file(t *testing.T, records string) io.Reader {
	t.Helper()
	b := bytes.NewBufferString("sfsample-capture 1\n")
	gz := gzip.NewWriter(b)
	if _, err := io.WriteString(gz, records); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFormat: what a file of version 1 holds, written by hand. Each record is its
// number, its length and its fields. Signed numbers are zigzag varints (2n, or
// -2n-1), unsigned ones varints, strings and bytes have their length before
// them. Files of before must stay readable, so that none of this may change.
func TestFormat(t *testing.T) {
	const weight = "\x00\x08\x0a\x0c\x0e\x10" // 0, 4, 5, 6, 7, 8
	float := string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(99.5)))
	want := "\x01\x26" + "\x05s390x" + "\x84\xa8\xd6\xb9\x07" + float + "\x04wall" + // 1,000,000,002 ns
		"\x06app -x" + "\x03box" + "\x02\x02\x2e" +
		"\x06\x07" + "\x02\x04" + "\x04a;b\n" +
		"\x02\x1e" + "\x02" + "\x01" + "\x80\x20" + "\x80\x40" + "\x80\x02" + "\x05" + "\x08" + "\x01" + "\x4d" + "\x01" +
		"\x04/a b" + "\x0400ff" + "\x02\x01\x02" + "\x01\x00\x30\x32"
	capt := "\x02\x04" + "\x12" + "\x14" + "\x02" + "\x01" + "\x0b" + "\x01\x01" + "\x01\x02" +
		"\x01" + "\x01\x02\x03\x04\x05" + "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" + "\x0c\x0d" + "\x0e" +
		"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" + "\x03\x03\x04\x05" + "\x10[<0>] f+0x1/0x2\n" + weight + "\x10" + "\x02\x06\x07" + "\x11\x12" +
		"\x01" + "\x13\x01" + "\x02\x15\x16"
	want += "\x03" + string(rune(len(capt))) + capt +
		"\x04\x0a" + "\x02\x04" + "\x1e" + weight + "\x01" +
		"\x05\x08" + "\x02" + weight + "\x04" +
		"\x07\x01" + "\x02" +
		"\x08\x04" + "\x02" + "\x14" + "\x01\x09"
	if got := string(plain(t, record(t, every()))); got != want {
		t.Errorf("written %q\nwant    %q", got, want)
	}
}

// TestDamagedRecord: a record that ends at any place before its end is damaged,
// and the error tells which one it is; but those may lack their last fields which
// recordings of before do not have.
func TestDamagedRecord(t *testing.T) {
	for _, rec := range every() {
		var e encoder
		rec.encode(&e)
		older := map[int]string{}
		switch rec.(type) {
		case *Capture: // from the end: a number, and two addresses; a number, an address and a length; two addresses; one, and two bytes with their length
			for i, blocks := range []string{"[{16 1} {19 1}]", "[{16 2}]", "[{16 2}]", "[]"} {
				older[len(e.b)-[]int{3, 6, 8, 12}[i]] = blocks
			}
		case *Credit, *Spent:
			older[len(e.b)-1] = ""
		case *Maps: // a number, then another, a size and a time
			older[len(e.b)-4] = ""
		case *Run: // a command, a name, and two numbers with how many they are
			older[len(e.b)-14] = ""
		}
		for n := range e.b {
			r, err := NewReader(file(t, "\x07\x01\x02"+string(rec.kind())+string(rune(n))+string(e.b[:n])))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Next(); err != nil || *got.(*Gone) != (Gone{1}) {
				t.Fatalf("the first record: %v, %v", got, err)
			}
			got, err := r.Next()
			if blocks, ok := older[n]; ok {
				switch c := got.(type) {
				case *Capture:
					if c.Weight.Late != 8 || fmt.Sprint(c.Beyond.Blocks) != blocks {
						t.Errorf("a capture of %d of %d bytes: %+v; want blocks %s", n, len(e.b), c, blocks)
					}
				case *Credit:
					if c.Late != 8 || c.Waited {
						t.Errorf("a credit without the last field: %+v", c)
					}
				case *Spent:
					if c.Late != 8 || c.TID != 0 {
						t.Errorf("CPU time without the last field: %+v", c)
					}
				case *Maps:
					if len(c.VDSO) != 2 || c.Regions[0].BuildID != "00ff" || c.Regions[0].Size != 0 {
						t.Errorf("mappings without the last fields: %+v", c)
					}
				case *Run:
					if c.Weight != "wall" || c.Command != "" || c.Machine != "" || c.PIDs != nil {
						t.Errorf("a run without the last fields: %+v", c)
					}
				default:
					t.Errorf("%T without the last fields: %v", rec, err)
				}
				continue
			}
			if !errors.Is(err, errDamaged) || !strings.HasPrefix(err.Error(), "record 2: ") || got != nil {
				t.Errorf("%T, %d of %d bytes: %v, %v; want record 2: damaged", rec, n, len(e.b), got, err)
			}
		}
	}
}

// TestOldest: a capture of nothing has a byte a field, none for roots, and may end where recordings of before do: behind the
// weight, the first block, the doubt, and how many blocks there are.
func TestOldest(t *testing.T) {
	var e encoder
	(&Capture{}).encode(&e)
	if want := make([]byte, 33); !bytes.Equal(e.b, want) {
		t.Errorf("written %d, want %d", e.b, want)
	}
	for n := range len(e.b) + 1 {
		d, c := decoder{b: e.b[:n]}, Capture{}
		if c.decode(&d); (d.err == nil) != (n == 28 || n == 30 || n == 32 || n == 33) {
			t.Errorf("%d bytes: %v", n, d.err)
		}
	}
}

// TestDecoder: each field is read to its last byte; after a failure all are zero.
func TestDecoder(t *testing.T) {
	tooLong := bytes.Repeat([]byte{0xff}, 11)
	for _, tt := range []struct {
		name string
		b    []byte
		get  func(*decoder) any
		want any // of b
		zero any // of b without its last byte
	}{
		{"uint", []byte{0xac, 2}, func(d *decoder) any { return d.uint() }, uint64(300), uint64(0)},
		{"int", []byte{0xab, 2}, func(d *decoder) any { return d.int() }, int64(-150), int64(0)},
		{"float", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}, func(d *decoder) any { return d.float() }, 1.0, 0.0},
		{"string", []byte{2, 'a', 'b'}, func(d *decoder) any { return d.string() }, "ab", ""},
		{"true", []byte{1}, func(d *decoder) any { return d.bool() }, true, false},
		{"false", []byte{0}, func(d *decoder) any { return d.bool() }, false, false},
	} {
		for _, more := range []string{"", "\x01\x01"} {
			d := decoder{b: append(bytes.Clone(tt.b), more...)}
			if got := tt.get(&d); got != tt.want || d.err != nil || string(d.b) != more {
				t.Errorf("%s: %v, %v, then %q; want %v, then %q", tt.name, got, d.err, d.b, tt.want, more)
			}
		}
		d := decoder{b: tt.b[:len(tt.b)-1]}
		if got := tt.get(&d); got != tt.zero || !errors.Is(d.err, errDamaged) || len(d.b) != 0 {
			t.Errorf("%s, cut: %v, %v, then %q", tt.name, got, d.err, d.b)
		}
	}
	for _, get := range []func(*decoder) any{func(d *decoder) any { return d.uint() }, func(d *decoder) any { return d.int() }} {
		d := decoder{b: tooLong}
		if get(&d); !errors.Is(d.err, errDamaged) || d.b != nil {
			t.Errorf("a number of more than 64 bits: %v", d.err)
		}
	}
	d := decoder{b: []byte{3, 'a', 'b', 1}}
	if s := d.bytes(); string(s) != "ab\x01" || cap(s) != 3 {
		t.Errorf("bytes %q with room for %d", s, cap(s))
	}
}

// sized is a record of a given length, of a kind that readers skip.
type sized int

func (sized) kind() byte          { return 201 }
func (s sized) encode(e *encoder) { e.b = make([]byte, s) }
func (sized) decode(*decoder)     {}

// TestLimits: 64 MiB is the longest record, 1 << 20 the most mappings, 1 << 10 the most roots; what many are kept of has limits of its own.
func TestLimits(t *testing.T) {
	promise := func(n uint64) error {
		r, err := NewReader(file(t, "\x07"+string(binary.AppendUvarint(nil, n))+"\x02"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Next()
		return err
	}
	if err := promise(64 << 20); err != io.ErrUnexpectedEOF {
		t.Errorf("a record of 64 MiB that is cut: %v", err)
	}
	if err := promise(64<<20 + 1); !errors.Is(err, errDamaged) {
		t.Errorf("a longer record: %v", err)
	}
	if r, err := NewReader(file(t, "\xc8\x05ab")); err != nil {
		t.Error(err)
	} else if _, err := r.Next(); err != io.ErrUnexpectedEOF {
		t.Errorf("a record of no known kind that is cut: %v", err)
	}
	for n, want := range map[int]bool{0: true, 1: true, 1 << 10: true, 1<<10 + 1: false} {
		var e encoder
		(&Capture{Roots: make([]uint64, n)}).encode(&e)
		d, c := decoder{b: e.b}, Capture{}
		if c.decode(&d); (d.err == nil) != want || want != (len(c.Roots) == n) || len(d.b) > 0 {
			t.Errorf("%d roots: %d were read, %v", n, len(c.Roots), d.err)
		}
	}
	for _, tt := range []struct {
		name string
		most int
		make func(n int) Record
	}{
		{"path", 64 << 10, func(n int) Record {
			return &Maps{Regions: []Region{{Mapping: procfs.Mapping{Path: strings.Repeat("a", n)}}}}
		}},
		{"build-id", 64 << 10, func(n int) Record { return &Maps{Regions: []Region{{BuildID: strings.Repeat("a", n)}}} }},
		{"vDSO", 1 << 20, func(n int) Record { return &Maps{VDSO: make([]byte, n)} }},
		{"name", 64 << 10, func(n int) Record { return &Name{Name: strings.Repeat("a", n)} }},
		{"processes", 1 << 16, func(n int) Record { return &Run{PIDs: make([]int, n)} }},
	} {
		for n, want := range map[int]error{tt.most: nil, tt.most + 1: errDamaged} {
			var e encoder
			r := tt.make(n)
			r.encode(&e)
			d := decoder{b: e.b}
			if newRecord(r.kind()).decode(&d); !errors.Is(d.err, want) {
				t.Errorf("%s of %d: %v, want %v", tt.name, n, d.err, want)
			}
		}
	}
	var m Maps
	d := decoder{b: append(binary.AppendUvarint([]byte{2}, 1<<20), make([]byte, 10*3)...)}
	if m.decode(&d); !errors.Is(d.err, errDamaged) || len(m.Regions) < 3 || len(m.Regions) > 4 {
		t.Errorf("1 << 20 mappings, of which three are there: %d, %v", len(m.Regions), d.err)
	}
	m = Maps{}
	d = decoder{b: append(binary.AppendUvarint([]byte{2}, 1<<20+1), make([]byte, 64)...)}
	if m.decode(&d); !errors.Is(d.err, errDamaged) || m.Regions != nil || d.b != nil {
		t.Errorf("more mappings: %d were read, %v", len(m.Regions), d.err)
	}
}

// TestWriterLimit writes the longest record, and not a longer one.
func TestWriterLimit(t *testing.T) {
	gz, err := gzip.NewWriterLevel(io.Discard, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := &Writer{gz: gz, flushed: time.Now()}
	if err := w.Write(sized(64 << 20)); err != nil {
		t.Errorf("a record of 64 MiB: %v", err)
	}
	if err := w.Write(sized(64<<20 + 1)); err == nil || !strings.Contains(err.Error(), "67108865") {
		t.Errorf("a record of a byte more: %v", err)
	}
}

// TestLongRecord: a record is read in several steps.
func TestLongRecord(t *testing.T) {
	stack := make([]byte, 5<<19)
	for i := range stack {
		stack[i] = byte(i >> 8)
	}
	got, err := readBack(record(t, []Record{&Capture{PID: 1, Stack: Stack{Bytes: stack}}, &Gone{PID: 2}}))
	if err != io.EOF || len(got) != 2 || !bytes.Equal(got[0].(*Capture).Stack.Bytes, stack) {
		t.Errorf("%d records, %v", len(got), err)
	}
}

// TestFlush: what was written more than a second after the last flush is in the
// file at once, and what comes right behind it is not.
func TestFlush(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	w.flushed = begin.Add(-flushEvery - time.Millisecond)
	if err := w.Write(&Gone{PID: 1}); err != nil {
		t.Fatal(err)
	}
	if got, err := readBack(b.Bytes()); len(got) != 1 || err != io.ErrUnexpectedEOF {
		t.Errorf("after a second: %d records, %v; want the one", len(got), err)
	}
	if w.flushed.Before(begin) {
		t.Errorf("the time of the flush was not kept: %v", w.flushed)
	}
	n := b.Len()
	w.flushed = w.flushed.Add(time.Hour) // the test itself may take a second
	if err := w.Write(&Gone{PID: 2}); err != nil || b.Len() != n {
		t.Errorf("right behind it %d bytes were written, %v", b.Len()-n, err)
	}
}

// full is a disk that is full after n bytes.
type full struct{ n int }

var errFull = errors.New("no space")

func (f *full) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWriteFails: whatever part of a file does not fit, somebody is told.
func TestWriteFails(t *testing.T) {
	noise := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for _, n := range []int{0, len(Magic) - 1, len(Magic), len(Magic) + 5, 1000, 1 << 19, 1<<20 + 50} {
		w, err := NewWriter(&full{n})
		if err != nil {
			if err != errFull || n >= len(Magic) {
				t.Errorf("%d bytes: NewWriter: %v", n, err)
			}
			continue
		}
		first := w.Write(&Capture{Stack: Stack{Bytes: noise}})
		second := w.Write(&Gone{PID: 1})
		if err := w.Close(); first != errFull && second != errFull && err != errFull {
			t.Errorf("%d bytes: %v, %v, %v", n, first, second, err)
		}
		if n == 1000 && (first != errFull || second != errFull) {
			t.Errorf("%d bytes: %v, then %v, want the error from both", n, first, second)
		}
	}
}

func TestCut(t *testing.T) {
	for err, want := range map[error]error{io.EOF: io.ErrUnexpectedEOF, io.ErrUnexpectedEOF: io.ErrUnexpectedEOF, errFull: errFull} {
		if got := cut(err); got != want {
			t.Errorf("%v becomes %v, want %v", err, got, want)
		}
	}
}

func TestTakenNames(t *testing.T) {
	for taken, want := range map[Taken]string{Stopped: "stop", Unstopped: "no stop", Exiting: "exit", 3: "unknown", 255: "unknown"} {
		if got := taken.String(); got != want {
			t.Errorf("%d is %q, want %q", uint8(taken), got, want)
		}
	}
}
