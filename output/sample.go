package output

import "time"

// Mapping is a mapped file, for outputs that keep addresses.
type Mapping struct {
	Start, End uint64 // addresses in the process, End excluded
	FileOff    uint64 // offset in the file of Start
	Image      uint64 // address in the process of the lowest page of the module's segments; 0: not known
	Path       string // as the target's maps have it
	BuildID    string // lower-case hex, empty if there is none
}

// Frame is one named frame. Names come from the target and may hold any byte:
// each writer escapes what its format cannot carry.
type Frame struct {
	Func    string   // name, demangled as asked for, or cc1plus:fn_007ca800, by where it begins; empty if unknown
	Module  string   // file name without folders, "[vdso]", "[anon]"; empty if unmapped
	Offset  uint64   // of PC from the start of Func, or of the piece of it; without Func, the address in the module's own numbering, or of the start of its region
	PC      uint64   // address in the process, unmodified
	File    string   // source file, if lines were asked for and are known
	Line    int      // source line, 0 if unknown
	Inlined bool     // Func was inlined into the next frame (outward); PC is the same there
	Kernel  bool     // a frame of the kernel
	Waits   bool     // no code: Func is what the thread waits for
	Script  bool     // a frame of a script: Module is its interpreter, and PC is in the native frame that runs it; no Offset
	How     string   // method that found the frame: "regs", "sframe", "eh_frame", "code", "fp", "backchain", "signal", "runtime"; of a script the interpreter: "python", "php", "ruby", "perl", "java", "lua", "erlang", "node"
	Mapping *Mapping // nil if PC lies in no mapped file
}

// Stack is an interned stack: equal stacks of one process share one *Stack, so
// that consumers may count by pointer. It does not change once handed out.
type Stack struct {
	Frames []Frame // innermost first
	// End says how the stack ended: empty when it is complete, else the reason
	// why it is cut ("unreadable stack at 0x…" has no place here: reasons are
	// few and fixed, so that they can be counted).
	End string
}

// Sample is one look at one thread, and the time that it stands for.
type Sample struct {
	Time     time.Time
	PID, TID int
	Process  string // name of the process
	Thread   string // name of the thread
	State    string // "running", or the name of the system call that it blocks in
	Wait     string // what it waits for, in a few words: "futex: mutex held by worker-3"; empty if that was not asked for or is not known
	GIL      string // "held": of those of its interpreter it was the one that held the global lock; else empty
	Taken    string // "stop", "no stop", "reused", "exit", "none"
	Stack    *Stack
	CPU      time.Duration // CPU time of the thread since its last sample
	Wall     time.Duration // time that the sample stands for
	Delay    time.Duration // from our interrupt to the stop
	Pause    time.Duration // from the stop to its continuation
	Late     time.Duration // how late the tick was
}

// Sink consumes samples. Add does not keep s, but may keep s.Stack. Close
// writes what is still held and reports the first error; it is called once.
type Sink interface {
	Add(s *Sample) error
	Close() error
}
