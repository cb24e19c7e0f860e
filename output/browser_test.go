package output

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// browser is a session of a headless Chromium (W3C WebDriver).
type browser struct {
	t   *testing.T
	url string
}

// startBrowser starts Chromium with its driver, which Debian's chromium-driver carries.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	driver, err := exec.LookPath("chromedriver")
	if _, missing := exec.LookPath("chromium"); err != nil || missing != nil {
		t.Skip("no chromium and chromedriver on this machine")
	}
	home := t.TempDir()
	cmd := exec.Command(driver, "--port=0")
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.Dir = home
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // errors say that it has ended
		_ = cmd.Wait()
	})
	port := 0
	for lines := bufio.NewScanner(out); port == 0; {
		if !lines.Scan() {
			t.Fatal("chromedriver tells no port")
		}
		if i := strings.Index(lines.Text(), "successfully on port "); i >= 0 {
			fmt.Sscanf(lines.Text()[i:], "successfully on port %d", &port)
		}
	}
	b := &browser{t, fmt.Sprintf("http://127.0.0.1:%d/session", port)}
	var session struct {
		SessionID string
	}
	b.do("POST", "", `{"capabilities":{"alwaysMatch":{"goog:chromeOptions":{"args":["--headless=new","--no-sandbox","--disable-gpu","--disable-dev-shm-usage","--window-size=1200,800"]}}}}`, &session)
	b.url += "/" + session.SessionID
	t.Cleanup(func() { b.do("DELETE", "", "", nil) })
	return b
}

func (b *browser) do(method, path, body string, value any) {
	b.t.Helper()
	r, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	client := http.Client{Timeout: time.Minute}
	answer, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	var doc struct{ Value json.RawMessage }
	if err := json.NewDecoder(answer.Body).Decode(&doc); err != nil || answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s, %v: %s", method, path, answer.Status, err, doc.Value)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(doc.Value, value); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) open(file string) {
	b.t.Helper()
	b.do("POST", "/url", fmt.Sprintf(`{"url":"file://%s"}`, file), nil)
}

// js runs a script and returns what it returns.
func (b *browser) js(script string) (value any) {
	b.t.Helper()
	body, _ := json.Marshal(map[string]any{"script": script, "args": []int{}})
	b.do("POST", "/execute/sync", string(body), &value)
	return value
}

// want waits until a script returns a value, as the page reacts a moment later.
func (b *browser) want(what, script string, want any) {
	b.t.Helper()
	var got any
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = b.js(script); got == want {
			return
		}
	}
	b.t.Errorf("%s: %v, want %v", what, got, want)
}

// click clicks at a place of the window.
func (b *browser) click(x, y float64) {
	b.t.Helper()
	b.do("POST", "/actions", fmt.Sprintf(`{"actions":[{"type":"pointer","id":"m","parameters":{"pointerType":"mouse"},"actions":[
		{"type":"pointerMove","x":%d,"y":%d},{"type":"pointerDown","button":0},{"type":"pointerUp","button":0}]}]}`, int(x), int(y)), nil)
}

// keys types.
func (b *browser) keys(keys string) {
	b.t.Helper()
	var acts []string
	for _, k := range keys {
		text, _ := json.Marshal(string(k))
		acts = append(acts, fmt.Sprintf(`{"type":"keyDown","value":%s},{"type":"keyUp","value":%[1]s}`, text))
	}
	b.do("POST", "/actions", `{"actions":[{"type":"key","id":"k","actions":[`+strings.Join(acts, ",")+`]}]}`, nil)
}

// devtools gives a command of the DevTools protocol.
func (b *browser) devtools(cmd, params string) {
	b.t.Helper()
	b.do("POST", "/goog/cdp/execute", fmt.Sprintf(`{"cmd":%q,"params":%s}`, cmd, params), nil)
}

// Keys of WebDriver (W3C WebDriver, "Keyboard actions").
const (
	keyBackspace = "\ue003"
	keyEscape    = "\ue00c"
	keyEnter     = "\ue007"
	keyUp        = "\ue013"
	keyDown      = "\ue015"
)

// TestBrowser uses the pages in a browser as people do.
func TestBrowser(t *testing.T) {
	b := startBrowser(t)
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	stack := func(names ...string) *Stack {
		s := &Stack{}
		for _, n := range names {
			s.Frames = append(s.Frames, Frame{Func: n, Module: "app"})
		}
		return s
	}
	var samples []*Sample
	for _, s := range []*Sample{
		{Thread: "a", TID: 1, State: "running", CPU: 60 * tick, Stack: stack("scan", "parse", "main")},
		{Thread: "b", TID: 2, State: "running", CPU: 30 * tick, Stack: stack("fib", "fib", "fib", "main")},
		{Thread: "b", TID: 2, State: "read", CPU: 10 * tick, Stack: stack("scan", "main")},
	} {
		s.Process, s.PID, s.Time = "app", 1, start
		samples = append(samples, s)
	}
	html := file("a.html", write(t, func(w *bytes.Buffer) *HTML {
		h := NewHTML(w, Options{Hz: 100})
		h.describe(Run{Command: "app <b>", PIDs: []int{1}, Host: "box", Start: start, Duration: time.Second, Samples: 3, Lost: 7})
		return h
	}, samples))
	rows := `return [...document.querySelectorAll("#rows tr")].map(r => [...r.cells].map(c => c.textContent).join("|")).join("\n")`
	hash := "return location.hash"
	details := `return document.getElementById("details").textContent`

	b.open(html)
	b.want("title", "return document.title", "app <b> (pid 1)")
	b.want("run", `return document.getElementById("run").textContent`, "1.00 s of CPU time in 1.00 s at 100 Hz · 3 samples, 7 ticks lost · host box · 2026-07-01 12:00:00 UTC")
	top := b.js(`return document.getElementById("canvas").getBoundingClientRect().top`).(float64)
	b.click(100, top+2*17+8) // the third row: fib, before parse and scan by name
	b.want("zoom", hash, "#zoom=2")
	b.want("details", details, "fib (app): 300 ms, 30.00%, itself 0.00 µs, own code")
	b.js("history.back()")
	b.want("back", hash, "")
	b.keys(keyDown + keyDown + keyDown + keyEnter)
	b.want("zoom by keys", hash, "#zoom=2")
	b.keys(keyUp)
	b.want("parent by key", details, "main (app): 1.00 s, 100.00%, itself 0.00 µs, own code")
	b.keys(keyEscape)
	b.want("reset by key", hash, "")
	b.keys("/^SCAN$")
	b.want("search that minds case", `return document.getElementById("matched").textContent`, "matched 0.00%")
	b.keys(keyEscape + "/^scan$")
	b.want("search", `return document.getElementById("matched").textContent`, "matched 70.00%")
	b.want("search in the address", hash, "#q=%5Escan%24")
	b.keys(keyEscape)
	b.js(`document.querySelector("[data-view=table]").click()`)
	b.want("table", rows, "700 ms 70.00%|700 ms 70.00%|scan|app\n300 ms 30.00%|300 ms 30.00%|fib|app\n0.00 µs 0.00%|1.00 s 100.00%|app|\n"+
		"0.00 µs 0.00%|1.00 s 100.00%|main|app\n0.00 µs 0.00%|600 ms 60.00%|parse|app")
	b.js(`const s = document.getElementById("thread"); s.value = [...s.options].find(o => o.textContent.startsWith("b 2")).value; s.dispatchEvent(new Event("change"))`)
	b.want("one thread", rows, "300 ms 75.00%|300 ms 75.00%|fib|app\n100 ms 25.00%|100 ms 25.00%|scan|app\n0.00 µs 0.00%|400 ms 100.00%|app|\n0.00 µs 0.00%|400 ms 100.00%|main|app")
	b.js(`const s = document.getElementById("state"); s.value = [...s.options].find(o => o.textContent.startsWith("read")).value; s.dispatchEvent(new Event("change"))`)
	b.want("one state", rows, "100 ms 100.00%|100 ms 100.00%|scan|app\n0.00 µs 0.00%|100 ms 100.00%|app|\n0.00 µs 0.00%|100 ms 100.00%|main|app")
	b.open(html + "#view=callers")
	b.keys(keyDown)
	b.want("callers", details, "scan (app): 700 ms, 70.00%, itself 0.00 µs, own code")
	b.open(html + "#view=icicle&fold=1")
	b.keys(keyDown + keyDown + keyDown + keyDown)
	b.want("recursion folded", details, "scan (app): 600 ms, 60.00%, itself 600 ms, own code")
	b.js(`document.querySelector("[data-view=table]").click()`)
	b.js(`document.querySelector("#rows tr").focus()`)
	b.keys(keyEnter)
	b.want("sandwich", details, "callers of scan are above it, what it calls is below")
	b.keys(keyBackspace)
	b.want("out of the sandwich", hash, "#view=table&fold=1")

	back := `return getComputedStyle(document.documentElement).backgroundColor`
	b.want("light", back, "rgb(248, 248, 244)")
	b.devtools("Emulation.setEmulatedMedia", `{"features":[{"name":"prefers-color-scheme","value":"dark"}]}`)
	b.want("dark", back, "rgb(22, 24, 28)")
	testContrast(b, file)
	tiny := &Sample{Process: "app", TID: 1, State: "running", CPU: 1000, Stack: stack("tiny", "main")} // too narrow to be drawn
	svg := file("a.svg", write(t, svg(Options{Hz: 100}), append(samples, tiny)))
	for _, width := range []int{400, 2500} {
		b.devtools("Emulation.setDeviceMetricsOverride", fmt.Sprintf(`{"width":%d,"height":800,"deviceScaleFactor":1,"mobile":false}`, width))
		b.open(html)
		b.want(fmt.Sprint("page fits ", width), fmt.Sprintf(`return document.documentElement.scrollWidth <= %d && document.getElementById("canvas").clientWidth > %[1]d - 40 &&
			document.getElementById("scroll").scrollWidth <= document.getElementById("scroll").clientWidth`, width), true)
		b.open(svg)
		b.want(fmt.Sprint("picture fits ", width), `return [...document.querySelectorAll("#frames rect")].reduce((m, r) => Math.max(m, +r.getAttribute("width")), 0)`, float64(width-20))
	}
	for _, width := range []int{300, 500, 1200} {
		b.devtools("Emulation.setDeviceMetricsOverride", fmt.Sprintf(`{"width":%d,"height":800,"deviceScaleFactor":1,"mobile":false}`, width))
		b.open(svg)
		b.want(fmt.Sprint("heading fits ", width), `return ["title", "run", "left"].every(id => { const b = document.getElementById(id).getBBox(); return b.x >= 0 && b.x + b.width <= window.innerWidth })`, true)
		b.want(fmt.Sprint("legend and search apart, ", width), `const b = document.getElementById("legend").getBoundingClientRect();
			return b.width == 0 || b.right <= document.getElementById("search").getBoundingClientRect().left`, true)
	}
	b.js(`const i = document.getElementById("search"); i.value = "scan"; i.dispatchEvent(new Event("input"))`)
	b.want("search in the SVG", `return document.getElementById("matched").textContent`, "matched 70.0%")

	testTouch(b, html, file)
	b.devtools("Emulation.setScriptExecutionDisabled", `{"value":true}`)
	b.open(html + "#none")
	var table map[string]string
	b.do("POST", "/element", `{"using":"css selector","value":"noscript table"}`, &table)
	for _, id := range table {
		var text string
		b.do("GET", "/element/"+id+"/text", "", &text)
		if !strings.Contains(text, "70.00% 70.00% scan app\n30.00% 30.00% fib app") {
			t.Errorf("without scripts the page shows %q", text)
		}
	}
	b.devtools("Emulation.setScriptExecutionDisabled", `{"value":false}`)

	b.open(file("second.html", write(t, func(w *bytes.Buffer) *HTML { return NewHTML(w, Options{Hz: 100}) },
		[]*Sample{{Process: "app", TID: 1, State: "running", CPU: 999_900_000, Stack: stack("main")}})))
	b.keys(keyDown + keyDown)
	b.want("nearly a second", details, "main (app): 1000 ms, 100.00%, itself 1000 ms, own code")

	r := rand.New(rand.NewPCG(5, 6))
	big := NewHTML(nil, Options{Hz: 100})
	for i := range 50_000 {
		s := &Stack{Frames: []Frame{{Func: fmt.Sprint("leaf", i), Module: "app"}}}
		for d := range 3 + r.IntN(3) {
			s.Frames = append(s.Frames, Frame{Func: fmt.Sprint("f", d, "_", r.IntN(5)), Module: "app"})
		}
		big.Add(&Sample{Process: "app", TID: i % 8, Thread: "t", State: "running", CPU: tick, Stack: s})
	}
	var page bytes.Buffer
	if err := big.write(&page); err != nil {
		t.Fatal(err)
	}
	b.open(file("big.html", page.Bytes()))
	load := b.js(`const e = performance.getEntriesByType("navigation")[0]; return e.domComplete`).(float64)
	turn := b.js(`const t = performance.now(); document.querySelector("[data-view=callers]").click(); return performance.now() - t`).(float64)
	t.Logf("50,000 stacks: drawn after %.0f ms, callers first after %.0f ms", load, turn)
	if load > 5000 || turn > 5000 { // a second each on a machine that is not busy
		t.Errorf("50,000 stacks were drawn after %.0f ms, callers first after %.0f ms", load, turn)
	}
}

// testTouch uses the page as on a telephone: by taps, also where two fingers have enlarged it, and a swipe.
func testTouch(b *browser, html string, file func(string, []byte) string) {
	b.t.Helper()
	b.devtools("Emulation.setTouchEmulationEnabled", `{"enabled":true}`)
	b.devtools("Emulation.setDeviceMetricsOverride", `{"width":400,"height":800,"deviceScaleFactor":2,"mobile":true}`)
	hash := "return location.hash"
	finger := func(id string, x, y, toX, toY float64, pause int) string {
		return fmt.Sprintf(`{"type":"pointer","id":%q,"parameters":{"pointerType":"touch"},"actions":[{"type":"pointerMove","x":%d,"y":%d},{"type":"pointerDown","button":0},
			{"type":"pause","duration":%d},{"type":"pointerMove","x":%d,"y":%d,"duration":200},{"type":"pointerUp","button":0}]}`, id, int(x), int(y), pause, int(toX), int(toY))
	}
	touch := func(fingers ...string) {
		b.do("POST", "/actions", `{"actions":[`+strings.Join(fingers, ",")+`]}`, nil)
	}
	tap := func(x, y float64, ms int) { touch(finger("f", x, y, x, y, ms)) }
	b.open(html + "?touch")
	b.want("page fits a telephone", `return document.documentElement.scrollWidth`, 400.)
	top := b.js(`return document.getElementById("canvas").getBoundingClientRect().top`).(float64)
	tap(60, top+2*17+8, 50) // fib
	b.want("a tap zooms", hash, "#zoom=2")
	b.js("history.back()")
	b.want("back", hash, "")
	b.js(`document.getElementById("both").click()`)
	b.want("a function has to be chosen first", hash, "")
	tap(60, top+2*17+8, 50)
	b.want("again", hash, "#zoom=2")
	at := b.js(`const r = document.getElementById("both").getBoundingClientRect(); return [r.left + 5, r.top + 5]`).([]any)
	tap(at[0].(float64), at[1].(float64), 50)
	b.want("callers and callees by a tap", `return document.getElementById("details").textContent`, "callers of fib are above it, what it calls is below")

	b.open(html + "?pinch")
	touch(finger("f", 60, top+30, 60, top-70, 0), finger("g", 60, top+60, 60, top+160, 0))
	b.want("two fingers enlarge", "return visualViewport.scale > 1.5", true)
	b.do("DELETE", "/actions", "", nil) // lifts them
	tap(60-b.js("return visualViewport.offsetLeft").(float64), top+3*17+8-b.js("return visualViewport.offsetTop").(float64), 50)
	b.want("a tap on what is enlarged", hash, "#zoom=3")

	deep := &Stack{}
	for i := range 200 {
		deep.Frames = append(deep.Frames, Frame{Func: fmt.Sprint("f", i), Module: "app"})
	}
	b.open(file("deep.html", write(b.t, func(w *bytes.Buffer) *HTML { return NewHTML(w, Options{Hz: 100}) }, []*Sample{{Process: "app", TID: 1, State: "running", CPU: tick, Stack: deep}})))
	touch(finger("f", 200, 600, 200, 200, 0))
	b.want("a swipe scrolls", `return document.getElementById("scroll").scrollTop > 200`, true)
	b.devtools("Emulation.setTouchEmulationEnabled", `{"enabled":false}`)
	b.devtools("Emulation.setDeviceMetricsOverride", `{"width":1200,"height":800,"deviceScaleFactor":1,"mobile":false}`)
}

// testContrast looks at the colours of bars of every kind: names on them have to be readable, with a contrast of 4.5
// (WCAG 2.1, 1.4.3).
func testContrast(b *browser, file func(string, []byte) string) {
	b.t.Helper()
	h := NewHTML(nil, Options{Hz: 100})
	for i := range 60 {
		f := []Frame{{Module: "app"}, {Module: "libx.so.1"}, {Module: "libc.so.6"}, {Module: "python", File: "a.py"}, {Module: "app", Inlined: true}, {}, {Kernel: true}}[i%7]
		f.Func = fmt.Sprint("f", i)
		if f.Module == "libx.so.1" {
			f.Module = fmt.Sprintf("libx%d.so.1", i)
		}
		h.Add(&Sample{Process: "app", TID: 1, Thread: "t", State: "running", CPU: tick, Stack: &Stack{Frames: []Frame{f}}})
	}
	var page bytes.Buffer
	if err := h.write(&page); err != nil {
		b.t.Fatal(err)
	}
	name := file("colours.html", page.Bytes())
	b.devtools("Emulation.setDeviceMetricsOverride", `{"width":2500,"height":400,"deviceScaleFactor":1,"mobile":false}`)
	for scheme, text := range map[string]string{"dark": "240,240,236", "light": "17,17,17"} {
		b.devtools("Emulation.setEmulatedMedia", fmt.Sprintf(`{"features":[{"name":"prefers-color-scheme","value":%q}]}`, scheme))
		for _, fragment := range []string{"", "#module=1", "#q=f"} {
			// A fill is a colour of so many dots: edges of letters are between two colours, and have more dots in common where all bars have one.
			fills, dots := 30, 200
			if fragment == "#q=f" {
				fills, dots = 1, 5000
			}
			b.open(name + "?" + scheme + fragment)
			// Drawn again without names, as the edges of letters have colours too.
			b.js(`CanvasRenderingContext2D.prototype.fillText = () => {}; document.getElementById("scroll").style.width = "99%"`)
			b.want("contrast, "+scheme+" "+fragment, fmt.Sprintf(`const c = document.getElementById("canvas"), dots = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, met = {};
				for (let i = 0; i < dots.length; i += 4) if (dots[i + 3] === 255) { const k = dots.slice(i, i + 3).join(); met[k] = (met[k] || 0) + 1; }
				const lum = k => { const [r, g, b] = k.split(",").map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
				const text = lum(%q), low = [], fills = Object.keys(met).filter(k => met[k] > %[3]d && k !== %[1]q);
				for (const k of fills) { const l = lum(k), c = (Math.max(l, text) + 0.05) / (Math.min(l, text) + 0.05); if (c < 4.5) low.push(k + " " + c.toFixed(2)); }
				return fills.length < %[2]d ? "only " + fills.length : low.join("; ")`, text, fills, dots), "")
		}
	}
	b.devtools("Emulation.setEmulatedMedia", `{"features":[]}`)
}
