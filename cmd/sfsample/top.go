package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

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
	model   *live.Model
	screen  *live.Screen
	status  live.Status
	display display

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
		model: live.New(), display: display{notices: &notices{w: stderr, tty: isTTY(stderr)}},
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
	v.model.Add(s)
	return nil
}

// EndRound implements sampler.RoundSink.
func (v *topView) EndRound(r *sampler.Round) error {
	v.model.EndRound(live.Round{
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
		context.AfterFunc(ctx, v.display.hurry)
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

// run is the life of the goroutine that has the screen.
func (v *topView) run() {
	defer close(v.over)
	defer v.display.leave()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if !v.take() {
		return
	}
	for {
		var events chan tcell.Event
		if v.display.shown {
			v.draw()
			events = v.display.paper.EventQ()
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
			v.display.leave()
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
			if v.display.shown && foreground() && v.display.tty.Load().kept() {
				v.display.paper.Sync()
				continue
			}
			v.display.leave()
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
	if v.fail = v.display.enter(); v.fail != nil {
		v.quit()
		return false
	}
	v.screen.Paper.ASCII = !strings.EqualFold(v.display.paper.CharacterSet(), "UTF-8")
	return true
}

// event takes an event of the terminal, and tells whether the run is to end.
func (v *topView) event(e tcell.Event) (quit bool) {
	switch e := e.(type) {
	case *tcell.EventError: // it has gone
		return true
	case *tcell.EventKey:
		if e.Key() == tcell.KeyCtrlL {
			v.display.paper.Sync()
		}
		switch v.screen.Press(keyOf(e)) {
		case live.Quit:
			return true
		case live.Reset:
			v.model.Reset()
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
	v.screen.Paper.Width, v.screen.Paper.Height = v.display.paper.Size()
	v.status.Notice = v.display.notices.last()
	for y, line := range v.screen.Draw(v.model, v.status) {
		style := looks[line.Style]
		v.display.paper.PutStrStyled(0, y, line.Text+strings.Repeat(" ", v.screen.Paper.Width), style)
	}
	v.display.paper.Show()
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
			v.display.hurry() // a picture under way
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
