package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v3"
)

// display is the terminal as long as it shows a picture. What is said meanwhile is told when it is left.
type display struct {
	tty     atomic.Pointer[terminal] // of the screen that is shown now, or was
	paper   tcell.Screen
	shown   bool // the screen is ours
	notices *notices
}

// enter takes the screen.
func (d *display) enter() error {
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
	d.tty.Store(tty)
	d.paper, d.shown = paper, true
	d.notices.hold()
	return nil
}

// leave gives the screen back as it was. A terminal that takes nothing is left after a second.
func (d *display) leave() {
	if !d.shown {
		return
	}
	d.shown = false
	d.hurry()
	d.paper.Fini()
	d.notices.release()
}

// hurry gives up what the terminal does not take soon.
func (d *display) hurry() {
	if t := d.tty.Load(); t != nil {
		t.hurry()
	}
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
