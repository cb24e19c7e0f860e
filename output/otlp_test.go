package output

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	otlp "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/proto"
)

func testOTLP(b *bytes.Buffer) *OTLP {
	o := NewOTLP(b, OTLPOptions{Options: Options{Hz: 100, Wall: true}, Version: "v1", Resource: func(pid int, process string) []Attr {
		return []Attr{{Key: "process.pid", Number: int64(pid)}, {Key: "process.executable.name", Text: process}}
	}})
	o.Begin, o.End = time.Unix(1000, 5), time.Unix(1010, 5)
	o.Account = []Attr{{Key: "sfsample.ticks", Number: 0}}
	return o
}

// parseOTLP reads a message with the module of the protocol.
func parseOTLP(t *testing.T, b []byte) *otlp.ProfilesData {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var data otlp.ProfilesData
	if err := proto.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	if unknown := data.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		t.Errorf("fields that the protocol has not: %x", unknown)
	}
	return &data
}

// foldOTLP makes folded lines of a message's profiles of one kind, without frames of processes.
func foldOTLP(d *otlp.ProfilesData, kind string) map[string]int64 {
	lines := map[string]int64{}
	x := d.Dictionary
	for _, r := range d.ResourceProfiles {
		process := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "process.executable.name" {
				process = a.Value.GetStringValue()
			}
		}
		for _, p := range r.ScopeProfiles[0].Profiles {
			if x.StringTable[p.SampleType.TypeStrindex] != kind {
				continue
			}
			for _, s := range p.Samples {
				names := []string{string(foldSafe([]byte(process), 0))}
				locations := x.StackTable[s.StackIndex].LocationIndices
				for _, i := range slices.Backward(locations) {
					for _, l := range slices.Backward(x.LocationTable[i].Lines) {
						names = append(names, string(foldSafe([]byte(x.StringTable[x.FunctionTable[l.FunctionIndex].NameStrindex]), 0)))
					}
				}
				lines[strings.Join(names, ";")] += s.Values[0]
			}
		}
	}
	return lines
}

// TestOTLP reads a message back with the protocol's own module: its stacks and ticks are those of the folded lines, and
// its tables are as the protocol asks.
func TestOTLP(t *testing.T) {
	d := parseOTLP(t, write(t, testOTLP, testRun()))
	want := map[string]int64{}
	var cpu, wall int64
	for _, s := range testRun() {
		cpu += int64(s.CPU)
		wall += int64(s.Wall)
	}
	for line := range strings.Lines(string(write(t, func(b *bytes.Buffer) *Folded { return NewFolded(b, Options{Hz: 100, Wall: true}) }, testRun()))) {
		at := strings.LastIndexByte(line, ' ')
		var n int64
		fmt.Sscan(line[at:], &n)
		want[line[:at]] += n
	}
	if diff := cmp.Diff(want, foldOTLP(d, "samples")); diff != "" {
		t.Errorf("-folded +OTLP:\n%s", diff)
	}
	for kind, want := range map[string]int64{"cpu": cpu, "wall": wall} {
		got := int64(0)
		for n := range maps.Values(foldOTLP(d, kind)) {
			got += n
		}
		if got != want {
			t.Errorf("%s: %d in all, want %d", kind, got, want)
		}
	}
	checkDictionary(t, d)
	ids := map[string]bool{}
	for _, r := range d.ResourceProfiles {
		scope := r.ScopeProfiles[0].Scope
		if scope.Name != "sfsample" || scope.Version != "v1" || scope.Attributes[0].Key != "sfsample.ticks" {
			t.Errorf("scope %v", scope)
		}
		for _, p := range r.ScopeProfiles[0].Profiles {
			if p.TimeUnixNano != 1000*1e9+5 || p.DurationNano != 10*1e9 || p.Period != 1e7 || d.Dictionary.StringTable[p.PeriodType.TypeStrindex] != "wall" {
				t.Errorf("profile of %d for %d, period %d", p.TimeUnixNano, p.DurationNano, p.Period)
			}
			if len(p.ProfileId) != 16 || ids[string(p.ProfileId)] {
				t.Errorf("the id %x is used twice, or none", p.ProfileId)
			}
			ids[string(p.ProfileId)] = true
		}
	}
}

// checkDictionary holds the tables against what the protocol says of them.
func checkDictionary(t *testing.T, d *otlp.ProfilesData) {
	t.Helper()
	x := d.Dictionary
	if x.StringTable[0] != "" || len(x.LinkTable[0].TraceId) != 16 || len(x.LinkTable[0].SpanId) != 8 {
		t.Error("the first string or link is not the one for nothing")
	}
	for name, first := range map[string]proto.Message{"mapping": x.MappingTable[0], "location": x.LocationTable[0], "function": x.FunctionTable[0],
		"attribute": x.AttributeTable[0], "stack": x.StackTable[0]} {
		if proto.Size(first) != 0 {
			t.Errorf("the first %s is %v", name, first)
		}
	}
	used := map[string]bool{}
	use := func(table string, i int32, n int) {
		if int(i) >= n || i < 0 {
			t.Fatalf("%s %d of %d", table, i, n)
		}
		used[fmt.Sprint(table, i)] = true
	}
	attributes := func(list []int32) {
		keys := map[int32]bool{}
		for _, i := range list {
			use("attribute", i, len(x.AttributeTable))
			if k := x.AttributeTable[i].KeyStrindex; i == 0 || keys[k] {
				t.Errorf("attributes %v: %d is none, or there twice", list, i)
			} else {
				keys[k] = true
			}
		}
	}
	text := func(i int32) { use("string", i, len(x.StringTable)) }
	for _, r := range d.ResourceProfiles {
		for _, p := range r.ScopeProfiles[0].Profiles {
			text(p.SampleType.TypeStrindex)
			text(p.SampleType.UnitStrindex)
			text(p.PeriodType.TypeStrindex)
			text(p.PeriodType.UnitStrindex)
			for _, s := range p.Samples {
				use("stack", s.StackIndex, len(x.StackTable))
				attributes(s.AttributeIndices)
				if len(s.Values) != 1 {
					t.Errorf("values %v", s.Values)
				}
			}
		}
	}
	for _, s := range x.StackTable {
		for _, i := range s.LocationIndices {
			use("location", i, len(x.LocationTable))
		}
	}
	for _, l := range x.LocationTable {
		use("mapping", l.MappingIndex, len(x.MappingTable))
		attributes(l.AttributeIndices)
		for _, line := range l.Lines {
			use("function", line.FunctionIndex, len(x.FunctionTable))
		}
	}
	for _, f := range x.FunctionTable {
		text(f.NameStrindex)
		text(f.FilenameStrindex)
	}
	for _, m := range x.MappingTable {
		text(m.FilenameStrindex)
		attributes(m.AttributeIndices)
	}
	for _, a := range x.AttributeTable {
		text(a.KeyStrindex)
	}
	for table, n := range map[string]int{"stack": len(x.StackTable), "location": len(x.LocationTable), "function": len(x.FunctionTable),
		"mapping": len(x.MappingTable), "attribute": len(x.AttributeTable), "string": len(x.StringTable)} {
		for i := 1; i < n; i++ {
			if !used[fmt.Sprint(table, i)] {
				t.Errorf("%s %d is not used", table, i)
			}
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(x.StringTable)))) != len(x.StringTable) {
		t.Error("a string is there twice")
	}
}

// TestOTLPNoNames: what has a build-id goes without names, with its address.
func TestOTLPNoNames(t *testing.T) {
	d := parseOTLP(t, write(t, func(b *bytes.Buffer) *OTLP {
		o := testOTLP(b)
		o.opt.NoNames = true
		return o
	}, testRun()))
	checkDictionary(t, d)
	bare, named := 0, 0
	for _, l := range d.Dictionary.LocationTable[1:] {
		m := d.Dictionary.MappingTable[l.MappingIndex]
		id := len(m.AttributeIndices) > 0
		if id != (len(l.Lines) == 0) || l.Address == 0 && id {
			t.Errorf("location %v in %v", l, m)
		}
		if id {
			bare++
		} else {
			named++
		}
	}
	if bare == 0 || named == 0 {
		t.Errorf("%d locations without names, %d with", bare, named)
	}
}

// TestOTLPRejected reads answers as the protocol has them, and others.
func TestOTLPRejected(t *testing.T) {
	partial := binary.AppendUvarint([]byte{1 << 3}, 7)
	partial = append(partial, 2<<3|2, 3, 'b', 'a', 'd')
	answer := append([]byte{1<<3 | 2, byte(len(partial))}, partial...)
	if n, why, err := OTLPRejected(answer); n != 7 || why != "bad" || err != nil {
		t.Errorf("%d, %q, %v", n, why, err)
	}
	unknown := append([]byte{9<<3 | 1, 0, 1, 2, 3, 4, 5, 6, 7, 10<<3 | 5, 0, 1, 2, 3}, answer...) // a double and a float
	if n, why, err := OTLPRejected(unknown); n != 7 || why != "bad" || err != nil {
		t.Errorf("after fields that are not known: %d, %q, %v", n, why, err)
	}
	if n, why, err := OTLPRejected(nil); n != 0 || why != "" || err != nil {
		t.Errorf("empty: %d, %q, %v", n, why, err)
	}
	for i := 1; i < len(answer); i++ {
		if _, _, err := OTLPRejected(answer[:i]); err == nil {
			t.Errorf("the first %d bytes of %d are an answer", i, len(answer))
		}
	}
	for _, text := range []string{"<html>", "ok\n", "{}"} {
		if _, _, err := OTLPRejected([]byte(text)); err == nil {
			t.Errorf("%q is an answer", text)
		}
	}
}
