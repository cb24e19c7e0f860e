package runtimes

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Locks reads which locks the threads of a HotSpot wait for, and who has them: monitors, and those of java.util.concurrent by what a thread
// that parks does so for (java.util.concurrent.locks.LockSupport). It does not change, and may be used by any goroutine.
//
// What HotSpot's tables do not tell is as in 17 to 25: what an owner's word means (share/runtime/objectMonitor.hpp, threads.cpp), how classes list their
// fields (share/oops/fieldInfo.hpp), and where the class is in a compact header (share/oops/markWord.hpp).
type Locks struct {
	lay     *hotspotLayout
	threads threadLayout
	monitor monitorLayout
	objects objectLayout
	fields  fieldLayout
	version string
	lacks   string // what the tables do not tell; empty: nothing
}

// threadLayout is of the list of Java's threads, a JavaThread, its OSThread and its LockStack.
type threadLayout struct {
	list                     uint64
	listLen, listThreads     int
	os, tid                  int
	stackBase, stackSize     int
	pending, waiting         int
	object, current          int
	id                       int // what monitors have of their owner since 24; 0: they have its address
	lockStack, top, lockBase int // 0: there is none
}

// monitorLayout is of an ObjectMonitor.
type monitorLayout struct{ owner, object, locker int }

// objectLayout is how objects are found, and whether they are being moved.
type objectLayout struct {
	class                 int
	classBase, classShift uint64
	base, shift           uint64
	heap                  uint64
	moving, collections   int
	shortOops             uint64 // flags
	shortClasses, compact uint64
	still                 []uint64 // flags of collectors that move objects while all threads stand still
}

// fieldLayout is of what classes tell of their fields.
type fieldLayout struct {
	thread, holder uint64 // classes; 0: there is none
	super          int
	list, count    int // count 0: the list is a stream
	pool           int
	arrayLen       int
	bytes, words   int
}

// LockWait is what a thread waits for.
type LockWait struct {
	Monitor uint64 // address of an ObjectMonitor; 0: it parks
	Object  uint64 // address of what it parks for, until that is moved
	Class   string // of the object that the monitor belongs to, or of what it parks for; empty: not known
	Lock    bool   // it waits for a lock that one thread has at a time, not to be notified
	Owner   int    // number of the thread that has it; 0: none is known
	Free    bool   // nobody has it
	Loose   bool   // others than its owner may end the wait
	Unknown string // why no owner is told
}

// Bounds of what is read of locks.
const (
	maxJavaThreads = 1 << 15
	locksFor       = 200 * time.Millisecond
	maxThreadBytes = 16 << 10 // of a JavaThread
	maxSupers      = 32
	maxFields      = 4096
	maxFlags       = 4096
	maxLockStack   = 32
	javaBlocked    = 0x400 // JVMTI_THREAD_STATE_BLOCKED_ON_MONITOR_ENTER
)

// Owners in the place of a thread, share/runtime/objectMonitor.hpp: somebody who has it by its lock stack, and nobody, as the monitor is being taken away.
const (
	anonymousOwner = 1
	deflater       = 2
	deflaterBefore = ^uint64(0)
)

// LocksOf is what reads the locks that a runtime keeps for its threads, nil if that is not known of it.
func LocksOf(rt Runtime) *Locks {
	if h, ok := rt.(*hotspot); ok {
		return h.locks
	}
	return nil
}

// newLocks takes from v where everything is.
func newLocks(v *vmStructs, lay *hotspotLayout, version string) *Locks {
	l := &Locks{lay: lay, version: version}
	v.missing = ""
	t := &l.threads
	t.list, t.listLen, t.listThreads = v.static("ThreadsSMRSupport::_java_thread_list"), v.field("ThreadsList::_length"), v.field("ThreadsList::_threads")
	t.os, t.tid = v.field("JavaThread::_osthread", "Thread::_osthread"), v.field("OSThread::_thread_id")
	t.stackBase, t.stackSize = v.field("JavaThread::_stack_base"), v.field("JavaThread::_stack_size")
	t.pending, t.waiting = v.field("JavaThread::_current_pending_monitor"), v.field("JavaThread::_current_waiting_monitor")
	t.object = v.field("JavaThread::_threadObj")
	t.current = v.field("JavaThread::_vthread", "JavaThread::_threadObj")
	l.monitor.owner, l.monitor.object = v.field("ObjectMonitor::_owner"), v.field("ObjectMonitor::_object")
	if v.has("JavaThread::_monitor_owner_id") {
		t.id = v.field("JavaThread::_monitor_owner_id")
	}
	if v.has("ObjectMonitor::_stack_locker") {
		l.monitor.locker = v.field("ObjectMonitor::_stack_locker")
	}
	if v.has("JavaThread::_lock_stack") {
		t.lockStack, t.top, t.lockBase = v.field("JavaThread::_lock_stack"), v.field("LockStack::_top"), v.field("LockStack::_base[0]")
	}
	l.objects.read(v)
	l.fields.read(v)
	l.lacks = v.missing
	return l
}

func (o *objectLayout) read(v *vmStructs) {
	either := func(names ...string) uint64 {
		for _, n := range names {
			if f, ok := v.fields[n]; ok && f.static {
				return f.at
			}
		}
		return v.static(names[0])
	}
	o.class = v.field("oopDesc::_metadata._klass")
	o.classBase, o.classShift = either("CompressedKlassPointers::_narrow_klass._base", "CompressedKlassPointers::_base"), either("CompressedKlassPointers::_narrow_klass._shift", "CompressedKlassPointers::_shift")
	o.base, o.shift = either("CompressedOops::_narrow_oop._base", "CompressedOops::_base"), either("CompressedOops::_narrow_oop._shift", "CompressedOops::_shift")
	o.heap = v.static("Universe::_collectedHeap")
	o.moving, o.collections = v.field("CollectedHeap::_is_gc_active", "CollectedHeap::_is_stw_gc_active"), v.field("CollectedHeap::_total_collections")
	flags := v.flags("UseCompressedOops", "UseCompressedClassPointers", "UseCompactObjectHeaders", "UseSerialGC", "UseParallelGC", "UseG1GC")
	o.shortOops, o.shortClasses, o.compact, o.still = flags[0], flags[1], flags[2], flags[3:]
}

func (f *fieldLayout) read(v *vmStructs) {
	class := func(name string) uint64 {
		x := v.fields["vmClasses::_klasses[static_cast<int>(vmClassID::"+name+"_klass_knum)]"]
		if !x.static {
			return 0
		}
		return x.at
	}
	if f.thread, f.holder = class("Thread"), class("Thread_FieldHolder"); f.thread == 0 {
		v.lacks("vmClasses::Thread")
	}
	f.super, f.pool = v.field("Klass::_super"), v.field("InstanceKlass::_constants")
	if v.has("InstanceKlass::_fieldinfo_stream") {
		f.list = v.field("InstanceKlass::_fieldinfo_stream")
	} else {
		f.list, f.count = v.field("InstanceKlass::_fields"), v.field("InstanceKlass::_java_fields_count")
	}
	f.arrayLen, f.bytes, f.words = v.fields["Array<int>::_length"].off(), v.field("Array<u1>::_data"), v.field("Array<u2>::_data")
}

// off is where the field is, 0 also if there is none.
func (f vmField) off() int { return int(min(f.at, maxVMOffset)) }

// flags are the addresses of the machine's flags of these names, 0 of what it does not have.
func (v *vmStructs) flags(names ...string) []uint64 {
	at := make([]uint64, len(names))
	v.pages = map[uint64][]byte{}
	defer func() { v.pages = nil }()
	size, nameAt, addrAt := v.size("JVMFlag"), v.field("JVMFlag::_name"), v.field("JVMFlag::_addr")
	list, n := read(v.mem, v.static("JVMFlag::flags"), 8), read(v.mem, v.static("JVMFlag::numFlags"), 8)
	if list == nil || n == nil || size > 256 || nameAt+8 > size || addrAt+8 > size || word(n, 0) > maxFlags {
		return at
	}
	b := read(v.mem, word(list, 0), size*int(word(n, 0)))
	for ; len(b) >= size && size > 0; b = b[size:] {
		name := v.text(word(b, nameAt))
		for i, n := range names {
			if n == name {
				at[i] = word(b, addrAt)
			}
		}
	}
	return at
}

// Read tells by the threads' numbers, in their own namespace, what those wait for that are wanted. What belongs to mem may change meanwhile: of a
// thread that has not run before, and since, it is true. With an error it is what could be told.
func (l *Locks) Read(mem io.ReaderAt, wanted func(tid int) bool) (map[int]LockWait, error) {
	if l.lacks != "" {
		return nil, fmt.Errorf("HotSpot %s does not tell %s", l.version, l.lacks)
	}
	r := &lockReader{Locks: l, mem: mem, until: time.Now().Add(locksFor), heap: javaHeap{lay: l.lay, objects: &l.objects, fields: &l.fields, mem: mem, classes: map[uint64]javaClass{}}}
	if !r.list() {
		return nil, errors.New("the list of Java's threads cannot be read, or changes all the time")
	}
	r.heap.begin(r.threads[0].handles[0])
	waits, err := r.waits(wanted)
	if r.heap.closed == "" && r.heap.collected() != r.heap.since {
		r.heap.closed = collecting
		waits, err = r.waits(wanted)
	}
	return waits, err
}

const collecting = "a collection of garbage moves objects now"

// lockReader reads once.
type lockReader struct {
	*Locks
	mem     io.ReaderAt
	threads []javaThread
	named   bool // they have their objects
	heap    javaHeap
	until   time.Time
	known   map[uint64]LockWait // by the address of what is waited for; kinds of waits have no such in common
}

// javaHeap reads objects, while none is moved.
type javaHeap struct {
	lay         *hotspotLayout
	objects     *objectLayout
	fields      *fieldLayout
	mem         io.ReaderAt
	closed      string // why objects cannot be read; empty: they can
	since       collection
	base, shift uint64
	shortOops   bool
	class       classBits
	inThread    threadFields
	classes     map[uint64]javaClass
}

// threadFields are offsets: of fields of a Thread, and of the status in what holds it, if something does.
type threadFields struct{ blocker, holder, status uint64 }

// collection tells which garbage was collected last.
type collection struct {
	moving bool
	number uint32
}

// classBits is how an object's class is found.
type classBits struct {
	compact, short bool
	base, shift    uint64
}

// javaThread is one of Java's threads.
type javaThread struct {
	low, high        uint64 // of its stack
	addr, id         uint64
	pending, waiting uint64
	tid              int
	handles          [2]uint64
	objects          [2]uint64 // its own, and that of the virtual one that it runs
	locks            []uint64  // by its lock stack
}

// javaClass is what must be known of a class.
type javaClass struct {
	name         string
	owner, state uint64 // offsets of fields; 0: none
	long         bool   // the state is of 64 bits, as that of read-write locks is since 25
	thread       bool   // it is java.lang.Thread, or is derived of that
}

// list reads Java's threads.
func (r *lockReader) list() bool {
	t := &r.Locks.threads
	size := max(t.os, t.stackBase, t.stackSize, t.pending, t.waiting, t.object, t.current, t.id) + 8
	if t.lockStack > 0 {
		size = max(size, t.lockStack+max(t.lockBase+8*maxLockStack, t.top+4))
	}
	const tries = 3
	for range tries {
		at := read(r.mem, t.list, 8)
		if at == nil {
			return false
		}
		head := read(r.mem, word(at, 0), max(t.listLen+4, t.listThreads+8))
		if head == nil {
			continue
		}
		n := word32(head, t.listLen)
		if n == 0 || n > maxJavaThreads {
			continue
		}
		list := read(r.mem, word(head, t.listThreads), 8*int(n))
		r.threads = r.threads[:0]
		for ; len(list) >= 8 && size <= maxThreadBytes && time.Now().Before(r.until); list = list[8:] {
			if x, ok := r.thread(word(list, 0), size); ok {
				r.threads = append(r.threads, x)
			}
		}
		if again := read(r.mem, t.list, 8); len(r.threads) > 0 && again != nil && word(again, 0) == word(at, 0) {
			return true
		}
	}
	return false
}

// thread reads one.
func (r *lockReader) thread(addr uint64, size int) (x javaThread, ok bool) {
	t := &r.Locks.threads
	b := read(r.mem, addr, size)
	if b == nil {
		return x, false
	}
	tid := read(r.mem, word(b, t.os)+uint64(t.tid), 4)
	if tid == nil {
		return x, false
	}
	high := word(b, t.stackBase)
	x = javaThread{addr: addr, tid: int(int32(word32(tid, 0))), low: high - word(b, t.stackSize), high: high, pending: word(b, t.pending), waiting: word(b, t.waiting),
		handles: [2]uint64{word(b, t.object), word(b, t.current)}}
	if t.id > 0 {
		x.id = word(b, t.id)
	}
	if t.lockStack > 0 { // top is a distance in the JavaThread, share/runtime/lockStack.hpp
		first, top := t.lockStack+t.lockBase, int(min(word32(b, t.lockStack+t.top), maxThreadBytes))
		for at := first; at+8 <= min(top, size); at += 8 {
			x.locks = append(x.locks, word(b, at))
		}
	}
	return x, x.tid > 0 && x.low < x.high
}

// waits tells of those that are wanted.
func (r *lockReader) waits(wanted func(int) bool) (map[int]LockWait, error) {
	m := map[int]LockWait{}
	r.known = map[uint64]LockWait{}
	for i := range r.threads {
		t := &r.threads[i]
		if _, ok := m[t.tid]; ok || !wanted(t.tid) {
			continue
		}
		if time.Now().After(r.until) {
			return m, fmt.Errorf("reading them took longer than %v, %d of %d threads were looked at", locksFor, i, len(r.threads))
		}
		switch {
		case t.pending != 0:
			m[t.tid] = r.once(t.pending, func() LockWait { return r.monitorAt(t.pending, true) })
		case t.waiting != 0 && r.notified(t):
			m[t.tid] = r.once(t.waiting, func() LockWait { return r.monitorAt(t.waiting, true) })
		case t.waiting != 0:
			m[t.tid] = r.monitorAt(t.waiting, false)
		default:
			if w := r.parked(t); w != (LockWait{}) {
				m[t.tid] = w
			}
		}
	}
	return m, nil
}

// once reads what is at an address once for all that wait for it.
func (r *lockReader) once(addr uint64, f func() LockWait) LockWait {
	w, ok := r.known[addr]
	if !ok {
		w = f()
		r.known[addr] = w
	}
	return w
}

// monitorAt is a wait for a monitor.
func (r *lockReader) monitorAt(addr uint64, enters bool) LockWait {
	w := LockWait{Monitor: addr, Lock: enters}
	l := &r.Locks.monitor
	b := read(r.mem, addr, max(l.owner, l.object, l.locker)+8)
	if b == nil {
		w.Unknown = "its monitor cannot be read"
		return w
	}
	var object uint64
	if r.heap.closed == "" {
		object = r.heap.handle(word(b, l.object))
		w.Class = r.heap.classOf(object).name
	}
	if !enters {
		w.Unknown = "anybody may notify it"
		return w
	}
	owner := word(b, l.owner)
	w.Free = owner == 0
	if w.Free {
		return w
	}
	by := func(t *javaThread) bool { return t.addr == owner || owner >= t.low && owner < t.high }
	switch {
	case owner == anonymousOwner && l.locker > 0 && word(b, l.locker) != 0:
		owner = word(b, l.locker)
	case owner == anonymousOwner && r.heap.closed != "":
		w.Unknown = r.heap.closed
		return w
	case owner == anonymousOwner:
		by = func(t *javaThread) bool { return object != 0 && slices.Contains(t.locks, object) }
	case owner == deflater || owner == deflaterBefore:
		w.Unknown = "it is being taken away, since nobody had it"
		return w
	case r.Locks.threads.id > 0:
		by = func(t *javaThread) bool { return t.id == owner }
	}
	if w.Owner = r.one(by); w.Owner == 0 {
		w.Unknown = fmt.Sprintf("its owner is %#x, which is no thread of Java's that can be seen, or a virtual one that no thread runs", owner)
	}
	return w
}

// one is the number of the one thread that is meant; 0: there is none, or there are several.
func (r *lockReader) one(meant func(*javaThread) bool) (tid int) {
	for i := range r.threads {
		switch t := &r.threads[i]; {
		case !meant(t):
		case tid != 0:
			return 0
		default:
			tid = t.tid
		}
	}
	return tid
}

// parked is what a thread parks for, the zero value if it has not said so.
func (r *lockReader) parked(t *javaThread) LockWait {
	if r.heap.closed != "" {
		return LockWait{Unknown: r.heap.closed}
	}
	object := r.heap.reference(r.heap.handle(t.handles[1]), r.heap.inThread.blocker)
	if object == 0 {
		return LockWait{}
	}
	return r.once(object, func() LockWait { return r.parkedFor(object) })
}

// parkedFor is a wait for what keeps an owner, or for something else.
func (r *lockReader) parkedFor(object uint64) LockWait {
	class := r.heap.classOf(object)
	w := LockWait{Object: object, Class: class.name, Unknown: "anybody may unpark it"}
	if class.owner == 0 || class.state == 0 {
		return w
	}
	b := read(r.mem, object+class.state, 8)
	owner := r.heap.reference(object, class.owner)
	if b == nil {
		return w
	}
	state, readers := uint64(word32(b, 0)), uint64(word32(b, 0)>>16) // SHARED_SHIFT of ReentrantReadWriteLock.Sync
	if class.long {
		state, readers = word(b, 0), word(b, 0)>>32
	}
	only := strings.HasPrefix(w.Class, "java.util.concurrent.locks.ReentrantLock$")
	both := strings.HasPrefix(w.Class, "java.util.concurrent.locks.ReentrantReadWriteLock$")
	switch {
	case owner != 0:
		r.name()
		w.Lock, w.Loose = true, !only && !both
		if w.Owner = r.one(func(x *javaThread) bool { return x.objects[0] == owner || x.objects[1] == owner }); w.Owner == 0 {
			w.Unknown = "its owner is no thread of Java's that can be seen, or a virtual one that no thread runs"
		} else {
			w.Unknown = ""
		}
	case (only || both) && state == 0:
		w.Lock, w.Free, w.Unknown = true, true, ""
	case both && readers > 0:
		w.Lock, w.Unknown = true, fmt.Sprintf("held for reading %d times, it does not keep by whom", readers)
	case only || both:
		w.Lock, w.Unknown = true, "it is being taken or released"
	}
	return w
}

// notified tells whether a thread that waits on a monitor is to go on as soon as it may enter that.
func (r *lockReader) notified(t *javaThread) bool {
	if r.heap.closed != "" {
		return false
	}
	object := r.heap.handle(t.handles[0])
	if r.heap.inThread.holder != 0 {
		object = r.heap.reference(object, r.heap.inThread.holder)
	}
	if object == 0 || r.heap.inThread.status == 0 {
		return false
	}
	b := read(r.mem, object+r.heap.inThread.status, 4)
	return b != nil && word32(b, 0)&javaBlocked != 0
}

// name reads the objects of all threads.
func (r *lockReader) name() {
	if r.named {
		return
	}
	r.named = true
	for i := range r.threads {
		t := &r.threads[i]
		for j, h := range t.handles {
			if t.objects[j] = r.heap.handle(h); j > 0 && h == t.handles[0] {
				t.objects[j] = t.objects[0]
			}
		}
	}
}

// begin prepares for reading objects. first is a handle to the object of a thread.
func (h *javaHeap) begin(first uint64) {
	o := h.objects
	h.since = h.collected()
	flag := func(at uint64) bool {
		b := read(h.mem, at, 1)
		return b != nil && b[0] == 1
	}
	switch {
	case h.since.moving:
		h.closed = collecting
		return
	case !slices.ContainsFunc(o.still, flag):
		h.closed = "Java's objects are found with its serial, parallel and G1 collectors only"
		return
	}
	number := func(at uint64, bytes int) uint64 {
		b := read(h.mem, at, bytes)
		switch {
		case b == nil:
			h.closed = "where Java's objects are cannot be read"
			return 0
		case bytes == 4:
			return uint64(word32(b, 0)) & 63
		}
		return word(b, 0)
	}
	if h.shortOops = flag(o.shortOops); h.shortOops {
		h.base, h.shift = number(o.base, 8), number(o.shift, 4)
	}
	if h.class.compact, h.class.short = flag(o.compact), flag(o.shortClasses); h.class.compact || h.class.short {
		h.class.base, h.class.shift = number(o.classBase, 8), number(o.classShift, 4)
	}
	thread := number(h.fields.thread, 8)
	if h.closed != "" {
		return
	}
	in := &h.inThread
	in.blocker = h.field(thread, "parkBlocker")
	if in.status = h.field(thread, "threadStatus"); in.status == 0 && h.fields.holder != 0 {
		in.holder, in.status = h.field(thread, "holder"), h.field(number(h.fields.holder, 8), "threadStatus")
	}
	// What is read of the layout holds if objects of threads are such.
	if c := h.classOf(h.handle(first)); !c.thread || in.blocker == 0 {
		h.closed = "Java's objects are laid out otherwise than is known"
	}
}

// collected is the state of the collector, which counts when it begins.
func (h *javaHeap) collected() collection {
	heap := read(h.mem, h.objects.heap, 8)
	if heap == nil {
		return collection{moving: true}
	}
	b := read(h.mem, word(heap, 0), max(h.objects.moving+1, h.objects.collections+4))
	if b == nil {
		return collection{moving: true}
	}
	return collection{b[h.objects.moving] != 0, word32(b, h.objects.collections)}
}

// handle is the object that a handle refers to, 0 if there is none.
func (h *javaHeap) handle(at uint64) uint64 {
	if b := read(h.mem, at, 8); b != nil {
		return word(b, 0)
	}
	return 0
}

// reference is the object that a field refers to.
func (h *javaHeap) reference(object, field uint64) uint64 {
	if object == 0 || field == 0 {
		return 0
	}
	if !h.shortOops {
		return h.handle(object + field)
	}
	b := read(h.mem, object+field, 4)
	if b == nil || word32(b, 0) == 0 {
		return 0
	}
	return h.base + uint64(word32(b, 0))<<h.shift
}

// compactShift is where the class begins in a compact header, share/oops/markWord.hpp of 24 and 25.
const compactShift = 42

// classOf is the class of an object.
func (h *javaHeap) classOf(object uint64) javaClass {
	b := read(h.mem, object, h.objects.class+8)
	if b == nil {
		return javaClass{}
	}
	class := word(b, h.objects.class)
	switch {
	case h.class.compact:
		class = h.class.base + word(b, 0)>>compactShift<<h.class.shift
	case h.class.short:
		class = h.class.base + uint64(uint32(class))<<h.class.shift
	}
	c, ok := h.classes[class]
	if !ok {
		c = h.readClass(class)
		h.classes[class] = c
	}
	return c
}

// readClass reads a class and those that it is derived of.
func (h *javaHeap) readClass(class uint64) (c javaClass) {
	for i := 0; class != 0 && i < maxSupers; i++ {
		name := h.className(class)
		if i == 0 {
			c.name = className(name)
		}
		switch name {
		case "":
			return javaClass{}
		case "java/lang/Thread":
			c.thread = true
		case "java/util/concurrent/locks/AbstractQueuedSynchronizer":
			c.state = h.field(class, "state")
		case "java/util/concurrent/locks/AbstractQueuedLongSynchronizer":
			c.state, c.long = h.field(class, "state"), true
		case "java/util/concurrent/locks/AbstractOwnableSynchronizer":
			c.owner = h.field(class, "exclusiveOwnerThread")
		}
		b := read(h.mem, class+uint64(h.fields.super), 8)
		if b == nil {
			return javaClass{}
		}
		class = word(b, 0)
	}
	return c
}

func (h *javaHeap) className(class uint64) string {
	b := read(h.mem, class+uint64(h.lay.names.klassName), 8)
	if b == nil || class&7 != 0 {
		return ""
	}
	return h.lay.symbol(h.mem, word(b, 0))
}

// field is where a class has a field of its own in its objects, 0 if it has none.
func (h *javaHeap) field(class uint64, name string) uint64 {
	f := h.fields
	b := read(h.mem, class, max(f.pool, f.list, f.count)+8)
	if b == nil {
		return 0
	}
	is := func(index uint32) bool { return index != 0 && h.constant(word(b, f.pool), index) == name }
	list := word(b, f.list)
	head := read(h.mem, list, f.arrayLen+4)
	if head == nil {
		return 0
	}
	n := int(min(word32(head, f.arrayLen), 16*maxFields))
	if f.count == 0 {
		return h.inStream(read(h.mem, list+uint64(f.bytes), n), is)
	}
	const slots, nameSlot, lowSlot = 6, 1, 4 // share/oops/fieldInfo.hpp
	count := int(word32(b, f.count) & 0xffff)
	words := read(h.mem, list+uint64(f.words), 2*min(n, slots*count))
	half := func(i int) uint32 { return uint32(words[2*i]) | uint32(words[2*i+1])<<8 }
	for i := 0; 2*(i+slots) <= len(words); i += slots {
		if at := half(i+lowSlot) | half(i+lowSlot+1)<<16; at&3 == 1 && is(half(i+nameSlot)) { // FIELDINFO_TAG_OFFSET
			return uint64(at >> 2)
		}
	}
	return 0
}

// inStream finds a field in a list of 21 and later: how many of the program and of the machine, then of each its name, signature, offset and flags,
// and of some more.
func (h *javaHeap) inStream(b []byte, is func(uint32) bool) uint64 {
	whole := true
	next := func() uint32 {
		v, n := h.lay.unsigned5(b)
		whole = whole && n > 0
		b = b[n:]
		return v
	}
	const initial, injected, generic, contended = 1, 2, 4, 16 // FieldInfo::FieldFlags
	count := min(next(), maxFields)
	next()
	for range count {
		name, _, at := next(), next(), next()
		next() // of Java
		flags := next()
		for _, more := range []uint32{initial, generic, contended} {
			if flags&more != 0 {
				next()
			}
		}
		switch {
		case !whole:
			return 0
		case flags&injected == 0 && is(name):
			return uint64(at)
		}
	}
	return 0
}

// constant is a name in a pool of constants.
func (h *javaHeap) constant(pool uint64, index uint32) string {
	b := read(h.mem, pool+uint64(h.lay.names.poolBytes)+8*uint64(index), 8)
	if b == nil {
		return ""
	}
	return h.lay.symbol(h.mem, word(b, 0)&^1)
}
