package module

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/sframe"
	"sfsample/unwind"
)

// TestChanges: which code is other code than before, and since when the rest is there.
func TestChanges(t *testing.T) {
	const jitAt = libAt + 0x100000
	im := image{buildID: "11111111", cfa: 8, sframe: 3}
	other := image{buildID: "22222222", cfa: 16, sframe: 3}
	text := func(replaced bool) []Change { return []Change{{libAt + imgText, libAt + imgText + 0x1000, replaced}} }
	tests := []struct {
		name   string
		change func(p *process)
		want   []Change
		since  bool // codeAt was there before
	}{
		{"nothing", func(*process) {}, nil, true},
		{"unloaded", func(p *process) { p.unload("/lib/a.so") }, text(true), false},
		{"another in its place", func(p *process) { p.unload("/lib/a.so"); p.load(other, libAt, 6, "/lib/b.so") }, text(true), false},
		{"one more", func(p *process) { p.load(other, jitAt, 6, "/lib/b.so") },
			[]Change{{jitAt + imgText, jitAt + imgText + 0x1000, false}}, true},
		{"its data are split", func(p *process) {
			p.maps[3].End -= 0x400
			p.mapAt(p.maps[3].End, p.maps[3].Perms, nil, 0, 0x400, 5, "/lib/a.so")
		}, nil, true},
		{"a JIT grows", func(p *process) { p.maps[4].End += 0x3000 }, []Change{{jitAt + 0x2000, jitAt + 0x5000, false}}, true},
		{"a JIT is gone", func(p *process) { p.unload("jit") }, []Change{{jitAt, jitAt + 0x2000, false}}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := &clock{time.Unix(1000, 0)}
			p := new(process)
			p.mapAt(0x10000, procfs.Read|procfs.Write, nil, 0, 0x1000, 0, "[heap]")
			p.load(im, libAt, 5, "/lib/a.so")
			if tt.name[0] == 'a' && tt.name[2] == 'J' {
				p.mapAt(jitAt, rx, nil, 0, 0x2000, 0, "jit")
			}
			s := NewSpace(p, NewCache(0), Options{Now: now.now})
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			if got := s.Changes(); len(got) > 0 {
				t.Fatalf("changes before there were any: %+v", got)
			}
			before := now.t
			now.t = now.t.Add(time.Minute)
			tt.change(p)
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			if got := s.Changes(); !slices.Equal(got, tt.want) {
				t.Errorf("changes %+v, want %+v", got, tt.want)
			}
			code, ok := s.CodeAt(codeAt)
			if tt.since != (ok && code.Since.Equal(before)) {
				t.Errorf("code %+v (%v), there before: want %v", code, ok, tt.since)
			}
			if moved := tt.want != nil && tt.want[0].Replaced; movedAt(s, codeAt) != moved || movedAt(s, libAt) {
				t.Errorf("moved: %v, want %v", movedAt(s, codeAt), moved)
			}
			if s.Changes() != nil {
				t.Error("changes are told twice")
			}
		})
	}
}

// TestManyChanges: however often code comes and goes, what is kept stays bounded, and
// nothing of it is forgotten.
func TestManyChanges(t *testing.T) {
	p := new(process)
	im := image{buildID: "11111111", cfa: 8, sframe: 3}
	s := NewSpace(p, NewCache(0), Options{})
	p.load(im, libAt-0x10000, 4, "/lib/stays.so")
	s.Refresh()
	for n := range uint64(1000) {
		p.load(im, libAt+n*0x100000, 5, "/lib/a.so")
		s.Refresh()
		p.unload("/lib/a.so")
		s.Refresh()
	}
	if n, m := len(s.history.changes), len(s.history.moved); n > maxChanges || m > maxMoved {
		t.Errorf("%d changes and %d places kept", n, m)
	}
	for n := range uint64(1000) {
		if !movedAt(s, codeAt+n*0x100000) {
			t.Fatalf("the place of library %d is forgotten", n)
		}
	}
}

// TestPageOfAnother: a page that is read of another object, which has come in the
// place of the one that is asked for, is not taken for its own, now or later.
func TestPageOfAnother(t *testing.T) {
	first := image{buildID: "11111111", cfa: 8, sframe: 3}
	second := image{buildID: "22222222", cfa: 16, sframe: 3}
	p, q := new(process), new(process)
	cache := NewCache(0)
	p.load(first, libAt, 5, "/lib/a.so")
	s := NewSpace(p, cache, Options{})
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	p.unload("/lib/a.so")
	p.load(second, libAt, 6, "/lib/b.so")
	if row, err := s.Row(codeAt, unwind.SFrame); err == nil || errors.Is(err, sframe.ErrNoRow) {
		t.Errorf("row %+v, %v, of an object that is gone; want an error of reading", row, err)
	}
	q.load(first, libAt, 5, "/lib/a.so")
	if got := cfaOf(NewSpace(q, cache, Options{}).Row(codeAt, unwind.SFrame)); got != "108" {
		t.Errorf("another process's row of the object: %s, want 108", got)
	}
}

// TestMarks: what tells an object from others is what memory has there, and differs.
func TestMarks(t *testing.T) {
	for _, tt := range []struct {
		name      string
		im, other image
		marks     int
	}{
		{"build-id", image{buildID: "11111111", cfa: 8, sframe: 3}, image{buildID: "22222222", cfa: 8, sframe: 3}, 3},
		{"no build-id", image{cfa: 8, sframe: 3}, image{cfa: 8, sframe: 2}, 2},
		{"the same build-id", image{buildID: "11111111", cfa: 8, sframe: 3}, image{buildID: "11111111", cfa: 16, sframe: 3}, 3},
	} {
		marks := func(im image) (list []Mark) {
			p := new(process)
			p.load(im, libAt, 5, "/lib/a.so")
			s := NewSpace(p, NewCache(0), Options{})
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			code, _ := s.CodeAt(codeAt)
			for _, m := range code.Marks {
				b := make([]byte, len(m.Data))
				if _, err := p.ReadAt(b, int64(m.Addr)); err != nil || !slices.Equal(b, m.Data) || len(b) > maxMark {
					t.Errorf("%s: at %#x is %x, want %x: %v", tt.name, m.Addr, b, m.Data, err)
				}
			}
			return code.Marks
		}
		is, other := marks(tt.im), marks(tt.other)
		if len(is) != tt.marks || slices.EqualFunc(is, other, func(a, b Mark) bool { return a.Addr == b.Addr && slices.Equal(a.Data, b.Data) }) {
			t.Errorf("%s: %d marks, want %d; another has %v of %v", tt.name, len(is), tt.marks, other, is)
		}
	}
}

// TestOneBuildID: an object with the build-id and the headers of another one has rows of its own, in its place and beside it.
func TestOneBuildID(t *testing.T) {
	for name, im := range map[string]image{"sframe": {buildID: "11111111", sframe: 3}, "eh_frame": {buildID: "11111111"}} {
		first, second, how, want := im, im, unwind.EHFrame, []string{"8", "16"}
		first.cfa, second.cfa = 8, 16
		if im.sframe > 0 {
			how, want = unwind.SFrame, []string{"108", "116"}
		}
		p := new(process)
		cache := NewCache(0)
		p.load(first, libAt, 5, "/lib/a.so")
		s := NewSpace(p, cache, Options{})
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
		if got := cfaOf(s.Row(codeAt, how)); got != want[0] {
			t.Errorf("%s: the first one's row is %s, want %s", name, got, want[0])
		}
		p.unload("/lib/a.so")
		p.load(second, libAt, 5, "/lib/a.so")
		if changed, err := s.Verify(); !changed || err != nil {
			t.Errorf("%s: the second one in its place is no change: %v", name, err)
		}
		if got := cfaOf(s.Row(codeAt, how)); got != want[1] {
			t.Errorf("%s: the second one's row is %s, want %s", name, got, want[1])
		}
		q := new(process)
		q.load(first, libAt, 5, "/lib/a.so")
		if got := cfaOf(NewSpace(q, cache, Options{}).Row(codeAt, how)); got != want[0] {
			t.Errorf("%s: the first one's row in another process is %s, want %s", name, got, want[0])
		}
	}
}

// turning is a process in which another object is in place of one until a certain read of memory.
type turning struct {
	*process
	before *process
	at     int
}

func (p *turning) ReadAt(b []byte, addr int64) (int, error) {
	if p.reads < p.at {
		p.reads++
		return p.before.ReadAt(b, addr)
	}
	return p.process.ReadAt(b, addr)
}

// TestComesWhileRead: an object that comes while another one's headers are read is itself, or not known yet.
func TestComesWhileRead(t *testing.T) {
	for at := range 12 {
		p := &turning{process: new(process), before: new(process), at: at}
		p.load(image{buildID: "11111111", cfa: 8, sframe: 3}, libAt, 5, "/lib/a.so")
		p.before.load(image{buildID: "22222222", cfa: 16, sframe: 3, dupSF: true}, libAt, 5, "/lib/a.so")
		s := NewSpace(p, NewCache(0), Options{})
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
		p.at = 0
		if m, _, ok := s.Module(codeAt); ok {
			if same, err := m.unchanged(make([]byte, maxProbe)); !same || err != nil {
				continue // the next Verify finds it
			}
			if got := cfaOf(s.Row(codeAt, unwind.SFrame)); got != "108" || m.BuildID != "3131313131313131" {
				t.Errorf("with %d reads of the one before: row %s of build-id %s", at, got, m.BuildID)
			}
		}
	}
}

// TestCodeOfAnother: what an object's code shows is not read of another one that has come in its place.
func TestCodeOfAnother(t *testing.T) {
	p := new(process)
	p.load(image{buildID: "11111111", cfa: 8}, libAt, 5, "/lib/a.so")
	s := NewSpace(p, NewCache(0), Options{})
	b := make([]byte, 16)
	if err := s.Refresh(); err != nil || s.Code(codeAt, b) != len(b) {
		t.Fatalf("its own code cannot be read: %v", err)
	}
	p.unload("/lib/a.so")
	p.load(image{buildID: "22222222", cfa: 16}, libAt, 6, "/lib/b.so")
	if n := s.Code(codeAt, b); n != 0 {
		t.Errorf("%d bytes of another object's code", n)
	}
}

func movedAt(s *Space, pc uint64) bool {
	code, _ := s.CodeAt(pc)
	return code.Moved
}
