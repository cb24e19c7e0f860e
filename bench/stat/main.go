// Stat runs the Go benchmarks of this tree and of an earlier commit in turns, and has benchstat compare them.
//
//	go run ./bench/stat [-base COMMIT] [-bench REGEXP] [-count 10] [-time 200ms] [PACKAGE...]
//
// The earlier commit is by default the one in which the baseline of ./bench/counts was written last. Both are built and run
// here, each benchmark once in each turn: what a benchmark took on another machine, or an hour ago, says little. Benchmarks that one of
// them has not got are told by benchstat.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// benchstat is the program that compares, in its version.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

func main() {
	base := flag.String("base", "", "the `commit` to compare with (default: that of bench/counts/baseline.json)")
	which := flag.String("bench", ".", "which benchmarks, as of go test -bench")
	count := flag.Int("count", 10, "runs of each")
	long := flag.Duration("time", 200*time.Millisecond, "length of a run")
	flag.Parse()
	if err := run(*base, *which, *count, *long, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "stat:", err)
		os.Exit(1)
	}
}

// side is one of the two trees.
type side struct {
	name, dir string
	tests     []string // test programs, by package; "": it has none
	out       *os.File
}

func run(base, which string, count int, long time.Duration, packages []string) error {
	if base == "" {
		commit, err := output(".", "git", "log", "-1", "--format=%H", "--", "bench/counts/baseline.json")
		if base = commit; err != nil || base == "" {
			return fmt.Errorf("no commit of bench/counts/baseline.json: %w (try: -base COMMIT, in a clone with its history)", err)
		}
	}
	tmp, err := os.MkdirTemp("", "stat")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // ends what runs, and with it this, which cleans up
	old := &side{name: "base", dir: filepath.Join(tmp, "worktree")}
	if _, err := output(".", "git", "worktree", "add", "--detach", old.dir, base); err != nil {
		return err
	}
	defer func() { _, _ = output(".", "git", "worktree", "remove", "--force", old.dir) }() // git worktree prune finds it
	here := &side{name: "tree", dir: "."}
	folders, err := benchmarked(packages)
	if err != nil {
		return err
	}
	for _, s := range []*side{old, here} {
		if s.out, err = os.Create(filepath.Join(tmp, s.name)); err != nil {
			return err
		}
		defer s.out.Close()
		for _, f := range folders {
			exe := filepath.Join(tmp, s.name+strings.ReplaceAll(f, "/", "-")+".test")
			if _, err := os.Stat(filepath.Join(s.dir, f)); err != nil {
				exe = ""
			} else if _, err := output(s.dir, "go", "test", "-c", "-o", exe, "./"+f); err != nil {
				return err
			} else if _, err := os.Stat(exe); err != nil { // of a package without tests there is none
				exe = ""
			}
			s.tests = append(s.tests, exe)
		}
	}
	for i, f := range folders {
		for n := range count {
			for turn := range 2 {
				s := []*side{old, here}[(n+turn)%2]
				if s.tests[i] == "" {
					continue
				}
				text, err := output(filepath.Join(s.dir, f), s.tests[i], "-test.run", "^$", "-test.bench", which, "-test.benchtime", long.String(), "-test.benchmem")
				if err != nil {
					return fmt.Errorf("%s of the %s: %w", f, s.name, err)
				}
				if _, err := fmt.Fprintln(s.out, text); err != nil {
					return err
				}
			}
		}
	}
	compare := exec.Command("go", "run", benchstat, "base="+old.out.Name(), "tree="+here.out.Name())
	compare.Stdout, compare.Stderr = os.Stdout, os.Stderr
	return compare.Run()
}

// benchmarked are the folders of these packages that have benchmarks.
func benchmarked(packages []string) (folders []string, err error) {
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	list, err := output(".", "go", append([]string{"list", "-f", "{{.Dir}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	for dir := range strings.FieldsSeq(list) {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			if strings.Contains(string(text), "\nfunc Benchmark") {
				rel, err := filepath.Rel(root, dir)
				if err != nil {
					return nil, err
				}
				folders = append(folders, rel)
				break
			}
		}
	}
	if len(folders) == 0 {
		return nil, errors.New("none of these packages has benchmarks (try: go run ./bench/stat from the folder of go.mod)")
	}
	return folders, nil
}

// output runs a command in a folder, and returns what it wrote.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
