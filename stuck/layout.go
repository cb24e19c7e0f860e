package stuck

import "fmt"

// Bits of a mutex's kind: glibc nptl/pthreadP.h; musl src/thread/pthread_mutex_trylock.c
// and pthread_impl.h.
const (
	glibcRobust, glibcPI, glibcPP = 16, 32, 64
	glibcKinds                    = 1023
	muslTypes                     = 0x8f // type, robust, priority inheritance, shared
	muslBusy                      = 16   // EBUSY: the word of a plain mutex that is held
)

// found is a lock, if the data look like one.
type found struct {
	lock
	ok bool
}

var mutexTypes = [4]string{"mutex", "recursive mutex", "error-checking mutex", "adaptive mutex"}

// decodeMutex takes the library that the functions told; where none did, the one that
// the data fit.
func decodeMutex(f family, addr uint64, word uint32, b block, wordBytes int, live func(int) bool) lock {
	g, m := glibcMutex(addr, word, b, wordBytes), muslMutex(addr, word, b)
	switch {
	case f.glib && g.ok && !f.musl:
		return g.lock
	case f.musl && m.ok:
		return m.lock
	case g.ok && live(g.owner):
		return g.lock
	case m.ok && (live(m.owner) || m.owner == 0):
		return m.lock
	case g.ok:
		return g.lock
	}
	return lock{kind: "mutex", base: addr, unknown: "its words are those of no mutex that is known"}
}

// glibcMutex reads struct __pthread_mutex_s (sysdeps/nptl/bits/struct_mutex.h and those
// of the architectures): lock, count, owner, then users and kind, whose order depends on
// the word size.
func glibcMutex(addr uint64, word uint32, b block, wordBytes int) found {
	kindAt, usersAt := addr+16, addr+12
	if wordBytes == 4 {
		kindAt, usersAt = addr+12, addr+16
	}
	kind, ok := b.u32(kindAt)
	if !ok || kind&^glibcKinds != 0 || b.at(usersAt) > maxThreads || addr&3 != 0 {
		return found{}
	}
	l := lock{base: addr}
	name := mutexTypes[kind&3]
	switch {
	case kind&glibcRobust != 0 && kind&glibcPI != 0:
		l = l.held("robust priority-inheriting "+name, word)
	case kind&glibcRobust != 0:
		l = l.held("robust "+name, word)
	case kind&glibcPI != 0:
		l = l.held("priority-inheriting "+name, word)
	default:
		l.kind, l.owner = name, int(int32(b.at(addr+8)))
		if kind&glibcPP != 0 {
			l.kind, word = "priority-protected "+name, word&(1<<19-1) // PTHREAD_MUTEX_PRIO_CEILING_MASK
		}
		l.free = word == 0
		switch {
		case l.free:
			l.owner = 0
		case l.owner < 0 || l.owner > futexTIDMask:
			l.owner, l.unknown = 0, "the number of its owner is none that a thread can have"
		case l.owner == 0:
			l.unknown = "it is being taken or released, or elided"
		}
	}
	if count := b.at(addr + 4); kind&3 == 1 && count > 1 {
		l.note = fmt.Sprintf("locked %d times", count)
	}
	return found{l, true}
}

// muslMutex reads pthread_mutex_t (src/internal/pthread_impl.h): type, lock, waiters,
// …; the futex is the second word.
func muslMutex(addr uint64, word uint32, b block) found {
	kind, ok := b.u32(addr - 4)
	if !ok || addr < 4 || kind&^muslTypes != 0 {
		return found{}
	}
	l := lock{base: addr - 4}
	if kind&0xf != 0 {
		name := mutexTypes[kind&3]
		if kind&4 != 0 {
			name = "robust " + name
		}
		return found{l.held(name, word), true}
	}
	l.kind, l.free = "mutex", word&^futexWaiters == 0
	l.unknown = "musl keeps no owner of a plain mutex"
	return found{l, l.free || word&^futexWaiters == muslBusy}
}

// decodeRWLock reads glibc's struct __pthread_rwlock_arch_t (struct_rwlock.h): readers,
// writers, the two futexes, …, the writer that holds it; or musl's one word.
func decodeRWLock(f family, addr uint64, word uint32, b block, wordBytes int) lock {
	l := lock{kind: "read-write lock", base: addr}
	if f.musl {
		switch n := word & 0x7fffffff; n {
		case 0:
			l.free = true
		case 0x7fffffff:
			l.unknown = "a writer holds it, musl does not keep which"
		default:
			l.unknown = fmt.Sprintf("%d readers hold it, which is not kept", n)
		}
		return l
	}
	l.base = addr - 8 // __wrphase_futex
	if addr&7 == 4 {
		l.base = addr - 12 // __writers_futex
	}
	writer, ok := b.u32(l.base + 24)
	readers, ok2 := b.u32(l.base)
	if wordBytes == 4 {
		l.base, ok = addr, false // the struct has another order there
	}
	switch n := readers >> 3; { // PTHREAD_RWLOCK_READER_SHIFT
	case !ok || !ok2 || n > maxThreads || writer > futexTIDMask:
		l.unknown = "its words are those of no read-write lock that is known"
	case writer != 0:
		l.note, l.owner = "held for writing", int(writer)
	case n > 0:
		l.note, l.unknown = "held for reading", fmt.Sprintf("%d readers hold it or wait for it, which is not kept", n)
	default:
		l.unknown = "it is being taken or released"
	}
	return l
}

// decodeCond reads the number of waiters of glibc's struct __pthread_cond_s: it stands
// before the two words that are waited on (2.25 to 2.40).
func decodeCond(f family, addr uint64, b block, wordBytes int) lock {
	l := lock{kind: "condition variable", base: addr, unknown: "anybody may signal it"}
	if f.musl || wordBytes == 4 {
		return l
	}
	l.base = addr&^7 - 40
	if n := b.at(addr&^7-4) >> 3; n > 0 && n <= maxThreads {
		l.note = fmt.Sprintf("%d in it", n)
	}
	return l
}

// decodeSem reads struct new_sem: the word is the value, the number of waiters the other
// half (on 64-bit machines; nptl/sem_waitcommon.c).
func decodeSem(f family, addr uint64, word uint32, b block, wordBytes int) lock {
	l := lock{kind: "semaphore", base: addr &^ 7, unknown: "anybody may post it", note: fmt.Sprintf("value %d", word)}
	if f.musl || wordBytes == 4 {
		l.base, l.note = addr, fmt.Sprintf("word %d", word)
		return l
	}
	l.free = word > 0
	return l
}

// decodeBarrier reads struct pthread_barrier (nptl): in, round, count, shared, out. The
// round is what is waited on.
func decodeBarrier(f family, addr uint64, b block) lock {
	l := lock{kind: "barrier", base: addr - 4, unknown: "whoever has not come is not known"}
	in, count := b.at(addr-4), b.at(addr+4)
	if !f.musl && count > 0 && in > 0 && in <= count && count <= maxThreads {
		l.note = fmt.Sprintf("%d of %d have come", in, count)
	}
	return l
}
