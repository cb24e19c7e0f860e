package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNameless: the closing line names the files that lack symbols, the worst first, and their packages.
func TestNameless(t *testing.T) {
	dir := t.TempDir()
	for name, files := range map[string]string{
		"base":        "/.\n/usr/bin\n/usr/bin/prog\n",
		"libx1:amd64": "/lib/libx.so.1.2\n/usr/share/doc/libx1\n",
		"other":       "/usr/bin/prog2\n/bin/pro\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".list"), []byte(files), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for want, files := range map[string]map[string]int{
		"": {},
		"no symbols for 1 address of a.out: named FILE:fn_ADDRESS (try: the debug packages of these, or --debuginfod; -v lists what was looked for)": {"/home/a.out": 1},
		"no symbols for 12 addresses of libx.so.1.2 (7), prog (3), a.out (1), 1 other: named FILE:fn_ADDRESS (try: the debug packages, -dbgsym or -dbg, of libx1, base, or --debuginfod; -v lists what was looked for)": {
			"/usr/lib/libx.so.1.2": 7, "/usr/bin/prog": 3, "/home/a.out": 1, "/usr/bin/prog2": 1},
		"no symbols for 2 addresses of prog: named FILE:fn_ADDRESS (try: the debug packages of these, or --debuginfod; -v lists what was looked for)": {"prog": 2}, // in a container
	} {
		if got := nameless(files, filepath.Join(dir, "*.list")); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestOwners compares with dpkg-query.
func TestOwners(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("no dpkg-query that knows the shell on this machine: ", err)
	}
	out, err := exec.Command("dpkg-query", "-S", sh).Output()
	if err != nil {
		if out, err = exec.Command("dpkg-query", "-S", strings.TrimPrefix(sh, "/usr")).Output(); err != nil {
			t.Skip("no dpkg-query that knows the shell on this machine")
		}
	}
	want, _, _ := strings.Cut(string(out), ":")
	if got := owners([]string{sh}, dpkgLists); len(got) != 1 || got[0] != want {
		t.Errorf("owners of %s: %q, want %q", sh, got, want)
	}
}
