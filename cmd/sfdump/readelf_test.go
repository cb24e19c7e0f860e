package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// readelfTable is what readelf --sframe prints, as lines of --rows.
type readelfTable struct {
	version int
	funcs   int
	lines   []string
}

var (
	readelfVersion = regexp.MustCompile(`^\s+Version: SFRAME_VERSION_(\d)`)
	readelfFixedRA = regexp.MustCompile(`^\s+CFA fixed RA offset: (-?\d+)`)
	readelfFunc    = regexp.MustCompile(`^\s+func idx \[\d+\]: pc = 0x([0-9a-f]+), size = (\d+) bytes(?:, attr = "(\w+)")?(, pauth = B key)?`)
	// A long CFA runs into the next column.
	readelfColumn = regexp.MustCompile(`^(\(?\w+[+-]\d+\)?)\s*(u|U|f|c[+-]\d+|\(\w+[+-]\d+\)|\w+[+-]\d+|r\d+)\s+(\S+)$`)
	readelfRow    = regexp.MustCompile(`^\s+([0-9a-f]{16})\s+(.*?)\s*$`)
)

// parseReadelf brings the text of readelf (binutils 2.40 to 2.47) to the form of
// --rows. Its columns: "u" no rule, "U" a padding word, "f" the header's fixed
// offset; rules from the CFA have no brackets, but are loads.
func parseReadelf(text string) (readelfTable, error) {
	t := readelfTable{}
	fixed := ""
	var fn, attr string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := readelfVersion.FindStringSubmatch(line); m != nil {
			t.version, _ = strconv.Atoi(m[1])
		} else if m := readelfFixedRA.FindStringSubmatch(line); m != nil {
			fixed = "c" + m[1]
		} else if m := readelfFunc.FindStringSubmatch(line); m != nil {
			t.funcs++
			fn = m[1] + " " + m[2]
			attr = ""
			for _, letter := range "FS" {
				if strings.ContainsRune(m[3], letter) {
					attr += string(letter)
				}
			}
			if m[4] != "" {
				attr += "B"
			}
		} else if strings.Contains(line, "STARTPC[m]") {
			attr = strings.TrimSuffix(attr, "B") + "M" + map[bool]string{true: "B"}[strings.HasSuffix(attr, "B")]
		} else if m := readelfRow.FindStringSubmatch(line); m != nil {
			pc := strings.TrimLeft(m[1], "0")
			if pc == "" {
				pc = "0"
			}
			columns, err := readelfColumns(m[2], fixed)
			if err != nil {
				return t, fmt.Errorf("%q: %w", line, err)
			}
			letters := attr
			if letters == "" {
				letters = "-"
			}
			t.lines = append(t.lines, fmt.Sprintf("%s %s | %s %s", fn, letters, pc, columns))
		}
	}
	return t, nil
}

func readelfColumns(text, fixed string) (string, error) {
	if text == "RA undefined" {
		return "- - undef", nil
	}
	f := readelfColumn.FindStringSubmatch(text)
	if f == nil {
		return "", errors.New("not three columns")
	}
	ra, signed := strings.CutSuffix(f[3], "[s]")
	switch ra {
	case "u", "U", "f":
		ra = "u"
		if fixed != "" {
			ra = fixed
		}
	}
	if signed {
		ra += "[s]"
	}
	// A register is printed as its sum with 0.
	return f[1] + " " + strings.TrimSuffix(f[2], "+0") + " " + strings.TrimSuffix(ra, "+0"), nil
}

// rowsOf runs sfdump --rows.
func rowsOf(t testing.TB, file string, flags ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := run(append(append([]string{"--rows"}, flags...), file), &out, &errs); status != exitDone || errs.Len() > 0 {
		t.Fatalf("%s: exit status %d: %s", file, status, errs.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// sameLines compares two lists of rows and shows the first differences.
func sameLines(t testing.TB, got, want []string) {
	t.Helper()
	shown := 0
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("row %d: got %s, want %s", i, g, w)
			if shown++; shown == 5 {
				t.Fatalf("%d rows, readelf has %d", len(got), len(want))
			}
		}
	}
}

// TestRowsVectors: the golden images in a minimal ELF file, against the text of
// readelf that their makers kept. Some texts are of an older readelf which
// cannot show all that the table has.
func TestRowsVectors(t *testing.T) {
	dir := "../../sframe/testdata/vectors/"
	paths, err := filepath.Glob(dir + "[0-9]*.txt")
	if err != nil || len(paths) == 0 {
		t.Skip("no golden images on this machine")
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		t.Run(name, func(t *testing.T) {
			v := readVector(t, strings.TrimSuffix(path, ".txt"))
			want, err := parseReadelf(v.readelf)
			if err != nil {
				t.Fatal(err)
			}
			if want.version == 1 && v.machine == elf.EM_X86_64 && !strings.Contains(v.readelf, "fixed RA") {
				// readelf 2.40 shows neither the fixed offset nor RA.
				for i := range want.lines {
					want.lines[i] = strings.TrimSuffix(want.lines[i], " u") + " c-8"
				}
			}
			if len(want.lines) == 0 || name == "31-v3-amd64-basic-obj" {
				// A header only; or a table before relocation, which readelf
				// was shown in the object with its relocations.
				return
			}
			got := rowsOf(t, writeELF(t, v.machine, v.addr, v.data))
			if name == "48-v3-amd64-lld-concat" {
				// readelf shows the first of the two joined tables.
				got = got[:len(want.lines)]
			}
			if name == "17-v2-s390x" {
				// readelf before 2.46 knows no undefined RA in version 2, and
				// prints the row with nothing in it.
				got = slices.DeleteFunc(got, func(s string) bool { return strings.HasSuffix(s, "undef") && !slices.Contains(want.lines, s) })
			}
			sameLines(t, got, want.lines)
		})
	}
}

// programs returns the files below the folder that SFDUMP_PROGRAMS names.
func programs(t testing.TB) []string {
	dir := os.Getenv("SFDUMP_PROGRAMS")
	if dir == "" {
		t.Skip("SFDUMP_PROGRAMS names no folder of programs")
	}
	var files []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if f, err := elf.Open(path); err == nil {
			f.Close()
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no ELF file in %s", dir)
	}
	return files
}

// readelf runs readelf on file, from the file's folder. SFDUMP_READELF is the
// program, with arguments, that knows the files' version of SFrame.
func readelf(t testing.TB, file string, args ...string) string {
	t.Helper()
	command := strings.Fields(os.Getenv("SFDUMP_READELF"))
	if len(command) == 0 {
		command = []string{"readelf"}
	}
	command = append(append(command, args...), filepath.Base(file))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = filepath.Dir(file)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	return string(out)
}

// TestRowsReadelf compares all rows of a folder of programs with readelf:
//
//	SFDUMP_PROGRAMS=DIR SFDUMP_READELF="x86_64-linux-gnu-readelf" go test -run RowsReadelf -v ./cmd/sfdump
func TestRowsReadelf(t *testing.T) {
	funcs, rows := 0, 0
	files := programs(t)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := parseReadelf(readelf(t, file, "--sframe=.sframe"))
			if err != nil {
				t.Fatal(err)
			}
			got := rowsOf(t, file)
			sameLines(t, got, want.lines)
			t.Logf("version %d, %d functions, %d rows", want.version, want.funcs, len(want.lines))
			funcs += want.funcs
			rows += len(want.lines)
		})
	}
	t.Logf("%d programs, %d functions, %d rows", len(files), funcs, rows)
}
