package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// readelfEH is the text of readelf -wF as lines of --rows --eh: what differs is
// that readelf shows no row of a function that has none of its own.
type readelfEH struct {
	regs  map[string]string // names of SP and FP
	cies  map[string]string // row by offset
	lines []string

	columns []string
	cie     string // offset, while in a CIE
	fn      string // "start size", while in an FDE
	start   uint64
	initial string // the CIE's row
	rows    int    // of the FDE
}

var (
	ehCIE = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE `)
	ehFDE = regexp.MustCompile(`^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)`)
	ehRow = regexp.MustCompile(`^[0-9a-f]{16} `)

	ehOtherName = regexp.MustCompile(`( r\d+) \(\w+\)`)
)

// ehRegs are the names that readelf has for SP and FP, by machine.
var ehRegs = map[elf.Machine]map[string]string{
	elf.EM_X86_64:  {"rsp": "sp", "rbp": "fp"},
	elf.EM_AARCH64: {"sp": "sp", "x29": "fp"},
	elf.EM_S390:    {"r15": "sp", "r11": "fp"},
}

func parseReadelfEH(text string, machine elf.Machine) []string {
	p := readelfEH{regs: ehRegs[machine], cies: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch {
		case ehCIE.MatchString(line):
			p.endFunc()
			p.cie, p.fn = ehCIE.FindStringSubmatch(line)[1], ""
		case ehFDE.MatchString(line):
			p.endFunc()
			p.beginFunc(ehFDE.FindStringSubmatch(line))
		case strings.HasPrefix(line, "   LOC "):
			p.columns = strings.Fields(line)
		case ehRow.MatchString(line):
			// A register that is in another is printed as "r17 (f2)".
			p.row(strings.Fields(ehOtherName.ReplaceAllString(line, "$1")))
		}
	}
	p.endFunc()
	return p.lines
}

func (p *readelfEH) beginFunc(m []string) {
	start, _ := strconv.ParseUint(m[2], 16, 64)
	end, _ := strconv.ParseUint(m[3], 16, 64)
	p.cie, p.start, p.rows = "", start, 0
	p.fn, p.initial = fmt.Sprintf("%x %d", start, end-start), p.cies[m[1]]
}

// endFunc gives a function without rows that of its CIE.
func (p *readelfEH) endFunc() {
	if p.fn != "" && p.rows == 0 && !strings.HasSuffix(p.fn, " 0") {
		p.lines = append(p.lines, fmt.Sprintf("%s | %x %s", p.fn, p.start, p.initial))
	}
	p.fn = ""
}

func (p *readelfEH) row(f []string) {
	cfa, fp, ra := f[1], "u", "u"
	for i := 2; i < len(f) && i < len(p.columns); i++ {
		switch name := p.columns[i]; {
		case name == "ra":
			ra = f[i]
		case p.regs[name] == "fp":
			fp = f[i]
		}
	}
	text := p.text(cfa) + " " + p.text(fp) + " " + p.text(ra)
	if p.cie != "" {
		p.cies[p.cie] = text
		return
	}
	p.rows++
	pc, _ := strconv.ParseUint(f[0], 16, 64)
	p.lines = append(p.lines, fmt.Sprintf("%s | %x %s", p.fn, pc, text))
}

var ehSum = regexp.MustCompile(`^([a-z]\w*)([+-]\d+)$`)

// text turns one column into ours.
func (p *readelfEH) text(s string) string {
	switch {
	case s == "s":
		return "u"
	case s == "vexp":
		return "exp"
	case p.regs[s] != "":
		return p.regs[s]
	}
	m := ehSum.FindStringSubmatch(s)
	if m == nil || m[1] == "c" || m[1] == "v" {
		return s
	}
	if r := p.regs[m[1]]; r != "" {
		return r + m[2]
	}
	if n, ok := amd64Numbers[m[1]]; ok {
		return fmt.Sprintf("r%d%s", n, m[2])
	}
	return s
}

// amd64Numbers are the DWARF numbers of the registers that have another name in
// readelf (System V ABI AMD64 supplement, figure 3.36).
var amd64Numbers = map[string]int{"rax": 0, "rdx": 1, "rcx": 2, "rbx": 3, "rsi": 4, "rdi": 5}

// ehFuncRows are the rows of one function: rules by address, ascending.
type ehFuncRows struct {
	pcs   []uint64
	rules []string
}

// at is the rule for pc.
func (f *ehFuncRows) at(pc uint64) string {
	i := sort.Search(len(f.pcs), func(i int) bool { return f.pcs[i] > pc })
	if i == 0 {
		return "nothing"
	}
	return f.rules[i-1]
}

// byFunc groups lines by function. From its third field on, a line of --rows
// has its attributes more.
func byFunc(lines []string, attrs bool) map[string]*ehFuncRows {
	funcs := map[string]*ehFuncRows{}
	for _, line := range lines {
		f := strings.Fields(line) // start size [attrs] | pc cfa fp ra
		key := f[0] + " " + f[1]
		if attrs {
			f = f[1:]
		}
		fn := funcs[key]
		if fn == nil {
			fn = &ehFuncRows{}
			funcs[key] = fn
		}
		pc, _ := strconv.ParseUint(f[3], 16, 64)
		fn.pcs = append(fn.pcs, pc)
		fn.rules = append(fn.rules, strings.TrimSuffix(strings.Join(f[4:], " "), "[s]"))
	}
	return funcs
}

// sameEHRules: readelf has "u" for an undefined RA, whatever the rest of the row.
func sameEHRules(got, want string) bool {
	return got == want || got == "- - undef" && strings.HasSuffix(want, " u")
}

// compareEH compares all functions at each address where either has a row. Rows
// that say the same as the one before need not be on both sides.
func compareEH(t *testing.T, got, want map[string]*ehFuncRows) {
	t.Helper()
	for key := range got {
		if want[key] == nil {
			t.Errorf("function %s: readelf has none", key)
		}
	}
	for key, w := range want {
		g := got[key]
		if g == nil {
			t.Errorf("function %s is missing", key)
			continue
		}
		for _, pc := range append(slices.Clone(g.pcs), w.pcs...) {
			if !sameEHRules(g.at(pc), w.at(pc)) {
				t.Errorf("function %s at %#x: got %s, want %s", key, pc, g.at(pc), w.at(pc))
			}
		}
	}
}

// TestEHRowsReadelf compares --rows --eh with GNU readelf on the system's own
// programs, or on those of SFDUMP_PROGRAMS.
func TestEHRowsReadelf(t *testing.T) {
	files := []string{"/usr/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6"}
	if os.Getenv("SFDUMP_PROGRAMS") != "" {
		files = programs(t)
	} else if out, err := exec.Command("readelf", "--version").Output(); err != nil || !strings.HasPrefix(string(out), "GNU") {
		t.Skip("no GNU readelf on this machine")
	}
	rows := 0
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := elf.Open(file)
			if err != nil {
				t.Skip("no such file on this machine")
			}
			defer f.Close()
			want := parseReadelfEH(readelf(t, file, "-wFN"), f.Machine)
			compareEH(t, byFunc(rowsOf(t, file, "--eh"), true), byFunc(want, false))
			rows += len(want)
			t.Logf("%d rows", len(want))
		})
	}
	t.Logf("%d rows", rows)
}
