package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// realPyroscope is the variable that names the receiving end of Pyroscope's server, built from bench/pyroscope.
const realPyroscope = "SFSAMPLE_PYROSCOPE"

// TestPyroscopeServer: what Pyroscope's own handler makes of each round has as many ticks as the round's file, and the labels of
// the process.
func TestPyroscopeServer(t *testing.T) {
	bin := os.Getenv(realPyroscope)
	if bin == "" {
		t.Skip("no server is given: " + realPyroscope + " names one, as bench/pyroscope makes it")
	}
	dir, address := t.TempDir(), free(t)
	server := exec.Command(bin, address, dir+"/pushed")
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	eventually(t, "the server answers", func() bool {
		r, err := http.Get("http://" + address)
		if err == nil {
			r.Body.Close()
		}
		return err == nil
	})
	p := startTarget(t, "obey")
	run := begin(t, tool("-hz", "199", "--every", "1", "--max-overhead", "100", "--threads", "all", "-p", fmt.Sprint(p.pid), "--spool", dir+"/spool",
		"-o", "pyroscope=http://"+address, "-o", dir+"/x-%T.folded"))
	var names []string
	for len(names) < 3 {
		p.worked(t, 2)
		names, _ = filepath.Glob(dir + "/x-*")
	}
	run.interrupt(t)
	run.end(t).want(t, exitDone)
	names, _ = filepath.Glob(dir + "/x-*")
	b, err := os.ReadFile(dir + "/pushed")
	if err != nil {
		t.Fatal(err)
	}
	pushed := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(pushed) != len(names) {
		t.Fatalf("%d profiles are pushed of %d rounds:\n%s", len(pushed), len(names), b)
	}
	for i, line := range pushed {
		var x struct {
			Labels map[string]string
			Sums   []int64
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(names[i])
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for l := range strings.Lines(string(text)) {
			n, _ := strconv.ParseInt(strings.TrimSpace(l[strings.LastIndexByte(l, ' '):]), 10, 64)
			want += n
		}
		if x.Sums[0] != want || x.Labels["process_pid"] != fmt.Sprint(p.pid) || x.Labels["service_name"] == "" {
			t.Errorf("round %d: %s, want %d ticks", i, line, want)
		}
	}
}
