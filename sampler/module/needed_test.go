package module

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// needs are the libraries that a file needs, directly or by way of others, as
// debug/elf reads it in the files that the process has mapped.
func needs(t *testing.T, path string, mapped []*Module) (list []string) {
	t.Helper()
	todo := []string{path}
	for ; len(todo) > 0; todo = todo[1:] {
		f, err := elf.Open(todo[0])
		if err != nil {
			t.Fatal(err)
		}
		libs, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mapped {
			if slices.Contains(list, m.Path) || m.VDSO() {
				continue
			}
			names := []string{filepath.Base(m.Path)}
			if f, err := elf.Open(m.Path); err == nil {
				soname, _ := f.DynString(elf.DT_SONAME)
				f.Close()
				names = append(names, soname...)
			}
			if slices.ContainsFunc(libs, func(lib string) bool { return slices.Contains(names, lib) }) {
				list = append(list, m.Path)
				todo = append(todo, m.Path)
			}
		}
	}
	return list
}

// TestFixed: the libraries that a program needs stay, what it has opened may go.
func TestFixed(t *testing.T) {
	tests := []struct {
		program string
		args    []string
		opened  bool // the program opens libraries that it does not need
	}{
		{"sh", []string{"-c", "echo ready; read x"}, false},
		{"python3", []string{"-c", "import _ctypes; print('ready', flush=True); input()"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.program, func(t *testing.T) {
			path, err := exec.LookPath(tt.program)
			if err == nil {
				path, err = filepath.EvalSymlinks(path)
			}
			if err != nil {
				t.Skipf("no %s on this machine", tt.program)
			}
			tg := start(t, path, "", tt.args...)
			s := liveSpace(t, tg.pid)
			if err := s.Refresh(); err != nil {
				t.Fatal(err)
			}
			program, err := filepath.EvalSymlinks(s.mapped.modules[0].Path)
			if err != nil {
				t.Fatal(err)
			}
			needed := needs(t, program, s.mapped.modules)
			opened := 0
			for _, m := range s.mapped.modules {
				if f, err := elf.Open(m.Path); err == nil {
					f.Close()
				} else if !m.VDSO() {
					continue // no ELF file, or its name is gone
				}
				want := m.VDSO() || m.Path == program || isDynamicLinker(m.Name()) || slices.Contains(needed, m.Path)
				code, ok := s.CodeAt(codeOf(s, m))
				if !ok || code.Fixed != want {
					t.Errorf("%s: Fixed is %v, want %v", m.Path, code.Fixed, want)
				}
				if !want {
					opened++
				}
			}
			if opened > 0 != tt.opened {
				t.Errorf("%d libraries are opened, want some: %v", opened, tt.opened)
			}
		})
	}
}

// codeOf is an address in the code of a module.
func codeOf(s *Space, m *Module) uint64 {
	for i := range s.mapped.code.list {
		if s.mapped.code.list[i].mod == m {
			return s.mapped.code.list[i].start
		}
	}
	return 0
}
