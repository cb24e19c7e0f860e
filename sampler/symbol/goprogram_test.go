package symbol

import (
	"bytes"
	"context"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"sfsample/internal/late"
)

// TestGoProgram: variables and structures of a program are what the standard library reads of it.
func TestGoProgram(t *testing.T) {
	need(t, "go")
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		t.Run(arch, func(t *testing.T) {
			path, stripped := buildGo(t, arch)
			p := openGo(t, path)
			if got, want := p.Version(), runtime.Version(); got != want {
				t.Errorf("version %q, want %q", got, want)
			}
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			checkVariables(t, p, f)
			checkStructs(t, p, f)
			bare := openGo(t, stripped)
			if got := bare.Version(); got != runtime.Version() {
				t.Errorf("stripped: version %q", got)
			}
			if v, s := bare.Variables("runtime.allgs"), bare.Structs("runtime.g"); len(v) > 0 || len(s) > 0 {
				t.Errorf("stripped: variables %v, structures %v", v, s)
			}
			list := p.Variables("runtime.allgs")["runtime.allgs"].Addr
			refs, err := bare.References("runtime.allgadd")
			if err != nil || arch == "amd64" && (!slices.Contains(refs, list) || !slices.Contains(refs, list+8) || !slices.Contains(refs, list+16)) {
				t.Errorf("stripped: references to %#x, %v; want some to %#x", refs, err, list)
			}
			if refs, err := bare.References("runtime.nosuch"); len(refs) > 0 || err != nil {
				t.Errorf("references of what is not there: %#x, %v", refs, err)
			}
		})
	}
}

func openGo(t *testing.T, path string) *GoProgram {
	t.Helper()
	p, err := OpenGoProgram(openFile(t, path, Options{}).f, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func checkVariables(t *testing.T, p *GoProgram, f *elf.File) {
	t.Helper()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"runtime.allgs", "runtime.allglen", "runtime.waitReasonStrings", "runtime.nosuch"}
	got, found := p.Variables(names...), 0
	for _, s := range syms {
		if slices.Contains(names, s.Name) {
			found++
			if want := (Variable{s.Value, s.Size}); got[s.Name] != want {
				t.Errorf("%s: %v, want %v", s.Name, got[s.Name], want)
			}
		}
	}
	if len(got) != found || found != 3 {
		t.Errorf("%d variables, want %d: %v", len(got), found, got)
	}
}

func checkStructs(t *testing.T, p *GoProgram, f *elf.File) {
	t.Helper()
	d, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"runtime.g", "runtime.gobuf", "runtime.sudog", "runtime.m", "runtime.nosuch"}
	got, fields := p.Structs(names...), 0
	if len(got) != 4 {
		t.Errorf("%d structures, want 4", len(got))
	}
	for r := d.Reader(); ; {
		e, err := r.Next()
		if err != nil || e == nil {
			break
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		if e.Tag != dwarf.TagStructType || !slices.Contains(names, name) {
			continue
		}
		typ, err := d.Type(e.Offset)
		if err != nil {
			t.Fatal(err)
		}
		list := typ.(*dwarf.StructType).Field
		if len(got[name]) != len(list) && !slices.ContainsFunc(list, func(f *dwarf.StructField) bool { return f.Name == "_" }) {
			t.Errorf("%s: %d fields, want %d", name, len(got[name]), len(list))
		}
		for _, f := range list {
			if f.Name == "_" { // there may be several
				continue
			}
			g := got[name][f.Name]
			if g.Offset != uint64(f.ByteOffset) || g.Size != 0 && g.Size != uint64(f.Type.Size()) {
				t.Errorf("%s.%s: %v, want offset %d, size %d", name, f.Name, g, f.ByteOffset, f.Type.Size())
			}
			fields++
		}
	}
	if fields < 100 {
		t.Errorf("only %d fields were compared", fields)
	}
}

// TestGoProgramLate: without time nothing is found.
func TestGoProgramLate(t *testing.T) {
	path, stripped := buildGo(t, runtime.GOARCH)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, path := range []string{path, stripped} {
		p, err := OpenGoProgram(openFile(t, path, Options{}).f, late.New(ctx))
		if err != nil {
			t.Fatal(err)
		}
		refs, _ := p.References("runtime.allgadd") // an error is an answer
		if v, s := p.Variables("runtime.allgs"), p.Structs("runtime.g"); len(v)+len(s)+len(refs) > 0 {
			t.Errorf("found %v, %v, %#x", v, s, refs)
		}
	}
}

// TestGoProgramDamaged: whatever the bytes of a program, what is asked of it comes to an end.
func TestGoProgramDamaged(t *testing.T) {
	path, _ := buildGo(t, "amd64")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rnd := rand.New(rand.NewPCG(5, 6))
	answers := 0
	for _, name := range []string{".symtab", ".strtab", ".gopclntab", ".go.buildinfo", ".debug_info", ".debug_abbrev", ""} {
		from, size := uint64(0), uint64(4096)
		if s := f.Section(name); name != "" && s != nil {
			from, size = s.Offset, s.FileSize
		}
		for range 8 {
			b := slices.Clone(whole)
			for range 64 {
				b[from+rnd.Uint64N(size)] = byte(rnd.Uint32())
			}
			p, err := OpenGoProgram(bytes.NewReader(b), nil)
			if err != nil {
				continue
			}
			p.Version()
			refs, _ := p.References("runtime.allgadd") // an error is an answer
			answers += len(p.Variables("runtime.allgs")) + len(refs) + len(p.Structs("runtime.g"))
			p.Close()
		}
	}
	if answers == 0 {
		t.Error("there was no answer at all, so little was tested")
	}
}

// TestGoVersionLong: a program whose version claims to have 200 MB is not read for that.
func TestGoVersionLong(t *testing.T) {
	need(t, "go")
	path, _ := buildGo(t, "amd64")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	const long = 200 << 20
	off := f.Section(".go.buildinfo").Offset
	binary.PutUvarint(b[off+32:], long) // the length of the version stands behind 32 bytes
	for i, p := range f.Progs {
		if p.Type == elf.PT_LOAD && off >= p.Off && off < p.Off+p.Filesz {
			binary.LittleEndian.PutUint64(b[64+56*i+32:], 2*long) // p_filesz
		}
	}
	path = filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 3*long); err != nil {
		t.Fatal(err)
	}
	p := openGo(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := p.Version()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; got != "" || took > 128<<20 {
		t.Errorf("version of %d bytes, %d MB, want 128 at most", len(got), took>>20)
	}
}
