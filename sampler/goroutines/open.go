package goroutines

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"sfsample/sampler/symbol"
)

// Memory is that of a process.
type Memory interface {
	io.ReaderAt
	// ReadRanges reads pieces of memory to buf, one behind the other, and returns how many bytes there were up to the
	// first piece that could not be read.
	ReadRanges(buf []byte, list []Range) int
}

// Range is a piece of memory.
type Range struct {
	Addr uint64
	Size int // in bytes
}

// Runtime is Go's in one process.
type Runtime struct {
	Version string // of Go, as the program tells it
	layout  layout
	order   binary.ByteOrder
	list    uint64 // where the slice of all goroutines is (runtime.allgs)
	reasons []string
}

// Open finds the runtime of a program whose file p is, loaded at bias (address in the process = link-time address + bias).
// An error says why its goroutines cannot be read, and what helps.
func Open(p *symbol.GoProgram, bias uint64, mem Memory) (*Runtime, error) {
	r := &Runtime{Version: p.Version(), order: p.Order()}
	minor := releaseOf(r.Version)
	known := false
	if r.layout, known = releases[minor]; !known {
		l, missing := described(p)
		if missing != "" {
			return nil, fmt.Errorf("the layout of goroutines of %s is not known, and its debugging information does not tell it (%s is missing; known are Go 1.19 to 1.26; try: a program built without -ldflags=-w)", versionText(r.Version), missing)
		}
		r.layout = l
	}
	vars := p.Variables("runtime.allgs", "runtime.waitReasonStrings")
	if v := vars["runtime.waitReasonStrings"]; v.Size > 0 {
		r.reasons = r.readReasons(mem, v.Addr+bias, v.Size)
	}
	if r.reasons == nil {
		r.reasons = reasonsOf(minor)
	}
	const sliceBytes = 24
	if v := vars["runtime.allgs"]; v.Size == sliceBytes {
		r.list = v.Addr + bias
		return r, nil
	}
	if r.list = r.search(p, bias, mem); r.list == 0 {
		help := "and its list of goroutines could not be found without them"
		if p.Machine() != elf.EM_X86_64 {
			help = "without which its list of goroutines is found on x86-64 only"
		}
		return nil, fmt.Errorf("the program has no symbols, %s (try: a program built without -ldflags=-s)", help)
	}
	return r, nil
}

// versionText is a version for messages. It comes from the program.
func versionText(v string) string {
	const longest = 40
	if v == "" {
		return "its version of Go"
	}
	return fmt.Sprintf("%q", v[:min(len(v), longest)])
}

// searchTries is how often the list is looked for: while it grows, its copies differ.
const searchTries = 3

// search finds the list by the code of runtime.allgadd (runtime/proc.go), which appends to it. Among what that refers to there
// is one slice of which the address and the length stand in other variables too, runtime.allgptr and
// runtime.allglen. 0: it is not found, or is not the only one.
func (r *Runtime) search(p *symbol.GoProgram, bias uint64, mem Memory) uint64 {
	refs, err := p.References("runtime.allgadd")
	if err != nil {
		return 0
	}
	for range searchTries {
		var found []uint64
		words := map[uint64]uint64{}
		for _, at := range refs {
			var b [8]byte
			if r.read(mem, at+bias, b[:]) {
				words[at] = r.order.Uint64(b[:])
			}
		}
		for _, at := range refs {
			ptr, n, c := words[at], words[at+8], words[at+16]
			_, whole := words[at+16]
			if !whole || !slices.Contains(refs, at+8) || !slices.Contains(refs, at+16) || ptr == 0 || n == 0 || n > c {
				continue
			}
			elsewhere := func(v uint64) bool {
				return slices.ContainsFunc(refs, func(o uint64) bool { return o-at >= 24 && words[o] == v })
			}
			if elsewhere(ptr) && elsewhere(n) {
				found = append(found, at+bias)
			}
		}
		if len(found) == 1 {
			return found[0]
		}
	}
	return 0
}

// maxAddr is above all addresses of programs on the machines that Go runs on (runtime/malloc.go, heapAddrBits is 48).
const maxAddr = 1 << 56

// read fills b from addr. false: it cannot be read.
func (r *Runtime) read(mem io.ReaderAt, addr uint64, b []byte) bool {
	if addr == 0 || addr > maxAddr {
		return false
	}
	n, _ := mem.ReadAt(b, int64(addr))
	return n == len(b)
}
