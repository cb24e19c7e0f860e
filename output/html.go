package output

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.html
var htmlPage string

//go:embed page.js
var htmlScript string

// Bounds of what an HTML holds beside its call tree.
const (
	maxPageThreads = 1 << 12
	maxPageCells   = 1 << 18
	// plainRows is how many functions are listed where scripts do not run.
	plainRows = 40
)

// HTML writes a flame graph as one HTML page that holds all frames, however
// narrow, and draws those that the window shows: for big profiles, and to look
// deep into them. It shows flames, icicles, callers first, what one function calls
// and is called by, and a table of functions, for all threads and states or one of
// them; where scripts do not run, the table. The page refers to nothing outside of
// itself.
type HTML struct {
	paths
	w       io.Writer
	threads table // the first is what had no room
	states  table
	cells   map[pageCell]*[2]int64 // weight; that of before, in a comparison
	pages   []string               // names of what is compared: before, after; nil: nothing is
}

// emptyLines stand where a picture would be blank.
var emptyLines = []string{"There are no samples: no thread ran in that time.", "What threads wait for: --threads all;", "where they stand: sfsample dump."}

// pageCell is what the page can tell apart: the frame of a stack, thread and state.
type pageCell struct{ node, thread, state uint32 }

// NewHTML returns an HTML that writes to w when it is closed.
func NewHTML(w io.Writer, o Options) *HTML {
	h := &HTML{paths: newPaths(o), w: w, cells: make(map[pageCell]*[2]int64)}
	h.kinds = true
	h.threads.limit = maxPageThreads
	h.threads.add("others")
	h.states.add("others")
	return h
}

// Add counts one sample; it never fails.
func (h *HTML) Add(s *Sample) error {
	n := h.find(s)
	h.buf = appendClean(h.buf[:0], s.Thread)
	h.buf = strconv.AppendInt(append(h.buf, ' '), int64(s.TID), 10)
	thread, _ := h.threads.id(h.buf)
	state, _ := h.states.id(appendClean(h.buf[:0], s.State))
	h.count(pageCell{n, thread, state}, 0, int64(h.opts.weight(s)))
	return nil
}

// count adds to a cell; which: 0 for what is shown, 1 for what it is compared with.
func (h *HTML) count(at pageCell, which int, weight int64) {
	h.tree.nodes[at.node].self += weight
	c := h.cells[at]
	if c == nil {
		if len(h.cells) >= maxPageCells {
			at.thread, at.state = 0, 0
			c = h.cells[at]
		}
		if c == nil {
			c = new([2]int64)
			h.cells[at] = c
		}
	}
	c[which] += weight
}

// Close writes the page.
func (h *HTML) Close() error { return h.write(h.w) }

func (h *HTML) write(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16) // remembers its first error
	fl := h.layout()
	title, details := h.opts.heading(&h.run, fl.total)
	if h.pages != nil {
		title, details = "From "+h.pages[0]+" to "+h.pages[1], "each scaled to the same total"
	}
	rest := htmlPage
	for _, part := range []struct {
		mark  string
		write func()
	}{
		{"{{title}}", func() { out.Write(appendXML(nil, title)) }},
		{"{{heading}}", func() { out.Write(appendXML(nil, title)) }},
		{"{{details}}", func() { out.Write(appendXML(nil, details)) }},
		{"{{plain}}", func() { h.writePlain(out, fl) }},
		{"{{data}}", func() { h.writeData(out, fl) }},
		{"{{script}}", func() { out.WriteString(htmlScript) }},
	} {
		before, after, _ := strings.Cut(rest, part.mark)
		out.WriteString(before)
		part.write()
		rest = after
	}
	out.WriteString(rest)
	return out.Flush()
}

// writePlain writes the rows of the table for where scripts do not run: the
// functions with the most weight of their own.
func (h *HTML) writePlain(out *bufio.Writer, fl *flame) {
	type function struct {
		name        uint32
		self, total int64
	}
	list := make([]function, len(h.names.keys))
	open := make([]int, len(h.names.keys)) // how often it is on the path
	var path []uint32
	for _, b := range fl.bars {
		for len(path) > b.depth {
			open[path[len(path)-1]]--
			path = path[:len(path)-1]
		}
		f := &list[b.name]
		f.name = b.name
		f.self += b.self
		if open[b.name] == 0 {
			f.total += b.total
		}
		open[b.name]++
		path = append(path, b.name)
	}
	out.WriteString("<p style=\"padding: 0 10px\">")
	if fl.total <= 0 {
		fmt.Fprintf(out, "%s</p>", appendXML(nil, strings.Join(emptyLines, " ")))
		return
	}
	out.WriteString("The picture needs scripts, which do not run here. The functions with the most time of their own:</p>\n" +
		"<table style=\"margin: 0 10px\"><tr><th>itself<th>with callees<th>function<th>module\n")
	defer out.WriteString("</table>")
	slices.SortStableFunc(list, func(a, b function) int { return int(min(1, max(-1, b.self-a.self))) })
	for _, f := range list[:min(len(list), plainRows)] {
		if f.self <= 0 {
			break
		}
		name, _, module := splitKey(h.names.keys[f.name])
		fmt.Fprintf(out, "<tr><td>%.2f%%<td>%.2f%%<td>%s<td>%s\n", 100*float64(f.self)/float64(fl.total),
			100*float64(f.total)/float64(fl.total), appendXML(nil, name), appendXML(nil, module))
	}
}

// writeData writes the frames as JSON: names with their kinds and modules, for each
// frame its depth and the number of its name, root first, and the cells: number of
// the frame, thread, state, weight in nanoseconds, that of before.
func (h *HTML) writeData(out *bufio.Writer, fl *flame) {
	j := jsonWriter{out: out}
	j.open('{')
	j.text("unit", h.opts.unit())
	j.text("empty", strings.Join(emptyLines, " "))
	j.name("pages")
	if h.pages == nil {
		j.raw("null")
	} else {
		j.strings(h.pages)
	}
	j.name("kinds")
	j.strings(kindNames[:])
	var names, modules []string
	var kind, module []int64
	numbers := map[string]int64{}
	for _, key := range h.names.keys {
		name, k, m := splitKey(key)
		n, ok := numbers[m]
		if !ok {
			n = int64(len(modules))
			numbers[m] = n
			modules = append(modules, m)
		}
		names, kind, module = append(names, name), append(kind, int64(k)), append(module, n)
	}
	j.name("names")
	j.strings(names)
	j.column("kindOf", len(kind), func(i int) int64 { return kind[i] })
	j.column("moduleOf", len(module), func(i int) int64 { return module[i] })
	j.name("modules")
	j.strings(modules)
	j.name("threads")
	j.strings(h.threads.keys)
	j.name("states")
	j.strings(h.states.keys)
	j.column("frames", 2*len(fl.bars), func(i int) int64 {
		if b := &fl.bars[i/2]; i%2 == 0 {
			return int64(b.depth)
		} else {
			return int64(b.name)
		}
	})
	place := make(map[uint32]int64, len(fl.bars)) // of a node among the bars
	for i, b := range fl.bars {
		place[b.node] = int64(i)
	}
	cells := make([]pageCell, 0, len(h.cells))
	for at := range h.cells {
		if _, drawn := place[at.node]; drawn {
			cells = append(cells, at)
		}
	}
	slices.SortFunc(cells, func(a, b pageCell) int {
		return slices.Compare([]int64{place[a.node], int64(a.thread), int64(a.state)}, []int64{place[b.node], int64(b.thread), int64(b.state)})
	})
	j.column("cells", 5*len(cells), func(i int) int64 {
		at := cells[i/5]
		return [...]int64{place[at.node], int64(at.thread), int64(at.state), h.cells[at][0], h.cells[at][1]}[i%5]
	})
	j.close('}')
}
