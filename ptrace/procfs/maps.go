package procfs

import (
	"bytes"
	"fmt"
	"strings"
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
// without a name in any folder (memfd).
func (m *Mapping) File() bool { return m.Inode != 0 }

// Pseudo tells whether Path is a name that the kernel gave to a mapping
// without a file.
func (m *Mapping) Pseudo() bool { return m.Inode == 0 && strings.HasPrefix(m.Path, "[") }

// ParseMaps parses the content of /proc/PID/maps. The mappings come in the
// file's order. The error is a *[SyntaxError]; there is no partial result.
func ParseMaps(b []byte) ([]Mapping, error) {
	// A line has 49 bytes at least, with 64-bit addresses.
	maps := make([]Mapping, 0, len(b)/49+1)
	for line := 1; len(b) > 0; line++ {
		text, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		var m Mapping
		wrong := parseMapping(text, &m)
		if wrong != "" {
			return nil, syntaxError("maps", line, wrong, text)
		}
		maps = append(maps, m)
		// Segments of one file follow each other: keep its name once.
		if n := len(maps); n > 1 && maps[n-2].Path == m.Path {
			maps[n-1].Path = maps[n-2].Path
		}
	}
	return maps, nil
}

// parseMapping parses one line, by the format of show_vma_header_prefix in
// fs/proc/task_mmu.c. It returns what is wrong, or "".
func parseMapping(b []byte, m *Mapping) string {
	var ok bool
	if m.Start, b, ok = hex(b); !ok {
		return "bad start address"
	}
	if b, ok = literal(b, '-'); !ok {
		return "no - between addresses"
	}
	if m.End, b, ok = hex(b); !ok {
		return "bad end address"
	}
	if m.End <= m.Start {
		return "end is not above start"
	}
	if b, ok = parsePerms(b, m); !ok {
		return "bad permissions"
	}
	if b, ok = literal(b, ' '); !ok {
		return "no offset"
	}
	if m.Offset, b, ok = hex(b); !ok {
		return "bad offset"
	}
	if b, ok = parseDev(b, m); !ok {
		return "bad device"
	}
	if b, ok = literal(b, ' '); !ok {
		return "no inode"
	}
	if m.Inode, b, ok = decimal(b); !ok {
		return "bad inode"
	}
	if len(b) == 0 {
		return ""
	}
	if b[0] != ' ' {
		return "no blank before the path"
	}
	m.setPath(spaces(b))
	return ""
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

func (m *Mapping) setPath(b []byte) {
	if m.Inode != 0 && bytes.HasSuffix(b, []byte(deletedMark)) {
		m.Deleted = true
		b = b[:len(b)-len(deletedMark)]
	}
	// seq_file_path escapes newlines only, a backslash stays as it is.
	m.Path = strings.ReplaceAll(string(b), `\012`, "\n")
}

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
