package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// verdict is what the tests made of a fault.
type verdict string

const (
	found      verdict = "found"
	survived   verdict = "survived"
	equivalent verdict = "equivalent" // listed as such, and not found
	invalid    verdict = "invalid"    // does not compile: not counted
)

// tests runs the tests of one package with faults.
type tests struct {
	path    string // import path
	dir     string
	files   []string // base names of its sources for this machine
	scratch string   // folder for changed files
	timeout time.Duration
	known   []known
}

// openTests finds a package's sources and runs its tests once as they are.
func openTests(ctx context.Context, pattern, scratch string, known []known) (*tests, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,GoFiles", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w (try: a package of this module, as ./unwind)", pattern, err)
	}
	var p struct {
		ImportPath, Dir string
		GoFiles         []string
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	t := &tests{path: p.ImportPath, dir: p.Dir, files: p.GoFiles, scratch: scratch, timeout: 10 * time.Minute, known: known}
	begin := time.Now()
	if v, text := t.run(ctx, nil); v != survived {
		return nil, fmt.Errorf("the tests of %s fail as they are:\n%s", pattern, text)
	}
	// Faults may make endless loops; a test that is slow is none.
	t.timeout = 20*time.Second + 10*time.Since(begin)
	return t, nil
}

// choose returns the package's faults in an order that the seed determines.
func (t *tests) choose(seed uint64) ([]fault, error) {
	var all []fault
	for _, name := range t.files {
		src, err := os.ReadFile(filepath.Join(t.dir, name))
		if err != nil {
			return nil, err
		}
		list, err := faultsOf(name, src)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	h := fnv.New64a()
	io.WriteString(h, t.path)
	rand.New(rand.NewPCG(seed, h.Sum64())).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// result is a fault with its verdict.
type result struct {
	fault
	verdict
}

// try runs faults in the order given, jobs at a time, until n of them count.
// They are returned in that order.
func (t *tests) try(ctx context.Context, faults []fault, n, jobs int, tell func(result)) []result {
	var list []result
	for next := 0; len(list) < n && next < len(faults) && ctx.Err() == nil; {
		batch := faults[next:min(len(faults), next+jobs, next+n-len(list))]
		next += len(batch)
		verdicts := make([]verdict, len(batch))
		var wg sync.WaitGroup
		for i := range batch {
			wg.Go(func() { verdicts[i] = t.judge(ctx, &batch[i]) })
		}
		wg.Wait()
		for i, v := range verdicts {
			if v != invalid {
				list = append(list, result{batch[i], v})
				tell(list[len(list)-1])
			}
		}
	}
	return list
}

func (t *tests) judge(ctx context.Context, f *fault) verdict {
	v, _ := t.run(ctx, f)
	if v == survived && slices.ContainsFunc(t.known, func(k known) bool { return k.is(t.path, f) }) {
		return equivalent
	}
	return v
}

// run runs the tests, with a fault if f is not nil. text is what they printed.
func (t *tests) run(ctx context.Context, f *fault) (v verdict, text string) {
	args := []string{"test", "-count=1", "-short", "-failfast", "-vet=off", "-timeout", t.timeout.String()}
	if limit, err := exec.LookPath("prlimit"); err == nil {
		args = append(args, "-exec", limit+" --as=8589934592") // a fault may ask for all memory
	}
	if f != nil {
		overlay, err := t.overlay(f)
		if err != nil {
			return invalid, err.Error()
		}
		args = append(args, "-overlay", overlay)
		defer os.RemoveAll(filepath.Dir(overlay))
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout+time.Minute) // where not even its own timeout ends it
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, t.path)...)
	cmd.Dir = t.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return survived, string(out)
	case !errors.As(err, &exit), bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return invalid, string(out)
	}
	return found, string(out)
}

// overlay writes the changed file and the list that go test takes it from.
func (t *tests) overlay(f *fault) (string, error) {
	dir, err := os.MkdirTemp(t.scratch, "fault")
	if err != nil {
		return "", err
	}
	source := filepath.Join(dir, f.file)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(t.dir, f.file): source}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(os.WriteFile(source, f.changed(), 0o600), os.WriteFile(path, list, 0o600))
}
