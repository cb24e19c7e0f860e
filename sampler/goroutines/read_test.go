package goroutines

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake is the memory of a program of Go 1.26 with goroutines, in one piece from fakeBase on.
type fake struct {
	b []byte
	// changes is called before each read after the first.
	changes func()
	reads   int
	asked   int64 // bytes
}

const (
	fakeBase = 0x10000
	fakeList = fakeBase        // the slice
	fakeAll  = fakeBase + 64   // what it holds
	fakeHead = 512             // room for a g
	fakeGs   = fakeBase + 4096 // the gs
	fakeSize = 1 << 20
)

func (f *fake) ReadAt(b []byte, addr int64) (int, error) {
	f.asked += int64(len(b))
	if f.reads++; f.reads > 1 && f.changes != nil {
		f.changes()
	}
	off := addr - fakeBase
	if off < 0 || off >= int64(len(f.b)) {
		return 0, io.EOF
	}
	n := copy(b, f.b[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *fake) ReadRanges(buf []byte, list []Range) (done int) {
	for _, r := range list {
		n, err := f.ReadAt(buf[done:done+r.Size], int64(r.Addr))
		if done += n; err != nil {
			break
		}
	}
	return done
}

func (f *fake) put(addr, v uint64) { binary.LittleEndian.PutUint64(f.b[addr-fakeBase:], v) }

// g is the address of goroutine number i.
func (f *fake) g(i int) uint64 { return fakeGs + uint64(i)*fakeHead }

// stackOf is the address of its stack.
func (f *fake) stackOf(i int) uint64 { return fakeBase + fakeSize/2 + uint64(i)*2048 }

var fakeLayout = releases[26]

// newFake makes n goroutines that wait, with the numbers from 1 on.
func newFake(n int) (*fake, *Runtime) {
	f := &fake{b: make([]byte, fakeSize)}
	l := &fakeLayout
	f.put(fakeList, fakeAll)
	f.put(fakeList+8, uint64(n))
	f.put(fakeList+16, uint64(n))
	for i := range n {
		g, stack := f.g(i), f.stackOf(i)
		f.put(fakeAll+8*uint64(i), g)
		f.put(g, stack)
		f.put(g+8, stack+2048)
		f.put(g+uint64(l.sched)+gobufSP, stack+1024)
		f.put(g+uint64(l.sched)+gobufPC, 0x400000)
		f.put(g+uint64(l.sched)+gobufG, g)
		f.put(g+uint64(l.goid), uint64(i+1))
		f.b[g-fakeBase+uint64(l.status)] = byte(Waiting)
		f.b[g-fakeBase+uint64(l.reason)] = 14 // sleep
	}
	return f, &Runtime{Version: "go1.26.0", layout: *l, order: binary.LittleEndian, list: fakeList, reasons: reasonsOf(26)}
}

// readFake reads them, and returns the numbers of those taken.
func readFake(f *fake, r *Runtime) (ids []uint64, c Counts, err error) {
	c, err = r.Read(f, time.Now().Add(time.Minute), func(g *G, stack []byte) { ids = append(ids, g.ID) })
	return ids, c, err
}

// TestRead: what is no goroutine, or changes, is left out and counted.
func TestRead(t *testing.T) {
	l := &fakeLayout
	at := func(f *fake, i, off int) uint64 { return f.g(i) + uint64(off) }
	for _, tt := range []struct {
		name string
		make func(f *fake)
		want Counts
		err  string
	}{
		{name: "as they are", make: func(*fake) {}, want: Counts{Taken: 8}},
		{name: "dead", make: func(f *fake) { f.put(at(f, 3, l.status), dead) }, want: Counts{Taken: 7, Dead: 1}},
		{name: "running", make: func(f *fake) { f.put(at(f, 3, l.status), uint64(Running)) }, want: Counts{Taken: 7, Running: 1}},
		{name: "in a call", make: func(f *fake) { f.put(at(f, 3, l.status), uint64(InCall)) }, want: Counts{Taken: 7, InCall: 1}},
		{name: "scanned", make: func(f *fake) { f.put(at(f, 3, l.status), uint64(Waiting)|scanning) }, want: Counts{Taken: 8}},
		{name: "stack is being moved", make: func(f *fake) { f.put(at(f, 3, l.status), copying) }, want: Counts{Taken: 7, Changed: 1}},
		{name: "unknown status", make: func(f *fake) { f.put(at(f, 3, l.status), 77) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "one number twice", make: func(f *fake) { f.put(at(f, 3, l.goid), 1) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "number 0", make: func(f *fake) { f.put(at(f, 3, l.goid), 0) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "one goroutine twice", make: func(f *fake) { f.put(fakeAll+24, f.g(0)) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "registers of another", make: func(f *fake) { f.put(at(f, 3, l.sched+gobufG), f.g(4)) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "stack pointer below the stack", make: func(f *fake) { f.put(at(f, 3, l.sched), f.stackOf(3)-8) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "stack pointer above the stack", make: func(f *fake) { f.put(at(f, 3, l.sched), f.stackOf(3)+2048) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "stack without end", make: func(f *fake) { f.put(at(f, 3, 8), 1<<60) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "odd stack pointer", make: func(f *fake) { f.put(at(f, 3, l.sched), f.stackOf(3)+1021) }, want: Counts{Taken: 7, Odd: 1}},
		{name: "no such g", make: func(f *fake) { f.put(fakeAll+24, 0x123) }, want: Counts{Taken: 7, Unread: 1}},
		{name: "g beyond all memory", make: func(f *fake) { f.put(fakeAll+24, 1<<63); f.put(fakeAll+32, 0) }, want: Counts{Taken: 6, Unread: 2}},
		{name: "stack elsewhere", make: func(f *fake) {
			f.put(at(f, 3, 0), 1<<40)
			f.put(at(f, 3, 8), 1<<40+4096)
			f.put(at(f, 3, l.sched), 1<<40+8)
		}, want: Counts{Taken: 7, Unread: 1}},
		{name: "list of 2^60", make: func(f *fake) { f.put(fakeList+8, 1<<60); f.put(fakeList+16, 1<<60) }, err: "what should be the list"},
		{name: "list longer than its room", make: func(f *fake) { f.put(fakeList+8, 9) }, err: "what should be the list"},
		{name: "empty list", make: func(f *fake) { f.put(fakeList+8, 0) }, err: "what should be the list"},
		{name: "list nowhere", make: func(f *fake) { f.put(fakeList, 8) }, err: "what should be the list"},
		{name: "all dead", make: func(f *fake) {
			for i := range 8 {
				f.put(at(f, i, l.status), dead)
			}
		}, want: Counts{Dead: 8}, err: "what should be the list"},
		{name: "another layout", make: func(f *fake) {
			for i := range 8 {
				f.put(at(f, i, l.sched+gobufG), 0)
			}
		}, want: Counts{Odd: 8}, err: "not laid out as expected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, r := newFake(8)
			tt.make(f)
			ids, c, err := readFake(f, r)
			if c != tt.want || len(ids) != tt.want.Taken || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %+v, %v, goroutines %d; want %+v, %q", c, err, ids, tt.want, tt.err)
			}
		})
	}
}

// TestReadChanging: each word that tells that a goroutine has run meanwhile costs it its stack; what is known of since when it
// waits does not.
func TestReadChanging(t *testing.T) {
	l := &fakeLayout
	for name, tt := range map[string]struct {
		off  int
		want int
	}{
		"status": {l.status + 1, 0}, "stack": {0, 0}, "end of the stack": {8, 0}, "stack pointer": {l.sched, 0}, "PC": {l.sched + gobufPC, 0},
		"frame pointer": {l.sched + l.bp, 0}, "number": {l.goid, 0}, "runs": {l.seq, 0}, "list": {l.waiting, 0}, "reason": {l.reason, 0}, "since": {l.since, 1},
	} {
		f, r := newFake(3)
		n := byte(0)
		f.changes = func() { n += 8; f.b[f.g(1)-fakeBase+uint64(tt.off)] = n&0x3f + 64 }
		if name == "status" { // waiting and runnable in turn, for two reads each
			f.changes = func() { n++; f.b[f.g(1)-fakeBase+uint64(l.status)] = []byte{4, 4, 1, 1}[n%4] }
		}
		ids, c, err := readFake(f, r)
		if len(ids) != 2+tt.want || c.Taken != 2+tt.want || err != nil {
			t.Errorf("%s: got %d, %+v, %v; want %d", name, ids, c, err, 2+tt.want)
		}
	}
}

// TestReadSettles: a goroutine that changes once is read again.
func TestReadSettles(t *testing.T) {
	f, r := newFake(3)
	n := 0
	f.changes = func() {
		if n++; n == 6 {
			f.b[f.g(1)-fakeBase+uint64(r.layout.seq)]++
		}
	}
	if ids, c, err := readFake(f, r); len(ids) != 3 || c.Changed != 0 || err != nil {
		t.Errorf("got %d, %+v, %v", ids, c, err)
	}
}

// TestReadObjects: the channels of a select, in its order; a list that leads to another goroutine's entries, or in a circle,
// tells nothing, or no more than a bound.
func TestReadObjects(t *testing.T) {
	l := &fakeLayout
	const sudogs, chans = fakeBase + 100<<10, fakeBase + 110<<10
	entry := func(f *fake, i int, g, link, c uint64) uint64 {
		at := uint64(sudogs + 256*i)
		f.put(at, g)
		f.put(at+uint64(l.sudog.link), link)
		f.put(at+uint64(l.sudog.channel), c)
		return at
	}
	objects := func(f *fake, r *Runtime) (list []Object) {
		if _, err := r.Read(f, time.Now().Add(time.Minute), func(g *G, _ []byte) { list = slices.Clone(g.Wait.Objects) }); err != nil {
			t.Error(err)
		}
		return list
	}
	start := func() (*fake, *Runtime) {
		f, r := newFake(1)
		f.put(chans, 1)
		f.put(chans+8, 3)
		f.put(chans+64, 5) // more than there is room for
		return f, r
	}
	f, r := start()
	f.put(f.g(0)+uint64(l.waiting), entry(f, 0, f.g(0), entry(f, 1, f.g(0), 0, chans+64), chans))
	if got, want := objects(f, r), []Object{{Channel, chans, 1, 3}, {Channel, chans + 64, 0, -1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f, r = start()
	f.put(f.g(0)+uint64(l.waiting), entry(f, 0, f.g(0), entry(f, 1, f.g(0)+8, 0, chans), chans))
	if got := objects(f, r); len(got) != 0 {
		t.Errorf("of another's entries: %v", got)
	}
	f, r = start()
	f.put(f.g(0)+uint64(l.waiting), entry(f, 0, f.g(0), sudogs, chans))
	if got := objects(f, r); len(got) != maxObjects {
		t.Errorf("of a circle %d objects, want %d", len(got), maxObjects)
	}
	f, r = start()
	at := entry(f, 0, f.g(0), entry(f, 1, f.g(0)+8, 0, 0), 0)
	f.put(at+uint64(l.sudog.elem), chans+4)
	f.put(f.g(0)+uint64(l.waiting), at)
	if got, want := objects(f, r), []Object{{Semaphore, chans + 4, 0, -1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReadRubbish: whatever the memory holds, reading it comes to an end, and asks for no more than it may.
func TestReadRubbish(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for range 300 {
		f, r := newFake(100)
		for range rnd.IntN(400) {
			at := uint64(fakeList + 8*rnd.IntN(8192))
			v := rnd.Uint64() >> rnd.IntN(64)
			if rnd.IntN(2) == 0 {
				v = fakeBase + v%fakeSize
			}
			f.put(at, v)
		}
		ids, c, _ := readFake(f, r)
		taken += len(ids)
		if c.Taken != len(ids) || f.asked > 64<<20 {
			t.Fatalf("%+v, %d goroutines, %d bytes asked for", c, len(ids), f.asked)
		}
	}
	if taken == 0 {
		t.Error("nothing was taken, so little was tested")
	}
}

// TestReadLate: without time nothing is read, and that is told.
func TestReadLate(t *testing.T) {
	f, r := newFake(8)
	c, err := r.Read(f, time.Now().Add(-time.Second), func(*G, []byte) { t.Error("a goroutine was read") })
	if want := (Counts{Beyond: 8}); c != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", c, err, want)
	}
}

// TestReasons: a table with what are no words is none.
func TestReasons(t *testing.T) {
	f, r := newFake(1)
	const table, text = fakeBase + 120<<10, fakeBase + 121<<10
	copy(f.b[text-fakeBase:], "sleep\x1bchan receive")
	words := func(list ...uint64) []string {
		for i, v := range list {
			f.put(table+8*uint64(i), v)
		}
		return r.readReasons(f, table, uint64(8*len(list)))
	}
	if got, want := words(0, 0, text, 5, text+6, 12), []string{"", "sleep", "chan receive"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, list := range map[string][]uint64{"escape": {text, 6}, "long": {text, 65}, "elsewhere": {1 << 50, 5}, "half": {text}} {
		if got := words(list...); got != nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := r.readReasons(f, table, 1<<40); got != nil {
		t.Errorf("a table of 2^40 bytes: %q", got)
	}
}

func TestReleases(t *testing.T) {
	for version, want := range map[string]int{"go1.26.8": 26, "go1.19": 19, "go1.24.2 X:rangefunc,aliastypeparams": 24, "go1.26rc1": 0, "devel go1.27-abc": 0,
		"go1.25.1-custom": 0, "": 0, "go1.99999": 0, "go1.27.0": 27} {
		if got := releaseOf(version); got != want {
			t.Errorf("%q: %d, want %d", version, got, want)
		}
	}
}
