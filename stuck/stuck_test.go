package stuck

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// words lays 32-bit words at an address.
func words(addr uint64, list ...uint32) block {
	b := block{addr: addr}
	for _, w := range list {
		b.data = binary.NativeEndian.AppendUint32(b.data, w)
	}
	return b
}

// The layouts are those of the headers: glibc's bits/pthreadtypes-arch.h, struct_mutex.h,
// struct_rwlock.h and internaltypes.h; musl's pthread_impl.h.
func TestDecodeLock(t *testing.T) {
	const at = 0x1000
	glibc := func(kind string) family { return family{kind: kind, glib: true} }
	musl := func(kind string) family { return family{kind: kind, musl: true} }
	for _, tt := range []struct {
		name      string
		f         family
		op        string
		addr      uint64
		val       uint32
		b         block
		wordBytes int
		want      lock
	}{
		{"mutex", glibc("mutex"), "wait", at, 2, words(at, 2, 0, 41, 1, 0), 8, lock{kind: "mutex", base: at, owner: 41}},
		{"recursive", glibc("mutex"), "wait", at, 2, words(at, 2, 3, 41, 1, 1), 8, lock{kind: "recursive mutex", base: at, owner: 41, note: "locked 3 times"}},
		{"robust", glibc("mutex"), "wait", at, 0x80000029, words(at, 0x80000029, 0, 41, 1, 16), 8, lock{kind: "robust mutex", base: at, owner: 41}},
		{"robust, shared, recursive", glibc("mutex"), "wait", at, 0x80000029, words(at, 0x80000029, 1, 41, 1, 16|128|1), 8, lock{kind: "robust recursive mutex", base: at, owner: 41}},
		{"robust, owner died", glibc("mutex"), "wait", at, 1, words(at, 0xc0000000, 0, 0, 1, 16), 8,
			lock{kind: "robust mutex", base: at, died: true, unknown: "its owner has ended while it held it"}},
		{"priority protected", glibc("mutex"), "wait", at, 2, words(at, 5<<19|2, 0, 41, 1, 64), 8, lock{kind: "priority-protected mutex", base: at, owner: 41}},
		{"free", glibc("mutex"), "wait", at, 2, words(at, 0, 0, 0, 0, 0), 8, lock{kind: "mutex", base: at, free: true}},
		{"being taken", glibc("mutex"), "wait", at, 2, words(at, 2, 0, 0, 1, 0), 8, lock{kind: "mutex", base: at, unknown: "it is being taken or released, or elided"}},
		{"rubbish", glibc("mutex"), "wait", at, 2, words(at, 2, ^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)), 8,
			lock{kind: "mutex", base: at, unknown: "its words are those of no mutex that is known"}},
		{"negative owner", glibc("mutex"), "wait", at, 2, words(at, 2, 0, 0x80000001, 1, 0), 8,
			lock{kind: "mutex", base: at, unknown: "the number of its owner is none that a thread can have"}},
		{"32 bits", glibc("mutex"), "wait", at, 2, words(at, 2, 0, 41, 2, 1), 4, lock{kind: "error-checking mutex", base: at, owner: 41}},
		{"pi", family{}, "lock_pi", at, 0, words(at, 0x80000029), 8, lock{kind: "priority-inheriting mutex", base: at, owner: 41}},
		{"musl, plain", musl("mutex"), "wait", at + 4, 0x80000010, words(at, 0, 0x80000010, 1), 8,
			lock{kind: "mutex", base: at, unknown: "musl keeps no owner of a plain mutex"}},
		{"musl, recursive", musl("mutex"), "wait", at + 4, 0x80000029, words(at, 1, 0x80000029, 1), 8, lock{kind: "recursive mutex", base: at, owner: 41}},
		{"writer", glibc("rwlock"), "wait", at + 8, 3, words(at, 3, 0, 3, 0, 0, 0, 41, 0), 8, lock{kind: "read-write lock", base: at, owner: 41, note: "held for writing"}},
		{"writer, for a writer", glibc("rwlock"), "wait", at + 12, 3, words(at, 3, 0, 3, 3, 0, 0, 41, 0), 8, lock{kind: "read-write lock", base: at, owner: 41, note: "held for writing"}},
		{"readers", glibc("rwlock"), "wait", at + 8, 2, words(at, 16, 0, 2, 0, 0, 0, 0, 0), 8,
			lock{kind: "read-write lock", base: at, note: "held for reading", unknown: "2 readers hold it or wait for it, which is not kept"}},
		{"musl, writer", musl("rwlock"), "wait", at, 0xffffffff, words(at, 0xffffffff), 8,
			lock{kind: "read-write lock", base: at, unknown: "a writer holds it, musl does not keep which"}},
		{"condition", glibc("cond"), "wait", at + 44, 0, words(at, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3<<3, 0, 0), 8,
			lock{kind: "condition variable", base: at, note: "3 in it", unknown: "anybody may signal it"}},
		{"barrier", glibc("barrier"), "wait", at + 4, 0, words(at, 2, 0, 5, 0, 0), 8,
			lock{kind: "barrier", base: at, note: "2 of 5 have come", unknown: "whoever has not come is not known"}},
		{"join", glibc("join"), "wait", at, 41, words(at, 41), 8, lock{kind: endOfThread, base: at, owner: 41}},
		{"join of nobody", glibc("join"), "wait", at, 77, words(at, 77), 8,
			lock{kind: endOfThread, base: at, unknown: "its number is not kept at this place"}},
		{"guessed mutex", family{}, "wait", at, 2, words(at, 2, 0, 41, 1, 0), 8, lock{kind: "mutex", base: at, owner: 41}},
		{"guessed join", family{}, "wait", at, 41, words(at, 41, 0, 9, 9, 1<<30), 8, lock{kind: endOfThread, base: at, owner: 41}},
		{"a mutex of nobody is none", family{}, "wait", at, 2, words(at, 2, 0, 99, 1, 0), 8,
			lock{kind: "futex", base: at, note: "value 2", unknown: "what kind of lock it is cannot be told"}},
		{"changed", family{}, "wait", at, 7, words(at, 0), 8, lock{kind: "futex", base: at,
			note: "value 0, was 7 when it went to sleep: a wake-up may be lost", unknown: "what kind of lock it is cannot be told"}},
		{"unreadable", glibc("mutex"), "wait", at, 2, block{addr: at}, 8, lock{kind: "futex", base: at, unknown: "its word cannot be read"}},
		{"rust", family{kind: "rust mutex"}, "wait", at, 2, words(at, 2), 8, lock{kind: "Rust std::sync::Mutex", base: at, unknown: "it keeps no owner"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			live := func(id int) bool { return id == 41 }
			if got := decodeLock(tt.f, tt.op, tt.addr, tt.val, tt.b, tt.wordBytes, live); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestRubbish: whatever the words are, decoding ends, and an owner is a number that a
// thread can have.
func TestRubbish(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []string{"", "mutex", "rwlock", "cond", "sem", "barrier", "join", "once", "go"}
	for range 200_000 {
		b := block{addr: 0x1000 - uint64(r.IntN(20)), data: make([]byte, r.IntN(112))}
		for i := range b.data {
			b.data[i] = byte(r.Uint32() >> r.IntN(25))
		}
		f := family{kind: kinds[r.IntN(len(kinds))], musl: r.IntN(2) == 0, glib: r.IntN(2) == 0}
		addr := 0x1000 + uint64(r.IntN(64))
		if r.IntN(50) == 0 {
			addr, b.addr = uint64(r.IntN(8)), 0
		}
		l := decodeLock(f, []string{"wait", "lock_pi", "wait_bitset"}[r.IntN(3)], addr, r.Uint32(), b, 4+4*r.IntN(2), func(id int) bool { return id < 100 })
		if l.owner < 0 || l.owner > futexTIDMask || l.free && l.owner != 0 || l.kind == "" || l.owner == 0 && !l.free && l.unknown == "" {
			t.Fatalf("%+v at %#x of %x gives %+v", f, addr, b, l)
		}
	}
}

func TestFamilyOf(t *testing.T) {
	frame := func(fn, module string) output.Frame { return output.Frame{Func: fn, Module: module} }
	jvm := func(fns ...string) []output.Frame {
		list := []output.Frame{frame("pthread_cond_timedwait", "libc.so.6"), frame("os::PlatformEvent::park(long)", "libjvm.so")}
		for _, fn := range fns {
			list = append(list, frame(fn, "libjvm.so"))
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		frames []output.Frame
		want   family
	}{
		{"stripped glibc", []output.Frame{frame("", "libc.so.6"), frame("pthread_mutex_lock", "libc.so.6"), frame("main", "a")}, family{"mutex", "pthread_mutex_lock", false, true}},
		{"its own names", []output.Frame{frame("__futex_abstimed_wait_common", "x"), frame("___pthread_cond_wait", "x")}, family{"cond", "___pthread_cond_wait", false, true}},
		{"inside the library", []output.Frame{frame("__lll_lock_wait_private", "libc.so.6"), frame("malloc", "libc.so.6")}, family{"libc", "__lll_lock_wait_private", false, true}},
		{"musl", []output.Frame{frame("__timedwait_cp", "a"), frame("sem_timedwait", "a")}, family{"sem", "sem_timedwait", true, false}},
		{"gil", []output.Frame{frame("pthread_cond_timedwait", "libc.so.6"), frame("take_gil", "python3.11")}, family{pythonGIL, "take_gil", false, true}},
		{"rust", []output.Frame{frame("std::sys::sync::mutex::futex::Mutex::lock_contended", "a")}, family{kind: "rust mutex", fn: "std::sys::sync::mutex::futex::Mutex::lock_contended"}},
		{"gil, no symbols", []output.Frame{frame("__futex_abstimed_wait_common", "libc.so.6"), frame("pthread_cond_timedwait", "libc.so.6"), frame("python3.11:fn_1", "python3.11")},
			family{pythonGIL, "pthread_cond_timedwait", false, true}},
		{"a program of Python's user", []output.Frame{frame("pthread_cond_wait", "libc.so.6"), frame("wait", "_x.so"), frame("f", "python3.11")}, family{"cond", "pthread_cond_wait", false, true}},
		{"rust, v0", []output.Frame{frame("syscall", "libc.so.6"), frame("<std::sys::sync::mutex::futex::Mutex>::lock_contended", "a")},
			family{"rust mutex", "<std::sys::sync::mutex::futex::Mutex>::lock_contended", false, true}},
		{"go", []output.Frame{frame("runtime.futexsleep", "a"), frame("runtime.notesleep", "a"), frame("runtime.stopm", "a"), frame("runtime.findRunnable", "a")},
			family{kind: goIdle, fn: "runtime.stopm"}},
		{"rust, park taken in", []output.Frame{frame("syscall", "libc.so.6"), frame("std::thread::functions::park", "a"), frame("a::main", "a")},
			family{"rust park", "std::thread::functions::park", false, true}},
		{"rust channel", []output.Frame{frame("syscall", "libc.so.6"), frame("<std::thread::thread::Thread>::park", "a"), frame("std::sync::mpmc::list::Channel<T>::recv", "a")},
			family{"rust channel", "std::sync::mpmc::list::Channel<T>::recv", false, true}},
		// As in libjvm of OpenJDK 17, see jcmd Thread.print of the same threads.
		{"java enter", jvm("ObjectMonitor::EnterI(JavaThread*)", "ObjectMonitor::enter(JavaThread*)"), family{javaMonitor, "ObjectMonitor::EnterI(JavaThread*)", false, true}},
		{"java wait", jvm("ObjectMonitor::wait(long, bool, JavaThread*)", "JVM_MonitorWait"), family{"java wait", "ObjectMonitor::wait(long, bool, JavaThread*)", false, true}},
		{"java sleep", jvm("JavaThread::sleep(long)", "JVM_Sleep"), family{javaSleep, "JavaThread::sleep(long)", false, true}},
		{"java event", jvm("Other::f()"), family{javaEvent, "os::PlatformEvent::park(long)", false, true}},
		{"none", []output.Frame{frame("syscall", "libc.so.6"), frame("my_pthread_mutex_lock", "a")}, family{glib: true}},
	} {
		if got := familyOf(tt.frames); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// world makes threads of single-threaded processes and of one process, whose waits are
// edges[i]: the threads that can let i go; nil: it does not wait.
func world(edges map[int][]int, n int) ([]*Thread, map[int]*Process) {
	procs := map[int]*Process{1: {pid: 1, complete: true}}
	var list []*Thread
	for i := range n {
		th := &Thread{PID: 1, TID: 100 + i, State: 'S', Between: Activity{Motion: Ran}, Process: procs[1]}
		if on, ok := edges[i]; ok {
			th.Between.Motion, th.Wait = Blocked, &Wait{Kind: "futex", Whole: true, Object: "x"}
			for _, o := range on {
				th.Wait.On = append(th.Wait.On, Releaser{PID: 1, TID: 100 + o, How: Holds})
			}
		}
		list = append(list, th)
		procs[1].threads = append(procs[1].threads, th)
	}
	return list, procs
}

// TestHopeless compares with the definition itself, on random graphs: play what can
// happen until nothing does. A thread that runs lets go whoever waits for it, who then
// runs.
func TestHopeless(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	rings := 0
	for range 20_000 {
		n := 1 + r.IntN(7)
		edges := map[int][]int{}
		for i := range n {
			if r.IntN(6) > 0 {
				for range 1 + r.IntN(2) {
					edges[i] = append(edges[i], r.IntN(n))
				}
			}
		}
		runs := make([]bool, n)
		for i := range n {
			_, waits := edges[i]
			runs[i] = !waits
		}
		for changed := true; changed; {
			changed = false
			for i, on := range edges {
				if !runs[i] && slices.ContainsFunc(on, func(o int) bool { return runs[o] }) {
					runs[i], changed = true, true
				}
			}
		}
		list, procs := world(edges, n)
		in := hopeless(list, procs, false)
		for i, th := range list {
			if in[th] == runs[i] {
				t.Fatalf("edges %v: thread %d is hopeless: %v, can run: %v", edges, i, in[th], runs[i])
			}
		}
		for _, c := range cycles(list, procs) {
			rings++
			for i, th := range c.Threads {
				to := c.Threads[(i+1)%len(c.Threads)].TID - 100
				if !slices.Contains(edges[th.TID-100], to) || runs[to] {
					t.Fatalf("edges %v: no edge from %d to %d in the ring", edges, th.TID-100, to)
				}
			}
		}
	}
	if rings < 1000 {
		t.Errorf("%d rings only", rings)
	}
}

// TestNoProof: what keeps threads in a ring out of a deadlock.
func TestNoProof(t *testing.T) {
	for name, change := range map[string]func([]*Thread){
		"a time limit":        func(l []*Thread) { l[0].Wait.Timed = true },
		"an unknown releaser": func(l []*Thread) { l[0].Wait.Whole = false },
		"it ran":              func(l []*Thread) { l[1].Between.Motion = Woken },
		"a free lock":         func(l []*Thread) { l[1].Wait.Lost = "which is free" },
		"an owner has ended":  func(l []*Thread) { l[1].State = 'Z' },
		"not looked at":       func(l []*Thread) { l[0].Wait.On[0] = Releaser{PID: 9, TID: 900} },
		"a process not looked at as a whole": func(l []*Thread) {
			l[0].Wait.On[0].TID = 0
			l[0].Process.complete = false
		},
		"a process with a thread that runs": func(l []*Thread) { l[0].Wait.On[0].TID = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			list, procs := world(map[int][]int{0: {1}, 1: {0}}, 3)
			if c := cycles(list, procs); len(c) != 1 || len(c[0].Threads) != 2 || c[0].Timed {
				t.Fatalf("without it: %+v", c)
			}
			change(list)
			for _, c := range cycles(list, procs) {
				if !c.Timed {
					t.Errorf("a deadlock: %v", c.Proof())
				}
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	var list []*Thread
	for _, id := range []int{7, 5, 6, 9, 12, 13} {
		list = append(list, &Thread{TID: id})
	}
	if got, want := Numbers(list), "5-7, 9, 12-13"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	list = nil
	for i := range 100_000 {
		list = append(list, &Thread{TID: 2 * i})
	}
	if got := Numbers(list); len(got) > 200 || !strings.HasSuffix(got, " and 99988 more") {
		t.Errorf("got %q", got)
	}
}

// TestHostileNames: nothing that a terminal could take for a command gets out.
func TestHostileNames(t *testing.T) {
	const evil = "\x1b]0;x\x07\u202e\n\r" // a title, the direction of text, new lines
	f := FD{Number: 3, Kind: "file", Path: evil, Ends: []End{{PID: 1, Name: evil, FD: 2}}}
	u := FD{Kind: "unix", Path: evil}
	var a FD
	a.anonymous(evil)
	list, procs := world(map[int][]int{0: {0}}, 1)
	list[0].Name, list[0].Process.Name, list[0].Wait.Text = evil, evil, "waits"
	list[0].frames = []output.Frame{{Func: evil, File: evil}}
	c := cycles(list, procs)
	long := FD{Kind: "file", Path: strings.Repeat("x", 1<<20)}
	r := Releaser{PID: 1, Name: evil}
	for _, text := range []string{f.Text(), u.Text(), a.Text(), long.Text(), strings.Join(c[0].Proof(), ""), r.Text(), sockaddr([]byte("\x01\x00" + evil))} {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || len(text) > 2000 {
			t.Errorf("%q", text[:min(len(text), 300)])
		}
	}
}

func TestParseUnix(t *testing.T) {
	e := binary.NativeEndian
	msg := func(inode uint32, attrs ...[]byte) []byte {
		b := make([]byte, 16+16)
		e.PutUint16(b[4:], sockDiagByFamily)
		b[16], b[18] = 1, 1
		e.PutUint32(b[20:], inode)
		return append(b, slices.Concat(attrs...)...)
	}
	attr := func(kind uint16, v ...byte) []byte {
		b := e.AppendUint16(e.AppendUint16(nil, uint16(4+len(v))), kind)
		return append(b, append(v, make([]byte, (4-len(v)%4)%4)...)...)
	}
	peer := e.AppendUint32(nil, 77)
	got, err := parseUnix(msg(5, attr(0, []byte("\x00name")...), attr(2, peer...), attr(9, 1)), 5)
	if err != nil || got.peer != 77 || got.name != "@name" || got.state != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, make([]byte, 19), msg(6), msg(5)[:20]} {
		if got, err := parseUnix(bad, 5); err == nil {
			t.Errorf("%x gives %+v", bad, got)
		}
	}
	for i := range 64 { // cut anywhere, or with sizes that lie
		full := msg(5, attr(0, []byte("path/name")...), attr(2, peer...))
		_, _ = parseUnix(full[:min(i, len(full))], 5)
		if i >= 32 && i+1 < len(full) {
			full[i] = 0xff
			_, _ = parseUnix(full, 5)
		}
	}
}

// TestOwnWord: the address that threads sleep at which parking_lot parks is theirs, and not told as the lock's.
func TestOwnWord(t *testing.T) {
	const fn = "parking_lot::raw_mutex::RawMutex::lock_slow"
	d := newDump(procfs.FS{})
	th := &Thread{Process: &Process{byInner: map[int]*Thread{}}, Call: Call{Name: "futex", Args: [6]uint64{0x1000}}, frames: []output.Frame{{Func: fn}}}
	th.first.words = words(0x1000, 1)
	w := (&call{d: d, t: th, name: "futex", args: th.Call.Args}).futex()
	if w.Text != "waits for Rust parking_lot::Mutex" || w.Lock != 0 || w.Object != "" {
		t.Errorf("%+v", w)
	}
}

// TestRefused: a lock that the kernel has refused is known by the function that waits, or if that has no symbol by its word, which lies in a frame of
// the C library; that of a semaphore on the stack lies behind where the library returns to.
func TestRefused(t *testing.T) {
	stack, err := unix.Mmap(-1, 0, 2*pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(stack)
	const back, at = 0x1234567890, 160
	sp := uint64(uintptr(unsafe.Pointer(&stack[0]))) + 1024
	binary.NativeEndian.PutUint64(stack[1024+at:], back)
	library := []output.Frame{{Module: "libc.so.6", PC: 1}, {Module: "libc.so.6", PC: back - 1}}
	program := output.Frame{Module: "a", Func: "take", PC: back}
	for name, tt := range map[string]struct {
		frames  []output.Frame
		word    uint64
		val, to uint64
		want    bool
	}{
		"no symbol":          {append(library[:2:2], program), sp + at - 60, 0, 0, true},
		"innermost":          {append(library[:2:2], program), sp, 0, 0, true},
		"in the program":     {append(library[:2:2], program), sp + at + 8, 0, 0, false},
		"far away":           {append(library[:2:2], program), sp + 4097, 0, 0, false},
		"below":              {append(library[:2:2], program), sp - 4, 0, 0, false},
		"another value":      {append(library[:2:2], program), sp + at - 60, 1, 0, false},
		"a time limit":       {append(library[:2:2], program), sp + at - 60, 0, 1, false},
		"the program itself": {[]output.Frame{program, library[0]}, sp + at - 60, 0, 0, false},
		"nobody":             {library, sp + at - 60, 0, 0, false},
		"a mutex":            {[]output.Frame{{Func: "pthread_mutex_lock"}, program}, sp + at + 8, 0, 0, true},
		"a semaphore":        {[]output.Frame{library[0], {Func: "sem_wait", Module: "libc.so.6"}, program}, sp + at - 60, 0, 0, false},
	} {
		d := newDump(procfs.FS{})
		th := &Thread{PID: os.Getpid(), TID: os.Getpid(), Process: &Process{}, frames: tt.frames, Call: Call{Name: "futex", Args: [6]uint64{tt.word, 0, tt.val, tt.to}}}
		th.first.call.SP = sp
		c := &call{d: d, t: th, name: "futex", args: th.Call.Args}
		if w := c.refused(familyOf(tt.frames)); (w != nil) != tt.want {
			t.Errorf("%s: %+v", name, w)
		}
		th.Process.arch = "arm64"
		if w := c.refused(familyOf(tt.frames)); (w != nil) != (tt.want && name == "a mutex") {
			t.Errorf("arm64, %s: %+v", name, w)
		}
		d.mem.close()
	}
}

// TestVerdict: threads that wait for locks of unknown owners are counted, as they may be in a deadlock that is not found.
func TestVerdict(t *testing.T) {
	thread := func(kind string, motion Motion, w Wait) *Thread {
		w.Kind, w.futex.fam.kind = "futex", kind
		return &Thread{State: 'S', Between: Activity{Motion: motion}, Wait: &w}
	}
	for _, tt := range []struct {
		threads []*Thread
		want    string
	}{
		{nil, "no deadlock found"},
		{[]*Thread{thread("rust mutex", Blocked, Wait{})}, "no deadlock found; 1 thread waits for locks whose owner is not known"},
		{[]*Thread{thread(javaMonitor, Blocked, Wait{}), thread("mutex", Blocked, Wait{}), thread("cond", Blocked, Wait{})},
			"no deadlock found; 2 threads wait for locks whose owner is not known"},
		{[]*Thread{thread("mutex", Woken, Wait{}), thread("mutex", Blocked, Wait{Timed: true}), thread("mutex", Blocked, Wait{On: []Releaser{{}}})}, "no deadlock found"},
		{[]*Thread{{State: 'S', Between: Activity{Motion: Blocked}, Wait: &Wait{Kind: "refused lock"}}}, "STUCK FOR EVER: the kernel has refused 1 thread a lock, as it does in a deadlock"},
	} {
		if got := (&Report{Threads: tt.threads}).verdict(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestStoryOfSet: what a thread does with several descriptors is a story only if they all lead to one process.
func TestStoryOfSet(t *testing.T) {
	end := func(pids ...int) FD {
		f := FD{Kind: "pipe"}
		for _, pid := range pids {
			f.Ends = append(f.Ends, End{PID: pid})
		}
		return f
	}
	for _, tt := range []struct {
		fds  []FD
		more int
		want int
	}{
		{[]FD{end(7)}, 0, 1}, {[]FD{end(7), end(7, 7)}, 0, 1},
		{[]FD{end(7), end()}, 0, 0}, {[]FD{end(7), end(8)}, 0, 0}, {[]FD{end(7, 8)}, 0, 0}, {[]FD{end(7)}, 1, 0},
	} {
		th := &Thread{Between: Activity{Motion: Blocked}, Wait: &Wait{Kind: "set", Set: Set{FDs: tt.fds, More: tt.more}, On: []Releaser{{PID: 7, How: HasEnd}}}}
		if got := stories(&Report{Threads: []*Thread{th}, byTID: map[int]*Thread{}}); len(got) != tt.want {
			t.Errorf("%+v and %d more: %d stories, want %d", tt.fds, tt.more, len(got), tt.want)
		}
	}
}
