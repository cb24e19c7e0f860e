package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// plainHandler writes log records as lines of the tool's own: "sfsample:
// message (key value, key value)".
type plainHandler struct {
	w     io.Writer
	level slog.Level
	mu    *sync.Mutex
	attrs []slog.Attr
}

func (h *plainHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *plainHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("sfsample: ")
	if r.Level < slog.LevelWarn {
		b.WriteString("- ")
	}
	b.WriteString(r.Message)
	sep := " ("
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&b, "%s%s %v", sep, a.Key, a.Value.Resolve())
		sep = ", "
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if sep == ", " {
		b.WriteByte(')')
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, printable(b.String())+"\n")
	return err
}

func (h *plainHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append(append([]slog.Attr(nil), h.attrs...), attrs...)
	return &c
}

// WithGroup leaves names as they are: there are few, and they do not clash.
func (h *plainHandler) WithGroup(string) slog.Handler { return h }
