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
// first, to list. isLoop tells whether a native frame is one of [Runtime.Loop]; it is asked only where a segment has no anchor.
// complete: there are no more native frames. placed is how many script frames stand where a native frame was. Of a stack that is
// Short the native frames further out are left out.
func Merge(list []Place, native []unwind.Frame, complete bool, s *Stack, isLoop func(i int) bool) (merged []Place, placed int) {
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
	} else {
		for i := range runs {
			runs[i].at = holder(native, runs[i].Anchor, complete)
		}
	}
	if last := len(runs) - 1; s.Short && last >= 0 {
		from := 0
		if last > 0 {
			from = runs[last-1].at + 1
		}
		for i := from; i < len(native) && runs[last].at < 0; i++ {
			if isLoop(i) {
				runs[last].at = i
			}
		}
		native = native[:runs[last].at+1]
	}
	emit := func() {
		for j := range runs[0].N {
			list = append(list, Place{runs[0].at, runs[0].first + j})
		}
		if runs[0].at >= 0 {
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
		if len(runs) == 0 || runs[0].at != i {
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

// run is a segment, where its frames begin, and the native frame that runs it; -1: none is known.
type run struct {
	Segment
	first, at int
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
	skip := 0
	if whole {
		skip = len(runs) - len(loops)
	}
	for k := range runs {
		if i := k - skip; i >= 0 && i < len(loops) {
			runs[k].at = loops[i]
		}
	}
}
