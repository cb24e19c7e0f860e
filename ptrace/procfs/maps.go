package procfs

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"
)

// Perms are the permissions of a mapping.
type Perms uint8

// Bits of Perms.
const (
	Read Perms = 1 << iota
	Write
	Exec
	Shared
)

// String gives the form of /proc/PID/maps, such as "r-xp".
func (p Perms) String() string {
	s := []byte("---p")
	for i, c := range []byte("rwx") {
		if p&(1<<i) != 0 {
			s[i] = c
		}
	}
	if p&Shared != 0 {
		s[3] = 's'
	}
	return string(s)
}

// Dev is the device of a mapped file as maps gives it. On file systems with
// devices of their own (btrfs, overlayfs) it need not be the one that stat(2)
// gives for the same file.
type Dev struct{ Major, Minor uint32 }

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64 // addresses, End excluded
	Perms      Perms
	Offset     uint64 // offset in the file of Start, in bytes
	Dev        Dev
	Inode      uint64 // 0: no file
	// Path is the file as seen from the reader's root, or the kernel's name for
	// a mapping without file ("[heap]", "[vdso]", "[anon:…]"), or empty. The
	// mark of a deleted file is taken off, "\012" is turned into a newline.
	// (Both are ambiguous: a file may bear such a name itself.)
	Path string
	// Deleted: the file's name was removed or went to another file.
	Deleted bool
}

// File tells whether the mapping is of a file, also a deleted one or one
// without a name in any folder (memfd). A file system may number one 0, but not its device (show_map_vma, fs/proc/task_mmu.c).
func (m *Mapping) File() bool { return m.Inode != 0 || m.Dev != Dev{} }

// Pseudo tells whether Path is a name that the kernel gave to a mapping
// without a file.
func (m *Mapping) Pseudo() bool { return !m.File() && strings.HasPrefix(m.Path, "[") }

// ParseMaps parses the content of /proc/PID/maps. The mappings come in the
// file's order. The error is a *[SyntaxError]; there is no partial result.
func ParseMaps(b []byte) ([]Mapping, error) {
	var p mapsParser
	if err := p.parse(b); err != nil {
		return nil, err
	}
	return p.end()
}

// mapsParser makes a list of pieces of /proc/PID/maps, in which each path stands once in memory.
type mapsParser struct {
	list  []Mapping
	paths map[string]string // by their text
	rest  []byte            // of a line that is not whole yet
	bytes int               // that the list takes
}

// mappingBytes is what a mapping takes, and what a path does besides its text.
const (
	mappingBytes = int(unsafe.Sizeof(Mapping{}))
	pathBytes    = 48
)

func (p *mapsParser) parse(b []byte) error {
	if p.list == nil {
		p.list = make([]Mapping, 0, len(b)/64+1)
	}
	for {
		text, rest, whole := bytes.Cut(b, []byte{'\n'})
		if !whole {
			if p.rest = append(p.rest, text...); len(p.rest) > maxSmall {
				return fmt.Errorf("maps: line %d: %w", len(p.list)+1, ErrTooLong)
			}
			return nil
		}
		b = rest
		if len(p.rest) > 0 {
			text = append(p.rest, text...)
			p.rest = p.rest[:0]
		}
		if err := p.line(text); err != nil {
			return err
		}
	}
}

// end takes the last line, if it has no newline, and returns the list.
func (p *mapsParser) end() ([]Mapping, error) {
	if len(p.rest) > 0 {
		if err := p.line(p.rest); err != nil {
			return nil, err
		}
	}
	return p.list, nil
}

func (p *mapsParser) line(text []byte) error {
	var m Mapping
	path, wrong := parseMapping(text, &m)
	if wrong != "" {
		return syntaxError("maps", len(p.list)+1, wrong, text)
	}
	m.Path = p.path(path)
	p.list = append(p.list, m)
	p.bytes += mappingBytes
	return nil
}

// path is a path by its text, in which newlines alone are escaped (seq_file_path), a backslash stays as it is.
func (p *mapsParser) path(text []byte) string {
	if n := len(p.list); len(text) == 0 {
		return ""
	} else if n > 0 && p.list[n-1].Path == string(text) {
		return p.list[n-1].Path // segments of one file follow each other
	}
	s, ok := p.paths[string(text)]
	if !ok {
		key := string(text)
		s = key
		if bytes.Contains(text, []byte(`\012`)) {
			s = strings.ReplaceAll(s, `\012`, "\n")
		}
		if p.paths == nil {
			p.paths = map[string]string{}
		}
		p.paths[key] = s
		p.bytes += len(key) + pathBytes
	}
	return s
}

// parseMapping parses one line, by the format of show_vma_header_prefix in
// fs/proc/task_mmu.c. It returns the text of the path, and what is wrong, or "".
func parseMapping(b []byte, m *Mapping) (path []byte, wrong string) {
	var ok bool
	if m.Start, b, ok = hex(b); !ok {
		return nil, "bad start address"
	}
	if b, ok = literal(b, '-'); !ok {
		return nil, "no - between addresses"
	}
	if m.End, b, ok = hex(b); !ok {
		return nil, "bad end address"
	}
	if m.End <= m.Start {
		return nil, "end is not above start"
	}
	if b, ok = parsePerms(b, m); !ok {
		return nil, "bad permissions"
	}
	if b, ok = literal(b, ' '); !ok {
		return nil, "no offset"
	}
	if m.Offset, b, ok = hex(b); !ok {
		return nil, "bad offset"
	}
	if b, ok = parseDev(b, m); !ok {
		return nil, "bad device"
	}
	if b, ok = literal(b, ' '); !ok {
		return nil, "no inode"
	}
	if m.Inode, b, ok = decimal(b); !ok {
		return nil, "bad inode"
	}
	if len(b) == 0 {
		return nil, ""
	}
	if b[0] != ' ' {
		return nil, "no blank before the path"
	}
	path = spaces(b)
	if m.File() {
		path, m.Deleted = bytes.CutSuffix(path, []byte(deletedMark))
	}
	return path, ""
}

func parsePerms(b []byte, m *Mapping) (rest []byte, ok bool) {
	if len(b) < 5 || b[0] != ' ' {
		return b, false
	}
	for i, c := range []byte("rwx") {
		switch b[1+i] {
		case c:
			m.Perms |= 1 << i
		case '-':
		default:
			return b, false
		}
	}
	switch b[4] {
	case 's':
		m.Perms |= Shared
	case 'p':
	default:
		return b, false
	}
	return b[5:], true
}

func parseDev(b []byte, m *Mapping) (rest []byte, ok bool) {
	b, ok1 := literal(b, ' ')
	major, b, ok2 := hex(b)
	b, ok3 := literal(b, ':')
	minor, b, ok4 := hex(b)
	if !ok1 || !ok2 || !ok3 || !ok4 || major > 1<<32-1 || minor > 1<<32-1 {
		return b, false
	}
	m.Dev = Dev{uint32(major), uint32(minor)}
	return b, true
}

// deletedMark is what d_path appends to the path of a file without a name.
const deletedMark = " (deleted)"

// String gives the line of maps for people and tests, with the path quoted
// where it needs to be.
func (m Mapping) String() string {
	path := m.Path
	if strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		path = fmt.Sprintf("%q", path)
	}
	if m.Deleted {
		path += deletedMark
	}
	return strings.TrimRight(fmt.Sprintf("%08x-%08x %v %08x %02x:%02x %d %s",
		m.Start, m.End, m.Perms, m.Offset, m.Dev.Major, m.Dev.Minor, m.Inode, path), " ")
}
