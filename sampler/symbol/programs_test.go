package symbol

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// programs are the files that long comparisons run on: SFSAMPLE_PROGRAMS names
// them, with blanks between. Debug files are found where packages put them.
func programs(t *testing.T) []string {
	t.Helper()
	list := strings.Fields(os.Getenv("SFSAMPLE_PROGRAMS"))
	if len(list) == 0 {
		t.Skip("SFSAMPLE_PROGRAMS names no programs")
	}
	return list
}

// TestPrograms holds 1,000 addresses of each program against every tool of the
// machine that can tell something about it: names, and where there is debugging
// information inlined functions and lines.
func TestPrograms(t *testing.T) {
	for _, name := range programs(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			addrs := randomText(t, name, 1000)
			if isGoProgram(t, name) {
				compareGo(t, name, name, addrs)
				return
			}
			for tool, tell := range nameTools {
				t.Run(tool, func(t *testing.T) {
					need(t, tool)
					compareNames(t, tool, name, tell, len(addrs))
				})
			}
			o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true, Roots: ownRoot(t)})
			if o.Frames(addrs[0]); o.NoLines() != "" {
				t.Logf("no inlined functions and lines: %s", o.NoLines())
				return
			}
			t.Run("llvm-symbolizer", func(t *testing.T) {
				need(t, "llvm-symbolizer")
				compareInlines(t, name, o, addrs)
			})
			t.Run("eu-addr2line -i", func(t *testing.T) {
				need(t, "eu-addr2line")
				compareEU(t, name, o, addrs)
			})
		})
	}
}

func isGoProgram(t *testing.T, name string) bool {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Section(".gopclntab") != nil || f.Section(".data.rel.ro.gopclntab") != nil
}

// compareGo compares with go tool addr2line, which tells the outer function with
// the line of the innermost. An unstripped file at the same addresses can be
// asked in place of the file itself.
func compareGo(t *testing.T, name, unstripped string, addrs []uint64) {
	t.Helper()
	need(t, "go")
	o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true})
	equal, inlined := 0, 0
	var doubtful []uint64
	var differ []string
	for i, want := range goAddr2line(t, unstripped, addrs) {
		fn, pos := "?", "?:0"
		if list := o.Frames(addrs[i]); len(list) > 0 {
			fn, pos = list[len(list)-1].Name, fmt.Sprintf("%s:%d", list[0].File, list[0].Line)
			if len(list) > 1 {
				inlined++
			}
		}
		switch got := fn + " " + pos; {
		case got == want:
			equal++
		case pos == ":0" && strings.HasPrefix(want, fn+" "):
			doubtful = append(doubtful, addrs[i])
			differ = append(differ, want)
		default:
			t.Errorf("%#x: %q, go tool addr2line says %q", addrs[i], got, want)
		}
	}
	t.Logf("%d of %d equal, %d with inlined functions", equal, len(addrs), inlined)
	if len(doubtful) == 0 {
		return
	}
	// Go's tables have no lines for C functions that cgo has linked in, and say so
	// by an offset of 0 (runtime/symtab.go, pcvalue). debug/gosym decodes what
	// stands at 0 nevertheless.
	need(t, "llvm-symbolizer")
	for i, list := range llvmInlines(t, unstripped, doubtful) {
		if len(list) != 1 || !strings.HasSuffix(list[0], " ??:0") {
			t.Errorf("%#x: no line, go tool addr2line says %q, llvm-symbolizer %q", doubtful[i], differ[i], list)
		}
	}
	t.Logf("%d more in C functions, to which llvm-symbolizer knows no line either", len(doubtful))
}

// goAddr2line asks go tool addr2line.
func goAddr2line(t *testing.T, name string, addrs []uint64) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(ask(t, addrs, "go", "tool", "addr2line", name), "\n"), "\n")
	if len(lines) != 2*len(addrs) {
		t.Fatalf("go tool addr2line answers %d of %d addresses", len(lines)/2, len(addrs))
	}
	var all []string
	for i := 0; i < len(lines); i += 2 {
		pos := lines[i+1]
		if pos == ":-1" { // between functions
			pos = ":0"
		}
		all = append(all, goName(strings.TrimSuffix(lines[i], ".abi0"))+" "+pos)
	}
	return all
}

// euFrame is what eu-addr2line writes of one function: its name, and where it
// was inlined.
var euFrame = regexp.MustCompile(`^(.*?)(?: inlined at .* in .*)?$`)

// euPosition is a file and a line, with what else may follow.
var euPosition = regexp.MustCompile(`^(.*?):(\d+)(?::\d+)?(?: \(.*\))*$`)

// euInlines asks eu-addr2line for functions and lines, inlined ones first.
func euInlines(t *testing.T, name string, addrs []uint64) [][]string {
	t.Helper()
	var all [][]string
	lines := strings.Split(strings.TrimSpace(ask(t, addrs, "eu-addr2line", "-a", "-i", "-f", "-e", name)), "\n")
	for i := 0; i < len(lines); {
		i++ // the address
		var list []string
		for ; i+1 < len(lines) && !strings.HasPrefix(lines[i], "0x"); i += 2 {
			pos := euPosition.FindStringSubmatch(lines[i+1])
			if pos == nil {
				t.Fatalf("eu-addr2line writes %q", lines[i+1])
			}
			list = append(list, fmt.Sprintf("%s %s:%s", euFrame.FindStringSubmatch(lines[i])[1], pos[1], pos[2]))
		}
		all = append(all, list)
	}
	if len(all) != len(addrs) {
		t.Fatalf("eu-addr2line answers %d of %d addresses", len(all), len(addrs))
	}
	return all
}

// compareEU compares inlined functions and lines with eu-addr2line's. Where the
// answers differ, llvm-symbolizer is asked too: libdw's walk through inlined
// functions misses some calls that are in several ranges, and ends early in
// units of several ranges.
func compareEU(t *testing.T, name string, o *Object, addrs []uint64) {
	t.Helper()
	want := euInlines(t, name, addrs)
	equal, inlined := 0, 0
	var differ []int
	for i, a := range addrs {
		got, w := frameStrings(o.Frames(a)), plainFrames(want[i])
		if len(got) > 1 {
			inlined++
		}
		if strings.Join(got, "\n") == strings.Join(w, "\n") {
			equal++
		} else {
			differ = append(differ, i)
		}
	}
	t.Logf("%d of %d equal, %d with inlined functions, %d differ", equal, len(addrs), inlined, len(differ))
	if len(differ) == 0 {
		return
	}
	need(t, "llvm-symbolizer")
	var doubtful []uint64
	for _, i := range differ {
		doubtful = append(doubtful, addrs[i])
	}
	for k, third := range llvmInlines(t, name, doubtful) {
		got, w := frameStrings(o.Frames(doubtful[k])), plainFrames(third)
		if len(w) == 1 && !strings.Contains(w[0], "/") {
			w = []string{"* ??:0"}
		}
		if strings.Join(got, "\n") != strings.Join(w, "\n") {
			t.Errorf("%#x:\n got %q\neu-addr2line %q\nllvm-symbolizer %q", doubtful[k], got, plainFrames(want[differ[k]]), w)
		}
	}
	t.Logf("llvm-symbolizer sides with us in the %d", len(differ))
}
