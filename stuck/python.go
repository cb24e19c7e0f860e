package stuck

import (
	"encoding/binary"
	"fmt"
)

// holdsGIL names the thread that has Python's global interpreter lock. Who waits for it wakes up at each of its switch
// intervals: so that is no proof of a deadlock.
func (d *Dump) holdsGIL(t *Thread, w *Wait) {
	tid := d.mem.gilHolder(t, w.Lock)
	if tid == 0 {
		w.Unknown = "the thread that has it cannot be told (Python 3.11 to 3.13 on 64 bits keep it)"
		return
	}
	w.on(Releaser{PID: t.PID, TID: tid, How: Holds, evidence: fmt.Sprintf("the state that holds it has the thread id %d", d.roster.byTID[tid].InnerTID)}, d.fs)
	w.Unknown, w.Timed, w.polls = "", false, true
}

// gilHolder reads which thread holds the lock whose condition variable is at cond; 0: none, or it cannot be told.
// struct _gil_runtime_state (Include/internal/pycore_gil.h, Python 3.9 to 3.13) has before that variable: the thread
// state of the last holder, whether it is locked, a count of switches. In a thread state (Include/cpython/pystate.h) the
// pthread_t and the kernel's number of the thread follow each other, from 3.11 on.
func (m *memory) gilHolder(t *Thread, cond uint64) int {
	const stateBytes, threadBytes = 512, 1024
	b := m.read(t, cond-24, 24)
	if t.wordBytes() != 8 || cond < 24 || len(b) < 24 || binary.NativeEndian.Uint32(b[8:]) != 1 {
		return 0
	}
	found := 0
	state := m.read(t, binary.NativeEndian.Uint64(b), stateBytes)
	for ; len(state) >= 16; state = state[8:] {
		pthread, id := binary.NativeEndian.Uint64(state), binary.NativeEndian.Uint64(state[8:])
		o := t.Process.byInner[int(id&futexTIDMask)]
		if id > futexTIDMask || o == nil || !holds(m.read(t, pthread, threadBytes), uint32(id)) {
			continue
		}
		if found != 0 && found != o.TID {
			return 0
		}
		found = o.TID
	}
	return found
}

// holds tells whether a thread's own record, to which pthread_t points, has its number.
func holds(record []byte, id uint32) bool {
	for ; len(record) >= 4; record = record[4:] {
		if binary.NativeEndian.Uint32(record) == id {
			return true
		}
	}
	return false
}
