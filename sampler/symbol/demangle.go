package symbol

import (
	"strings"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

// Demangle says how C++ and Rust names are shown.
type Demangle uint8

const (
	// Full: with parameters and template arguments, without Rust's hashes.
	Full Demangle = iota
	// Short: without parameters and template arguments.
	Short
	// Off: as the linker sees them.
	Off
)

// MaxName is the length of the longest name handed out, in bytes; longer ones
// end in "…".
const MaxName = 4 << 10

// maxMangled is the longest name that is demangled: the cost of demangling can
// grow faster than the name.
const maxMangled = 8 << 10

// demangleLimit bounds a demangled name at 2^13 bytes before it is cut: names
// repeat parts by reference and can grow exponentially.
var demangleLimit = demangle.MaxLength(13)

// Name returns the name to show for a linker's symbol name.
func (d Demangle) Name(name string) string {
	if d != Off && len(name) <= maxMangled && mangled(name) {
		name = d.demangle(name)
	}
	return cut(name)
}

// mangled tells C++ (_Z, ___Z) and Rust (_R) names from others, to spare the
// rest the work.
func mangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") || strings.HasPrefix(name, "___Z") ||
		strings.HasPrefix(name, "_GLOBAL_")
}

func (d Demangle) demangle(name string) string {
	if d == Short {
		return demangle.Filter(name, demangleLimit, demangle.NoParams, demangle.NoTemplateParams, demangle.NoEnclosingParams, demangle.NoClones)
	}
	return demangle.Filter(name, demangleLimit)
}

// cut bounds a name, at the beginning of a character.
func cut(name string) string {
	const more = "…"
	if len(name) <= MaxName {
		return name
	}
	n := MaxName - len(more)
	for n > 0 && !utf8.RuneStart(name[n]) && n > MaxName-len(more)-utf8.UTFMax {
		n--
	}
	return name[:n] + more
}

// unversioned cuts the version from names such as foo@@GLIBC_2.2.5, as linkers
// write them into .symtab.
func unversioned(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		return name[:i]
	}
	return name
}
