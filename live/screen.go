package live

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/clipperhouse/displaywidth"

	"sfsample/output"
	"sfsample/sampler/ledger"
)

// Style is how a line looks.
type Style uint8

const (
	Plain Style = iota
	Title
	Heading
	Chosen
	Faint
	Warning
)

// Line is a line of the screen.
type Line struct {
	Text  string
	Style Style
}

// Status is what a screen shows beside the model.
type Status struct {
	What    string // is sampled
	Hz      float64
	Notice  string // the last message
	Stopped string // who does not run, and why; empty: nobody is stopped
	Ended   string // why nothing more comes; empty: more may come
}

// Key is a key: a character, or one of those below.
type Key rune

// Keys that are no characters: of a private plane.
const (
	KeyUp Key = 0x100000 + iota
	KeyDown
	KeyPageUp
	KeyPageDown
	KeyHome
	KeyEnd
	KeyEnter
	KeyEscape
	KeyBackspace
	KeyTab
)

// Action is what is to be done for a key.
type Action uint8

const (
	Draw  Action = iota
	Quit         // end the run
	Reset        // forget what was counted
)

// Screen is what is looked at.
type Screen struct {
	Width, Height int
	ASCII         bool // nothing else can be shown
	All           bool // blocked threads are sampled too
	WallOnly      bool // samples weigh a tick each

	window  Window
	query   Query
	filter  string
	typing  bool // the filter
	bad     bool // it is no expression, and taken as it stands
	frozen  *Picture
	help    bool
	detail  bool
	offset  int    // of the detail
	chosen  string // key of the row; empty: the first
	at      int    // its line
	top     int    // first row that is shown
	message string // an answer to the last key
	rows    []Row  // as drawn last
}

// NewScreen returns a screen of a run: all threads are sampled, samples weigh a tick each, the terminal shows ASCII only.
func NewScreen(all, wall, ascii bool) *Screen {
	return &Screen{Width: 80, Height: 24, All: all, WallOnly: wall, ASCII: ascii, query: Query{Wall: all || wall}}
}

// Window is which rounds are looked at.
func (s *Screen) Window() Window { return s.window }

// Press takes a key.
func (s *Screen) Press(k Key) Action {
	s.message = ""
	switch {
	case s.typing:
		s.edit(k)
		return Draw
	case s.help:
		s.help = false
		if k == 'q' || k == '?' || k == KeyEscape || k == KeyEnter {
			return Draw
		}
	}
	switch k {
	case 'q':
		return Quit
	case '?', 'h':
		s.help = true
	case 'p', ' ':
		if s.frozen != nil {
			s.frozen = nil
		} else {
			s.frozen = new(Picture) // the next to be drawn
		}
	case 'r':
		s.frozen = nil
		return Reset
	case '/':
		s.typing, s.detail = true, false
	case 'i':
		s.window = (s.window + 1) % numWindows
		s.thaw()
	case 's':
		s.query.ByTotal = !s.query.ByTotal
	case 'a':
		s.wall()
	case KeyEnter:
		s.detail, s.offset = !s.detail && len(s.rows) > 0, 0
	case KeyEscape, KeyBackspace:
		if !s.detail {
			s.setFilter("")
		}
		s.detail = false
	case 'f':
		s.show(ByFunction)
	case 'y':
		s.show(ByScript)
	case 'm':
		s.show(ByModule)
	case 't':
		s.show(ByThread)
	case 'w':
		if !s.All {
			s.message = "blocked threads are not sampled (try: sfsample top --threads all)"
			break
		}
		s.query.Wall = true
		s.show(ByWait)
	case KeyTab:
		last := ByThread
		if s.All && s.query.Wall {
			last = ByWait
		}
		s.show((s.query.By + 1) % (last + 1))
	default:
		s.move(k)
	}
	return Draw
}

// thaw has a paused screen show the other window, of now.
func (s *Screen) thaw() {
	if s.frozen != nil {
		s.frozen = new(Picture)
	}
}

func (s *Screen) show(by By) {
	s.query.By, s.detail, s.chosen, s.at, s.top = by, false, "", 0, 0
}

// wall goes from running threads to all, and back.
func (s *Screen) wall() {
	if !s.All {
		s.message = "blocked threads are not sampled (try: sfsample top --threads all)"
		return
	}
	if s.query.Wall = !s.query.Wall; !s.query.Wall && s.query.By == ByWait {
		s.show(ByFunction)
	}
}

// edit takes a key while the filter is typed.
func (s *Screen) edit(k Key) {
	switch {
	case k == KeyEnter:
		s.typing = false
	case k == KeyEscape:
		s.typing = false
		s.setFilter("")
	case k == KeyBackspace:
		r := []rune(s.filter)
		s.setFilter(string(r[:max(0, len(r)-1)]))
	case k < KeyUp && k >= ' ' && len(s.filter) < 200:
		s.setFilter(s.filter + string(rune(k)))
	}
}

func (s *Screen) setFilter(text string) {
	s.filter, s.query.Filter, s.bad = text, nil, false
	s.chosen, s.at, s.top = "", 0, 0
	if text == "" {
		return
	}
	re, err := regexp.Compile("(?i)" + text)
	if s.bad = err != nil; s.bad {
		re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
	}
	s.query.Filter = re
}

// move takes a key that moves the choice, or the text.
func (s *Screen) move(k Key) {
	page := max(1, s.Height-headLines-2)
	by := map[Key]int{KeyUp: -1, 'k': -1, KeyDown: 1, 'j': 1, KeyPageUp: -page, KeyPageDown: page, KeyHome: -1 << 30, 'g': -1 << 30, KeyEnd: 1 << 30, 'G': 1 << 30}[k]
	switch {
	case by == 0:
	case s.detail:
		s.offset = max(0, min(s.offset, 1<<29)+by) // drawing knows the end
	case len(s.rows) > 0:
		s.at = max(0, min(s.at+by, len(s.rows)-1))
		s.chosen = s.rows[s.at].Key
	}
}

// headLines is how many lines are above the rows; one is below.
const headLines = 4

// Draw returns the lines of the screen.
func (s *Screen) Draw(m *Model, st Status) []Line {
	if s.Width < 20 || s.Height < headLines+3 {
		return s.fit(append([]Line{{Text: "too small"}}, make([]Line, max(0, s.Height-1))...)) // over what was there
	}
	p := s.frozen
	if p == nil || p.funcs == nil {
		p = m.Take(s.window)
		if s.frozen != nil {
			s.frozen = p
		}
	}
	if s.help {
		return s.fit(s.helpLines())
	}
	rows, sum := p.Rows(s.query)
	s.rows = rows
	s.follow()
	lines := s.head(p, st)
	if s.detail && len(rows) > 0 {
		lines = append(lines, s.details(p, &rows[s.at], sum)...)
	} else {
		lines = append(lines, s.table(rows, sum, p)...)
	}
	for len(lines) < s.Height-1 {
		lines = append(lines, Line{})
	}
	return s.fit(append(lines[:s.Height-1], s.foot(st)))
}

// follow finds the chosen row again.
func (s *Screen) follow() {
	if s.chosen == "" {
		s.at = 0
	} else if i := slices.IndexFunc(s.rows, func(r Row) bool { return r.Key == s.chosen }); i >= 0 {
		s.at = i
	} else {
		s.detail = false
	}
	s.at = max(0, min(s.at, len(s.rows)-1))
	if s.detail && len(s.rows) > 0 {
		s.chosen = s.rows[s.at].Key // that is what is looked at now
	}
	room := s.Height - headLines - 1
	s.top = max(0, min(s.top, len(s.rows)-room))
	s.top = min(s.top, s.at)
	s.top = max(s.top, s.at-room+1)
}

// head is what is above the rows.
func (s *Screen) head(p *Picture, st Status) []Line {
	r := &p.Round
	left := "sfsample top  " + s.text(st.What)
	right := fmt.Sprintf("%g Hz  %s", st.Hz, clock(p.Elapsed))
	if p.Took > 0 {
		right += fmt.Sprintf("  CPU %.1f%%", 100*p.CPU.Seconds()/p.Took.Seconds())
	}
	state := []string{s.windowName(p), s.whose(), output.Plural(int64(r.Threads), "thread")}
	if r.End.IsZero() {
		state = []string{s.whose()}
	} else if r.Processes != 1 {
		state = append(state, fmt.Sprintf("%d processes", r.Processes))
	}
	if r.Stops > 0 {
		state = append(state, fmt.Sprintf("pause p50 %s p99 %s max %s", s.short(r.P50), s.short(r.P99), s.short(p.Max)))
	}
	if s.frozen != nil {
		state = append([]string{"PAUSED"}, state...)
	}
	style := Plain
	lost := output.Plural(int64(p.Account.Count[ledger.Sampled]), "sample") + ", no tick lost"
	if n := p.Account.Lost(); n > 0 {
		if 20*n > p.Account.Expected-p.Account.Count[ledger.Idle] {
			style = Warning
		}
		lost = fmt.Sprintf("%s; lost: %d of %d thread ticks (%s)", output.Plural(int64(p.Account.Count[ledger.Sampled]), "sample"), n, p.Account.Expected, losses(&p.Account))
	}
	if r.Stride > 1 {
		lost += fmt.Sprintf("; the rate is lowered to %.2g %%, see --max-overhead", 100/r.Stride)
	}
	if p.Account.Expected == 0 {
		lost = "no tick so far"
	}
	return []Line{
		{s.ends(left, right), Title},
		{strings.Join(state, s.mark(" · ", ", ")), Plain},
		{lost, style},
	}
}

// losses lists the kinds of losses, most frequent first.
func losses(a *ledger.Account) string {
	var kinds []ledger.Class
	for c, n := range a.Count {
		if n > 0 && ledger.Class(c).Lost() {
			kinds = append(kinds, ledger.Class(c))
		}
	}
	slices.SortStableFunc(kinds, func(x, y ledger.Class) int { return cmp.Compare(a.Count[y], a.Count[x]) })
	var parts []string
	for _, c := range kinds {
		parts = append(parts, fmt.Sprintf("%d %s", a.Count[c], c))
	}
	return strings.Join(parts, ", ")
}

func (s *Screen) windowName(p *Picture) string {
	switch s.window {
	case All:
		return "all of " + clock(p.Took)
	case Last, Recent:
		return "last " + clock(p.Took)
	}
	return ""
}

func (s *Screen) whose() string {
	switch {
	case s.All && s.query.Wall:
		return "all threads"
	case s.WallOnly && !s.All:
		return "running threads"
	}
	return "on CPU"
}

// clock is a time in seconds, or minutes and seconds.
func clock(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
}

// short is a duration in three digits.
func (s *Screen) short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	text := d.Round(unit).String()
	if s.ASCII {
		text = strings.ReplaceAll(text, "µ", "u")
	}
	return text
}

// columns are the headings of the table.
func (s *Screen) columns(place int) string {
	name, where := "FUNCTION", "MODULE"
	switch s.query.By {
	case ByScript:
		name, where = "FUNCTION OF A SCRIPT", "INTERPRETER"
	case ByModule:
		name, where = "MODULE", ""
	case ByThread:
		name, where = "    TID THREAD (PROCESS)", "MOSTLY IN"
	case ByWait:
		name, where = "WAIT", "THREADS"
	}
	if s.query.By == ByThread || s.query.By == ByWait {
		return s.row(s.pair("TIME"), name, where, place)
	}
	self, total := "SELF", "TOTAL"
	if s.query.ByTotal {
		total = s.mark("▾", "*") + total
	} else {
		self = s.mark("▾", "*") + self
	}
	switch {
	case !s.narrow():
		return s.row(fmt.Sprintf("%s      %%%s      %%  ", right(self, 7), right(total, 9)), name, where, place)
	case s.query.ByTotal:
		return s.row(s.pair(total), name, where, place)
	}
	return s.row(s.pair(self), name, where, place)
}

// narrow tells whether there is room for one of self and total only.
func (s *Screen) narrow() bool { return s.Width < 60 }

// tiny tells whether there is room for the share only.
func (s *Screen) tiny() bool { return s.Width < 32 }

// pair is the heading of a time and its share.
func (s *Screen) pair(what string) string {
	if s.tiny() {
		return "    %  "
	}
	return right(what, 7) + "      %  "
}

// numbers are the columns of a row before its name.
func (s *Screen) numbers(r *Row, sum time.Duration) string {
	one := s.query.By == ByThread || s.query.By == ByWait
	if !one && !s.narrow() {
		return fmt.Sprintf("%7.2f%7.1f%9.2f%7.1f  ", r.Self.Seconds(), share(r.Self, sum), r.Total.Seconds(), share(r.Total, sum))
	}
	d := r.Self
	if !one && s.query.ByTotal {
		d = r.Total
	}
	if s.tiny() {
		return fmt.Sprintf("%5.1f  ", share(d, sum))
	}
	return fmt.Sprintf("%7.2f%7.1f  ", d.Seconds(), share(d, sum))
}

// right puts text at the right end of some columns.
func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-displaywidth.String(text))) + text
}

// table are the heading and the rows.
func (s *Screen) table(rows []Row, sum time.Duration, p *Picture) []Line {
	room := s.Height - headLines - 1
	shown := rows[s.top:min(len(rows), s.top+room)]
	place, most := 0, (s.Width-32)/3 // the columns of the place: a third of what the numbers leave at most
	if s.query.By == ByThread {
		most = (s.Width - 16) / 2
	}
	for i := range shown {
		place = max(place, displaywidth.String(s.text(shown[i].Where)))
	}
	if place > 0 {
		place = max(min(place, most), 11)
	}
	if s.narrow() {
		place = 0
	}
	lines := []Line{{s.columns(place), Heading}}
	for i := range shown {
		r := &shown[i]
		style := Plain
		if s.top+i == s.at {
			style = Chosen
		}
		lines = append(lines, Line{s.row(s.numbers(r, sum), s.text(r.Name), s.text(r.Where), place), style})
	}
	if len(rows) == 0 {
		lines = append(lines, Line{}, Line{"  " + s.nothing(p), Faint})
	}
	return lines
}

// nothing says why there is no row.
func (s *Screen) nothing(p *Picture) string {
	switch {
	case s.query.Filter != nil && len(p.cells) > 0:
		return "nothing matches the filter (Esc takes it away)"
	case p.Round.End.IsZero():
		return "the first round is under way"
	case s.query.By == ByScript && len(p.cells) > 0:
		return "no script was met"
	case p.Round.Processes == 0:
		return "there is no process now"
	case !s.All:
		return "nothing has run (--threads all shows what is waited for)"
	case !s.query.Wall:
		return "nothing has run (a shows what is waited for)"
	}
	return "nothing was met"
}

func share(part, sum time.Duration) float64 {
	if sum == 0 {
		return 0
	}
	return 100 * float64(part) / float64(sum)
}

// row is a row of the table: the place has so many columns, the name what is left.
func (s *Screen) row(numbers, name, where string, place int) string {
	left := numbers + name
	if place == 0 {
		return s.pad(left, s.Width)
	}
	return s.pad(left, s.Width-place-2) + "  " + s.pad(where, place)
}

// pad gives text a width.
func (s *Screen) pad(text string, width int) string {
	text = s.cut(text, width)
	return text + strings.Repeat(" ", max(0, width-displaywidth.String(text)))
}

// ends puts two texts at the ends of a line; the second has precedence.
func (s *Screen) ends(left, right string) string {
	room := s.Width - displaywidth.String(right)
	if room < 8 {
		return s.cut(left, s.Width)
	}
	left = s.cut(left, room-1)
	return left + strings.Repeat(" ", room-displaywidth.String(left)) + right
}

// cut shortens text to so many columns.
func (s *Screen) cut(text string, width int) string {
	if displaywidth.String(text) <= width {
		return text
	}
	return displaywidth.TruncateString(text, max(width, 0), s.mark("…", "~"))
}

func (s *Screen) mark(utf8, ascii string) string {
	if s.ASCII {
		return ascii
	}
	return utf8
}

// text is how text of a target is shown.
func (s *Screen) text(text string) string {
	text = output.Printable(text)
	if !s.ASCII {
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

// foot is the last line.
func (s *Screen) foot(st Status) Line {
	switch {
	case s.typing:
		more := ""
		if s.bad {
			more = "   (no expression, taken as it stands)"
		}
		return Line{"/" + s.text(s.filter) + "_" + more, Plain}
	case s.message != "":
		return Line{s.message, Warning}
	case st.Ended != "":
		return Line{s.text(st.Ended) + "; q leaves", Warning}
	case st.Stopped != "":
		return Line{s.text(st.Stopped), Warning}
	case st.Notice != "":
		return Line{s.text(st.Notice), Warning}
	case s.detail:
		return Line{"Esc back   up/down scroll   p pause   ? help   q quit", Faint}
	case s.filter != "":
		return Line{"filter " + s.text(s.filter) + "   Esc takes it away", Faint}
	}
	if s.Width < 79 {
		return Line{"? help  q quit  Enter detail  / find  s sort  f functions  t threads", Faint}
	}
	return Line{"Enter detail  f functions  t threads  m modules  s sort  / find  ? help  q quit", Faint}
}

func (s *Screen) helpLines() []Line {
	lines := []Line{{"sfsample top", Title}, {}}
	for _, x := range [][2]string{
		{"f t m", "rows are functions, threads or modules"},
		{"y", "functions of scripts (Python, Java, ...)"},
		{"w", "what blocked threads wait for (with --threads all)"},
		{"Tab", "the next of these"},
		{"s", "sort by self or by total: self is the time in a function alone,"},
		{"", "total that in what it has called too"},
		{"i", "the last ten rounds, the last one, or all since the beginning"},
		{"a", "all threads or those on a CPU (with --threads all)"},
		{"/", "filter by an expression; Esc takes it away"},
		{"Enter", "callers, callees and stacks of the chosen row; Esc goes back"},
		{"p", "hold the picture; sampling goes on"},
		{"r", "forget what was counted"},
		{"up down", "choose (also j k, page up and down, Home, End)"},
		{"Ctrl-Z", "stop sfsample; all threads are let go first, fg goes on"},
		{"q", "end the run (also Ctrl-C)"},
		{},
		{"lost", "thread ticks of which nothing is known, and why: docs/numbers.md"},
	} {
		lines = append(lines, Line{fmt.Sprintf("  %-8s %s", x[0], x[1]), Plain})
	}
	for len(lines) < s.Height-1 {
		lines = append(lines, Line{})
	}
	return append(lines[:s.Height-1], Line{"Esc or ? goes back", Faint})
}

// details are the lines of a row's detail, from the heading on.
func (s *Screen) details(p *Picture, r *Row, sum time.Duration) []Line {
	d := p.Detail(s.query, r)
	head := fmt.Sprintf("self %.2fs %.1f%%  total %.2fs %.1f%%", r.Self.Seconds(), share(r.Self, sum), r.Total.Seconds(), share(r.Total, sum))
	if s.query.By == ByThread || s.query.By == ByWait {
		head = fmt.Sprintf("%.2fs %.1f%%", r.Self.Seconds(), share(r.Self, sum))
	}
	lines := []Line{{s.ends("", head+" "), Heading}}
	var body []Line
	for _, part := range s.wrap(strings.TrimSpace(s.text(r.Name))) {
		body = append(body, Line{part, Title})
	}
	if r.Where != "" && s.query.By != ByWait && s.query.By != ByThread {
		body = append(body, Line{"in " + s.text(r.Where), Faint})
	}
	list := func(title string, parts []Part) {
		if len(parts) == 0 {
			return
		}
		body = append(body, Line{}, Line{title, Faint})
		for _, x := range parts {
			body = append(body, Line{fmt.Sprintf("%7.2fs %5.1f%%  %s", x.Weight.Seconds(), share(x.Weight, r.Total), s.text(x.Name)), Plain})
		}
	}
	list("called by", d.Callers)
	list("calls", d.Callees)
	list("functions", d.Functions)
	for i, st := range d.Stacks {
		title := "the heaviest stack, innermost first"
		if i > 0 {
			title = "the next stack"
		}
		body = append(body, Line{}, Line{fmt.Sprintf("%s: %.2fs %.1f%%", title, st.Weight.Seconds(), share(st.Weight, r.Total)), Faint})
		for j, f := range st.Frames {
			lead, style := "    ", Plain
			if j == st.At {
				lead, style = "  > ", Title
			}
			body = append(body, Line{lead + s.text(f), style})
		}
	}
	room := s.Height - headLines - 1
	s.offset = max(0, min(s.offset, len(body)-room))
	return append(lines, body[s.offset:min(len(body), s.offset+room)]...)
}

// wrap cuts a name into lines, a few at most.
func (s *Screen) wrap(text string) (lines []string) {
	for len(lines) < 4 && text != "" {
		part := displaywidth.TruncateString(text, s.Width-1, "")
		if len(lines) == 3 {
			part = s.cut(text, s.Width-1)
		}
		if part == "" {
			break
		}
		lines = append(lines, part)
		text = strings.TrimPrefix(text, part)
	}
	return lines
}

// fit cuts lines to the screen.
func (s *Screen) fit(lines []Line) []Line {
	lines = lines[:min(len(lines), max(0, s.Height))]
	for i := range lines {
		lines[i].Text = s.cut(lines[i].Text, max(1, s.Width))
	}
	return lines
}
