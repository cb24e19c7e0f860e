package debian

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Cache is the folder in which everything is kept.
type Cache struct {
	Dir string
}

// Open returns the cache in folder dir; "" stands for sfsample in the user's
// cache folder. The folder is made when something is put there.
func Open(dir string) (*Cache, error) {
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no cache folder: %w (try: set XDG_CACHE_HOME)", err)
		}
		dir = filepath.Join(base, "sfsample")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &Cache{Dir: dir}, nil
}

// done is the last file put into a complete folder. It lists the packages.
const done = ".packages"

// complete makes the folder name with fill, unless it is there already, and
// returns its path. fill works on a temporary folder and returns the list of
// package files behind it.
func (c *Cache) complete(name string, fill func(dir string) (packages string, err error)) (string, error) {
	dir := filepath.Join(c.Dir, name)
	if _, err := os.Stat(filepath.Join(dir, done)); err == nil {
		return dir, nil
	}
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, done)); err == nil {
		return dir, nil // another process was first
	}
	tmp := dir + ".part"
	for _, d := range []string{tmp, dir} {
		if err := os.RemoveAll(d); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", err
	}
	packages, err := fill(tmp)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tmp, done), []byte(packages), 0o644); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

// lock waits until no other process fills the cache. The kernel drops the lock
// when its holder ends, however that happens (flock(2)).
func (c *Cache) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// Packages returns the package files behind a folder that this cache made.
func Packages(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, done))
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(b)), nil
}

// Source is where packages come from.
type Source struct {
	Arch   string   // of Debian: amd64, arm64, s390x
	Suites []string // of Debian; what one cannot give comes from the next
}

// From is packages of this kind of machine, from one suite.
func From(suite string) Source { return Source{"amd64", []string{suite}} }

// first calls get with the view of each suite until one gives what is asked for. The caller holds the lock.
func (c *Cache) first(from Source, get func(s suite) error) error {
	var errs []error
	for _, name := range from.Suites {
		s, err := c.suite(name, from.Arch)
		if err == nil {
			err = get(s)
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Root returns the folder roots/name with packages and all that they depend on.
func (c *Cache) Root(name string, from Source, packages ...string) (string, error) {
	return c.complete(filepath.Join("roots", name), func(dir string) (list string, err error) {
		if err := merged(dir); err != nil {
			return "", err
		}
		err = c.first(from, func(s suite) error {
			archives := filepath.Join(s.dir, "cache", "archives")
			clean := func() error { return removeDebs(archives) }
			if err := clean(); err != nil {
				return err
			}
			defer clean()
			args := append([]string{"-qq", "-y", "--download-only", "install"}, packages...)
			if _, err := s.run("", "apt-get", args...); err != nil {
				return err
			}
			list, err = unpackAll(archives, dir, ".")
			return err
		})
		return list, err
	})
}

// PartOf returns the folder name, which has what lies under path in the one package with the given prefix that pkg, a
// name for whatever is current, depends on, without what that package depends on.
func (c *Cache) PartOf(name string, from Source, pkg, prefix, path string) (string, error) {
	return c.complete(name, func(dir string) (list string, err error) {
		err = c.first(from, func(s suite) error {
			names, err := s.depends(pkg, prefix)
			if err != nil {
				return err
			}
			if len(names) != 1 {
				return fmt.Errorf("%s depends on %q, want one %s…", pkg, names, prefix)
			}
			tmp, err := os.MkdirTemp(c.Dir, "deb")
			if err != nil {
				return err
			}
			defer os.RemoveAll(tmp)
			if _, err := s.run(tmp, "apt-get", "-qq", "download", names[0]); err != nil {
				return err
			}
			list, err = unpackAll(tmp, dir, path)
			return err
		})
		return list, err
	})
}

// Depends returns the packages that a package names in its Depends
// field and that have the given prefix.
func (c *Cache) Depends(from Source, pkg, prefix string) (names []string, err error) {
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	err = c.first(from, func(s suite) error {
		names, err = s.depends(pkg, prefix)
		return err
	})
	return names, err
}

// depends is [Cache.Depends] in one suite.
func (s suite) depends(pkg, prefix string) (names []string, err error) {
	out, err := s.run("", "apt-cache", "show", "--no-all-versions", pkg)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		list, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			continue
		}
		for _, d := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
			if f := strings.Fields(d); len(f) > 0 && strings.HasPrefix(f[0], prefix) {
				names = append(names, f[0])
			}
		}
	}
	return names, nil
}

// merged lays out the folders of a merged /usr, in which /bin and the like are
// links: packages of today expect them.
func merged(dir string) error {
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(dir, "usr", d), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+d, filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	for _, d := range []string{"tmp", "dev", "proc", "src"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// unpackAll unpacks what lies under path in the packages in folder from, and
// returns their names.
func unpackAll(from, dir, path string) (string, error) {
	debs, err := filepath.Glob(filepath.Join(from, "*.deb"))
	if err != nil {
		return "", err
	}
	if len(debs) == 0 {
		return "", errors.New("apt-get downloaded nothing")
	}
	var names strings.Builder
	for _, deb := range debs {
		const script = `dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1" "$2"`
		out, err := exec.Command("sh", "-c", script, deb, dir, path).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("unpack %s: %w: %s", filepath.Base(deb), err, bytes.TrimSpace(out))
		}
		fmt.Fprintln(&names, filepath.Base(deb))
	}
	return names.String(), nil
}

func removeDebs(dir string) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	for _, d := range debs {
		if rmErr := os.Remove(d); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = rmErr
		}
	}
	return err
}
