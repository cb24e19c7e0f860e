package ptrace

// Where a system call has its time limit: an argument in milliseconds, none at all if it is negative; one that is the
// address of a limit, or 0; or its socket, of which nobody else can ask (SO_RCVTIMEO, socket(7)).
const (
	untimed = iota
	millis
	address
	ofSocket
)

// Timed tells whether a thread may wait with a time limit in the system call nr with these arguments, of which a stop would lose what
// has passed: the call is cut short, and ends early or begins anew. (What is left is kept by the kernel, or in memory, of the others:
// signal(7), poll(2), select(2).) narrow: it is a call of a 32-bit program.
//
//go:nosplit
//go:norace
func Timed(nr int64, args *[6]uint64, narrow bool) bool {
	kind, at := timed(nr, args, narrow)
	switch kind {
	case millis:
		return int32(args[at]) > 0
	case address:
		return args[at] != 0
	}
	return kind == ofSocket
}
