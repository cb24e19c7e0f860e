package output

import (
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// jsonVersion is the value of "version" in each line. It grows when a field
// changes its meaning or goes, not when one is added.
const jsonVersion = "2"

// JSON writes one object a line for each sample, as it comes:
//
//	version      2 (1 had a weight in ticks)
//	time_ns      nanoseconds since 1970
//	pid, tid, process, thread
//	state        "running", or the system call that the thread blocks in
//	gil          "held", if the thread held its interpreter's global lock
//	taken        how: "stop", "no stop", "reused", "exit"; "none": CPU time that no
//	             sample stands for
//	cpu_ns       CPU time since the thread's last sample
//	wall_ns      time that the sample stands for
//	delay_ns, pause_ns, late_ns
//	complete     whether the stack is
//	end          why it is not
//	frames       innermost first: pc, function, offset, module, path, build_id,
//	             file, line, inlined, kernel, method
//
// Addresses and offsets are strings of hexadecimal digits ("0x7f…"), since
// numbers in JSON are exact only to 2^53. Fields of a frame that are not known
// are left out. Strings are the names as they are, with \u escapes for all that
// cannot be printed; a byte that is no UTF-8 is U+FFFD.
type JSON struct {
	stream
	buf []byte
}

// NewJSON returns a JSON that writes to w.
func NewJSON(w io.Writer, _ Options) *JSON {
	return &JSON{stream: newStream(w)}
}

// Add writes one line.
func (j *JSON) Add(s *Sample) error {
	b := append(j.buf[:0], `{"version":`+jsonVersion...)
	b = appendField(b, "time_ns", s.Time.UnixNano())
	b = appendField(b, "pid", int64(s.PID))
	b = appendField(b, "tid", int64(s.TID))
	b = appendText(b, "process", s.Process)
	b = appendText(b, "thread", s.Thread)
	b = appendText(b, "state", s.State)
	if s.Wait != "" {
		b = appendText(b, "wait", s.Wait)
	}
	if s.GIL != "" {
		b = appendText(b, "gil", s.GIL)
	}
	b = appendText(b, "taken", s.Taken)
	b = appendField(b, "cpu_ns", int64(s.CPU))
	b = appendField(b, "wall_ns", int64(s.Wall))
	b = appendField(b, "delay_ns", int64(s.Delay))
	b = appendField(b, "pause_ns", int64(s.Pause))
	b = appendField(b, "late_ns", int64(s.Late))
	b = append(b, `,"complete":`...)
	b = strconv.AppendBool(b, s.Stack != nil && s.Stack.End == "")
	if s.Stack != nil && s.Stack.End != "" {
		b = appendText(b, "end", s.Stack.End)
	}
	b = append(b, `,"frames":[`...)
	if s.Stack != nil {
		for i := range s.Stack.Frames {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSONFrame(b, &s.Stack.Frames[i])
		}
	}
	b = append(b, "]}\n"...)
	j.buf = b
	return j.write(b, s.Time)
}

func appendJSONFrame(b []byte, f *Frame) []byte {
	start := len(b)
	if f.PC != 0 || !f.Kernel {
		b = append(b, `,"pc":"0x`...)
		b = strconv.AppendUint(b, f.PC, 16)
		b = append(b, '"')
	}
	if f.Func != "" {
		b = appendText(b, "function", f.Func)
	}
	if f.Func != "" || f.Module != "" {
		b = append(b, `,"offset":"0x`...)
		b = strconv.AppendUint(b, f.Offset, 16)
		b = append(b, '"')
	}
	if f.Module != "" {
		b = appendText(b, "module", f.Module)
	}
	if m := f.Mapping; m != nil {
		b = appendText(b, "path", m.Path)
		if m.BuildID != "" {
			b = appendText(b, "build_id", m.BuildID)
		}
	}
	if f.File != "" {
		b = appendText(b, "file", f.File)
		b = appendField(b, "line", int64(f.Line))
	}
	if f.Inlined {
		b = append(b, `,"inlined":true`...)
	}
	if f.Kernel {
		b = append(b, `,"kernel":true`...)
	}
	if f.How != "" {
		b = appendText(b, "method", f.How)
	}
	if len(b) == start {
		b = append(b, ' ')
	}
	b[start] = '{' // in the place of the first comma
	return append(b, '}')
}

func appendField(b []byte, name string, v int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, v, 10)
}

func appendText(b []byte, name, value string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendJSON(b, value)
}

// appendJSON appends s as a JSON string (RFC 8259 section 7) without any
// unprintable character in it, and without '<', so that it may stand in a
// script element of HTML too.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case unicode.IsPrint(r) && r != '<':
			b = append(b, s[i:i+n]...)
		case r > 0xffff:
			// Beyond the BMP JSON knows only surrogate pairs.
			r -= 0x10000
			b = appendHex(append(b, `\u`...), 0xd800+uint64(r>>10), 4)
			b = appendHex(append(b, `\u`...), 0xdc00+uint64(r&0x3ff), 4)
		default:
			b = appendHex(append(b, `\u`...), uint64(r), 4)
		}
		i += n
	}
	return append(b, '"')
}
