package sampler

import (
	"log/slog"
	"time"

	"sfsample/ptrace/procfs"
)

// StopMode says which threads may be stopped.
type StopMode uint8

const (
	StopAuto   StopMode = iota // running threads, and a blocked one only where nothing else helps
	StopNever                  // none: only what can be read without a stop
	StopAlways                 // every thread at every tick that may be stopped
)

// Options are the settings of a run.
type Options struct {
	PIDs   []int // processes to sample
	TIDs   []int // if not empty, only these threads
	Follow Follow

	Hz         int
	All        bool // blocked threads too, not only those that run
	WallWeight bool // a sample weighs one per tick, not the CPU time used
	Stop       StopMode
	NoRestart  bool          // leave an EINTR that a stop has caused, stop no blocked thread
	Kernel     bool          // the kernel's part of each stack
	ExitStacks bool          // the stack of each thread at its exit
	Every      time.Duration // of a round: the sink is told of each one's end, if it is a [RoundSink]; 0: the run is one

	Budget Budget
	Hooks  Hooks
	Log    *slog.Logger

	test forTests
}

// Follow says which processes come to those that were given.
type Follow struct {
	// Found are processes that a search has found. One that cannot be sampled is told of; that is an error of
	// the run only if none of them can, and not if Patient.
	Found   []int
	Patient bool
	// Joins gives processes that are found while the run goes on, of which one that cannot be sampled is told
	// of. Until it is closed a run goes on even when no process is left; nil: none come.
	Joins    <-chan []int
	Again    func(pid int) // is told of those of both that cannot be sampled: they may come once more; nil: nobody is
	Children bool          // those that are forked
	// Command is a process started by us, already among PIDs; its end is looked
	// out for. 0: none.
	Command int
}

// Budget is what a run may take.
type Budget struct {
	MaxOverhead float64 // share of the target's time that pauses may take; 0: no bound
	MaxCPU      float64 // share of a CPU that this program may take; 0: no bound
	Nice        bool    // stay at normal priority
	// Seldom: this program is to take little, and an account may come late: threads are looked at some ticks at a time, where the
	// clocks need nobody in between.
	Seldom bool
}

// Hooks are where a run and its caller meet; each may be nil.
type Hooks struct {
	// Suspend gives functions that are called while no thread of a target is stopped, or asked to
	// be: they may stop this process.
	Suspend <-chan func()
	// Released is called when sampling has ended and no thread of a target is held any more: what follows is
	// unwinding, naming and writing. It is not called where a thread may be held to the end, as one of ours hangs.
	Released func()
	// Looked gives what has just been read of a thread that was blocked then, for [Dump]: that is not read again if the thread
	// has not run since.
	Looked func(tid int) *procfs.TaskLook
}

// forTests is what only tests set.
type forTests struct {
	firstStride int64         // the stride to begin with
	ended       func(tid int) // is told of each thread that was dropped
	uncounted   bool          // the kernel's run counts are not used
}

func (o *Options) interval() time.Duration { return time.Second / time.Duration(o.Hz) }
