package symbol

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"sfsample/internal/late"
)

// GoTable tells of the functions of a Go program what the runtime itself unwinds
// by: their bounds and names, and at each address how much of the stack they have
// taken. Stripped programs have it too. It is for one goroutine at a time.
type GoTable struct {
	t   *goTable
	mem io.ReaderAt
	buf [goReadBytes]byte
}

// goReadBytes is how much is read at once of a function's record or values.
const goReadBytes = 512

// GoFunc is a function of a Go program.
type GoFunc struct {
	Start, End uint64 // link-time addresses
	Name       string
	Top        bool // it begins stacks; sigtramp, which the kernel calls, is so marked as well
	SPWrite    bool // it sets the stack pointer to other values than sums with constants
	Asm        bool // it is written in assembly

	pcsp uint32 // offset of its values from goParts.pc
}

// Flags of functions (internal/abi/symtab.go, FuncFlag).
const (
	goTopFrame = 1 << iota
	goSPWrite
	goAsm
)

// Foreign tells whether it is code of another language that Go's linker took in: the table knows where it is, and no more.
func (f GoFunc) Foreign() bool { return f.pcsp == 0 }

// OpenGoTable finds the table in a file, which is read for its index of
// functions, as long as there is time. What is asked for later is read from mem, the program's memory by
// link-time address. Tables of Go 1.18 and later are read.
func OpenGoTable(f File, mem io.ReaderAt, until *late.Time) (*GoTable, error) {
	im, err := openImage(f, until)
	if err != nil {
		return nil, err
	}
	defer im.release()
	t, err := findGoTable(im)
	if err != nil {
		return nil, err
	}
	if t.version < go118 {
		return nil, &FormatError{t.off, "pclntab: layout before Go 1.18", uint64(t.version)}
	}
	t.im, t.data, t.names = nil, debugSection{}, stringTable{} // the file is going to be closed
	return &GoTable{t: t, mem: mem}, nil
}

// Bytes is how much memory the index takes.
func (g *GoTable) Bytes() int { return 12 * len(g.t.entry) }

// goRecordBytes is the size of what is used of a function's record: 11 fields of
// 32 bits in Go 1.20, of which the last has the flags; 10 before.
const goRecordBytes = 44

// Covers tells whether a link-time address lies in one of the functions.
func (g *GoTable) Covers(pc uint64) bool { return g.t.find(pc) != none }

// Func returns the function at a link-time address. ok is false if there is none.
func (g *GoTable) Func(pc uint64) (f GoFunc, ok bool, err error) {
	t := g.t
	i := t.find(pc)
	if i == none {
		return f, false, nil
	}
	f.Start, f.End = t.entry[i], t.entry[i+1]
	var rec [goRecordBytes]byte
	if err := g.read(rec[:], t.parts.fn+int64(t.fn[i])); err != nil {
		return f, false, err
	}
	flags := rec[41]
	if t.version == go118 {
		flags = rec[37]
	}
	f.Top, f.SPWrite, f.Asm = flags&goTopFrame != 0, flags&goSPWrite != 0, flags&goAsm != 0
	f.pcsp = t.order.Uint32(rec[4+4*3:])
	f.Name, err = g.name(t.order.Uint32(rec[4:]))
	return f, err == nil, err
}

// StackSize returns how far the stack pointer is at pc, in f, below where it was at
// the function's entry, in bytes; -1 if that is not known.
func (g *GoTable) StackSize(f GoFunc, pc uint64) (int32, error) {
	if f.Foreign() {
		return -1, nil
	}
	return g.value(f, f.pcsp, pc)
}

// maxGoValues bounds the bytes read of one function's values.
const maxGoValues = 64 << 10

// value decodes the table of pc-value pairs at offset off (runtime/symtab.go,
// pcvalue and step) up to pc.
func (g *GoTable) value(f GoFunc, off uint32, pc uint64) (int32, error) {
	at, v := f.Start, int32(-1)
	pos, end := g.t.parts.pc+int64(off), g.t.parts.pc+int64(off)+maxGoValues
	bad := func(text string) (int32, error) {
		return 0, &FormatError{g.t.off + pos, "pclntab: stack of " + f.Name + ": " + text, pc}
	}
	var b []byte
	for first := true; ; first = false {
		if len(b) < 2*binary.MaxVarintLen32 {
			var err error
			if b, err = g.readSome(pos); err != nil {
				return 0, err
			}
		}
		d, n := binary.Uvarint(b)
		if n <= 0 || d > 1<<32-1 || d == 0 && !first {
			return bad("values end before the address")
		}
		v += int32(uint32(d)>>1) ^ -int32(d&1)
		step, m := binary.Uvarint(b[n:])
		at += step * g.t.quantum
		switch {
		case m <= 0 || step == 0 || step > 1<<32-1 || at > f.End:
			return bad("values do not fit the function")
		case pc < at:
			return v, nil
		}
		b, pos = b[n+m:], pos+int64(n+m)
		if pos > end {
			return bad("too many values")
		}
	}
}

// name reads a function's name.
func (g *GoTable) name(off uint32) (string, error) {
	b, err := g.readSome(g.t.parts.name + int64(off))
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(string(b), "\x00")
	return goName(name), nil
}

// read fills b from an offset in the table.
func (g *GoTable) read(b []byte, off int64) error {
	if off < 0 || off > g.t.size-int64(len(b)) {
		return &FormatError{g.t.off, "pclntab: part lies outside the table", uint64(off)}
	}
	if _, err := g.mem.ReadAt(b, int64(g.t.addr)+off); err != nil {
		return fmt.Errorf("read Go's table of functions at %#x: %w", g.t.addr+uint64(off), err)
	}
	return nil
}

// readSome reads goReadBytes from an offset, less at the table's end. They are
// valid until the next call.
func (g *GoTable) readSome(off int64) ([]byte, error) {
	b := g.buf[:max(1, min(goReadBytes, g.t.size-off))]
	return b, g.read(b, off)
}
