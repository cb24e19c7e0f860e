package output

import (
	"bufio"
	_ "embed"
	"io"
	"strconv"
	"strings"
)

//go:embed page.html
var htmlPage string

//go:embed page.js
var htmlScript string

// HTML writes a flame graph as one HTML page that holds all frames, however
// narrow, and draws those that the window shows: for big profiles, and to look
// deep into them. The root is at the top. Zoom and search are as in [SVG]; the
// page refers to nothing outside of itself.
type HTML struct {
	paths
	w io.Writer
}

// NewHTML returns an HTML that writes to w when it is closed.
func NewHTML(w io.Writer, o Options) *HTML { return &HTML{newPaths(o), w} }

// Add counts one sample; it never fails.
func (h *HTML) Add(s *Sample) error {
	h.add(s)
	return nil
}

// Close writes the page.
func (h *HTML) Close() error { return h.write(h.w) }

func (h *HTML) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16) // remembers its first error
	head, rest, _ := strings.Cut(htmlPage, "{{data}}")
	middle, tail, _ := strings.Cut(rest, "{{script}}")
	out.WriteString(head)
	h.writeData(out)
	out.WriteString(middle)
	out.WriteString(htmlScript)
	out.WriteString(tail)
	return out.Flush()
}

// writeData writes the frames as JSON: names, their colours, and for each frame
// its depth, the number of its name and its own weight, root first.
func (h *HTML) writeData(out *bufio.Writer) {
	fl := h.layout()
	buf := append([]byte(`{"unit":`), appendJSON(nil, h.opts.unit())...)
	buf = append(buf, `,"names":[`...)
	for i, name := range h.names.keys {
		if i > 0 {
			buf = append(buf, ",\n"...)
		}
		buf = appendJSON(buf, name)
		out.Write(buf)
		buf = buf[:0]
	}
	buf = append(buf, "],\n\"colors\":["...)
	for i, name := range h.names.keys {
		if i > 0 {
			buf = append(buf, ',')
		}
		r, g, b := color(name)
		buf = append(buf, `"#`...)
		buf = append(appendHex(buf, uint64(r)<<16|uint64(g)<<8|uint64(b), 6), '"')
		out.Write(buf)
		buf = buf[:0]
	}
	buf = append(buf, "],\n\"frames\":["...)
	for i, b := range fl.bars {
		if i > 0 {
			buf = append(buf, ",\n"...)
		}
		buf = strconv.AppendInt(buf, int64(b.depth), 10)
		buf = strconv.AppendInt(append(buf, ','), int64(b.name), 10)
		buf = strconv.AppendInt(append(buf, ','), b.self, 10)
		out.Write(buf)
		buf = buf[:0]
	}
	out.Write(append(buf, "]}"...))
}
