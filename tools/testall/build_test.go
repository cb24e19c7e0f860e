package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goList runs go list at the root of the module.
func goList(t *testing.T, env []string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	cmd := exec.Command("go", append([]string{"list", "-f"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = "../..", append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return string(out)
}

// folders are packages as go takes them.
func folders(pkgs []string) (list []string) {
	for _, pkg := range pkgs {
		list = append(list, "./"+pkg)
	}
	return list
}

const (
	// The files of a package with those of this module that it is made of, and its tests.
	codeFiles = `{{with .Module}}{{if .Main}}{{range $.GoFiles}}{{$.Dir}}/{{.}} {{end}}{{end}}{{end}}`
	testFiles = `{{range .TestGoFiles}}{{$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}} {{end}}`
)

// TestWithout: what a run leaves out are packages with tests, and no run but the host's is whole.
func TestWithout(t *testing.T) {
	all := strings.Fields(goList(t, nil, "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", everything[0]))
	root := strings.TrimSpace(goList(t, nil, "{{.Dir}}", "."))
	for name, k := range kinds {
		check := func(pkg string) {
			if !slices.Contains(all, strings.TrimSuffix(root+"/"+pkg, "/.")) {
				t.Errorf("%s: there is no package %s with tests", name, pkg)
			}
		}
		for _, pkg := range k.without {
			check(pkg)
		}
		for pkg := range k.only {
			check(pkg)
		}
	}
	if k := kinds["host"]; len(k.without)+len(k.only) > 0 {
		t.Error("the host's run is not whole")
	}
}

// TestPortable: nothing that a portable package is made of differs between machines.
func TestPortable(t *testing.T) {
	const made = "{{if not .Standard}}{{.ImportPath}} {{.GoFiles}} {{.SFiles}} {{.Imports}}{{end}}"
	const tests = "{{.TestGoFiles}} {{.XTestGoFiles}} {{.TestImports}} {{.XTestImports}}"
	unsteady := regexp.MustCompile(`[ [](unsafe|syscall|golang.org/x/sys/unix)[] ]`)
	// Imports of packages that reach files, and calls of those that do much else, too.
	differs := regexp.MustCompile(`NativeEndian|runtime\.GOARCH|\bfloat(32|64)\b|\bos\.[A-Z]\w*|\belf\.Open\b|(\w+|\.) "os"|"(os/.*|io/fs|io/ioutil|path/filepath|embed|net|net/.*|plugin)"`)
	list := folders(portable)
	var first string
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		env := []string{"GOARCH=" + arch, "CGO_ENABLED=0"}
		text := goList(t, env, append([]string{made, "-deps"}, list...)...) + goList(t, env, append([]string{tests}, list...)...)
		if no := unsteady.FindString(text); no != "" {
			t.Errorf("for %s there is an import of %s:\n%s", arch, no, text)
		}
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("amd64 has\n%s\n%s\n%s", first, arch, text)
		}
	}
	for _, file := range strings.Fields(goList(t, nil, append([]string{codeFiles, "-deps"}, list...)...)) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, no := range differs.FindAllString(string(b), -1) {
			if no != "os.ErrDeadlineExceeded" { // a value
				t.Errorf("%s has %s", file, no)
			}
		}
	}
}

// TestSingle: neither a single package, its tests and what it is made of start a goroutine, nor do tests that the race detector's run leaves out.
func TestSingle(t *testing.T) {
	look := func(only, files string) {
		for _, file := range strings.Fields(files) {
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range tree.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok && only != "" && regexp.MustCompile(only).MatchString(f.Name.Name) {
					continue
				}
				ast.Inspect(decl, func(n ast.Node) bool {
					_, starts := n.(*ast.GoStmt)
					if call, ok := n.(*ast.SelectorExpr); ok {
						starts = slices.Contains([]string{"AfterFunc", "Go", "NewServer", "Parallel", "Serve"}, call.Sel.Name)
					}
					if starts {
						t.Errorf("%s starts a goroutine", file)
					}
					return true
				})
			}
		}
	}
	list := folders(single)
	look("", goList(t, nil, append([]string{codeFiles, "-deps"}, list...)...)+goList(t, nil, append([]string{testFiles}, list...)...))
	for pkg, only := range kinds["race"].only {
		look(only, goList(t, nil, testFiles, "./"+pkg))
	}
}
