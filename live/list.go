package live

import (
	"regexp"
	"slices"
)

// list are the rows as they were drawn last, one of which is chosen.
type list struct {
	rows   []Row
	chosen string // key of the row; empty: the first
	at     int    // its line
	top    int    // first row that is shown
}

// first chooses the first row, whichever it is.
func (l *list) first() { l.chosen, l.at, l.top = "", 0, 0 }

// choose chooses a row.
func (l *list) choose(at int) { l.chosen, l.at = l.rows[at].Key, at }

// follow finds the chosen row again among the rows of now, and has it shown, with room for so many. false: it is gone, and the row in
// its place is at.
func (l *list) follow(rows []Row, room int) (found bool) {
	l.rows = rows
	found = true
	if l.chosen == "" {
		l.at = 0
	} else if i := slices.IndexFunc(rows, func(r Row) bool { return r.Key == l.chosen }); i >= 0 {
		l.at = i
	} else {
		found = false
	}
	l.at = max(0, min(l.at, len(rows)-1))
	l.top = max(0, min(l.top, len(rows)-room))
	l.top = min(l.top, l.at)
	l.top = max(l.top, l.at-room+1)
	return found
}

// filter is the expression that rows are chosen by, which is typed while they are shown.
type filter struct {
	text   string
	expr   *regexp.Regexp // nil: there is none
	typing bool
	bad    bool // it is no expression, and taken as it stands
}

// press takes a key while it is typed, and tells whether it is another now.
func (f *filter) press(k Key) (changed bool) {
	switch {
	case k == KeyEnter:
		f.typing = false
		return false
	case k == KeyEscape:
		f.typing = false
		f.set("")
	case k == KeyBackspace:
		r := []rune(f.text)
		f.set(string(r[:max(0, len(r)-1)]))
	case k < KeyUp && k >= ' ' && len(f.text) < 200:
		f.set(f.text + string(rune(k)))
	default:
		return false
	}
	return true
}

func (f *filter) set(text string) {
	f.text, f.expr, f.bad = text, nil, false
	if text == "" {
		return
	}
	re, err := regexp.Compile("(?i)" + text)
	if f.bad = err != nil; f.bad {
		re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
	}
	f.expr = re
}
