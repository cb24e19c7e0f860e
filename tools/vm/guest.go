package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"sfsample/tools/internal/debian"
	"sfsample/tools/internal/guest"
	"sfsample/tools/internal/guest/wire"
)

// errCommand: the command failed, the machine did not.
var errCommand = errors.New("the command failed in the guest")

// fileFlags is the value of -f.
type fileFlags map[string]string

func (f fileFlags) String() string { return "" }

func (f fileFlags) Set(s string) error {
	to, from, ok := strings.Cut(s, "=")
	if !ok || to == "" || from == "" {
		return fmt.Errorf("want TO=FROM, have %q", s)
	}
	f[strings.Trim(to, "/")] = from
	return nil
}

// runGuest runs one command in a guest.
func runGuest(cache *debian.Cache, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	files := fileFlags{}
	flags.Var(files, "f", "`TO=FROM`: file or folder for the guest")
	dir := flags.String("dir", "/", "working `folder` in the guest")
	memory := flags.Int("m", 0, "memory in `MiB`")
	cpus := flags.Int("cpus", 0, "`CPUs`; 0: two")
	limit := flags.Duration("t", 15*time.Minute, "time limit")
	if err := flags.Parse(args); err != nil || flags.NArg() < 2 {
		return errUsage
	}
	m := &guest.Machine{Cache: cache, Arch: flags.Arg(0), Files: files, MemoryMiB: *memory, CPUs: *cpus, Libraries: true}
	return runOne(m, *limit, wire.Job{Dir: *dir, Argv: flags.Args()[1:]})
}

// execTest runs a test program as go test -exec wants it: in the current
// folder, which is the package's, of a guest that has the testdata folders.
func execTest(cache *debian.Cache, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	module := filepath.Dir(strings.TrimSpace(string(out)))
	files, err := guest.TestFiles(module)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(module, dir)
	if err != nil {
		return err
	}
	files["test/program"] = args[1]
	here := path.Join("src", filepath.ToSlash(rel))
	m := &guest.Machine{Cache: cache, Arch: args[0], Files: files, Folders: []string{here}, Libraries: true}
	return runOne(m, 30*time.Minute, wire.Job{
		Dir:  "/" + here,
		Argv: append([]string{"/test/program"}, args[2:]...),
	})
}

// runOne runs one job and copies its output.
func runOne(m *guest.Machine, limit time.Duration, job wire.Job) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return m.Run(ctx, []wire.Job{job}, func(_ int, output io.Reader, ended func() error) error {
		if _, err := io.Copy(os.Stdout, output); err != nil {
			return err
		}
		if err := ended(); err != nil {
			return fmt.Errorf("%w: %w", errCommand, err)
		}
		return nil
	})
}
