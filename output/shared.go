package output

import (
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
)

// sharedTables are what all threads of a timeline share: each numbers its rows from 0.
type sharedTables struct {
	strings   table
	functions index[functionRow]
	frames    index[frameRow]
	symbols   index[symbolRow]
	libs      index[Mapping] // path and build-id of them
	tree      tree
	cache     stackCache[stackState] // numbers are nodes
	buf       []byte
}

// stackState is a stack, and whether its thread ran or waited at its innermost frame.
type stackState struct {
	stack *Stack
	idle  bool
}

type functionRow struct {
	name uint32 // string
	file int32  // string, -1: unknown
	lib  int32  // -1: none
}

type frameRow struct {
	function, line uint32
	symbol         uint32 // plus one; 0: none
	depth          uint16 // of inlining
	category       uint8
	address        uint64 // of the instruction, or in the call, from its library's beginning on, plus one; 0: not known
}

// symbolRow is where a function of native code begins in its library.
type symbolRow struct {
	lib     int32
	name    uint32
	address uint64
}

// Categories of frames, indexes of the list that is written.
const (
	categoryOther = iota
	categoryUser
	categoryKernel
	categoryIdle
)

func newSharedTables() sharedTables {
	t := sharedTables{tree: newTree(maxNodes)}
	t.functions.limit, t.frames.limit, t.symbols.limit, t.libs.limit = maxKeys, maxNodes, maxNodes, maxThreads
	t.marker(overflow) // frame overflowName
	return t
}

// node returns the node of a stack, which it follows from the root if it does not recognise it.
func (t *sharedTables) node(k stackState) uint32 {
	n, known := t.cache.ids[k]
	if known {
		return n
	}
	if k.stack != nil {
		ok := true
		if cut := k.stack.truncated(); cut != "" {
			frame := t.marker(cut)
			n, ok = t.tree.step(n, frame, frame != overflowName)
		}
		for i := len(k.stack.Frames) - 1; ok && i >= 0; i-- {
			frame := t.frame(k.stack.Frames, i, k.idle)
			n, ok = t.tree.step(n, frame, frame != overflowName)
		}
		if !ok && len(k.stack.Frames) > 0 {
			frame := t.frame(k.stack.Frames, 0, k.idle)
			n = t.tree.leaf(n, frame, frame != overflowName)
		}
	}
	t.cache.keep(k, k.stack, n)
	return n
}

func (t *sharedTables) marker(name string) uint32 {
	return t.intern(appendClean(t.buf[:0], name), "", -1, frameRow{category: categoryOther})
}

// frame returns the number of frame i of a stack.
func (t *sharedTables) frame(frames []Frame, i int, idle bool) uint32 {
	fr := &frames[i]
	out := frameRow{line: uint32(max(fr.Line, 0)), category: categoryUser}
	switch {
	case i == 0 && idle:
		out.category = categoryIdle
	case fr.Kernel:
		out.category = categoryKernel
	}
	if fr.Inlined { // one deeper than the frame that it was inlined into
		for j := i; j < len(frames) && frames[j].Inlined && out.depth < 1000; j++ {
			out.depth++
		}
	}
	lib := t.lib(fr)
	t.place(frames[i:], lib, &out)
	return t.intern(appendName(t.buf[:0], fr), fr.File, lib, out)
}

// place sets address and symbol of the first of frames.
func (t *sharedTables) place(frames []Frame, lib int32, out *frameRow) {
	fr := &frames[0]
	if lib < 0 || fr.Script || fr.Mapping == nil || fr.Mapping.Image == 0 || fr.PC <= fr.Mapping.Image {
		return
	}
	image := fr.Mapping.Image
	out.address = lookupPC(fr) - image + 1
	outer := fr // the function that it was inlined into has the symbol
	for i := 1; outer.Inlined && i < len(frames); i++ {
		outer = &frames[i]
	}
	start := outer.PC - outer.Offset
	if outer.Func == "" || outer.Script || outer.Kernel || start < image {
		return
	}
	name, ok := t.strings.id(appendName(t.buf[:0], outer))
	if !ok {
		return
	}
	out.symbol = t.symbols.ref(symbolRow{lib, name, start - image})
}

// lib returns the index of the library that a frame lies in, -1 if that is not
// known.
func (t *sharedTables) lib(fr *Frame) int32 {
	m := Mapping{Path: fr.Module}
	if fr.Mapping != nil {
		m = Mapping{Path: fr.Mapping.Path, BuildID: fr.Mapping.BuildID}
	}
	if m.Path == "" || fr.Kernel {
		return -1
	}
	return int32(t.libs.ref(m)) - 1
}

// intern returns the number of a frame of the function name in a library and
// file; overflowName when there is no room for it.
func (t *sharedTables) intern(name []byte, file string, lib int32, fr frameRow) uint32 {
	t.buf = name
	nameID, ok := t.strings.id(name)
	fileID := int32(-1)
	if file != "" && ok {
		var id uint32
		id, ok = t.strings.id(appendClean(nil, file))
		fileID = int32(id)
	}
	if !ok {
		return overflowName
	}
	if fr.function, ok = t.functions.id(functionRow{nameID, fileID, lib}); !ok {
		return overflowName
	}
	id, _ := t.frames.id(fr) // overflowName is the first
	return id
}

// breakpadID is the identifier that Breakpad makes of a build-id: its first 16
// bytes as a GUID, whose first three fields are little-endian, and an age of 0.
func breakpadID(buildID string) string {
	b, err := hex.DecodeString(buildID)
	if err != nil || len(b) == 0 {
		return ""
	}
	b = append(b, make([]byte, 16)...)[:16]
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return strings.ToUpper(hex.EncodeToString(b)) + "0"
}

// writeLibs writes the libraries and returns the numbers of their names, new
// strings.
func (t *sharedTables) writeLibs(j *jsonWriter) (names []uint32) {
	j.name("libs")
	j.open('[')
	for _, m := range t.libs.keys {
		path := clean(m.Path)
		base := path
		if strings.Contains(path, "/") {
			base = filepath.Base(path)
		}
		names = append(names, t.strings.add(base))
		j.open('{')
		j.name("arch")
		j.raw("null")
		j.text("name", base)
		j.text("path", path)
		j.text("debugName", base)
		j.text("debugPath", path)
		j.text("breakpadId", breakpadID(m.BuildID))
		j.name("codeId")
		if m.BuildID == "" {
			j.raw("null")
		} else {
			j.string(m.BuildID)
		}
		j.close('}')
	}
	j.close(']')
	return names
}

func (t *sharedTables) writeTables(j *jsonWriter, libNames []uint32) {
	frames, functions, symbols, nodes := t.frames.keys, t.functions.keys, t.symbols.keys, len(t.tree.nodes)-1
	sources := make(map[int32]int64) // by string
	var files []int32
	for _, fn := range functions {
		if _, ok := sources[fn.file]; !ok && fn.file >= 0 {
			sources[fn.file] = int64(len(files))
			files = append(files, fn.file)
		}
	}
	j.table("stackTable", nodes)
	j.column("frame", nodes, func(i int) int64 { return int64(t.tree.nodes[i+1].frame) })
	j.column("prefix", nodes, func(i int) int64 { return int64(t.tree.nodes[i+1].parent) - 1 }) // node 0 is no stack
	j.close('}')

	n := len(frames)
	j.table("frameTable", n)
	j.name("address") // -1 for none, not null
	j.open('[')
	for _, fr := range frames {
		j.int(int64(fr.address) - 1)
	}
	j.close(']')
	j.column("inlineDepth", n, func(i int) int64 { return int64(frames[i].depth) })
	j.column("category", n, func(i int) int64 { return int64(frames[i].category) })
	j.constant("subcategory", n, "0")
	j.column("func", n, func(i int) int64 { return int64(frames[i].function) })
	j.column("nativeSymbol", n, func(i int) int64 { return int64(frames[i].symbol) - 1 })
	j.constant("innerWindowID", n, "0")
	j.column("line", n, func(i int) int64 { return orNull(frames[i].line) })
	j.constant("column", n, "null")
	j.close('}')

	n = len(functions)
	j.table("funcTable", n)
	j.column("name", n, func(i int) int64 { return int64(functions[i].name) })
	j.constant("isJS", n, "false")
	j.constant("relevantForJS", n, "false")
	j.name("resource") // -1 for none, not null
	j.open('[')
	for i := range n {
		j.int(int64(functions[i].lib))
	}
	j.close(']')
	j.column("source", n, func(i int) int64 {
		if functions[i].file < 0 {
			return -1
		}
		return sources[functions[i].file]
	})
	j.constant("lineNumber", n, "null")
	j.constant("columnNumber", n, "null")
	j.close('}')

	n = len(libNames)
	j.table("resourceTable", n)
	j.column("lib", n, func(i int) int64 { return int64(i) })
	j.column("name", n, func(i int) int64 { return int64(libNames[i]) })
	j.constant("host", n, "null")
	j.constant("type", n, "1") // a library
	j.close('}')

	n = len(symbols)
	j.table("nativeSymbols", n)
	j.column("libIndex", n, func(i int) int64 { return int64(symbols[i].lib) })
	j.column("address", n, func(i int) int64 { return int64(symbols[i].address) })
	j.column("name", n, func(i int) int64 { return int64(symbols[i].name) })
	j.constant("functionSize", n, "null")
	j.close('}')

	n = len(files)
	j.table("sources", n)
	j.constant("id", n, "null")
	j.column("filename", n, func(i int) int64 { return int64(files[i]) })
	j.constant("startLine", n, "1")
	j.constant("startColumn", n, "1")
	j.constant("sourceMapURL", n, "null")
	j.close('}')

	j.name("stringArray")
	j.open('[')
	for _, s := range t.strings.keys {
		j.string(s)
	}
	j.close(']')
}

// orNull is a line for a column: 0, which is unknown, as null.
func orNull(line uint32) int64 {
	if line == 0 {
		return -1
	}
	return int64(line)
}
