package output

import (
	"hash/fnv"
	"strings"
)

// Kind tells what a frame of a flame graph is, for its colour.
type Kind uint8

const (
	KindOwn     Kind = iota // code of the program itself
	KindLibrary             // of a shared library
	KindRuntime             // of the language's or C's runtime
	KindScript              // of a script, run by an interpreter
	KindInlined             // inlined into the frame below it
	KindJIT                 // in memory that no file holds
	KindKernel
	KindWaiting // stands for a wait
	KindMarker  // stands for something else than code
	KindProcess // a process or a thread
	numKinds
)

// kindNames are what the legend calls them.
var kindNames = [numKinds]string{"own code", "library", "runtime", "script", "inlined", "JIT", "kernel", "waiting", "no code", "process"}

// runtimes are how the files of runtimes begin: the C library and loader, those of C++,
// Rust and Go's vDSO calls.
var runtimes = []string{"libc.so", "libc-", "libc.musl", "ld-linux", "ld-musl", "ld64.so", "ld-", "libpthread", "libm.so", "libm-", "libstdc++", "libgcc_s", "libc++", "[vdso]"}

func kindOf(f *Frame) Kind {
	switch {
	case f.Kernel:
		return KindKernel
	case f.Waits:
		return KindWaiting
	case f.marker(), f.Func == "" && f.Module == "":
		return KindMarker
	case f.Inlined:
		return KindInlined
	case isScript(f.File):
		return KindScript
	case strings.HasPrefix(f.Func, "runtime.") && !strings.Contains(f.Module, ".so"):
		return KindRuntime
	case f.Module == "" || strings.HasPrefix(f.Module, "[anon"), strings.HasPrefix(f.Module, "memfd:"), strings.HasPrefix(f.Module, "perf-"):
		return KindJIT
	}
	for _, r := range runtimes {
		if strings.HasPrefix(f.Module, r) {
			return KindRuntime
		}
	}
	if strings.Contains(f.Module, ".so") {
		return KindLibrary
	}
	return KindOwn
}

// isScript tells whether a source file is of a language that is interpreted, or compiled
// as it runs.
func isScript(file string) bool {
	for _, e := range []string{".py", ".rb", ".php", ".js", ".mjs", ".cjs", ".ts", ".java", ".kt", ".scala", ".pl", ".pm", ".lua"} {
		if strings.HasSuffix(file, e) {
			return true
		}
	}
	return false
}

// A key of a flame graph's table of names is the name and, if paths.kinds is set, its kind and
// module behind a NUL, which no clean name has.

// appendKind makes b the key of a name of this kind in a module.
func appendKind(b []byte, k Kind, module string) []byte {
	return appendClean(append(b, 0, 'a'+byte(k)), module)
}

// splitKey takes a key apart.
func splitKey(key string) (name string, k Kind, module string) {
	name, rest, ok := strings.Cut(key, "\x00")
	if !ok || rest == "" {
		return name, KindMarker, ""
	}
	return name, Kind(rest[0] - 'a'), rest[1:]
}

// shades are the colours of the kinds: red, green, blue, and how much a name may add to
// each.
var shades = [numKinds][6]uint8{
	KindOwn:     {208, 88, 52, 30, 65, 25},
	KindLibrary: {225, 185, 60, 25, 30, 30},
	KindRuntime: {125, 185, 105, 30, 30, 30},
	KindScript:  {190, 135, 215, 30, 30, 20},
	KindInlined: {235, 150, 140, 15, 30, 30},
	KindJIT:     {80, 185, 180, 30, 25, 30},
	KindKernel:  {90, 150, 215, 30, 30, 30},
	KindWaiting: {150, 165, 200, 20, 20, 20},
	KindMarker:  {170, 170, 170, 15, 0, 0},
	KindProcess: {205, 200, 185, 15, 0, 0},
}

// color is the colour of a name: the same in every picture.
func color(name string, k Kind) (r, g, b uint8) {
	h := fnv.New32a()
	h.Write([]byte(name))
	sum := h.Sum32()
	s := shades[k]
	if s[4] == 0 { // greys stay grey
		d := uint8(sum % uint32(s[3]))
		return s[0] + d, s[1] + d, s[2] + d
	}
	return s[0] + uint8(sum%uint32(s[3])), s[1] + uint8(sum>>8%uint32(s[4])), s[2] + uint8(sum>>16%uint32(s[5]))
}
