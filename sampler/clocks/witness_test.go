package clocks

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// record is one of a perf event, as the kernel writes a sample (PERF_SAMPLE_IP, _TID and _TIME).
func record(m met) []byte {
	mode, pc := uint16(unix.PERF_RECORD_MISC_USER), m.pc
	if pc == 0 {
		mode, pc = unix.PERF_RECORD_MISC_KERNEL, 0xffffffff81000000
	}
	b := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_SAMPLE)
	b = binary.NativeEndian.AppendUint16(b, mode|1<<14) // PERF_RECORD_MISC_EXACT_IP, say
	b = binary.NativeEndian.AppendUint16(b, 32)
	b = binary.NativeEndian.AppendUint64(b, pc)
	b = binary.NativeEndian.AppendUint32(b, uint32(m.of))
	b = binary.NativeEndian.AppendUint32(b, uint32(m.id))
	return binary.NativeEndian.AppendUint64(b, uint64(m.at))
}

// write appends to what the ring holds.
func (w *witness) write(b []byte) {
	head := binary.NativeEndian.Uint64(w.ring[dataHead:])
	half := len(w.ring) / 2
	for i := range b {
		w.ring[half+(int(head)+i)%half] = b[i]
	}
	binary.NativeEndian.PutUint64(w.ring[dataHead:], head+uint64(len(b)))
}

// ringOf is a witness that has its phase, and has noted this.
func ringOf(list ...met) *witness {
	w := &witness{event: 5, ring: make([]byte, 8192)}
	w.set.Store(true)
	for _, m := range list {
		w.write(record(m))
	}
	return w
}

// noteAt are the registers of a stopped thread that is at this instruction.
func noteAt(pc uint64) []byte {
	for n := regs.PrstatusMaxBytes; n > 0; n-- {
		b := make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			clear(b)
			binary.NativeEndian.PutUint64(b[i:], pc)
			if ptrace.ProgramCounter(b) == pc {
				return b
			}
		}
	}
	panic("no registers have a program counter")
}

// TestWitnessRead: the last record of a thread counts, wherever in the ring it is, and each is read once.
func TestWitnessRead(t *testing.T) {
	lost := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64([]byte{}, 0), 3)
	lost = append(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_LOST), 0), 24), lost...)
	w := ringOf()
	if m, ok, _ := w.read(); ok {
		t.Errorf("an empty ring tells of %+v", m)
	}
	user, kernel := met{100, 0x401000, 7, 4711}, met{101, 0, 8, 4711}
	for i := range 200 { // around the ring, of which 24 bytes are no divisor
		for _, tt := range []struct {
			records [][]byte
			want    met
			ok      bool
		}{
			{[][]byte{record(user)}, user, true},
			{[][]byte{record(user), record(kernel)}, kernel, true},
			{[][]byte{record(kernel), lost, record(user), lost}, user, true},
			{[][]byte{lost}, met{}, false},
		} {
			w.write(slices.Concat(tt.records...))
			if m, ok, throttled := w.read(); throttled || ok != tt.ok || m != tt.want {
				t.Fatalf("round %d: %+v %t, want %+v %t", i, m, ok, tt.want, tt.ok)
			}
			if m, ok, _ := w.read(); ok {
				t.Fatalf("round %d: %+v is read twice", i, m)
			}
		}
	}
	for _, size := range []uint16{0, 7, 33, 0xffff} { // of no record: nothing behind it counts
		bad := record(user)
		binary.NativeEndian.PutUint16(bad[6:], size)
		w.write(bad)
		if m, ok, _ := w.read(); ok {
			t.Errorf("size %d: %+v", size, m)
		}
		w.write(record(kernel))
		if m, ok, _ := w.read(); !ok || m != kernel {
			t.Errorf("behind size %d: %+v %t", size, m, ok)
		}
	}
}

// TestWitnessTell: a record counts for the tick at which it was made, on the clock's own CPU, and of another thread than that, and the clock wakes up soon behind the first that
// there are. What an interrupt long before the clock's has met has gone on.
func TestWitnessTell(t *testing.T) {
	const tick, interval = 1_000_000, 10_000_000
	defer func() { cpuOf, setPeriod = ptrace.RawCPU, ptrace.RawPeriod }()
	stands := 0
	setPeriod = func(event int, every int64) unix.Errno {
		if stands++; event != 5 || every != never {
			t.Errorf("period %d of %d", every, event)
		}
		return 0
	}
	for _, tt := range []struct {
		name        string
		at          int64 // of the record, behind the tick; 0: none
		later, want int64 // how long after the tick it wakes up, and will
		told, ran   bool
	}{
		{"long before", 10_000, 20_000, 10_300, true, true},
		{"another interrupt", 20_000 - apart - 1, 20_000, 19_299, true, true},
		{"the same interrupt", 20_000 - apart, 20_000, 19_300, true, false},
		{"soon behind the tick", 1, 20_000, 1 + behind, true, true},
		{"before it", -1, 20_000, 20_500, false, false},
		{"at the wake-up", 8_000, 5_000, 5_010, true, false},
		{"behind it", 8_001, 5_000, 5_500, false, false},
		{"none", 0, 5_000, 5_000, false, false},
		{"too late, again and again", mostLater + 8_000, mostLater, mostLater, false, false},
		{"late, again and again", mostLater + 3_000, mostLater, mostLater, true, false},
	} {
		for _, how := range []string{"", "elsewhere", "nobody knows where", "itself", "again", "rested"} {
			cpu, ok := map[string]int{"elsewhere": 3, "nobody knows where": -1}[how]
			if !ok {
				cpu = 2
			}
			cpuOf = func() int { return cpu }
			w := ringOf()
			if w.later = tt.later; tt.at != 0 {
				id := 7
				if how == "itself" {
					id = 99
				}
				w.write(record(met{tick + tt.at, 9, id, 4711}))
			}
			x := wakes{99, 2, tick, tick + tt.later, tick + tt.later + 3_000, how != "again"}
			if how == "rested" {
				x.due, x.wake = x.due+100_000, x.wake+100_000
			}
			want, told, later := met{tick + tt.at, 9, 7, 4711}, tt.told, tt.want
			switch how {
			case "elsewhere", "nobody knows where", "itself":
				if told = false; tt.at != 0 {
					later = min(tt.later+slower, mostLater)
				}
			case "again":
				later = tt.later
			case "rested":
				later, told = tt.later, tt.at > 0
			}
			if tt.ran || how == "rested" {
				want.pc = 0
			}
			m, got := w.tell(&x, interval)
			if got != told || told && m != want || w.later != later {
				t.Errorf("%s %s: %+v %t, later %d; want %+v %t, %d", tt.name, how, m, got, w.later, want, told, later)
			}
		}
	}
	cpuOf = func() int { return 2 }
	at := func(w *witness, how ...met) (told bool) {
		for _, m := range how {
			w.write(record(m))
		}
		_, told = w.tell(&wakes{99, 2, tick, tick + w.later, tick + w.later + 3_000, true}, interval)
		return told
	}
	w := ringOf()
	late := met{tick - 1, 9, 7, 4711} // of the tick before
	for i := range enough {
		if !w.set.Load() {
			t.Fatalf("after %d ticks whose record comes too late its timer has no phase", i)
		}
		at(w, late)
	}
	if w.set.Load() || w.later != 0 || stands != 1 {
		t.Errorf("after %d ticks whose record comes too late its timer has its phase, and the clock wakes up %d ns later", enough, w.later)
	}
	if at(w, met{tick, 9, 7, 4711}) {
		t.Error("without its phase it tells")
	}
	if at(new(witness)) {
		t.Error("where there is none it tells")
	}
	// One record, and it is trusted again; after some, it is no failure that it has failed before.
	w = ringOf()
	w.next = 7
	for range enough - 1 {
		at(w, late)
	}
	if !at(w, met{tick + 1, 9, 7, 4711}) || w.next != 7 {
		t.Errorf("next %d", w.next)
	}
	if at(w, late); !w.set.Load() {
		t.Error("a record between two ticks whose comes too late does not count")
	}
	for range enough - 1 {
		at(w, met{tick + 1, 9, 7, 4711})
	}
	if w.next != 0 {
		t.Errorf("after %d records the next failure has a pause of %d", enough, w.next)
	}
	// The kernel tells that the timer stands still, twice.
	for _, kind := range []uint32{unix.PERF_RECORD_THROTTLE, unix.PERF_RECORD_UNTHROTTLE} {
		for _, passes := range []bool{false, true} {
			w, stands = ringOf(met{tick + 1, 9, 7, 4711}), 0
			for range 2 {
				b := make([]byte, 32)
				binary.NativeEndian.PutUint32(b, kind)
				binary.NativeEndian.PutUint16(b[6:], 32)
				w.write(b)
			}
			told := false
			if passes {
				w.pass(interval)
			} else {
				told = at(w)
			}
			if told || w.set.Load() || w.later != 0 || stands != 1 || w.next != 1 {
				t.Errorf("behind a record of kind %d: told %t, later %d, next %d", kind, told, w.later, w.next)
			}
		}
	}
	w = ringOf(met{tick + 1, 9, 7, 4711})
	w.pass(interval)
	if m, ok, _ := w.read(); ok || !w.set.Load() {
		t.Errorf("what was passed is read: %+v", m)
	}
	new(witness).pass(interval)
}

// TestWitnessStill: a tick without a record had nobody on the CPU where nobody was found at many such, which is looked at again now and then. Where somebody is found
// again and again the timer begins anew.
func TestWitnessStill(t *testing.T) {
	const tick, interval = 1_000_000, 10_000_000
	defer func() { cpuOf, setPeriod = ptrace.RawCPU, ptrace.RawPeriod }()
	setPeriod = func(int, int64) unix.Errno { return 0 }
	cpuOf = func() int { return 2 }
	w := ringOf()
	// at is a tick with these records, at which somebody is found or nobody, if it is looked. It returns whether it is.
	at := func(found bool, records ...met) (looks bool) {
		for _, m := range records {
			w.write(record(m))
		}
		m, told := w.tell(&wakes{99, 2, tick, tick + w.later, tick + w.later + 3_000, true}, interval)
		if told && len(records) == 0 && m != (met{}) {
			t.Errorf("without a record it tells of %+v", m)
		}
		if !told {
			w.looked(found, interval)
		}
		return !told
	}
	looks := func(n int) (looked int) {
		for range n {
			if at(false) {
				looked++
			}
		}
		return looked
	}
	here := met{tick + 1, 9, 7, 4711}
	for range 2 {
		if got := looks(enough); got != enough {
			t.Errorf("it is looked at %d of the first %d ticks", got, enough)
		}
		if at(false, here) {
			t.Error("a record does not count")
		}
		if got := looks(5 * ajar); got != 5 {
			t.Errorf("it is looked at %d of %d further ticks, want 5", got, 5*ajar)
		}
		for w.still%ajar != 0 {
			at(false)
		}
		if !at(true) || w.still != 0 || w.silent != 1 {
			t.Errorf("somebody was found: still %d, silent %d", w.still, w.silent)
		}
		at(false, here)
	}
	looks(enough)
	if at(false, met{tick - 1, 9, 7, 4711}); w.still != 0 {
		t.Error("a record that has come too late does not count")
	}
	at(false, here)
	// What tells of another wake-up than the tick's own has no record in any case.
	w.tell(&wakes{99, 2, tick, tick + w.later, tick + w.later + 3_000, false}, interval)
	if w.looked(true, interval); w.silent != 0 {
		t.Error("a second wake-up for a tick counts as one without a record")
	}
	for i := range enough {
		if !w.set.Load() {
			t.Fatalf("after %d ticks its timer has no phase", i)
		}
		at(true)
	}
	if w.set.Load() {
		t.Errorf("%d ticks had no record though somebody was found, and it has its phase", enough)
	}
	pause := w.pause
	for range 2 * enough {
		at(true)
	}
	if w.pause != pause {
		t.Errorf("without its phase it fails again: a pause of %d, then of %d", pause, w.pause)
	}
}

// TestCalls: clocks call who sleeps on the board: for a thread of a group that is not there, and for the next clock, if that waits.
func TestCalls(t *testing.T) {
	defer func() { cpuOf = ptrace.RawCPU }()
	cpuOf = func() int { return 0 }
	_, b, c := desk(t, 1, &actor{tid: 7, state: 'R'})
	b.Group(int32(^4711<<3 | 2))
	for i, tt := range []struct {
		m     met
		calls uint32
	}{
		{met{b.Start, 9, 7, 4711}, 0},
		{met{b.Start, 9, 8, 4711}, 1},
		{met{b.Start, 0, 8, 4711}, 0},
		{met{b.Start, 9, 8, 4712}, 0},
		{met{b.Start, 9, 0, 0}, 0},
	} {
		x := ringOf(tt.m)
		c.search.witness.ring, c.up.due = x.ring, b.Start
		c.search.witness.set.Store(true)
		before := b.Bell()
		c.find(0, b.Start+5*us)
		if got := b.Bell() - before; got != tt.calls {
			t.Errorf("%d: %+v: %d calls, want %d", i, tt.m, got, tt.calls)
		}
	}
	k := new(taking.Live)
	heard, long := b.Bell(), k.Now()+int64(testprog.Patience)
	if b.Sleep(k, heard-1, long); k.Now() > long-int64(testprog.Patience)/2 {
		t.Error("who was called before sleeps")
	}
	called := make(chan struct{})
	go func() {
		defer close(called)
		b.Call()
	}()
	for b.Bell() == heard && k.Now() < long {
		b.Sleep(k, heard, long)
	}
	if k.Now() >= long {
		t.Error("nobody is waked by a call")
	}
	<-called
	short := k.Now() + 1e6
	for heard = b.Bell(); k.Now() < short && b.Bell() == heard; {
		b.Sleep(k, heard, short)
	}
	if b.Bell() == heard && k.Now() < short {
		t.Error("it ends early")
	}

	// Of clocks 1, 3 and 4 each sees whether the next one waits.
	b = NewBoard(1, 0, 1e6)
	list := map[int32]*Clock{}
	for _, who := range []int32{1, 3, 4} {
		list[who] = &Clock{who: who}
		b.clocks[who].Store(list[who])
	}
	b.most = 5
	for _, waits := range []int32{1, 3, 4} {
		list[waits].grip.since.Store(100)
		for who, before := range map[int32]int32{1: 4, 3: 1, 4: 3} {
			if got := b.nextWaits(before, 101); got != (who == waits) {
				t.Errorf("clock %d waits, clock %d sees that: %t", waits, before, got)
			}
		}
		if b.nextWaits(map[int32]int32{1: 4, 3: 1, 4: 3}[waits], 100) {
			t.Error("it has just begun")
		}
		list[waits].grip.since.Store(0)
	}
	alone := NewBoard(1, 0, 1e6)
	one := &Clock{who: 2}
	one.grip.since.Store(100)
	alone.clocks[2].Store(one)
	if alone.nextWaits(2, 200) {
		t.Error("with no number in use somebody waits")
	}
	if alone.most = 3; alone.nextWaits(2, 200) {
		t.Error("a clock sees itself")
	}
}

// TestStranger: a thread that is not on the board is sampled from its process's slot to spare, one for each time that this is made ready, where the tick has met it in code of
// its own. Threads of other processes, and all where there is no such slot, are left alone.
func TestStranger(t *testing.T) {
	defer func() { cpuOf, realTimeOf = ptrace.RawCPU, ptrace.RawRealTime }()
	cpuOf, realTimeOf = func() int { return 0 }, func(id int) bool { return id == 9 }
	a, young := &actor{tid: 7, state: 'R'}, &actor{tid: 8, state: 'R', run: 300 * us, wait: 40 * us}
	other := &actor{tid: 9, state: 'R'}
	s, b, c := desk(t, 4, a, young, other)
	b.Remove(1) // of thread 8
	b.Remove(2)
	g := b.Group(int32(^107<<3 | 2)) // of thread 7
	s.registers = noteAt(0x1234)
	n := int64(-1)
	tick := func(m met) (list []*Sample) {
		n++
		m.at = b.Start + n*b.Interval
		x := ringOf(m)
		c.search.witness.ring, c.prompt, c.up.due, c.up.least = x.ring, true, m.at, usual
		c.search.witness.set.Store(true)
		s.now = m.at + 5*us
		c.answer(n, s.now)
		for _, m := range c.drain(nil) {
			list = append(list, m.copy())
			m.Done()
		}
		return list
	}
	here := met{0, 0x1234, 8, 107}
	if got := tick(here); len(got) != 0 || b.Bell() != 1 {
		t.Errorf("without a slot to spare: %d samples, %d calls", len(got), b.Bell())
	}
	slot := b.Put(Thread{PID: 107, Sched: -1, Stat: -1, Debug: -1, Call: -1, Stack: -1, Pages: -1, Group: g})
	if b.find(0) >= 0 || slot < 0 {
		t.Fatalf("thread 0 is in slot %d", b.find(0))
	}
	for name, m := range map[string]met{
		"in the kernel": {0, 0, 8, 107}, "of another process": {0, 0x1234, 8, 108}, "of real-time priority": {0, 0x1234, 9, 107}, "nobody": {},
	} {
		if got := tick(m); len(got) != 0 || b.slots[slot].TID != 0 && m.id != 9 {
			t.Errorf("%s: %d samples, the slot is thread %d's", name, len(got), b.slots[slot].TID)
		}
		b.Renew(slot)
	}
	for range 3 {
		got := tick(here)
		if len(got) != 1 || got[0].TID != 8 || got[0].PID != 107 || got[0].Slot != slot || got[0].Moved || got[0].Gone || got[0].Stopped.Run != young.run || got[0].Tick != n {
			t.Fatalf("samples %v", got)
		}
		calls := b.Bell()
		if got := tick(here); len(got) != 0 || b.Bell() != calls+1 {
			t.Errorf("a slot that is used up: %v, %d calls", got, b.Bell()-calls)
		}
		if got := tick(met{0, 0x1234, 7, 107}); len(got) != 1 || got[0].TID != 7 {
			t.Errorf("thread 7: %v", got)
		}
		b.slots[slot].take(5)
		if b.Renew(slot) {
			t.Error("a slot that a clock holds is made ready")
		}
		b.slots[slot].give()
		if !b.Renew(slot) {
			t.Error("a slot is not made ready")
		}
	}
	if s.registers = noteAt(0x1238); !tick(here)[0].Moved {
		t.Error("it is elsewhere, and counts as where it was")
	}
	b.Renew(slot)
	if !b.Remove(slot) || c.board.early.groups[g].spare.Load() != 0 || len(tick(here)) != 0 {
		t.Error("a slot that was taken off is used")
	}
	slot = b.Put(Thread{PID: 107, Sched: -1, Pages: -1, Group: g})
	if b.Ungroup(g); len(tick(here)) != 0 {
		t.Error("the slot of a group that was given back is used")
	}
	_ = slot
}

// TestWitnessed: one clock without a witness is enough to be told who has run.
func TestWitnessed(t *testing.T) {
	var one, other Clock
	b := &Bank{clocks: map[int]*Clock{}}
	if b.Witnessed() {
		t.Error("no clock has a witness")
	}
	b.clocks[0], b.clocks[1] = &one, &other
	one.search.witness.set.Store(true)
	if b.Witnessed() {
		t.Error("one clock has none")
	}
	if other.search.witness.set.Store(true); !b.Witnessed() {
		t.Error("both clocks have one")
	}
}

// TestWitnessBegin: the timer begins at a tick, for which the clock waits awake, not where it comes too late for that, or is to rest; then less and less often, and never again where
// the kernel refuses it.
func TestWitnessBegin(t *testing.T) {
	const tick, interval = int64(1e9 + 1e6), int64(10_000_000)
	defer func() { setPeriod = ptrace.RawPeriod }()
	for _, tt := range []struct {
		name     string
		now      int64 // at the beginning
		delay    int64 // of the wake-up
		takes    int64 // the call
		rest     int64
		interval int64
		fails    unix.Errno
		calls    int // of so many tries
		set      bool
		again    []int // tries that come to sleeping
	}{
		{"in time", 1e9, 20 * us, us, 0, interval, 0, 1, true, []int{0}},
		{"it wakes up late", 1e9, 60*us + onset, 0, 0, interval, 0, 6, false, []int{0, 1, 3, 7, 15, 31}},
		{"the call takes long", 1e9, 20 * us, onset, 0, interval, 0, 6, false, []int{0, 1, 3, 7, 15, 31}},
		{"the call takes long for these ticks", 1e9, 20 * us, 25 * us, 0, 16 * 25 * us, 0, 6, false, []int{0, 1, 3, 7, 15, 31}},
		{"it is woken before", 1e9, -500 * us, 0, 0, interval, 0, 0, false, nil},
		{"the tick is near", tick - 60*us + 1, 0, 0, 0, interval, 0, 0, false, nil},
		{"it is to rest", 1e9, 0, 0, tick, interval, 0, 0, false, nil},
		{"the kernel does not", 1e9, 20 * us, us, 0, interval, unix.EACCES, 1, false, []int{0}},
	} {
		s, _, _ := desk(t, 1)
		s.step, s.passes = 0, 100
		s.delay = func() int64 { return tt.delay }
		calls := 0
		setPeriod = func(event int, every int64) unix.Errno {
			if every == never {
				return 0
			}
			if calls++; event != 5 || every != tt.interval || s.now < tick {
				t.Errorf("%s: period %d of %d at %d", tt.name, every, event, s.now)
			}
			s.now += tt.takes
			return tt.fails
		}
		w := ringOf(met{5, 5, 5, 4711})
		w.set.Store(false)
		w.silent, w.told, w.later = 3, 4, 7
		var again []int
		for i := range 40 {
			if w.set.Load() {
				break
			}
			s.now = tt.now
			slept := len(s.sleeps)
			if w.begin(s, tick, tt.rest, tt.interval); len(s.sleeps) > slept {
				again = append(again, i)
			}
		}
		if tt.name == "it is woken before" { // each time anew
			tt.again = again
		}
		if calls != tt.calls || w.set.Load() != tt.set || tt.set && (w.silent != 0 || w.told != 0 || w.later < us+firstLater || w.later > us+firstLater+500) || !slices.Equal(again, tt.again) {
			t.Errorf("%s: %d calls, in tries %v; it has its phase: %t; later %d", tt.name, calls, again, w.set.Load(), w.later)
		}
		if m, ok, _ := w.read(); ok && tt.set {
			t.Errorf("%s: what it has met before is there: %+v", tt.name, m)
		}
	}
	setPeriod = func(int, int64) unix.Errno { return 0 }
	w := witness{next: 399}
	w.fail(interval)
	if w.fail(interval); w.pause != 400 || w.next != 400 {
		t.Errorf("pauses %d, then %d; want 4 s", w.pause, w.next)
	}
}

// TestWitnessPlay: a clock with a witness reads nothing of the thread that this tells of before it stops, wakes up later for it, and lets go who is another by then.
func TestWitnessPlay(t *testing.T) {
	defer func() { cpuOf, realTimeOf = ptrace.RawCPU, ptrace.RawRealTime }()
	cpuOf, realTimeOf = func() int { return 0 }, func(int) bool { return false }
	a, other := &actor{tid: 7, state: 'R'}, &actor{tid: 8, state: 'R'}
	var w *witness
	var s *script
	s, b, list := play(t, 20, 4, []*actor{a, other}, func(tick int64) {
		a.run, a.wait = a.run+1000*us, a.wait+30*us
		w.write(record(met{s.now - 5*us, 0x1234, 7, 4711}))
		switch tick {
		case 10:
			w.write(record(met{s.now - 5*us, 0x1235, 7, 4711})) // it goes on until it stops
		case 11:
			w.write(record(met{s.now - 5*us, 0x1234, 9, 4711})) // nobody's
		case 12:
			w.write(record(met{s.now - 5*us, 0x1234, 8, 4711}))
		}
	}, func(b *Board) {
		c := b.clocks[1].Load()
		s = c.k.(*script)
		w = &c.search.witness
		x := ringOf()
		w.event, w.ring, c.prompt, c.up.least = x.event, x.ring, true, usual
		w.set.Store(true)
		s.registers = noteAt(0x1234)
	})
	if len(list) != 19 || s.seizes != 19 { // at the 11th nobody's thread had the CPU
		t.Errorf("%d samples, %d stops", len(list), s.seizes)
	}
	for _, m := range list {
		if want := 7 + int(max(0, 1-(m.Tick-12)*(m.Tick-12))); m.TID != want || m.Moved != (m.Tick == 10) || m.Asked.Run != m.Stopped.Run || m.Asked.Wait >= m.Stopped.Wait {
			t.Errorf("%v", m)
		}
	}
	// The tick behind the last has no record: all are looked at.
	for fd, want := range map[int]int{70 + fileSched: 18 + 1, 70 + fileStat: 0, 70 + fileDebug: 0, 80 + fileSched: 1 + 1, 80 + fileStat: 0} {
		if got := s.reads[fd]; got != want {
			t.Errorf("file %d is read %d times, want %d", fd, got, want)
		}
	}
	late := 0
	for _, until := range s.sleeps {
		if off := (until - b.Start) % b.Interval; off > 0 && off <= mostLater {
			late++
		}
	}
	if late < 18 {
		t.Errorf("the clock has slept until %v: %d times a little longer than until the tick", s.sleeps, late)
	}
	// Who was seen is another one's by the time that the clock has the slot, or asks.
	_, b, c := desk(t, 1, &actor{tid: 7, state: 'R'})
	x := ringOf(met{b.Start, 0x1234, 7, 4711})
	c.search.witness.event, c.search.witness.ring, c.prompt, c.up.due, c.up.least = x.event, x.ring, true, b.Start, usual
	c.search.witness.set.Store(true)
	realTimeOf = func(int) bool { b.slots[0].TID = 8; return false }
	if c.answer(0, b.Start+5*us) || b.slots[0].holder.Load() != 0 {
		t.Errorf("another thread than the one that was seen is asked; its slot is held by %d", b.slots[0].holder.Load())
	}
}

// TestWitnessLive: where the kernel tells who had the CPU, a thread that computes all the time is stopped at the instruction at which the tick has met it, without a
// look at anything before.
func TestWitnessLive(t *testing.T) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{spinName}, Stderr: os.Stderr}
	pid := testprog.StartCmd(t, cmd).PID
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !cpus.IsSet(cpu) {
		cpu++
	}
	var one unix.CPUSet
	one.Set(cpu)
	board := NewBoard(64, ptrace.Now(), 2e6)
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := unix.SchedSetaffinity(id, &one); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, id))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		board.Put(Thread{TID: id, PID: pid, Sched: int(f.Fd()), Stat: -1, Debug: -1, Call: -1, Pages: -1})
	}
	bank := NewBank(new(taking.Live), board, Options{Samples: 4})
	defer bank.Close()
	bank.Need(cpu, 0)
	if c := bank.clocks[cpu]; bank.Denied != nil || c.search.witness.ring == nil {
		t.Skip("no real-time priority, or no perf events of CPUs")
	}
	all, seen, moved := 0, 0, 0
	end := time.Now().Add(testprog.Patience / 4)
	await(t, "a hundred samples", func() bool {
		for _, m := range bank.Drain() {
			if all++; m.proof.tick.pc != 0 && !m.Gone {
				if seen++; m.Moved {
					moved++
				}
				if m.Stopped.Run <= 0 || m.PID != pid || m.At.Wake < m.proof.tick.at {
					t.Errorf("%v", m)
				}
			}
			m.Done()
		}
		return seen >= 100 || all >= 1000 || time.Now().After(end)
	})
	if seen < 100 {
		t.Skipf("interrupts take too long for a witness: %d of %d samples", seen, all)
	}
	if moved > 5 {
		t.Errorf("%d of %d samples are not of the instruction that the tick has met", moved, seen)
	}
}
