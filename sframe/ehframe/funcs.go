package ehframe

import (
	"iter"

	"sfsample/sframe"
)

// Func is one function of the table: an FDE with the flags of its CIE.
type Func struct {
	Start, End uint64 // link-time addresses, End excluded
	SecOff     uint64 // of the FDE in the section
	Signal     bool   // augmentation 'S': a signal trampoline
	KeyB       bool   // augmentation 'B': arm64 return addresses are signed with key B
	// Entries are the rows in ascending order, equal neighbours joined. They
	// cover the function without gaps; none if it is empty or damaged.
	Entries []sframe.Entry
}

// Funcs compiles all functions in the order of the section, past the caches and
// without the header's table. A damaged function comes with the error and
// what is known of it. An error that ends the iteration, such as a broken length,
// comes with a Func that is zero.
func (t *Table) Funcs() iter.Seq2[Func, error] {
	return func(yield func(Func, error) bool) {
		stopped := false
		err := t.sec.scan(func(e fde, err error) bool {
			f, err := t.describe(e, err)
			stopped = !yield(f, err)
			return !stopped
		})
		if err != nil && !stopped {
			yield(Func{}, err)
		}
	}
}

func (t *Table) describe(e fde, err error) (Func, error) {
	out := Func{Start: e.start, End: e.end, SecOff: e.addr - t.sec.start}
	if err != nil {
		return out, err
	}
	out.Signal, out.KeyB = e.cie.signal, e.cie.keyB
	var f function
	t.cache.trim()
	t.compile(&e, &f)
	for i := range f.rows {
		out.Entries = append(out.Entries, t.entry(&f, i))
	}
	return out, f.err
}
