package main

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sfsample/internal/testprog"
)

// sfdump runs the command and returns what it says.
func sfdump(args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return out.String(), errs.String(), status
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "one file is needed"},
		{[]string{"a", "b"}, "one file is needed"},
		{[]string{"--nonsense", "a"}, "unknown flag"},
		{[]string{"--rows", "--check", "a"}, "exclude each other"},
		{[]string{"--compare", "--eh", "a"}, "without --eh"},
		{[]string{"--lookup", "xyz", "a"}, "hexadecimal"},
		{[]string{"--lookup", "0x11111111111111111", "a"}, "hexadecimal"},
		{[]string{"-p", "1", "a"}, "not both"},
		{[]string{"-p", "0"}, "not a process id"},
		{[]string{"-p", "-5"}, "not a process id"},
		{[]string{"-p", "abc"}, "invalid argument"},
	} {
		out, errs, status := sfdump(tt.args...)
		if status != exitUsage || out != "" || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: status %d, output %q, message %q, want %d, nothing, %q in one line", tt.args, status, out, errs, exitUsage, tt.want)
		}
	}
	if out, errs, status := sfdump("--help"); status != exitDone || out != usage || errs != "" {
		t.Errorf("--help: status %d, output %q, message %q", status, out, errs)
	}
}

func TestNoTable(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("no ELF file"), 0o666); err != nil {
		t.Fatal(err)
	}
	empty := elfFile{machine: elf.EM_X86_64, code: [2]uint64{0, 1}}
	zero := elfFile{machine: elf.EM_X86_64, segment: true, table: make([]byte, 28), code: [2]uint64{0, 1}}
	for _, tt := range []struct{ file, want string }{
		{filepath.Join(dir, "missing"), "no such file"},
		{dir, "not a regular file"},
		{text, "not a readable ELF file"},
		{empty.write(t), "no .sframe section"},
		{zero.write(t), ".sframe is empty"}, // left by a linker that dropped all functions
	} {
		for _, mode := range []string{"--rows", "--check", "--json"} {
			out, errs, status := sfdump(mode, tt.file)
			if status != exitFailed || out != "" || !strings.Contains(errs, tt.want) {
				t.Errorf("%s %s: status %d, output %q, message %q, want %q", mode, tt.file, status, out, errs, tt.want)
			}
		}
	}
}

// TestCheckVectors: nothing is wrong with the golden images, and each of the
// broken ones is refused with a place.
func TestCheckVectors(t *testing.T) {
	good, _ := filepath.Glob("../../sframe/testdata/vectors/[0-9]*.txt")
	bad, _ := filepath.Glob("../../sframe/testdata/vectors/bad/*.hex")
	if len(good) == 0 || len(bad) == 0 {
		t.Skip("no golden images on this machine")
	}
	for _, path := range good {
		if strings.HasSuffix(path, "-obj.txt") {
			continue // before relocation
		}
		v := readVector(t, strings.TrimSuffix(path, ".txt"))
		out, errs, status := sfdump("--check", writeELF(t, v.machine, v.addr, v.data))
		if status != exitDone || errs != "" || !strings.HasSuffix(out, ": no fault\n") {
			t.Errorf("%s: status %d: %s%s", path, status, out, errs)
		}
	}
	for _, path := range bad {
		data := readHex(t, path)
		file := writeELF(t, machineOf(data), 0x400200, data)
		out, errs, status := sfdump("--check", file)
		if name := filepath.Base(path); status != exitFailed || !strings.Contains(out, "offset 0x") && name != "01-empty.hex" {
			t.Errorf("%s: status %d: %s%s", path, status, out, errs)
		}
		for _, mode := range []string{"--rows", "--json", "--lookup=401000"} {
			sfdump(mode, file) // must return
		}
	}
}

// TestHeaderless: a file without section headers is found by PT_GNU_SFRAME, one
// without that by its section, of either byte order.
func TestHeaderless(t *testing.T) {
	for _, name := range []string{"30-v3-amd64-basic", "40-v3-aarch64be-pauth", "44-v3-s390x-plt"} {
		path := "../../sframe/testdata/vectors/" + name
		if _, err := os.Stat(path + ".txt"); err != nil {
			t.Skip("no golden images on this machine")
		}
		v := readVector(t, path)
		whole := rowsOf(t, writeELF(t, v.machine, v.addr, v.data))
		for _, sections := range []bool{true, false} {
			e := elfFile{
				machine: v.machine, addr: v.addr, table: v.data, sections: sections, segment: !sections, code: [2]uint64{0, 1 << 40},
				big: v.machine == elf.EM_S390 || v.data[4] == 1,
			}
			if got := rowsOf(t, e.write(t)); len(got) == 0 || !slices.Equal(got, whole) {
				t.Errorf("%s, sections %v: got %q, want %q", name, sections, got, whole)
			}
		}
	}
}

// TestForeignABI: a table of another machine than the file's is not used.
func TestForeignABI(t *testing.T) {
	path := "../../sframe/testdata/vectors/30-v3-amd64-basic"
	if _, err := os.Stat(path + ".txt"); err != nil {
		t.Skip("no golden images on this machine")
	}
	v := readVector(t, path)
	e := elfFile{machine: elf.EM_AARCH64, addr: v.addr, table: v.data, sections: true, code: [2]uint64{0, 1 << 40}}
	out, errs, status := sfdump("--rows", e.write(t))
	if status != exitFailed || out != "" || !strings.Contains(errs, "ABI AMD64") {
		t.Errorf("status %d, output %q, message %q", status, out, errs)
	}
}

// shapes are the programs of testdata: architecture and version.
var shapes = []string{"amd64-v3", "amd64-v2", "arm64-v3", "arm64-v2", "s390x-v3"}

func shape(name string) string { return "testdata/shapes-" + name }

func readText(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestShapes: rows of both tables against the text that readelf had for them.
func TestShapes(t *testing.T) {
	for _, name := range shapes {
		t.Run(name, func(t *testing.T) {
			text := readText(t, shape(name)+".readelf")
			sframe, err := parseReadelf(text)
			if err != nil || len(sframe.lines) == 0 {
				t.Fatalf("%d rows, %v", len(sframe.lines), err)
			}
			sameLines(t, rowsOf(t, shape(name)), sframe.lines)
			f, err := elf.Open(shape(name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			compareEH(t, byFunc(rowsOf(t, shape(name), "--eh"), true), byFunc(parseReadelfEH(text, f.Machine), false))
			if out, errs, status := sfdump("--check", shape(name)); status != exitDone {
				t.Errorf("--check: %s%s", out, errs)
			}
		})
	}
}

// relative replaces the address of a row by its offset in the function: code
// sections of an object are laid out by us, and all at 0 by readelf.
func relative(lines []string) []string {
	var out []string
	for _, line := range lines {
		f := strings.Fields(line)
		start, _ := strconv.ParseUint(f[0], 16, 64)
		pc, _ := strconv.ParseUint(f[4], 16, 64)
		out = append(out, fmt.Sprintf("%s %s %x %s", f[1], f[2], pc-start, strings.Join(f[5:], " ")))
	}
	return out
}

// TestShapesObjects: relocatable objects. readelf 2.44 does not relocate.
func TestShapesObjects(t *testing.T) {
	for _, name := range shapes {
		t.Run(name, func(t *testing.T) {
			file := shape(name) + ".o"
			want, err := parseReadelf(readText(t, file+".readelf"))
			if err != nil {
				t.Fatal(err)
			}
			got := rowsOf(t, file)
			sameLines(t, relative(got), relative(want.lines))
			out, errs, status := sfdump("--check", file)
			if status != exitDone {
				t.Errorf("--check: %s%s", out, errs)
			}
			// Each function has the name of its symbol, and both tables agree on
			// where it is.
			out, _, _ = sfdump(file)
			for _, fn := range []string{"leaf", "keeps", "dynamic", "aligned", "seldom", "branches", "waits", "start", "_start"} {
				if !strings.Contains(out, " "+fn+": ") {
					t.Errorf("function %s is missing", fn)
				}
			}
			if out, errs, _ := sfdump("--compare", file); strings.Contains(out, "only ") || errs != "" {
				t.Errorf("--compare: %s%s", out, errs)
			}
		})
	}
}

// TestObjectBomb: of an object's table that a few bytes expand to nothing is read, and more than all tables may take is not.
func TestObjectBomb(t *testing.T) {
	var z bytes.Buffer
	z.WriteString("ZLIB\x00\x00\x00\x00\x04\x00\x00\x00") // 64 MB
	w := zlib.NewWriter(&z)
	w.Write(make([]byte, 64<<20))
	w.Close()
	for want, s := range map[string]testprog.Section{
		"compressed": {Name: ".zdebug_sframe", Type: shtGNUSFrame, Data: z.Bytes()},
		"too large":  {Name: ".sframe", Type: shtGNUSFrame, Size: 300 << 20},
	} {
		file := testprog.Sparse(t, shape("amd64-v3")+".o", 0, s)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, errs, status := sfdump(file)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; status != exitFailed || !strings.Contains(errs, want) || took > 16<<20 {
			t.Errorf("%s: status %d, %q, %d MB, want 16 at most", want, status, errs, took>>20)
		}
	}
}

// TestCompareShapes: version 3 agrees with .eh_frame everywhere; the assembler
// of version 2 had no way to say that RA is undefined in _start.
func TestCompareShapes(t *testing.T) {
	for _, name := range shapes {
		out, errs, status := sfdump("--compare", shape(name))
		diffs := 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "differ ") {
				diffs++
				if !strings.Contains(line, " _start: ") || !strings.HasSuffix(line, ".eh_frame cfa - fp - ra undef\n") {
					t.Errorf("%s: %s", name, line)
				}
			}
		}
		want, wantStatus := 0, exitDone
		if strings.HasSuffix(name, "v2") {
			want, wantStatus = 1, exitFailed
		}
		if diffs != want || status != wantStatus || errs != "" {
			t.Errorf("%s: %d differences, status %d, want %d, %d: %s", name, diffs, status, want, wantStatus, errs)
		}
	}
}

// tableOffset is where the .sframe section lies in a file.
func tableOffset(t testing.TB, path string) (off, size uint64) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := f.Section(".sframe")
	return s.Offset, s.Size
}

// changed is a copy of a file with some bytes of its .sframe changed by edit.
func changed(t testing.TB, path string, edit func(table []byte)) string {
	t.Helper()
	off, size := tableOffset(t, path)
	data := []byte(readText(t, path))
	edit(data[off : off+size])
	name := filepath.Join(t.TempDir(), "changed")
	if err := os.WriteFile(name, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestCompareFinds: a wrong offset in one row, and a function that is missing in
// one table, are found at their addresses. keeps has its row for CFA = SP+80 from
// 0x107a to 0x10c2 (testdata/shapes-amd64-v3.readelf).
func TestCompareFinds(t *testing.T) {
	path := shape("amd64-v3")
	wrong := changed(t, path, func(table []byte) {
		// Start 0x1a in the function, info 05 (SP, two words), 80, -48.
		i := bytes.Index(table, []byte{0x1a, 0x05, 80, 0xd0})
		if i < 0 {
			t.Fatal("row not found")
		}
		table[i+2] = 72
	})
	out, _, status := sfdump("--compare", wrong)
	want := "differ 0x107a-0x10c2 keeps+0x1a: .sframe cfa sp+72 fp c-48 ra c-8; .eh_frame cfa sp+80 fp c-48 ra c-8\n"
	if status != exitFailed || !strings.Contains(out, want) || strings.Count(out, "differ ") != 1 {
		t.Errorf("status %d, got %s, want %s", status, out, want)
	}
	fewer := changed(t, path, func(table []byte) { table[8]-- }) // the last function: start
	out, _, status = sfdump("--compare", fewer)
	if status != exitDone || !strings.Contains(out, "only .eh_frame 0x1200-0x1232 start: its rules can be expressed") {
		t.Errorf("status %d, got %s", status, out)
	}
}

func TestLookup(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"107a", "0x107a keeps+0x1a\n    function 0x1060-0x10d6\n    row 0x107a-0x10c2  cfa sp+80  fp c-48  ra c-8\n"},
		{"0x1050", "0x1050 leaf\n    function 0x1050-0x105e\n    row 0x1050-0x105e  cfa sp+8  fp u  ra c-8\n"},
	} {
		out, errs, status := sfdump("--lookup", tt.addr, shape("amd64-v3"))
		if status != exitDone || out != tt.want || errs != "" {
			t.Errorf("%s: status %d, got %q, %q, want %q", tt.addr, status, out, errs, tt.want)
		}
		eh, _, status := sfdump("--eh", "--lookup", tt.addr, shape("amd64-v3"))
		if status != exitDone || eh != tt.want {
			t.Errorf("--eh %s: status %d, got %q, want %q", tt.addr, status, eh, tt.want)
		}
	}
	out, errs, status := sfdump("--lookup", "1", "--lookup", "1050", shape("amd64-v3"))
	if status != exitFailed || !strings.HasPrefix(out, "0x1050 leaf") || !strings.Contains(errs, "0x1: no row covers the address") {
		t.Errorf("status %d, got %q, %q", status, out, errs)
	}
}

// TestJSON: every mode writes one object a line, which says what the text says.
func TestJSON(t *testing.T) {
	file := shape("amd64-v2")
	for _, args := range [][]string{{}, {"--eh"}, {"--rows"}, {"--check"}, {"--compare"}, {"--lookup", "1050"}} {
		out, errs, status := sfdump(append(append([]string{"--json"}, args...), file)...)
		if status != exitDone && args[0] != "--compare" || errs != "" || out == "" {
			t.Errorf("%q: status %d, %q", args, status, errs)
		}
		rows := 0
		for line := range strings.Lines(out) {
			var object struct {
				File string              `json:"file"`
				Rows json.RawMessage     `json:"rows"`
				List []map[string]string `json:"-"`
			}
			if err := json.Unmarshal([]byte(line), &object); err != nil || object.File != file {
				t.Fatalf("%q: %q: %v", args, line, err)
			}
			if json.Unmarshal(object.Rows, &object.List) == nil {
				rows += len(object.List)
			}
		}
		if len(args) == 0 {
			if want := len(rowsOf(t, file)); rows != want {
				t.Errorf("%d rows, want %d", rows, want)
			}
		}
	}
	bad := changed(t, file, func(table []byte) { table[12]++ })
	out, _, status := sfdump("--json", "--check", bad)
	if status != exitFailed || !strings.Contains(out, `"fault":".sframe: offset 0xc: `) {
		t.Errorf("status %d, got %q", status, out)
	}
}

// TestPrintable: no control character of a file's name gets to a terminal.
func TestPrintable(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a\x1b[31m\nb\xff")
	if err := os.WriteFile(name, []byte(readText(t, shape("amd64-v3"))), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--check"}, {"--compare"}, {"--lookup", "1"}} {
		out, errs, _ := sfdump(append(args, name)...)
		if strings.Contains(out+errs, "\x1b") || strings.Contains(out+errs, "\xff") || !strings.Contains(out+errs, `a\x1b[31m\nb\xff`) {
			t.Errorf("%q: %q, %q", args, out, errs)
		}
	}
}

// native is the program of testdata that runs on this machine.
func native(t testing.TB) string {
	t.Helper()
	name := shape(runtime.GOARCH + "-v3")
	if runtime.GOOS != "linux" {
		t.Skip("not a Linux machine")
	}
	if _, err := os.Stat(name); err != nil {
		t.Skip("no program for this machine")
	}
	return name
}
