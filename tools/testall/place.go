package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sfsample/tools/internal/debian"
)

// nobody is the ordinary user: uid and gid 65534 have no files and no rights
// (Debian policy 9.2.2).
const nobody = 65534

// runHere runs the programs here, each in its package's folder, as go test does.
func runHere(_ string, bins []binary, args []string, rep *report) error {
	return runWith(nil, bins, args, rep)
}

// runHost is [runHere] with the interpreters of other suites, as far as the cache has them.
func runHost(_ string, bins []binary, args []string, rep *report) error {
	cache, err := debian.Open(os.Getenv("SFSAMPLE_CACHE"))
	if err != nil {
		return err
	}
	return runWith(cache.Environment(), bins, args, rep)
}

// runWith is [runHere] with more in the environment.
func runWith(env []string, bins []binary, args []string, rep *report) error {
	for _, b := range bins {
		argv := b.command(b.path, args)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = filepath.FromSlash(b.pkg)
		cmd.Env = append(os.Environ(), env...)
		if err := runCommand(cmd, b.pkg, rep); err != nil {
			return err
		}
	}
	return nil
}

// runUser runs the programs as nobody, in a copy of the tree that this user
// may write to: the tree itself may lie where the user cannot go.
func runUser(tmp string, bins []binary, args []string, rep *report) error {
	home := filepath.Join(tmp, "user")
	tree := filepath.Join(home, "src")
	if err := copyTree(tree); err != nil {
		return err
	}
	for _, sub := range []string{"tmp", "cache"} {
		if err := os.MkdirAll(filepath.Join(home, sub), 0o755); err != nil {
			return err
		}
	}
	id := strconv.Itoa(nobody)
	if out, err := exec.Command("chown", "-R", id+":"+id, home).CombinedOutput(); err != nil {
		return fmt.Errorf("chown: %w: %s", err, out)
	}
	// Tests that call go need the modules, which this user may not be able to
	// read where they are, and cannot be expected to download.
	modules := filepath.Join(home, "modules")
	if err := copyModules(modules); err != nil {
		return err
	}
	builds := filepath.Join(tmp, "builds") // not below home, which is made the user's: links have the owner of what they are of
	if err := shareBuilds(builds, id); err != nil {
		return err
	}
	for _, b := range bins {
		cmd := exec.Command("setpriv", append([]string{"--reuid", id, "--regid", id, "--clear-groups"}, b.command(b.path, args)...)...)
		cmd.Dir = filepath.Join(tree, filepath.FromSlash(b.pkg))
		cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+filepath.Join(home, "tmp"),
			"GOCACHE="+builds, "XDG_CACHE_HOME="+filepath.Join(home, "cache"), "GOMODCACHE="+modules, "USER=nobody", "LOGNAME=nobody")
		if err := runCommand(cmd, b.pkg, rep); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies the files that git has or would take to dst.
func copyTree(dst string) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	const script = `git ls-files -z --cached --others --exclude-standard | ` +
		`tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$0"`
	out, err := exec.Command("sh", "-c", script, dst).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the tree: %w: %s", err, out)
	}
	return nil
}

// shareBuilds gives the user what go has compiled here, of which the standard library is the most: links, where there can be some, that this user can read
// and not write, in folders that take more.
func shareBuilds(dst, user string) error {
	if _, err := os.Stat(dst); err == nil {
		return nil // the first attempt's
	}
	const script = `src=$(go env GOCACHE) && mkdir "$0" && { cp -al "$src/." "$0" 2>/dev/null || cp -a "$src/." "$0"; } && find "$0" -type d -exec chown "$1" {} +`
	if out, err := exec.Command("sh", "-c", script, dst, user).CombinedOutput(); err != nil {
		return fmt.Errorf("share what go has compiled: %w: %s", err, out)
	}
	return nil
}

// copyModules copies go's module cache, which go keeps readable but not
// writable for everyone.
func copyModules(dst string) error {
	src, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	out, err := exec.Command("cp", "-a", strings.TrimSpace(string(src)), dst).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy the modules: %w: %s", err, out)
	}
	return nil
}

// leftFor is for how long a test program's output is read on that has ended, while a program that it has started and not ended still has that open.
var leftFor = 30 * time.Second

// runCommand runs one test program and reports what it prints. The error is
// one of the machinery; a failed test is none.
func runCommand(cmd *exec.Cmd, pkg string, rep *report) error {
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, w, leftFor
	var exit error
	go func() {
		exit = cmd.Run()
		w.Close()
	}()
	return rep.run(pkg, r, func() error { return exit })
}
