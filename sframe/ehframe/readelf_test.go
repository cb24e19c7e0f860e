package ehframe_test

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// wideEnv names a folder: every ELF file below it is compared with readelf. For
// runs over whole distributions, of any of the architectures.
const wideEnv = "SFSAMPLE_EHFRAME_FILES"

// systemFiles are compared when they exist; the first two are nearly always there.
var systemFiles = []string{
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
	"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	"/lib/aarch64-linux-gnu/libc.so.6",
	"/lib/s390x-linux-gnu/libc.so.6",
	"/lib64/libc.so.6",
	"/bin/bash",
	"/usr/bin/perl",
}

// TestAgainstReadelf holds every row of every function against what GNU readelf
// makes of the same file: the interpreted rows (-wF) for values, the raw
// instructions (-wf) for what the former does not show: expressions, undefined
// against unset, and signed return addresses.
func TestAgainstReadelf(t *testing.T) {
	needReadelf(t)
	var files []string
	if dir := os.Getenv(wideEnv); dir != "" {
		files = elfFiles(t, dir)
	} else {
		for _, name := range systemFiles {
			if _, err := os.Stat(name); err == nil {
				files = append(files, name)
			}
		}
	}
	if len(files) == 0 {
		t.Skip("no system libraries on this machine")
	}
	var sum tally
	for _, name := range files {
		t.Run(strings.TrimPrefix(name, "/"), func(t *testing.T) {
			got := compareFile(t, name)
			got.add(compareDebugFrame(t, name))
			if got == (tally{}) {
				t.Skip("file has no frame information for us")
			}
			sum.add(got)
			t.Logf("%d functions, %d rows, %d expressions", got.funcs, got.rows, got.exprs)
		})
	}
	t.Logf("sum: %d functions, %d rows, %d expressions, %d differences", sum.funcs, sum.rows, sum.exprs, sum.diffs)
}

// TestFixtures compares the files of testdata/cfi, whose sources have every call
// frame instruction, for each architecture and byte order. It needs no readelf:
// build.sh kept what it said.
func TestFixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/cfi/*.elf")
	if err != nil || len(files) < 5 {
		t.Fatalf("fixtures are missing: %q, %v", files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".elf"), func(t *testing.T) {
			got := compareFile(t, name)
			got.add(compareDebugFrame(t, name))
			if got.funcs == 0 {
				t.Error("no function compared")
			}
		})
	}
}

func needReadelf(t *testing.T) {
	t.Helper()
	out, err := exec.Command("readelf", "--version").Output()
	if err != nil {
		t.Skip("no readelf on this machine")
	}
	if !strings.HasPrefix(string(out), "GNU") {
		t.Skip("readelf on this machine is not GNU's")
	}
}

// TestVDSO compares the vDSO, which only memory has: its rows lead out of system
// calls and signal handlers.
func TestVDSO(t *testing.T) {
	needReadelf(t)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("no /proc on this machine")
	}
	m := regexp.MustCompile(`(?m)^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$`).FindStringSubmatch(string(maps))
	if m == nil {
		t.Skip("no vDSO in this process")
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	img := make([]byte, hex(m[2])-hex(m[1]))
	if _, err := mem.ReadAt(img, int64(hex(m[1]))); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "vdso")
	if err := os.WriteFile(name, img, 0o600); err != nil {
		t.Fatal(err)
	}
	got := compareFile(t, name)
	if got.funcs == 0 {
		t.Skip("vDSO of this kernel has no .eh_frame")
	}
	t.Logf("%d functions, %d rows, %d expressions", got.funcs, got.rows, got.exprs)
}

// elfFiles returns the ELF files below dir, links left out.
func elfFiles(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if f, err := elf.Open(path); err == nil {
			f.Close()
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

type tally struct{ funcs, rows, exprs, diffs int }

func (a *tally) add(b tally) {
	a.funcs += b.funcs
	a.rows += b.rows
	a.exprs += b.exprs
	a.diffs += b.diffs
}

// compareFile compares the .eh_frame of one file, if it has one.
func compareFile(t *testing.T, name string) tally {
	f := openELF(t, name)
	if s := f.Section(".eh_frame"); s == nil || s.Type == elf.SHT_NOBITS || s.Size == 0 || f.Type == elf.ET_REL {
		return tally{}
	}
	tab, err := ehframe.OpenELF(f)
	if err != nil {
		t.Fatal(err)
	}
	return compareTable(t, name, ".eh_frame", f, tab)
}

// compareDebugFrame does the same for .debug_frame.
func compareDebugFrame(t *testing.T, name string) tally {
	f := openELF(t, name)
	if s := f.Section(".debug_frame"); s == nil || s.Type == elf.SHT_NOBITS || s.Size == 0 || f.Type == elf.ET_REL {
		return tally{}
	}
	tab, err := ehframe.OpenDebugFrame(f)
	if err != nil {
		t.Fatal(err)
	}
	return compareTable(t, name, ".debug_frame", f, tab)
}

func openELF(t *testing.T, name string) *elf.File {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := regs.ByELF(f.Machine, f.Class, f.Data); err != nil {
		t.Skip(err)
	}
	return f
}

func compareTable(t *testing.T, name, section string, f *elf.File, tab *ehframe.Table) tally {
	arch, err := regs.ByELF(f.Machine, f.Class, f.Data)
	if err != nil {
		t.Fatal(err)
	}
	c := comparer{t: t, arch: arch, tab: tab, ours: make(map[uint64]ehframe.Func),
		texts: make(map[uint64]map[string]bool)}
	for fn, err := range tab.Funcs() {
		if err != nil {
			c.diff("function at section offset %#x: %v", fn.SecOff, err)
		}
		c.ours[fn.SecOff] = fn
	}
	rows, insns := readelf(t, name)
	c.interpreted(sectionLines(rows, section))
	c.raw(sectionLines(insns, section))
	if len(c.ours) != c.funcs {
		c.diff("%d functions, readelf has %d", len(c.ours), c.funcs)
	}
	return c.tally
}

// readelf returns what GNU readelf prints of a file: interpreted rows and raw
// instructions. Beside a fixture lies its output; for other files it is run, with
// N, so that it leaves separate debug files alone.
func readelf(t *testing.T, name string) (rows, insns []byte) {
	t.Helper()
	if base, ok := strings.CutSuffix(name, ".elf"); ok {
		return readFile(t, base+".rows"), readFile(t, base+".insns")
	}
	run := func(flag string) []byte {
		cmd := exec.Command("readelf", flag, name)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		// Its status is not looked at: readelf 2.40 warns of section flags that
		// newer tools set. Missing functions show as differences.
		out, _ := cmd.Output()
		return out
	}
	return run("-wFN"), run("-wfN")
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sectionLines returns the lines that are about one section.
func sectionLines(out []byte, section string) []string {
	var lines []string
	inside := false
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "Contents of the ") {
			inside = strings.HasPrefix(line, "Contents of the "+section+" section")
		} else if inside {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

type comparer struct {
	tally
	t    *testing.T
	arch *regs.Arch
	tab  *ehframe.Table
	ours map[uint64]ehframe.Func // by section offset
	// texts are the expressions of each function, as instruction and operations.
	texts map[uint64]map[string]bool
}

// maxDiffs is how many differences of one file are shown.
const maxDiffs = 20

func (c *comparer) diff(format string, args ...any) {
	c.diffs++
	if c.diffs <= maxDiffs {
		c.t.Errorf(format, args...)
	}
}

// fdeLine is "offset length id FDE cie=offset pc=start..end".
var fdeLine = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)`)

// raField is at the end of a CIE line of -wF.
var raField = regexp.MustCompile(`\bra=(\d+)`)

// cieLine is "offset length id CIE ...".
var cieLine = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE`)

// inRegister is how readelf shows that a value is in another register.
var inRegister = regexp.MustCompile(`\br\d+ \((\S+)\)`)

type theirRow struct {
	cfa  string
	ra   string // return address column of the CIE
	cols map[string]string
}

// interpreted compares the rows of readelf -wF. An FDE that only has its CIE's
// row comes without a table.
func (c *comparer) interpreted(lines []string) {
	initial := make(map[string]theirRow) // by the CIE's offset
	columns := make(map[string]string)   // by the CIE's offset
	column := ""
	var cie string
	var fn ehframe.Func
	var head []string
	rows := make(map[uint64]theirRow)
	flush := func() {
		for _, at := range slices.Sorted(maps.Keys(rows)) {
			c.row(fn, at, rows[at])
		}
		clear(rows)
	}
	for _, line := range lines {
		if m := cieLine.FindStringSubmatch(line); m != nil {
			flush()
			cie, fn, head = m[1], ehframe.Func{}, nil
			if ra := raField.FindStringSubmatch(line); ra != nil {
				columns[cie], column = ra[1], ra[1]
			}
			continue
		}
		if m := fdeLine.FindStringSubmatch(line); m != nil {
			flush()
			c.funcs++
			off, start, end := hex(m[1]), hex(m[3]), hex(m[4])
			var ok bool
			if fn, ok = c.ours[off]; !ok || fn.Start != start || fn.End != end {
				c.diff("FDE at %#x: got %#x-%#x, readelf %#x-%#x", off, fn.Start, fn.End, start, end)
			}
			cie, head, column = "", nil, columns[m[2]]
			if row, ok := initial[m[2]]; ok && start < end {
				rows[start] = row
			}
			continue
		}
		words := strings.Fields(inRegister.ReplaceAllString(line, "$1"))
		switch {
		case len(words) == 0, strings.HasSuffix(line, "ZERO terminator"):
		case words[0] == "LOC":
			head = words[2:]
		case head != nil && len(words) == len(head)+2:
			row := theirRow{words[1], column, make(map[string]string)}
			for i, name := range head {
				row.cols[name] = words[i+2]
			}
			if cie != "" {
				initial[cie] = row
			} else if at := hex(words[0]); at < fn.End {
				rows[at] = row // of several at one address the last one counts
			}
		default:
			c.diff("line of readelf not understood: %q", line)
		}
	}
	flush()
}

// row compares one row.
func (c *comparer) row(fn ehframe.Func, at uint64, want theirRow) {
	c.rows++
	i, found := slices.BinarySearchFunc(fn.Entries, at, func(e sframe.Entry, at uint64) int {
		if e.End <= at {
			return -1
		}
		if e.Start > at {
			return 1
		}
		return 0
	})
	if !found {
		c.diff("%#x: no row, readelf has one", at)
		return
	}
	row := &fn.Entries[i].Row
	if got := c.cfa(row); got != want.cfa {
		c.diff("%#x: CFA %s, readelf %s", at, got, want.cfa)
	} else if got == "exp" {
		c.addExpr(fn, "def_cfa_expression", row, row.CFA)
	}
	for name, text := range want.cols {
		if c.foreign(name) {
			continue
		}
		if name == "ra" && text == "u" && row.RA == c.ownColumn(want.ra) {
			continue // not saved: still in the register of that number
		}
		rule := c.ruleOf(row, name)
		got := c.column(rule, text)
		if _, known := c.number(text); got == "u" && !known && slices.Contains(foreignNames, text) {
			continue // in a register that a register set does not hold: lost
		}
		if got != text {
			c.diff("%#x: %s %s, readelf %s", at, name, got, text)
		}
		switch text {
		case "exp":
			c.addExpr(fn, "expression", row, rule)
		case "vexp":
			c.addExpr(fn, "val_expression", row, rule)
		}
	}
	for _, s := range row.Saved {
		if _, ok := want.cols[c.name(s.Reg)]; !ok {
			c.diff("%#x: rule of %s, readelf has none", at, c.name(s.Reg))
		}
	}
}

// ownColumn is the rule of a return address that is still in the register of the
// CIE's column, where that is not the usual one: s390x's _mcount returns by r0.
func (c *comparer) ownColumn(column string) sframe.Rule {
	n, err := strconv.ParseUint(column, 10, 8)
	if err != nil || uint8(n) == c.arch.RA {
		return sframe.Rule{}
	}
	return sframe.Rule{Base: sframe.FromReg, Reg: uint8(n)}
}

// foreign: registers that a register set does not hold.
func (c *comparer) foreign(name string) bool {
	if name == "ra" {
		return false
	}
	_, ok := c.number(name)
	return !ok
}

// name is readelf's name of register n.
func (c *comparer) name(n uint8) string { return c.arch.RegName(n) }

func (c *comparer) number(name string) (uint8, bool) {
	limit := uint8(regs.NumRegs)
	switch c.arch {
	case regs.AMD64:
		limit = 16
	case regs.I386:
		limit = 8
	}
	for n := range limit {
		if c.name(n) == name {
			return n, true
		}
	}
	return 0, false
}

func (c *comparer) cfa(row *sframe.Row) string {
	switch r := row.CFA; {
	case r.Base == sframe.FromReg && !r.Deref:
		return fmt.Sprintf("%s%+d", c.name(r.Reg), r.Offset)
	case r.Base == sframe.FromReg || r.Base == sframe.FromExpr:
		return "exp"
	default:
		return fmt.Sprintf("%+v", r)
	}
}

// foreignNames are registers of the fixtures in which a value is lost.
var foreignNames = []string{"xmm1"}

// ruleOf returns our rule for a column of readelf.
func (c *comparer) ruleOf(row *sframe.Row, name string) sframe.Rule {
	n, _ := c.number(name)
	i := slices.IndexFunc(row.Saved, func(s sframe.SavedRule) bool { return s.Reg == n })
	switch {
	case name == "ra" && row.Outermost:
	case name == "ra":
		return row.RA
	case n == c.arch.FP:
		return row.FP
	case i >= 0:
		return row.Saved[i].Rule
	case row.Keep&(1<<n) != 0:
		return sframe.Rule{Base: sframe.Same}
	}
	return sframe.Rule{Base: sframe.Undefined}
}

// column renders a rule as readelf would. want chooses between renderings that
// mean the same: readelf says "u" for a register that has no rule as well as for
// one that is undefined (raw tells them apart for the return address).
func (c *comparer) column(rule sframe.Rule, want string) string {
	switch {
	case rule.Base == sframe.Same && want != "u":
		return "s"
	case rule.Base == sframe.Same || rule.Base == sframe.Undefined:
		return "u"
	case rule.Deref && rule.Base != sframe.FromCFA && want == "exp":
		return "exp"
	case rule.Base != sframe.FromCFA && want == "vexp":
		return "vexp"
	case rule.Base == sframe.FromCFA && rule.Deref:
		return fmt.Sprintf("c%+d", rule.Offset)
	case rule.Base == sframe.FromCFA:
		return fmt.Sprintf("v%+d", rule.Offset)
	case rule.Base == sframe.FromReg && !rule.Deref && rule.Offset == 0:
		return c.name(rule.Reg)
	}
	return fmt.Sprintf("%+v", rule)
}

// addExpr notes readelf's text of the expression that rule came from, for the
// comparison with the raw instructions.
func (c *comparer) addExpr(fn ehframe.Func, kind string, row *sframe.Row, rule sframe.Rule) {
	text := fmt.Sprintf("DW_OP_breg%d (%s): %d", rule.Reg, c.name(rule.Reg), rule.Offset)
	switch {
	case rule.Base == sframe.FromExpr:
		text = c.disassemble(row.Exprs[rule.Offset])
		if rule.Deref != (kind == "expression") {
			text += " of the wrong kind"
		}
	case rule.Deref && kind != "expression":
		text += "; DW_OP_deref"
	}
	if c.texts[fn.SecOff] == nil {
		c.texts[fn.SecOff] = make(map[string]bool)
	}
	c.texts[fn.SecOff][kind+" "+text] = true
}

// raw compares what only the instructions show, function by function: the
// expressions, whether the return address is ever undefined, and how often its
// signing changes.
func (c *comparer) raw(lines []string) {
	var fn *ehframe.Func
	var cie string
	var want facts
	ofCIE := make(map[string]facts)
	flush := func() {
		if fn != nil {
			c.facts(*fn, want)
		} else if cie != "" {
			ofCIE[cie] = want
		}
	}
	for _, line := range lines {
		if m := cieLine.FindStringSubmatch(line); m != nil {
			flush()
			fn, cie, want = nil, m[1], newFacts()
			continue
		}
		if m := fdeLine.FindStringSubmatch(line); m != nil {
			flush()
			f := c.ours[hex(m[1])]
			fn, want = &f, ofCIE[m[2]].clone()
			want.loc, want.end = hex(m[3]), hex(m[4])
			continue
		}
		want.line(line)
	}
	flush()
}

// facts are what raw compares.
type facts struct {
	exprs     map[string]bool
	outermost bool
	signed    bool
	signal    bool
	lost      map[string]bool // callee-saved registers whose value is lost somewhere
	column    string
	loc, end  uint64
}

func newFacts() facts {
	return facts{exprs: make(map[string]bool), lost: make(map[string]bool), end: 1}
}

func (f facts) clone() facts {
	f.exprs, f.lost = maps.Clone(f.exprs), maps.Clone(f.lost)
	return f
}

var (
	exprLine      = regexp.MustCompile(`DW_CFA_(def_cfa_expression|expression|val_expression)(?:: r\d+)?(?: \(\w+\))? \((DW_OP.*)\)$`)
	undefinedLine = regexp.MustCompile(`DW_CFA_undefined: r(\d+)`)
	registerLine  = regexp.MustCompile(`DW_CFA_register: r(\d+).* in r\d+ \((\w+)\)`)
	columnLine    = regexp.MustCompile(`Return address column: (\d+)`)
	advanceLine   = regexp.MustCompile(`DW_CFA_(?:advance_loc|set_loc).* to ([0-9a-f]+)`)
	augLine       = regexp.MustCompile(`Augmentation: +"(.*)"`)
)

func (f *facts) line(line string) {
	if m := columnLine.FindStringSubmatch(line); m != nil {
		f.column = m[1]
	}
	if m := advanceLine.FindStringSubmatch(line); m != nil {
		f.loc = hex(m[1])
	}
	// Linkers end a PLT's instructions with a rule that begins where the PLT of
	// some small libraries ends; it covers nothing.
	if f.loc >= f.end {
		return
	}
	if m := exprLine.FindStringSubmatch(line); m != nil {
		f.exprs[m[1]+" "+m[2]] = true
	}
	if m := undefinedLine.FindStringSubmatch(line); m != nil && m[1] == f.column {
		f.outermost = true
	} else if m != nil {
		f.lost[m[1]] = true
	}
	if m := registerLine.FindStringSubmatch(line); m != nil && slices.Contains(foreignNames, m[2]) {
		f.lost[m[1]] = true
	}
	if strings.Contains(line, "negate_ra_state") || strings.Contains(line, "DW_CFA_GNU_window_save") {
		f.signed = true
	}
	if m := augLine.FindStringSubmatch(line); m != nil {
		f.signal = strings.Contains(m[1], "S")
	}
}

func (c *comparer) facts(fn ehframe.Func, want facts) {
	got := facts{exprs: c.texts[fn.SecOff], signal: fn.Signal, lost: make(map[string]bool)}
	for _, e := range fn.Entries {
		got.outermost = got.outermost || e.Row.Outermost
		got.signed = got.signed || e.Row.Signed
		c.lost(&e.Row, got.lost)
	}
	if len(fn.Entries) == 0 {
		return
	}
	for text := range got.exprs {
		c.exprs++
		if !want.exprs[text] {
			c.diff("%#x: expression %q is not readelf's: %q", fn.Start, text, slices.Collect(maps.Keys(want.exprs)))
		}
	}
	if len(got.exprs) != len(want.exprs) {
		c.diff("%#x: %d expressions, readelf has %d", fn.Start, len(got.exprs), len(want.exprs))
	}
	// Registers that a call may change have no value unless a rule gives one.
	maps.DeleteFunc(want.lost, func(n string, _ bool) bool {
		i, err := strconv.ParseUint(n, 10, 8)
		return err != nil || i >= regs.NumRegs || c.arch.CalleeSaved&(1<<i) == 0
	})
	if !maps.Equal(got.lost, want.lost) {
		c.diff("%#x: registers %v are lost, readelf %v", fn.Start, got.lost, want.lost)
	}
	if got.outermost != want.outermost || got.signed != want.signed || got.signal != want.signal {
		c.diff("%#x: outermost %t signed %t signal %t, readelf %t %t %t", fn.Start,
			got.outermost, got.signed, got.signal, want.outermost, want.signed, want.signal)
	}
}

// lost adds the numbers of callee-saved registers that a row has no value for.
func (c *comparer) lost(row *sframe.Row, into map[string]bool) {
	have := row.Keep
	if row.FP.Base != sframe.Undefined {
		have |= 1 << c.arch.FP
	}
	for _, s := range row.Saved {
		have |= 1 << s.Reg
	}
	for n := range regs.NumRegs {
		if c.arch.CalleeSaved&^have&(1<<n) != 0 {
			into[strconv.Itoa(n)] = true
		}
	}
}

// disassemble knows the operations that occur in distribution programs.
func (c *comparer) disassemble(e []byte) string {
	var out []string
	for len(e) > 0 {
		op := e[0]
		e = e[1:]
		switch {
		case op >= 0x30 && op < 0x50:
			out = append(out, fmt.Sprintf("DW_OP_lit%d", op-0x30))
		case op >= 0x70 && op < 0x90:
			v, n := sleb(e)
			e = e[n:]
			name := c.name(op - 0x70)
			if c.arch == regs.AMD64 && op == 0x80 {
				name = "rip"
			} else if c.arch == regs.I386 && op == 0x78 {
				name = "eip"
			}
			out = append(out, fmt.Sprintf("DW_OP_breg%d (%s): %d", op-0x70, name, v))
		case op == 0x08:
			out = append(out, fmt.Sprintf("DW_OP_const1u: %d", e[0]))
			e = e[1:]
		case op == 0x23:
			v, n := binary.Uvarint(e)
			out = append(out, fmt.Sprintf("DW_OP_plus_uconst: %d", v))
			e = e[max(n, 1):]
		default:
			names := map[byte]string{0x06: "DW_OP_deref", 0x1a: "DW_OP_and", 0x1c: "DW_OP_minus",
				0x22: "DW_OP_plus", 0x24: "DW_OP_shl", 0x2a: "DW_OP_ge", 0x1e: "DW_OP_mul",
				0x12: "DW_OP_dup", 0x16: "DW_OP_swap", 0x21: "DW_OP_or", 0x96: "DW_OP_nop"}
			name, ok := names[op]
			if !ok {
				name = fmt.Sprintf("unknown %#x", op)
			}
			out = append(out, name)
		}
	}
	return strings.Join(out, "; ")
}

// sleb is written apart from the decoder's.
func sleb(b []byte) (v int64, n int) {
	for n < len(b) {
		v |= int64(b[n]&0x7f) << (7 * n)
		n++
		if b[n-1]&0x80 == 0 {
			break
		}
	}
	shift := 64 - 7*n
	return v << shift >> shift, n
}

func hex(s string) uint64 {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		panic(errors.New("regular expression let through " + s))
	}
	return v
}
