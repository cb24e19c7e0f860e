package output

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strconv"
)

// Measures of the picture, in pixels.
const (
	svgWidth  = 1200
	svgMargin = 10
	svgRow    = 16
	svgTop    = 68 // title and controls
	svgBottom = 32 // details of the frame under the mouse
	// svgChar is the room for a character at 12 pixels: 7.22 in DejaVu Sans Mono,
	// 7.20 in Liberation Mono and Courier New, less in others that "monospace"
	// may stand for.
	svgChar = 7.25
	// svgMinWidth is the width of the narrowest frame that is drawn.
	svgMinWidth = 0.1
	// svgMaxDepth is how many rows are drawn. Browsers draw no more than 32,767 or
	// 65,535 pixels.
	svgMaxDepth = 4000
	// svgMaxBytes is about how large the file may become: hostile names are long, and
	// each frame has its own.
	svgMaxBytes = 32 << 20
)

//go:embed svg.js
var svgScript string

// svgHead wants width, height, middle, title, details of the run, left, right, the base line of the details and
// the legend.
const svgHead = `<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<svg version="1.1" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="monospace" xmlns="http://www.w3.org/2000/svg">
<style>
text { font: 12px monospace; fill: #111 }
#frames rect { stroke: #f8f8f4; stroke-width: 0.2 }
#frames g { cursor: pointer }
#frames g:hover rect { stroke: #000; stroke-width: 1 }
#frames text { pointer-events: none }
#frames .above rect { opacity: 0.5 }
#frames .match rect { fill: #c05cf0 }
.control { cursor: pointer; fill: #555 }
.hidden { display: none }
</style>
<rect width="100%%" height="100%%" fill="#f8f8f4"/>
<text x="%[3]d" y="22" id="title" text-anchor="middle" style="font-size: 17px">%[4]s</text>
<text x="%[3]d" y="40" id="run" text-anchor="middle">%[5]s</text>
<text id="reset" class="control hidden" x="%[6]d" y="58">reset zoom</text>
<text id="matched" x="%[7]d" y="58" text-anchor="end"></text>
<svg id="legend" overflow="visible">%[9]s</svg>
<text id="details" x="%[6]d" y="%[8]d"></text>
`

// SVG writes a flame graph as one SVG file with a script of its own, to be
// opened in a browser, whose window it fits: a click on a frame zooms in, and what is
// typed into its field (or after /) marks the frames that match that expression and
// says their share. The root is at the bottom, the
// width of a frame is its share of the weight, its neighbours are sorted by
// name. It refers to nothing outside of itself. Frames narrower than 0.1 pixel
// are left out, and counted.
type SVG struct {
	paths
	w io.Writer
}

// NewSVG returns an SVG that writes to w when it is closed.
func NewSVG(w io.Writer, o Options) *SVG {
	s := &SVG{newPaths(o), w}
	s.kinds = true
	return s
}

// Add counts one sample; it never fails.
func (s *SVG) Add(sample *Sample) error {
	s.add(sample)
	return nil
}

// Close writes the picture.
func (s *SVG) Close() error { return s.write(s.w) }

func (s *SVG) write(w io.Writer) error {
	fl := s.layout()
	out := bufio.NewWriterSize(w, 1<<16) // remembers its first error
	const inner = svgWidth - 2*svgMargin
	scale := 0.0
	if fl.total > 0 {
		scale = inner / float64(fl.total)
	}
	narrowest := s.narrowest(fl, scale)
	drawn := func(b bar) bool { return float64(b.total)*scale >= narrowest && b.depth < svgMaxDepth }
	var narrow, depth int
	for _, b := range fl.bars {
		if !drawn(b) {
			narrow++
		} else {
			depth = max(depth, b.depth+1)
		}
	}
	if fl.total <= 0 {
		depth = len(emptyLines) + 1
	}
	height := svgTop + depth*svgRow + svgBottom
	title, details := s.opts.heading(&s.run, fl.total)
	fmt.Fprintf(out, svgHead, svgWidth, height, svgWidth/2, appendXML(nil, title), appendXML(nil, details),
		svgMargin, svgWidth-svgMargin-200, height-12, s.legend(fl))
	if narrow > 0 {
		fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" id=\"left\" text-anchor=\"end\">%s left out</text>\n",
			svgWidth-svgMargin, height-12, Plural(int64(narrow), "narrower or deeper frame"))
	}
	if fl.total <= 0 {
		for i, line := range emptyLines {
			fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", svgMargin, svgTop+(i+1)*svgRow, line)
		}
	}
	out.WriteString("<g id=\"frames\">\n")
	var buf []byte
	for _, b := range fl.bars {
		if !drawn(b) {
			continue
		}
		width := float64(b.total) * scale
		x := svgMargin + float64(b.left)*scale
		y := height - svgBottom - (b.depth+1)*svgRow
		buf = s.appendBar(buf[:0], b, x, y, width, fl.total)
		out.Write(buf)
	}
	out.WriteString("</g>\n<script><![CDATA[\n")
	out.WriteString(svgScript)
	out.WriteString("]]></script>\n</svg>\n")
	return out.Flush()
}

// narrowest is the width from which on frames are drawn, so that the file does not
// become too large.
func (s *SVG) narrowest(fl *flame, scale float64) float64 {
	const markup = 200 // of a frame, in bytes
	for width := svgMinWidth; ; width *= 2 {
		size := 0
		for _, b := range fl.bars {
			if float64(b.total)*scale >= width && b.depth < svgMaxDepth {
				size += markup + len(s.names.keys[b.name])
			}
		}
		if size <= svgMaxBytes || width > svgWidth {
			return width
		}
	}
}

// appendBar appends one frame: its title, which browsers show, begins with the
// whole name, on a line of its own.
func (s *SVG) appendBar(b []byte, br bar, x float64, y int, width float64, total int64) []byte {
	name, kind, _ := splitKey(s.names.keys[br.name])
	b = append(b, "<g><title>"...)
	b = appendXML(b, name)
	b = fmt.Appendf(append(append(b, '\n'), appendTime(nil, br.total)...), ", %.2f%%", 100*float64(br.total)/float64(total))
	r, g, bl := color(name, kind)
	b = fmt.Appendf(b, "</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"#%02x%02x%02x\"/>",
		x, y, width, svgRow-1, r, g, bl)
	b = append(b, "<text x=\""...)
	b = strconv.AppendFloat(b, x+3, 'f', 2, 64)
	b = fmt.Appendf(b, "\" y=\"%d\">", y+12)
	b = appendXML(b, fit(name, width))
	return append(b, "</text></g>\n"...)
}

// legend lists the kinds that are drawn, with their colours.
func (s *SVG) legend(fl *flame) []byte {
	var met [numKinds]bool
	for _, b := range fl.bars {
		_, k, _ := splitKey(s.names.keys[b.name])
		met[k] = true
	}
	var b []byte
	x := svgMargin + 100
	for k, ok := range met {
		if !ok {
			continue
		}
		c := shades[k]
		b = fmt.Appendf(b, "<rect x=\"%d\" y=\"49\" width=\"10\" height=\"10\" fill=\"#%02x%02x%02x\"/><text x=\"%d\" y=\"58\">%s</text>\n",
			x, c[0], c[1], c[2], x+14, kindNames[k])
		x += 14 + int(svgChar*float64(len(kindNames[k])+2))
	}
	return b
}

// fit cuts name to what is readable in width pixels, as svg.js does.
func fit(name string, width float64) string {
	room := int((width - 6) / svgChar)
	cells, cut := 0, 0
	for i, r := range name {
		if cells <= room-2 {
			cut = i
		}
		cells += runeCells(r)
	}
	switch {
	case cells <= room:
		return name
	case room < 4:
		return ""
	}
	return name[:cut] + ".."
}

// runeCells is how much room a character may take, in that of a letter. Wide
// characters begin with Hangul (Unicode Standard Annex #11).
func runeCells(r rune) int {
	if r < 0x1100 {
		return 1
	}
	return 2
}

// appendXML appends a clean name as character data (XML 1.0 section 2.4).
func appendXML(b []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '<':
			b = append(b, "&lt;"...)
		case '>':
			b = append(b, "&gt;"...)
		case '&':
			b = append(b, "&amp;"...)
		case '"':
			b = append(b, "&quot;"...)
		case '\'':
			b = append(b, "&#39;"...)
		default:
			b = append(b, s[i])
		}
	}
	return b
}
