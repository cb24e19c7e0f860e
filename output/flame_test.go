package output

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func svg(o Options) func(*bytes.Buffer) *SVG {
	return func(b *bytes.Buffer) *SVG { return NewSVG(b, o) }
}

func page(o Options) func(*bytes.Buffer) *HTML {
	return func(b *bytes.Buffer) *HTML { return NewHTML(b, o) }
}

// weights takes folded lines apart: each call path, and each beginning of one,
// with its total weight.
func weights(t *testing.T, text []byte) map[string]int64 {
	t.Helper()
	all := make(map[string]int64)
	for l := range strings.Lines(string(text)) {
		i := strings.LastIndexByte(l, ' ')
		n, err := strconv.ParseInt(strings.TrimSpace(l[i:]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Split(l[:i], ";")
		for d := range names {
			all[strings.Join(names[:d+1], ";")] += n
		}
	}
	return all
}

// foldedWeights is the truth for a flame graph, in microseconds.
func foldedWeights(t *testing.T, samples []*Sample) map[string]int64 {
	t.Helper()
	return weights(t, write(t, folded(Options{Micros: true}), samples))
}

type svgFrame struct {
	Title string `xml:"title"`
	Rect  struct {
		X     float64 `xml:"x,attr"`
		Y     float64 `xml:"y,attr"`
		Width float64 `xml:"width,attr"`
	} `xml:"rect"`
	Text string `xml:"text"`
}

// parseSVG reads a picture with encoding/xml and returns its frames.
func parseSVG(t *testing.T, b []byte) []svgFrame {
	t.Helper()
	var doc struct {
		Groups []struct {
			ID     string     `xml:"id,attr"`
			Frames []svgFrame `xml:"g"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Groups) != 1 || doc.Groups[0].ID != "frames" {
		t.Fatalf("the picture has %d groups", len(doc.Groups))
	}
	return doc.Groups[0].Frames
}

// TestSVGAgreesWithFolded rebuilds the call paths from the places of the bars
// and holds them against the folded output.
func TestSVGAgreesWithFolded(t *testing.T) {
	b := write(t, svg(Options{}), testRun())
	golden(t, "flame.svg", b)
	want := foldedWeights(t, testRun())
	frames := parseSVG(t, b)
	if len(frames) != len(want) {
		t.Errorf("%d bars, want %d", len(frames), len(want))
	}
	scale := float64(svgWidth-2*svgMargin) / 93_000 // microseconds in the stream
	var above []svgFrame
	var path []string
	for _, f := range frames {
		for len(above) > 0 && above[len(above)-1].Rect.Y <= f.Rect.Y {
			above, path = above[:len(above)-1], path[:len(path)-1]
		}
		name, details, _ := strings.Cut(f.Title, "\n")
		if len(above) > 0 {
			under := above[len(above)-1].Rect
			if under.Y-f.Rect.Y != svgRow || f.Rect.X < under.X-0.01 || f.Rect.X+f.Rect.Width > under.X+under.Width+0.02 {
				t.Errorf("%s does not stand on %s", name, path)
			}
		}
		above, path = append(above, f), append(path, name)
		weight := want[strings.Join(path, ";")]
		if wide := float64(weight) * scale; f.Rect.Width < wide-0.01 || f.Rect.Width > wide+0.01 {
			t.Errorf("%s is %v wide, want %v", path, f.Rect.Width, wide)
		}
		if !strings.HasPrefix(details, strings.TrimSuffix(fmt.Sprintf("%.2f", float64(weight)/1000)[:4], ".")) {
			t.Errorf("%s has %q, want %d µs", path, details, weight)
		}
	}
}

// TestSVGLabelsFit: no label is wider than its bar in the widest font that
// "monospace" commonly stands for: DejaVu Sans Mono, whose letters are 1233/2048
// of an em; wide characters of other fonts take an em.
func TestSVGLabelsFit(t *testing.T) {
	const size = 12 // pixels, as the style in svgHead says
	wide := regexp.MustCompile(`\p{Han}|\p{Hangul}`)
	labels, cut := 0, 0
	letters := []string{"m", "ß", "名", "한"}
	for i := range 40 {
		var samples []*Sample
		for n := range 6 {
			name := strings.Repeat(letters[i%len(letters)], 8*n+i)
			samples = append(samples, &Sample{Process: "p", Stack: &Stack{Frames: []Frame{{Func: name}}}, CPU: time.Duration(1+(n*n+i)%9) * tick})
		}
		for _, f := range parseSVG(t, write(t, svg(Options{}), samples)) {
			n := len(wide.FindAllString(f.Text, -1))
			width := size * (float64(n) + float64(utf8.RuneCountInString(f.Text)-n)*1233/2048)
			if f.Text != "" && width+3 > f.Rect.Width {
				t.Errorf("%q takes %.1f of %.1f pixels", f.Text, width+3, f.Rect.Width)
			}
			name, _, _ := strings.Cut(f.Title, "\n")
			switch short, ok := strings.CutSuffix(f.Text, ".."); {
			case ok && !strings.HasPrefix(name, short), !ok && f.Text != "" && f.Text != name:
				t.Errorf("%q is not a beginning of %q", f.Text, name)
			case ok:
				cut++
			case f.Text != "":
				labels++
			}
		}
	}
	if labels == 0 || cut == 0 {
		t.Errorf("%d labels whole, %d cut; want both", labels, cut)
	}
}

func TestSVGLeavesOutNarrowFrames(t *testing.T) {
	samples := []*Sample{
		{Process: "p", CPU: 100_000 * tick, Stack: &Stack{Frames: []Frame{{Func: "wide"}}}},
		{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: "narrow"}}}},
	}
	b := write(t, svg(Options{}), samples)
	if n := len(parseSVG(t, b)); n != 2 || !bytes.Contains(b, []byte(">1 narrower or deeper frame left out<")) {
		t.Errorf("%d bars:\n%s", n, b)
	}
}

// TestSVGIsBounded: what is drawn of stacks that are made to be large has bounds: names
// as long as they may be in frames as many as they may be, deep or side by side.
func TestSVGIsBounded(t *testing.T) {
	name := strings.Repeat("<", maxNameBytes) // four bytes each in XML
	deep := &Stack{Frames: make([]Frame, 30_000)}
	for i := range deep.Frames {
		deep.Frames[i].Func = name[i%2:]
	}
	samples := []*Sample{{Process: "p", CPU: tick, Stack: deep}}
	var wide []*Sample
	for n := range 1000 {
		frames := make([]Frame, 20)
		for i := range frames {
			frames[i].Func = name[n%1000:]
		}
		wide = append(wide, &Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: frames}})
	}
	for what, samples := range map[string][]*Sample{"deep": samples, "wide": wide} {
		b := write(t, svg(Options{}), samples)
		if len(b) > 4*svgMaxBytes+1<<20 || !bytes.Contains(b, []byte("frames left out<")) {
			t.Errorf("%s: %d bytes", what, len(b))
		}
	}
}

func TestPicturesLeaveOutWhatHasNoWeight(t *testing.T) {
	samples := []*Sample{
		{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: "some"}}}},
		{Process: "p", CPU: 0, Stack: &Stack{Frames: []Frame{{Func: "none"}}}},
	}
	if n := len(parseSVG(t, write(t, svg(Options{}), samples))); n != 2 {
		t.Errorf("%d bars in the SVG, want 2", n)
	}
	if _, frames := pageData(t, write(t, page(Options{}), samples)); len(frames) != 2*3 {
		t.Errorf("%d numbers in the page, want 2 frames of 3", len(frames))
	}
}

func TestSVGWithoutSamples(t *testing.T) {
	if n := len(parseSVG(t, write(t, svg(Options{}), nil))); n != 0 {
		t.Errorf("%d bars", n)
	}
}

// pageData takes the frames out of a page.
func pageData(t *testing.T, b []byte) (names []string, frames []int64) {
	t.Helper()
	m := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the page has no data")
	}
	var data struct {
		Names, Kinds, Modules, Threads, States []string
		KindOf, ModuleOf                       []int
		Frames, Cells                          []int64
	}
	if err := json.Unmarshal(m[1], &data); err != nil {
		t.Fatal(err)
	}
	if len(data.KindOf) != len(data.Names) || len(data.ModuleOf) != len(data.Names) || len(data.Cells)%5 != 0 {
		t.Errorf("%d kinds and %d modules for %d names, %d numbers in cells", len(data.KindOf), len(data.ModuleOf), len(data.Names), len(data.Cells))
	}
	for i := 0; i < len(data.Frames); i += 2 {
		frames = append(frames, data.Frames[i], data.Frames[i+1], 0)
	}
	for c := data.Cells; len(c) > 0; c = c[5:] {
		if c[1] >= int64(len(data.Threads)) || c[2] >= int64(len(data.States)) {
			t.Errorf("cell %v has no thread or state", c[:5])
		}
		frames[3*c[0]+2] += c[3]
	}
	return data.Names, frames
}

func TestHTMLAgreesWithFolded(t *testing.T) {
	b := write(t, page(Options{}), testRun())
	if !bytes.Contains(b, []byte(htmlScript)) {
		t.Error("the page does not have its script")
	}
	golden(t, "flame.html", bytes.Replace(b, []byte(htmlScript), []byte("{{script}}"), 1))
	names, frames := pageData(t, b)
	want := foldedWeights(t, testRun())
	got := make(map[string]int64)
	var path []string
	for i := 0; i < len(frames); i += 3 {
		path = append(path[:frames[i]], names[frames[i+1]])
		for d := range path {
			got[strings.Join(path[:d+1], ";")] += frames[i+2] / 1000
		}
	}
	for p, w := range want {
		if got[p] != w {
			t.Errorf("%s has weight %d, want %d", p, got[p], w)
		}
		delete(got, p)
	}
	for p := range got {
		t.Errorf("%s is not in the folded output", p)
	}
}

// TestPicturesReferToNothing: no address but the names of the namespaces of SVG and HTML.
func TestPicturesReferToNothing(t *testing.T) {
	for name, b := range map[string][]byte{
		"svg":  write(t, svg(Options{}), testRun()),
		"html": write(t, page(Options{}), testRun()),
	} {
		text := strings.NewReplacer(`xmlns="http://www.w3.org/2000/svg"`, "", `createElementNS("http://www.w3.org/1999/xhtml"`, "").Replace(string(b))
		if m := regexp.MustCompile(`(?i)(https?:|src=|href|url\(|@import|import\(|fetch\(|XMLHttp).*`).FindString(text); m != "" {
			t.Errorf("%s refers to %s", name, m)
		}
	}
}

func FuzzPictures(f *testing.F) {
	f.Add("app", "main<&>\"'", "]]></script><script>alert(1)</script>")
	f.Add("\x00\ufffe", "\xff<!--", "{{data}}{{script}}")
	f.Fuzz(func(t *testing.T, process, outer, inner string) {
		samples := []*Sample{{Process: process, CPU: 2 * tick, Stack: &Stack{Frames: []Frame{{Func: inner}, {Func: outer}}}}}
		want := foldedWeights(t, samples)
		b := write(t, svg(Options{}), samples)
		frames := parseSVG(t, b)
		var path []string
		for _, fr := range frames {
			name, _, _ := strings.Cut(fr.Title, "\n")
			path = append(path, name)
		}
		if len(frames) != 3 || want[strings.Join(path, ";")] != 20_000 {
			t.Errorf("bars %q, want %v", path, want)
		}
		doc := write(t, page(Options{}), samples)
		names, data := pageData(t, doc)
		if len(data) != 9 || names[data[7]] != path[2] {
			t.Errorf("page has %q and %v, want %q", names, data, path)
		}
		// Whatever the names are, the page has as many elements as without them.
		if n := bytes.Count(doc, []byte("<script")); n != 2 {
			t.Errorf("%d scripts", n)
		}
		for _, out := range [][]byte{b, doc} {
			if !utf8.Valid(out) || bytes.ContainsFunc(out, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
				t.Error("unprintable characters")
			}
		}
	})
}

// BenchmarkSVG writes 100,000 call paths.
func BenchmarkSVG(b *testing.B) {
	s := NewSVG(io.Discard, Options{})
	for i := range 100_000 {
		s.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{
			{Func: fmt.Sprint("leaf", i%1000)}, {Func: fmt.Sprint("middle", i%317)}, {Func: fmt.Sprint("outer", i%10)}, {Func: "main"}}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNothingRan draws no samples: the pictures say so instead of being blank.
func TestNothingRan(t *testing.T) {
	for name, text := range map[string][]byte{
		"svg":  write(t, svg(Options{Hz: 100}), nil),
		"html": write(t, func(w *bytes.Buffer) *HTML { return NewHTML(w, Options{Hz: 100}) }, nil),
	} {
		for _, line := range emptyLines {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s: no %q", name, line)
			}
		}
	}
}

// TestSVGContrast: names have a contrast of 4.5 to what they are drawn on (WCAG 2.1, 1.4.3).
func TestSVGContrast(t *testing.T) {
	luminance := func(c ...uint8) float64 {
		sum := 0.0
		for i, share := range []float64{0.2126, 0.7152, 0.0722} {
			v := float64(c[i]) / 255
			if v <= 0.04045 {
				sum += share * v / 12.92
			} else {
				sum += share * math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return sum
	}
	for k, s := range shades {
		if c := (luminance(s[:3]...) + 0.05) / (luminance(0x11, 0x11, 0x11) + 0.05); c < 4.5 {
			t.Errorf("%s: %.2f", kindNames[k], c)
		}
	}
}

// TestHeadingOfReplay: what was lost is not known of a recording, and not told as nothing.
func TestHeadingOfReplay(t *testing.T) {
	_, details := Options{Hz: 100}.heading(&Run{Command: "replay of a.cap", Samples: 3}, int64(time.Second))
	if details != "1.00 s of CPU time at 100 Hz · 3 samples" {
		t.Errorf("%q", details)
	}
}
