package clocks

import (
	"slices"

	"sfsample/sampler/taking"
)

// disturbed are held threads whose waits were stopped for nothing that ends them: those with a time limit that nobody keeps begin anew, and are
// ended when it is over.
type disturbed struct {
	marks map[int]*taking.Mark
	heard []int // threads that signals have woken which their programs ignore: there will be more
	next  int   // of them, to be looked at
	due   int64 // when the first limit may be over, 0: there is none
}

// looksATurn is at how many threads a turn looks: 10 us each.
const looksATurn = 4

// of is what is known of a thread.
func (d *disturbed) of(tid int) *taking.Mark {
	m := d.marks[tid]
	if m == nil {
		m = new(taking.Mark)
		d.marks[tid] = m
	}
	return m
}

// stopped notes that a thread has stopped, for a signal or not, and when its limit is over.
func (d *disturbed) stopped(tid int, m *taking.Mark, signal bool) {
	if signal && !m.Heard {
		m.Heard = true
		d.heard = append(d.heard, tid)
	}
	if m.Due != 0 && (d.due == 0 || m.Due < d.due) {
		d.due = m.Due
	}
}

// turn looks where some of those are that signals have woken, and has those stop whose limit is over.
func (d *disturbed) turn(k taking.Kernel, b *taking.Buffer) {
	for range min(looksATurn, len(d.heard)) {
		d.next = (d.next + 1) % len(d.heard)
		if m := d.marks[d.heard[d.next]]; m != nil {
			m.Look(k, d.heard[d.next], b)
		}
	}
	now := k.Now()
	if d.due == 0 || now < d.due {
		return
	}
	d.due = 0
	for tid, m := range d.marks {
		switch {
		case m.Due == 0:
		case m.Due > now:
			if d.due == 0 || m.Due < d.due {
				d.due = m.Due
			}
		default:
			if m.Due = 0; m.Waits(k, tid, b) {
				k.Interrupt(tid)
			}
		}
	}
}

// drop forgets a thread.
func (d *disturbed) drop(tid int) {
	if m := d.marks[tid]; m != nil && m.Heard {
		d.heard = slices.DeleteFunc(d.heard, func(id int) bool { return id == tid })
	}
	delete(d.marks, tid)
}
