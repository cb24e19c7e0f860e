package unwind

// Reason says why a step cannot be made, or why a walk ended. There are few of
// them, so that they can be counted. A Reason is an error; Complete is never
// returned as one.
type Reason uint8

const (
	Complete        Reason = iota // the outermost frame was reached
	Outermost                     // a row says so: from Step only, a walk says Complete
	DepthLimit                    // there are more frames than were asked for
	OutsideCopy                   // the stack goes on beyond the copy: a larger one helps
	Unreadable                    // memory that the rule names cannot be read
	NoRow                         // no method knows the code at this address
	UnknownRegister               // the rule needs a register whose value is lost
	NotCode                       // the return address lies in no executable mapping
	NotAfterCall                  // no call stands before the return address (only for methods without a table)
	ZeroReturn                    // the return address is 0, but nothing says that a stack starts here
	NoProgress                    // the stack pointer would not grow
	Misaligned                    // the stack pointer would not be a multiple of the word size
	StackSwitch                   // the caller's stack pointer lies in another mapping
	BadRule                       // the row's rule makes no sense for this architecture or frame
	Loop                          // a signal frame leads back to a frame that was seen
	FramesMissing                 // no method leads on, but the root behind what is missing is known
	numReasons
)

var reasonTexts = [numReasons]string{
	Complete:        "complete",
	Outermost:       "outermost frame",
	DepthLimit:      "depth limit",
	OutsideCopy:     "stack copy too small",
	Unreadable:      "unreadable stack",
	NoRow:           "no unwind information",
	UnknownRegister: "register unknown",
	NotCode:         "return address not in code",
	NotAfterCall:    "return address not after a call",
	ZeroReturn:      "return address 0",
	NoProgress:      "stack does not grow",
	Misaligned:      "misaligned stack",
	StackSwitch:     "stack switch",
	BadRule:         "unusable row",
	Loop:            "loop",
	FramesMissing:   "frames missing",
}

// String is the fixed text of the reason, as outputs print it.
func (r Reason) String() string {
	if r < numReasons {
		return reasonTexts[r]
	}
	return "unknown reason"
}

// Error makes a Reason an error; conversion allocates nothing, as one byte.
func (r Reason) Error() string { return r.String() }

// End says how a walk ended.
type End struct {
	Reason Reason
	// Addr is the address that the reason is about: the code address without
	// rows, the return address that is none, the stack address that cannot be
	// read. 0 when the stack is complete.
	Addr uint64
	// Repeated: the walk in the order asked for ended short, and this is the
	// longer one of a repetition with .eh_frame before .sframe.
	Repeated bool
	// Lacks is where the memory ended in which the root was looked for that lies behind a gap; 0: it was looked for nowhere, or up to the
	// bound.
	Lacks uint64
}

// Complete: the stack was walked to its outermost frame.
func (e End) Complete() bool { return e.Reason == Complete }
