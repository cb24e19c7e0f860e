package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"sfsample/unwind"
)

// place is where chains are cut or wrong, and why.
type place struct {
	verdict verdict
	reason  unwind.Reason // of a cut one
	how     unwind.How    // of the frame that is wrong
	module  string
	fn      string
	offset  uint64 // in the module's own numbering
	inner   string // module and function of the innermost frame, if that is another
	// defect names the fault of the table, where it is a known one.
	defect string
}

// tally counts the chains of one order of methods.
type tally struct {
	counts [numVerdicts]int
	// answered counts the callers that walks have found, innermost those of innermost
	// frames, of those that there are; spent is what all walks took.
	answered, innermost, callers int
	spent                        time.Duration
	// defects counts those of the cut and wrong ones for which a known fault
	// of the tables is to blame.
	defects [numVerdicts]int
	places  map[place]int
	// firsts has an example for each place that is wrong.
	firsts map[place]string
}

// walked notes a walk that found so many of the callers that there are.
func (t *tally) walked(found, callers int, spent time.Duration) {
	t.answered, t.callers, t.spent = t.answered+found, t.callers+callers, t.spent+spent
	if found > 0 {
		t.innermost++
	}
}

// add counts a chain. A place is noted for one that is not right.
func (t *tally) add(p place, example func() string) {
	t.counts[p.verdict]++
	if p.defect != "" {
		t.defects[p.verdict]++
	}
	if p.verdict == cut || p.verdict == wrong {
		t.note(p, example)
	}
}

func (t *tally) note(p place, example func() string) {
	if t.places == nil {
		t.places, t.firsts = map[place]int{}, map[place]string{}
	}
	if t.places[p]++; t.places[p] == 1 && p.defect == "" {
		t.firsts[p] = example()
	}
}

// result is what a run found.
type result struct {
	orders    []string
	tallies   map[string]*tally
	steps     int
	stretches int
	signals   int
	switches  int
	arriving  int // instructions not judged: on the way to another stack or landing pad
	rewritten int // return addresses that the program changed
	badBase   map[string]int
	maxDepth  int
}

// print writes the result: a line for each order, then its places, most
// frequent first, at most top of them (0: all).
func (r *result) print(w io.Writer, top int) {
	fmt.Fprintf(w, "%d instructions in %d stretches, deepest stack %d frames, %d signals, %d stack switches, %d instructions not judged while switching, %d return addresses changed by the program\n",
		r.steps, r.stretches, r.maxDepth, r.signals, r.switches, r.arriving, r.rewritten)
	for _, b := range slices.Sorted(maps.Keys(r.badBase)) {
		fmt.Fprintf(w, "  first walk refuted by a return: %s (%d times)\n", b, r.badBase[b])
	}
	for _, order := range r.orders {
		t := r.tallies[order]
		total := max(1, t.counts[right]+t.counts[ahead]+t.counts[cut]+t.counts[wrong])
		fmt.Fprintf(w, "%-28s right %d  ahead %d  cut %d (%.4f %%)  wrong %d (%.4f %%); by faults of tables: cut %d, wrong %d\n",
			order, t.counts[right], t.counts[ahead],
			t.counts[cut], 100*float64(t.counts[cut])/float64(total),
			t.counts[wrong], 100*float64(t.counts[wrong])/float64(total), t.defects[cut], t.defects[wrong])
		fmt.Fprintf(w, "    %d of %d callers answered (%.1f %%), of innermost frames %.1f %%; %d ns for each\n", t.answered, t.callers,
			100*float64(t.answered)/float64(max(1, t.callers)), 100*float64(t.innermost)/float64(total), t.spent.Nanoseconds()/int64(max(1, t.answered)))
		list := slices.SortedFunc(maps.Keys(t.places), func(a, b place) int {
			return cmp.Or(cmp.Compare(b.verdict, a.verdict), cmp.Compare(t.places[b], t.places[a]),
				cmp.Compare(a.module, b.module), cmp.Compare(a.offset, b.offset))
		})
		for i, p := range list {
			if top > 0 && i == top {
				fmt.Fprintf(w, "    and %d further places\n", len(list)-top)
				break
			}
			why := p.reason.String()
			if p.verdict == wrong {
				why = "by " + p.how.String()
			}
			if p.inner != "" {
				why += ", innermost " + p.inner
			}
			if p.defect != "" {
				why += "; " + p.defect
			}
			fmt.Fprintf(w, "    %s %d times at %s+%#x %s: %s\n", verdictNames[p.verdict], t.places[p], p.module, p.offset, p.fn, why)
			if s := t.firsts[p]; s != "" {
				fmt.Fprint(w, s)
			}
		}
	}
}
