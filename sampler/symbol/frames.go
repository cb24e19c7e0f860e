package symbol

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// Frame is one function at an address: the one whose code it is, or one that
// was inlined into it there.
type Frame struct {
	Name    string // demangled as asked for; empty if unknown
	Start   uint64 // link-time address of the function; of the outer one for inlined functions
	File    string // source file, if lines were asked for and are known
	Line    int    // 0 if unknown
	Inlined bool   // inlined into the next frame
	Source  string // where the name comes from, as in Sym
	// Loose: the symbol has no size, and not all symbols are known: other
	// functions may lie between it and the address.
	Loose bool
}

// Frames names the functions at a link-time address, innermost first: those
// that were inlined there if the options ask for inlines, and last the function
// that Lookup gives. It is nil when nothing is known.
func (o *Object) Frames(vaddr uint64) []Frame {
	sym, ok := o.Lookup(vaddr)
	outer := Frame{Name: sym.Name, Start: sym.Start, Source: sym.Source, Loose: ok && sym.Size == 0 && o.unnamed.why != ""}
	var list []location
	if o.opt.Inlines || o.opt.Lines {
		list = o.locations(vaddr)
	}
	if len(list) == 0 {
		if !ok {
			return nil
		}
		return []Frame{outer}
	}
	last := list[len(list)-1]
	if !ok {
		outer.Name, outer.Source = o.opt.Demangle.Name(last.name), "DWARF"
	}
	if !o.opt.Inlines {
		list = list[:1] // the line of the address itself
	}
	var frames []Frame
	for i, l := range list {
		f := outer
		if i < len(list)-1 {
			f = Frame{Name: o.opt.Demangle.Name(l.name), Start: sym.Start, Inlined: true, Source: "DWARF"}
		}
		if o.opt.Lines {
			f.File, f.Line = cut(l.file), l.line
		}
		frames = append(frames, f)
	}
	if !ok && len(frames) == 1 && frames[0].Name == "" && frames[0].File == "" {
		return nil
	}
	return frames
}

// locations asks Go's tables, by which the runtime prints stacks itself, or the
// debugging information.
func (o *Object) locations(vaddr uint64) []location {
	if list := o.goLocations(vaddr); list != nil {
		return list
	}
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	if !o.lines.tried {
		o.lines.tried = true
		o.loadDWARF()
	}
	if o.lines.dwarf == nil {
		if o.lines.none == late.ErrNoTime.Error() {
			o.lines.unread++
		}
		return nil
	}
	whole := !o.lines.dwarf.cut
	list, missed := o.lines.dwarf.find(vaddr)
	if whole && o.lines.dwarf.cut {
		o.reject("DWARF, in part", errors.New(inUnits.text()))
	}
	if missed {
		o.lines.unread++
		return nil
	}
	return list
}

// Unread is how many times there was no time to read the symbols that may name an address, and how many times Frames had none to read
// what else is known of one: see [Options.Until].
func (o *Object) Unread() (names, lines int) {
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	return int(o.unnamed.count.Load()), o.lines.unread
}

func (o *Object) goLocations(vaddr uint64) []location {
	if o.sources.goTab == nil || !o.sources.goTab.inlines() {
		return nil
	}
	o.names.mu.Lock() // guards what the table reads through
	defer o.names.mu.Unlock()
	return o.sources.goTab.locations(vaddr)
}

// NoLines says why there are no inlined functions and lines, and is empty if
// there are or if nobody has asked for any.
func (o *Object) NoLines() string {
	o.lines.mu.Lock()
	defer o.lines.mu.Unlock()
	return o.lines.none
}

// loadDWARF opens the debugging information of the file or its debug file.
func (o *Object) loadDWARF() {
	if o.im == nil {
		o.lines.none = o.unnamed.why
		return
	}
	im, shift := o.im, uint64(0)
	if im.sections.debug("info") == nil {
		d, err := o.debugFile(o.im)
		if err != nil {
			o.lines.none = "no debugging information, no debug file"
			if !errors.Is(err, fs.ErrNotExist) {
				o.lines.none = "no debugging information, debug file unusable: " + err.Error()
			}
			return
		}
		im, shift = d, d.progs.loadBase()-o.im.progs.loadBase()
	}
	if s := im.sections.named(".debug_info"); s != nil && s.size > 64<<20 && o.opt.Progress != nil {
		o.opt.Progress(fmt.Sprintf("reading debugging information of %s (%d MB)", path.Base(o.name), s.size>>20))
	}
	d, err := openDWARF(im, o.opt.Lines)
	if err != nil {
		o.lines.none = err.Error()
		o.reject("DWARF", err)
		return
	}
	d.shift = shift
	if err := d.loadAlt(o.openAlt); err != nil {
		o.reject(".gnu_debugaltlink", err)
	}
	o.closers.add(d)
	o.lines.dwarf = d
}

// openAlt finds dwz's supplementary file: by build-id, or by its path, which may
// be relative to the file that names it.
func (o *Object) openAlt(name, id string) (*image, error) {
	paths := []string{buildIDPath(id, ".debug"), name}
	if !strings.HasPrefix(name, "/") {
		paths[1] = path.Join(path.Dir(o.name), name)
		paths = append(paths, path.Join("/usr/lib/debug/.dwz", path.Base(name)))
	}
	err := error(fs.ErrNotExist)
	for _, p := range paths {
		var f *rootfs.File
		if f, err = openAny(o.opt.Roots, p); err != nil {
			continue
		}
		var im *image
		im, err = openDebug(f, o.opt.Until, func(im *image) error {
			if im.buildID() != id {
				return errOtherFile
			}
			return nil
		})
		if err == nil {
			o.closers.add(f)
			return im, nil
		}
		f.Close()
	}
	return nil, err
}
