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

// allowed says for the programs and helpers that are not part of the product
// which packages of this module they may import. A name ending in "/..." stands
// for all below it too. Tests may import what they like.
var allowed = map[string][]string{
	"internal/testprog":   {},
	"internal/sframetest": {"sframe"},
	"tools/...":           {"tools/..."},
	"tools/shadow":        {"ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "unwind", "sampler/...", "internal/..."},
	"bench/...":           {"bench/...", "output", "ptrace", "ptrace/procfs", "regs", "sframe", "sframe/ehframe", "unwind", "sampler/...", "internal/..."},
}

// lightOnly are the packages that import no more than the standard library and
// what is named here: leaves stay light.
var lightOnly = map[string][]string{
	"internal/leb128": {},
	"sframe":          {},
	"sframe/ehframe":  {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"regs":            {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"unwind":          {"github.com/go-delve/delve/pkg/dwarf/regnum"},
	"unwind/code":     {"golang.org/x/arch/x86/x86asm"},
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

// TestImports reads the import clauses of all packages, for every architecture
// and system. Those of the product are the arrows of docs/architecture.md, one for one;
// helpers keep to the table above, and leaves stay light.
func TestImports(t *testing.T) {
	if _, err := os.Stat("go.mod"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no sources on this machine")
	}
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn, order := picture(string(text))
	real := readImports(t)
	for pkg, imports := range real {
		list, helper := rule(pkg)
		if !helper && pkg != "." {
			list = drawn[pkg]
			if !slices.Contains(order, pkg) {
				t.Errorf("docs/architecture.md: the picture lacks %s", pkg)
			}
		}
		for name := range imports {
			own, isOwn := strings.CutPrefix(name, "sfsample/")
			light, isLight := lightOnly[pkg]
			switch {
			case isOwn && !slices.ContainsFunc(list, func(p string) bool { return covers(p, own) }):
				t.Errorf("%s imports %s, which it must not, or the picture in docs/architecture.md lacks the arrow", pkg, own)
			case !isOwn && isLight && strings.Contains(name, ".") && !slices.Contains(light, name):
				t.Errorf("%s must not import %s", pkg, name)
			}
		}
	}
	for from, list := range drawn {
		for _, to := range list {
			if !real[from]["sfsample/"+to] {
				t.Errorf("docs/architecture.md: the picture has an arrow from %s to %s, which it does not import", from, to)
			}
			if slices.Index(order, to) <= slices.Index(order, from) {
				t.Errorf("docs/architecture.md: the arrow from %s to %s does not point down", from, to)
			}
		}
	}
	for _, pkg := range order {
		if real[pkg] == nil {
			t.Errorf("docs/architecture.md: the picture has %s, which is no package", pkg)
		}
	}
}

// picture reads the picture of docs/architecture.md: lines "from ─► to to ...", with further
// names on lines of their own, and a last line "leaves: name name ...". order is
// all packages from the top down.
func picture(text string) (arrows map[string][]string, order []string) {
	arrows = map[string][]string{}
	from := ""
	for line := range strings.Lines(text) {
		left, right, isArrow := strings.Cut(line, "─►")
		leaves, isLeaves := strings.CutPrefix(strings.TrimSpace(line), "leaves: ")
		switch {
		case isLeaves:
			return arrows, append(order, strings.Fields(leaves)...)
		case isArrow:
			from = strings.TrimSpace(left)
			order = append(order, from)
			arrows[from] = strings.Fields(right)
		case from != "":
			arrows[from] = append(arrows[from], strings.Fields(line)...)
		}
	}
	return arrows, order
}

// readImports returns what each package imports, without its tests.
func readImports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	real := map[string]map[string]bool{}
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
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if real[pkg] == nil {
			real[pkg] = map[string]bool{}
		}
		for _, spec := range f.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			real[pkg][name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return real
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
