package debian

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Interpreter is one of a version that this distribution does not have.
type Interpreter struct {
	Name     string   // of the program that starts it
	Suite    string   // of Debian
	Packages []string // with all that they depend on
	Program  string   // below the root
	Env      []string // NAME=value; @ stands for the root
	Variable string   // of the environment, by which tests are told of it: paths with colons between
}

// Interpreters are those with which the tests of script frames are run, beside what is installed.
var Interpreters = []Interpreter{
	python("3.9", "bullseye"),
	python("3.13", "trixie"),
	python("3.14", "forky"),
	{
		Name: "ruby3.3", Suite: "trixie", Packages: []string{"ruby3.3"}, Program: "usr/bin/ruby3.3",
		Env: []string{"RUBYLIB=@/usr/lib/ruby/3.3.0:@/usr/lib/x86_64-linux-gnu/ruby/3.3.0"}, Variable: "SFSAMPLE_TEST_RUBIES",
	},
	{Name: "php8.4", Suite: "trixie", Packages: []string{"php8.4-cli"}, Program: "usr/bin/php8.4", Variable: "SFSAMPLE_TEST_PHPS"},
	perl("5.32", "bullseye"),
	perl("5.40", "trixie"),
	{Name: "lua5.4", Suite: "trixie", Packages: []string{"lua5.4"}, Program: "usr/bin/lua5.4", Variable: "SFSAMPLE_TEST_LUAS"},
	java("21", "trixie"),
	java("25", "trixie"),
}

func python(version, suite string) Interpreter {
	name := "python" + version
	return Interpreter{Name: name, Suite: suite, Packages: []string{"lib" + name + "-stdlib", name + "-minimal"}, Program: "usr/bin/" + name,
		Env: []string{"PYTHONHOME=@/usr"}, Variable: "SFSAMPLE_TEST_PYTHONS"}
}

func perl(version, suite string) Interpreter {
	return Interpreter{Name: "perl" + version, Suite: suite, Packages: []string{"perl"}, Program: "usr/bin/perl",
		Env:      []string{fmt.Sprintf("PERL5LIB=@/usr/share/perl/%[1]s:@/usr/lib/x86_64-linux-gnu/perl/%[1]s:@/usr/lib/x86_64-linux-gnu/perl-base", version)},
		Variable: "SFSAMPLE_TEST_PERLS"}
}

func java(version, suite string) Interpreter {
	return Interpreter{Name: "java" + version, Suite: suite, Packages: []string{"openjdk-" + version + "-jre-headless"},
		Program: "usr/lib/jvm/java-" + version + "-openjdk-amd64/bin/java", Variable: "SFSAMPLE_TEST_JAVAS"}
}

// Interpreters returns the folders with the interpreters of other suites, one for each suite. Below programs/ stands for each the program that
// starts it, by the loader and with the libraries of its own suite.
func (c *Cache) Interpreters() (dirs []string, err error) {
	bySuite := map[string][]Interpreter{}
	for _, i := range Interpreters {
		bySuite[i.Suite] = append(bySuite[i.Suite], i)
	}
	for suite, list := range bySuite {
		var packages []string
		for _, i := range list {
			packages = append(packages, i.Packages...)
		}
		dir, err := c.Root(rootOf(suite), From(suite), packages...)
		if err != nil {
			return nil, err
		}
		if err := relink(dir, "usr/lib/jvm"); err != nil {
			return nil, err
		}
		for _, i := range list {
			if err := i.install(dir); err != nil {
				return nil, err
			}
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs, nil
}

// relink has links of a root's folder that begin at / lead into the root: Java's settings are in /etc.
func relink(root, folder string) error {
	return filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // no Java there
			}
			return err
		}
		to, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(to) || strings.HasPrefix(to, root) {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink(filepath.Join(root, to), path)
	})
}

func rootOf(suite string) string { return "interpreters-" + suite }

// install writes the program that starts the interpreter.
func (i Interpreter) install(root string) error {
	dir := filepath.Join(root, "programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lib := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	text := "#!/bin/sh\n"
	for _, e := range i.Env {
		text += "export " + strings.ReplaceAll(e, "@", root) + "\n"
	}
	text += fmt.Sprintf("exec %s --library-path %s %s \"$@\"\n", filepath.Join(lib, "ld-linux-x86-64.so.2"), lib, filepath.Join(root, i.Program))
	return os.WriteFile(filepath.Join(dir, i.Name), []byte(text), 0o755)
}

// Environment tells tests of the interpreters that the cache has, NAME=value: what is set already comes first.
func (c *Cache) Environment() (env []string) {
	lists := map[string][]string{}
	for _, i := range Interpreters {
		path := filepath.Join(c.Dir, "roots", rootOf(i.Suite), "programs", i.Name)
		if _, err := os.Stat(path); err == nil {
			lists[i.Variable] = append(lists[i.Variable], path)
		}
	}
	for variable, paths := range lists {
		if set := os.Getenv(variable); set != "" {
			paths = append([]string{set}, paths...)
		}
		env = append(env, variable+"="+strings.Join(paths, ":"))
	}
	slices.Sort(env)
	return env
}
