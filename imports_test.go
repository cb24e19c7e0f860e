package sfsample

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed says for each package which others of this module it may import:
// the arrows of the picture in README.md. A package ending in "/..." stands
// for all below it too. Tests may import what they like.
var allowed = map[string][]string{
	// Leaves: they know nothing but their own subject.
	"regs":             {},
	"sframe":           {},
	"output":           {},
	"ptrace/procfs":    {},
	"sampler/syscalls": {},
	"internal/leb128":  {},

	"sframe/ehframe":     {"sframe", "regs", "internal/leb128"},
	"unwind":             {"sframe", "regs", "internal/leb128"},
	"ptrace":             {"regs", "ptrace/procfs"},
	"sampler/capture":    {"regs", "ptrace/procfs"},
	"sampler/symbol/...": {"sampler/symbol/...", "internal/leb128"},
	"sampler/module":     {"ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "unwind", "sampler/symbol/..."},
	"sampler": {"output", "ptrace", "ptrace/procfs", "regs", "sframe", "unwind",
		"sampler/capture", "sampler/module", "sampler/symbol/...", "sampler/syscalls"},

	"cmd/sfsample": {"output", "ptrace", "ptrace/procfs", "regs", "unwind",
		"sampler", "sampler/capture", "sampler/module", "sampler/symbol/...", "sampler/syscalls"},
	"cmd/sfdump": {"ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "sampler/module", "sampler/symbol/..."},

	// Programs and helpers for tests, not part of the product.
	"internal/...": {"internal/...", "sframe", "regs"},
	"tools/...":    {"tools/..."},
	"tools/shadow": {"ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "unwind", "sampler/...", "internal/..."},
	"bench/...":    {"bench/...", "output", "ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "unwind", "sampler/...", "internal/..."},
}

// lightOnly are the packages that import no more than the standard library and
// what is named here: leaves stay light.
var lightOnly = map[string][]string{
	"internal/leb128": {},
	"sframe":          {},
	"sframe/ehframe":  {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"regs":            {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"unwind":          {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"ptrace":          {"golang.org/x/sys/unix"},
	"ptrace/procfs":   {"golang.org/x/sys/unix"},
	"output":          {"github.com/google/pprof/profile"},
}

// covers reports whether pattern is pkg or, with "/...", above it.
func covers(pattern, pkg string) bool {
	above, ok := strings.CutSuffix(pattern, "/...")
	return pattern == pkg || ok && (pkg == above || strings.HasPrefix(pkg, above+"/"))
}

// rule returns the allowed imports of pkg: those of the longest key that
// covers it.
func rule(pkg string) (imports []string, ok bool) {
	longest := ""
	for pattern, list := range allowed {
		if covers(pattern, pkg) && len(pattern) > len(longest) {
			longest, imports, ok = pattern, list, true
		}
	}
	return imports, ok
}

// TestImportsPointDown reads the import clauses of all packages, for every
// architecture and system, and holds them against the picture.
func TestImportsPointDown(t *testing.T) {
	if _, err := os.Stat("go.mod"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no sources on this machine")
	}
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		seen++
		checkFile(t, filepath.ToSlash(path))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no Go files found")
	}
}

func checkFile(t *testing.T, path string) {
	const module = "sfsample/"
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	pkg := filepath.ToSlash(filepath.Dir(path))
	list, known := rule(pkg)
	if !known && f.Name.Name != "main" {
		t.Errorf("%s: package %s has no place in the picture (add it to the table of this test)", path, pkg)
		return
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Error(err)
			continue
		}
		own, isOwn := strings.CutPrefix(name, module)
		light, isLight := lightOnly[pkg]
		switch {
		case isOwn && !slices.ContainsFunc(list, func(p string) bool { return covers(p, own) }):
			t.Errorf("%s: %s must not import %s", path, pkg, own)
		case !isOwn && isLight && strings.Contains(name, ".") && !slices.Contains(light, name):
			t.Errorf("%s: %s must not import %s", path, pkg, name)
		}
	}
}

// TestCovers: the table's patterns mean what its comment says.
func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		pattern, pkg string
		want         bool
	}{
		{"sframe", "sframe", true},
		{"sframe", "sframe/ehframe", false},
		{"tools/...", "tools", true},
		{"tools/...", "tools/vm", true},
		{"tools/...", "toolsmith", false},
	} {
		if got := covers(tt.pattern, tt.pkg); got != tt.want {
			t.Errorf("covers(%q, %q) = %v, want %v", tt.pattern, tt.pkg, got, tt.want)
		}
	}
}
