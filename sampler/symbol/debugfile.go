package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"
	"strings"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// errOtherFile: a debug file that was found belongs to another build.
var errOtherFile = errors.New("debug file of another build")

// debugFile finds and opens the separate debug file of im, in the order that
// gdb follows: by build-id, by debuglink, then debuginfod. The error says that
// there is none, or what was wrong with those that there are.
func (o *Object) debugFile(im *image) (*image, error) {
	if d := &o.debug; d.im == nil && d.err == nil {
		d.im, d.err = o.findDebugFile(im)
	}
	return o.debug.im, o.debug.err
}

func (o *Object) findDebugFile(im *image) (*image, error) {
	var errs []error
	try := func(open func() (*rootfs.File, error), check func(*image) error) *image {
		f, err := open()
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNoDebuginfod) {
				errs = append(errs, err)
			}
			return nil
		}
		d, err := openDebug(f, o.opt.Until, check)
		if err != nil {
			f.Close()
			errs = append(errs, fmt.Errorf("%s: %w", f.Name(), err))
			return nil
		}
		o.closers.add(f)
		return d
	}
	id := o.buildID
	sameID := func(d *image) error {
		if d.buildID() != id {
			return errOtherFile
		}
		return nil
	}
	if len(id) > 2 {
		for _, r := range o.opt.Roots {
			if d := try(func() (*rootfs.File, error) { return r.OpenFile(buildIDPath(id, ".debug")) }, sameID); d != nil {
				return d, nil
			}
		}
	}
	if link, crc, ok := im.debugLink(); ok {
		check := func(d *image) error { return checkLink(o.opt.Until, d, id, crc) }
		for _, name := range linkPaths(o.name, link) {
			for _, r := range o.opt.Roots {
				if d := try(func() (*rootfs.File, error) { return r.OpenFile(name) }, check); d != nil {
					return d, nil
				}
			}
		}
	}
	if len(id) > 2 && o.opt.Debuginfod != nil {
		if d := try(func() (*rootfs.File, error) { return o.opt.Debuginfod.open(o.opt.Until, id) }, sameID); d != nil {
			return d, nil
		}
	}
	if len(errs) == 0 {
		return nil, fs.ErrNotExist
	}
	return nil, errors.Join(errs...)
}

func openDebug(f *rootfs.File, until *late.Time, check func(*image) error) (*image, error) {
	d, err := openImage(f, until)
	if err != nil {
		return nil, err
	}
	// dwz may put nothing but strings into a supplementary file.
	err = check(d)
	if err == nil && d.sections.typed(elf.SHT_SYMTAB) == nil && d.sections.debug("info") == nil && d.sections.named(".debug_str") == nil {
		err = errors.New("neither symbols nor debugging information")
	}
	if err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

// buildIDPath is the name of a file by build-id (GDB manual, "Separate Debug
// Files").
func buildIDPath(id, suffix string) string {
	return "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + suffix
}

// linkPaths are the names under which gdb looks for a debuglink.
func linkPaths(file, link string) []string {
	if !strings.HasPrefix(file, "/") || strings.Contains(link, "/") {
		return nil
	}
	dir := path.Dir(file)
	return []string{
		path.Join(dir, link),
		path.Join(dir, ".debug", link),
		path.Join("/usr/lib/debug", dir, link),
	}
}

// checkLink makes sure that d, found by name, belongs to the file with the
// given build-id and link CRC. Equal build-ids suffice: the CRC takes a reading
// of the whole file.
func checkLink(until *late.Time, d *image, id string, crc uint32) error {
	if got := d.buildID(); got != "" && id != "" {
		if got != id {
			return errOtherFile
		}
		return nil
	}
	h := crc32.NewIEEE()
	if _, err := io.Copy(h, until.Reader(io.NewSectionReader(d.f, 0, d.f.Size()))); err != nil {
		return fmt.Errorf("compute CRC: %w", err)
	}
	if h.Sum32() != crc {
		return fmt.Errorf("CRC %#x is not %#x: %w", h.Sum32(), crc, errOtherFile)
	}
	return nil
}

// openAny opens path in the first root that has it.
func openAny(roots []*rootfs.Root, path string) (*rootfs.File, error) {
	err := error(fs.ErrNotExist)
	for _, r := range roots {
		var f *rootfs.File
		if f, err = r.OpenFile(path); err == nil {
			return f, nil
		}
	}
	return nil, err
}
