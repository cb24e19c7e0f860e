package module

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/sframe"
	"sfsample/unwind"
)

const (
	libAt  = 0x7f0000000000
	codeAt = libAt + imgText + 0x10
)

// clock is a time that tests move.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// TestTables: which tables an object has and which one answers.
func TestTables(t *testing.T) {
	base := image{buildID: "12345678", cfa: 8, sections: true}
	with := func(change func(*image)) image {
		im := base
		change(&im)
		return im
	}
	damage := func(off int, v byte) func(*process) {
		return func(p *process) { p.mem[0].data[off] = v }
	}
	tests := []struct {
		name       string
		im         image
		change     func(*process)
		noEHFrame  bool
		sframe, eh string
		problems   int
	}{
		{name: "V3", im: with(func(im *image) { im.sframe = 3 }), sframe: "108", eh: "8"},
		{name: "V2", im: with(func(im *image) { im.sframe = 2 }), sframe: "108", eh: "8"},
		{name: "V1 ranks after .eh_frame", im: with(func(im *image) { im.sframe = 1 }), sframe: "none", eh: "8"},
		{name: "V1 without .eh_frame", im: with(func(im *image) { im.sframe, im.noEH = 1, true }), sframe: "108", eh: "none"},
		{name: "V1 when .eh_frame is not asked", im: with(func(im *image) { im.sframe = 1 }), noEHFrame: true, sframe: "108", eh: "8"},
		{name: "no tables", im: with(func(im *image) { im.noEH = true }), sframe: "none", eh: "none"},
		{name: "sframe known to the section headers only", im: with(func(im *image) { im.sframe, im.noSFPhdr = 3, true }), sframe: "108", eh: "8"},
		{name: "eh_frame known to the section headers only", im: with(func(im *image) { im.noEHPhdr = true }), sframe: "none", eh: "8"},
		{name: "no program headers of tables, and no file",
			im:     with(func(im *image) { im.sframe, im.noSFPhdr, im.noEHPhdr = 3, true, true }),
			change: func(p *process) { p.files = nil }, sframe: "none", eh: "none"},
		{name: "the file is another by now",
			im: with(func(im *image) { im.sframe, im.noSFPhdr = 3, true }),
			change: func(p *process) {
				p.files[5] = image{buildID: "87654321", sframe: 3, noSFPhdr: true, sections: true, cfa: 40}.bytes()
			}, sframe: "none", eh: "8"},
		{name: "debug_frame only", im: with(func(im *image) { im.noEH, im.debug = true, true }), sframe: "none", eh: "58"},
		{name: "debug_frame beside eh_frame", im: with(func(im *image) { im.debug = true }), sframe: "none", eh: "8"},
		{name: "no debug_frame without the file", im: with(func(im *image) { im.noEH, im.debug = true, true }),
			change: func(p *process) { p.files = nil }, sframe: "none", eh: "none"},
		{name: "Go's mcall does not return", im: with(func(im *image) {
			im.noEH, im.debug, im.goTable, im.symbols = true, true, true, map[string]uint64{"runtime.mcall.abi0": 0x1008}
		}), change: func(p *process) { p.mem[1].data[codeAt-4-libAt-imgText] = 0xe8 }, sframe: "none", eh: "outermost", problems: 1},
		{name: "Go's mcall before it changes stacks", im: with(func(im *image) {
			im.noEH, im.debug, im.goTable, im.symbols = true, true, true, map[string]uint64{"runtime.mcall.abi0": 0x1008}
		}), sframe: "none", eh: "error", problems: 1},
		{name: "Go's systemstack changes stacks", im: with(func(im *image) {
			im.noEH, im.debug, im.goTable, im.symbols = true, true, true, map[string]uint64{"runtime.systemstack.abi0": 0x1008}
		}), sframe: "none", eh: "error", problems: 1},
		{name: "two sections, the first one empty", im: with(func(im *image) { im.sframe, im.dupSF = 3, true }), sframe: "108", eh: "8"},
		{name: "sframe of another machine", im: with(func(im *image) { im.sframe, im.abi = 3, 2 }), sframe: "none", eh: "8", problems: 1},
		{name: "sframe without magic", im: with(func(im *image) { im.sframe = 3 }), change: damage(imgSF, 1), sframe: "none", eh: "8", problems: 1},
		{name: "sframe of a version to come", im: with(func(im *image) { im.sframe = 3 }), change: damage(imgSF+2, 9), sframe: "none", eh: "8", problems: 1},
		{name: "damaged sframe row", im: with(func(im *image) { im.sframe = 3 }), change: damage(imgSF+28+16+5+1, 0x60|1<<1), sframe: "error", eh: "8", problems: 1},
		{name: "eh_frame_hdr of another version falls back on the section", im: base, change: damage(imgHdr, 7), sframe: "none", eh: "8", problems: 1},
		{name: "damaged FDE", im: with(func(im *image) { im.sframe = 3 }), change: damage(imgFrame+24+4, 0xff), sframe: "108", eh: "error", problems: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := new(process)
			p.load(tt.im, libAt, 5, "/lib/a.so")
			if tt.change != nil {
				tt.change(p)
			}
			s := NewSpace(p, NewCache(0), Options{NoEHFrame: tt.noEHFrame})
			for range 3 { // answers and problems do not change with asking
				if got := cfaOf(s.Row(codeAt, unwind.SFrame)); got != tt.sframe {
					t.Errorf("sframe: %s, want %s", got, tt.sframe)
				}
				if got := cfaOf(s.Row(codeAt, unwind.EHFrame)); got != tt.eh {
					t.Errorf("eh_frame: %s, want %s", got, tt.eh)
				}
			}
			if got := problemsOf(s); len(got) != tt.problems {
				t.Errorf("problems: %v, want %d", got, tt.problems)
			}
			for _, pr := range problemsOf(s) {
				if pr.Module != "/lib/a.so" || pr.Err == nil || pr.Addr == 0 {
					t.Errorf("incomplete problem: %+v", pr)
				}
			}
		})
	}
}

// TestReload is the life of a plug-in: what was answered of one object is never
// answered of the next.
func TestReload(t *testing.T) {
	first := image{buildID: "11111111", cfa: 8, sframe: 3, sections: true}
	second := image{buildID: "22222222", cfa: 16, sframe: 3, sections: true}
	anonymous := func(im image) image { im.buildID = ""; return im }
	// The headers of these two are the same, only the tables differ.
	a, b := anonymous(first), anonymous(second)

	replace := func(im image, addr, inode uint64, path string) func(*process) {
		return func(p *process) { p.unload("/lib/a.so"); p.load(im, addr, inode, path) }
	}
	tests := []struct {
		name          string
		before, after image
		change        func(*process)
		path          string // afterwards, empty: nothing is at codeAt
	}{
		{"unloaded", first, first, func(p *process) { p.unload("/lib/a.so") }, ""},
		{"another in its place", first, second, replace(second, libAt, 6, "/lib/b.so"), "/lib/b.so"},
		{"a new version under the same name", first, second, replace(second, libAt, 6, "/lib/a.so"), "/lib/a.so"},
		{"the inode came back too", first, second, replace(second, libAt, 5, "/lib/a.so"), "/lib/a.so"},
		{"without build-ids", a, b, replace(b, libAt, 6, "/lib/a.so"), "/lib/a.so"},
		{"without build-ids, the inode came back", a, b, replace(b, libAt, 5, "/lib/a.so"), "/lib/a.so"},
		{"a JIT's code in its place", first, first, func(p *process) {
			p.unload("/lib/a.so")
			p.mapAt(libAt, rx, make([]byte, 0x5000), 0, 0x5000, 0, "")
		}, "-"},
		{"exec", first, second, func(p *process) {
			p.maps, p.mem = nil, nil
			p.load(second, libAt, 9, "/bin/b")
			p.load(first, libAt+0x100000, 5, "/lib/a.so")
		}, "/bin/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := new(process)
			p.load(tt.before, libAt, 5, "/lib/a.so")
			p.mapAt(0x10000, procfs.Read|procfs.Write, nil, 0, 0x1000, 0, "[heap]")
			s := NewSpace(p, NewCache(0), Options{})
			for _, how := range []unwind.How{unwind.SFrame, unwind.EHFrame} {
				if got := cfaOf(s.Row(codeAt, how)); got != fmt.Sprint(int(tt.before.cfa)+100*int(2-how)) {
					t.Fatalf("before: %v row %s", how, got)
				}
			}
			if changed, err := s.Verify(); changed || err != nil {
				t.Fatalf("Verify = %v, %v before the change", changed, err)
			}
			gen := s.Generation()
			tt.change(p)
			if changed, err := s.Verify(); !changed || err != nil {
				t.Errorf("Verify = %v, %v after the change; want true", changed, err)
			}
			if s.Generation() == gen {
				t.Error("the generation is as before")
			}
			want, eh := fmt.Sprint(int(tt.after.cfa)+100), fmt.Sprint(tt.after.cfa)
			path := tt.path
			if path == "" || path == "-" {
				want, eh, path = "none", "none", ""
			}
			if got := cfaOf(s.Row(codeAt, unwind.SFrame)); got != want {
				t.Errorf("sframe row %s, want %s", got, want)
			}
			if got := cfaOf(s.Row(codeAt, unwind.EHFrame)); got != eh {
				t.Errorf("eh_frame row %s, want %s", got, eh)
			}
			m, _, ok := s.Module(codeAt)
			if ok && m.Path != path || !ok && path != "" {
				t.Errorf("module %q, want %q", m.Path, path)
			}
			if exec := s.Executable(codeAt); exec != (tt.path != "") {
				t.Errorf("Executable = %v", exec)
			}
		})
	}
}

// TestLoadLater: code that was not there at the last look is found by the first
// question about it, and modules that stay are the same.
func TestLoadLater(t *testing.T) {
	p := new(process)
	im := image{buildID: "11111111", cfa: 8, sframe: 3}
	p.load(im, libAt, 5, "/lib/a.so")
	s := NewSpace(p, NewCache(0), Options{})
	before, _, _ := moduleAt(s, codeAt)
	gen := s.Generation()
	im.buildID, im.cfa = "22222222", 16
	p.load(im, libAt+0x100000, 6, "/lib/b.so")
	if got := cfaOf(s.Row(codeAt+0x100000, unwind.SFrame)); got != "116" {
		t.Errorf("row of the new object: %s, want 116", got)
	}
	if after, _, _ := moduleAt(s, codeAt); after != before || before == nil {
		t.Errorf("the old object is another Module now")
	}
	if s.Generation() == gen {
		t.Error("the generation is as before")
	}
}

func moduleAt(s *Space, pc uint64) (*Module, uint64, bool) {
	s.Executable(pc)
	return s.Module(pc)
}

// slowMaps is a process whose mappings take a while to be read.
type slowMaps struct {
	*process
	c    *clock
	took time.Duration
}

func (p slowMaps) Maps() ([]procfs.Mapping, error) {
	p.c.t = p.c.t.Add(p.took)
	return p.process.Maps()
}

// TestMissesOfManyMappings: mappings that take long to be read are read the less often.
func TestMissesOfManyMappings(t *testing.T) {
	p, c := new(process), &clock{time.Unix(1000, 0)}
	p.load(image{buildID: "11111111", cfa: 8}, libAt, 5, "/lib/a.so")
	const took = 50 * time.Millisecond
	s := NewSpace(slowMaps{p, c, took}, NewCache(0), Options{Now: c.now})
	s.Executable(codeAt)
	p.listed = 0
	for i := range uint64(3 * missRest) {
		s.Executable(0x10000000 + i*pageBytes)
		c.t = c.t.Add(took)
	}
	if p.listed != 3 {
		t.Errorf("mappings read %d times in %d times as long as that takes, want 3 times", p.listed, 3*missRest)
	}
}

// TestMisses: an address that is nowhere costs one reading of the mappings, and
// many different ones do not cost one each for ever.
func TestMisses(t *testing.T) {
	p, c := new(process), &clock{time.Unix(1000, 0)}
	p.load(image{buildID: "11111111", cfa: 8}, libAt, 5, "/lib/a.so")
	s := NewSpace(p, NewCache(0), Options{Now: c.now})
	s.Executable(codeAt)
	p.listed = 0
	for range 1000 {
		s.Executable(0xdead0000)
		s.Executable(1) // below any mapping
	}
	if p.listed != 1 {
		t.Errorf("1,000 questions about one address: mappings read %d times, want once", p.listed)
	}
	c.t = c.t.Add(missAge)
	s.Executable(0xdead0000)
	if p.listed != 2 {
		t.Errorf("not asked again after %v", missAge)
	}
	c.t, p.listed = c.t.Add(time.Hour), 0
	for i := range uint64(1000) {
		s.Executable(0x10000000 + i*pageBytes)
	}
	if p.listed != missBurst {
		t.Errorf("1,000 addresses: mappings read %d times, want %d", p.listed, missBurst)
	}
	c.t, p.listed = c.t.Add(missEvery), 0
	for i := range uint64(1000) {
		s.Executable(0x10000000 + i*pageBytes)
	}
	if p.listed != 1 {
		t.Errorf("%v later: mappings read %d times, want once", missEvery, p.listed)
	}
	// What is found does not count against the bound.
	c.t, p.listed = c.t.Add(missEvery), 0
	for i := range uint64(100) {
		p.load(image{buildID: fmt.Sprintf("%08d", i), cfa: 8}, libAt+(i+1)<<24, 6+i, fmt.Sprintf("/lib/%d.so", i))
		if !s.Executable(codeAt + (i+1)<<24) {
			t.Fatalf("object %d not found", i)
		}
	}
}

// TestSharing: who shares what was read. The count is of reads of the second
// process for a row that the first one had.
func TestSharing(t *testing.T) {
	base := image{buildID: "12345678", cfa: 8, sframe: 3}
	rw, other, none := base, base, base
	rw.tablesRW = true
	other.entry, other.cfa = 0x1000, 16 // same build-id, other headers
	none.buildID = ""
	tests := []struct {
		name          string
		first, second image
		inode         uint64
		owner         uint32
		shared        bool
	}{
		{"same file", base, base, 5, 0, true},
		{"same build-id, another copy", base, base, 77, 0, true},
		{"another owner", base, base, 5, 1000, false},
		{"same build-id, other headers", base, other, 5, 0, false},
		{"tables in a writable segment", rw, rw, 5, 0, false},
		{"no build-id, same inode", none, none, 5, 0, true},
		{"no build-id, another inode", none, none, 6, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCache(0)
			p, q := new(process), new(process)
			p.load(tt.first, libAt, 5, "/lib/a.so")
			q.load(tt.second, libAt+0x5000000, tt.inode, "/lib/a.so")
			s := NewSpace(p, c, Options{})
			r := NewSpace(q, c, Options{Owner: tt.owner})
			s.Row(codeAt, unwind.SFrame)
			s.Row(codeAt, unwind.EHFrame)
			if err := r.Refresh(); err != nil {
				t.Fatal(err)
			}
			p.reads, q.reads = 0, 0
			if got := cfaOf(r.Row(codeAt+0x5000000, unwind.SFrame)); got != fmt.Sprint(int(tt.second.cfa)+100) {
				t.Errorf("sframe row %s", got)
			}
			if got := cfaOf(r.Row(codeAt+0x5000000, unwind.EHFrame)); got != fmt.Sprint(tt.second.cfa) {
				t.Errorf("eh_frame row %s", got)
			}
			if (q.reads == 0) != tt.shared || p.reads != 0 {
				t.Errorf("%d reads of the second process, %d of the first; shared: want %v", q.reads, p.reads, tt.shared)
			}
		})
	}
}

// TestReaderDies: that a process cannot be read is no fault of its tables.
func TestReaderDies(t *testing.T) {
	c := NewCache(0)
	p, q := new(process), new(process)
	im := image{buildID: "12345678", cfa: 8, sframe: 3}
	p.load(im, libAt, 5, "/lib/a.so")
	q.load(im, libAt, 5, "/lib/a.so")
	s, r := NewSpace(p, c, Options{}), NewSpace(q, c, Options{})
	s.Refresh()
	r.Refresh()
	p.gone = true
	if _, err := s.Row(codeAt, unwind.SFrame); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("row of a process that is gone: %v, want ESRCH", err)
	}
	if err := s.Refresh(); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("Refresh = %v, want ESRCH", err)
	}
	if !s.Executable(codeAt) {
		t.Error("the mappings are forgotten")
	}
	if got := cfaOf(r.Row(codeAt, unwind.SFrame)); got != "108" || len(problemsOf(r)) != 0 {
		t.Errorf("row of the other process: %s, problems %v", got, problemsOf(r))
	}
	p.gone, p.maps = false, nil
	if err := s.Refresh(); err == nil {
		t.Error("Refresh of a process without mappings succeeds")
	}
}

// TestFailingReads fails each read in turn, at its beginning or in its midst: who asks is told that a table could not be read, never that it has no row.
// Afterwards the answers are right.
func TestFailingReads(t *testing.T) {
	for _, half := range []bool{false, true} {
		failingReads(t, half)
	}
}

func failingReads(t *testing.T, half bool) {
	for n := 1; ; n++ {
		p, c := &process{failAt: n, half: half}, &clock{time.Unix(1000, 0)}
		p.load(image{buildID: "12345678", cfa: 8, sframe: 3, sections: true}, libAt, 5, "/lib/a.so")
		s := NewSpace(p, NewCache(0), Options{Now: c.now})
		for range 2 {
			for how, want := range map[unwind.How]string{unwind.SFrame: "108", unwind.EHFrame: "8"} {
				if row, err := s.Row(codeAt, how); cfaOf(row, err) != want && !errors.Is(err, unwind.ErrUnread) {
					t.Errorf("read %d fails: row %s, %v", n, cfaOf(row, err), err)
				}
			}
			s.Entry(codeAt)
		}
		if p.reads < n {
			if n < 5 {
				t.Errorf("only %d reads were made to fail", n)
			}
			return
		}
		p.failAt = 0
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
		if a, b := cfaOf(s.Row(codeAt, unwind.SFrame)), cfaOf(s.Row(codeAt, unwind.EHFrame)); a != "108" || b != "8" {
			t.Errorf("after a failure of read %d: rows %s, %s; want 108, 8", n, a, b)
		}
		if len(problemsOf(s)) != 0 {
			t.Errorf("a failure of read %d became a problem: %v", n, problemsOf(s))
		}
	}
}

// TestFailingCode fails the reads from each one on, code's among them: who asks is told that it could not be read, never that it tells nothing.
func TestFailingCode(t *testing.T) {
	const generated = libAt + 0x100000
	for n := 1; ; n++ {
		p := &process{failAt: n, onward: true}
		p.load(image{buildID: "12345678", noEH: true, sections: true}, libAt, 5, "/lib/a.so")
		p.mapAt(generated, rx, make([]byte, 0x1000), 0, 0x1000, 0, "")
		s := NewSpace(p, NewCache(0), Options{})
		for i := range p.mem { // pop rbx; ret
			if m := &p.mem[i]; m.start <= codeAt && codeAt-m.start < uint64(len(m.data)) {
				copy(m.data[codeAt-m.start:], "\x5b\xc3")
			} else if m.start == generated {
				copy(m.data, "\x5b\xc3")
			}
		}
		for _, at := range []uint64{codeAt, generated} {
			if row, err := s.Follow(at, false); cfaOf(row, err) != "16" && !errors.Is(err, unwind.ErrUnread) {
				t.Errorf("read %d fails: code at %#x has the row %s, %v", n, at, cfaOf(row, err), err)
			}
		}
		made := p.reads
		p.failAt = 0
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
		for _, at := range []uint64{codeAt, generated} {
			if got := cfaOf(s.Follow(at, false)); got != "16" {
				t.Errorf("after a failure of read %d code at %#x has the row %s, want 16", n, at, got)
			}
		}
		if made < n {
			if n < 5 {
				t.Errorf("only %d reads were made to fail", n)
			}
			return
		}
	}
}

// TestFailingFiles fails each read of a library's file in turn, and opening it: until the next try nobody knows what it tells.
func TestFailingFiles(t *testing.T) {
	for n := 1; ; n++ {
		p, c := &process{fileFails: n}, &clock{time.Unix(1000, 0)}
		p.load(image{buildID: "12345678", noEH: true, sections: true, debug: true}, libAt, 5, "/lib/a.so")
		s := NewSpace(p, NewCache(0), Options{Now: c.now})
		for range 2 {
			row, err := s.Row(codeAt, unwind.EHFrame)
			if got := cfaOf(row, err); got != "50" && !errors.Is(err, unwind.ErrUnread) {
				t.Errorf("read %d of the file fails: row %s, %v", n, got, err)
			}
		}
		c.t = c.t.Add(firstTry)
		if got := cfaOf(s.Row(codeAt, unwind.EHFrame)); got != "50" {
			t.Errorf("after a failure of read %d of the file: row %s, want 50", n, got)
		}
		if p.fileReads < n {
			if n < 10 {
				t.Errorf("only %d reads were made to fail", n)
			}
			return
		}
	}
}

// TestBrokenFile: a file that cannot be read for long is not tried all the time, and counts as one that tells nothing in the end. What memory has is used all along.
func TestBrokenFile(t *testing.T) {
	p, c := &process{broken: true}, &clock{time.Unix(1000, 0)}
	p.load(image{buildID: "12345678", noEH: true, sections: true, debug: true}, libAt, 5, "/lib/a.so")
	p.load(image{buildID: "12345679", cfa: 8, sections: true}, libAt+0x100000, 6, "/lib/b.so")
	s := NewSpace(p, NewCache(0), Options{Now: c.now})
	began, gaveUp := c.t, time.Duration(0)
	for ; c.t.Sub(began) < 10*time.Second; c.t = c.t.Add(time.Millisecond) {
		_, err := s.Row(codeAt, unwind.EHFrame)
		if err == nil {
			t.Fatal("a row of what was never read")
		}
		if errors.Is(err, sframe.ErrNoRow) && gaveUp == 0 {
			gaveUp = c.t.Sub(began)
		}
		if errors.Is(err, sframe.ErrNoRow) != (gaveUp > 0) {
			t.Fatalf("after %v: %v", c.t.Sub(began), err)
		}
	}
	if gaveUp < patient/2 || gaveUp > 2*patient {
		t.Errorf("given up after %v, want about %v", gaveUp, patient)
	}
	if tries := p.opened / 3; tries > 12 { // three mappings each
		t.Errorf("tried %d times in 10 s", tries)
	}
	if got := cfaOf(s.Row(codeAt+0x100000, unwind.EHFrame)); got != "8" {
		t.Errorf("row %s of a table in memory, want 8", got)
	}
	p.broken, c.t = false, c.t.Add(2*longestTry)
	if got := cfaOf(s.Row(codeAt, unwind.EHFrame)); got != "50" {
		t.Errorf("row %s once the file can be opened, want 50", got)
	}
}

// TestCacheBound: pages and decoded rows stay within their bounds, and what is
// dropped is read again.
func TestCacheBound(t *testing.T) {
	c := NewCache(8 * pageBytes)
	c.tableLimit = 50 << 10
	p := new(process)
	for i := range uint64(100) {
		p.load(image{buildID: fmt.Sprintf("%08d", i), cfa: int8(i), sframe: 3}, libAt+i<<24, i+1, fmt.Sprintf("/lib/%d.so", i))
	}
	s := NewSpace(p, c, Options{})
	for range 3 {
		for i := range uint64(100) {
			if got := cfaOf(s.Row(codeAt+i<<24, unwind.EHFrame)); got != fmt.Sprint(i) {
				t.Fatalf("row of object %d: %s", i, got)
			}
			if n := len(c.pages) * pageBytes; n > 8*pageBytes {
				t.Fatalf("%d bytes of pages", n)
			}
			if c.tableTotal > c.tableLimit {
				t.Fatalf("%d bytes of tables", c.tableTotal)
			}
		}
	}
	sum := 0
	for _, n := range c.tables {
		sum += n
	}
	if sum != c.tableTotal || len(c.tables) == 100 {
		t.Errorf("account: %d bytes in %d objects, want a sum of %d and fewer objects", c.tableTotal, len(c.tables), sum)
	}
	s.Close()
	if n := len(c.objects); n > maxIdle {
		t.Errorf("%d objects are kept of a process that is gone", n)
	}
}

// TestManyFilesThatAreNotELF: a JIT's memory file is not opened at each refresh.
func TestManyFilesThatAreNotELF(t *testing.T) {
	p := new(process)
	for i := range uint64(500) {
		p.mapAt(libAt+i*0x2000, rx, make([]byte, 0x1000), 0, 0x1000, 5, "/memfd:doublemapper")
		p.maps[i].Offset = i * 0x1000
	}
	p.files = map[uint64][]byte{5: make([]byte, 500*0x1000)}
	s := NewSpace(p, NewCache(0), Options{})
	for range 10 {
		if err := s.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	if p.opened != 1 {
		t.Errorf("file opened %d times, want once", p.opened)
	}
	if gen := s.Generation(); gen != 2 {
		t.Errorf("generation %d after refreshes without change, want 2", gen)
	}
}

// TestEntries: in which functions stacks begin.
func TestEntries(t *testing.T) {
	syms := map[string]uint64{"_start": 0x1100, "main": 0x1200, "runtime.goexit.abi0": 0x1300,
		"my__clone": 0x1400, "__clone": 0x1500, "_start_later": 0x1600, "clone3": 0x1700}
	tests := []struct {
		name string
		im   image
		pc   uint64
		want bool
	}{
		{"_start", image{sections: true, symbols: syms}, 0x1104, true},
		{"behind _start", image{sections: true, symbols: syms}, 0x1110, false},
		{"main", image{sections: true, symbols: syms}, 0x1204, false},
		{"Go", image{sections: true, symbols: syms}, 0x1301, true},
		// Its end is "__clone" and "clone", which a linker may let share it.
		{"a name with the same end", image{sections: true, symbols: syms}, 0x1404, false},
		{"clone", image{sections: true, symbols: syms}, 0x1504, true},
		{"a name with the same beginning", image{sections: true, symbols: syms}, 0x1604, false},
		{"clone3", image{sections: true, symbols: syms}, 0x1700, true},
		{"without a size", image{sections: true, symbols: syms, unsized: true}, 0x1520, true},
		{"without a size, up to the next", image{sections: true, unsized: true,
			symbols: map[string]uint64{"__clone": 0x1500, "next": 0x1520}}, 0x151f, true},
		{"next to one without a size", image{sections: true, unsized: true,
			symbols: map[string]uint64{"__clone": 0x1500, "next": 0x1520}}, 0x1520, false},
		{"32 bits", image{sections: true, symbols: syms, class: 1}, 0x1704, true},
		{"stripped program at its entry", image{interp: true, entry: 0x1800, noEH: true}, 0x1808, true},
		{"stripped program past its entry", image{interp: true, entry: 0x1800, noEH: true}, 0x1840, false},
		{"next to the entry, by its symbol", image{interp: true, entry: 0x1100, noEH: true, sections: true, symbols: syms}, 0x1110, false},
		{"fixed address", image{typ: 2, entry: 0x1800, noEH: true}, 0x1808, true},
		{"shared object with an entry address", image{entry: 0x1800, noEH: true}, 0x1808, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := new(process)
			p.load(tt.im, libAt, 5, "/lib/a.so")
			s := NewSpace(p, NewCache(0), Options{})
			for range 2 {
				if got := s.Entry(libAt + tt.pc); got != tt.want {
					t.Errorf("Entry(%#x) = %v, want %v", tt.pc, got, tt.want)
				}
			}
		})
	}
	t.Run("dynamic linker", func(t *testing.T) {
		p := new(process)
		p.load(image{entry: 0x1800, noEH: true}, libAt, 5, "/lib64/ld-linux-x86-64.so.2")
		s := NewSpace(p, NewCache(0), Options{})
		if !s.Entry(libAt + 0x1800) {
			t.Error("its entry starts no stack")
		}
	})
}

// TestMapping: the bounds by which a walk limits a stack.
func TestMapping(t *testing.T) {
	p := new(process)
	const rw = procfs.Read | procfs.Write
	p.mapAt(0x10000, rw, nil, 0, 0x1000, 0, "")
	p.mapAt(0x11000, rw, nil, 0, 0x2000, 0, "[stack]")
	p.mapAt(0x13000, 0, nil, 0, 0x1000, 0, "")
	p.mapAt(0x20000, rw, nil, 0, 0x1000, 0, "")
	s := NewSpace(p, NewCache(0), Options{})
	s.Refresh()
	for addr, want := range map[uint64][3]uint64{0x10000: {0x10000, 0x13000, 1}, 0x12fff: {0x10000, 0x13000, 1},
		0x13000: {0x13000, 0x14000, 1}, 0x14000: {}, 0x20fff: {0x20000, 0x21000, 1}, 0xffff: {}} {
		start, end, ok := s.Mapping(addr)
		if start != want[0] || end != want[1] || ok != (want[2] == 1) {
			t.Errorf("Mapping(%#x) = %#x, %#x, %v; want %#x", addr, start, end, ok, want)
		}
	}
	if i, ok := s.mapped.at(0x11000); !ok || s.Mappings()[i].Path != "[stack]" {
		t.Errorf("at(0x11000) = %v, %v", i, ok)
	}
}

// TestReport tells of the tables in use.
func TestReport(t *testing.T) {
	p := new(process)
	p.load(image{buildID: "12345678", cfa: 8, sframe: 3}, libAt, 5, "/lib/a.so")
	p.load(image{buildID: "87654321", noEH: true}, libAt+0x100000, 6, "/lib/b\x1b.so")
	s := NewSpace(p, NewCache(0), Options{})
	s.Row(codeAt, unwind.SFrame)
	s.Row(codeAt+0x100000, unwind.SFrame)
	var got []string
	for _, m := range s.Modules() {
		got = append(got, m.Report().String())
	}
	want := []string{
		`"/lib/a.so" build-id 3132333435363738: sframe V3 (1 functions, 52 bytes), eh_frame`,
		`"/lib/b\x1b.so" build-id 3837363534333231: no tables`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	m, _, _ := s.Module(codeAt)
	tables, err := m.Tables()
	if err != nil || len(tables.SFrame) != 1 || tables.EHFrame == nil {
		t.Fatalf("Tables = %+v, %v", tables, err)
	}
	if got := cfaOf(tables.SFrame[0].Row(0x1010)); got != "108" {
		t.Errorf("row of a tool's table: %s, want 108", got)
	}
}

func problemsOf(s *Space) (list []Problem) {
	for _, m := range s.Modules() {
		list = append(list, m.Report().Problems...)
	}
	return list
}
