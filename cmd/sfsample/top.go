package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"
	"golang.org/x/sys/unix"

	"sfsample/live"
	"sfsample/output"
	"sfsample/sampler"
)

// topView shows a run while it goes on. Samples are counted by the model, and the terminal is written to by a
// goroutine of its own, for which nobody waits.
type topView struct {
	*live.Model
	screen  *live.Screen
	status  live.Status
	notices *notices
	tty     atomic.Pointer[terminal] // of the screen that is shown now, or was
	paper   tcell.Screen
	shown   bool // the screen is ours

	news  chan struct{}            // a round has ended
	ended chan string              // nothing more comes
	holds chan hold                // the screen is to be left for a while
	idle  chan struct{}            // closed when the engine takes no suspensions any more
	quit  func()                   // ends the run
	stops func() (pid, tracer int) // who is stopped
	done  <-chan struct{}          // of the run
	over  chan struct{}            // closed when the screen is left for good
	begun sync.Once
	fail  error // why there is no screen
}

// hold asks for the screen to be left; it is taken again when back is closed.
type hold struct{ left, back chan struct{} }

// newTop makes the view of a run.
func newTop(c *config, stderr io.Writer) *topView {
	tcell.SetEncodingFallback(tcell.EncodingFallbackASCII)
	v := &topView{
		Model: live.New(), notices: &notices{w: stderr, tty: isTTY(stderr)},
		news: make(chan struct{}, 1), ended: make(chan string, 1), holds: make(chan hold), idle: make(chan struct{}), over: make(chan struct{}),
		status: live.Status{Hz: float64(c.pace.hz)},
	}
	v.screen = live.NewScreen(c.sampling.threads == threadsAll, c.sampling.weight == weightWall, false)
	return v
}

func isTTY(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f)
}

// Add implements output.Sink.
func (v *topView) Add(s *output.Sample) error {
	v.Model.Add(s)
	return nil
}

// EndRound implements sampler.RoundSink.
func (v *topView) EndRound(r *sampler.Round) error {
	v.Model.EndRound(live.Round{
		Start: r.Start, End: r.End, Account: r.Account, Processes: r.Processes, Threads: r.Threads,
		P50: r.Pause.P50, P99: r.Pause.P99, Max: r.Pause.Max, Stops: r.Pause.N, Stride: r.Stride, Last: r.Last,
	})
	select {
	case v.news <- struct{}{}:
	default:
	}
	return nil
}

// Close implements output.Sink.
func (v *topView) Close() error { return v.fail }

// Discard implements results.
func (v *topView) Discard() {}

// begin takes the screen, once everything is attached.
func (v *topView) begin(ctx context.Context, what string, stops func() (pid, tracer int), quit func()) {
	v.begun.Do(func() {
		v.status.What, v.stops, v.quit, v.done = what, stops, quit, ctx.Done()
		context.AfterFunc(ctx, v.hurry)
		go v.run()
	})
}

// await waits until the screen is left. why: nothing more comes; the last picture stays. Empty: it is left at once.
func (v *topView) await(why string) {
	close(v.idle)
	v.begun.Do(func() { close(v.over) }) // it never began
	if why == "" && v.quit != nil {
		v.quit()
	}
	v.ended <- why
	<-v.over
}

// hurry gives up what the terminal does not take soon.
func (v *topView) hurry() {
	if t := v.tty.Load(); t != nil {
		t.hurry()
	}
}

// run is the life of the goroutine that has the screen.
func (v *topView) run() {
	defer close(v.over)
	defer v.leave()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if !v.take() {
		return
	}
	for {
		var events chan tcell.Event
		if v.shown {
			v.draw()
			events = v.paper.EventQ()
		}
		select {
		case <-v.done:
			return
		case <-v.news:
			v.status.Stopped = ""
			switch pid, tracer := v.stops(); {
			case tracer != 0:
				v.status.Stopped = fmt.Sprintf("process %d is stopped by process %d, which traces it", pid, tracer)
			case pid != 0:
				v.status.Stopped = fmt.Sprintf("process %d is stopped (try: kill -CONT %[1]d)", pid)
			}
		case why := <-v.ended:
			if why == "" {
				return
			}
			v.status.Ended = why
		case e, ok := <-events:
			if !ok || v.event(e) {
				v.quit()
				return
			}
		case h := <-v.holds:
			v.leave()
			close(h.left)
			select {
			case <-h.back:
			case <-v.done:
				return
			}
			if !v.take() {
				return
			}
		case <-continued: // after a SIGSTOP, of which nobody has told us, the terminal is as the shell likes it
			if v.shown && foreground() && v.tty.Load().kept() {
				v.paper.Sync()
				continue
			}
			v.leave()
			if !v.take() {
				return
			}
		}
	}
}

// take takes the screen. In the background it stops us instead, as the kernel would. false: there is none.
func (v *topView) take() bool {
	if !foreground() {
		_ = unix.Kill(os.Getpid(), unix.SIGTTOU) // cannot fail on ourselves; see suspensions
		return true
	}
	if v.fail = v.enter(); v.fail != nil {
		v.quit()
	}
	return v.fail == nil
}

func (v *topView) enter() error {
	tty, err := newTerminal()
	if err != nil {
		return fmt.Errorf("show processes: %w (try: sfsample -p PID -d 10s -o FILE.html)", err)
	}
	// Nothing is asked of the terminal: answers that come late would be taken for keys.
	paper, err := tcell.NewTerminfoScreenFromTty(tty, tcell.OptNegotiation(false), tcell.OptSanitizeContent(true))
	if err == nil {
		err = paper.Init()
	}
	if err != nil {
		tty.f.Close()
		return fmt.Errorf("show processes: %w (try: another terminal, or sfsample -p PID -d 10s -o FILE.html)", err)
	}
	v.tty.Store(tty)
	v.paper, v.shown = paper, true
	v.screen.ASCII = !strings.EqualFold(paper.CharacterSet(), "UTF-8")
	v.notices.hold()
	return nil
}

// leave gives the screen back as it was. A terminal that takes nothing is left after a second.
func (v *topView) leave() {
	if !v.shown {
		return
	}
	v.shown = false
	v.hurry()
	v.paper.Fini()
	v.notices.release()
}

// event takes an event of the terminal, and tells whether the run is to end.
func (v *topView) event(e tcell.Event) (quit bool) {
	switch e := e.(type) {
	case *tcell.EventError: // it has gone
		return true
	case *tcell.EventKey:
		if e.Key() == tcell.KeyCtrlL {
			v.paper.Sync()
		}
		switch v.screen.Press(keyOf(e)) {
		case live.Quit:
			return true
		case live.Reset:
			v.Reset()
		}
	}
	return false
}

func keyOf(e *tcell.EventKey) live.Key {
	switch e.Key() {
	case tcell.KeyUp:
		return live.KeyUp
	case tcell.KeyDown:
		return live.KeyDown
	case tcell.KeyPgUp, tcell.KeyCtrlB:
		return live.KeyPageUp
	case tcell.KeyPgDn, tcell.KeyCtrlF:
		return live.KeyPageDown
	case tcell.KeyHome:
		return live.KeyHome
	case tcell.KeyEnd:
		return live.KeyEnd
	case tcell.KeyEnter, tcell.KeyCtrlJ:
		return live.KeyEnter
	case tcell.KeyEscape:
		return live.KeyEscape
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		return live.KeyBackspace
	case tcell.KeyTab:
		return live.KeyTab
	case tcell.KeyRune:
		if e.Modifiers()&(tcell.ModCtrl|tcell.ModAlt) == 0 {
			for _, r := range e.Str() {
				return live.Key(r)
			}
		}
	}
	return 0
}

// draw writes what has changed.
func (v *topView) draw() {
	v.screen.Width, v.screen.Height = v.paper.Size()
	v.status.Notice = v.notices.last()
	for y, line := range v.screen.Draw(v.Model, v.status) {
		style := looks[line.Style]
		v.paper.PutStrStyled(0, y, line.Text+strings.Repeat(" ", v.screen.Width), style)
	}
	v.paper.Show()
}

// looks are the styles; each is told from the others without colours too.
var looks = map[live.Style]tcell.Style{
	live.Plain:   tcell.StyleDefault,
	live.Title:   tcell.StyleDefault.Bold(true),
	live.Heading: tcell.StyleDefault.Foreground(color.Teal).Underline(true),
	live.Chosen:  tcell.StyleDefault.Reverse(true),
	live.Faint:   tcell.StyleDefault.Dim(true),
	live.Warning: tcell.StyleDefault.Foreground(color.Olive).Bold(true),
}

// suspensions is what [suspensions] is for a run without a screen: the screen is left before this program stops, and
// taken again when it goes on. Nothing of the engine waits for the terminal.
func (v *topView) suspensions(ctx context.Context) <-chan func() {
	out, plain := make(chan func()), suspensions(ctx)
	go func() {
		for {
			var stop func()
			select {
			case <-ctx.Done():
				return
			case stop = <-plain:
			}
			h := hold{make(chan struct{}), make(chan struct{})}
			v.hurry() // a picture under way
			select {
			case v.holds <- h:
				<-h.left
			case <-v.over:
			case <-ctx.Done():
				return
			}
			for again := true; again; again = !foreground() { // in the background there is no screen for us
				stopped := make(chan struct{})
				select {
				case out <- func() { stop(); close(stopped) }:
					<-stopped
				case <-v.idle:
					stop()
				case <-ctx.Done():
					return
				}
			}
			close(h.back)
		}
	}()
	return out
}

// notices are messages that would spoil the picture: they are told when it is gone.
type notices struct {
	w    io.Writer
	tty  bool // w is a terminal; else it is told at once
	mu   sync.Mutex
	held bool
	kept bytes.Buffer
	line string    // the last
	at   time.Time // when it came
}

// noticeTime is how long a message stands in the picture.
const noticeTime = 10 * time.Second

// maxNotices bounds what is kept.
const maxNotices = 1 << 16

// Write implements io.Writer.
func (n *notices) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if line := strings.TrimSpace(string(b)); line != "" {
		n.line, n.at = strings.TrimPrefix(line, "sfsample: "), time.Now()
	}
	if !n.held || !n.tty {
		return n.w.Write(b)
	}
	if n.kept.Len()+len(b) <= maxNotices {
		n.kept.Write(b)
	}
	return len(b), nil
}

func (n *notices) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.at) > noticeTime {
		return ""
	}
	return n.line
}

func (n *notices) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = true
}

// release tells what was held back.
func (n *notices) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = false
	_, _ = n.kept.WriteTo(n.w) // there is nowhere to tell of an error
}

// quietFile is what a command has in the place of a file of ours: a terminal would show it over the picture.
func quietFile(f *os.File, flag int) *os.File {
	if !isTerminal(f) {
		return f
	}
	null, err := os.OpenFile(os.DevNull, flag, 0)
	if err != nil {
		return f
	}
	return null
}
