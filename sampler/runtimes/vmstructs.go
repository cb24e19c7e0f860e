package runtimes

import (
	"bytes"
	"fmt"
	"io"
)

// vmStructs is what HotSpot tells the serviceability agent of its own data (src/hotspot/share/runtime/vmStructs.hpp): where fields are, and
// how large types. What a version lacks is not there.
type vmStructs struct {
	mem     io.ReaderAt
	fields  map[string]vmField // by Type::field
	sizes   map[string]uint64  // by type
	numbers map[string]uint32  // constants
	pages   map[uint64][]byte  // of strings
	missing string             // the first that was asked for and is not there
}

type vmField struct {
	static bool
	typ    string // of C++
	at     uint64 // offset in the type, or address of a static one
}

// Bounds of the tables. Those of 17 to 25 have up to 813 entries of up to 48 bytes.
const (
	maxVMEntries = 8192
	maxVMStride  = 256
	maxVMName    = 256
	maxVMPages   = 1024 // of strings
	vmPage       = 4 << 10
)

// readVMStructs reads the tables by the symbols of libjvm.
func readVMStructs(mem io.ReaderAt, syms map[string]uint64) (*vmStructs, error) {
	v := &vmStructs{mem: mem, fields: map[string]vmField{}, sizes: map[string]uint64{}, numbers: map[string]uint32{}, pages: map[uint64][]byte{}}
	var err error
	value := func(name string) uint64 {
		b := read(mem, syms[name], 8)
		if b == nil && err == nil {
			err = fmt.Errorf("this HotSpot does not tell %s", name)
		}
		if b == nil {
			return 0
		}
		return word(b, 0)
	}
	// table calls entry for each until that says no.
	table := func(what, array string, fields []string, entry func(e []byte, at []uint64) bool) {
		addr, stride := value(array), value(what+"ArrayStride")
		at := make([]uint64, len(fields))
		for i, f := range fields {
			if at[i] = value(what + f + "Offset"); (stride < 8 || at[i] > stride-8) && err == nil {
				err = fmt.Errorf("this HotSpot has %s%s outside its entries", what, f)
			}
		}
		if err != nil || addr == 0 || stride == 0 || stride > maxVMStride {
			return
		}
		const some = 64
		for n := 0; n < maxVMEntries; n += some {
			size := int(stride) * some
			b := read(mem, addr, size)
			for one := 0; b == nil && one < some; one++ { // the end of what is mapped may be near
				if e := read(mem, addr+uint64(one)*stride, int(stride)); e == nil || !entry(e, at) {
					return
				}
			}
			for one := 0; b != nil && one < some; one++ {
				if !entry(b[one*int(stride):][:stride], at) {
					return
				}
			}
			addr += uint64(size)
		}
	}
	table("gHotSpotVMStructEntry", "gHotSpotVMStructs", []string{"TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"}, func(e []byte, at []uint64) bool {
		name, field := v.text(word(e, int(at[0]))), v.text(word(e, int(at[1])))
		if name == "" || field == "" {
			return false
		}
		f := vmField{typ: v.text(word(e, int(at[2]))), static: word32(e, int(at[3])) != 0, at: word(e, int(at[4]))}
		if f.static {
			f.at = word(e, int(at[5]))
		}
		v.fields[name+"::"+field] = f
		return true
	})
	table("gHotSpotVMTypeEntry", "gHotSpotVMTypes", []string{"TypeName", "Size"}, func(e []byte, at []uint64) bool {
		name := v.text(word(e, int(at[0])))
		if name == "" {
			return false
		}
		v.sizes[name] = word(e, int(at[1]))
		return true
	})
	table("gHotSpotVMIntConstantEntry", "gHotSpotVMIntConstants", []string{"Name", "Value"}, func(e []byte, at []uint64) bool {
		name := v.text(word(e, int(at[0])))
		if name == "" {
			return false
		}
		v.numbers[name] = word32(e, int(at[1]))
		return true
	})
	v.pages = nil
	return v, err
}

// text is a string of C, empty if it cannot be read.
func (v *vmStructs) text(addr uint64) string {
	var s []byte
	for len(s) < maxVMName && addr != 0 && addr < 1<<62 {
		page := addr &^ (vmPage - 1)
		b, ok := v.pages[page]
		if !ok {
			if len(v.pages) >= maxVMPages {
				return ""
			}
			b = read(v.mem, page, vmPage)
			v.pages[page] = b
		}
		if b == nil {
			return ""
		}
		if n := bytes.IndexByte(b[addr-page:], 0); n >= 0 {
			return string(append(s, b[addr-page:][:n]...))
		}
		s = append(s, b[addr-page:]...)
		addr = page + vmPage
	}
	return ""
}

// maxVMOffset bounds where a field may be in what it belongs to.
const maxVMOffset = 1 << 16

// field is the offset of a field: of the first of names that is there.
func (v *vmStructs) field(names ...string) int {
	for _, n := range names {
		if f, ok := v.fields[n]; ok && !f.static && f.at < maxVMOffset {
			return int(f.at)
		}
	}
	return v.lacks(names[0])
}

// has tells whether there is a field.
func (v *vmStructs) has(name string) bool {
	f, ok := v.fields[name]
	return ok && !f.static && f.at < maxVMOffset
}

// static is the address of a static field, 0 if there is none.
func (v *vmStructs) static(name string) uint64 {
	if f, ok := v.fields[name]; ok && f.static && f.at != 0 {
		return f.at
	}
	v.lacks(name)
	return 0
}

// size is that of a type.
func (v *vmStructs) size(name string) int {
	if n := v.sizes[name]; n > 0 && n < maxVMOffset {
		return int(n)
	}
	return v.lacks(name)
}

// number is a constant: the first of names that is there.
func (v *vmStructs) number(names ...string) uint32 {
	for _, n := range names {
		if c, ok := v.numbers[n]; ok {
			return c
		}
	}
	return uint32(v.lacks(names[0]))
}

func (v *vmStructs) lacks(name string) int {
	if v.missing == "" {
		v.missing = name
	}
	return 0
}
