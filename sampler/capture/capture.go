package capture

import (
	"iter"
	"math"
	"time"

	"sfsample/ptrace/procfs"
)

// Taken says how a capture was made.
type Taken uint8

const (
	Stopped   Taken = iota // at a stop that we asked for
	Unstopped              // read from a blocked thread without a stop
	Exiting                // at the thread's exit
)

var takenNames = []string{"stop", "no stop", "exit"}

// String is the name that outputs use.
func (t Taken) String() string {
	if int(t) < len(takenNames) {
		return takenNames[t]
	}
	return "unknown"
}

// Call is the line of /proc/PID/task/TID/syscall: all that the kernel publishes
// of a thread that is not stopped by us.
type Call struct {
	NR     int64 // -1: blocked outside a call, as in a page fault
	Args   [6]uint64
	SP, PC uint64
}

// Capture is one look at one thread.
type Capture struct {
	PID, TID int
	Tick     int64         // number of the tick that asked for it
	At       time.Duration // since the start of the run
	Taken    Taken
	Blocked  bool   // the thread was in a system call (Regs.Call.NR, or as Regs.Note tells)
	Count    uint64 // how often the thread had been put on a CPU (schedstat)

	Regs  Registers
	Stack Stack
	// Beyond is of further stacks: of the one that a signal handler on an alternate stack has
	// interrupted, and of those that functions have changed from; and of an interpreter's memory.
	Beyond Copies
	// Roots are the states that an interpreter had of the thread: addresses.
	Roots []uint64

	// Doubt is where it is not known what code was mapped when this was
	// captured. End 0: it is known of all of its frames.
	Doubt Range
	// Marks are what memory held where objects have what they are recognised by; of no bytes where
	// nothing was at hand. They are not recorded: Doubt is what came of them.
	Marks Copies

	// Kernel is what /proc/PID/task/TID/stack held, if it was asked for and may
	// be read.
	Kernel []byte

	Weight Weight
}

// Registers are those of a thread in user mode.
type Registers struct {
	Note []byte // NT_PRSTATUS; empty of a thread that was not stopped
	FP   []byte // s390x: NT_PRFPREG, where it was read
	Call Call   // of a thread that was not stopped
	// PACMask holds the bits of a code pointer that authenticate it (arm64,
	// NT_ARM_PAC_MASK); 0: not known, or none.
	PACMask uint64
}

// Stack is the copy of a stack from the stack pointer on.
type Stack struct {
	Addr  uint64 // of Bytes[0]
	Bytes []byte
}

// Range is a part of an address space.
type Range struct{ Start, End uint64 }

// Unwalked is the doubt of a capture whose stack there was no time to walk: nothing is kept of it.
var Unwalked = Range{0, math.MaxUint64}

// Copies are pieces of memory.
type Copies struct {
	Blocks []Block
	Bytes  []byte // of the blocks, one behind another
}

// All returns the copies with their addresses.
func (c *Copies) All() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		at := 0
		for _, b := range c.Blocks {
			if !yield(b.Addr, c.Bytes[at:at+b.Len]) {
				return
			}
			at += b.Len
		}
	}
}

// At returns the copy of a block that begins at addr, if there is one.
func (c *Copies) At(addr uint64) (b []byte, ok bool) {
	for a, b := range c.All() {
		if a == addr {
			return b, true
		}
	}
	return nil, false
}

// Add adds a copy.
func (c *Copies) Add(addr uint64, b []byte) {
	c.Blocks, c.Bytes = append(c.Blocks, Block{addr, len(b)}), append(c.Bytes, b...)
}

// Reset leaves the room.
func (c *Copies) Reset() { c.Blocks, c.Bytes = c.Blocks[:0], c.Bytes[:0] }

// Block is a piece of memory that was copied.
type Block struct {
	Addr uint64
	Len  int // bytes
}

// Weight is the time that a sample stands for.
type Weight struct {
	CPU   time.Duration // CPU time of the thread since its last sample
	Wall  time.Duration // ticks that the sample stands for, as time
	Delay time.Duration // from the interrupt to the stop
	Pause time.Duration // from the stop to its continuation
	Late  time.Duration // how late the tick was
}

// Credit gives the last stack of a thread more weight: the thread has not run
// since.
type Credit struct {
	PID, TID int
	At       time.Duration
	Waited   bool // it waited for a CPU, which is a frame on that stack
	Weight
}

// Spent is CPU time of a process that no sample stands for. TID is 0 where it is that of no thread that is known.
type Spent struct {
	PID, TID int
	Weight
}

// Name tells what a process (TID 0) or a thread is called.
type Name struct {
	PID, TID int
	Name     string
}

// Run is the first record of a stream.
type Run struct {
	Host   string // GOARCH of the kernel
	Start  time.Time
	Hz     float64
	Weight string // "cpu" or "wall"

	// For titles; recordings of before have none.
	Command string // command line of our command, or of the first process that was given
	PIDs    []int  // processes that were given
	Machine string // its name
}

// Region is one mapping of a process.
type Region struct {
	procfs.Mapping
	BuildID string // of the mapped file, lower-case hex; empty if unknown
	// Of an object without a build-id, as fstat(2) tells; 0 if unknown. Recordings of before have none.
	Size, Modified int64 // bytes; nanoseconds since 1970
}

// Maps is the address space of a process from here on in the stream.
type Maps struct {
	PID     int
	Regions []Region
	VDSO    []byte // memory of the vDSO, whose start is the region named [vdso]
}

// Memory is what was read of a process to understand and name what an interpreter runs.
type Memory struct {
	PID   int
	Addr  uint64
	Bytes []byte
}

// Gone ends what is known of a process: it has exited, or called exec and is
// another program from here on.
type Gone struct{ PID int }
