package goroutines

import (
	"errors"
	"fmt"
	"time"
)

// Status is what a goroutine does (runtime/runtime2.go).
type Status uint8

// Statuses of goroutines that no thread runs, and of those that one does.
const (
	Runnable  Status = 1
	Running   Status = 2
	InCall    Status = 3 // in a system call or in C code
	Waiting   Status = 4
	Preempted Status = 9
	Leaked    Status = 10 // since Go 1.26: it waits for what nobody has any more

	dead      = 6
	copying   = 8
	deadExtra = 11 // since Go 1.26
)

// String is the word for it.
func (s Status) String() string {
	switch s {
	case Runnable:
		return "runnable"
	case Running:
		return "running"
	case InCall:
		return "in a system call"
	case Waiting:
		return "waiting"
	case Preempted:
		return "preempted"
	case Leaked:
		return "leaked"
	}
	return "unknown"
}

// scanning is set in a status while the collector reads the stack.
const scanning = 0x1000

// G is a goroutine that no thread runs.
type G struct {
	state
	Wait Wait
	// Thread is the number of the thread that it is locked to, as its own pid namespace has it; 0: none.
	Thread int
}

// state is what must be the same before and after a goroutine's stack is read.
type state struct {
	Addr, ID uint64
	Origin   Origin
	Status   Status
	Runs     uint8  // how often it has stopped running, modulo 256
	PC, FP   uint64 // where it goes on
	Stack    Stack

	reason          uint8
	scanned         bool
	waiting, locked uint64
}

// Origin is what a goroutine was started by, and with.
type Origin struct {
	Parent uint64 // number of the goroutine; 0: not known
	GoPC   uint64 // return address of the statement
	Start  uint64 // its function
}

// Stack is where a goroutine's stack is.
type Stack struct{ SP, low, high uint64 }

// valid tells whether it is a stack that the runtime may have made, and SP lies on it.
func (s *Stack) valid() bool {
	return s.SP >= s.low && s.SP < s.high && s.SP%8 == 0 && s.high-s.low <= maxStack && s.high <= maxAddr
}

// Bytes is how much of it is used.
func (s *Stack) Bytes() int { return int(s.high - s.SP) }

// Wait is what a goroutine waits for.
type Wait struct {
	Since   uint64 // of the monotonic clock, in nanoseconds: the end of the collection of garbage before the first one that has found it waiting; 0: not known
	Reason  string // in the runtime's words; empty: not known, or it does not wait
	Objects []Object
}

// Object is what a goroutine waits on.
type Object struct {
	Kind string // see below
	Addr uint64
	Len  int64 // values in the channel
	Cap  int64 // how many there is room for; -1: not known, or it is no channel
}

// Kinds of objects.
const (
	Channel   = "channel"
	Semaphore = "semaphore" // a word of a lock or of a WaitGroup
	Condition = "condition" // the list of a Cond
)

// Counts tell what became of the entries of the runtime's list.
type Counts struct {
	Taken   int
	Dead    int
	Running int
	InCall  int
	Changed int // it ran, or its stack was moved, while that was read
	Unread  int // its memory cannot be read
	Odd     int // it is no goroutine, or has the number of another
	Beyond  int // not looked at: see maxListed and maxTaken, or there was no time left
}

// Bounds of what is read.
const (
	maxListed = 1 << 20 // entries of the list, to which the runtime never takes away
	maxTaken  = 1 << 17
	// batch is how many goroutines are read at a time, firstStack how much is of the stack of each, in bytes: parked
	// goroutines seldom have more.
	batch      = 256
	firstStack = 4 << 10
	// tries is how often one is read that runs meanwhile.
	tries = 3
	// maxStack is the largest stack that the runtime allows (runtime/proc.go, maxstackceiling), in bytes.
	maxStack = 2_000_000_000
	// maxObjects bounds what one goroutine waits on: a select may have 65536 cases.
	maxObjects = 8
)

// errList is for memory that is no list of goroutines.
var errList = errors.New("what should be the list of goroutines is none")

// reader is one reading of the goroutines.
type reader struct {
	*Runtime
	mem    Memory
	buf    []byte
	ranges []Range
	stacks []byte
	room   [batch]G
	seen   map[uint64]bool // numbers of goroutines
	counts Counts
	take   func(*G, []byte)
}

// Read hands the goroutines that no thread runs to take, with the beginning of the stack of each, from its stack pointer
// on: see [Runtime.Stack] for more of it. The G, but not what is in it, and the copy are valid until take returns. What is not read by
// the time until is counted.
func (r *Runtime) Read(mem Memory, until time.Time, take func(g *G, stack []byte)) (Counts, error) {
	rd := &reader{Runtime: r, mem: mem, seen: map[uint64]bool{}, take: take}
	list, err := rd.list()
	if err != nil {
		return rd.counts, err
	}
	for len(list) > 0 {
		now := list[:min(len(list), batch)]
		if rd.counts.Taken > maxTaken-batch || time.Now().After(until) {
			rd.counts.Beyond += len(list)
			break
		}
		rd.batch(now)
		list = list[len(now):]
		if c := &rd.counts; c.Odd > c.Taken+c.Running+c.InCall+c.Changed {
			return *c, fmt.Errorf("goroutines of %s are not laid out as expected", versionText(r.Version))
		}
	}
	if c := &rd.counts; c.Taken+c.Running+c.InCall+c.Changed+c.Beyond == 0 {
		return *c, errList // the runtime has some of its own, always
	}
	return rd.counts, nil
}

// list reads the addresses of all goroutines.
func (rd *reader) list() ([]uint64, error) {
	for range tries {
		var head, again [24]byte
		if !rd.read(rd.mem, rd.Runtime.list, head[:]) {
			return nil, errors.New("its memory cannot be read")
		}
		ptr, n, room := rd.order.Uint64(head[:]), rd.order.Uint64(head[8:]), rd.order.Uint64(head[16:])
		if ptr == 0 || n == 0 || n > room || room > maxAddr/8 {
			return nil, errList
		}
		rd.counts.Beyond = int(min(n-min(n, maxListed), 1<<40))
		n = min(n, maxListed)
		b := make([]byte, 8*n)
		if !rd.read(rd.mem, ptr, b) {
			continue // it has just moved
		}
		if !rd.read(rd.mem, rd.Runtime.list, again[:]) || rd.order.Uint64(again[:]) != ptr {
			continue
		}
		list := make([]uint64, n)
		for i := range list {
			list[i] = rd.order.Uint64(b[8*i:])
		}
		return list, nil
	}
	return nil, errList
}

// batch reads some goroutines, those that change meanwhile again.
func (rd *reader) batch(addrs []uint64) {
	for n := 1; len(addrs) > 0; n++ {
		changed := rd.once(addrs)
		if n == tries {
			rd.counts.Changed += len(changed)
			return
		}
		addrs = changed
	}
}

// once reads some goroutines and returns those that have changed meanwhile.
func (rd *reader) once(addrs []uint64) (changed []uint64) {
	var list []*G
	for i, b := range rd.heads(addrs) {
		if b == nil {
			rd.counts.Unread++
			continue
		}
		g := &rd.room[len(list)]
		*g = G{Wait: Wait{Since: rd.word(b, rd.layout.since)}}
		status, ok := rd.decode(addrs[i], b, &g.state)
		switch {
		case status == 0 || status == dead || status == deadExtra:
			rd.counts.Dead++
		case status == copying:
			changed = append(changed, addrs[i])
		case !ok || rd.seen[g.ID]:
			rd.counts.Odd++
		case g.Status == Running:
			rd.seen[g.ID] = true
			rd.counts.Running++
		case g.Status == InCall:
			rd.seen[g.ID] = true
			rd.counts.InCall++
		default:
			list = append(list, g)
		}
	}
	rd.objects(list)
	rd.threads(list)
	rd.ranges = rd.ranges[:0]
	for _, g := range list {
		rd.ranges = append(rd.ranges, Range{g.Stack.SP, min(g.Stack.Bytes(), firstStack)})
	}
	if rd.stacks == nil {
		rd.stacks = make([]byte, 0, batch*firstStack)
	}
	stacks, parts := rd.stacks[:0], make([][]byte, 0, len(list))
	for _, b := range rd.gather() {
		if b == nil {
			parts = append(parts, nil)
			continue
		}
		at := len(stacks)
		stacks = append(stacks, b...)
		parts = append(parts, stacks[at:])
	}
	addrs = addrs[:0:0]
	for _, g := range list {
		addrs = append(addrs, g.Addr)
	}
	for i, b := range rd.heads(addrs) {
		g := list[i]
		switch {
		case b == nil || parts[i] == nil:
			rd.counts.Unread++
		case !rd.same(g, b):
			changed = append(changed, g.Addr)
		case rd.seen[g.ID]:
			rd.counts.Odd++
		default:
			rd.seen[g.ID] = true
			rd.counts.Taken++
			if g.Status == Waiting {
				g.Wait.Reason = rd.words(g.reason)
			}
			if g.Status != Waiting && g.Status != Leaked {
				g.Wait.Since = 0
			}
			rd.take(g, parts[i])
		}
	}
	return changed
}

// same tells whether a goroutine still is what it was, by what is read of it now.
func (r *Runtime) same(g *G, head []byte) bool {
	var now state
	_, ok := r.decode(g.Addr, head, &now)
	return ok && now == g.state
}

// Stack reads size bytes of the stack of a goroutine, from its stack pointer on; nil: it has run meanwhile, or its memory
// cannot be read. There is no more than [Stack.Bytes].
func (r *Runtime) Stack(mem Memory, g *G, size int) []byte {
	return r.Memory(mem, g, g.Stack.SP, min(size, g.Stack.Bytes()))
}

// Memory reads size bytes at addr that do not change as long as a goroutine does not run, as the stack of the C code that has
// called it; nil: it has run meanwhile, or they cannot be read.
func (r *Runtime) Memory(mem Memory, g *G, addr uint64, size int) []byte {
	b := make([]byte, size)
	head := make([]byte, r.layout.head())
	if !r.read(mem, addr, b) || !r.read(mem, g.Addr, head) || !r.same(g, head) {
		return nil
	}
	return b
}

// decode decodes a g. ok is false for what is none.
func (r *Runtime) decode(addr uint64, b []byte, s *state) (status uint32, ok bool) {
	l := &r.layout
	status = r.order.Uint32(b[l.status:])
	*s = state{
		Addr: addr, ID: r.word(b, l.goid), Status: Status(status &^ scanning), scanned: status&scanning != 0,
		Runs: b[l.seq], reason: b[l.reason],
		PC: r.word(b, l.sched+gobufPC), FP: r.word(b, l.sched+l.bp), Stack: Stack{SP: r.word(b, l.sched+gobufSP), low: r.word(b, 0), high: r.word(b, 8)},
		Origin:  Origin{Parent: r.word(b, l.parent), GoPC: r.word(b, l.gopc), Start: r.word(b, l.start)},
		waiting: r.word(b, l.waiting), locked: r.word(b, l.locked),
	}
	status &^= scanning
	switch Status(status) {
	case Runnable, Waiting, Preempted, Leaked:
		ok = s.Stack.valid() && s.PC != 0
	case Running, InCall:
		ok = s.Stack.low < s.Stack.high
	}
	// A goroutine's registers name it (runtime/proc.go, newproc1), and are kept in it.
	return status, ok && status < 1<<8 && s.ID != 0 && s.ID < 1<<63 && r.word(b, l.sched+gobufG) == addr
}

// words are the runtime's for a reason to wait, empty if they are not known.
func (r *Runtime) words(reason uint8) string {
	if int(reason) < len(r.reasons) {
		return r.reasons[reason]
	}
	return ""
}

// word is the word at off, 0 if there is no such field.
func (r *Runtime) word(b []byte, off int) uint64 {
	if off < 0 {
		return 0
	}
	return r.order.Uint64(b[off:])
}

// heads reads what is used of each g, nil where it cannot be read. It is valid until the next reading.
func (rd *reader) heads(addrs []uint64) [][]byte {
	rd.ranges = rd.ranges[:0]
	for _, addr := range addrs {
		rd.ranges = append(rd.ranges, Range{addr, rd.layout.head()})
	}
	return rd.gather()
}

// gather reads the pieces of memory in rd.ranges, nil where one cannot be read. They are valid until the next reading.
func (rd *reader) gather() [][]byte {
	parts := make([][]byte, len(rd.ranges))
	size := 0
	for _, g := range rd.ranges {
		size += g.Size
	}
	if cap(rd.buf) < size {
		rd.buf = make([]byte, size)
	}
	buf := rd.buf[:size]
	for i := 0; i < len(parts); {
		n := 0
		for n < len(parts)-i && rd.ranges[i+n].Addr != 0 && rd.ranges[i+n].Addr <= maxAddr {
			n++
		}
		got := 0
		if n > 0 {
			got = rd.mem.ReadRanges(buf, rd.ranges[i:i+n])
		}
		if n > 1 && got < rd.ranges[i].Size { // a later one may be why nothing was read
			got = rd.mem.ReadRanges(buf, rd.ranges[i:i+1])
		}
		for ; n > 0 && got >= rd.ranges[i].Size; n-- {
			size := rd.ranges[i].Size
			parts[i], buf, got = buf[:size:size], buf[size:], got-size
			i++
		}
		i++ // the one that cannot be read
	}
	return parts
}

// objects finds what goroutines wait on: the list at their waiting (runtime/chan.go, select.go; of semaphores since Go
// 1.26), each entry of which names the goroutine.
func (rd *reader) objects(list []*G) {
	l := &rd.layout.sudog
	next := make([]uint64, len(list))
	for i, g := range list {
		if g.Status == Waiting || g.Status == Leaked {
			next[i] = g.waiting
		}
	}
	for range maxObjects {
		var at []int
		rd.ranges = rd.ranges[:0]
		for i, addr := range next {
			if next[i] = 0; addr != 0 {
				at = append(at, i)
				rd.ranges = append(rd.ranges, Range{addr, l.bytes()})
			}
		}
		if len(at) == 0 {
			break
		}
		for k, b := range rd.gather() {
			g := list[at[k]]
			if b == nil || rd.word(b, 0) != g.Addr {
				g.Wait.Objects = nil
				continue
			}
			o := Object{Kind: Channel, Addr: rd.word(b, l.channel), Cap: -1}
			if o.Addr != 0 {
				next[at[k]] = rd.word(b, l.link) // of a semaphore that is another goroutine's
			} else {
				o.Kind, o.Addr = Semaphore, rd.word(b, l.elem)
				if rd.words(g.reason) == "sync.Cond.Wait" {
					o.Kind = Condition
				}
			}
			if o.Addr != 0 {
				g.Wait.Objects = append(g.Wait.Objects, o)
			}
		}
	}
	rd.channels(list)
}

// channels reads how full the channels are that goroutines wait on.
func (rd *reader) channels(list []*G) {
	var all []*Object
	rd.ranges = rd.ranges[:0]
	for _, g := range list {
		for i := range g.Wait.Objects {
			if o := &g.Wait.Objects[i]; o.Kind == Channel {
				all = append(all, o)
				rd.ranges = append(rd.ranges, Range{o.Addr, chanCap + 8})
			}
		}
	}
	for i, b := range rd.gather() {
		if b == nil {
			continue
		}
		if n, room := rd.word(b, chanCount), rd.word(b, chanCap); n <= room && room < maxAddr {
			all[i].Len, all[i].Cap = int64(n), int64(room)
		}
	}
}

// maxThread is above all numbers of threads (include/linux/threads.h, PID_MAX_LIMIT).
const maxThread = 1 << 22

// threads finds the threads that goroutines are locked to.
func (rd *reader) threads(list []*G) {
	var of []*G
	rd.ranges = rd.ranges[:0]
	for _, g := range list {
		if g.locked != 0 {
			of = append(of, g)
			rd.ranges = append(rd.ranges, Range{g.locked + uint64(rd.layout.procid), 8})
		}
	}
	for i, b := range rd.gather() {
		if b == nil {
			continue
		}
		if n := rd.word(b, 0); n <= maxThread {
			of[i].Thread = int(n)
		}
	}
}
