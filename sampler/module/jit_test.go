package module

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/unwind"
)

// Where things of a process with generated code lie.
const (
	jitProgram = 0x400000
	jitEntries = 0x500000 // of the list
	jitImageAt = 0x600000
	jitText    = 0x700000
)

// jitProcess is a process whose program has a descriptor that leads to entries, each of next, prev, address and
// size of an image. One image lies at jitImageAt.
func jitProcess(version uint32, first uint64, entries [][4]uint64) *process {
	p := new(process)
	p.load(image{base: jitProgram, sections: true, symbols: map[string]uint64{string(jitDescriptor): jitProgram + imgData}}, jitProgram, 5, "/bin/jit")
	p.mapAt(jitText, rx, make([]byte, 0x2000), 0, 0x2000, 0, "")
	p.mapAt(jitEntries, procfs.Read|procfs.Write, nil, 0, 0x80000, 0, "")
	var list []byte
	for _, e := range entries {
		for _, v := range e {
			list = binary.LittleEndian.AppendUint64(list, v)
		}
	}
	im := image{base: jitText - imgText, sections: true, noEH: true, debug: true, text: true}.bytes()
	p.mem = append(p.mem, memory{jitEntries, list}, memory{jitImageAt, im})
	binary.LittleEndian.PutUint64(p.descriptor(), uint64(version))
	binary.LittleEndian.PutUint64(p.descriptor()[16:], first)
	return p
}

// descriptor is the process's memory of it.
func (p *process) descriptor() []byte {
	for _, m := range p.mem {
		if m.start == jitProgram+imgData {
			return m.data
		}
	}
	return nil
}

// jitRowAt is the CFA's offset of the row at pc.
func jitRowAt(s *Space, pc uint64) string { return cfaOf(s.Row(pc, unwind.EHFrame)) }

// TestJIT reads the lists of images by which programs tell of generated code, right and wrong ones.
func TestJIT(t *testing.T) {
	at := func(i int) uint64 { return jitEntries + 32*uint64(i) }
	good := func(next uint64) [4]uint64 { return [4]uint64{next, 0, jitImageAt, imgEnd} }
	var long [][4]uint64 // the image that is wanted comes too late
	for i := range maxJITEntries {
		long = append(long, [4]uint64{at(i + 1), 0, 0, 0})
	}
	long = append(long, good(0))
	tests := []struct {
		name    string
		version uint32
		first   uint64
		entries [][4]uint64
		want    string
	}{
		{"one", 1, at(0), [][4]uint64{good(0)}, "50"},
		{"second", 1, at(0), [][4]uint64{{at(1), 0, 0x10, 64}, good(0)}, "50"},
		{"ring", 1, at(0), [][4]uint64{{at(1), 0, jitText, 64}, good(at(0))}, "50"},
		{"ring of one", 1, at(0), [][4]uint64{{at(0), 0, jitText, 64}}, "none"},
		{"too long", 1, at(0), long, "none"},
		{"other version", 2, at(0), [][4]uint64{good(0)}, "none"},
		{"empty", 1, 0, nil, "none"},
		{"entry not readable", 1, 0x10, nil, "none"},
		{"image too large", 1, at(0), [][4]uint64{{0, 0, jitImageAt, 1 << 63}}, "none"},
		{"image cut", 1, at(0), [][4]uint64{{0, 0, jitImageAt, imgShdr}}, "none"},
		{"no image", 1, at(0), [][4]uint64{{0, 0, jitText, 0x1000}}, "none"},
	}
	for _, tt := range tests {
		p := jitProcess(tt.version, tt.first, tt.entries)
		s := NewSpace(p, NewCache(0), Options{Now: (&clock{time.Unix(1000, 0)}).now}) // else a slow machine reads again
		if got := jitRowAt(s, jitText+0x10); got != tt.want {
			t.Errorf("%s: CFA %s, want %s", tt.name, got, tt.want)
		}
		if got := jitRowAt(s, jitText+0x1000); got != "none" {
			t.Errorf("%s: CFA %s behind the code, want none", tt.name, got)
		}
		if p.reads > len(tt.entries)+100 {
			t.Errorf("%s: %d reads", tt.name, p.reads)
		}
	}
}

// TestJITChanges: a list is read anew when it has changed, and for want of an address, but not at each.
func TestJITChanges(t *testing.T) {
	p := jitProcess(1, 0, [][4]uint64{{0, 0, jitImageAt, imgEnd}})
	c := clock{time.Unix(1000, 0)}
	s := NewSpace(p, NewCache(0), Options{Now: c.now})
	row := func(want string) {
		t.Helper()
		if got := jitRowAt(s, jitText+0x10); got != want {
			t.Fatalf("CFA %s, want %s", got, want)
		}
	}
	row("none")
	first := p.descriptor()[16:]
	binary.LittleEndian.PutUint64(first, jitEntries)
	row("none")
	c.t = c.t.Add(jitEvery)
	row("50")
	for _, tt := range []struct {
		first uint64
		want  string
	}{{jitEntries, "50"}, {0, "none"}} {
		binary.LittleEndian.PutUint64(first, tt.first)
		gen := s.Generation()
		s.Verify()
		if changed := s.Generation() != gen; changed != (tt.want == "none") {
			t.Errorf("first entry %#x: changed %v", tt.first, changed)
		}
		row(tt.want)
	}
}

// TestJITRetold: what a list says in place of what it said, in the same words, is found at the next look, and noted. How often that is
// seen tells how often it may happen unseen.
func TestJITRetold(t *testing.T) {
	p := jitProcess(1, jitEntries, [][4]uint64{{0, 0, jitImageAt, imgEnd}})
	image := p.mem[len(p.mem)-1].data
	entry := p.mem[len(p.mem)-2].data
	other := bytes.Clone(image)
	cfa := imgShdr + 0x1800 + 4 + 11 // in .debug_frame
	other[cfa] = 70
	p.mem = append(p.mem, memory{jitImageAt + 0x10000, other})
	c := clock{time.Unix(1000, 0)}
	s := NewSpace(p, NewCache(0), Options{Now: c.now})
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name    string
		pass    time.Duration
		looks   int
		change  func()
		row     string
		changes []Change
		retold  Retold
	}{
		{"first told", 0, 0, func() {}, "50", []Change{{jitText, jitText + 0x1000, false}}, New},
		{"few looks", time.Second, 1, func() {}, "50", nil, New},
		{"many looks", 0, 2 * retoldLooks, func() {}, "50", nil, Never},
		{"image", 0, 1, func() { image[cfa] = 60 }, "60", []Change{{jitText, jitText + 0x1000, true}, {jitText, jitText + 0x1000, true}}, Seldom},
		{"quiet", 0, retoldLooks, func() {}, "60", nil, Seldom},
		{"entry, soon after", 0, 1, func() { binary.LittleEndian.PutUint64(entry[16:], jitImageAt+0x10000) }, "70",
			[]Change{{jitText, jitText + 0x1000, true}, {jitText, jitText + 0x1000, true}}, Often},
		{"quiet for long", retoldLong, 2 * retoldLooks, func() {}, "70", nil, Seldom},
		{"unregistered", 0, 1, func() { binary.LittleEndian.PutUint64(p.descriptor()[16:], 0) }, "none", []Change{{jitText, jitText + 0x1000, true}}, Seldom},
		{"registered, a few looks later", time.Second, 1, func() { binary.LittleEndian.PutUint64(p.descriptor()[16:], jitEntries) }, "70",
			[]Change{{jitText, jitText + 0x1000, false}}, Seldom},
		{"unregistered, a few looks later", time.Second, 1, func() { binary.LittleEndian.PutUint64(p.descriptor()[16:], 0) }, "none",
			[]Change{{jitText, jitText + 0x1000, true}}, Often},
	}
	for _, tt := range steps {
		tt.change()
		c.t = c.t.Add(tt.pass)
		for range tt.looks {
			c.t = c.t.Add(10 * time.Millisecond)
			if _, err := s.Verify(); err != nil {
				t.Fatal(err)
			}
		}
		if got := jitRowAt(s, jitText+0x10); got != tt.row {
			t.Errorf("%s: CFA %s, want %s", tt.name, got, tt.row)
		}
		if got := s.Changes(); !slices.Equal(got, tt.changes) {
			t.Errorf("%s: changes %+v, want %+v", tt.name, got, tt.changes)
		}
		if code, _ := s.CodeAt(jitText + 0x10); code.Retold != tt.retold {
			t.Errorf("%s: retold %d, want %d", tt.name, code.Retold, tt.retold)
		}
	}
}

// TestJITMany: a look at a long list is short, and one that takes long to read is not read at each look.
func TestJITMany(t *testing.T) {
	var list [][4]uint64
	for i := range uint64(maxJITEntries) {
		list = append(list, [4]uint64{jitEntries + 32*(i+1), 0, jitImageAt, imgEnd})
	}
	p := jitProcess(1, jitEntries, list)
	image := p.mem[len(p.mem)-1].data
	c := clock{time.Unix(1000, 0)}
	s := NewSpace(p, NewCache(0), Options{Now: c.now})
	look := func(most int, want string) {
		t.Helper()
		p.reads = 0
		s.Verify()
		if p.reads > most {
			t.Errorf("%d reads at a look, want at most %d", p.reads, most)
		}
		if got := jitRowAt(s, jitText+0x10); got != want {
			t.Errorf("CFA %s, want %s", got, want)
		}
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	look(maxJITPieces+50, "50")
	image[imgShdr+0x1800+4+11] = 60
	look(maxJITPieces+50, "none")
	look(50, "none")
	c.t = c.t.Add(s.jit.rest)
	look(50, "60")
	if n := len(s.Changes()); n > 2*maxJITNews {
		t.Errorf("%d changes", n)
	}
}

// TestJITDamaged: whatever byte of an image is wrong, there is a row or none.
func TestJITDamaged(t *testing.T) {
	p := jitProcess(1, jitEntries, [][4]uint64{{0, 0, jitImageAt, imgEnd}})
	data := p.mem[len(p.mem)-1].data
	rows := map[string]int{}
	for _, part := range [][2]int{{0, 0x200}, {imgShdr, imgShdr + 0x200}, {imgShdr + 0x1800, imgShdr + 0x1840}} {
		for i := part[0]; i < part[1]; i++ {
			for _, flip := range []byte{0xff, 0x80, 1} {
				data[i] ^= flip
				s := NewSpace(p, NewCache(0), Options{})
				rows[jitRowAt(s, jitText+0x10)]++
				data[i] ^= flip
			}
		}
	}
	if rows["50"] == 0 || rows["none"] == 0 {
		t.Errorf("rows by their CFA: %v, want some with 50 and some without", rows)
	}
}
