package sampler

import (
	"os"
	"sync/atomic"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// item is what travels from the engine to the pipeline, in order. Exactly one
// of its parts is set.
type item struct {
	capture *capture.Capture
	fb      *Feedback // with capture
	early   *early    // with capture: of a process that may be gone soon
	program *program  // with capture: whose it is
	credit  *capture.Credit
	spent   *capture.Spent
	fork    fork
	opened  int  // a process that is sampled from now on
	end     bool // there is nothing more to come
	gone    int  // a process that has ended, or has become another program
	left    left // a thread of which there were captures has ended
	round   *Round
	batches int8 // 1: from now on items come seldom, and many at once; -1: no longer
}

// left is a thread that is no more.
type left struct{ pid, tid int }

// urgent tells whether the pipeline must have it soon: what it reads of a process
// upon it may be gone later. What it would read upon an exit is going already, and
// may be another program's for a moment before we hear of its exec.
func (it *item) urgent() bool {
	if it.capture != nil && it.capture.Taken == capture.Exiting {
		return false
	}
	return it.early != nil || it.opened != 0 || it.fork.child != 0 || it.gone != 0 || it.round != nil
}

// program is one program of a process, from one exec to the next.
type program struct {
	replaced atomic.Bool
	marks    atomic.Pointer[taking.Marks] // see Feedback
	kin      atomic.Pointer[Kin]
}

// early is what the pipeline would read of a process if that could be counted
// on to live until then: its mappings and the content of its comm file.
type early struct {
	maps  []procfs.Mapping
	comm  []byte
	pages procfs.Pagemap // of the memory that these mappings are of, to be closed; -1: none
}

// fork tells that a process was made by another: until it calls exec, it has the
// other's mappings.
type fork struct{ parent, child int }

// readEarly reads what the pipeline needs of a process that may be gone soon: of
// those that were born while we sample, many live only for milliseconds. New
// programs load their libraries first, so the first captures each bring news.
func readEarly(t *thread) *early {
	p := t.proc
	if !p.young.brief || p.young.captures >= 8 {
		return nil
	}
	p.young.captures++
	if p.young.captures&(p.young.captures-1) != 0 { // at 1, 2, 4 and 8
		return nil
	}
	early := earlyOf(p.pid, t.tid)
	if p.replaced() {
		p.program.replaced.Store(true)
		return nil // it may be of the next program
	}
	if p.young.captures == 1 {
		early.pages = p.mem.pages.Duplicate()
	}
	return early
}

// maxEarly bounds the text of mappings that wait for the pipeline, in bytes: programs of two thousand mappings have as much.
const maxEarly = 256 << 10

// upTo bounds the text of mappings that is read.
func upTo(most int) func(text, list int) error {
	return func(text, _ int) error {
		if text > most {
			return procfs.ErrTooLong
		}
		return nil
	}
}

// earlyOf reads mappings and name of a process. tid is a thread of it that lives.
func earlyOf(pid, tid int) *early {
	maps, _ := proc.Maps(tid, upTo(maxEarly)) // if it ends already, its parent's must do
	comm, _ := os.ReadFile(proc.Path(pid, "comm"))
	return &early{maps, comm, -1}
}
