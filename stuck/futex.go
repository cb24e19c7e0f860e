package stuck

import (
	"fmt"
	"strings"

	"sfsample/output"
)

// Operations of futex(2), include/uapi/linux/futex.h.
const (
	futexPrivate = 128
	futexClockRT = 256
	// A lock word's bits, for robust and priority-inheriting locks.
	futexWaiters   = 0x80000000
	futexOwnerDied = 0x40000000
	futexTIDMask   = 0x3fffffff
)

// futexWait names an operation that waits, empty for those that do not.
func futexWait(op uint64) string {
	switch op &^ (futexPrivate | futexClockRT) {
	case 0:
		return "wait"
	case 9:
		return "wait_bitset"
	case 6, 13:
		return "lock_pi"
	case 11:
		return "wait_requeue_pi"
	}
	return ""
}

// lock is what the words around a futex say.
type lock struct {
	kind    string // in plain words: "mutex", "recursive mutex", …
	base    uint64 // where the lock begins
	owner   int    // as the word has it, in the owner's own pid namespace; 0: none told
	free    bool   // nobody holds it
	died    bool   // its owner has ended while it held it
	note    string // what else is known
	unknown string // why no owner is known; empty with an owner
	loose   bool   // others than its owner may let it go
}

// family is a group of functions that wait on one kind of lock.
type family struct {
	kind string // as decodeLock takes it
	fn   string // the function that told it
	musl bool
	glib bool // glibc
}

// waiters tell a kind by the function that waits: the name, without leading
// underscores and "GI_", begins with the word, or holds it where it begins with *.
var waiters = []struct{ word, kind string }{
	{"pthread_mutex_", "mutex"}, {"pthread_cond_", "cond"}, {"pthread_rwlock_", "rwlock"}, {"pthread_barrier_wait", "barrier"},
	{"pthread_once", "once"}, {"pthread_join", "join"}, {"pthread_clockjoin", "join"}, {"pthread_timedjoin", "join"},
	{"sem_wait", "sem"}, {"sem_timedwait", "sem"}, {"sem_clockwait", "sem"}, {"new_sem_", "sem"},
	{"cxa_guard_acquire", "guard"},
	{"*mutex::futex::Mutex::lock_contended", "rust mutex"}, {"*futex_mutex::Mutex::lock_contended", "rust mutex"},
	{"*rwlock::futex::RwLock::", "rust rwlock"}, {"*futex_rwlock::RwLock::", "rust rwlock"},
	{"*condvar::futex::Condvar::", "rust condition variable"}, {"*futex_condvar::Condvar::", "rust condition variable"},
	{"*once::futex::Once::", "rust once"}, {"*thread_parking::futex::Parker::park", "rust park"}, {"*thread_parker::futex::Parker::park", "rust park"},
	{"*std::thread::functions::park", "rust park"}, {"*std::thread::park", "rust park"}, {"*thread::Thread::park", "rust park"}, // with Parker::park taken in
	{"*parking_lot::raw_mutex::RawMutex::lock_slow", "parking_lot mutex"}, {"*parking_lot::raw_rwlock::RawRwLock::", "parking_lot rwlock"},
	{"*parking_lot::condvar::Condvar::wait", "parking_lot condition variable"},
	{"*atomic_futex_unsigned_base::", "future"}, {"runtime.futexsleep", "go"}, {"lll_lock_wait", "libc"},
}

// above are functions further out that say more than the one that waits.
var above = []struct{ word, kind string }{
	{"take_gil", pythonGIL}, {"PyThread_acquire_lock_timed", "python lock"},
	// runtime/proc.go, lock_futex.go, lock_spinbit.go and sigqueue.go of Go.
	{"runtime.stopm", goIdle}, {"runtime.findRunnable", goIdle}, {"runtime.findrunnable", goIdle}, {"runtime.lock2", "go lock"}, {"runtime.sysmon", "go monitor"},
	{"runtime.stoplockedm", "go locked"}, {"runtime.stopTheWorld", "go stop"}, {"runtime.templateThread", "go template"}, {"os/signal.signal_recv", "go signal"},
	// src/hotspot/share/runtime of OpenJDK. All these wait on an event of the thread's own.
	{"*ObjectMonitor::wait", "java wait"}, {"*ObjectMonitor::", javaMonitor}, {"*JavaThread::sleep", javaSleep}, {"JVM_Sleep", javaSleep},
	{"*Parker::park", "java park"}, {"*::PlatformEvent::park", javaEvent},
	{"*std::sync::mpmc::", "rust channel"}, // library/std/src/sync/mpmc, under std::sync::mpsc too
}

// bare takes off what differs between a function's aliases.
func bare(name string) string {
	name = strings.TrimLeft(name, "_")
	return strings.TrimLeft(strings.TrimPrefix(name, "GI_"), "_")
}

func fits(name, word string) bool {
	if w, ok := strings.CutPrefix(word, "*"); ok {
		return strings.Contains(strings.ReplaceAll(name, ">::", "::"), w) // Rust's v0 names: <path::Type>::function
	}
	return strings.HasPrefix(bare(name), word)
}

// glibc: the library in which threads wait for locks.
func glibc(module string) bool {
	return strings.HasPrefix(module, "libc.so") || strings.HasPrefix(module, "libpthread")
}

// familyOf finds the innermost function that waits on a lock.
func familyOf(frames []output.Frame) family {
	var f family
	for _, fr := range frames {
		f.musl = f.musl || strings.Contains(fr.Module, "musl") || strings.HasPrefix(fr.Func, "__timedwait")
		f.glib = f.glib || glibc(fr.Module) || strings.HasPrefix(fr.Func, "__futex_abstimed") || strings.HasPrefix(fr.Func, "__lll_")
		for _, w := range waiters {
			if fits(fr.Func, w.word) && (f.kind == "" || f.kind == "libc") {
				f.kind, f.fn = w.kind, fr.Func
			}
		}
	}
	for i, fr := range frames {
		for _, w := range above {
			switch {
			case f.kind == "" || !fits(fr.Func, w.word):
			case w.kind == javaEvent: // who waits on it says more
				f.kind, f.fn = w.kind, fr.Func
			default:
				return family{w.kind, fr.Func, f.musl, f.glib}
			}
		}
		// Its own condition variables guard the GIL alone (Python/ceval_gil.c; locks are semaphores there).
		if f.kind == "cond" && i > 0 && fr.Func != f.fn && fits(frames[i-1].Func, "pthread_cond_") && pythonItself(fr.Module) {
			return family{pythonGIL, f.fn, f.musl, f.glib}
		}
	}
	return f
}

// pythonItself: the interpreter or its library, "python3.11", "libpython3.11.so.1.0".
func pythonItself(module string) bool {
	return strings.HasPrefix(strings.TrimPrefix(module, "lib"), "python3.")
}

const (
	pythonGIL   = "python GIL"
	goIdle      = "go idle"
	javaEvent   = "java event"
	javaSleep   = "java sleep"
	javaMonitor = "java monitor"
)

// instead says in plain words what threads do that wait for no lock of their program's.
var instead = map[string]string{
	javaSleep:     "sleeps in Java's Thread.sleep",
	goIdle:        "idles: Go has no goroutine for it to run",
	"go monitor":  "idles: it is Go's monitor (sysmon), and no goroutine runs",
	"go locked":   "waits until its goroutine can go on: no other runs on this thread (runtime.LockOSThread)",
	"go stop":     "waits until all goroutines have been stopped (stop the world)",
	"go template": "idles: it is kept by Go to start other threads",
	"go signal":   "waits for a signal to pass on (os/signal)",
}

// decodeLock says what a futex word at addr and its surroundings are. val is what the
// waiter found there. live tells whether a number is that of a thread of the process.
func decodeLock(f family, op string, addr uint64, val uint32, b block, wordBytes int, live func(int) bool) lock {
	l := lock{base: addr}
	word, ok := b.u32(addr)
	if !ok {
		l.kind, l.unknown = "futex", "its word cannot be read"
		return l
	}
	if op == "lock_pi" {
		if f.musl { // its second word, see muslMutex
			l.base -= 4
		}
		return l.held("priority-inheriting mutex", word)
	}
	switch f.kind {
	case "mutex":
		return decodeMutex(f, addr, word, b, wordBytes, live)
	case "rwlock":
		return decodeRWLock(f, addr, word, b, wordBytes)
	case "cond":
		return decodeCond(f, addr, b, wordBytes)
	case "sem":
		return decodeSem(f, addr, word, b, wordBytes)
	case "barrier":
		return decodeBarrier(f, addr, b)
	case "join":
		if live(int(word)) {
			return l.held(endOfThread, word)
		}
		l.kind, l.unknown = endOfThread, "its number is not kept at this place"
		return l
	}
	if w, ok := keepsNone[f.kind]; ok {
		l.kind, l.unknown, l.free = w.kind, w.why, w.lock && word == 0
		return l
	}
	return guessLock(l, op, addr, word, val, b, wordBytes, live)
}

const goAlone = "goroutines are not looked at"

// keepsNone are locks whose words do not tell an owner. lock: a word of 0 means that
// it is free.
var keepsNone = map[string]struct {
	kind, why string
	lock      bool
}{
	"once":                           {"once", "pthread_once keeps no record of who runs the function", false},
	"guard":                          {"initialisation of a static variable", "the guard keeps no record of who runs it", false},
	"libc":                           {"lock inside the C library", "it keeps no owner", true},
	"future":                         {"std::future", "it keeps no record of who is to set it", false},
	"rust mutex":                     {"Rust std::sync::Mutex", "it keeps no owner", true},
	"rust rwlock":                    {"Rust std::sync::RwLock", "it keeps no owner", false},
	"rust condition variable":        {"Rust std::sync::Condvar", "anybody may notify it", false},
	"rust once":                      {"Rust std::sync::Once", "it keeps no record of who runs the function", false},
	"rust park":                      {"Rust thread::park", "anybody may unpark it", false},
	"parking_lot mutex":              {"Rust parking_lot::Mutex", "it keeps no owner", false},
	"parking_lot rwlock":             {"Rust parking_lot::RwLock", "it keeps no owner", false},
	"parking_lot condition variable": {"Rust parking_lot::Condvar", "anybody may notify it", false},
	"go":                             {"Go's scheduler", "goroutines are not looked at", false},
	goIdle:                           {"Go has no goroutine to run", goAlone, false},
	"go monitor":                     {"Go's monitor idles", goAlone, false},
	"go locked":                      {"Go goroutine of this thread alone", goAlone, false},
	"go stop":                        {"Go's stop of the world", goAlone, false},
	"go template":                    {"Go's template thread idles", goAlone, false},
	"go signal":                      {"signal for Go's os/signal", goAlone, false},
	"go lock":                        {"lock inside Go's runtime", "it keeps no owner", false},
	pythonGIL:                        {"Python's global interpreter lock", "its word names no thread", false},
	"python lock":                    {"Python lock", "it is a semaphore and keeps no owner", false},
	"rust channel":                   {"Rust channel", "who has its other ends is not kept", false},
	javaMonitor:                      {"Java monitor", "what the machine keeps of it cannot be read", false},
	"java wait":                      {"Java Object.wait", "anybody may notify it", false},
	"java park":                      {"Java LockSupport.park", "anybody may unpark it", false},
	javaEvent:                        {"event of Java's runtime", "anybody may set it", false},
	javaSleep:                        {"Java Thread.sleep", "", false},
}

// ownWord: the word that a thread waits on is its own, and its address tells nothing of what is waited for.
var ownWord = set(javaMonitor, "java wait", "java park", javaEvent, javaSleep, "rust park", "rust channel", goIdle,
	"parking_lot mutex", "parking_lot rwlock", "parking_lot condition variable") // it parks threads by words of theirs, parking_lot_core/src/thread_parker

// heldBySome are locks that somebody holds, though nothing may tell who.
var heldBySome = set("mutex", "rwlock", "libc", "once", "guard", "rust mutex", "rust rwlock", "rust once", "parking_lot mutex", "parking_lot rwlock",
	"go lock", pythonGIL, "python lock", javaMonitor)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// held makes a lock of a word that holds its owner's number.
func (l lock) held(kind string, word uint32) lock {
	l.kind, l.owner, l.died = kind, int(word&futexTIDMask), word&futexOwnerDied != 0
	l.free = l.owner == 0 && !l.died
	if l.owner == 0 && !l.free {
		l.unknown = "its owner has ended while it held it"
	}
	return l
}

const unknownKind = "what kind of lock it is cannot be told"

// guessLock goes by the data alone, where no function told the kind.
func guessLock(l lock, op string, addr uint64, word, val uint32, b block, wordBytes int, live func(int) bool) lock {
	switch m := glibcMutex(addr, word, b, wordBytes); {
	case word == val && word != 0 && word&^futexTIDMask == 0 && live(int(word)) && !(m.ok && live(m.owner)):
		return l.held(endOfThread, word) // CLONE_CHILD_CLEARTID, clone(2)
	case m.ok && (val == 2 || val == word && word&futexWaiters != 0) && live(m.owner):
		return m.lock
	}
	l.kind, l.note = "futex", fmt.Sprintf("value %d", word)
	l.unknown = unknownKind
	if word != val && op == "wait" {
		l.note = fmt.Sprintf("value %d, was %d when it went to sleep: a wake-up may be lost", word, val)
	}
	return l
}
