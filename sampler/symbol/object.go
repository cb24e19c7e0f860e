package symbol

import (
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// Options says where names are looked for and how they are shown. Objects keep
// it; it does not change once given.
type Options struct {
	Demangle Demangle
	// Inlines and Lines make [Object.Frames] read debugging information.
	Inlines, Lines bool
	// Roots are searched for separate debug files, in this order: the target's
	// root, then our own. Empty: no separate files.
	Roots []*rootfs.Root
	// Debuginfod is asked after Roots. Nil: not at all.
	Debuginfod *Debuginfod
	// Until, if set, ends what takes long: once it is done, no more debugging
	// information is read and no server is waited for, and symbols are read of
	// files of the usual size only. Frames then tells the functions without what is
	// inlined in them, and may not know them: see [Object.Unread].
	Until *late.Time
	// Progress, if set, is called with one line of text before work that takes
	// noticeable time. It may be called by several goroutines at once.
	Progress func(line string)
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
	im      *image
	sources sources
	buildID string
	unnamed unnamed
	debug   debugFile
	mini    *image // in .gnu_debugdata; nil: it is not used
	closers closers
	lines   lineInfo
	names   symNames
}

// sources are what names symbols.
type sources struct {
	tables []*table
	goTab  *goTable  // nil: not a Go program
	plt    *pltTable // nil: no linkage tables
}

// debugFile is the separate debug file, once it was looked for: by load, or under the lock of lineInfo.
type debugFile struct {
	im  *image
	err error
}

// lineInfo is what tells of inlined functions and lines, once somebody has asked.
type lineInfo struct {
	mu     sync.Mutex
	tried  bool
	dwarf  *dwarfInfo
	none   string // why dwarf is nil
	unread int
}

// unnamed tells of what has no name.
type unnamed struct {
	why    string       // there are no good names
	late   bool         // there was no time to read all symbols
	silent bool         // a part of the files did not come, though there was time
	count  atomic.Int64 // addresses, for want of time
}

// nameKey is a symbol: its table, or one of the kinds below, and its number
// there.
type nameKey struct {
	table int32
	sym   uint64
}

const (
	keyGo  = -1 // number of a function in the pclntab
	keyPLT = -2 // address of a linkage table entry
)

// symNames are the names of an object's symbols, made once.
type symNames struct {
	demangle Demangle
	mu       sync.RWMutex // guards made, and what names are read through
	made     nameCache[nameKey]
}

// closers are what is to be closed with an object.
type closers struct {
	mu   sync.Mutex
	list []io.Closer
}

// Open returns the Object of a file. Nothing is read yet, so that defects show
// only as missing names: see [Object.Missing]. name is the path as the target
// has it; it is used in reports and to find debug files beside it.
func Open(f File, name string, opt Options) *Object {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Object{name: name, f: f, opt: opt, names: symNames{demangle: opt.Demangle}}
}

// Close closes the files that the object opened itself; the one it was given
// is the caller's. No look-up may follow.
func (o *Object) Close() error {
	o.once.Do(func() {})
	err := o.closers.close()
	for _, im := range []*image{o.im, o.debug.im, o.mini} {
		im.release()
	}
	return err
}

func (c *closers) add(x io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, x)
}

func (c *closers) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, x := range c.list {
		errs = append(errs, x.Close())
	}
	c.list = nil
	return errors.Join(errs...)
}

// Bytes is about how much memory the object holds. It grows as names are asked
// for.
func (o *Object) Bytes() int {
	o.once.Do(o.load)
	n := o.sources.bytes()
	o.names.mu.RLock()
	n += o.names.made.held
	o.names.mu.RUnlock()
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	if o.lines.dwarf != nil {
		n += o.lines.dwarf.bytes()
	}
	if o.mini != nil {
		n += int(o.mini.expanded.Size())
	}
	return n
}

func (s *sources) bytes() (n int) {
	for _, t := range s.tables {
		n += t.bytes()
	}
	if s.goTab != nil {
		n += 12 * len(s.goTab.entry)
	}
	if s.plt != nil {
		const slotBytes = 50 // of a map entry
		n += slotBytes * len(s.plt.slots)
	}
	return n
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
	return o.unnamed.why
}

// Silent tells whether a file of o did not come from its disk when it was to be read first. Another Object of it may have more names, later.
func Silent(o *Object) bool { return o.unnamed.silent }

// reject notes a source that cannot be used.
func (o *Object) reject(source string, err error) {
	o.opt.Log.Debug("no names from this source", "module", o.name, "source", source, "reason", err)
}

// load finds the sources of names.
func (o *Object) load() {
	im, err := openImage(o.f, o.opt.Until)
	if err != nil {
		o.unnamed.why, o.unnamed.silent = err.Error(), errors.Is(err, os.ErrDeadlineExceeded)
		o.reject("file", err)
		return
	}
	o.im = im
	o.buildID = im.buildID()
	o.loadTables(im)
	for _, im := range []*image{o.im, o.debug.im, o.mini} {
		if im != nil {
			o.unnamed.late = o.unnamed.late || im.f.Missed()
			im.f.Free()
		}
	}
	o.unnamed.silent = o.unnamed.late && !o.opt.Until.Over()
	if o.unnamed.late {
		o.unnamed.why = "symbols: " + late.ErrNoTime.Error()
	}
}

// loadTables finds the symbol tables, in the order in which they are asked.
func (o *Object) loadTables(im *image) {
	full := o.addTable(im, elf.SHT_SYMTAB, ".symtab", 0)
	if !full {
		full = o.loadDebugFile(im)
	}
	if !full {
		full = o.loadMiniDebug(im)
	}
	if im.sections.typed(elf.SHT_DYNSYM) != nil {
		o.addTable(im, elf.SHT_DYNSYM, ".dynsym", 0)
	} else if t, err := im.dynamicSymbols(); err == nil {
		o.sources.tables = append(o.sources.tables, t)
	} else if !errors.Is(err, errNoSection) {
		o.reject("dynamic", err)
	}
	t, err := findGoTable(im)
	switch {
	case err == nil:
		o.sources.goTab, full = t, true
	case !errors.Is(err, errNoSection):
		o.reject("pclntab", err)
	}
	o.sources.plt = openPLT(im)
	if full {
		o.unnamed.why = ""
	} else if o.unnamed.why == "" {
		o.unnamed.why = "no symbol table"
	}
}

// loadDebugFile adds the symbols of a separate debug file.
func (o *Object) loadDebugFile(im *image) bool {
	d, err := o.debugFile(im)
	if err != nil {
		o.unnamed.why = "no symbol table, no debug file"
		if !errors.Is(err, fs.ErrNotExist) {
			o.unnamed.why = "no symbol table, debug file unusable: " + err.Error()
			o.reject("debug file", err)
		}
		return false
	}
	// A prelinked object was moved after its debug file was split off.
	if !o.addTable(d, elf.SHT_SYMTAB, "debug file", im.progs.loadBase()-d.progs.loadBase()) {
		o.unnamed.why = "no symbol table, none in the debug file"
		return false
	}
	return true
}

func (o *Object) loadMiniDebug(im *image) bool {
	d, err := im.miniDebug()
	if err != nil {
		if !errors.Is(err, errNoSection) {
			o.reject(".gnu_debugdata", err)
		}
		return false
	}
	if !o.addTable(d, elf.SHT_SYMTAB, ".gnu_debugdata", im.progs.loadBase()-d.progs.loadBase()) {
		d.release()
		return false
	}
	o.mini, o.unnamed.why = d, ""
	return true
}

// addTable adds the symbol table of type t of im, if there is one.
func (o *Object) addTable(im *image, t elf.SectionType, what string, shift uint64) bool {
	sec := im.sections.typed(t)
	if sec == nil {
		return false
	}
	tab, err := im.symbols(sec, what, shift)
	if err != nil {
		o.unnamed.late = o.unnamed.late || errors.Is(err, late.ErrNoTime)
		o.reject(what, err)
		return false
	}
	o.sources.tables = append(o.sources.tables, tab)
	return len(tab.syms) > 0
}

// Lookup names the function at a link-time address. It is false when nothing
// names it.
func (o *Object) Lookup(vaddr uint64) (Sym, bool) {
	o.once.Do(o.load)
	loose, looseSym := none, int32(none)
	for i, t := range o.sources.tables {
		sym, sized := t.find(vaddr)
		if sym == none {
			continue
		}
		if sized {
			if s := o.sym(i, sym); s.Name != "" {
				return s, true
			}
			continue
		}
		if loose == none {
			loose, looseSym = i, sym
		}
	}
	if sym, ok := o.lookupGo(vaddr); ok {
		return sym, true
	}
	if sym, ok := o.lookupPLT(vaddr); ok {
		return sym, true
	}
	if loose != none {
		if s := o.sym(loose, looseSym); s.Name != "" {
			return s, true
		}
	}
	if o.unnamed.late {
		o.unnamed.count.Add(1)
	}
	return Sym{}, false
}

// sym describes symbol number i of a table.
func (o *Object) sym(table int, i int32) Sym {
	t := o.sources.tables[table]
	e := &t.syms[i]
	name := o.names.cached(nameKey{int32(table), uint64(i)})
	if name == "" {
		name = o.names.keep(nameKey{int32(table), uint64(i)}, func() string { return o.plain(t.strs.name(e.name)) })
	}
	return Sym{Name: name, Start: e.start, Size: uint64(e.size), Source: t.what}
}

// plain cuts from a symbol's name what is no part of the function's: versions,
// and the calling convention that Go's linker appends, which neither pclntab nor
// the runtime's own stacks have.
func (o *Object) plain(name string) string {
	if o.sources.goTab != nil {
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".abi0"), ".abiinternal")
	}
	return unversioned(name)
}

func (o *Object) lookupGo(vaddr uint64) (Sym, bool) {
	t := o.sources.goTab
	if t == nil {
		return Sym{}, false
	}
	i := t.find(vaddr)
	if i == none {
		return Sym{}, false
	}
	key := nameKey{keyGo, uint64(i)}
	name := o.names.cached(key)
	if name == "" {
		name = o.names.keep(key, func() string { return t.name(i) })
	}
	return Sym{Name: name, Start: t.entry[i], Size: t.entry[i+1] - t.entry[i], Source: "pclntab"}, name != ""
}

func (o *Object) lookupPLT(vaddr uint64) (Sym, bool) {
	if o.sources.plt == nil {
		return Sym{}, false
	}
	start, size, slot, ok := o.sources.plt.find(vaddr)
	if !ok {
		return Sym{}, false
	}
	key := nameKey{keyPLT, start}
	name := o.names.cached(key)
	if name == "" {
		if slot.resolver != 0 {
			name = o.resolverName(slot.resolver)
		}
		name = o.names.keep(key, func() string {
			if slot.sym != 0 {
				name = o.opt.Demangle.Name(unversioned(o.sources.plt.symName(slot.sym)))
			}
			if name == "" {
				return ""
			}
			return name + "@plt"
		})
	}
	return Sym{Name: name, Start: start, Size: size, Source: "plt"}, name != ""
}

// resolverName names the function whose IFUNC resolver is at vaddr.
func (o *Object) resolverName(vaddr uint64) string {
	for i, t := range o.sources.tables {
		if sym, sized := t.find(vaddr); sym != none && sized {
			return o.sym(i, sym).Name
		}
	}
	return ""
}

// cached returns a name that was made before, or an empty string.
func (s *symNames) cached(key nameKey) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.made.names[key]
}

// keep reads, demangles and caches a name. read runs alone, because string
// tables are not safe for concurrent use.
func (s *symNames) keep(key nameKey, read func() string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.demangle.Name(read())
	s.made.keep(key, name)
	return name
}
