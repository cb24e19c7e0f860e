package symbol

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
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
				compareGo(t, name, addrs)
				return
			}
			for tool, ask := range nameTools {
				t.Run(tool, func(t *testing.T) {
					need(t, tool)
					compareNames(t, tool, name, ask, len(addrs))
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

// compareGo compares with go tool addr2line, which tells the innermost function
// and its line.
func compareGo(t *testing.T, name string, addrs []uint64) {
	t.Helper()
	need(t, "go")
	o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true})
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command("go", "tool", "addr2line", name)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go tool addr2line: %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != 2*len(addrs) {
		t.Fatalf("go tool addr2line answers %d of %d addresses", len(lines)/2, len(addrs))
	}
	equal, inlined := 0, 0
	for i, a := range addrs {
		name, pos := "", "?:0"
		if list := o.Frames(a); len(list) > 0 {
			// It tells the outer function with the line of the innermost.
			name, pos = list[len(list)-1].Name, fmt.Sprintf("%s:%d", list[0].File, list[0].Line)
			if len(list) > 1 {
				inlined++
			}
		}
		// Between functions it says ":-1", where there is nothing to say.
		wantPos := lines[2*i+1]
		if wantPos == ":-1" {
			wantPos = ":0"
		}
		if want := strings.TrimSuffix(lines[2*i], ".abi0"); name != want || pos != wantPos {
			t.Errorf("%#x: %q %s, go tool addr2line says %q %s", a, name, pos, lines[2*i], lines[2*i+1])
			continue
		}
		equal++
	}
	t.Logf("%d of %d equal, %d with inlined functions", equal, len(addrs), inlined)
}

// euFrame is what eu-addr2line writes of one function: its name, and where it
// was inlined.
var euFrame = regexp.MustCompile(`^(.*?)(?: inlined at .* in .*)?$`)

// euPosition is a file and a line, with what else may follow.
var euPosition = regexp.MustCompile(`^(.*?):(\d+)(?::\d+)?(?: \(.*\))*$`)

// euInlines asks eu-addr2line for functions and lines, inlined ones first.
func euInlines(t *testing.T, name string, addrs []uint64) [][]string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command("eu-addr2line", "-a", "-i", "-f", "-e", name)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("eu-addr2line: %v", err)
	}
	var all [][]string
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
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
	var ask []uint64
	for _, i := range differ {
		ask = append(ask, addrs[i])
	}
	for k, third := range llvmInlines(t, name, ask) {
		got, w := frameStrings(o.Frames(ask[k])), plainFrames(third)
		if len(w) == 1 && !strings.Contains(w[0], "/") {
			w = []string{"* ??:0"}
		}
		if strings.Join(got, "\n") != strings.Join(w, "\n") {
			t.Errorf("%#x:\n got %q\neu-addr2line %q\nllvm-symbolizer %q", ask[k], got, plainFrames(want[differ[k]]), w)
		}
	}
	t.Logf("llvm-symbolizer sides with us in the %d", len(differ))
}
