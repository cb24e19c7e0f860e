package sfsample

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A type with more than this is more than one thing. What it embeds counts in.
const (
	mostFields  = 15
	mostMethods = 25
)

// size is how large a type is.
type size struct{ fields, methods int }

// TestTypes holds all types of the module, but for those of tests, to the limits.
func TestTypes(t *testing.T) {
	if _, err := os.Stat("go.mod"); err != nil {
		t.Skip("no sources on this machine")
	}
	sizes, err := typeSizes(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(sizes) < 500 || sizes["unwind.Walker"].fields == 0 || sizes["sampler.Target"].methods == 0 {
		t.Fatalf("%d types were found", len(sizes))
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if s := sizes[name]; s.fields > mostFields || s.methods > mostMethods {
			t.Errorf("%s has %d fields and %d methods, of %d and %d that it may", name, s.fields, s.methods, mostFields, mostMethods)
		}
	}
}

// declared is a type as it is written down.
type declared struct {
	fields   int
	methods  map[string]bool
	embedded []string // types of the module
}

// typeSizes returns the types below a folder by package and name. A method that is written once for each architecture
// counts once.
func typeSizes(root string) (map[string]size, error) {
	all := map[string]*declared{}
	get := func(name string) *declared {
		if all[name] == nil {
			all[name] = &declared{methods: map[string]bool{}}
		}
		return all[name]
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || name != root && strings.HasPrefix(d.Name(), ".")) {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		sized{pkg: filepath.ToSlash(rel), get: get, imports: ownImports(f)}.file(f)
		return nil
	})
	sizes := map[string]size{}
	for name := range all {
		methods := map[string]bool{}
		fields := count(all, name, methods, map[string]bool{})
		sizes[name] = size{fields, len(methods)}
	}
	return sizes, err
}

// count adds the methods of a type and of what it embeds to methods, and returns its fields.
func count(all map[string]*declared, name string, methods, seen map[string]bool) (fields int) {
	d := all[name]
	if d == nil || seen[name] {
		return 0
	}
	seen[name] = true
	maps.Copy(methods, d.methods)
	fields = d.fields
	for _, e := range d.embedded {
		fields += count(all, e, methods, seen)
	}
	return fields
}

// ownImports are the module's packages that a file imports, by the name that they have there.
func ownImports(f *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if own, ok := strings.CutPrefix(name, "sfsample/"); err == nil && ok {
			short := path.Base(own)
			if spec.Name != nil {
				short = spec.Name.Name
			}
			imports[short] = own
		}
	}
	return imports
}

// sized sizes the types of a file.
type sized struct {
	pkg     string
	get     func(name string) *declared
	imports map[string]string
}

func (s sized) file(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				s.get(s.name(d.Recv.List[0].Type)).methods[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					s.spec(spec)
				}
			}
		}
	}
}

func (s sized) spec(spec *ast.TypeSpec) {
	d := s.get(s.pkg + "." + spec.Name.Name)
	switch x := spec.Type.(type) {
	case *ast.StructType:
		for _, f := range x.Fields.List {
			d.fields += len(f.Names)
			if len(f.Names) == 0 {
				d.fields++
				d.embedded = append(d.embedded, s.name(f.Type))
			}
		}
	case *ast.InterfaceType:
		for _, f := range x.Methods.List {
			for _, n := range f.Names {
				d.methods[n.Name] = true
			}
			if len(f.Names) == 0 {
				d.embedded = append(d.embedded, s.name(f.Type))
			}
		}
	}
}

// name is the name of a type, with its package; of what is not of the module, none that a type here has.
func (s sized) name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return s.name(e.X)
	case *ast.IndexExpr:
		return s.name(e.X)
	case *ast.Ident:
		return s.pkg + "." + e.Name
	case *ast.SelectorExpr:
		if id, ok := e.X.(*ast.Ident); ok {
			return s.imports[id.Name] + "." + e.Sel.Name
		}
	}
	return fmt.Sprintf("%T", e)
}

// TestTypeSizes: what is embedded counts in, what architectures have each counts once.
func TestTypeSizes(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/a.go":       "package a\nimport \"sfsample/b\"\ntype A struct { x, y int; b.B; *C; z int }\nfunc (a *A) One() {}\n",
		"a/a_amd64.go": "package a\ntype C struct { u int }\nfunc (c C) Two() {}\n",
		"a/a_arm64.go": "package a\nfunc (c C) Two() {}\nfunc (g *G[T]) Three() {}\ntype G[T any] []T\n",
		"b/b.go":       "package b\ntype B struct { x, y int }\nfunc (B) One() {}\nfunc (*B) Four() {}\ntype I interface { Five(); J }\ntype J interface { Six(); Seven() }\n",
		"b/b_test.go":  "package b\ntype T struct { x int }\nfunc (B) Eight() {}\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := typeSizes(root)
	want := map[string]size{"a.A": {8, 3}, "a.C": {1, 1}, "a.G": {0, 1}, "b.B": {2, 2}, "b.I": {0, 3}, "b.J": {0, 2}}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
