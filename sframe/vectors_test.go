package sframe

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// vector is one golden image of testdata/vectors: bytes, address, and the decode
// and look-ups that an independent decoder found (README there).
type vector struct {
	name    string
	data    []byte
	addr    uint64
	header  map[string]int64
	funcs   []vectorFunc
	lookups [][2]string // address, answer
}

type vectorFunc struct {
	line string
	rows []string
}

func readHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return data
}

func readVectors(t testing.TB) []vector {
	t.Helper()
	paths, err := filepath.Glob("testdata/vectors/[0-9]*.hex")
	if err != nil || len(paths) != 34 {
		t.Fatalf("got %d vectors (%v), want 34", len(paths), err)
	}
	var all []vector
	for _, path := range paths {
		all = append(all, readVector(t, strings.TrimSuffix(path, ".hex")))
	}
	return all
}

var sectionLine = regexp.MustCompile(`va=0x([0-9a-f]+) size=(\d+)`)

func readVector(t testing.TB, base string) vector {
	t.Helper()
	v := vector{name: filepath.Base(base), data: readHex(t, base+".hex"), header: map[string]int64{}}
	text, err := os.ReadFile(base + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	part := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "["):
			part = line
		case strings.HasPrefix(line, "section: "):
			m := sectionLine.FindStringSubmatch(line)
			v.addr, _ = strconv.ParseUint(m[1], 16, 64)
			if m[2] != strconv.Itoa(len(v.data)) {
				t.Fatalf("%s: %d bytes, text says %s", v.name, len(v.data), m[2])
			}
		case part == "[rows]" && strings.HasPrefix(line, "magic="):
			for _, field := range strings.Fields(line) {
				key, value, _ := strings.Cut(field, "=")
				v.header[key], _ = strconv.ParseInt(value, 0, 64)
			}
		case part == "[rows]" && strings.HasPrefix(line, "fde["):
			v.funcs = append(v.funcs, vectorFunc{line: line})
		case part == "[rows]" && strings.HasPrefix(line, "  +"):
			f := &v.funcs[len(v.funcs)-1]
			row, _, _ := strings.Cut(line, " ; ")
			f.rows = append(f.rows, strings.TrimSpace(row))
		case part == "[lookups]" && line != "":
			pc, answer, ok := strings.Cut(line, " -> ")
			if !ok {
				t.Fatalf("%s: unexpected line %q", v.name, line)
			}
			v.lookups = append(v.lookups, [2]string{pc, answer})
		}
	}
	return v
}

func (v *vector) open(t testing.TB) *Section {
	t.Helper()
	s, err := Open(bytes.NewReader(v.data), v.addr, uint64(len(v.data)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// vectorRow spells a row as the vectors do. They name SP and FP in default rows
// only, and a register without an offset only in V2 of s390x.
func vectorRow(f *Func, row *Row) string {
	if row.Outermost {
		return "RA=undef"
	}
	text := fmt.Sprintf("CFA=%s RA=%s FP=%s", vectorRule(f, row.CFA), vectorRule(f, row.RA), vectorRule(f, row.FP))
	if row.Signed {
		text += " mangled"
	}
	return text
}

func vectorRule(f *Func, r Rule) string {
	sp, fp := f.img.header.ABI.Registers()
	var text string
	switch {
	case r.Base == Same:
		return "same"
	case r.Base == FromCFA:
		text = "cfa"
	case !f.Flexible && r.Reg == sp:
		text = "sp"
	case !f.Flexible && r.Reg == fp:
		text = "fp"
	default:
		text = fmt.Sprintf("r%d", r.Reg)
		if !f.Flexible {
			return text
		}
	}
	text += fmt.Sprintf("%+d", r.Offset)
	if r.Deref {
		return "*(" + text + ")"
	}
	return text
}

func vectorFuncLine(i int, f *Func) string {
	word := func(cond bool, yes, no string) string {
		if cond {
			return yes
		}
		return no
	}
	return fmt.Sprintf("fde[%d] start=%#x size=%d nfres=%d fretype=ADDR%d pctype=%s rep=%d type=%s key=%s signal=%s",
		i, f.Start, f.Size, f.NumRows, f.width, word(f.Mask, "MASK", "INC"), f.attr.rep,
		word(f.Flexible, "FLEX", "DEFAULT"), word(f.KeyB, "B", "A"), word(f.Signal, "1", "0"))
}

func TestVectorHeaders(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.open(t)
			h := s.Header()
			got := map[string]int64{
				"version": int64(s.Version()), "flags": int64(h.Flags), "abi": int64(s.ABI()), "fixed_fp": int64(h.FixedFP),
				"fixed_ra": int64(h.FixedRA), "auxlen": int64(h.AuxLen), "num_fdes": int64(h.NumFDEs), "num_fres": int64(h.NumFREs),
				"fre_len": int64(h.FRELen), "fdeoff": int64(h.FDEOff), "freoff": int64(h.FREOff),
			}
			for key, n := range got {
				if want, ok := v.header[key]; !ok || n != want {
					t.Errorf("%s: got %d, want %d", key, n, want)
				}
			}
		})
	}
}

func TestVectorRows(t *testing.T) {
	funcs, rows := 0, 0
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.open(t)
			i := 0
			for f, err := range s.Funcs() {
				if err != nil {
					t.Fatal(err)
				}
				if f.Image > 0 {
					break // the text has the first table only
				}
				if i == len(v.funcs) {
					t.Fatalf("more than %d functions", i)
				}
				if got := vectorFuncLine(i, &f); !strings.HasPrefix(v.funcs[i].line, got+" ") {
					t.Errorf("got  %s\nwant %s", got, v.funcs[i].line)
				}
				var got []string
				for r, err := range s.Rows(&f) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("+%#x %s", r.Off, vectorRow(&f, &r.Row)))
				}
				if want := v.funcs[i].rows; strings.Join(got, "\n") != strings.Join(want, "\n") {
					t.Errorf("fde[%d]:\ngot  %q\nwant %q", i, got, want)
				}
				funcs++
				rows += len(got)
				i++
			}
			if i != len(v.funcs) {
				t.Errorf("got %d functions, want %d", i, len(v.funcs))
			}
		})
	}
	t.Logf("%d functions, %d rows", funcs, rows)
}

func TestVectorLookups(t *testing.T) {
	lookups := 0
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			s := v.open(t)
			for _, l := range v.lookups {
				pc, err := strconv.ParseUint(l[0], 0, 64)
				if err != nil {
					t.Fatal(err)
				}
				if got := lookupText(s, pc); got != l[1] {
					t.Errorf("%#x: got %s, want %s", pc, got, l[1])
				}
				cold, coldErr := s.Find(pc)
				for range 2 { // the second time out of the cache
					row, err := s.Row(pc)
					if (err == nil) != (coldErr == nil) || err == nil && fmt.Sprint(*row) != fmt.Sprint(cold.Row) {
						t.Errorf("%#x: Row gives %v, %v; Find %v, %v", pc, row, err, cold.Row, coldErr)
					}
				}
				lookups++
			}
		})
	}
	t.Logf("%d look-ups", lookups)
}

// lookupText spells the answer for pc as the vectors do: number of the function
// in the table, number of the row, rules.
func lookupText(s *Section, pc uint64) string {
	e, err := s.Find(pc)
	if errors.Is(err, ErrNoRow) {
		return "miss"
	}
	if err != nil {
		return err.Error()
	}
	if pc < e.Start || pc >= e.End || e.Start < e.FuncStart || e.End > e.FuncEnd {
		return fmt.Sprintf("row %#x-%#x of function %#x-%#x does not cover the address", e.Start, e.End, e.FuncStart, e.FuncEnd)
	}
	f, err := s.Func(pc)
	if err != nil {
		return err.Error()
	}
	if f.Image > 0 {
		return "miss" // the vectors know the first table only
	}
	i := (f.SecOff - f.img.fdes) / entryBytes[f.img.header.Version]
	if f.NumRows == 0 {
		if e.Row.Outermost == f.Signal || e.Row.Signal != f.Signal || (e.Row.CFA.Base == Undefined) != f.Signal {
			return fmt.Sprintf("function without rows, signal %v, gives %+v", f.Signal, e.Row)
		}
		return fmt.Sprintf("fde[%d] no FREs", i)
	}
	// The last row that starts where the answer does.
	off := uint32(e.Start - f.Start)
	if f.Mask {
		off %= f.Block
	}
	n, at := 0, -1
	for r := range s.Rows(&f) {
		if r.Off == off {
			at = n
		}
		n++
	}
	return fmt.Sprintf("fde[%d].fre[%d] %s", i, at, vectorRow(&f, &e.Row))
}

// TestVectorConcatenated: the second table of a section that LLD has joined.
// Its rows are not in the vector's text, but follow from src/amd64-plt2.s:
// sub $8,%rsp (4 bytes), two calls, add $8,%rsp, ret at 18.
func TestVectorConcatenated(t *testing.T) {
	v := readVector(t, "testdata/vectors/48-v3-amd64-lld-concat")
	s := v.open(t)
	images, err := s.Images()
	if err != nil || len(images) != 2 || images[1].SecOff != 96 {
		t.Fatalf("got %v, %v, want two images, the second at 96", images, err)
	}
	const h = 0x1475 // behind the functions of the first table
	for pc := uint64(h); pc < h+19; pc++ {
		want := Rule{Base: FromReg, Reg: 7, Offset: 8}
		if pc >= h+4 && pc < h+18 {
			want.Offset = 16
		}
		if row, err := s.Row(pc); err != nil || row.CFA != want {
			t.Errorf("%#x: got %v, %v, want CFA %v", pc, row, err, want)
		}
	}
	if _, err := s.Row(h + 19); !errors.Is(err, ErrNoRow) {
		t.Errorf("behind the function: got %v, want ErrNoRow", err)
	}
}
