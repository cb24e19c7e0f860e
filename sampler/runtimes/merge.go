package runtimes

import (
	"cmp"
	"slices"

	"sfsample/unwind"
)

// Place is one frame of a merged stack.
type Place struct {
	Native int // index of the native frame, or of the one in whose place the script frame stands; -1: none is known
	Script int // index of the script frame; -1: it is the native one
}

// Merge puts script frames in the place of the native frames that run them and appends the result, innermost
// first, to list. in tells whether a native frame is one of the function that begins at entry, 0 being [Runtime.Loop]; it is
// asked only where a segment has no anchor. complete: there are no more native frames. placed is how many script frames stand where
// a native frame was, or have their own native stack. Of a stack that is Short the native frames further out are left out.
func Merge(list []Place, native []unwind.Frame, complete bool, s *Stack, in func(i int, entry uint64) bool) (merged []Place, placed int) {
	isLoop := func(i int) bool { return in(i, 0) }
	runs := make([]run, len(s.Segments))
	first := 0
	for i, g := range s.Segments {
		runs[i] = run{first: first, Segment: g, at: -1}
		first += g.N
	}
	// Several states of one thread take turns on its stack.
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.Anchor, b.Anchor) })
	if len(runs) > 0 && runs[len(runs)-1].Anchor == 0 {
		pairLoops(runs, native, isLoop, complete && !s.Short)
		pairEntries(runs, native, in)
	} else {
		for i := range runs {
			runs[i].at = holder(native, runs[i].Anchor, complete)
		}
	}
	if last := len(runs) - 1; s.Short && last >= 0 {
		out := 0 // behind the outermost that runs one
		for i := range runs {
			out = max(out, runs[i].at+1)
		}
		for i := out; i < len(native) && runs[last].at < 0; i++ {
			if isLoop(i) {
				runs[last].at, out = i, i+1
			}
		}
		native = native[:out]
	}
	emit := func() {
		for j := range runs[0].N {
			list = append(list, Place{runs[0].at, runs[0].first + j})
		}
		if runs[0].at >= 0 || runs[0].Elsewhere {
			placed += runs[0].N
		}
		runs = runs[1:]
	}
	for len(runs) > 0 && runs[0].at < 0 && nextPlaced(runs) >= 0 && runs[0].Anchor < native[0].SP {
		emit() // its loop is yet to be entered, or was left
	}
	for i := range native {
		for nextPlaced(runs) == i && runs[0].at < 0 {
			emit() // it is further in than the one that this frame runs
		}
		if len(runs) == 0 || runs[0].at != i || runs[0].beside {
			list = append(list, Place{i, -1})
		}
		for len(runs) > 0 && runs[0].at == i {
			emit()
		}
	}
	for len(runs) > 0 {
		emit()
	}
	return list, placed
}

// Identified puts script frames in the place of the native frames that they are, as [Managed] has identified them, and appends the result,
// innermost first, to list. placed is how many they are.
func Identified(list []Place, native []unwind.Frame, s *Stack) (merged []Place, placed int) {
	segments := s.Segments
	for i := range native {
		if len(segments) == 0 || segments[0].Native != i {
			list = append(list, Place{i, -1})
			continue
		}
		for range segments[0].N {
			list = append(list, Place{i, placed})
			placed++
		}
		segments = segments[1:]
	}
	return list, placed
}

// run is a segment, where its frames begin, and the native frame that runs it; -1: none is known. beside: that is shown too, further in.
type run struct {
	Segment
	first, at int
	beside    bool
}

// nextPlaced is the native frame of the first run that has one.
func nextPlaced(runs []run) int {
	for i := range runs {
		if runs[i].at >= 0 {
			return runs[i].at
		}
	}
	return -1
}

// holder is the native frame that holds the stack address addr, -1 if none does. A frame reaches from its stack pointer to that
// of its caller.
func holder(native []unwind.Frame, addr uint64, complete bool) int {
	for i := range native {
		switch last := i+1 == len(native); {
		case addr < native[i].SP || addr == 0:
		case !last && addr < native[i+1].SP, last && complete && addr-native[i].SP < 64<<10:
			return i
		}
	}
	return -1
}

// pairLoops gives runs the native frames that are loops. An activation that has just begun, or is about to end, has no script
// frame: so from the outermost on, if both are known to there.
func pairLoops(runs []run, native []unwind.Frame, isLoop func(int) bool, whole bool) {
	var loops []int
	for i := range native {
		if isLoop(i) {
			loops = append(loops, i)
		}
	}
	var ran []int
	for k := range runs {
		if runs[k].Entry == 0 && !runs[k].Elsewhere {
			ran = append(ran, k)
		}
	}
	skip := 0
	if whole {
		skip = len(ran) - len(loops)
	}
	for k, r := range ran {
		if i := k - skip; i >= 0 && i < len(loops) {
			runs[r].at = loops[i]
		}
	}
}

// pairEntries gives runs of one function their native frames: between those of the runs further in and further out. One that has none, as it has
// ended in a jump, stands with the run that has called it.
func pairEntries(runs []run, native []unwind.Frame, in func(i int, entry uint64) bool) {
	from := 0
	for k := range runs {
		r := &runs[k]
		if r.Entry == 0 || r.Elsewhere {
			from = max(from, r.at+1)
			continue
		}
		out := slices.IndexFunc(runs[k+1:], func(x run) bool { return x.Entry == 0 })
		to := len(native)
		if out >= 0 && runs[k+1+out].at >= 0 {
			to = runs[k+1+out].at
			r.at = to
		}
		for i := from; i < to; i++ {
			if in(i, r.Entry) {
				r.at, r.beside, from = i, true, i+1
				break
			}
		}
	}
}
