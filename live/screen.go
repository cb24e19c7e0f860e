package live

import (
	"cmp"
	"fmt"
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
	Paper Paper

	all     bool // blocked threads are sampled too
	ticks   bool // samples weigh a tick each
	window  Window
	query   Query
	filter  filter
	frozen  *Picture
	help    bool
	detail  bool
	offset  int // of the detail
	list    list
	message string // an answer to the last key
	ended   string // Status.Ended when it was drawn last: the end is told in the place of an answer to an earlier key
}

// NewScreen returns a screen of a run: all threads are sampled, samples weigh a tick each, the terminal shows ASCII only.
func NewScreen(all, wall, ascii bool) *Screen {
	return &Screen{Paper: Paper{80, 24, ascii}, all: all, ticks: wall, query: Query{Wall: all || wall}}
}

// Press takes a key.
func (s *Screen) Press(k Key) Action {
	s.message = ""
	switch {
	case s.filter.typing:
		if s.filter.press(k) {
			s.refilter()
		}
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
		s.filter.typing, s.detail = true, false
	case 'i':
		s.window = (s.window + 1) % numWindows
		if s.frozen != nil {
			s.frozen = new(Picture) // of the other window, as it is now
		}
	case 's':
		s.query.ByTotal = !s.query.ByTotal
	case 'a':
		s.wall()
	case KeyEnter:
		s.detail, s.offset = !s.detail && len(s.list.rows) > 0, 0
	case KeyEscape, KeyBackspace:
		if !s.detail {
			s.filter.set("")
			s.refilter()
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
		if !s.all {
			s.message = "blocked threads are not sampled (try: sfsample top --threads all)"
			break
		}
		s.query.Wall = true
		s.show(ByWait)
	case KeyTab:
		last := ByThread
		if s.all && s.query.Wall {
			last = ByWait
		}
		s.show((s.query.By + 1) % (last + 1))
	default:
		s.move(k)
	}
	return Draw
}

func (s *Screen) show(by By) {
	s.query.By, s.detail = by, false
	s.list.first()
}

// wall goes from running threads to all, and back.
func (s *Screen) wall() {
	if !s.all {
		s.message = "blocked threads are not sampled (try: sfsample top --threads all)"
		return
	}
	if s.query.Wall = !s.query.Wall; !s.query.Wall && s.query.By == ByWait {
		s.show(ByFunction)
	}
}

// refilter shows what the filter lets through, from the first row on.
func (s *Screen) refilter() {
	s.query.Filter = s.filter.expr
	s.list.first()
}

// move takes a key that moves the choice, or the text.
func (s *Screen) move(k Key) {
	page := max(1, s.Paper.Height-headLines-2)
	by := map[Key]int{KeyUp: -1, 'k': -1, KeyDown: 1, 'j': 1, KeyPageUp: -page, KeyPageDown: page, KeyHome: -1 << 30, 'g': -1 << 30, KeyEnd: 1 << 30, 'G': 1 << 30}[k]
	switch {
	case by == 0:
	case s.detail:
		s.offset = max(0, min(s.offset, 1<<29)+by) // drawing knows the end
	case len(s.list.rows) > 0:
		s.list.choose(max(0, min(s.list.at+by, len(s.list.rows)-1)))
	}
}

// headLines is how many lines are above the rows; one is below.
const headLines = 4

// room is how many lines there are for rows, or the text of a detail, below their heading.
func (s *Screen) room() int { return s.Paper.Height - headLines - 1 }

// Draw returns the lines of the screen.
func (s *Screen) Draw(m *Model, st Status) []Line {
	if st.Ended != s.ended {
		s.ended, s.message = st.Ended, ""
	}
	if s.Paper.Width < 20 || s.Paper.Height < headLines+3 {
		return s.Paper.fit(append([]Line{{Text: "too small"}}, make([]Line, max(0, s.Paper.Height-1))...)) // over what was there
	}
	p := s.frozen
	if p == nil || p.funcs == nil {
		p = m.Take(s.window)
		if s.frozen != nil {
			s.frozen = p
		}
	}
	if s.help {
		return s.Paper.page(helpLines(), Line{"Esc or ? goes back", Faint})
	}
	rows, sum := p.Rows(s.query)
	if !s.list.follow(rows, s.room()) {
		s.detail = false
	}
	if s.detail && len(rows) > 0 {
		s.list.choose(s.list.at) // that is what is looked at now
	}
	lines := s.head(p, st)
	if s.detail && len(rows) > 0 {
		lines = append(lines, s.details(p, &rows[s.list.at], sum)...)
	} else {
		lines = append(lines, s.table(rows, sum, p)...)
	}
	return s.Paper.page(lines, s.foot(st))
}

// head is what is above the rows.
func (s *Screen) head(p *Picture, st Status) []Line {
	r := &p.Round
	left := "sfsample top  " + s.Paper.text(st.What)
	right := fmt.Sprintf("%g Hz  %s", st.Hz, clock(p.Elapsed))
	if p.Took > 0 {
		right += fmt.Sprintf("  CPU %.1f%%", 100*p.CPU.Seconds()/p.Took.Seconds())
	}
	which := "last "
	if s.window == All {
		which = "all of "
	}
	state := []string{which + clock(p.Took), s.whose(), output.Plural(int64(r.Threads), "thread")}
	if r.End.IsZero() {
		state = []string{s.whose()}
	} else if r.Processes != 1 {
		state = append(state, fmt.Sprintf("%d processes", r.Processes))
	}
	if r.Stops > 0 {
		state = append(state, fmt.Sprintf("pause p50 %s p99 %s max %s", s.Paper.short(r.P50), s.Paper.short(r.P99), s.Paper.short(p.Max)))
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
		{s.Paper.ends(left, right), Title},
		{strings.Join(state, s.Paper.mark(" · ", ", ")), Plain},
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

func (s *Screen) whose() string {
	switch {
	case s.all && s.query.Wall:
		return "all threads"
	case s.ticks && !s.all:
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
		return s.Paper.row(s.Paper.pair("TIME"), name, where, place)
	}
	self, total := "SELF", "TOTAL"
	if s.query.ByTotal {
		total = s.Paper.mark("▾", "*") + total
	} else {
		self = s.Paper.mark("▾", "*") + self
	}
	switch {
	case !s.Paper.narrow():
		return s.Paper.row(fmt.Sprintf("%s      %%%s      %%  ", right(self, 7), right(total, 9)), name, where, place)
	case s.query.ByTotal:
		return s.Paper.row(s.Paper.pair(total), name, where, place)
	}
	return s.Paper.row(s.Paper.pair(self), name, where, place)
}

// numbers are the columns of a row before its name.
func (s *Screen) numbers(r *Row, sum time.Duration) string {
	one := s.query.By == ByThread || s.query.By == ByWait
	if !one && !s.Paper.narrow() {
		return fmt.Sprintf("%7.2f%7.1f%9.2f%7.1f  ", r.Self.Seconds(), share(r.Self, sum), r.Total.Seconds(), share(r.Total, sum))
	}
	d := r.Self
	if !one && s.query.ByTotal {
		d = r.Total
	}
	if s.Paper.tiny() {
		return fmt.Sprintf("%5.1f  ", share(d, sum))
	}
	return fmt.Sprintf("%7.2f%7.1f  ", d.Seconds(), share(d, sum))
}

// table are the heading and the rows.
func (s *Screen) table(rows []Row, sum time.Duration, p *Picture) []Line {
	room := s.room()
	shown := rows[s.list.top:min(len(rows), s.list.top+room)]
	place, most := 0, (s.Paper.Width-32)/3 // the columns of the place: a third of what the numbers leave at most
	if s.query.By == ByThread {
		most = (s.Paper.Width - 16) / 2
	}
	for i := range shown {
		place = max(place, displaywidth.String(s.Paper.text(shown[i].Where)))
	}
	if place > 0 {
		place = max(min(place, most), 11)
	}
	if s.Paper.narrow() {
		place = 0
	}
	lines := []Line{{s.columns(place), Heading}}
	for i := range shown {
		r := &shown[i]
		style := Plain
		if s.list.top+i == s.list.at {
			style = Chosen
		}
		lines = append(lines, Line{s.Paper.row(s.numbers(r, sum), s.Paper.text(r.Name), s.Paper.text(r.Where), place), style})
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
	case !s.all:
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

// foot is the last line.
func (s *Screen) foot(st Status) Line {
	switch {
	case s.filter.typing:
		more := ""
		if s.filter.bad {
			more = "   (no expression, taken as it stands)"
		}
		return Line{"/" + s.Paper.text(s.filter.text) + "_" + more, Plain}
	case s.message != "":
		return Line{s.message, Warning}
	case st.Ended != "":
		return Line{s.Paper.text(st.Ended) + "; q leaves", Warning}
	case st.Stopped != "":
		return Line{s.Paper.text(st.Stopped), Warning}
	case st.Notice != "":
		return Line{s.Paper.text(st.Notice), Warning}
	case s.detail:
		return Line{"Esc back   up/down scroll   p pause   ? help   q quit", Faint}
	case s.filter.text != "":
		return Line{"filter " + s.Paper.text(s.filter.text) + "   Esc takes it away", Faint}
	}
	if s.Paper.Width < 79 {
		return Line{"? help  q quit  Enter detail  / find  s sort  f functions  t threads", Faint}
	}
	return Line{"Enter detail  f functions  t threads  m modules  s sort  / find  ? help  q quit", Faint}
}

func helpLines() []Line {
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
	return lines
}

// details are the lines of a row's detail, from the heading on.
func (s *Screen) details(p *Picture, r *Row, sum time.Duration) []Line {
	d := p.Detail(s.query, r)
	head := fmt.Sprintf("self %.2fs %.1f%%  total %.2fs %.1f%%", r.Self.Seconds(), share(r.Self, sum), r.Total.Seconds(), share(r.Total, sum))
	if s.query.By == ByThread || s.query.By == ByWait {
		head = fmt.Sprintf("%.2fs %.1f%%", r.Self.Seconds(), share(r.Self, sum))
	}
	lines := []Line{{s.Paper.ends("", head+" "), Heading}}
	var body []Line
	for _, part := range s.Paper.wrap(strings.TrimSpace(s.Paper.text(r.Name))) {
		body = append(body, Line{part, Title})
	}
	if r.Where != "" && s.query.By != ByWait && s.query.By != ByThread {
		body = append(body, Line{"in " + s.Paper.text(r.Where), Faint})
	}
	list := func(title string, parts []Part) {
		if len(parts) == 0 {
			return
		}
		body = append(body, Line{}, Line{title, Faint})
		for _, x := range parts {
			body = append(body, Line{fmt.Sprintf("%7.2fs %5.1f%%  %s", x.Weight.Seconds(), share(x.Weight, r.Total), s.Paper.text(x.Name)), Plain})
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
			body = append(body, Line{lead + s.Paper.text(f), style})
		}
	}
	room := s.room()
	s.offset = max(0, min(s.offset, len(body)-room))
	return append(lines, body[s.offset:min(len(body), s.offset+room)]...)
}
