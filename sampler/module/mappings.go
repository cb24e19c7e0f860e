package module

import "sfsample/ptrace/procfs"

// Mappings returns all mappings as they were last read, in ascending order. The
// caller must not change them.
func (s *Space) Mappings() []procfs.Mapping { return s.maps }
