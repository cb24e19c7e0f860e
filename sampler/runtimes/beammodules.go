package runtimes

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Which code is where the emulator tells debuggers (the JIT interface of GDB), by a list of what it has loaded, the newest first, to which it adds before
// that code runs (beam_jit_metadata.cpp). What is purged gives its place to other code; from 27 on it is taken from the list too, before that. So code at
// an address is, as of a moment, of the newest module there of those that were told of by then: the head of the list at that moment tells which they were.

// beamModules are the modules that were told of.
type beamModules struct {
	mem     io.ReaderAt
	first   uint64              // address of the pointer to the head of the list
	numbers map[beamIs]int      // of entries, in the order in which they were added
	head    beamIs              // what was last found to be the head
	recent  []beamIs            // entries, oldest first
	next    int                 // number of the next
	live    []*beamModule       // by address: whose place no newer one has
	past    []*beamModule       // whose place one has, oldest first
	known   map[int]*beamModule // whose functions were read, by number
	raise   []Span              // code that functions have in common and that does not return
	root    uint64              // what the outermost function of each process returns to
	framed  bool                // code keeps frame pointers
	budget  int                 // entries that may be read yet
	held    int                 // bytes of functions, about
	flows   beamFlows
}

// beamFlows is the code of functions.
type beamFlows struct {
	held int // bytes, about
	work int // bytes of what modules tell, and a quarter of those of code, that may be looked at yet
}

// beamIs tells an entry of the list from all others that were ever at its address, which is used again: where it is, what it leads to and the beginning of that.
type beamIs struct {
	entry, told, bytes uint64
	head               [3]uint64 // from base on
}

// beamIsAt is what the entry at addr is, as word reads it. ok is false if it cannot be read.
func beamIsAt(addr uint64, word func(addr uint64) (uint64, bool)) (is beamIs, ok bool) {
	is.entry = addr
	for i, v := range []*uint64{&is.told, &is.bytes, &is.head[0], &is.head[1], &is.head[2]} {
		at := addr + 16 + 8*uint64(i)
		if i > 1 {
			at = is.told + beamBase + 8*uint64(i-2)
		}
		if *v, ok = word(at); !ok {
			return is, false
		}
	}
	return is, true
}

// Bounds.
const (
	maxBeamEntries = 1 << 16  // of the list, and modules that are live
	maxBeamNewer   = 256      // that each walk adds to those that may be read
	maxBeamRecent  = 1 << 10  // entries, and modules, that are remembered although their place is another's
	maxBeamTold    = 8 << 20  // bytes that tell of a module
	maxBeamCode    = 1 << 20  // bytes of a function
	maxBeamHeld    = 64 << 20 // of functions, and of their code
	maxBeamWork    = 16 << 20
	maxBeamMore    = 1 << 20 // that each walk adds to that
)

// Offsets in bytes: jit_code_entry, debug_info, module_info from its beginning on, range_info and line_info without their texts.
const (
	beamEntryBytes = 32 // next_entry 0, prev_entry, symfile_addr 16, symfile_size
	beamInfoBytes  = 32 // header 0: 0 emulator, 1 module
	beamFrames     = 8  // of the emulator: 1 if code keeps frame pointers
	beamRoot       = 16 // of the emulator: normal_exit
	beamBase       = 8
	beamRanges     = 16
	beamSize       = 20
	beamName       = 24 // its length, with the NUL
	beamRangeBytes = 16 // start 0, end, lines, length of the name; behind 14 bytes the name
	beamLineBytes  = 12 // start 0, line, length of the file's name; behind 10 bytes the name
	beamCodeInfo   = 40 // from where what tells of a function begins to the function's entry; its arity is the word before that
	beamBreakpoint = 8  // from the entry to the function's range, if it can have breakpoints
)

// Names of ranges that are no functions.
const (
	beamShared   = "global::"
	beamMain     = beamShared + "process_main"
	beamRaise    = beamShared + "raise_exception_shared" // with frame pointers: what leads there has pushed or kept the caller's
	beamPrologue = "-CodeInfoPrologue"
)

// beamModule is a module as it was loaded once.
type beamModule struct {
	is         beamIs
	next, prev uint64 // entries, as it was read
	number     int
	gone       int // number of the one that has taken its place; 0: none
	base, end  uint64
	ranges     []beamRange          // by place; nil: not read yet
	flows      map[uint32]*beamFlow // of functions, by start; nil: of one whose code cannot be read
}

// beamRange is a function, or other code that has a name.
type beamRange struct {
	start, end uint32 // from the module's base on
	name       string
	lines      []beamLine
}

// shared: it is code that functions have in common.
func (r *beamRange) shared() bool { return strings.Contains(r.name, "::") }

// beamLine is where the code of a line begins.
type beamLine struct {
	start int32 // from the module's base on
	line  uint32
	file  string
}

// beamFunction is the function that an address is in.
type beamFunction struct {
	*beamRange
	of    *beamModule
	entry uint64 // where it begins, its place for a breakpoint included
	info  bool   // what tells of it lies before it
}

func newBeamModules(mem io.ReaderAt, first uint64) *beamModules {
	return &beamModules{mem: mem, first: first, numbers: map[beamIs]int{}, known: map[int]*beamModule{}, budget: maxBeamEntries, flows: beamFlows{work: maxBeamWork}}
}

// at is the number of an entry that was the head of the list. What is newer than all that is known is read. ok is false if it cannot be, or it is older than what is
// remembered.
func (l *beamModules) at(head beamIs) (n int, ok bool) {
	if n, ok = l.numbers[head]; ok && head == l.head {
		return n, true
	}
	list, ok := l.newer(head)
	if !ok {
		return 0, false
	}
	for i := len(list) - 1; i >= 0; i-- {
		l.add(list[i])
	}
	n, ok = l.numbers[head]
	l.head = head
	return n, ok
}

// newer reads the entries from the head on that are newer than all that are known, the newest first. One that is as one that is known may have been added since: what is
// behind it shows that it was not, as that was added before it.
func (l *beamModules) newer(head beamIs) (list []*beamModule, ok bool) {
	is := -1 // number of the last, if it is known
	for addr := head.entry; addr != 0; {
		m := l.entry(addr)
		if m == nil || len(list) == 0 && m.is != head || len(list) > 0 && m.prev != list[len(list)-1].is.entry {
			return nil, false
		}
		n, known := l.numbers[m.is]
		if known && is > n {
			break
		}
		if l.budget == 0 {
			return list, l.next == 0 && l.same(list)
		}
		if is = -1; known {
			is = n
		}
		l.budget--
		list, addr = append(list, m), m.next
	}
	if !l.same(list) {
		return nil, false
	}
	if is >= 0 {
		list = list[:len(list)-1]
	}
	return list, l.next > 0 || len(list) > 0
}

// entry is the one at an address, nil if it cannot be read.
func (l *beamModules) entry(addr uint64) *beamModule {
	b := read(l.mem, addr, beamEntryBytes)
	if b == nil {
		return nil
	}
	m := &beamModule{is: beamIs{entry: addr, told: word(b, 16), bytes: word(b, 24)}, next: word(b, 0), prev: word(b, 8)}
	if b = read(l.mem, m.is.told+beamBase, beamInfoBytes-beamBase); b == nil {
		return nil
	}
	for i := range m.is.head {
		m.is.head[i] = word(b, 8*i)
	}
	return m
}

// same tells whether entries are still what they were when they were read.
func (l *beamModules) same(list []*beamModule) bool {
	for i, m := range list {
		if x := l.entry(m.is.entry); x == nil || x.is != m.is || x.next != m.next || i > 0 && x.prev != m.prev {
			return false
		}
	}
	return true
}

// listed tells whether the entry of m is in the list: what it leads to is still that, and code of m where it was.
func (l *beamModules) listed(m *beamModule) bool {
	for range 3 { // the one before may be taken out meanwhile
		head := read(l.mem, l.first, 8)
		x := l.entry(m.is.entry)
		if head == nil || x == nil || x.is != m.is {
			return false
		}
		if word(head, 0) == m.is.entry {
			return true
		}
		if b := read(l.mem, x.prev, beamEntryBytes); b != nil && word(b, 0) == m.is.entry {
			return true
		}
	}
	return false
}

// add adds an entry, which is newer than all that are there.
func (l *beamModules) add(m *beamModule) {
	m.number = l.next
	l.next++
	l.numbers[m.is] = m.number
	if l.recent = append(l.recent, m.is); len(l.recent) >= 2*maxBeamRecent {
		// Those of modules that are live tell where what is known begins.
		kept := map[beamIs]int{}
		for _, e := range l.recent[maxBeamRecent:] {
			kept[e] = l.numbers[e]
		}
		for _, m := range l.live {
			kept[m.is] = m.number
		}
		l.numbers, l.recent = kept, slices.Clone(l.recent[maxBeamRecent:])
	}
	b := read(l.mem, m.is.told, beamInfoBytes)
	switch {
	case b == nil:
		return
	case word32(b, 0) == 0:
		if layout := word(b, beamFrames); layout <= 1 {
			l.root, l.framed = word(b, beamRoot), layout == 1
		}
		return
	}
	m.base = word(b, beamBase)
	m.end = m.base + uint64(word32(b, beamSize))
	if m.base == 0 || m.end <= m.base {
		return
	}
	from, _ := slices.BinarySearchFunc(l.live, m.base, func(x *beamModule, at uint64) int {
		if x.end <= at {
			return -1
		}
		return 1
	})
	to := from
	for to < len(l.live) && l.live[to].base < m.end {
		l.live[to].gone = m.number
		to++
	}
	l.past = append(l.past, l.live[from:to]...)
	l.live = slices.Replace(l.live, from, to, m)
	if len(l.live) > maxBeamEntries {
		old := func(number int) bool { return number < m.number-maxBeamEntries/2 }
		l.live = slices.DeleteFunc(l.live, func(x *beamModule) bool { return old(x.number) })
		maps.DeleteFunc(l.known, func(number int, x *beamModule) bool {
			if old(number) {
				x.ranges, x.flows = nil, nil
			}
			return old(number)
		})
	}
	if l.raise == nil { // the first module is that of what functions have in common
		l.raise = l.raising(m)
	}
	if n := len(l.past) - maxBeamRecent; n > maxBeamRecent {
		l.past = slices.Clone(l.past[n:])
	}
}

// raising is the code of m that raises exceptions.
func (l *beamModules) raising(m *beamModule) []Span {
	list := []Span{}
	for i := 0; l.tell(m) && i < len(m.ranges); i++ {
		if r := &m.ranges[i]; strings.HasPrefix(r.name, beamShared+"raise_exception") || strings.HasPrefix(r.name, beamShared+"handle_") {
			list = append(list, Span{m.base + uint64(r.start), int(r.end - r.start)})
		}
	}
	return list
}

// moduleAt is the module whose code was at pc when the newest was number when; nil: not known.
func (l *beamModules) moduleAt(pc uint64, when int) *beamModule {
	i, _ := slices.BinarySearchFunc(l.live, pc, func(x *beamModule, at uint64) int {
		if x.end <= at {
			return -1
		}
		return 1
	})
	if i < len(l.live) && pc >= l.live[i].base && l.live[i].number <= when {
		return l.live[i]
	}
	for i := len(l.past) - 1; i >= 0; i-- {
		if m := l.past[i]; pc >= m.base && pc < m.end && m.number <= when {
			if m.gone <= when {
				return nil // the module that was there is remembered no more, or none was
			}
			return m
		}
	}
	return nil
}

// find is the function that pc was in when the newest module was number when; nil: not known.
func (l *beamModules) find(pc uint64, when int) *beamFunction {
	m := l.moduleAt(pc, when)
	if m == nil || !l.tell(m) {
		return nil
	}
	i := m.index(pc - m.base)
	if i < 0 {
		return nil
	}
	f := &beamFunction{beamRange: &m.ranges[i], of: m}
	if strings.HasSuffix(f.name, beamPrologue) {
		if pc-m.base < uint64(f.start)+beamCodeInfo || i+1 == len(m.ranges) {
			return nil
		}
		i++
		f.beamRange = &m.ranges[i]
	}
	f.entry = m.base + uint64(f.start)
	if i > 0 && m.ranges[i-1].end == f.start && m.ranges[i-1].name == f.name+beamPrologue {
		f.info, f.entry = true, m.base+uint64(m.ranges[i-1].start)+beamCodeInfo
	}
	return f
}

// index is that of the range that has a place; -1: none has.
func (m *beamModule) index(at uint64) int {
	i, _ := slices.BinarySearchFunc(m.ranges, at, func(x beamRange, at uint64) int {
		if uint64(x.end) <= at {
			return -1
		}
		return 1
	})
	if i < len(m.ranges) && at >= uint64(m.ranges[i].start) {
		return i
	}
	return -1
}

// told is the module with a number, with its functions; nil if they cannot be read.
func (l *beamModules) told(number int) *beamModule {
	if m := l.known[number]; m != nil {
		return m
	}
	for _, list := range [][]*beamModule{l.live, l.past} {
		if i := slices.IndexFunc(list, func(m *beamModule) bool { return m.number == number }); i >= 0 && l.tell(list[i]) {
			return list[i]
		}
	}
	return nil
}

// tell reads the functions of a module, if they were not yet.
func (l *beamModules) tell(m *beamModule) bool {
	if m.ranges != nil {
		return true
	}
	if m.is.bytes < beamInfoBytes || m.is.bytes > maxBeamTold || l.flows.work < 0 {
		return false
	}
	l.flows.work -= int(m.is.bytes)
	b := read(l.mem, m.is.told, int(m.is.bytes))
	if b == nil || word32(b, 0) != 1 {
		return false
	}
	list, ok := beamTold(b)
	if !ok || !l.listed(m) {
		return false
	}
	if l.held += 2 * len(b); l.held > maxBeamHeld {
		for _, x := range l.known {
			x.ranges, x.flows = nil, nil
		}
		clear(l.known)
		l.held = 2 * len(b)
	}
	m.ranges, m.flows = list, map[uint32]*beamFlow{}
	l.known[m.number] = m
	return true
}

// beamTold decodes the ranges of a module, by place.
func beamTold(b []byte) (list []beamRange, ok bool) {
	n := word32(b, beamRanges)
	at := beamInfoBytes + half(b, beamName)
	files := map[string]string{}
	for range n {
		if len(b)-at < beamRangeBytes || at < 0 {
			return nil, false
		}
		r := beamRange{start: word32(b, at), end: word32(b, at+4)}
		lines, name := word32(b, at+8), half(b, at+12)
		if name > len(b)-at-beamRangeBytes || r.end < r.start || int(lines) > (len(b)-at)/beamLineBytes {
			return nil, false
		}
		if r.name, ok = beamText(b[at+14 : at+14+name]); !ok {
			return nil, false
		}
		at += beamRangeBytes + name
		for range lines {
			if len(b)-at < beamLineBytes {
				return nil, false
			}
			file := half(b, at+8)
			if file > len(b)-at-beamLineBytes {
				return nil, false
			}
			text, ok := beamText(b[at+10 : at+10+file])
			if !ok {
				return nil, false
			}
			if _, known := files[text]; !known {
				files[text] = text
			}
			// Those before the function are of its first line, and may be anywhere.
			r.lines = append(r.lines, beamLine{int32(word32(b, at)), word32(b, at+4), files[text]})
			at += beamLineBytes + file
		}
		if r.end > r.start {
			list = append(list, r)
		}
	}
	if !slices.IsSortedFunc(list, func(x, y beamRange) int { return cmp.Compare(x.start, y.start) }) {
		slices.SortFunc(list, func(x, y beamRange) int { return cmp.Compare(x.start, y.start) })
	}
	for i := range len(list) - 1 {
		if list[i].end > list[i+1].start {
			return nil, false
		}
	}
	return list, len(list) > 0
}

// rangeAt is the function at a place; nil: there is none.
func (m *beamModule) rangeAt(at uint64) *beamRange {
	i := m.index(at)
	if i >= 0 && strings.HasSuffix(m.ranges[i].name, beamPrologue) {
		i++
	}
	if i < 0 || i == len(m.ranges) {
		return nil
	}
	return &m.ranges[i]
}

// flow is the code of a function; nil: it cannot be read, or is another's by now.
func (l *beamModules) flow(f *beamFunction) *beamFlow {
	if w, ok := f.of.flows[f.start]; ok {
		return w
	}
	if f.of.flows == nil || l.flows.work < 0 {
		return nil
	}
	w := l.follow(f)
	if w != nil {
		w.work = &l.flows.work
	}
	if w != nil || l.listed(f.of) {
		f.of.flows[f.start] = w
	}
	return w
}

func (l *beamModules) follow(f *beamFunction) *beamFlow {
	m := f.of
	from, end := f.entry, m.base+uint64(f.end)
	if f.info {
		from -= beamCodeInfo
	}
	if end-from > maxBeamCode {
		return nil
	}
	code := read(l.mem, from, int(end-from))
	if code == nil || !l.listed(m) {
		return nil
	}
	if f.info {
		arity, err := strconv.Atoi(f.name[strings.LastIndexByte(f.name, '/')+1:])
		if err != nil || len(code) <= beamCodeInfo || word(code, beamCodeInfo-8) != uint64(arity) {
			return nil // its place is another's, which the emulator has yet to tell of
		}
		code = code[beamCodeInfo:]
	}
	l.flows.work -= 4 * len(code)
	n := 512 + 12*len(code) // its states, and at most so many of calls
	if l.flows.held += n; l.flows.held > maxBeamHeld {
		for _, x := range l.known {
			clear(x.flows)
		}
		l.flows.held = n
	}
	leads := func(at int) beamPlace {
		place := f.entry + uint64(int64(at))
		if i := m.index(place - m.base); i >= 0 && strings.HasSuffix(m.ranges[i].name, beamPrologue) && place-m.base == uint64(m.ranges[i].start)+beamCodeInfo {
			return beamEntry
		}
		if i := slices.IndexFunc(l.raise, func(s Span) bool { return place-s.Addr < uint64(s.Len) }); i >= 0 {
			return beamRaises
		}
		return beamElsewhere
	}
	switch {
	case !l.framed:
		return newBeamFlow(code, leads)
	case f.info:
		return newFramedFlow(code, leads, beamState{})
	case f.name == beamRaise:
		return newFramedFlow(code, leads, beamState{words: 1, link: beamSaved})
	}
	return newFramedFlow(code, leads, beamStarts...)
}

// called tells whether ra, which is in f, is behind a call.
func (l *beamModules) called(f *beamFunction, ra uint64) bool {
	w := l.flow(f)
	if w == nil || ra <= f.entry {
		return false
	}
	at := int(ra - f.entry)
	return at <= len(w.code) && behindCall(w.code[:at])
}
