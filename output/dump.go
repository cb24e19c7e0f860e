package output

import (
	"io"
	"strconv"
	"strings"
)

// AppendFrame appends the line, without its end, that shows frame n of a stack
// to people:
//
//	#0 0x00007f1234567890 read+0x1f (libc.so.6) [regs] at read.c:26
//	k0 vfs_read+0x60 (kernel)
//
// A frame that stands for something else than code has no offset and the method
// "none". An inlined frame has the address of the frame that it stands in, no offset
// and "[inlined]" as its method. The file and line stand there if they are
// known.
func AppendFrame(b []byte, n int, f *Frame) []byte {
	if f.Kernel {
		b = strconv.AppendInt(append(b, 'k'), int64(n), 10)
		b = append(b, ' ')
		if f.PC != 0 {
			b = append(appendHex(append(b, "0x"...), f.PC, 16), ' ')
		}
		return append(appendOffset(b, f), " (kernel)"...)
	}
	b = strconv.AppendInt(append(b, '#'), int64(n), 10)
	b = append(appendHex(append(b, " 0x"...), f.PC, 16), ' ')
	b = appendOffset(b, f)
	b = append(b, " ("...)
	if f.Module != "" {
		b = appendClean(b, f.Module)
	} else {
		b = append(b, "[unmapped]"...)
	}
	b = append(b, ") ["...)
	if f.Inlined {
		b = append(b, "inlined"...)
	} else if f.How == "" {
		b = append(b, "none"...)
	} else {
		b = appendClean(b, f.How)
	}
	b = append(b, ']')
	if f.File != "" {
		b = appendClean(append(b, " at "...), f.File)
		if f.Line > 0 {
			b = strconv.AppendInt(append(b, ':'), int64(f.Line), 10)
		}
	}
	return b
}

// appendOffset appends "name+0x1f", which an unnamed frame already is.
func appendOffset(b []byte, f *Frame) []byte {
	switch {
	case f.Func == "":
		named := *f
		named.Kernel = false
		return appendName(b, &named)
	case f.Inlined, f.Script, f.marker():
		return appendClean(b, f.Func)
	}
	b = append(appendClean(b, f.Func), "+0x"...)
	return strconv.AppendUint(b, f.Offset, 16)
}

// AppendStack appends the lines of a stack for people: the kernel's frames from
// k0, the user's from #0, each innermost first, and how the stack ended. No
// line but the frames' contains "0x".
func AppendStack(b []byte, s *Stack) []byte {
	if s == nil {
		return b
	}
	var kernel, user int
	for i := range s.Frames {
		if f := &s.Frames[i]; f.Kernel {
			b = append(AppendFrame(b, kernel, f), '\n')
			kernel++
		}
	}
	for i := range s.Frames {
		if f := &s.Frames[i]; !f.Kernel {
			b = append(AppendFrame(b, user, f), '\n')
			user++
		}
	}
	if s.End == "" {
		return append(b, "end: complete\n"...)
	}
	b = append(b, "end: truncated: "...)
	b = appendClean(b, strings.ReplaceAll(s.End, "0x", ""))
	return append(b, '\n')
}

// Dump writes each sample as text for people, as it comes:
//
//	tid 101 worker (app 100): running, 20ms CPU, by stop
//	#0 …
//	end: complete
//
// with an empty line after it.
type Dump struct {
	stream
	buf []byte
}

// NewDump returns a Dump that writes to w.
func NewDump(w io.Writer, _ Options) *Dump {
	return &Dump{stream: newStream(w)}
}

// Add writes one sample.
func (d *Dump) Add(s *Sample) error {
	b := append(d.buf[:0], "tid "...)
	b = append(strconv.AppendInt(b, int64(s.TID), 10), ' ')
	b = append(appendClean(b, s.Thread), " ("...)
	b = append(appendClean(b, s.Process), ' ')
	b = append(strconv.AppendInt(b, int64(s.PID), 10), "): "...)
	b = append(appendClean(b, s.State), ", "...)
	b = append(append(b, s.CPU.String()...), " CPU, by "...)
	b = append(appendClean(b, s.Taken), '\n')
	b = append(AppendStack(b, s.Stack), '\n')
	d.buf = b
	return d.write(b, s.Time)
}
