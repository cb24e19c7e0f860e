package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
)

// viewed are the formats that --open=URL is for, whose viewers are pages that load a profile by its address.
var viewed = []string{"firefox", "speedscope"}

// place is where a viewer's URL has the profile's address.
const place = "{url}"

// showing is a result that is to be shown in a browser.
type showing struct {
	file   output.Spec
	dir    string // of a file that is there for this alone, empty: none
	viewer string // with place in it; empty: the file is a page itself
}

// parseViewer checks the URL of --open=URL. Without one, pflag gives noViewer.
func parseViewer(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == noViewer:
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return errors.New("is no address of a viewer (https://HOST/..., with {url} where the profile's belongs)")
	case !strings.Contains(s, place):
		return errors.New("does not say where the profile's address belongs (write {url} there, as in https://HOST/#profileURL={url})")
	}
	return nil
}

const noViewer = "page"

// checkOpen says why --open cannot be met.
func (c *config) checkOpen() error {
	switch {
	case c.out.browse == "":
	case c.pace.every > 0 || c.agent.on || len(c.sending.receivers) > 0:
		return errors.New("--open is for the one result of a run (leave out --every and what is sent)")
	case c.out.browse != noViewer && !slices.ContainsFunc(c.out.specs, forViewer):
		return errors.New("--open=URL is for a viewer of profiles (give -o FILE.firefox.json or -o FILE.speedscope.json too)")
	}
	return nil
}

func forViewer(o output.Spec) bool {
	return o.File != "-" && slices.Contains(viewed, o.Format)
}

// showing finds or adds the output that --open shows, nil if it was not given.
func (o *outputs) showing() (*showing, error) {
	if o.browse == "" {
		return nil, nil
	}
	suits, viewer := forViewer, o.browse
	if o.browse == noViewer {
		suits, viewer = func(o output.Spec) bool { return o.Format == "html" && o.File != "-" }, ""
	}
	if i := slices.IndexFunc(o.specs, suits); i >= 0 {
		return &showing{file: o.specs[i], viewer: viewer}, nil
	}
	dir, err := os.MkdirTemp("", "sfsample")
	if err != nil {
		return nil, fmt.Errorf("--open: %w (try: -o FILE.html)", err)
	}
	v := &showing{output.Spec{Format: "html", File: filepath.Join(dir, "flame.html")}, dir, viewer}
	o.specs = append(o.specs, v.file)
	return v, nil
}

// close removes what was there to be shown.
func (v *showing) close() {
	if v != nil && v.dir != "" {
		os.RemoveAll(v.dir)
	}
}

// show serves the file on the loopback until SIGINT, SIGTERM or SIGHUP, to whoever knows its address, which nobody can guess, and
// has the user's browser open it. say writes a message.
func (v *showing) show(say func(format string, args ...any)) error {
	ctx, stop := interruptible()
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("--open: %w (the result is in %s)", err, v.file.File)
	}
	path := "/" + rand.Text() + "/" + filepath.Base(v.file.File)
	address := "http://" + l.Addr().String() + path
	s := &http.Server{Handler: v.handler(l.Addr().String(), path), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	if v.viewer != "" {
		address = strings.ReplaceAll(v.viewer, place, url.QueryEscape(address))
	}
	say("the result is at %s until Ctrl-C", address)
	if err := browser(address); err != nil {
		say("no browser was started: %v (open that address in one)", err)
	}
	select {
	case <-ctx.Done():
		return s.Close()
	case err = <-served:
		return fmt.Errorf("--open: serve the result: %w", err)
	}
}

// handler answers requests for the file at path, made by the name host: a page of another site that has its own
// name lead here cannot read it.
func (v *showing) handler(host, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != host || r.URL.Path != path:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			http.Error(w, "only to be read", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if u, err := url.Parse(v.viewer); err == nil && v.viewer != "" {
			h.Set("Access-Control-Allow-Origin", u.Scheme+"://"+u.Host)
		}
		f, err := os.Open(v.file.File)
		if err != nil {
			http.Error(w, "the file is gone", http.StatusNotFound)
			return
		}
		defer f.Close()
		http.ServeContent(w, r, v.file.File, time.Time{}, f)
	})
}

// browser starts the user's browser on an address: $BROWSER (a command, or several with colons between them, of which
// the first counts), else xdg-open. For root, as by sudo, it is the browser of who has called sudo; root itself starts none.
func browser(address string) error {
	command, _, _ := strings.Cut(os.Getenv("BROWSER"), ":")
	words := strings.Fields(command)
	if len(words) == 0 {
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return errors.New("there is no display, and $BROWSER names none")
		}
		words = []string{"xdg-open"}
	}
	cmd := exec.Command(words[0], append(words[1:], address)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for us
	if unix.Geteuid() == 0 {
		u, err := user.LookupId(os.Getenv("SUDO_UID"))
		if err != nil || u.Uid == "0" {
			return errors.New("root starts none")
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		cmd.Env = append(os.Environ(), "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
		cmd.Dir = "/"
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // browsers may go on
	return nil
}
