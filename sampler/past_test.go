package sampler

import (
	"testing"
	"time"

	"sfsample/sampler/capture"
	"sfsample/sampler/module"
)

// pastSpace is a Target that knows of one library, or of plain code, at 0x1000.
type pastSpace struct {
	Target
	changes []module.Change
	moved   bool
	fixed   bool
	plain   bool
	retold  module.Retold
	since   time.Time
}

func (s *pastSpace) Changes() []module.Change {
	list := s.changes
	s.changes = nil
	return list
}
func (s *pastSpace) CodeAt(pc uint64) (module.Code, bool) {
	code := module.Code{Start: 0x1000, End: 0x2000, Since: s.since, Proven: true, Moved: s.moved && pc>>12 == 1}
	if s.plain {
		code.Retold = s.retold
	} else {
		code.Module, code.Fixed, code.Marks = new(module.Module), s.fixed, []module.Mark{{Addr: 0x1010, Data: []byte("mark")}}
	}
	return code, pc>>12 == 1
}

// TestDoubt: when the code at an address may have been other code at the moment of a
// capture. Times are in milliseconds; the captures are of 50 and have no pause.
func TestDoubt(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	at := func(began int, faults uint64) look { return look{ms(began), ms(began + 1), faults, true} }
	uncounted := func(began int) look { return look{began: ms(began), ended: ms(began + 1)} }
	changed := func(since, noted int, replaced bool) []change {
		return []change{{module.Change{Start: 0x1000, End: 0x2000, Replaced: replaced}, ms(since), ms(noted)}}
	}
	tests := []struct {
		name    string
		past    past
		since   int // when the library was first seen
		moved   bool
		doubt   bool
		nowhere bool // the address is elsewhere, where nothing has changed
		fixed   bool // the library stays as long as the program
		plain   bool // it is no library's code
		still   bool // no object of the process was ever replaced
		retold  module.Retold
		mark    string // what was read where the library has "mark"; "none": nothing was at hand, empty: nobody has asked
		looked  bool
	}{
		{name: "looks close together, and nobody has asked for its mark", past: past{looks: []look{at(40, 1), at(52, 2)}}, doubt: true},
		{name: "looks far apart", past: past{looks: []look{at(10, 1), at(52, 2)}}, doubt: true},
		{name: "looks far apart, of code that stays", past: past{looks: []look{at(10, 1), at(52, 2)}}, fixed: true},
		{name: "replaced after it, for the first time", past: past{looks: []look{at(40, 1), at(52, 2)}, changes: changed(40, 53, true)}, still: true, doubt: true, plain: true},
		{name: "no fault, and nobody has asked for its mark", past: past{looks: []look{at(40, 1), at(52, 1)}}, doubt: true},
		{name: "faults not counted before", past: past{looks: []look{uncounted(10), at(52, 1)}}, moved: true, doubt: true, plain: true},
		{name: "faults not counted at all", past: past{looks: []look{uncounted(10), uncounted(52)}}, moved: true, doubt: true, plain: true},
		{name: "looks far apart, and it has stayed for long", past: past{looks: []look{at(10, 1), at(52, 2)}}, since: -1000, doubt: true},
		{name: "looks far apart, its mark was read", past: past{looks: []look{at(10, 1), at(52, 2)}}, mark: "mark"},
		{name: "no fault, another's mark was read", past: past{looks: []look{at(40, 1), at(52, 1)}}, mark: "Mark", doubt: true},
		{name: "no fault, its mark was not at hand", past: past{looks: []look{at(40, 1), at(52, 1)}}, mark: "none", doubt: true},
		{name: "replaced after it, its mark was read", past: past{looks: []look{at(40, 1), at(52, 2)}, changes: changed(40, 53, true)}, moved: true, mark: "mark"},
		{name: "another's mark was read, of code that stays", past: past{looks: []look{at(10, 1), at(52, 2)}}, fixed: true, mark: "Mark"},
		{name: "looked at while the thread had not run", past: past{looks: []look{at(10, 1), at(49, 2)}}, looked: true},
		{name: "looked at before it was known", past: past{looks: []look{at(10, 1), at(49, 2)}}, looked: true, since: 51, doubt: true},
		{name: "a look within the time that the capture may have", past: past{looks: []look{at(10, 1), at(49, 2), at(52, 2)}}, doubt: true},
		{name: "no look before", past: past{looks: []look{at(52, 2)}}, doubt: true},
		{name: "no look before, of code that stays", past: past{looks: []look{at(52, 2)}}, fixed: true},
		{name: "no look after", past: past{looks: []look{at(40, 1)}}, doubt: true},
		{name: "no look after, the process has ended", past: past{looks: []look{at(40, 1)}, over: true}, plain: true},
		{name: "no look after, the process has ended, others were there", past: past{looks: []look{at(40, 1)}, over: true}, moved: true, doubt: true, plain: true},
		{name: "others were there before", past: past{looks: []look{at(40, 1), at(52, 2)}}, moved: true, doubt: true, plain: true},
		{name: "others were there before, long ago", past: past{looks: []look{at(40, 1), at(52, 2)}}, moved: true, since: -9000, doubt: true, plain: true},
		{name: "others were there before, no fault", past: past{looks: []look{at(40, 1), at(52, 1)}}, moved: true, plain: true},
		{name: "replaced after it", past: past{looks: []look{at(40, 1), at(52, 2)}, changes: changed(40, 53, true)}, doubt: true, plain: true},
		{name: "replaced after it, without a fault", past: past{looks: []look{at(40, 1), at(52, 1)}, changes: changed(40, 53, true)}, doubt: true, plain: true},
		{name: "replaced long after it", past: past{looks: []look{at(40, 1), at(52, 1)}, changes: changed(90, 99, true)}, doubt: true, plain: true},
		{name: "replaced before it", past: past{looks: []look{at(40, 1), at(52, 1)}, changes: changed(30, 41, true)}, plain: true},
		{name: "new, between looks close together", past: past{looks: []look{at(40, 1), at(52, 2)}, changes: changed(40, 53, false)}, plain: true},
		{name: "new, between looks far apart", past: past{looks: []look{at(10, 1), at(52, 2)}, changes: changed(10, 53, false)}, doubt: true, plain: true},
		{name: "new where others were", past: past{looks: []look{at(40, 1), at(52, 1)}, changes: changed(40, 53, false)}, moved: true, doubt: true, plain: true},
		{name: "new since a look behind it", past: past{looks: []look{at(40, 1), at(52, 1)}, changes: changed(52, 60, false)}, doubt: true, plain: true},
		{name: "replaced elsewhere", past: past{looks: []look{at(10, 1), at(52, 2)}, changes: changed(40, 53, true)}, moved: true, nowhere: true},
		{name: "retold at times, looks close together", past: past{looks: []look{at(40, 1), at(52, 2)}}, retold: module.Seldom, plain: true},
		{name: "retold at times, looks far apart", past: past{looks: []look{at(10, 1), at(52, 1)}}, retold: module.Seldom, doubt: true, plain: true},
		{name: "retold at times, the process has ended", past: past{looks: []look{at(40, 1)}, over: true}, retold: module.Seldom, plain: true},
		{name: "retold often, looks close together", past: past{looks: []look{at(40, 1), at(52, 1)}}, retold: module.Often, doubt: true, plain: true},
		{name: "retold often, looks right before and after", past: past{looks: []look{at(48, 1), at(50, 1)}}, retold: module.Often, plain: true},
		{name: "retold often, the process has ended", past: past{looks: []look{at(40, 1)}, over: true}, retold: module.Often, doubt: true, plain: true},
		{name: "told just now", past: past{looks: []look{at(40, 1), at(52, 1)}}, retold: module.New, doubt: true, plain: true},
		{name: "told just now, to who asks but once", past: past{looks: []look{at(40, 1), at(52, 1)}, once: true}, retold: module.New, plain: true},
		{name: "older than what is remembered", past: past{looks: []look{at(40, 1), at(52, 1)}, lost: ms(60)}, doubt: true, plain: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Unix(1000, 0)
			s := &pastSpace{moved: tt.moved, fixed: tt.fixed, plain: tt.plain, retold: tt.retold, since: start.Add(ms(tt.since))}
			pc := uint64(0x1234)
			tt.past.moved = !tt.still
			if tt.nowhere {
				pc = 0x5678
			}
			c := capture.Capture{At: ms(50)}
			if tt.mark != "" {
				c.Marks.Blocks = []capture.Block{{Addr: 0x1010}}
			}
			if tt.mark != "" && tt.mark != "none" {
				c.Marks.Blocks[0].Len, c.Marks.Bytes = len(tt.mark), []byte(tt.mark)
			}
			at50 := momentOf(&c)
			at50.looked = tt.looked
			if got := tt.past.doubtful(s, at50, pc, start); got != tt.doubt {
				t.Errorf("doubtful = %v, want %v", got, tt.doubt)
			}
		})
	}
}

// TestPastIsBounded: what is remembered stays bounded, and what is forgotten makes
// older captures doubtful.
func TestPastIsBounded(t *testing.T) {
	var h past
	s := new(pastSpace)
	for n := range 10 * maxPast {
		s.changes = []module.Change{{Start: 0x1000, End: 0x2000}}
		h.note(s, time.Duration(n)*time.Millisecond)
		h.add(look{began: time.Duration(n) * time.Millisecond})
	}
	if len(h.looks) > maxLooks || len(h.changes) > maxPast {
		t.Errorf("%d looks and %d changes", len(h.looks), len(h.changes))
	}
	if want := time.Duration(9*maxPast-1) * time.Millisecond; h.lost != want {
		t.Errorf("forgotten up to %v, want %v", h.lost, want)
	}
}
