package live

import (
	"fmt"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"sfsample/output"
)

// Paper is what lines are written to: how large it is, in columns and lines, and which characters it can show.
type Paper struct {
	Width, Height int
	ASCII         bool // nothing else can be shown
}

// narrow tells whether there is room for one of self and total only.
func (p Paper) narrow() bool { return p.Width < 60 }

// tiny tells whether there is room for the share only.
func (p Paper) tiny() bool { return p.Width < 32 }

// pair is the heading of a time and its share.
func (p Paper) pair(what string) string {
	if p.tiny() {
		return "    %  "
	}
	return right(what, 7) + "      %  "
}

// row is a row of the table: the place has so many columns, the name what is left.
func (p Paper) row(numbers, name, where string, place int) string {
	left := numbers + name
	if place == 0 {
		return p.pad(left, p.Width)
	}
	return p.pad(left, p.Width-place-2) + "  " + p.pad(where, place)
}

// right puts text at the right end of some columns.
func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-displaywidth.String(text))) + text
}

// short is a duration in three digits.
func (p Paper) short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	text := d.Round(unit).String()
	if p.ASCII {
		text = strings.ReplaceAll(text, "µ", "u")
	}
	return text
}

// ends puts two texts at the ends of a line; the second has precedence.
func (p Paper) ends(left, right string) string {
	room := p.Width - displaywidth.String(right)
	if room < 8 {
		return p.cut(left, p.Width)
	}
	left = p.cut(left, room-1)
	return left + strings.Repeat(" ", room-displaywidth.String(left)) + right
}

// pad gives text a width.
func (p Paper) pad(text string, width int) string {
	text = p.cut(text, width)
	return text + strings.Repeat(" ", max(0, width-displaywidth.String(text)))
}

// cut shortens text to so many columns.
func (p Paper) cut(text string, width int) string {
	if displaywidth.String(text) <= width {
		return text
	}
	return displaywidth.TruncateString(text, max(width, 0), p.mark("…", "~"))
}

// mark is a sign, or what stands for it in ASCII.
func (p Paper) mark(utf8, ascii string) string {
	if p.ASCII {
		return ascii
	}
	return utf8
}

// text is how text of a target is shown.
func (p Paper) text(text string) string {
	text = output.Printable(text)
	if !p.ASCII {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// wrap cuts a name into lines, a few at most.
func (p Paper) wrap(text string) (lines []string) {
	for len(lines) < 4 && text != "" {
		part := displaywidth.TruncateString(text, p.Width-1, "")
		if len(lines) == 3 {
			part = p.cut(text, p.Width-1)
		}
		if part == "" {
			break
		}
		lines = append(lines, part)
		text = strings.TrimPrefix(text, part)
	}
	return lines
}

// page fills the lines up to the last one.
func (p Paper) page(lines []Line, last Line) []Line {
	for len(lines) < p.Height-1 {
		lines = append(lines, Line{})
	}
	return p.fit(append(lines[:p.Height-1], last))
}

// fit cuts lines to the screen.
func (p Paper) fit(lines []Line) []Line {
	lines = lines[:min(len(lines), max(0, p.Height))]
	for i := range lines {
		lines[i].Text = p.cut(lines[i].Text, max(1, p.Width))
	}
	return lines
}
