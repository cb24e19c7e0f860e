package module

import (
	"bytes"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/unwind"
	"sfsample/unwind/code"
)

// followKey is a place that code was followed from, or to.
type followKey struct {
	pc     uint64
	caller bool
	ra     uint64 // of Called; of Follow 0
	start  uint64 // of Called, if it is told that
}

// maxFollowed bounds the answers that are kept, of one object or of all code
// without one; each takes up to 300 bytes.
const maxFollowed = 1 << 12

// followed are answers; nil: the code tells nothing there.
type followed map[followKey]*sframe.Row

func (f *followed) keep(k followKey, row *sframe.Row) {
	if len(*f) >= maxFollowed {
		clear(*f)
	}
	if *f == nil {
		*f = followed{}
	}
	(*f)[k] = row
}

func answer(row *sframe.Row) (*sframe.Row, error) {
	if row == nil {
		return nil, sframe.ErrNoRow
	}
	return row, nil
}

// Follow implements unwind.Follower.
func (s *Space) Follow(pc uint64, caller bool) (*sframe.Row, error) {
	k := followKey{pc: pc, caller: caller}
	at := pc
	if caller {
		at-- // a call may be the last instruction of a mapping
	}
	r := s.cover(at)
	if r == nil || caller && s.Entry(at) {
		return nil, sframe.ErrNoRow
	}
	if m := r.mod; m != nil {
		m.asked = true
		k.pc -= m.Bias
		return m.obj.follow(m, k)
	}
	if row, ok := s.free.rows[k]; ok {
		return answer(row)
	}
	s.free.failed = false
	row, _ := code.Follow(s.mapped.arch(), code.Place{PC: pc, Caller: caller}, s.free.read)
	return s.free.keep(k, row)
}

// Called implements unwind.Follower, for code of one object, or of one mapping without an object. Mappings are not
// read anew: most of what is asked about is no address of code at all.
func (s *Space) Called(ra, start, pc uint64) (*sframe.Row, error) {
	r := s.mapped.code.find(ra - 1)
	if r == nil || r != s.mapped.code.find(pc-1) || start != 0 && (r.mod != nil || r != s.mapped.code.find(start)) {
		return nil, sframe.ErrNoRow
	}
	if m := r.mod; m != nil {
		return m.obj.follow(m, followKey{pc: pc - m.Bias, ra: ra - m.Bias})
	}
	k := followKey{pc: pc, start: start}
	if start == 0 {
		k.ra = ra
	}
	row, ok := s.free.rows[k]
	if ok {
		return answer(row)
	}
	a := s.mapped.arch()
	s.free.failed = false
	if start == 0 {
		start, _ = code.Target(a, ra, s.free.read)
	}
	if start != 0 && r == s.mapped.code.find(start) && pc-start < maxFreeSize {
		row, _ = code.Called(a, start, code.Place{PC: pc}, s.free.read)
	}
	return s.free.keep(k, row)
}

// keep keeps what code tells and answers with it, unless it was not read and may tell more another time.
func (f *freeCode) keep(k followKey, row *sframe.Row) (*sframe.Row, error) {
	if row == nil && f.failed {
		return nil, unwind.ErrUnread
	}
	f.rows.keep(k, row)
	return answer(row)
}

// follow is Follow and Called for code of an object. Places are link-time
// addresses.
func (o *object) follow(m *Module, k followKey) (*sframe.Row, error) {
	o.lock(m)
	defer o.unlock()
	row, ok := o.followed[k]
	if ok || o.mem.hdr.arch == nil {
		return answer(row)
	}
	if err := o.open(); err != nil {
		return nil, err
	}
	o.mem.failed, o.mem.passing = false, false
	goFunc, ok := o.goFunc(k.pc)
	if o.mem.passing {
		return nil, unwind.ErrUnread
	}
	switch {
	case ok && !goFunc.Foreign():
		// Where its own table has no row, the stack changes, which its code does not tell.
	case k.ra != 0:
		start, ok := code.Target(o.mem.hdr.arch, k.ra, o.mem.code)
		if !ok && o.mem.hdr.arch == regs.AMD64 && code.ThroughMemory(k.ra, o.mem.code) {
			if start, ok = o.function(k.pc - 1); !ok {
				start, ok = code.Padded(k.pc, o.mem.code) // what starts a program of Free Pascal calls its main part so
			}
		}
		if ok {
			row, _ = code.Called(o.mem.hdr.arch, start, code.Place{PC: k.pc, Ends: o.tables.ends}, o.mem.code)
		}
	default:
		row, _ = code.Follow(o.mem.hdr.arch, code.Place{PC: k.pc, Caller: k.caller, Ends: o.tables.ends}, o.mem.code)
	}
	if row == nil && o.mem.passing {
		return nil, unwind.ErrUnread
	}
	if !o.mem.passing && (row != nil || !o.mem.failed) { // else it may tell more another time
		o.followed.keep(k, row)
	}
	o.mem.cache.account(o, o.bytes())
	return answer(row)
}

// ends tells whether .eh_frame has a function end at vaddr.
func (t *tables) ends(vaddr uint64) bool {
	if t.eh == nil {
		return false
	}
	e, err := t.eh.Find(vaddr - 1)
	return err == nil && e.FuncEnd == vaddr
}

// code is what packages that read code want.
func (mem *objectMemory) code(vaddr uint64, b []byte) int {
	if n, err := mem.ReadAt(b, int64(vaddr)); err != nil {
		return n
	}
	return len(b)
}

// freeCode is what was followed of code that belongs to no object: generated, and
// perhaps soon overwritten.
type freeCode struct {
	in    *Space
	rows  followed
	pages map[uint64][]byte // read for it, by address
	// failed: a page could not be read just now, since that was last asked.
	failed bool
}

// maxFreeSize bounds how far from its start a place in generated code lies that is looked for, in bytes.
const maxFreeSize = 64 << 10

// maxFree bounds the pages that are compared with memory, again and again.
const maxFree = 256

// arch is the architecture of code without an object: that of the program.
func (m *mapped) arch() *regs.Arch {
	for _, x := range m.modules {
		if x.Arch != nil && !x.VDSO() {
			return x.Arch
		}
	}
	return new(regs.Arch) // of which no code is followed
}

// read reads generated code, by pages, which are kept to see whether they
// change.
func (f *freeCode) read(addr uint64, b []byte) int {
	done := 0
	for done < len(b) {
		at := addr + uint64(done)
		page, ok := f.pages[at/pageBytes*pageBytes]
		if !ok {
			page = f.readPage(at / pageBytes * pageBytes)
		}
		n := copy(b[done:], page[min(at%pageBytes, uint64(len(page))):])
		if done += n; n == 0 {
			break
		}
	}
	return done
}

func (f *freeCode) readPage(addr uint64) []byte {
	if r := f.in.mapped.code.find(addr); r == nil || r.mod != nil {
		return nil
	}
	page := make([]byte, pageBytes)
	if n, err := f.in.access.src.ReadAt(page, int64(addr)); n < len(page) || err != nil {
		f.failed = f.failed || passing(err)
		return nil
	}
	if len(f.pages) >= maxFree {
		f.forget()
	}
	if f.pages == nil {
		f.pages = map[uint64][]byte{}
	}
	f.pages[addr] = page
	return page
}

// forget forgets what was followed, and has walks forget it too.
func (f *freeCode) forget() {
	f.rows, f.pages = nil, nil
	f.in.gen++
}

// changed forgets what was followed of generated code if any of it is not
// what it was.
func (f *freeCode) changed() {
	var now [pageBytes]byte
	for addr, page := range f.pages {
		if n, err := f.in.access.src.ReadAt(now[:], int64(addr)); n < len(now) || err != nil || !bytes.Equal(now[:], page) {
			f.forget()
			return
		}
	}
}
