package sampler

import (
	"log/slog"
	"time"
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
	PIDs []int // processes to sample
	TIDs []int // if not empty, only these threads
	// Command is a process started by us, already among PIDs; its end is looked
	// out for. 0: none.
	Command     int
	Hz          int
	All         bool // blocked threads too, not only those that run
	WallWeight  bool // a sample weighs one per tick, not the CPU time used
	Stop        StopMode
	NoRestart   bool    // leave an EINTR that a stop has caused, stop no blocked thread
	Children    bool    // follow forks
	Kernel      bool    // the kernel's part of each stack
	ExitStacks  bool    // the stack of each thread at its exit
	MaxOverhead float64 // share of the target's time that pauses may take; 0: no bound
	Nice        bool    // stay at normal priority
	Log         *slog.Logger
	// Suspend gives functions that are called while no thread of a target is stopped, or asked to
	// be: they may stop this process.
	Suspend <-chan func()

	// ended, for tests, is told of each thread that was dropped.
	ended func(tid int)
	// uncounted, for tests: the kernel's run counts are not used.
	uncounted bool
}

func (o *Options) interval() time.Duration { return time.Second / time.Duration(o.Hz) }
