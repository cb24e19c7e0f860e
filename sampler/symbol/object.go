package symbol

import (
	"debug/elf"
	"errors"
	"io"
	"log/slog"
	"sync"

	"sfsample/sampler/symbol/rootfs"
)

// Options says where names are looked for and how they are shown. Objects keep
// it; it does not change once given.
type Options struct {
	Demangle Demangle
	// Roots are searched for separate debug files, in this order: the target's
	// root, then our own. Empty: no separate files.
	Roots []*rootfs.Root
	// Log gets one debug record for each source that cannot be used, with its
	// file and reason. Nil: none.
	Log *slog.Logger
}

// Sym is the name of an address.
type Sym struct {
	Name   string // demangled as asked for; any bytes, at most 4 KiB
	Start  uint64 // link-time address of the function
	Size   uint64 // 0 if the symbol has none
	Source string // where the name comes from: ".symtab", ".dynsym", …
}

// Object names addresses of one ELF file. Addresses are link-time addresses of
// that file.
type Object struct {
	name string
	f    File
	opt  Options

	once    sync.Once
	tables  []*table
	buildID string
	missing string // why there are no good names
	closers []io.Closer

	mu    sync.RWMutex
	names map[nameKey]string
	held  int // bytes in names
}

// nameKey is a symbol of one of the tables.
type nameKey struct {
	table int32
	sym   int32
}

// maxHeld bounds the demangled names that one object keeps. Programs have been
// seen with 10,000 functions in one profile; at 200 bytes each that is 2 MB.
const maxHeld = 8 << 20

// Open returns the Object of a file. Nothing is read yet, so that defects show
// only as missing names: see [Object.Missing]. name is the path as the target
// has it; it is used in reports and to find debug files beside it.
func Open(f File, name string, opt Options) *Object {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Object{name: name, f: f, opt: opt, names: make(map[nameKey]string)}
}

// Close closes the files that the object opened itself; the one it was given
// is the caller's. No look-up may follow.
func (o *Object) Close() error {
	o.once.Do(func() {})
	var errs []error
	for _, c := range o.closers {
		errs = append(errs, c.Close())
	}
	o.closers = nil
	return errors.Join(errs...)
}

// BuildID is the file's GNU build-id in lower-case hex, empty if it has none.
func (o *Object) BuildID() string {
	o.once.Do(o.load)
	return o.buildID
}

// Missing says why the object has no full symbol table, and empty if it has:
// for reports that tell which debug package would help.
func (o *Object) Missing() string {
	o.once.Do(o.load)
	return o.missing
}

// reject notes a source that cannot be used.
func (o *Object) reject(source string, err error) {
	o.opt.Log.Debug("no names from this source", "module", o.name, "source", source, "reason", err)
}

// load finds the sources of names.
func (o *Object) load() {
	im, err := openImage(o.f)
	if err != nil {
		o.missing = err.Error()
		o.reject("file", err)
		return
	}
	o.buildID = im.buildID()
	o.loadTables(im)
}

func (o *Object) loadTables(im *image) {
	full := o.addTable(im, elf.SHT_SYMTAB, ".symtab", 0)
	o.addTable(im, elf.SHT_DYNSYM, ".dynsym", 0)
	if !full {
		o.missing = "no symbol table"
	}
}

// addTable adds the symbol table of type t of im, if there is one.
func (o *Object) addTable(im *image, t elf.SectionType, what string, shift uint64) bool {
	sec := im.typed(t)
	if sec == nil {
		return false
	}
	tab, err := im.symbols(sec, what, shift)
	if err != nil {
		o.reject(what, err)
		return false
	}
	o.tables = append(o.tables, tab)
	return len(tab.syms) > 0
}

// Lookup names the function at a link-time address. It is false when nothing
// names it.
func (o *Object) Lookup(vaddr uint64) (Sym, bool) {
	o.once.Do(o.load)
	loose, looseSym := none, int32(none)
	for i, t := range o.tables {
		sym, sized := t.find(vaddr)
		if sym == none {
			continue
		}
		if sized {
			return o.sym(i, sym), true
		}
		if loose == none {
			loose, looseSym = i, sym
		}
	}
	if loose != none {
		return o.sym(loose, looseSym), true
	}
	return Sym{}, false
}

// sym describes symbol number i of a table.
func (o *Object) sym(table int, i int32) Sym {
	t := o.tables[table]
	e := &t.syms[i]
	return Sym{Name: o.symName(table, i), Start: e.start, Size: uint64(e.size), Source: t.what}
}

func (o *Object) symName(table int, i int32) string {
	key := nameKey{int32(table), i}
	o.mu.RLock()
	name, ok := o.names[key]
	o.mu.RUnlock()
	if ok {
		return name
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tables[table]
	name = o.opt.Demangle.Name(unversioned(t.strs.name(t.syms[i].name)))
	if o.held += len(name) + 64; o.held > maxHeld {
		clear(o.names)
		o.held = len(name) + 64
	}
	o.names[key] = name
	return name
}
