package module

import "sfsample/ptrace/procfs"

// Mappings returns all mappings as they were last read, in ascending order. The
// caller must not change them.
func (s *Space) Mappings() []procfs.Mapping { return s.mapped.maps }

// FileBuildID returns the build-id of an ELF file in lower-case hex, empty if it
// has none. The error says why f cannot be read as an ELF file.
func FileBuildID(f File) (string, error) {
	h, err := readHeader(f, 0)
	if err != nil {
		return "", err
	}
	id, _ := h.buildID(f, true)
	return id, nil
}
