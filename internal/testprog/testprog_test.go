package testprog

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// architectures of the committed programs, and what their ELF header says.
var architectures = map[string]elf.Machine{
	"amd64": elf.EM_X86_64, "386": elf.EM_386, "arm64": elf.EM_AARCH64, "s390x": elf.EM_S390,
}

// wantStack is what deep's source says about the stack of a call with depth n
// that ends in last, innermost first.
func wantStack(n int, last string) []string {
	s := []string{"_start", "main"}
	for i := range n {
		s = append(s, []string{"plain", "wide", "saver", "flex"}[i%4])
	}
	s = append(s, last)
	slices.Reverse(s)
	return s
}

func TestDeepTellsItsStack(t *testing.T) {
	archs := []string{runtime.GOARCH}
	if runtime.GOARCH == "amd64" {
		archs = append(archs, "386")
	}
	for _, arch := range archs {
		for _, variant := range Variants(t, arch, "deep") {
			for how, last := range map[string]string{"s": "spin", "b": "block", "p": "park"} {
				t.Run(fmt.Sprintf("%s/%s/%s", arch, variant, last), func(t *testing.T) {
					RequireArch(t, arch)
					p := Start(t, Committed(t, arch, variant, "deep"), how, "7")
					if want := wantStack(7, last); !slices.Equal(p.Stack, want) {
						t.Errorf("deep %s 7 tells %q, want %q", how, p.Stack, want)
					}
				})
			}
		}
	}
}

// TestDeepIsDeep: the greatest depth fits on the usual stack of 8 MiB, also
// with the frames of 600 bytes.
func TestDeepIsDeep(t *testing.T) {
	p := Start(t, Committed(t, runtime.GOARCH, "none", "deep"), "b", "8000")
	if got, want := len(p.Stack), 8003; got != want {
		t.Errorf("deep b 8000 tells %d frames, want %d", got, want)
	}
}

// TestCommittedSections: each program has the tables that its variant's name
// says, and no others. The truth is the section table written by the linker.
func TestCommittedSections(t *testing.T) {
	for arch, machine := range architectures {
		variants := Variants(t, arch, "*")
		if len(variants) == 0 {
			t.Errorf("no programs for %s", arch)
		}
		for _, variant := range slices.Compact(variants) {
			files, err := filepath.Glob(filepath.Join(root(t), "bin", arch, variant, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range files {
				t.Run(arch+"/"+variant+"/"+filepath.Base(path), func(t *testing.T) {
					checkSections(t, path, machine, variant)
				})
			}
		}
	}
}

func checkSections(t *testing.T, path string, machine elf.Machine, variant string) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("machine is %v, want %v", f.Machine, machine)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 50<<10 {
		t.Errorf("%d bytes, want at most 50 KiB", info.Size())
	}
	if f.Section(".symtab") == nil {
		t.Error("no symbol table")
	}
	if (f.Section(".eh_frame") != nil) != strings.HasPrefix(variant, "ehframe") {
		t.Errorf(".eh_frame is present: %v", f.Section(".eh_frame") != nil)
	}
	s := f.Section(".sframe")
	if (s != nil) != strings.HasPrefix(variant, "sframe") {
		t.Fatalf(".sframe is present: %v", s != nil)
	}
	if s == nil {
		return
	}
	b, err := s.Data()
	if err != nil || len(b) < 4 {
		t.Fatalf(".sframe: %d bytes, %v", len(b), err)
	}
	// SFrame specification, section 2.1: magic 0xdee2, version, flags.
	if got := f.ByteOrder.Uint16(b); got != 0xdee2 {
		t.Errorf("magic is %#x, want 0xdee2", got)
	}
	if want := variant[len("sframe")] - '0'; b[2] != want {
		t.Errorf("version is %d, want %d", b[2], want)
	}
}

func TestStartFails(t *testing.T) {
	// This test program itself ends at once, without a word of being ready.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no such file": "/does/not/exist", "ends at once": self} {
		t.Run(name, func(t *testing.T) {
			p, err := start(exec.Command(path, "-test.list=^$"))
			if err != nil {
				return
			}
			defer p.Kill()
			if err := p.untilReady(); err == nil {
				t.Errorf("%s: ready", path)
			}
		})
	}
}
