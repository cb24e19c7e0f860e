package procfs

import "bytes"

// KernelFrame is one line of /proc/PID/task/TID/stack.
type KernelFrame struct {
	Func         string // "do_epoll_wait"
	Offset, Size uint64 // of the address in Func, of Func, in bytes
	Module       string // kernel module, empty for the kernel itself
}

// maxKernelFrames bounds a kernel stack: the kernel prints 64 frames at most
// (MAX_STACK_TRACE_DEPTH in fs/proc/base.c).
const maxKernelFrames = 256

// ParseStack parses the content of a stack file, innermost frame first. Lines
// look like "[<0>] do_epoll_wait+0x683/0x7a0 [module]"; a line without a
// symbol ("[<0>] 0xffff…") gives a Func that is the address.
func ParseStack(b []byte) ([]KernelFrame, error) {
	var frames []KernelFrame
	for line := 1; len(b) > 0 && len(frames) < maxKernelFrames; line++ {
		text, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		f, ok := parseKernelFrame(text)
		if !ok {
			return nil, syntaxError("stack", line, "not a kernel frame", text)
		}
		frames = append(frames, f)
	}
	return frames, nil
}

func parseKernelFrame(b []byte) (f KernelFrame, ok bool) {
	if !bytes.HasPrefix(b, []byte("[<")) {
		return f, false
	}
	_, b, ok = bytes.Cut(b, []byte("] "))
	sym, rest := word(b)
	if !ok {
		return f, false
	}
	if m := bytes.TrimSpace(rest); len(m) > 2 && m[0] == '[' && m[len(m)-1] == ']' {
		f.Module = string(m[1 : len(m)-1])
	}
	name, place, found := bytes.Cut(sym, []byte{'+'})
	f.Func = string(name)
	if !found {
		return f, len(name) > 0
	}
	f.Offset, place, ok = prefixedHex(place)
	if place, cut := literal(place, '/'); cut && ok {
		f.Size, _, ok = prefixedHex(place)
	}
	return f, ok && len(name) > 0
}
