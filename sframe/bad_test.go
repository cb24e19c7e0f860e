package sframe

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// badWant is what testdata/vectors/README.md asks for each broken image: an
// error of the section, a failed look-up of the damaged function only, or any
// answer.
var badWant = map[string]string{
	"01": "section", "02": "section", "03": "section", "04": "section", "05": "section", "06": "section",
	"07": "section", "08": "section", "09": "section", "10": "section", "11": "section", "12": "section",
	"13": "section", "14": "section",
	"15": "function", "16": "function", "17": "function", "18": "function", "19": "function", "20": "function",
	"21": "function", "22": "function", "25": "function", "26": "function", "27": "function", "28": "function",
	"29": "function", "31": "function",
	"23": "any", "24": "any", "30": "any", "32": "any",
}

// badAddr is the address for which all of them were made.
const badAddr = 0x400200

func TestBadVectors(t *testing.T) {
	paths, err := filepath.Glob("testdata/vectors/bad/*.hex")
	if err != nil || len(paths) != 32 {
		t.Fatalf("got %d images (%v), want 32", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".hex")
		t.Run(name, func(t *testing.T) {
			data := readHex(t, path)
			s, err := Open(bytes.NewReader(data), badAddr, uint64(len(data)))
			var fe *FormatError
			switch want := badWant[name[:2]]; {
			case want == "section":
				if !errors.Is(err, ErrEmpty) && (!errors.As(err, &fe) || !fe.Whole) {
					t.Fatalf("got %v, want an error of the whole section", err)
				}
				return
			case err != nil && want == "any":
				return
			case err != nil:
				t.Fatalf("got %v, want damage confined to a function", err)
			case want == "function":
				testBadFunction(t, s, name)
			}
			faults := 0
			for err := range s.Check(nil) {
				if !errors.As(err, &fe) {
					t.Errorf("fault %v has no place", err)
				}
				faults++
			}
			if faults == 0 {
				t.Error("the check reports nothing")
			}
		})
	}
}

// testBadFunction: the damage is in the function at 0x401000, but for image 31,
// whose last row is cut. The rows of the other function are answered. The
// offsets are of rows that the damage touches.
func testBadFunction(t *testing.T, s *Section, name string) {
	damaged, intact := uint64(0x401000), uint64(0x40100b)
	switch name[:2] {
	case "27", "28", "29":
		intact = 0x401024
	case "31":
		damaged, intact = 0x40100b+13, 0x401000
	}
	row, err := s.Row(damaged)
	var fe *FormatError
	switch {
	case err == nil:
		t.Errorf("%#x: got row %+v, want an error", damaged, row)
	case errors.As(err, &fe) && fe.Whole:
		t.Errorf("%#x: error %v costs the section", damaged, err)
	}
	want := Row{CFA: Rule{Base: FromReg, Reg: 7, Offset: 8}, RA: Rule{Base: FromCFA, Deref: true, Offset: -8}}
	got, err := s.Row(intact)
	if err != nil || rowRules(got) != rowRules(&want) {
		t.Errorf("%#x: got %+v, %v, want CFA SP+8", intact, got, err)
	}
}

func rowRules(r *Row) rules {
	return rules{r.CFA, r.RA, r.FP, r.Outermost, r.Signal, r.Signed}
}

// TestCheckVectors: nothing is wrong with the good images, relocatable objects
// excepted: all functions of those start at the same address before they are
// linked.
func TestCheckVectors(t *testing.T) {
	for _, v := range readVectors(t) {
		t.Run(v.name, func(t *testing.T) {
			for err := range v.open(t).Check(nil) {
				if strings.HasSuffix(v.name, "-obj") && strings.Contains(err.Error(), "overlaps") {
					continue
				}
				t.Error(err)
			}
		})
	}
}
