package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var shownAt = regexp.MustCompile(`the result is at (\S+) until`)

// shown waits until a run shows its result, and returns its address.
func (r *running) shown(t *testing.T) (address string) {
	t.Helper()
	eventually(t, "the result is shown", func() bool {
		if m := shownAt.FindStringSubmatch(r.stderr.String()); m != nil {
			address = m[1]
		} else if r.over() {
			t.Fatalf("it has ended: %s", r.stderr.String())
		}
		return address != ""
	})
	return address
}

// get asks for an address by a name of its host.
func get(t *testing.T, method, address, host string) (status int, header http.Header, body string) {
	t.Helper()
	q, err := http.NewRequest(method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		q.Host = host
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, a.Header, string(b)
}

// TestOpen: the result is a page on the loopback for as long as the program runs, for who knows its whole address; the
// user's browser gets that, and nothing is left.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for folder := dir; len(folder) > len(os.TempDir()); folder = filepath.Dir(folder) {
		if err := os.Chmod(folder, 0o777); err != nil { // the browser is another user's
			t.Fatal(err)
		}
	}
	told := filepath.Join(dir, "told")
	script := filepath.Join(dir, "browser")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nid -u > "+told+".tmp; echo \"$2\" >> "+told+".tmp; mv "+told+".tmp "+told+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := startTarget(t, "work")
	cmd := tool("--open", "-p", strconv.Itoa(p.pid), "-hz", "499")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "BROWSER="+script+" --new:other", "SUDO_UID=65534")
	r := begin(t, cmd)
	r.traces(t, p.pid)
	p.worked(t, 20)
	r.interrupt(t) // ends sampling
	address := r.shown(t)
	status, header, body := get(t, "GET", address, "")
	if status != 200 || !strings.Contains(header.Get("Content-Type"), "text/html") || !strings.Contains(body, "<!DOCTYPE html>") || header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("GET %s: %d, %v, %.200s", address, status, header, body)
	}
	for what, got := range map[string]int{
		"another path":   first(get(t, "GET", strings.Replace(address, "/flame", "x/flame", 1), "")),
		"no path":        first(get(t, "GET", address[:strings.LastIndex(address, ":")+6], "")),
		"another's name": first(get(t, "GET", address, "evil.example")),
		"POST":           first(get(t, "POST", address, "")),
	} {
		if got < 400 {
			t.Errorf("%s: status %d", what, got)
		}
	}
	if _, err := exec.LookPath("id"); err == nil {
		user := strconv.Itoa(os.Geteuid())
		if user == "0" {
			user = "65534"
		}
		want := user + "\n" + address + "\n"
		eventually(t, "the browser is started", func() bool { b, _ := os.ReadFile(told); return string(b) == want })
	}
	r.interrupt(t)
	r.end(t).want(t, exitDone, "samples")
	if left, _ := filepath.Glob(filepath.Join(dir, "sfsample*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	p.untouched(t)
}

func first(status int, _ http.Header, _ string) int { return status }

// TestOpenViewer: a viewer's page, and no other, may load the profile that is written anyway.
func TestOpenViewer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.speedscope.json")
	p := startTarget(t, "work")
	cmd := tool("-p", strconv.Itoa(p.pid), "-hz", "499", "-o", file, "--open=https://viewer.example/page#profileURL={url}")
	cmd.Env = append(os.Environ(), "BROWSER=", "DISPLAY=", "WAYLAND_DISPLAY=")
	r := begin(t, cmd)
	r.traces(t, p.pid)
	p.worked(t, 20)
	r.interrupt(t)
	address := r.shown(t)
	inner, found := strings.CutPrefix(address, "https://viewer.example/page#profileURL=")
	inner = strings.NewReplacer("%3A", ":", "%2F", "/").Replace(inner)
	if !found {
		t.Fatalf("address %s", address)
	}
	status, header, body := get(t, "GET", inner, "")
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if status != 200 || body != string(want) || header.Get("Access-Control-Allow-Origin") != "https://viewer.example" {
		t.Errorf("GET %s: %d, %v, %.200s", inner, status, header, body)
	}
	if err := r.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.end(t).want(t, exitDone, "no browser was started")
}

// TestOpenWrong: what --open cannot do is said before anything is sampled.
func TestOpenWrong(t *testing.T) {
	for args, want := range map[string]string{
		"--open=x":                                 "no address of a viewer",
		"--open=https://v.example":                 "{url}",
		"--open=https://v.example/{url}":           "-o FILE.firefox.json",
		"--open --every 1s -o x%T.html":            "--every",
		"--open=javascript:alert({url}) -o x.html": "no address of a viewer",
	} {
		sfsample(t, append(strings.Fields(args), "-p", "1")...).want(t, exitUsage, want)
	}
	sfsample(t, "dump", "--open", "-p", "1").want(t, exitUsage, "no meaning")
}
