package clocks

import (
	"slices"

	"sfsample/sampler/taking"
)

// disturbed are held threads whose waits were stopped for nothing that ends them: those with a time limit that nobody keeps begin anew, and are
// ended when it is over.
type disturbed struct {
	marks map[int]*taking.Mark
	heard []int // threads that have stopped for signals
	due   int64 // when the first limit may be over, 0: there is none
}

// of is what is known of a thread.
func (d *disturbed) of(tid int) *taking.Mark {
	m := d.marks[tid]
	if m == nil {
		m = new(taking.Mark)
		d.marks[tid] = m
	}
	return m
}

// watched tells whether a thread is to stop where it leaves its wait.
func (d *disturbed) watched(tid int) bool {
	m := d.marks[tid]
	return m != nil && m.Watched()
}

// interrupted tells whether a thread was taken out of a wait that was watched.
func (d *disturbed) interrupted(tid int) bool {
	m := d.marks[tid]
	return m != nil && m.Interrupted()
}

// stopped notes that a thread has stopped, for a signal or not, and when its limit is over.
func (d *disturbed) stopped(tid int, m *taking.Mark, signal bool) {
	if signal && !m.Heard {
		m.Heard = true
		d.heard = append(d.heard, tid)
	}
	d.next(m)
}

// next notes when the limit of a wait is over.
func (d *disturbed) next(m *taking.Mark) {
	if m.Due != 0 && (d.due == 0 || m.Due < d.due) {
		d.due = m.Due
	}
}

// turn has those stop whose limit is over. One that is not in its call yet is asked at the next turn.
func (d *disturbed) turn(k taking.Kernel) {
	now := k.Now()
	if d.due == 0 || now < d.due {
		return
	}
	d.due = 0
	for tid, m := range d.marks {
		if m.Due != 0 && m.Due <= now {
			if m.Waits() {
				k.Interrupt(tid)
			}
			m.Due = now + keeperTick // if that is put off
		}
		d.next(m)
	}
}

// drop forgets a thread.
func (d *disturbed) drop(tid int) {
	if m := d.marks[tid]; m != nil && m.Heard {
		d.heard = slices.DeleteFunc(d.heard, func(id int) bool { return id == tid })
	}
	delete(d.marks, tid)
}
